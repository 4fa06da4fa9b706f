"""Several attributions of one text on the terminal: words down, methods across.

Methods have different units, so a cell is the score in percent of the method's largest word (or token), and its shade
says the same. The share of special tokens is a row of its own, in percent of all scores. If the window is too narrow
for all methods, the table continues below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from gaflow.attribution.attribution import Attribution
from gaflow.terminal.attribution import flag_line, headline, verdict_line
from gaflow.terminal.console import Palette
from gaflow.view.shades import level_of
from gaflow.view.summary import Summary, summarize_all
from gaflow.view.text import one_line

_NARROWEST = 4  # columns of a cell: -100
_DIM = Style(dim=True)


@dataclass(frozen=True)
class _MethodColumn:
    """One method: a number for every row, in its shade."""

    name: str
    width: int
    cells: tuple[Text, ...]


def render_all(attributions: Mapping[str, Attribution], console: Console, *, tokens: bool = False) -> RenderableType:
    """The scores of every method for each word, or for each token, of one text; below, certificates and flags."""
    summaries = summarize_all(attributions)
    palette = Palette(console)
    labels = []
    if tokens:
        note = "100: a method's largest token, special ones aside"
        labels += map(one_line, summaries[0].att.tokens)
    else:
        note = "100: a method's largest word; last row: the special tokens' share of all scores"
        for word in summaries[0].att.words():
            prefix = "pair: " if word.segment == 1 else ""
            labels.append(prefix + one_line(word.text))
        labels.append("special")
    unsigned = [one_line(summary.name) for summary in summaries if (summary.att.scores >= 0).all()]
    if 0 < len(unsigned) < len(summaries):
        note += f"; never negative: {', '.join(unsigned)}"
    longest = max(Text(label).cell_len for label in labels)
    label_width = min(longest, max(8, console.width // 4))
    room = max(console.width - label_width, _NARROWEST + 1)
    columns = [_column(summary, tokens, palette, room) for summary in summaries]
    parts: list[RenderableType] = [headline(summaries[0], method=False)]
    for block in _blocks(columns, room):
        parts += ["", _table(block, labels)]
    parts += ["", Text(note, style=_DIM)]
    for summary in summaries:
        name = Text(f"{one_line(summary.name)} ")
        if summary.verdict is not None:
            parts.append(name + verdict_line(summary.verdict))
        for flag in summary.method_flags:
            parts.append(name + flag_line(flag))
    return Group(*parts, *map(flag_line, summaries[0].text_flags))


def _column(summary: Summary, tokens: bool, palette: Palette, room: int) -> _MethodColumn:
    """The scores of one method in percent of its largest."""
    scores = summary.att.scores
    special = summary.att.special_mask
    if not tokens:
        scores = np.array([word.score for word in summary.att.words()])
        special = np.zeros(len(scores), dtype=bool)
    largest = float(abs(scores[~special]).max(initial=0.0))
    cells = []
    for score, is_special in zip(scores.tolist(), special.tolist(), strict=True):
        fraction = score / largest if largest > 0 else 0.0
        style = _DIM if is_special else palette.style(level_of(score, largest))
        cells.append((str(round(100 * fraction)), style))
    if not tokens:
        share = summary.special_share
        cells.append(("-" if share is None else f"{share:.0%}", _DIM))
    name = one_line(summary.name)
    longest = max(_NARROWEST, len(name), *(len(text) for text, _ in cells))
    width = min(longest, room - 1)
    return _MethodColumn(name, width, tuple(Text(text.rjust(width), style=style) for text, style in cells))


def _blocks(columns: Sequence[_MethodColumn], room: int) -> list[list[_MethodColumn]]:
    """As many columns side by side as there is room for, at least one."""
    blocks: list[list[_MethodColumn]] = [[]]
    free = room
    for column in columns:
        if blocks[-1] and column.width + 1 > free:
            blocks.append([])
            free = room
        blocks[-1].append(column)
        free -= column.width + 1
    return blocks


def _table(block: Sequence[_MethodColumn], labels: Sequence[str]) -> Table:
    """One part of the table; labels come last, where the width of their characters shifts nothing."""
    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for column in block:
        grid.add_column(Text(column.name), justify="right", width=column.width, overflow="fold")
    grid.add_column("", overflow="fold")
    for row, label in enumerate(labels):
        cells = [column.cells[row] for column in block]
        grid.add_row(*cells, Text(label))
    return grid
