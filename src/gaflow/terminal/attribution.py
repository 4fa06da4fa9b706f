"""An attribution on the terminal: the text as it was written, on paper, shaded by score.

The text has the shades of a light page whatever the terminal's own colours are, so that it always reads the same: white
is score 0, orange above, blue and underlined below, with letters in black or white. Numbers and bars say the same
without colour.

The convention this file owns: **what comes from outside is shown, never obeyed**. It goes through `visible` into plain
`Text`, never through markup; and it comes last in its line, so that no script or width of characters shifts the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from gaflow.attribution.attribution import Attribution
from gaflow.attribution.words import UNITS, Unit, unit_of
from gaflow.methods.base import AGAINST
from gaflow.view.shades import LEVELS, Run, foreground, number_format, runs, shade, spelled, visible

__all__ = ["certified", "headline", "make_console", "one_line", "paint", "render", "show", "table", "truncated"]

_ROUNDING = 1e-12  # what may be left of a difference that should be 0
_LONGEST = 1000  # characters of an error line
_NUMBERS = ("score", "share", "at")  # columns aligned to the right
# Exact colours of terminals that have 256, whose nearest to the shades of a page would change hue from step to step
_COARSE = {
    1: ((255, 255, 255), (255, 215, 175), (255, 175, 95), (255, 135, 0), (215, 95, 0)),
    -1: ((255, 255, 255), (175, 215, 255), (95, 175, 255), (0, 135, 215), (0, 95, 175)),
}
_UNREAD = 60  # characters shown of what a truncated text goes on with


def one_line(message: str) -> str:
    """`message` on a single line that is safe to print."""
    line = " ".join(visible(message).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


def make_console(*, stderr: bool = False) -> Console:
    """A console that reads nothing into what it prints: no markup, no :emoji:, no highlighting of numbers."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


def show(console: Console, what: RenderableType) -> None:
    """Print without the blanks by which tables fill their columns, unless there is a colour behind them."""
    with console.capture() as captured:
        console.print(what)
    lines = captured.get().split("\n")
    console.file.write("\n".join(line.rstrip(" ") for line in lines))


def render(
    att: Attribution, console: Console, *, top: int = 5, words: bool = False, sentences: bool = False
) -> RenderableType:
    """Everything there is to say: prediction, shaded text, legend, `top` words, certificate and flags.

    The text is shaded by token, or by whole `words` or `sentences`; sentences are listed then, too.
    """
    unit = unit_of(words=words, sentences=sentences)
    coloured = console.color_system is not None and not console.no_color
    coarse = console.color_system != "truecolor"
    parts: list[RenderableType] = [headline(att), ""]
    pieces = UNITS[unit](att) if att.media is None else []  # a picture or a sound is only named
    sources = (att.text,) if att.text_pair is None else (att.text, att.text_pair)
    found = [runs(source, [p for p in pieces if p.segment == k]) for k, source in enumerate(sources)]
    largest = max((abs(run.score) for each in found for run in each), default=0.0)
    paper = paint(0) if coloured else Style.null()
    parts += [_shaded(s, each, largest, att.truncated, paper, coarse) for s, each in zip(sources, found, strict=True)]
    signed = bool((att.scores < 0).any())
    if coloured and largest > 0:
        parts += ["", _legend(largest, signed, unit, coarse, 2 if console.width < 60 else 1)]
    if top > 0:
        parts += ["", _top(att, top, "word", console)]
    if top > 0 and sentences:
        parts += ["", _top(att, top, "sentence", console)]
    return Group(*parts, "", *_notes(att))


def headline(att: Attribution, *, method: bool = True) -> Text:
    """What was explained (by which method), and what the model says about it."""
    line = Text(one_line(att.label), style="bold", overflow="fold")
    chance = "" if att.probability is None else f" {att.probability:.1%}"
    line.append(chance, "bold")
    line.append(f"  {att.output_name} {att.output:.4g}", "not bold")
    if method:
        line.append(f", explained by {one_line(att.method)}", "not bold")
    if att.label != att.prediction:
        line.append(f"; the model predicts {one_line(att.prediction)}", "not bold")
    return line


def _shaded(source: str, found: Sequence[Run], largest: float, truncated: bool, paper: Style, coarse: bool) -> Text:
    """The source on paper, with a shade behind every run."""
    text = Text(style=paper, overflow="fold")
    cursor = 0
    for run in found:
        text.append(visible(source[cursor : run.start]))
        level = round(run.score / largest * LEVELS) if largest > 0 else 0
        text.append(visible(source[run.start : run.end]), _signed(level, coarse) if paper else None)
        cursor = run.end
    rest = source[cursor:]
    if truncated and len(rest) > _UNREAD:
        rest = f"{rest[:_UNREAD]} (and {len(rest) - _UNREAD} more characters)"
    text.append(visible(rest), "italic" if truncated else None)
    return text


def paint(level: int, *, coarse: bool = False) -> Style:
    """The style of a shade, -LEVELS to LEVELS; `coarse` takes the nearest of a few that all terminals have."""
    if coarse:
        steps = _COARSE[-1 if level < 0 else 1]
        back = steps[round(abs(level) / LEVELS * (len(steps) - 1))]
    else:
        back = shade(level)
    return Style(color=_hex(foreground(back)), bgcolor=_hex(back))


def _signed(level: int, coarse: bool) -> Style:
    """The style of a shade, with a line below what is below 0: the sign must not hang on the colour alone."""
    return paint(level, coarse=coarse) + Style(underline=level < 0)


def _hex(colour: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def _legend(largest: float, signed: bool, unit: str, coarse: bool, step: int) -> Text:
    """From the lowest score, over 0, to the highest, in every `step`-th shade of the text."""
    form = number_format(largest)
    line = Text(form(-largest) if signed else "0").append(" ")
    for level in range(-LEVELS if signed else 0, LEVELS + 1, step):
        line.append(" ", _signed(level, coarse))
    return line.append(f" {form(largest)} per {unit}{'; underlined: below 0' if signed else ''}")


def _top(att: Attribution, count: int, unit: Unit, console: Console) -> Table:
    """The words (or sentences) of largest (absolute) score: score, share of all there is, bar, word."""
    words, signed = sorted(UNITS[unit](att), key=lambda w: -abs(w.score))[:count], bool((att.scores < 0).any())
    form = number_format(max((abs(w.score) for w in words), default=0.0))
    total = math.fsum(abs(s) for s in att.scores)
    largest = max((abs(w.score) for w in words), default=0.0) or 1.0
    narrow = console.width < 60
    cells = 6 if narrow else 12
    block = "#" if console.options.ascii_only else "\u2588"
    rows = []
    for word in words:
        share = f"{abs(word.score) / total:.1%}" if total > 0 else "-"
        where = "" if att.text_pair is None else f"{'pair' if word.segment else 'text'}: "
        bar = _bar(word.score / largest, cells, signed, block)
        rows.append([form(word.score), share, bar, str(word.start), where + visible(word.text)])
    if narrow and unit == "sentence":  # which needs the room more
        return table(["score", "share", unit], [[row[0], row[1], row[-1]] for row in rows])
    return table(["score", "share", "", "at", unit], rows)


def _bar(value: float, cells: int, signed: bool, block: str) -> str:
    """A bar of `cells` at most; with signed scores it grows from the middle, to the left below 0."""
    filled = block * max(round(abs(value) * cells), 1 if value else 0)
    if not signed:
        return filled.ljust(cells)
    left, right = (filled, "") if value < 0 else ("", filled)
    return f"{left:>{cells}}|{right:<{cells}}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table without lines, whose last column may wrap; cells must be `visible` already."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=any(heads))
    for k, head in enumerate(heads):
        right = head in _NUMBERS
        grid.add_column(head, justify="right" if right else "left", overflow="fold", no_wrap=k < len(heads) - 1)
    for row in rows:
        grid.add_row(*(Text(cell, overflow="fold") for cell in row))
    return grid


def _notes(att: Attribution) -> list[Text]:
    """What must not be missed: the special tokens' part, the certificate, and flags."""
    lines = []
    total = math.fsum(abs(s) for s in att.scores)
    special = math.fsum(abs(s) for s, aside in zip(att.scores, att.special_mask, strict=True) if aside)
    if total > 0 and special > 0:
        names = ", ".join(dict.fromkeys(one_line(t) for t, s in zip(att.tokens, att.segments, strict=True) if s < 0))
        lines.append(Text(f"special tokens ({names}) hold {special / total:.1%} of all scores", style="dim"))
    lines += certified(att)
    known = {name: fact for name, fact in att.diagnostics.items() if name not in ("warning", AGAINST)}  # told elsewhere
    plain = [f"{one_line(name)} {one_line(value)}" for name, value in spelled(known).items()]
    if plain:
        lines.append(Text(", ".join(plain), style="dim"))
    return lines + warned(att) + truncated(att)


def warned(att: Attribution) -> list[Text]:
    """What the method itself warns of."""
    return [_flag("warning", one_line(str(att.diagnostics["warning"])))] if "warning" in att.diagnostics else []


def truncated(att: Attribution) -> list[Text]:
    """A warning, if the model has not read all of the text."""
    return [_flag("truncated", f"the model read only the first {len(att.tokens)} tokens")] if att.truncated else []


def certified(att: Attribution) -> list[Text]:
    """How exact the flow is, if there is one, and what must be known of it."""
    found = att.certificate
    if found is None:
        return []
    if found.dead:
        return [_flag("dead", "nothing flows from the output to the input, so every score is 0")]
    error = max(found.conservation, found.dual, found.centrality)
    value = (att.scores if att.layers is None else att.layers[0]).sum()  # scores may be summed over layers
    against = att.diagnostics.get(AGAINST)
    flows = f"flow {value:.4g}"
    if against is not None:
        both = float(value) + float(against)
        flows = f"flow {both if both > _ROUNDING * float(against) else 0:.4g} for, {float(against):.4g} against"
    exact = f"{flows}, optimal to {error:.0e}, {found.iterations} steps"
    if not found.converged:
        return [_flag("not certified", f"the solver stopped early: {exact}")]
    lines = [Text(f"certified: {exact}", style="dim")]
    if found.negligible:
        lines.append(_flag("negligible", f"{found.negligible} capacities below 1e-100 of the largest were dropped"))
    return lines


def _flag(name: str, meaning: str) -> Text:
    return Text(name, style="bold red").append(f": {meaning}", "not bold default")
