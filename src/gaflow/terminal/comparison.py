"""Several attributions of one text on the terminal: words down, methods across.

Methods measure in units of their own, so a cell is the score in percent of the method's largest word (or token); its
shade says the same. What special tokens hold is told apart, in percent of all there is. Where the window is too narrow
for all methods the table goes on below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from gaflow.attribution.attribution import Attribution
from gaflow.terminal.attribution import certified, headline, one_line, paint, truncated, warned
from gaflow.view.shades import LEVELS

__all__ = ["render_all"]

_NARROWEST = 4  # columns of a cell: -100
_DIM = Style(dim=True)


@dataclass(frozen=True)
class _Column:
    """One method: a number and a style for every row."""

    name: str
    cells: tuple[tuple[str, Style], ...]

    @property
    def width(self) -> int:
        return max(_NARROWEST, len(self.name), *(len(text) for text, _ in self.cells))


def render_all(found: Mapping[str, Attribution], console: Console, *, tokens: bool = False) -> RenderableType:
    """What was explained, and the scores of every method for each word, or for each token."""
    if not found:
        raise ValueError("found is empty; give at least one attribution")
    first = next(iter(found.values()))
    if any(
        (att.text, att.text_pair, att.tokens) != (first.text, first.text_pair, first.tokens) for att in found.values()
    ):
        raise ValueError("the attributions are of different texts; compare one text at a time")
    labels = _labels(first, tokens)
    shaded = console.color_system is not None and not console.no_color
    coarse = console.color_system != "truecolor"
    columns = [_column(name, att, tokens, shaded, coarse) for name, att in found.items()]
    longest = max(Text(label).cell_len for label in labels)
    room = max(console.width - min(longest, max(8, console.width // 4)), _NARROWEST + 1)
    tables = [part for block in _blocks(columns, room) for part in ("", _table(block, labels, room))]
    unit = "token, special ones aside" if tokens else "word; last row: what special tokens hold of all scores"
    note = Text(f"100: a method's largest {unit}", style=_DIM)
    return Group(headline(first, method=False), *tables, "", note, *_notes(found))


def _labels(att: Attribution, tokens: bool) -> list[str]:
    """What the rows are called."""
    if tokens:
        return [one_line(token) for token in att.tokens]
    where = {0: "", 1: "pair: "} if att.text_pair is not None else {0: ""}
    return [*(where[w.segment] + one_line(w.text) for w in att.words()), "special"]


def _column(name: str, att: Attribution, tokens: bool, shaded: bool, coarse: bool) -> _Column:
    """The scores of one method in percent of its largest."""
    plain = att.special_mask if tokens else [False] * len(att.words())
    scores = att.scores.tolist() if tokens else [w.score for w in att.words()]
    largest = max((abs(s) for s, aside in zip(scores, plain, strict=True) if not aside), default=0.0)
    cells = []
    for score, aside in zip(scores, plain, strict=True):
        part = score / largest if largest > 0 else 0.0
        level = round(max(-1.0, min(part, 1.0)) * LEVELS)
        style = _DIM if aside else paint(level, coarse=coarse) if shaded else Style.null()
        cells.append((str(round(100 * part)), style))
    if not tokens:
        total = math.fsum(abs(s) for s in att.scores)
        special = math.fsum(abs(s) for s, aside in zip(att.scores, att.special_mask, strict=True) if aside)
        cells.append((f"{special / total:.0%}" if total > 0 else "-", _DIM))
    return _Column(one_line(name), tuple(cells))


def _blocks(columns: Sequence[_Column], room: int) -> list[list[_Column]]:
    """As many columns beside one another as there is room for, at least one."""
    blocks: list[list[_Column]] = [[]]
    left = room
    for column in columns:
        if blocks[-1] and column.width + 1 > left:
            blocks.append([])
            left = room
        blocks[-1].append(column)
        left -= column.width + 1
    return blocks


def _table(block: Sequence[_Column], labels: Sequence[str], room: int) -> Table:
    """One part of the table; labels come last, where no width of characters shifts the rest."""
    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    widths = [min(column.width, room - 1) for column in block]
    for column, width in zip(block, widths, strict=True):
        grid.add_column(Text(column.name), justify="right", width=width, overflow="fold")
    grid.add_column("", overflow="fold")
    for k, label in enumerate(labels):
        cells = [(column.cells[k], width) for column, width in zip(block, widths, strict=True)]
        grid.add_row(*(Text(text.rjust(width), style=style) for (text, style), width in cells), Text(label))
    return grid


def _notes(found: Mapping[str, Attribution]) -> list[Text]:
    """How exact the flows are, and what must not be missed."""
    lines = []
    for name, att in found.items():
        lines += [Text(f"{one_line(name)} ") + line for line in certified(att) + warned(att)]
    return lines + truncated(next(iter(found.values())))
