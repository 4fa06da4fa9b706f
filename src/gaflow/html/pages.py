"""An attribution as HTML: the text itself, shaded by score where its tokens lie.

`page` makes one self-contained document of one attribution or of several side by side; `fragment` makes a piece for
a notebook. Neither needs a network, a script or anything outside the string, and the same attribution gives the same
bytes (so the time that a solve took is left out).

The convention this file owns: every style is scoped by a class named after the style sheet's own hash, so that
fragments, of this version or another, disturb neither one another nor the notebook.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaflow.markup import View, flags, headline, legend, level_class, notes, safe, shortened, text, top
from gaflow.shading import LEVELS, foreground, shade, underline
from gaflow.storage import write_whole

if TYPE_CHECKING:
    from gaflow.attribution import Attribution

__all__ = ["fragment", "named", "page"]

_TOP = 10  # words in the table of one attribution
_TOP_EACH = 6  # words in the tables of several
_SHORT = 160  # characters up to which several methods are rows, one below the other
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # browsers refuse whatever should not be here


def page(
    attributions: Attribution | Iterable[Attribution] | Mapping[str, Attribution],
    path: str | Path | None = None,
    *,
    words: bool = False,
) -> str:
    """One HTML document of one attribution, or of several (a list, or what `Explainer.compare` gives) side by side.

    It is also written to `path`, if given. `words` colours whole words instead of tokens.
    """
    views = [View.of(name, att, words) for name, att in named(attributions)]
    kind, inside = ("one", _one(views[0], "h1")) if len(views) == 1 else ("several", _several(views))
    document = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="generator" content="gaflow">\n'
        f"<title>{safe(_title(views))}</title>\n<style>\n{_style()}</style>\n</head>\n"
        f'<body class="{_scope()} page">\n<main class="{kind}">\n{inside}</main>\n</body>\n</html>\n'
    )
    if path is not None:
        write_whole(Path(path), document.encode())
    return document


def fragment(att: Attribution, *, words: bool = False) -> str:
    """One attribution as a piece of HTML for a notebook, with its styles; any number of them go together."""
    inside = _one(View.of(att.method, att, words), "div")  # a heading would enter the notebook's table of contents
    return f'<div class="{_scope()}">\n<style>\n{_style()}</style>\n{inside}</div>\n'


def named(given: Any) -> list[tuple[str, Attribution]]:
    """One attribution, several, or a dict of them, as (name, attribution); refuses anything else."""
    found: list[tuple[str, Any]]
    if isinstance(given, Mapping):
        found = [(str(name), att) for name, att in given.items()]
    else:
        several = given if isinstance(given, Iterable) and not isinstance(given, str) else [given]
        found = [(getattr(att, "method", ""), att) for att in several]
    for _, att in found:
        if not hasattr(att, "pieces"):
            raise TypeError(f"attributions must be Attribution objects, in a list or dict, not {type(att).__name__}")
    if not found:
        raise ValueError("attributions is empty; give at least one attribution")
    return found


def _title(views: list[View]) -> str:
    att = views[0].att
    chance = "" if att.probability is None else f" {att.probability:.1%}"
    return f"{att.label}{chance} by {', '.join(dict.fromkeys(v.name for v in views))}: {shortened(att.text)}"


def _one(view: View, tag: str) -> str:
    """Everything there is to say about one attribution."""
    return headline(view, tag) + flags(view.att) + legend(view) + text(view) + top(view, _TOP) + notes(view)


def _several(views: list[View]) -> str:
    """A column for each; if they explain the same, that is said once, and a short text comes in rows above."""
    first = views[0].att
    same = all((v.att.text, v.att.pair) == (first.text, first.pair) and _says(v) == _says(views[0]) for v in views)
    rows = same and len(first.text + (first.pair or "")) <= _SHORT
    parts = [_says(views[0]) if same else f"<h1>{len(views)} explanations</h1>\n"]
    if rows:
        each = (f'<div class="row">{_name(v)}<div>{text(v)}</div></div>\n' for v in views)
        parts.append(f'<div class="rows">\n{"".join(each)}</div>\n')
    parts.append('<div class="columns">\n')
    for view in views:
        about = "" if same else headline(view, "h3", method=False)
        body = flags(view.att) + legend(view) + ("" if rows else text(view)) + top(view, _TOP_EACH) + notes(view)
        parts.append(f"<section>{_name(view)}{about}{body}</section>\n")
    return "".join([*parts, "</div>\n"])


def _says(view: View) -> str:
    return headline(view, "h1", method=False)


def _name(view: View) -> str:
    return f"<h2><bdi>{safe(view.name)}</bdi></h2>\n"


@cache
def _sheet() -> str:
    """The style sheet with `.gaflow` for a scope: the layout from its file, then the shades."""
    rules = []
    for level in (k for k in range(-LEVELS, LEVELS + 1) if k):
        back = shade(level), shade(level, "dark")
        front = foreground(back[0]), foreground(back[1])
        shown = _both("background-color", *back) + _both("color", *front)
        if level < 0:  # the sign must not hang on the colour alone
            shown += "border-bottom:2px dashed;" + _both("border-color", underline(level), underline(level, "dark"))
        rules.append(f".gaflow .{level_class(level)}{{{shown}}}\n")
    return files("gaflow").joinpath("static/attribution.css").read_text("utf-8") + "".join(rules)


def _both(name: str, light: tuple[int, int, int], dark: tuple[int, int, int]) -> str:
    """A colour on light and on dark pages; browsers that know no light-dark() keep to the first."""
    a, b = ("#{:02x}{:02x}{:02x}".format(*colour) for colour in (light, dark))
    return f"{name}:{a};{name}:light-dark({a},{b});"


@cache
def _scope() -> str:
    return "gaflow-" + hashlib.sha256(_sheet().encode()).hexdigest()[:8]


@cache
def _style() -> str:
    return _sheet().replace(".gaflow", f".{_scope()}")
