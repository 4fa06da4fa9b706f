"""An attribution on the terminal: the text as it was written, shaded by score, with numbers and bars.

Numbers and bars say the same as the shades, without colour. Text from outside comes last in its line: neither its
script nor the width of its characters can shift the rest.
"""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from gaflow.attribution.attribution import Attribution
from gaflow.attribution.words import Unit, unit_of
from gaflow.terminal.console import Palette, table
from gaflow.view.shades import NEGATIVE_COLOUR
from gaflow.view.summary import CertificateSummary, Flag, Passage, Summary, TopUnit, summarize
from gaflow.view.text import visible

_UNREAD_CHARACTERS = 60
_NARROW = 60  # columns; narrower windows get shorter bars and legends


def render(
    att: Attribution, console: Console, *, top: int = 5, words: bool = False, sentences: bool = False
) -> RenderableType:
    """Prediction, shaded text, legend, `top` words, certificate and flags of an attribution.

    The text is shaded by token, or by `words` or `sentences`; with `sentences` these are listed, too.

        console = make_console()
        show(console, render(explainer("a gripping film."), console))
    """
    summary = summarize(att, unit=unit_of(words=words, sentences=sentences))
    palette = Palette(console)
    parts: list[RenderableType] = [headline(summary), ""]
    parts += [_shaded(passage, palette) for passage in summary.passages(_UNREAD_CHARACTERS)]
    legend = summary.legend(f"{NEGATIVE_COLOUR} and underlined")
    if palette.coloured and legend is not None and att.media is None:  # pictures and sounds are not shaded here
        step = 2 if console.width < _NARROW else 1
        scale = Text(f"{legend.low} ")
        for level in legend.levels[::step]:
            scale.append(" ", palette.underlined(level))
        parts += ["", scale.append(f" {legend.high} {visible(legend.words)}")]
    if top > 0:
        parts += ["", _top_table(summary, top, "word", console)]
    if top > 0 and sentences:
        parts += ["", _top_table(summary, top, "sentence", console)]
    parts.append("")
    if summary.special_note:
        parts.append(Text(summary.special_note, style="dim"))
    if summary.verdict is not None:
        parts.append(verdict_line(summary.verdict))
    if summary.diagnostics:
        parts.append(Text(", ".join(summary.diagnostics), style="dim"))
    return Group(*parts, *map(flag_line, summary.flags))


def headline(summary: Summary, *, method: bool = True) -> Text:
    """The explained label and what the model says about it."""
    line = Text(summary.headline, style="bold", overflow="fold")
    facts = ", ".join(summary.facts(method=method))
    return line.append(f"  {facts}", "not bold")


def flag_line(flag: Flag) -> Text:
    """A warning that must not be missed."""
    return Text(flag.name, style="bold red").append(f": {flag.meaning}", "not bold default")


def verdict_line(verdict: CertificateSummary) -> Text:
    """What the certificate says."""
    return Text(f"{verdict.name}: {verdict.text}", style="dim")


def _shaded(passage: Passage, palette: Palette) -> Text:
    text = Text(style=palette.style(0), overflow="fold")
    for piece in passage.pieces:
        style = None
        if piece.unread:
            style = "italic"
        elif piece.level is not None:
            style = palette.underlined(piece.level)
        text.append(visible(piece.text), style)
    return text


def _top_table(summary: Summary, count: int, unit: Unit, console: Console) -> Table:
    narrow = console.width < _NARROW
    cells = 6 if narrow else 12
    block = "#" if console.options.ascii_only else "\u2588"
    compact = narrow and unit == "sentence"  # the sentences need the room
    heads = ["score", "share", unit] if compact else ["score", "share", "", "at", unit]
    rows = []
    for row in summary.top(count, unit):
        numbers = [row.score, row.share]
        if not compact:
            numbers += [_bar(row, cells, block, signed=summary.signed), str(row.unit.start)]
        text = visible(row.unit.text)
        if row.segment:
            text = f"{row.segment}: {text}"
        rows.append([*numbers, text])
    return table(heads, rows)


def _bar(row: TopUnit, cells: int, block: str, *, signed: bool) -> str:
    """A bar of at most `cells`; bars of signed scores begin in the middle, and go to the left below 0."""
    length = round(abs(row.fraction) * cells)
    if row.fraction:
        length = max(length, 1)
    filled = block * length
    if not signed:
        return filled.ljust(cells)
    if row.fraction < 0:
        return f"{filled:>{cells}}|{'':{cells}}"
    return f"{'':{cells}}|{filled:<{cells}}"
