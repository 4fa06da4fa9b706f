"""The scores of one text: a heat strip of all its tokens, wrapped like text, and a bar for each.

The conventions this file owns: the largest ordinary score has the strongest shade and the longest bar. Special tokens
often hold far more than all others, so their bars may be torn off; the number beside a bar is always the whole score.
Of a long text the strip shows everything, the bars the largest absolute scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection

from gaflow.plots.elements import Box, box, head, head_height, level_of, outlined, scale, scale_height, shaded, word
from gaflow.plots.figure import GREY, INK, PAD, Picture, colour, facts, fitted, ink, name_of, styled, width_of, wrapped
from gaflow.view.text import number_format

if TYPE_CHECKING:
    from gaflow.attribution.attribution import Attribution

__all__ = ["bars"]

WIDTH = 600.0
_ALL = 40  # so many bars at most show everything
_MOST = 30  # bars of a longer text
_LONGEST = 130.0  # width of a label
_TORN = 1.25  # of the largest ordinary score: where longer bars of special tokens are torn off
_PITCH = 14.0  # from one bar to the next


@dataclass(frozen=True)
class _Item:
    """A token or word, and how it is shown."""

    place: int  # of its first token
    text: str
    score: float
    special: bool
    level: int  # of its shade
    reach: float  # length of its bar: 1 for the largest ordinary score
    torn: bool  # the bar is shorter than the score


def bars(att: Attribution, *, words: bool = False, top: int | None = None) -> Picture:
    """Heat strip and bars of `att`'s tokens, or of its words; special tokens are shown too.

    `top` says how many bars there are, those of the largest absolute scores; by default all of a text of up to 40
    tokens, in its order, and 30 of a longer one.
    """
    if top is not None and top < 1:
        raise ValueError(f"top must be at least 1, not {top}")
    items, largest = _items(att, words)
    all_of_them = top is None and len(items) <= _ALL
    chosen = items if all_of_them else _largest(items, top or _MOST)
    inner, size = WIDTH - 2 * PAD, 8.0 if len(items) <= 160 else 7.0
    below = wrapped(facts(att), 8.5, inner)
    rows = _rows(items, size, inner)
    says = wrapped(_legend(items, chosen, "word" if words else "token"), 8, inner - 200)
    tops = [head_height(below)]
    for height in (len(rows) * (size + 8) + 6, scale_height(says) + 10, 18 + _PITCH * len(chosen)):
        tops.append(tops[-1] + height)
    picture = Picture.sized(WIDTH, tops[-1] + 2 * PAD, f"{name_of(att)} by {att.method}: {att.text}")
    with styled():
        sheet = picture.sheet()
        head(sheet, name_of(att), below, inner)
        _strip(sheet, rows, tops[0], size)
        form = number_format(largest or max(abs(item.score) for item in items))
        signed = any(item.score < 0 for item in items)
        scale(sheet, tops[1], form(-largest) if signed else "0", form(largest), says, signed=signed)
        title = f"score of each {'word' if words else 'token'}, in the order of the text"
        if not all_of_them:
            title = f"the {len(chosen)} largest of {len(items)} scores, and the number of the token in the text"
        sheet.text(0, tops[2], title, size=8.5, weight="bold", va="top")
        _bars(sheet, chosen, tops[2] + 18, inner, form, numbered=not all_of_them)
    return picture


def _items(att: Attribution, words: bool) -> tuple[list[_Item], float]:
    """Words or tokens with the special tokens between them, and the largest absolute score of an ordinary one."""
    pieces = att.words() if words else att.pieces()
    found = [(min(p.tokens), p.text if words else att.tokens[p.tokens[0]], p.score, False) for p in pieces]
    largest = max((abs(score) for _, _, score, _ in found), default=0.0)
    found += [(k, att.tokens[k], float(att.scores[k]), True) for k, s in enumerate(att.segments) if s < 0]
    return [_item(*each, largest=largest) for each in sorted(found)], largest


def _item(place: int, text: str, score: float, special: bool, largest: float) -> _Item:
    size = abs(score) / largest if largest else 1.0 * (score != 0)
    reach = math.copysign(min(size, _TORN), score)
    return _Item(place, text, score, special, level_of(score, largest), reach, torn=size > _TORN)


def _largest(items: Sequence[_Item], count: int) -> list[_Item]:
    return sorted(items, key=lambda item: (-abs(item.score), item.place))[:count]


def _legend(items: Sequence[_Item], chosen: Sequence[_Item], unit: str) -> str:
    if any(item.score < 0 for item in items):
        said = [f"score per {unit}: orange speaks for the label, blue with dashes or stripes against it"]
    else:
        said = [f"score per {unit}: the stronger the shade, the larger"]
    if any(item.special for item in items):
        said.append("dashed outline: special tokens")
    if any(item.torn for item in chosen):
        said.append("torn bars are longer than drawn")
    return "; ".join(said)


def _rows(items: Sequence[_Item], size: float, width: float) -> list[list[tuple[float, float, str, _Item]]]:
    """The strip's lines: (left, right, text, item), broken where the sheet ends."""
    rows: list[list[tuple[float, float, str, _Item]]] = [[]]
    left = 0.0
    for item in items:
        text = fitted(item.text, size, width / 2)
        wide = width_of(text, size) + 6
        if rows[-1] and left + wide > width:
            rows.append([])
            left = 0.0
        rows[-1].append((left, left + wide, text, item))
        left += wide + 1.5
    return rows


def _strip(sheet: Axes, rows: Sequence[Sequence[tuple[float, float, str, _Item]]], top: float, size: float) -> None:
    boxes: list[Box] = []
    for k, row in enumerate(rows):
        up = top + k * (size + 8)
        for left, right, text, item in row:
            boxes.append(box(left, up, right, up + size + 5))
            place = ((left + right) / 2, up + (size + 5) / 2)
            slant = "italic" if item.special else "normal"
            word(sheet, *place, text, size=size, ha="center", style=slant, color=ink(item.level))
    items = [item for row in rows for *_, item in row]
    shaded(sheet, boxes, [item.level for item in items])
    outlined(sheet, [corners for corners, item in zip(boxes, items, strict=True) if item.special])


def _bars(
    sheet: Axes, items: Sequence[_Item], top: float, width: float, form: Callable[[float], str], *, numbered: bool
) -> None:
    names = [fitted(item.text, 8.5, _LONGEST) for item in items]
    numbers = [f"{item.place + 1}" if numbered else "" for item in items]
    aside = max(width_of(number, 7) for number in numbers) + (12 if numbered else 6)
    begin = max(width_of(name, 8.5) for name in names) + aside + 6
    room = max(width_of(form(item.score), 8) for item in items) + 6
    low, high = min(0.0, *(item.reach for item in items)), max(0.0, *(item.reach for item in items))
    unit = (width - begin - room * (2 if low < 0 else 1)) / ((high - low) or 1.0)
    zero = begin + (room if low < 0 else 0.0) - low * unit
    boxes = []
    for k, item in enumerate(items):
        middle, end = top + _PITCH * (k + 0.5), zero + unit * item.reach
        tone, slant = (GREY, "italic") if item.special else (INK, "normal")
        word(sheet, begin - aside, middle, names[k], size=8.5, ha="right", color=tone, style=slant)
        word(sheet, begin - 6, middle, numbers[k], size=7, ha="right", color=GREY)
        beside = {"ha": "right", "x": end - 4} if item.score < 0 else {"ha": "left", "x": end + 4}
        word(sheet, y=middle, text=form(item.score), size=8, **beside)
        boxes.append(_bar(zero, end, middle - _PITCH / 2 + 2, middle + _PITCH / 2 - 2, item.torn))
    for kind, look in _LOOKS.items():
        mine = [k for k, item in enumerate(items) if _kind(item) == kind]
        faces = [colour(items[k].level) for k in mine]
        lines = [GREY if items[k].special else ink(items[k].level, "line") for k in mine]
        drawn = PolyCollection([boxes[k] for k in mine], facecolors=faces, edgecolors=lines, linewidths=0.7, **look)
        sheet.add_collection(drawn)
    axis = [((zero, top), (zero, top + _PITCH * len(items)))]
    sheet.add_collection(LineCollection(axis, colors=[INK], linewidths=0.8))


_LOOKS: dict[str, dict[str, Any]] = {
    "for": {},
    "against": {"hatch": "/////"},
    "special": {"linestyles": [(0, (2, 1.5))]},
    "special, against": {"linestyles": [(0, (2, 1.5))], "hatch": "/////"},
}


def _kind(item: _Item) -> str:
    side = "against" if item.score < 0 else "for"
    return side if not item.special else "special" if side == "for" else "special, against"


def _bar(zero: float, end: float, up: float, down: float, torn: bool) -> Box:
    if not torn:
        return box(zero, up, end, down)
    tooth, third = math.copysign(3.0, end - zero), (down - up) / 3
    return [(zero, up), (end, up), (end - tooth, up + third), (end, up + 2 * third), (end - tooth, down), (zero, down)]
