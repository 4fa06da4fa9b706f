"""Heat maps: tokens in columns; layers, or methods, in rows (paper, Figures 5 to 7 and 9).

A text that is too long for one line of columns continues in the next block. Where there is room, each cell holds its
number.

The convention this file owns: **each row is shaded by its own largest value**. One layer's flow may sit in a single
token while the next layer's is spread over all of them, and methods have different units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
_NARROW_COLUMN = 10.5  # if a text needs several blocks


@dataclass(frozen=True)
class _HeatMap:
    """Rows of numbers over tokens; one block of the figure, or more if the text is long."""

    title: str
    values: np.ndarray  # (rows, t), the first row on top
    names: tuple[str, ...]  # of the rows
    largest: np.ndarray  # (rows,) the value that has the strongest shade
    forms: tuple[Callable[[float], str], ...]  # how to write the numbers of each row in its cells

    def number(self, row: int, value: float) -> str:
        """A value of that row, as it is written."""
        if value == 0:
            return "0"
        return self.forms[row](value)

    def strongest(self, row: int) -> str:
        """The largest value of that row, with digits of its own."""
        largest = float(self.largest[row])
        if largest == 0:
            return "0"
        return number_format(largest)(largest)

    def cell_width(self) -> float:
        """The width of the longest number in a cell."""
        widths = []
        for row, values in enumerate(self.values):
            longest = self.number(row, values[abs(values).argmax()])
            widths.append(text_width(longest, _NUMBER_SIZE))
        return max(widths)

    def margin_width(self) -> float:
        """The width of the longest number beside a row."""
        return max(text_width(self.strongest(row), _NUMBER_SIZE) for row in range(len(self.names)))


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
    signed = any(bool((heat_map.values < 0).any()) for heat_map in maps)
    words = "of each layer's largest flow through a token"
    legend = relative_legend(words, summaries[0].label, _NEGATIVE, signed=signed)
    return _draw(summaries, maps, legend)


def _layer_map(title: str, through: np.ndarray) -> _HeatMap:
    """The heat map of through-flows (l+1, t), row 0 the input."""
    last = len(through) - 1
    names = [str(layer) for layer in range(last + 1)]
    names[0] = "0 input"
    names[last] = f"{last} output"
    values = through[::-1]
    form = number_format(float(abs(values).max(initial=0.0)))
    return _HeatMap(
        title=title,
        values=values,
        names=tuple(reversed(names)),
        largest=abs(values).max(1),
        forms=(form,) * len(values),
    )


def compare(attributions: Attributions) -> Picture:
    """A figure of the scores of several methods for the same tokens, a row each.

    plots.compare(explainer.compare("a gripping film.", methods=["agf", "attcat"])).savefig("methods.svg")
    """
    named = named_attributions(attributions)
    require_same_text(named)
    summaries = [summarize(att, name) for name, att in named]
    values = np.stack([att.scores for _, att in named])
    special = summaries[0].att.special_mask
    names = []
    forms = []
    for summary in summaries:
        names.append(summary.name)
        forms.append(number_format(summary.largest_token))
    heat_map = _HeatMap(
        title="",
        values=values,
        names=tuple(names),
        largest=abs(values[:, ~special]).max(1, initial=0.0),
        forms=tuple(forms),
    )
    return _draw(summaries, [heat_map], shared_legend(summaries, _NEGATIVE))


def _draw(summaries: Sequence[Summary], maps: Sequence[_HeatMap], legend: Legend) -> Picture:
    att = summaries[0].att
    grid = _Grid.fit(att, maps)
    width = max(grid.width(maps), _FIGURE_WIDTH)
    heading = _heading(summaries, width)
    remarks = []
    if not grid.numbers:
        remarks.append("the number at the right of a row is its largest value")
    if att.special_mask.any():
        remarks.append("dashed outline: special tokens")
    scale = Scale.of(legend, width, *remarks)
    height = heading.height + sum(grid.height(heat_map) for heat_map in maps) + scale.height
    names = ", ".join(summary.name for summary in summaries)
    title = summarize(att, names).title
    picture = Picture.padded(width, height, title)
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
    size: float  # of the labels
    rotated: bool  # labels go upwards
    foot: float  # height of the labels

    @classmethod
    def fit(cls, att: Attribution, maps: Sequence[_HeatMap]) -> _Grid:
        """Columns as wide as their labels where all fit into one block, otherwise narrow ones with rotated labels."""
        t = len(att.tokens)
        names = [name for heat_map in maps for name in heat_map.names]
        left = max(text_width(fit_text(name, 8, _NAME_WIDTH), 8) for name in names) + 8
        room = _BLOCK_WIDTH - left
        labels = tuple(fit_text(token, 8, _LABEL_WIDTH) for token in att.tokens)
        label_width = max(text_width(label, 8) for label in labels)
        number_width = max(heat_map.cell_width() for heat_map in maps) + 4
        cells = sum(heat_map.values.size for heat_map in maps)
        numbers = cells <= _MOST_NUMBERS and number_width * t <= room
        narrow = number_width if numbers else 14.0
        rotated = max(label_width + 5, narrow) * t > room
        column = narrow if rotated else max(label_width + 5, narrow)
        grid = cls(
            labels=labels,
            special=att.special_mask,
            left=left,
            column=column,
            columns=t,
            numbers=numbers,
            size=8,
            rotated=rotated,
            foot=label_width + 6 if rotated else 14.0,
        )
        if column * t <= room:
            return grid
        blocks = math.ceil(t / int(room / _NARROW_COLUMN))
        labels = tuple(fit_text(token, 7, 0.75 * _LABEL_WIDTH) for token in att.tokens)
        return replace(
            grid,
            labels=labels,
            column=_NARROW_COLUMN,
            columns=math.ceil(t / blocks),
            numbers=False,
            size=7,
            foot=max(text_width(label, 7) for label in labels) + 6,
        )

    def width(self, maps: Sequence[_HeatMap]) -> float:
        """The width of the widest block, with what stands left and right of it."""
        width = self.left + self.column * self.columns
        if not self.numbers:
            width += max(heat_map.margin_width() for heat_map in maps) + 6
        return width

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
            self._draw_cells(sheet, heat_map, tokens, top)
            self._draw_row_names(sheet, heat_map, tokens, top)
            self._draw_labels(sheet, tokens, top + _ROW * len(heat_map.names))
            top += self._block_height(heat_map)

    def _blocks(self) -> list[range]:
        """The tokens of each block."""
        t = len(self.labels)
        return [range(start, min(start + self.columns, t)) for start in range(0, t, self.columns)]

    def _block_height(self, heat_map: _HeatMap) -> float:
        return _ROW * len(heat_map.names) + self.foot + _BLOCK_GAP

    def _draw_cells(self, sheet: Axes, heat_map: _HeatMap, tokens: range, top: float) -> None:
        boxes = []
        levels = []
        for row, largest in enumerate(heat_map.largest.tolist()):
            upper = top + _ROW * row
            for index, token in enumerate(tokens):
                left = self.left + self.column * index
                value = float(heat_map.values[row, token])
                level = level_of(value, largest)
                boxes.append(rectangle(left, upper, self.column, _ROW))
                levels.append(level)
                if self.numbers:
                    look = {"size": _NUMBER_SIZE, "ha": "center", "color": letter_colour(level)}
                    number = heat_map.number(row, value)
                    draw_text(sheet, left + self.column / 2, upper + _ROW / 2, number, **look)
        draw_boxes(sheet, boxes, levels)
        height = _ROW * len(heat_map.names)
        frame = rectangle(self.left, top, self.column * len(tokens), height)
        draw_outlines(sheet, [frame], dashed=False)
        special = []
        for index, token in enumerate(tokens):
            if self.special[token]:
                left = self.left + self.column * index
                special.append(rectangle(left + 0.7, top + 0.7, self.column - 1.4, height - 1.4))
        draw_outlines(sheet, special)

    def _draw_row_names(self, sheet: Axes, heat_map: _HeatMap, tokens: range, top: float) -> None:
        """The rows' names, and at the right their largest values if numbers are not in the cells."""
        right = self.left + self.column * len(tokens)
        for row, name in enumerate(heat_map.names):
            middle = top + _ROW * (row + 0.5)
            draw_text(sheet, self.left - 6, middle, fit_text(name, 8, _NAME_WIDTH), size=8, ha="right")
            if not self.numbers:
                draw_text(sheet, right + 5, middle, heat_map.strongest(row), size=_NUMBER_SIZE, color=GREY)

    def _draw_labels(self, sheet: Axes, tokens: range, top: float) -> None:
        for index, token in enumerate(tokens):
            look: dict[str, Any] = {"size": self.size}
            if self.special[token]:
                look |= {"style": "italic", "color": GREY}
            x = self.left + self.column * (index + 0.5)
            if self.rotated:  # fixed at its end, wherever a font of another width may let it begin
                look |= {"ha": "right", "rotation": 90, "rotation_mode": "anchor"}
                draw_text(sheet, x, top + 4, self.labels[token], **look)
            else:
                sheet.text(x, top + 3, self.labels[token], ha="center", va="top", **look)
