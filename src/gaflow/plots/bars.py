"""The scores of one text: a heat strip of all its tokens, wrapped like text, and a bar for each.

The conventions this file owns: the largest score of an ordinary token has the strongest shade and the longest bar.
Special tokens often hold far more than all others, so their bars may be torn off; the number beside a bar is always the
true score. For a long text the strip shows every token, and the bars show the largest absolute scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection

from gaflow.arguments import whole_number
from gaflow.attribution.attribution import Attribution
from gaflow.plots.elements import NEGATIVE, Box, Heading, Scale, draw_boxes, draw_outlines, draw_text, rectangle
from gaflow.plots.figure import (
    GREY,
    INK,
    PAD,
    Picture,
    fit_text,
    letter_colour,
    line_colour,
    shade_colour,
    styled,
    text_width,
)
from gaflow.view.shades import level_of
from gaflow.view.summary import score_legend, summarize
from gaflow.view.text import number_format

__all__ = ["bars"]

_INNER = 600.0 - 2 * PAD  # width
_SHORT_TEXT = 40  # tokens up to which every token has a bar
_MOST_BARS = 30  # of a longer text
_LABEL_WIDTH = 130.0  # of the longest label
_TORN = 1.25  # of the largest ordinary score: where longer bars of special tokens are torn off
_PITCH = 14.0  # from one bar to the next
_BAR = 10.0  # height
_STRIP_ROW = 16.0  # from one row of the strip to the next
_BAR_TITLE = 18.0  # height of the line above the bars


@dataclass(frozen=True)
class _Item:
    """A token or word, and how it is drawn."""

    position: int  # of its first token
    text: str
    score: float
    special: bool
    level: int  # of its shade
    length: float  # of its bar: 1 for the largest ordinary score
    torn: bool  # the bar is shorter than the score


@dataclass(frozen=True)
class _Cell:
    """An item in the heat strip."""

    item: _Item
    text: str
    left: float
    top: float
    width: float


def bars(att: Attribution, *, words: bool = False, top: int | None = None) -> Picture:
    """A figure of `att`'s tokens, or of its words, as a heat strip and bars; special tokens are included.

    `top` is the number of bars, for the largest absolute scores. By default a text of up to 40 tokens has a bar for
    each, in the order of the text, and a longer one has 30.
    """
    if top is not None:
        whole_number("top", top)
    unit = "word" if words else "token"
    summary = summarize(att, unit=unit)
    items, largest = _items(att, words)
    numbered = top is not None or len(items) > _SHORT_TEXT
    barred = items
    if numbered:
        ranked = sorted(items, key=lambda item: (-abs(item.score), item.position))
        barred = ranked[: top or _MOST_BARS]
    legend = score_legend(largest, unit, summary.label, NEGATIVE, signed=summary.signed)

    heading = Heading.about(summary, _INNER)
    scale = Scale.of(legend, _INNER, *_remarks(items, barred))
    cells = _cells(items, heading.height)
    scale_top = cells[-1].top + _STRIP_ROW + 6
    bars_top = scale_top + scale.height + 10
    height = bars_top + _BAR_TITLE + _PITCH * len(barred)
    picture = Picture.padded(_INNER, height, summary.title)
    with styled():
        sheet = picture.sheet()
        heading.draw(sheet)
        _draw_strip(sheet, cells)
        scale.draw(sheet, scale_top)
        title = f"score of each {unit}, in the order of the text"
        if numbered:
            title = f"the {len(barred)} largest of {len(items)} scores, and the number of the token in the text"
        sheet.text(0, bars_top, title, size=8.5, weight="bold", va="top")
        form = number_format(largest or max(abs(item.score) for item in items))
        _draw_bars(sheet, barred, bars_top + _BAR_TITLE, form, numbered=numbered)
    return picture


def _items(att: Attribution, words: bool) -> tuple[list[_Item], float]:
    """Words or tokens with the special tokens between them, and the largest absolute score of an ordinary one."""
    units = att.words() if words else att.pieces()
    largest = max((abs(unit.score) for unit in units), default=0.0)
    items = []
    for unit in units:
        text = unit.text if words else att.tokens[unit.tokens[0]]
        items.append(_item(min(unit.tokens), text, unit.score, largest, special=False))
    for index, segment in enumerate(att.segments):
        if segment < 0:
            items.append(_item(index, att.tokens[index], float(att.scores[index]), largest, special=True))
    items.sort(key=lambda item: item.position)
    return items, largest


def _item(position: int, text: str, score: float, largest: float, *, special: bool) -> _Item:
    length = score / (largest or abs(score) or 1.0)
    return _Item(
        position=position,
        text=text,
        score=score,
        special=special,
        level=level_of(score, largest),
        length=max(-_TORN, min(length, _TORN)),
        torn=abs(length) > _TORN,
    )


def _remarks(items: Sequence[_Item], barred: Sequence[_Item]) -> list[str]:
    """What the legend explains besides the shades."""
    remarks = []
    if any(item.special for item in items):
        remarks.append("dashed outline: special tokens")
    if any(item.torn for item in barred):
        remarks.append("torn bars are longer than drawn")
    return remarks


def _cells(items: Sequence[_Item], top: float) -> list[_Cell]:
    """The heat strip, broken into rows where the sheet ends."""
    cells = []
    left = 0.0
    for item in items:
        text = fit_text(item.text, 8, _INNER / 2)
        width = text_width(text, 8) + 6
        if left > 0 and left + width > _INNER:
            top += _STRIP_ROW
            left = 0.0
        cells.append(_Cell(item=item, text=text, left=left, top=top, width=width))
        left += width + 1.5
    return cells


def _draw_strip(sheet: Axes, cells: Sequence[_Cell]) -> None:
    height = _STRIP_ROW - 3
    boxes = []
    special = []
    for cell in cells:
        box = rectangle(cell.left, cell.top, cell.width, height)
        boxes.append(box)
        look = {"size": 8, "ha": "center", "color": letter_colour(cell.item.level)}
        if cell.item.special:
            special.append(box)
            look["style"] = "italic"
        draw_text(sheet, cell.left + cell.width / 2, cell.top + height / 2, cell.text, **look)
    draw_boxes(sheet, boxes, [cell.item.level for cell in cells])
    draw_outlines(sheet, special)


def _draw_bars(
    sheet: Axes, items: Sequence[_Item], top: float, form: Callable[[float], str], *, numbered: bool
) -> None:
    """Names at the left, then the tokens' numbers if `numbered`, then bars with their scores."""
    names = [fit_text(item.text, 8.5, _LABEL_WIDTH) for item in items]
    names_right = max(text_width(name, 8.5) for name in names) + 6
    bars_left = names_right + 6
    if numbered:
        bars_left += max(text_width(str(item.position + 1), 7) for item in items) + 6
    score_width = max(text_width(form(item.score), 8) for item in items) + 6
    lengths = [0.0, *(item.length for item in items)]
    right = _INNER - score_width
    left = bars_left
    if min(lengths) < 0:  # scores stand on both sides
        left += score_width
    unit = (right - left) / ((max(lengths) - min(lengths)) or 1.0)
    zero = left - unit * min(lengths)

    for index, item in enumerate(items):
        middle = top + _PITCH * (index + 0.5)
        end = zero + unit * item.length
        look = {"color": GREY, "style": "italic"} if item.special else {"color": INK}
        draw_text(sheet, names_right, middle, names[index], size=8.5, ha="right", **look)
        if numbered:
            draw_text(sheet, bars_left - 6, middle, str(item.position + 1), size=7, ha="right", color=GREY)
        side = -1 if item.score < 0 else 1
        draw_text(sheet, end + 4 * side, middle, form(item.score), size=8, ha="right" if side < 0 else "left")
        _draw_bar(sheet, item, _bar_shape(zero, end, middle, torn=item.torn))
    bottom = top + _PITCH * len(items)
    sheet.add_collection(LineCollection([((zero, top), (zero, bottom))], colors=[INK], linewidths=0.8))


def _draw_bar(sheet: Axes, item: _Item, shape: Box) -> None:
    """Bars below 0 are hatched, bars of special tokens have a dashed outline."""
    look: dict[str, Any] = {"edgecolors": [line_colour(item.level)]}
    if item.special:
        look = {"edgecolors": [GREY], "linestyles": [(0, (2, 1.5))]}
    if item.score < 0:
        look["hatch"] = "/////"
    sheet.add_collection(PolyCollection([shape], facecolors=[shade_colour(item.level)], linewidths=0.7, **look))


def _bar_shape(zero: float, end: float, middle: float, *, torn: bool) -> Box:
    """A rectangle; if it is torn off, its end is a zigzag."""
    top = middle - _BAR / 2
    tear = math.copysign(3.0, end - zero) if torn else 0.0
    zigzag = [(end, top), (end - tear, top + _BAR / 3), (end, top + _BAR * 2 / 3), (end - tear, top + _BAR)]
    return [(zero, top), *zigzag, (zero, top + _BAR)]
