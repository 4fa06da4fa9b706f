"""Heat maps: tokens in columns; layers, or methods, in rows (paper, Figures 5 to 7 and 9).

A text that is too long for one line of columns goes on in the next block. Where there is room, the number itself
stands in its cell.

The convention this file owns: **each row is shaded by its own largest**, since a layer's flow may sit in one token
and be spread over all in the next, and methods have units of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from gaflow.plots.elements import box, head, head_height, level_of, outlined, scale, scale_height, shaded, word
from gaflow.plots.figure import (
    GREY,
    PAD,
    Picture,
    facts,
    fitted,
    flags,
    ink,
    name_of,
    remarks,
    shown,
    styled,
    width_of,
    wrapped,
)
from gaflow.view.summary import named_attributions as named
from gaflow.view.text import number_format

if TYPE_CHECKING:
    from gaflow.attribution.attribution import Attribution

__all__ = ["compare", "layers"]

_WIDEST = 780.0  # of a block of columns
_NARROWEST = 420.0  # of a whole figure, for its captions
_LABEL = 90.0  # longest label of a column, which is turned if its column is narrower
_NAME = 120.0  # longest name of a row
_ROW = 15.0
_NUMBERS = 600  # cells: more of them have no numbers
_SMALL = 6.5  # size of these


@dataclass(frozen=True)
class _Table:
    """Rows of numbers over tokens; one block of the figure, or more if the text is long."""

    title: str
    values: np.ndarray  # (rows, t), the first row on top
    rows: tuple[str, ...]
    largest: np.ndarray  # (rows,) what has the strongest shade
    forms: tuple[Callable[[float], str], ...]  # how to write the numbers of each row in its cells

    def number(self, row: int, value: float) -> str:
        """A value of that row, as it is written."""
        return self.forms[row](value) if value else "0"

    def strongest(self, row: int) -> str:
        """The largest of that row, with digits of its own."""
        largest = float(self.largest[row])
        return number_format(largest)(largest) if largest else "0"

    def widest(self) -> float:
        """The width of the longest number in a cell."""
        return max(width_of(self.number(k, row[abs(row).argmax()]), _SMALL) for k, row in enumerate(self.values))

    def beside(self) -> float:
        """The width of the longest number beside a row."""
        return max(width_of(self.strongest(k), _SMALL) for k in range(len(self.rows)))


def layers(attributions: Attribution | Iterable[Attribution] | Mapping[str, Attribution]) -> Picture:
    """The flow through every token of every node layer, the output on top and the input at the bottom.

    Of several attributions of the same tokens (a list, or a dict with their names) each has a block of its own.
    """
    found = named(attributions)
    tables = []
    for name, att in found:
        if att.layers is None:
            raise ValueError(f"{name} is no flow method, so there are no layers to show; take af, gf or agf")
        values = att.layers[::-1]
        form = number_format(float(abs(values).max(initial=0.0)))
        last = len(values) - 1
        rows = tuple(f"{k} {'output' if k == last else 'input' if k == 0 else ''}".strip() for k in range(last, -1, -1))
        title = name if len(found) > 1 else "flow through each token, layer by layer"
        tables.append(_Table(title, values, rows, abs(values).max(1), (form,) * len(values)))
    return _draw(found, tables, "flow through a token: each layer is shaded by its own largest")


def compare(attributions: Attribution | Iterable[Attribution] | Mapping[str, Attribution]) -> Picture:
    """The scores of several methods for the same tokens, a row each; takes what `Explainer.compare` gives."""
    found = named(attributions)
    values = np.stack([att.scores for _, att in found]) if len({att.tokens for _, att in found}) == 1 else np.empty(0)
    ordinary = ~found[0][1].special_mask
    if values.size == 0:
        raise ValueError("compare needs attributions of the same tokens; explain one text with each method")
    largest = abs(values[:, ordinary]).max(1, initial=0.0)
    forms = tuple(number_format(float(abs(row).max(initial=0.0))) for row in values)
    table = _Table("", values, tuple(name for name, _ in found), largest, forms)
    return _draw(found, [table], "score: each method is shaded by its own largest ordinary score")


def _draw(found: Sequence[tuple[str, Attribution]], tables: Sequence[_Table], says: str) -> Picture:
    att = found[0][1]
    if any(other.tokens != att.tokens for _, other in found):
        raise ValueError("the attributions are of different tokens; draw them one by one")
    signed = any(bool((table.values < 0).any()) for table in tables)
    names = max(width_of(fitted(name, 8, _NAME), 8) for table in tables for name in table.rows) + 8
    grid = _Grid.fit(att, tables, names)
    inner = max(grid.width(tables), _NARROWEST)
    below = wrapped(_below(found), 8.5, inner)
    says += "" if grid.numbers else ", which is written at its right"
    says += "; orange: above 0; blue with dashes: below 0, so against the label" if signed else ""
    said = wrapped(says + ("; dashed outline: special tokens" if att.special_mask.any() else ""), 8, inner - 200)
    tops = [head_height(below)]
    for table in tables:
        tops.append(tops[-1] + grid.height(table))
    total = tops[-1] + scale_height(said)
    picture = Picture.sized(inner + 2 * PAD, total + 2 * PAD, f"{name_of(att)}: {att.text}")
    with styled():
        sheet = picture.sheet()
        head(sheet, name_of(att), below, inner)
        for table, top in zip(tables, tops, strict=False):
            grid.draw(sheet, table, top)
        scale(sheet, tops[-1], "-largest" if signed else "0", "largest", said, signed=signed)
    return picture


def _below(found: Sequence[tuple[str, Attribution]]) -> str:
    """What stands below the headline: of several attributions, what they have in common, and which have flags."""
    if len(found) == 1:
        return facts(found[0][1])
    flagged = [f"{shown(name)}: {flag}" for name, att in found for flag in flags(att)]
    return " · ".join([*flagged, *remarks(found[0][1])])


@dataclass(frozen=True)
class _Grid:
    """Where the columns of every table are, and how they are labelled."""

    labels: tuple[str, ...]
    special: np.ndarray  # (t,) bool
    names: float  # width of what stands left of the columns
    column: float  # width
    across: int  # columns of a block
    numbers: bool  # stand in the cells; otherwise the largest of a row stands beside it
    size: float  # of the labels
    turned: bool  # labels go upwards
    foot: float  # height of the labels

    @classmethod
    def fit(cls, att: Attribution, tables: Sequence[_Table], names: float) -> _Grid:
        """Columns as wide as their labels where all fit into one block, otherwise narrow ones with turned labels."""
        t, room = len(att.tokens), _WIDEST - names
        labels = tuple(fitted(token, 8, _LABEL) for token in att.tokens)
        label, number = max(width_of(each, 8) for each in labels), max(table.widest() for table in tables) + 4
        numbers = sum(table.values.size for table in tables) <= _NUMBERS and number * t <= room
        narrow = number if numbers else 14.0
        upright = max(label + 5, narrow)
        if upright * t <= room:
            return cls(labels, att.special_mask, names, upright, t, numbers, 8, False, 14.0)
        if narrow * t <= room:
            return cls(labels, att.special_mask, names, narrow, t, numbers, 8, True, label + 6)
        blocks = -(-t // int(room / 10.5))
        labels = tuple(fitted(token, 7, 0.75 * _LABEL) for token in att.tokens)
        label = max(width_of(each, 7) for each in labels)
        return cls(labels, att.special_mask, names, 10.5, -(-t // blocks), False, 7, True, label + 6)

    def width(self, tables: Sequence[_Table]) -> float:
        """What the widest block takes, with what stands left and right of it."""
        beside = 0.0 if self.numbers else max(table.beside() for table in tables) + 6
        return self.names + self.column * self.across + beside

    def blocks(self) -> list[slice]:
        """The tokens of each block."""
        return [slice(k, k + self.across) for k in range(0, len(self.labels), self.across)]

    def height(self, table: _Table) -> float:
        """What a table takes with all its blocks."""
        return (16.0 if table.title else 0.0) + len(self.blocks()) * (_ROW * len(table.rows) + self.foot + 10)

    def draw(self, sheet: Axes, table: _Table, top: float) -> None:
        """All blocks of a table."""
        if table.title:
            sheet.text(0, top, fitted(table.title, 8.5, _NARROWEST, "bold"), size=8.5, weight="bold", va="top")
            top += 16
        for each in self.blocks():
            self._cells(sheet, table, each, top)
            self._margins(sheet, table, each, top)
            top += _ROW * len(table.rows) + self.foot + 10

    def _cells(self, sheet: Axes, table: _Table, each: slice, top: float) -> None:
        boxes, levels = [], []
        for k, row in enumerate(table.values[:, each]):
            up = top + _ROW * k
            for j, value in enumerate(row.tolist()):
                left = self.names + self.column * j
                boxes.append(box(left, up, left + self.column, up + _ROW))
                levels.append(level_of(value, float(table.largest[k])))
                if self.numbers:
                    look = {"size": _SMALL, "ha": "center", "color": ink(levels[-1])}
                    word(sheet, left + self.column / 2, up + _ROW / 2, table.number(k, value), **look)
        shaded(sheet, boxes, levels)
        bottom = top + _ROW * len(table.rows)
        columns = [self.names + self.column * j for j in range(len(self.labels[each]) + 1)]
        outlined(sheet, [box(columns[0], top, columns[-1], bottom)], dashed=False)
        marked = [columns[j] for j in np.flatnonzero(self.special[each])]
        outlined(sheet, [box(x + 0.7, top + 0.7, x + self.column - 0.7, bottom - 0.7) for x in marked])

    def _margins(self, sheet: Axes, table: _Table, each: slice, top: float) -> None:
        """What the rows and columns are called, and the largest of a row where its numbers are not in the cells."""
        right = self.names + self.column * len(self.labels[each])
        for k, name in enumerate(table.rows):
            middle = top + _ROW * (k + 0.5)
            word(sheet, self.names - 6, middle, fitted(name, 8, _NAME), size=8, ha="right")
            if not self.numbers:
                word(sheet, right + 5, middle, table.strongest(k), size=_SMALL, color=GREY)
        bottom = top + _ROW * len(table.rows)
        for j, (label, special) in enumerate(zip(self.labels[each], self.special[each], strict=True)):
            look = {"style": "italic", "color": GREY} if special else {}
            x = self.names + self.column * (j + 0.5)
            if self.turned:  # hung up at its end, wherever a font of another width may let it begin
                word(
                    sheet, x, bottom + 4, label, size=self.size, ha="right", rotation=90, rotation_mode="anchor", **look
                )
            else:
                sheet.text(x, bottom + 3, label, size=self.size, ha="center", va="top", **look)
