"""An attribution as HTML: the text itself, shaded by score where its tokens lie.

`page` makes one self-contained document of one attribution or of several side by side; `fragment` makes a piece for
a notebook. Neither needs a network, a script or anything outside the string, and the same attribution gives the same
bytes (so the time that a solve took is left out).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaflow.attribution.words import unit_of
from gaflow.files import write_atomically
from gaflow.html.attribution import View, flags, headline, legend, notes, safe, shared_legend, shortened, text, top
from gaflow.html.document import document, scope, style
from gaflow.view.shades import number_format

if TYPE_CHECKING:
    from gaflow.attribution.attribution import Attribution

__all__ = ["fragment", "named", "page"]

_TOP = 10  # words in the table of one attribution
_TOP_EACH = 6  # words in the tables of several
_LONG = 80  # tokens above which sentences are listed too
_SHORT = 160  # characters up to which several methods are rows, one below the other


def page(
    attributions: Attribution | Iterable[Attribution] | Mapping[str, Attribution],
    path: str | Path | None = None,
    *,
    words: bool = False,
    sentences: bool = False,
) -> str:
    """One HTML document of one attribution, or of several (a list, or what `Explainer.compare` gives) side by side.

    It is also written to `path`, if given. `words` or `sentences` colours these as a whole instead of tokens.
    """
    unit = unit_of(words=words, sentences=sentences)
    views = [View.of(name, att, unit) for name, att in named(attributions)]
    kind, inside = ("one", _one(views[0], "h1")) if len(views) == 1 else ("several", _several(views))
    made = document(_title(views), inside, kind=kind)
    if path is not None:
        write_atomically(Path(path), made.encode())
    return made


def fragment(att: Attribution, *, words: bool = False, sentences: bool = False) -> str:
    """One attribution as a piece of HTML for a notebook, with its styles; any number of them go together."""
    unit = unit_of(words=words, sentences=sentences)
    inside = _one(View.of(att.method, att, unit), "div")  # a heading would enter the notebook's table of contents
    return f'<div class="{scope()}">\n<style>\n{style()}</style>\n{inside}</div>\n'


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
    return headline(view, tag) + flags(view.att) + legend(view) + text(view) + _tops(view, _TOP) + notes(view)


def _tops(view: View, count: int) -> str:
    """The top words and, of a long text, the top sentences."""
    sentences = view.att.sentences()
    long = len(view.att.tokens) > _LONG and len(sentences) > 2
    return top(view, count) + (top(view, count // 2, "sentence") if long or view.unit == "sentence" else "")


def _several(views: list[View]) -> str:
    """A column for each; if they explain the same, that is said once, and a short text comes in rows above.

    Methods have units of their own, so that one legend in parts of the largest goes for all of them.
    """
    first = views[0].att
    same = all(
        (v.att.text, v.att.text_pair) == (first.text, first.text_pair) and _says(v) == _says(views[0]) for v in views
    )
    rows = same and len(first.text + (first.text_pair or "")) <= _SHORT
    parts = [_says(views[0]) if same else f"<h1>{len(views)} explanations</h1>\n"]
    if same:
        parts.append(shared_legend(views))
    if rows:
        each = (f'<div class="row">{_name(v)}<div>{text(v)}</div>{_largest(v)}</div>\n' for v in views)
        parts.append(f'<div class="rows">\n{"".join(each)}</div>\n')
    parts.append('<div class="columns">\n')
    for view in views:
        about = "" if same else headline(view, "h3", method=False)
        shades = _largest(view) if same and not rows else "" if rows else legend(view)
        body = flags(view.att) + shades + ("" if rows else text(view)) + _tops(view, _TOP_EACH) + notes(view)
        parts.append(f"<section>{_name(view)}{about}{body}</section>\n")
    return "".join([*parts, "</div>\n"])


def _says(view: View) -> str:
    return headline(view, "h1", method=False)


def _largest(view: View) -> str:
    """What the strongest shade of one method stands for, and how much of all that is: special tokens may have most."""
    title = f"the largest absolute score of a {view.unit}, which has the strongest shade, and its part of all scores"
    shown = f"{number_format(view.largest)(view.largest)} ({view.share(view.largest)})"
    return f'<p class="largest" title="{title}">{shown}</p>\n'


def _name(view: View) -> str:
    return f"<h2><bdi>{safe(view.name)}</bdi></h2>\n"
