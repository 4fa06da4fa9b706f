"""What several figures are made of: a headline, boxes in shades, and the scale that explains the shades.

The convention this file owns: **the sign never hangs on the colour alone**. What is below 0 has a dashed line at its
lower edge, as in HTML.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection

from gaflow.plots.figure import GREY, INK, colour, fitted, ink, width_of
from gaflow.view.shades import LEVELS

__all__ = ["Box", "box", "head", "head_height", "level_of", "outlined", "scale", "scale_height", "shaded", "word"]

Box = list[tuple[float, float]]  # corners: upper left, upper right, lower right, lower left

_BAR = 180.0  # width of the scale with its two numbers
_WORDS = 200.0  # where the words beside it begin


def box(left: float, up: float, right: float, down: float) -> Box:
    """The corners of a rectangle."""
    return [(left, up), (right, up), (right, down), (left, down)]


def level_of(score: float, largest: float) -> int:
    """The shade of a score, -LEVELS to LEVELS, where the largest has the strongest; larger ones have it too."""
    if largest == 0:
        return int(math.copysign(LEVELS, score)) if score else 0
    return round(max(-1.0, min(score / largest, 1.0)) * LEVELS)


def shaded(sheet: Axes, boxes: Sequence[Box], levels: Sequence[int]) -> None:
    """Boxes in the shades of their levels, with dashes where they are below 0."""
    sheet.add_collection(
        PolyCollection(boxes, facecolors=[colour(k) for k in levels], edgecolors="face", linewidths=0.25)
    )
    below = [(corners, k) for corners, k in zip(boxes, levels, strict=True) if k < 0]
    lines = [((b[3][0] + 1, b[3][1] - 0.6), (b[2][0] - 1, b[2][1] - 0.6)) for b, _ in below]
    colours = [ink(k, "line") for _, k in below]
    sheet.add_collection(LineCollection(lines, colors=colours, linewidths=1.2, linestyles=[(0, (2.5, 1.5))]))


def outlined(sheet: Axes, boxes: Sequence[Box], *, dashed: bool = True) -> None:
    """Thin lines around boxes; dashed ones are for special tokens."""
    pattern = (0, (2, 1.5)) if dashed else "solid"
    sheet.add_collection(
        PolyCollection(boxes, facecolors="none", edgecolors=[GREY], linewidths=0.7, linestyles=[pattern])
    )


def head_height(below: Sequence[str]) -> float:
    """What `head` takes."""
    return 22.0 + 12 * len(below)


def head(sheet: Axes, title: str, below: Sequence[str], width: float) -> None:
    """A headline at the upper left, and smaller lines below it."""
    sheet.text(0, 0, fitted(title, 12, width, "bold"), size=12, weight="bold", va="top")
    for k, line in enumerate(below):
        sheet.text(0, 19 + 12 * k, line, size=8.5, color=GREY, va="top")


def scale_height(says: Sequence[str]) -> float:
    """What `scale` takes."""
    return max(12.0 * len(says), 14.0)


def scale(sheet: Axes, top: float, low: str, high: str, says: Sequence[str], *, signed: bool) -> None:
    """The shades from the lowest score there could be to the highest, and what they mean."""
    levels = range(-LEVELS if signed else 0, LEVELS + 1)
    left = width_of(low, 8) + 5
    step = (_BAR - left - width_of(high, 8)) / len(levels)
    boxes = [box(left + k * step, top + 1, left + (k + 1) * step, top + 10) for k in range(len(levels))]
    shaded(sheet, boxes, levels)
    right = boxes[-1][1][0]
    outlined(sheet, [box(left, top + 1, right, top + 10)], dashed=False)
    sheet.text(0, top + 5.5, low, size=8, va="center", color=INK)
    sheet.text(right + 5, top + 5.5, high, size=8, va="center", color=INK)
    for k, line in enumerate(says):
        sheet.text(_WORDS, top + 1 + 12 * k, line, size=8, color=GREY, va="top")


def word(sheet: Axes, x: float, y: float, text: str, **look: Any) -> None:
    """One line of text, its middle at `y` whatever letters it has."""
    sheet.text(x, y, text, va="center_baseline", **look)
