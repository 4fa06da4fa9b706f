"""Elements that several figures share: a heading, boxes in shades, and the scale that explains the shades.

The convention this file owns: **colour alone never carries the sign**. Boxes below 0 have a dashed line at their lower
edge, as on pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection

from gaflow.plots.figure import GREY, INK, fit_text, line_colour, shade_colour, text_width, wrap_text
from gaflow.view.summary import Flag, Legend, Summary

__all__ = ["Box", "Heading", "Scale", "draw_boxes", "draw_note", "draw_outlines", "draw_text", "flag_text", "rectangle"]

NEGATIVE = "blue with dashes or stripes"  # how figures mark scores below 0, for legends

Box = list[tuple[float, float]]  # corners: upper left, upper right, lower right, lower left

_SCALE_WIDTH = 180.0  # with its two numbers
_WORDS_LEFT = 200.0  # where the words beside the scale begin
_LINE = 12.0  # from one line of small text to the next
_DASHES = (0, (2, 1.5))


@dataclass(frozen=True)
class Heading:
    """A headline at the upper left, and smaller lines below it."""

    title: str
    lines: tuple[str, ...]

    @classmethod
    def of(cls, title: str, remarks: Sequence[str], width: float) -> Heading:
        """A headline and `remarks`, wrapped to `width`."""
        lines = wrap_text(" · ".join(remarks), 8.5, width)
        return cls(fit_text(title, 12, width, "bold"), tuple(lines))

    @classmethod
    def about(cls, summary: Summary, width: float) -> Heading:
        """The headline, flags and facts of an attribution."""
        flags = [flag_text(flag) for flag in summary.flags]
        return cls.of(summary.headline, [*flags, *summary.facts()], width)

    @property
    def height(self) -> float:
        """The room that it takes."""
        return 22.0 + _LINE * len(self.lines)

    def draw(self, sheet: Axes) -> None:
        """Draw it at the top of `sheet`."""
        sheet.text(0, 0, self.title, size=12, weight="bold", va="top")
        for index, line in enumerate(self.lines):
            draw_note(sheet, 0, 19 + _LINE * index, line, size=8.5)


@dataclass(frozen=True)
class Scale:
    """The shades from the lowest value to the highest, and what they mean."""

    legend: Legend
    lines: tuple[str, ...]

    @classmethod
    def of(cls, legend: Legend, width: float, *remarks: str) -> Scale:
        """The scale of `legend`, with further `remarks` after its words."""
        words = "; ".join([legend.words, *remarks])
        return cls(legend, tuple(wrap_text(words, 8, width - _WORDS_LEFT)))

    @property
    def height(self) -> float:
        """The room that it takes."""
        return max(_LINE * len(self.lines), 14.0)

    def draw(self, sheet: Axes, top: float) -> None:
        """Draw it, its upper edge at `top`."""
        levels = self.legend.levels
        left = text_width(self.legend.low, 8) + 5
        step = (_SCALE_WIDTH - left - text_width(self.legend.high, 8)) / len(levels)
        width = step * len(levels)
        boxes = []
        for index in range(len(levels)):
            boxes.append(rectangle(left + index * step, top + 1, step, 9))
        draw_boxes(sheet, boxes, levels)
        draw_outlines(sheet, [rectangle(left, top + 1, width, 9)], dashed=False)
        sheet.text(0, top + 5.5, self.legend.low, size=8, va="center", color=INK)
        sheet.text(left + width + 5, top + 5.5, self.legend.high, size=8, va="center", color=INK)
        for index, line in enumerate(self.lines):
            draw_note(sheet, _WORDS_LEFT, top + 1 + _LINE * index, line)


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


def draw_outlines(sheet: Axes, boxes: Sequence[Box], *, dashed: bool = True) -> None:
    """Thin lines around boxes; dashed ones are for special tokens."""
    pattern = _DASHES if dashed else "solid"
    outlines = PolyCollection(boxes, facecolors="none", edgecolors=[GREY], linewidths=0.7, linestyles=[pattern])
    sheet.add_collection(outlines)


def draw_text(sheet: Axes, x: float, y: float, text: str, **look: Any) -> None:
    """One line of text, its middle at `y` whatever letters it has."""
    sheet.text(x, y, text, va="center_baseline", **look)


def draw_note(sheet: Axes, x: float, y: float, text: str, size: float = 8, **look: Any) -> None:
    """One line of small grey text, its top at `y`."""
    sheet.text(x, y, text, size=size, color=GREY, va="top", **look)
