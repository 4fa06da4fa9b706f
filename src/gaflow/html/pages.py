"""Attributions as HTML: the text itself, shaded by score where its tokens lie.

`page` makes a self-contained document of one attribution or of several side by side; `fragment` makes a piece for a
notebook. Neither needs a network or a script, and the same attribution always gives the same bytes. For that reason
the time that a solve took is left out.
"""

from __future__ import annotations

from pathlib import Path

from gaflow.arguments import checked, location
from gaflow.attribution.attribution import Attribution
from gaflow.attribution.words import unit_of
from gaflow.files import write_atomically
from gaflow.html.document import NEGATIVE, document, render, scope, style
from gaflow.inputs.media import Image
from gaflow.view.summary import Attributions, Summary, named_attributions, shared_legend, summarize

_SHORT_TEXT = 160  # characters up to which several methods are rows, one below the other


@checked
def page(
    attributions: Attributions, path: str | Path | None = None, *, words: bool = False, sentences: bool = False
) -> str:
    """A page about one attribution, or about several side by side; it is also written to `path`, if given.

    `attributions` may be a list, or a dict such as `Explainer.compare` returns. `words` or `sentences` shades these
    as a unit instead of tokens.

        page(explainer("a gripping film."), "page.html")
        page(explainer.compare("a gripping film.", methods=["agf", "attcat"]), "methods.html")
    """
    unit = unit_of(words=words, sentences=sentences)
    summaries = [summarize(att, name, unit) for name, att in named_attributions(attributions)]
    images = any(isinstance(summary.att.media, Image) for summary in summaries)
    if len(summaries) == 1:
        body = render("one.html", summary=summaries[0], tag="h1", provenance=True)
        html = document(summaries[0].title, body, kind="one", images=images)
    else:
        first = summaries[0]
        same = all(_subject(summary) == _subject(first) for summary in summaries)
        legend = shared_legend(summaries, NEGATIVE) if same else None  # methods have different units
        characters = len(first.att.text + (first.att.text_pair or ""))
        in_rows = same and characters <= _SHORT_TEXT
        body = render("several.html", summaries=summaries, legend=legend, in_rows=in_rows)
        names = dict.fromkeys(summary.name for summary in summaries)
        title = summarize(first.att, ", ".join(names)).title
        html = document(title, body, kind="several", images=images)
    if path is not None:
        write_atomically(location("path", path), html.encode())
    return html


@checked
def fragment(att: Attribution, *, words: bool = False, sentences: bool = False) -> str:
    """One attribution as a piece of HTML for a notebook, with its styles; any number of them go together."""
    summary = summarize(att, unit=unit_of(words=words, sentences=sentences))
    # a heading would enter the notebook's table of contents, and showing a result must not hash its model
    body = render("one.html", summary=summary, tag="div", provenance=False)
    return str(render("fragment.html", scope=scope(), style=style(), body=body))


def _subject(summary: Summary) -> tuple[object, ...]:
    """What is explained: equal for methods that explain the same output of the same text."""
    return summary.att.text, summary.att.text_pair, summary.headline, *summary.facts(method=False)
