"""The scores of one text: a heat strip of all its tokens, wrapped like text, and a bar for each.

The conventions this file owns: the largest score of an ordinary token has the strongest shade and the longest bar.
Special tokens often hold far more than all others, so their bars may be torn off; the number beside a bar is always the
true score. For a long text the strip shows every token, and the bars show the largest absolute scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from gaflow.arguments import checked, optional_whole_number
from gaflow.attribution.attribution import Attribution
from gaflow.attribution.words import UNITS, Unit, unit_of
from gaflow.plots.elements import (
    DASHES,
    NEGATIVE,
    draw_boxes,
    draw_heading,
    draw_outlines,
    draw_scale,
    draw_text,
    rectangle,
    summary_remarks,
)
from gaflow.plots.figure import (
    GREY,
    INK,
    PAD,
    Look,
    Picture,
    fit_text,
    letter_colour,
    line_colour,
    shade_colour,
    styled,
    text_width,
    widest,
)
from gaflow.view.shades import level_of
from gaflow.view.summary import summarize
from gaflow.view.text import number_format

_INNER = 600.0 - 2 * PAD  # width
_SHORT_TEXT = 40  # tokens up to which every token has a bar
_MOST_BARS = 30  # of a longer text
_LABEL_WIDTH = 130.0  # of the longest label
_TORN = 1.25  # of the largest ordinary score: where longer bars of special tokens are torn off
_PITCH = 14.0  # from one bar to the next
_BAR = 10.0  # height
_STRIP_ROW = 16.0  # from one row of the strip to the next


@dataclass(frozen=True)
class _Item:
    """A token or word."""

    position: int  # of its first token
    text: str
    score: float
    special: bool
    fraction: float  # of the largest ordinary score

    @property
    def level(self) -> int:
        """The level of its shade."""
        return level_of(self.fraction, 1.0)

    @property
    def length(self) -> float:
        """The length of its bar: 1 for the largest ordinary score."""
        return max(-_TORN, min(self.fraction, _TORN))

    @property
    def torn(self) -> bool:
        """The bar is shorter than the score."""
        return self.length != self.fraction


@checked
def bars(att: Attribution, *, words: bool = False, sentences: bool = False, top: int | None = None) -> Picture:
    """A figure of `att`'s tokens, words or sentences, as a heat strip and bars; special tokens are included.

    `top` is the number of bars, for the largest absolute scores. By default a text of up to 40 tokens has a bar for
    each, in the order of the text, and a longer one has 30.
    """
    optional_whole_number("top", top)
    unit = unit_of(words=words, sentences=sentences)
    summary = summarize(att, unit=unit)
    items, largest = _items(att, unit)
    legend = summary.score_legend(NEGATIVE, largest, signed=summary.signed)
    barred = items
    title = f"score of each {unit}, in the order of the text"
    numbered = top is not None or len(items) > _SHORT_TEXT
    if numbered:
        ranked = sorted(items, key=lambda item: (-abs(item.score), item.position))
        barred = ranked[: top or _MOST_BARS]
        title = f"the {len(barred)} largest of {len(items)} scores, and the number of the token in the text"
    legend_remarks = []
    if any(item.special for item in items):
        legend_remarks.append("dashed outline: special tokens")
    if any(item.torn for item in barred):
        legend_remarks.append("torn bars are longer than drawn")
    picture = Picture.padded(_INNER, summary.title)
    with styled():
        sheet = picture.sheet()
        bottom = draw_heading(sheet, summary.headline, summary_remarks(summary), _INNER)
        bottom = _draw_strip(sheet, items, bottom)
        bottom = draw_scale(sheet, bottom + 6, legend, _INNER, legend_remarks)
        sheet.text(0, bottom + 10, title, size=8.5, weight="bold", va="top")
        form = number_format(largest or max(abs(item.score) for item in items))
        bottom = _draw_bars(sheet, barred, bottom + 28, form, numbered=numbered)
        picture.end_at(bottom)
    return picture


def _items(att: Attribution, unit: Unit) -> tuple[list[_Item], float]:
    """The units with the special tokens between them, and the largest absolute score of an ordinary one."""
    units = UNITS[unit](att)
    largest = max((abs(unit.score) for unit in units), default=0.0)
    scores = {}
    for part in units:
        first = min(part.tokens)
        text = att.tokens[first] if unit == "token" else part.text
        scores[first] = (text, part.score)
    for index in np.flatnonzero(att.special_mask).tolist():
        scores[index] = (att.tokens[index], float(att.scores[index]))
    items = []
    for position, (text, score) in sorted(scores.items()):
        item = _Item(
            position=position,
            text=text,
            score=score,
            special=bool(att.special_mask[position]),
            fraction=score / (largest or abs(score) or 1.0),
        )
        items.append(item)
    return items, largest


def _draw_strip(sheet: Axes, items: Sequence[_Item], top: float) -> float:
    """The heat strip, broken into rows where the sheet ends; returns where it ends."""
    height = _STRIP_ROW - 3
    left = 0.0
    boxes = []
    special = []
    for item in items:
        text = fit_text(item.text, 8, _INNER / 2)
        width = text_width(text, 8) + 6
        if left > 0 and left + width > _INNER:
            top += _STRIP_ROW
            left = 0.0
        box = rectangle(left, top, width, height)
        boxes.append(box)
        look = {"ha": "center", "color": letter_colour(item.level)}
        if item.special:
            special.append(box)
            look["style"] = "italic"
        draw_text(sheet, left + width / 2, top + height / 2, text, **look)
        left += width + 1.5
    draw_boxes(sheet, boxes, [item.level for item in items])
    draw_outlines(sheet, special)
    return top + _STRIP_ROW


def _draw_bars(
    sheet: Axes, items: Sequence[_Item], top: float, form: Callable[[float], str], *, numbered: bool
) -> float:
    """Names at the left, then the tokens' numbers if `numbered`, then bars with their scores; returns the bottom."""
    names = [fit_text(item.text, 8.5, _LABEL_WIDTH) for item in items]
    numbers = [str(item.position + 1) for item in items]
    scores = [form(item.score) for item in items]
    names_right = widest(names, 8.5) + 6
    left = names_right + 6
    numbers_right = left
    if numbered:
        numbers_right += widest(numbers, 7)
        left = numbers_right + 6
    score_width = widest(scores, 8) + 6
    right = _INNER - score_width
    lengths = [0.0, *(item.length for item in items)]
    if min(lengths) < 0:  # scores stand on both sides
        left += score_width
    unit = (right - left) / ((max(lengths) - min(lengths)) or 1.0)
    zero = left - unit * min(lengths)

    middle = top + _PITCH / 2
    for item, name, number, score in zip(items, names, numbers, scores, strict=True):
        look = {"color": GREY, "style": "italic"} if item.special else {"color": INK}
        draw_text(sheet, names_right, middle, name, size=8.5, ha="right", **look)
        if numbered:
            draw_text(sheet, numbers_right, middle, number, size=7, ha="right", color=GREY)
        end = zero + unit * item.length
        if item.score < 0:
            draw_text(sheet, end - 4, middle, score, ha="right")
        else:
            draw_text(sheet, end + 4, middle, score, ha="left")
        _draw_bar(sheet, item, zero, end, middle)
        middle += _PITCH
    bottom = top + _PITCH * len(items)
    sheet.vlines(zero, top, bottom, colors=[INK], linewidths=0.8)
    return bottom


def _draw_bar(sheet: Axes, item: _Item, zero: float, end: float, middle: float) -> None:
    """Bars below 0 are hatched, bars of special tokens have a dashed outline; the end of a torn bar is a zigzag."""
    top = middle - _BAR / 2
    bottom = top + _BAR
    tear = math.copysign(3.0, end - zero) if item.torn else 0.0
    upper_teeth = [(end, top), (end - tear, top + _BAR / 3)]
    lower_teeth = [(end, top + _BAR * 2 / 3), (end - tear, bottom)]
    shape = [(zero, top), *upper_teeth, *lower_teeth, (zero, bottom)]
    look: Look = {"edgecolors": [line_colour(item.level)]}
    if item.special:
        look = {"edgecolors": [GREY], "linestyles": [DASHES]}
    if item.score < 0:
        look["hatch"] = "/////"
    sheet.add_collection(PolyCollection([shape], facecolors=[shade_colour(item.level)], linewidths=0.7, **look))
