"""Figures as files and in notebooks: the same result gives the same file, byte for byte.

A `Picture` is a matplotlib `Figure` with a style of its own: neither a style sheet of the user nor the time of day
changes it. Notebooks display it without pyplot. In SVG, text stays text: it can be searched, selected and read aloud,
and the viewer finds fonts for characters that matplotlib's font does not have (these are boxes in PDF and PNG).

The convention this file owns: **strings are displayed, never obeyed**. Nothing is TeX or mathtext, and control
characters are written out (see `gaflow.view.text`). Lengths are points, 72 to the inch.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath
from PIL import Image

from gaflow.view.shades import foreground, hex_code, shade, underline
from gaflow.view.text import beginning, shortened

Colour = tuple[float, float, float]
Look = dict[str, Any]  # keyword arguments of matplotlib

INK: Colour = (0.13, 0.14, 0.16)
GREY: Colour = (0.42, 0.44, 0.47)  # contrast 5 to 1 on white: still readable
PAD = 12.0  # around a figure

_STYLE: Look = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so every machine has it
    "font.size": 8.5,
    "text.usetex": False,
    "text.parse_math": False,
    "text.hinting": "none",  # lines are then as wide as they were measured, at any dpi
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "hatch.linewidth": 0.6,
    "lines.scale_dashes": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "gaflow",
    "pdf.fonttype": 42,
}
_UNDATED: dict[str, dict[str, str | None]] = {
    "svg": {"Date": None, "Creator": "gaflow"},
    "pdf": {"CreationDate": None, "Creator": "gaflow"},
    "png": {"Software": "gaflow"},
}
_MISSING_GLYPH = r"Glyph .* missing from|Matplotlib currently does not support"
_MEASURE = TextToPath()


class Picture(Figure):
    """A matplotlib figure whose file depends on nothing but what is drawn."""

    title: str = ""  # kept in the file

    @classmethod
    def padded(cls, width: float, title: str = "", height: float = 0.0) -> Picture:
        """An empty figure with room for `width` x `height` points inside its padding; see `end_at` for the height."""
        size = ((width + 2 * PAD) / 72, (height + 2 * PAD) / 72)
        with styled():
            picture = cls(figsize=size, dpi=144, facecolor="white")
        picture.title = printable(title)
        return picture

    def sheet(self) -> Axes:
        """Axes over the whole figure, without frame or ticks, in points from the padding on, y downwards."""
        width, height = 72 * self.get_size_inches()
        axes = self.add_axes((0, 0, 1, 1))
        axes.set(xlim=(-PAD, width - PAD), ylim=(height - PAD, -PAD))
        axes.set_axis_off()
        return axes

    def end_at(self, bottom: float) -> None:
        """Make the figure as high as its sheet, which ends at `bottom`."""
        self.set_figheight((bottom + 2 * PAD) / 72)
        self.axes[0].set_ylim(bottom + PAD, -PAD)

    def savefig(self, fname: Any, **options: Any) -> None:
        """Write the figure to a file, as matplotlib does, but without a date and with the same ids every time."""
        kind = options.get("format")
        if kind is None and isinstance(fname, str | Path):
            kind = Path(fname).suffix[1:]
        metadata = dict(_UNDATED.get((kind or "png").lower(), {}))
        if metadata and self.title:
            metadata["Title"] = self.title
        metadata.update(options.pop("metadata", None) or {})
        with styled():
            super().savefig(fname, **options, metadata=metadata or None)

    def draw(self, renderer: RendererBase) -> None:
        """Draw the figure, in its own style."""
        with styled():
            super().draw(renderer)

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        drawn = io.BytesIO()
        self.savefig(drawn, format="png", dpi=192)
        with Image.open(drawn) as image:  # 256 colours are enough for our shades, and make a fifth of the file
            small = image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        file = io.BytesIO()
        small.save(file, format="png", optimize=True)
        width, height = self.get_size_inches()
        return file.getvalue(), {"width": round(96 * width), "height": round(96 * height)}


@contextmanager
def styled() -> Iterator[None]:
    """Our style alone; a character that the font lacks is a box, not a warning."""
    with style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", _MISSING_GLYPH)
        yield


def text_width(text: str, size: float, weight: str = "normal") -> float:
    """The width of a line of text."""
    font = FontProperties(family="DejaVu Sans", size=size, weight=weight)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _MISSING_GLYPH)
        width, _, _ = _MEASURE.get_text_width_height_descent(text, font, ismath=False)
    return float(width)


def widest(texts: Iterable[str], size: float) -> float:
    """The width of the longest line."""
    return max(text_width(text, size) for text in texts)


def printable(text: str) -> str:
    """The beginning of `text` on one line, as it may be drawn."""
    return _without_byte_order_marks(shortened(text))


def fit_text(text: str, size: float, width: float, weight: str = "normal") -> str:
    """The beginning of `text`, on one line that is no wider than `width`."""
    line = printable(text) or "␣"
    if text_width(line, size, weight) <= width:
        return line
    start = line
    while len(start) > 1 and text_width(start + "…", size, weight) > width:
        start = beginning(line, len(start) - 1)
    return start + "…"


def wrap_text(text: str, size: float, width: float) -> list[str]:
    """`text` broken at spaces into lines that are no wider than `width`."""
    lines: list[str] = []
    for word in _without_byte_order_marks(text).split():
        extended = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(extended, size) <= width:
            lines[-1] = extended
        else:
            lines.append(fit_text(word, size, width))
    return lines


def shade_colour(level: int) -> Colour:
    """The shade of -LEVELS to LEVELS, as matplotlib writes colours."""
    return to_rgb(hex_code(shade(level)))


def letter_colour(level: int) -> Colour:
    """The colour of letters on a shade."""
    return to_rgb(hex_code(foreground(shade(level))))


def line_colour(level: int) -> Colour:
    """The colour of a line around or below a shade."""
    return to_rgb(hex_code(underline(level)))


def _without_byte_order_marks(text: str) -> str:
    return text.replace("\ufeff", "\\ufeff")  # which would break matplotlib's PDFs
