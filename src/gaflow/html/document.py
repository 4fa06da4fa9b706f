"""What every page has around it: the document, its policy, and styles of its own.

The convention this file owns: every style is scoped by a class named after the style sheet's own hash, so that
fragments, of this version or another, disturb neither one another nor the notebook. A page allows itself nothing but
its own style and, where it has one, the very script that it was written with.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from gaflow.html.attribution import level_class, safe
from gaflow.view.shades import LEVELS, foreground, shade, underline

__all__ = ["document", "scope", "static", "style"]


def document(title: str, inside: str, *, kind: str, sheets: tuple[str, ...] = (), script: str = "") -> str:
    """A whole page of class `kind` around `inside`; `sheets` are further style sheets in static/."""
    rules = f"\n{style(*sheets)}"
    policy = "default-src 'none'; style-src 'unsafe-inline'"  # browsers refuse whatever should not be here
    if "<img " in inside:  # which only ours can be, since texts are escaped
        policy += "; img-src data:"
    if script:  # and without bars, which have styles of their own, nothing but these two
        policy = f"default-src 'none'; style-src '{_digest(rules)}'; script-src '{_digest(script)}'"
        policy += "; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="generator" content="gaflow">\n'
        f"<title>{safe(title)}</title>\n<style>{rules}</style>\n</head>\n"
        f'<body class="{scope(*sheets)} page">\n<main class="{kind}">\n{inside}</main>\n'
        + (f"<script>{script}</script>\n" if script else "")
        + "</body>\n</html>\n"
    )


@cache
def static(name: str) -> str:
    """A file that comes with the package."""
    return files("gaflow").joinpath(f"html/static/{name}").read_text("utf-8")


@cache
def scope(*sheets: str) -> str:
    """The class that all styles are confined to."""
    return "gaflow-" + hashlib.sha256(_sheet(*sheets).encode()).hexdigest()[:8]


@cache
def style(*sheets: str) -> str:
    """The style sheet, confined."""
    return _sheet(*sheets).replace(".gaflow", f".{scope(*sheets)}")


@cache
def _sheet(*sheets: str) -> str:
    """The style sheet with `.gaflow` for a scope: the layout from its files, then the shades."""
    rules = []
    for level in (k for k in range(-LEVELS, LEVELS + 1) if k):
        back = shade(level), shade(level, "dark")
        front = foreground(back[0]), foreground(back[1])
        shown = _both("background-color", *back) + _both("color", *front)
        if level < 0:  # the sign must not hang on the colour alone
            shown += "border-bottom:2px dashed;" + _both("border-color", underline(level), underline(level, "dark"))
        rules.append(f".gaflow .{level_class(level)}{{{shown}}}\n")
    return "".join([static("attribution.css"), *(static(name) for name in sheets), *rules])


def _both(name: str, light: tuple[int, int, int], dark: tuple[int, int, int]) -> str:
    """A colour on light and on dark pages; browsers that know no light-dark() keep to the first."""
    a, b = ("#{:02x}{:02x}{:02x}".format(*colour) for colour in (light, dark))
    return f"{name}:{a};{name}:light-dark({a},{b});"


def _digest(script: str) -> str:
    """The hash by which a browser knows a script that it may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
