"""Heat maps: tokens in columns; layers, or methods, in rows (paper, Figures 5 to 7 and 9).

A text that is too long for one line of columns continues in the next block. Where there is room, each cell holds its
number.

The convention this file owns: **each row is shaded by its own largest value**. One layer's flow may sit in a single
token while the next layer's is spread over all of them, and methods have different units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from gaflow.attribution.attribution import Attribution
from gaflow.errors import Argument, ArgumentError
from gaflow.plots.elements import Heading, Scale, draw_boxes, draw_outlines, draw_text, flag_text, rectangle
from gaflow.plots.figure import GREY, Picture, fit_text, letter_colour, styled, text_width
from gaflow.view.shades import level_of
from gaflow.view.summary import (
    Attributions,
    Legend,
    Summary,
    named_attributions,
    relative_legend,
    require_same_text,
    shared_legend,
    summarize,
)
from gaflow.view.text import number_format, one_line

__all__ = ["compare", "layers"]

_NEGATIVE = "blue with dashes"
_BLOCK_WIDTH = 780.0  # of a block of columns, at most
_FIGURE_WIDTH = 420.0  # at least, for the captions
_LABEL_WIDTH = 90.0  # of a column's label, at most; labels are rotated in narrower columns
_NAME_WIDTH = 120.0  # of a row's name, at most
_ROW = 15.0  # height
_TITLE = 16.0  # height of the line above a map
_BLOCK_GAP = 10.0
_MOST_NUMBERS = 600  # cells: more of them have no numbers
_NUMBER_SIZE = 6.5
_NARROW_COLUMN = 11.0  # with a rotated label and no numbers


@dataclass(frozen=True)
class _Row:
    """A number for every token."""

    name: str
    values: np.ndarray  # (t,)
    largest: float  # the absolute value that has the strongest shade
    form: Callable[[float], str]  # how to write the numbers in its cells

    def number(self, value: float) -> str:
        """A value as it is written in a cell."""
        return "0" if value == 0 else self.form(value)

    @property
    def strongest(self) -> str:
        """The largest value, with digits of its own."""
        return "0" if self.largest == 0 else number_format(self.largest)(self.largest)


@dataclass(frozen=True)
class _HeatMap:
    """Rows of numbers over tokens; one block of the figure, or more if the text is long."""

    title: str
    rows: tuple[_Row, ...]  # the first on top


def layers(attributions: Attributions) -> Picture:
    """A figure of the flow through every token of every node layer, the output on top and the input at the bottom.

    Several attributions of the same text (a list, or a dict with their names) have a heat map each.
    """
    named = named_attributions(attributions)
    require_same_text(named)
    maps = []
    for name, att in named:
        if att.layers is None:
            message = f": {name} is no flow method, so there are no layers to show; take af, gf or agf"
            raise ArgumentError(Argument("attributions"), message)
        title = name if len(named) > 1 else "flow through each token, layer by layer"
        maps.append(_layer_map(title, att.layers))
    summaries = [summarize(att, name) for name, att in named]
    signed = any(row.values.min() < 0 for heat_map in maps for row in heat_map.rows)
    words = "of each layer's largest flow through a token"
    legend = relative_legend(words, summaries[0].label, _NEGATIVE, signed=signed)
    return _draw(summaries, maps, legend)


def _layer_map(title: str, through: np.ndarray) -> _HeatMap:
    """The heat map of through-flows (l+1, t), row 0 the input."""
    last = len(through) - 1
    names = {0: "0 input", last: f"{last} output"}
    form = number_format(float(abs(through).max()))
    rows = []
    for layer in reversed(range(last + 1)):
        values = through[layer]
        largest = float(abs(values).max())
        rows.append(_Row(names.get(layer, str(layer)), values, largest, form))
    return _HeatMap(title, tuple(rows))


def compare(attributions: Attributions) -> Picture:
    """A figure of the scores of several methods for the same tokens, a row each.

    plots.compare(explainer.compare("a gripping film.", methods=["agf", "attcat"])).savefig("methods.svg")
    """
    named = named_attributions(attributions)
    require_same_text(named)
    summaries = [summarize(att, name) for name, att in named]
    rows = []
    for summary in summaries:
        ordinary = summary.att.scores[~summary.att.special_mask]
        largest = float(abs(ordinary).max(initial=0.0))
        rows.append(_Row(summary.name, summary.att.scores, largest, number_format(summary.largest_token)))
    return _draw(summaries, [_HeatMap("", tuple(rows))], shared_legend(summaries, _NEGATIVE))


def _draw(summaries: Sequence[Summary], maps: Sequence[_HeatMap], legend: Legend) -> Picture:
    att = summaries[0].att
    grid = _Grid.fit(att, [row for heat_map in maps for row in heat_map.rows])
    heading = _heading(summaries, grid.width)
    remarks = []
    if not grid.numbers:
        remarks.append("the number at the right of a row is its largest value")
    if att.special_mask.any():
        remarks.append("dashed outline: special tokens")
    scale = Scale.of(legend, grid.width, *remarks)
    height = heading.height + sum(grid.height(heat_map) for heat_map in maps) + scale.height
    names = ", ".join(summary.name for summary in summaries)
    picture = Picture.padded(grid.width, height, summarize(att, names).title)
    with styled():
        sheet = picture.sheet()
        heading.draw(sheet)
        top = heading.height
        for heat_map in maps:
            grid.draw(sheet, heat_map, top)
            top += grid.height(heat_map)
        scale.draw(sheet, top)
    return picture


def _heading(summaries: Sequence[Summary], width: float) -> Heading:
    """The heading of one attribution; of several, what they have in common, and the flags of each."""
    first = summaries[0]
    if len(summaries) == 1:
        return Heading.about(first, width)
    remarks = [flag_text(flag) for flag in first.text_flags]
    for summary in summaries:
        for flag in summary.method_flags:
            remarks.append(f"{one_line(summary.name)}: {flag_text(flag)}")
    return Heading.of(first.headline, [*remarks, *first.facts(method=False)], width)


@dataclass(frozen=True)
class _Grid:
    """The columns of every heat map, and their labels."""

    labels: tuple[str, ...]
    special: np.ndarray  # (t,) bool
    left: float  # of the first column; row names stand left of it
    column: float  # width
    columns: int  # of a block
    numbers: bool  # are in the cells; otherwise the largest value of a row stands beside it
    rotated: bool  # labels go upwards
    foot: float  # height of the labels
    width: float  # of everything

    @classmethod
    def fit(cls, att: Attribution, rows: Sequence[_Row]) -> _Grid:
        """Columns as wide as their labels where all fit into one block, otherwise narrow ones with rotated labels."""
        t = len(att.tokens)
        left = max(text_width(fit_text(row.name, 8, _NAME_WIDTH), 8) for row in rows) + 8
        room = _BLOCK_WIDTH - left
        labels = tuple(fit_text(token, 8, _LABEL_WIDTH) for token in att.tokens)
        label_width = max(text_width(label, 8) for label in labels)
        longest = [row.number(row.values[abs(row.values).argmax()]) for row in rows]
        number_width = max(text_width(number, _NUMBER_SIZE) for number in longest) + 4
        numbers = len(rows) * t <= _MOST_NUMBERS and number_width * t <= room
        narrow = number_width if numbers else _NARROW_COLUMN
        wide = max(label_width + 5, narrow)
        rotated = wide * t > room
        column = narrow if rotated else wide
        blocks = math.ceil(column * t / room)
        columns = math.ceil(t / blocks)
        width = left + column * columns
        if not numbers:
            width += max(text_width(row.strongest, _NUMBER_SIZE) for row in rows) + 6
        return cls(
            labels=labels,
            special=att.special_mask,
            left=left,
            column=column,
            columns=columns,
            numbers=numbers,
            rotated=rotated,
            foot=label_width + 6 if rotated else 14.0,
            width=max(width, _FIGURE_WIDTH),
        )

    def height(self, heat_map: _HeatMap) -> float:
        """The height of a heat map with its title and all its blocks."""
        title = _TITLE if heat_map.title else 0.0
        return title + len(self._blocks()) * self._block_height(heat_map)

    def draw(self, sheet: Axes, heat_map: _HeatMap, top: float) -> None:
        """Draw all blocks of a heat map."""
        if heat_map.title:
            title = fit_text(heat_map.title, 8.5, _FIGURE_WIDTH, "bold")
            sheet.text(0, top, title, size=8.5, weight="bold", va="top")
            top += _TITLE
        for tokens in self._blocks():
            for index, row in enumerate(heat_map.rows):
                self._draw_row(sheet, row, tokens, top + _ROW * index)
            self._draw_columns(sheet, tokens, top, _ROW * len(heat_map.rows))
            top += self._block_height(heat_map)

    def _blocks(self) -> list[range]:
        """The tokens of each block."""
        t = len(self.labels)
        return [range(start, min(start + self.columns, t)) for start in range(0, t, self.columns)]

    def _block_height(self, heat_map: _HeatMap) -> float:
        return _ROW * len(heat_map.rows) + self.foot + _BLOCK_GAP

    def _draw_row(self, sheet: Axes, row: _Row, tokens: range, top: float) -> None:
        """The name and the cells of a row, and at the right its largest value if numbers are not in the cells."""
        middle = top + _ROW / 2
        draw_text(sheet, self.left - 6, middle, fit_text(row.name, 8, _NAME_WIDTH), size=8, ha="right")
        boxes = []
        levels = []
        left = self.left
        for value in row.values[tokens].tolist():
            level = level_of(value, row.largest)
            boxes.append(rectangle(left, top, self.column, _ROW))
            levels.append(level)
            if self.numbers:
                look = {"size": _NUMBER_SIZE, "ha": "center", "color": letter_colour(level)}
                draw_text(sheet, left + self.column / 2, middle, row.number(value), **look)
            left += self.column
        draw_boxes(sheet, boxes, levels)
        if not self.numbers:
            draw_text(sheet, left + 5, middle, row.strongest, size=_NUMBER_SIZE, color=GREY)

    def _draw_columns(self, sheet: Axes, tokens: range, top: float, height: float) -> None:
        """The outlines of a block and of the special tokens in it, and the labels below."""
        frame = rectangle(self.left, top, self.column * len(tokens), height)
        draw_outlines(sheet, [frame], dashed=False)
        special = []
        for index, token in enumerate(tokens):
            left = self.left + self.column * index
            x = left + self.column / 2
            look: dict[str, Any] = {"size": 8}
            if self.special[token]:
                look |= {"style": "italic", "color": GREY}
                special.append(rectangle(left + 0.7, top + 0.7, self.column - 1.4, height - 1.4))
            if self.rotated:  # fixed at its end, wherever a font of another width may let it begin
                look |= {"ha": "right", "rotation": 90, "rotation_mode": "anchor"}
                draw_text(sheet, x, top + height + 4, self.labels[token], **look)
            else:
                sheet.text(x, top + height + 3, self.labels[token], ha="center", va="top", **look)
        draw_outlines(sheet, special)
