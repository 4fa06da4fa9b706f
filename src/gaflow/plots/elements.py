"""Elements that several figures share: a heading, boxes in shades, and the scale that explains the shades.

The convention this file owns: **colour alone never carries the sign**. Boxes below 0 have a dashed line at their lower
edge, as on pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection

from gaflow.plots.figure import GREY, fit_text, line_colour, shade_colour, text_width, wrap_text
from gaflow.view.shades import NEGATIVE_COLOUR
from gaflow.view.summary import Flag, Legend, Summary

NEGATIVE = f"{NEGATIVE_COLOUR} with dashes or stripes"  # how figures mark scores below 0, for legends

Box = list[tuple[float, float]]  # corners: upper left, upper right, lower right, lower left

_SCALE_WIDTH = 180.0  # with its two numbers
_WORDS_LEFT = 200.0  # where the words beside the scale begin
LINE = 12.0  # from one line of small text to the next
DASHES = (0, (2, 1.5))  # of outlines of special tokens


def draw_heading(sheet: Axes, title: str, remarks: Sequence[str], width: float) -> float:
    """A headline at the upper left, and `remarks` in smaller lines below it; returns where it ends."""
    line = fit_text(title, 12, width, "bold")
    sheet.text(0, 0, line, size=12, weight="bold", va="top")
    lines = wrap_text(" · ".join(remarks), 8.5, width)
    return draw_lines(sheet, 0, 19, lines, size=8.5) + 3


def draw_scale(sheet: Axes, top: float, legend: Legend, width: float, remarks: Sequence[str] = ()) -> float:
    """The shades from the lowest value to the highest, and beside them what they mean; returns where it ends."""
    left = text_width(legend.low, 8) + 5
    right = _SCALE_WIDTH - text_width(legend.high, 8)
    draw_row(sheet, left, top + 1, right - left, 9, legend.levels)
    draw_outlines(sheet, [rectangle(left, top + 1, right - left, 9)], dashed=False)
    sheet.text(0, top + 5.5, legend.low, size=8, va="center")
    sheet.text(right + 5, top + 5.5, legend.high, size=8, va="center")
    words = "; ".join([legend.words, *remarks])
    bottom = draw_lines(sheet, _WORDS_LEFT, top + 1, wrap_text(words, 8, width - _WORDS_LEFT))
    return max(bottom - 1, top + 14)


def summary_remarks(summary: Summary) -> list[str]:
    """The flags and facts of an attribution."""
    return [*map(flag_text, summary.flags), *summary.facts()]


def flag_text(flag: Flag) -> str:
    """A warning, in capitals because figures have no bold words inside a line."""
    return f"{flag.name.upper()}: {flag.meaning}"


def rectangle(left: float, top: float, width: float, height: float) -> Box:
    """The corners of a rectangle."""
    right = left + width
    bottom = top + height
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def draw_boxes(sheet: Axes, boxes: Sequence[Box], levels: Sequence[int]) -> None:
    """Boxes in the shades of their levels, with dashes where they are below 0."""
    faces = [shade_colour(level) for level in levels]
    sheet.add_collection(PolyCollection(boxes, facecolors=faces, edgecolors="face", linewidths=0.25))
    lines = []
    colours = []
    for corners, level in zip(boxes, levels, strict=True):
        if level < 0:
            _, _, (right, bottom), (left, _) = corners
            lines.append(((left + 1, bottom - 0.6), (right - 1, bottom - 0.6)))
            colours.append(line_colour(level))
    sheet.add_collection(LineCollection(lines, colors=colours, linewidths=1.2, linestyles=[(0, (2.5, 1.5))]))


def draw_row(sheet: Axes, left: float, top: float, width: float, height: float, levels: Sequence[int]) -> None:
    """Boxes of equal width side by side."""
    step = width / len(levels)
    boxes = [rectangle(left + index * step, top, step, height) for index in range(len(levels))]
    draw_boxes(sheet, boxes, levels)


def draw_outlines(sheet: Axes, boxes: Sequence[Box], *, dashed: bool = True) -> None:
    """Thin lines around boxes; dashed ones are for special tokens."""
    pattern = DASHES if dashed else "solid"
    outlines = PolyCollection(boxes, facecolors="none", edgecolors=[GREY], linewidths=0.7, linestyles=[pattern])
    sheet.add_collection(outlines)


def draw_text(sheet: Axes, x: float, y: float, text: str, size: float = 8, **look: Any) -> None:
    """One line of text, its middle at `y` whatever letters it has."""
    sheet.text(x, y, text, size=size, va="center_baseline", **look)


def draw_note(sheet: Axes, x: float, y: float, text: str, size: float = 8, **look: Any) -> None:
    """One line of small grey text, its top at `y`."""
    sheet.text(x, y, text, size=size, color=GREY, va="top", **look)


def draw_lines(sheet: Axes, x: float, top: float, lines: Sequence[str], size: float = 8) -> float:
    """Lines of small grey text; returns where the next one would begin."""
    for line in lines:
        draw_note(sheet, x, top, line, size)
        top += LINE
    return top
