"""The frame of every page: templates, style sheets, and the document with its content security policy.

The conventions this file owns:

**Nothing gets into a page unescaped.** Templates (templates/*.html) escape every value, after control characters have
been written out. Only `Markup` is inserted as it is, and only this file makes it: rendered templates (`render`), our
style sheets (`style`), our scripts (`static`), and SVG that our own figures wrote (`trusted_svg`).

**Every style is scoped** by a class named after the hash of the style sheet. Fragments of this version and of another
disturb neither each other nor the notebook around them.

**A page allows itself nothing** but its style, its pictures and, if it has one, exactly the script it was written with.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gaflow.attribution.words import ALL_ZERO
from gaflow.html.media import images
from gaflow.view.matches import match_table
from gaflow.view.media import envelope, frames
from gaflow.view.shades import LEVELS, NEGATIVE_COLOUR, foreground, hex_code, shade, underline
from gaflow.view.summary import NO_CERTIFICATE
from gaflow.view.text import shortened, visible

NEGATIVE = f"{NEGATIVE_COLOUR} with a dashed line below"  # how pages mark scores below 0, for legends


def render(template: str, **values: object) -> Markup:
    """A file of templates/ filled with `values`, each of which is escaped unless it is `Markup`."""
    return Markup(_environment().get_template(template).render(values))


def document(
    title: str,
    body: Markup,
    *,
    kind: str,
    sheets: tuple[str, ...] = (),
    script: Markup | None = None,
    images: bool = False,
) -> str:
    """A page of class `kind` around `body`; `sheets` are further style sheets in static/, `images` allows data URIs."""
    rules = Markup("\n") + style(*sheets)
    policy = "default-src 'none'; style-src 'unsafe-inline'"  # the bars of tables have styles of their own
    if images:
        policy += "; img-src data:"
    if script is not None:
        policy = f"default-src 'none'; style-src '{_digest(rules)}'; script-src '{_digest(script)}'"
        policy += "; base-uri 'none'; form-action 'none'"
    page = render(
        "document.html",
        title=title,
        body=body,
        kind=kind,
        policy=policy,
        rules=rules,
        scope=scope(*sheets),
        script=script,
    )
    return str(page)


def trusted_svg(svg: str) -> Markup:
    """An SVG drawing that gaflow itself has written."""
    return Markup(svg)


def level_class(level: int) -> str:
    """The class of a shade: p1, p2, ... above 0, n1, n2, ... below, none for 0."""
    if level == 0:
        return ""
    sign = "n" if level < 0 else "p"
    return f"{sign}{abs(level)}"


@cache
def static(name: str) -> Markup:
    """A style sheet or script of static/."""
    return Markup(files("gaflow").joinpath("html", "static", name).read_text("utf-8"))


@cache
def scope(*sheets: str) -> str:
    """The class that all styles are confined to."""
    return "gaflow-" + hashlib.sha256(_sheet(*sheets).encode()).hexdigest()[:8]


@cache
def style(*sheets: str) -> Markup:
    """The style sheet, confined."""
    return Markup(_sheet(*sheets).replace(".gaflow", f".{scope(*sheets)}"))


def open_style(*sheets: str) -> str:
    """The style sheet for pages that are served: its styles hold for every element of class `gaflow`."""
    return _sheet(*sheets)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("gaflow", "html/templates"),
        autoescape=True,
        finalize=_finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    functions = (level_class, shortened, images, frames, envelope, match_table, shade, foreground, underline, hex_code)
    for function in functions:
        environment.filters[function.__name__] = function
    environment.globals.update(ALL_ZERO=ALL_ZERO, NEGATIVE=NEGATIVE, NO_CERTIFICATE=NO_CERTIFICATE, zip=zip)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment


def _finalize(value: object) -> object:
    """Every string that a template inserts, before it is escaped."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return value


@cache
def _sheet(*sheets: str) -> str:
    """The style sheet with `.gaflow` for a scope: the layout from its files, then the shades."""
    parts = [static(name) for name in ("attribution.css", *sheets)]
    levels = [level for level in range(-LEVELS, LEVELS + 1) if level != 0]
    return "".join([*parts, render("shades.css", levels=levels)])


def _digest(source: str) -> str:
    """The hash by which a browser recognises a script or style that it may use."""
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
