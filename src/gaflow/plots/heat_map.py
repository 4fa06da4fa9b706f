"""Heat maps: tokens in columns; layers, or methods, in rows (paper, Figures 5 to 7 and 9). Also words by words.

A text that is too long for one line of columns continues in the next block. Where there is room, each cell holds its
number.

The convention this file owns: **each row is shaded by its own largest value**. One layer's flow may sit in a single
token while the next layer's is spread over all of them, and methods have different units. Matches of words share one
scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from gaflow.arguments import checked
from gaflow.attribution.attribution import Attribution
from gaflow.attribution.matches import word_matches
from gaflow.errors import Argument, ArgumentError
from gaflow.plots.elements import (
    draw_heading,
    draw_outlines,
    draw_row,
    draw_scale,
    draw_text,
    flag_text,
    rectangle,
    summary_remarks,
)
from gaflow.plots.figure import GREY, Look, Picture, fit_text, letter_colour, styled, widest
from gaflow.view.shades import NEGATIVE_COLOUR, level_of
from gaflow.view.summary import (
    Attributions,
    Legend,
    Summary,
    relative_legend,
    shared_legend,
    summarize,
    summarize_all,
)
from gaflow.view.text import number_format, one_line

_NEGATIVE = f"{NEGATIVE_COLOUR} with dashes"
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


@checked
def layers(attributions: Attributions) -> Picture:
    """A figure of the flow through every token of every node layer, the output on top and the input at the bottom.

    Several attributions of the same text (a list, or a dict with their names) have a heat map each.
    """
    summaries = summarize_all(attributions)
    maps = []
    for summary in summaries:
        if summary.att.layers is None:
            message = f": {summary.name} is no flow method, so there are no layers to show; take af, gf or agf"
            raise ArgumentError(Argument("attributions"), message)
        title = summary.name if len(summaries) > 1 else "flow through each token, layer by layer"
        maps.append((title, _layer_rows(summary.att.layers)))
    signed = any(row.values.min() < 0 for _, rows in maps for row in rows)
    words = "of each layer's largest flow through a token"
    legend = relative_legend(words, summaries[0].label, _NEGATIVE, signed=signed)
    return _draw(summaries, maps, legend)


def _layer_rows(through: np.ndarray) -> list[_Row]:
    """The rows of through-flows (l+1, t), the output first."""
    last = len(through) - 1
    names = {0: "0 input", last: f"{last} output"}
    form = number_format(float(abs(through).max()))
    rows = []
    for layer, values in enumerate(through):
        rows.append(_Row(names.get(layer, str(layer)), values, float(abs(values).max()), form))
    return rows[::-1]


@checked
def compare(attributions: Attributions) -> Picture:
    """A figure of the scores of several methods for the same tokens, a row each.

    plots.compare(explainer.compare("a gripping film.", methods=["agf", "attcat"])).savefig("methods.svg")
    """
    summaries = summarize_all(attributions)
    rows = []
    for summary in summaries:
        ordinary = summary.att.scores[~summary.att.special_mask]
        largest = float(abs(ordinary).max(initial=0.0))
        rows.append(_Row(summary.name, summary.att.scores, largest, number_format(summary.largest_token)))
    return _draw(summaries, [("", rows)], shared_legend(summaries, _NEGATIVE))


@checked
def matches(att: Attribution) -> Picture:
    """A figure of the matches of words: the words of the text in rows, those of its pair in columns."""
    pairs = word_matches(att)
    largest = float(abs(pairs.scores).max(initial=0.0))
    rows = []
    for word, scores in zip(pairs.words, pairs.scores, strict=True):
        rows.append(_Row(word.text, scores, largest, number_format(largest)))
    summary = summarize(att)
    signed = bool((pairs.scores < 0).any())
    legend = relative_legend("of the largest match of two words", summary.label, _NEGATIVE, signed=signed)
    labels = [word.text for word in pairs.pair_words]
    grid = _Grid.fit(labels, np.zeros(len(labels), dtype=bool), rows)
    return _draw([summary], [("first text in rows, second text in columns", rows)], legend, grid)


def _draw(
    summaries: Sequence[Summary],
    maps: Sequence[tuple[str, list[_Row]]],
    legend: Legend,
    grid: _Grid | None = None,
) -> Picture:
    """Heat maps, each with a title and its rows, one below the other; without a `grid` the columns are the tokens."""
    first = summaries[0]
    if grid is None:
        grid = _Grid.fit(first.att.tokens, first.att.special_mask, [row for _, rows in maps for row in rows])
    legend_remarks = []
    if not grid.numbers:
        legend_remarks.append("the number at the right of a row is its largest value")
    if grid.special.any():
        legend_remarks.append("dashed outline: special tokens")
    names = ", ".join(summary.name for summary in summaries)
    picture = Picture.padded(grid.width, summarize(first.att, names).title)
    with styled():
        sheet = picture.sheet()
        bottom = draw_heading(sheet, first.headline, _remarks(summaries), grid.width)
        for title, rows in maps:
            if title:
                line = fit_text(title, 8.5, _FIGURE_WIDTH, "bold")
                sheet.text(0, bottom, line, size=8.5, weight="bold", va="top")
                bottom += _TITLE
            bottom = grid.draw(sheet, rows, bottom)
        bottom = draw_scale(sheet, bottom, legend, grid.width, legend_remarks)
        picture.end_at(bottom)
    return picture


def _remarks(summaries: Sequence[Summary]) -> list[str]:
    """Flags and facts of one attribution; of several, what they have in common, and the flags of each."""
    first = summaries[0]
    if len(summaries) == 1:
        return summary_remarks(first)
    remarks = [flag_text(flag) for flag in first.text_flags]
    for summary in summaries:
        for flag in summary.method_flags:
            remarks.append(f"{one_line(summary.name)}: {flag_text(flag)}")
    return remarks + first.facts(method=False)


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
    def fit(cls, columns_of: Sequence[str], special: np.ndarray, rows: Sequence[_Row]) -> _Grid:
        """Columns as wide as their labels where all fit into one block, otherwise narrow ones with rotated labels."""
        t = len(columns_of)
        names = [fit_text(row.name, 8, _NAME_WIDTH) for row in rows]
        left = widest(names, 8) + 8
        room = _BLOCK_WIDTH - left
        labels = tuple(fit_text(label, 8, _LABEL_WIDTH) for label in columns_of)
        label_width = widest(labels, 8)
        longest = [row.number(row.values[abs(row.values).argmax()]) for row in rows]
        number_width = widest(longest, _NUMBER_SIZE) + 4
        numbers = len(rows) * t <= _MOST_NUMBERS and number_width * t <= room
        narrow = number_width if numbers else _NARROW_COLUMN
        wide = max(label_width + 5, narrow)
        rotated = wide * t > room
        column = narrow if rotated else wide
        blocks = math.ceil(column * t / room)
        columns = math.ceil(t / blocks)
        width = left + column * columns
        if not numbers:
            width += widest([row.strongest for row in rows], _NUMBER_SIZE) + 6
        return cls(
            labels=labels,
            special=special,
            left=left,
            column=column,
            columns=columns,
            numbers=numbers,
            rotated=rotated,
            foot=label_width + 6 if rotated else 14.0,
            width=max(width, _FIGURE_WIDTH),
        )

    def draw(self, sheet: Axes, rows: Sequence[_Row], top: float) -> float:
        """Draw the cells of the rows, block by block, and labels below each; returns where the next map begins."""
        tokens = range(len(self.labels))
        height = _ROW * len(rows)
        for start in tokens[:: self.columns]:
            block = tokens[start : start + self.columns]
            for index, row in enumerate(rows):
                self._draw_row(sheet, row, block, top + _ROW * index)
            self._draw_columns(sheet, block, top, height)
            top += height + self.foot + _BLOCK_GAP
        return top

    def _draw_row(self, sheet: Axes, row: _Row, tokens: range, top: float) -> None:
        """The name and the cells of a row, and at the right its largest value if numbers are not in the cells."""
        middle = top + _ROW / 2
        name = fit_text(row.name, 8, _NAME_WIDTH)
        draw_text(sheet, self.left - 6, middle, name, ha="right")
        values = row.values[tokens].tolist()
        levels = [level_of(value, row.largest) for value in values]
        width = self.column * len(tokens)
        draw_row(sheet, self.left, top, width, _ROW, levels)
        if not self.numbers:
            draw_text(sheet, self.left + width + 5, middle, row.strongest, size=_NUMBER_SIZE, color=GREY)
            return
        x = self.left + self.column / 2
        for value, level in zip(values, levels, strict=True):
            look = {"size": _NUMBER_SIZE, "ha": "center", "color": letter_colour(level)}
            draw_text(sheet, x, middle, row.number(value), **look)
            x += self.column

    def _draw_columns(self, sheet: Axes, tokens: range, top: float, height: float) -> None:
        """The outlines of a block and of the special tokens in it, and the labels below."""
        frame = rectangle(self.left, top, self.column * len(tokens), height)
        draw_outlines(sheet, [frame], dashed=False)
        special = []
        for index, token in enumerate(tokens):
            left = self.left + self.column * index
            x = left + self.column / 2
            look: Look = {"size": 8}
            if self.special[token]:
                look |= {"style": "italic", "color": GREY}
                special.append(rectangle(left + 0.7, top + 0.7, self.column - 1.4, height - 1.4))
            if self.rotated:  # fixed at its end, wherever a font of another width may let it begin
                look |= {"ha": "right", "rotation": 90, "rotation_mode": "anchor"}
                draw_text(sheet, x, top + height + 4, self.labels[token], **look)
            else:
                sheet.text(x, top + height + 3, self.labels[token], ha="center", va="top", **look)
        draw_outlines(sheet, special)
