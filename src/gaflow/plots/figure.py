"""The paper that figures are drawn on: the same result gives the same file, byte for byte.

A `Picture` is a matplotlib `Figure` that carries its own style, so that neither a style sheet of the user nor the time
of day changes it, and that shows itself in notebooks without pyplot. In SVG, text stays text: it can be searched,
selected and read aloud, and whatever shows the file finds a font for characters that matplotlib's own does not have
(these are boxes in PDF and PNG).

The convention this file owns: **strings are shown, never obeyed**. Nothing is TeX or mathtext, and what would steer a
screen is written out (see `gaflow.view.shades`). Lengths are points, 72 to the inch.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath
from PIL import Image

from gaflow.view.shades import foreground, shade, underline
from gaflow.view.text import shortened

if TYPE_CHECKING:
    from gaflow.attribution.attribution import Attribution

__all__ = [
    "GREY",
    "INK",
    "Picture",
    "colour",
    "facts",
    "fitted",
    "flags",
    "ink",
    "name_of",
    "shown",
    "styled",
    "width_of",
    "wrapped",
]

Colour = tuple[float, float, float]

INK: Colour = (0.13, 0.14, 0.16)
GREY: Colour = (0.42, 0.44, 0.47)  # 5 to 1 on white: still to be read
PAD = 12.0  # around a whole picture

_STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so every machine has it
    "font.size": 8.5,
    "text.usetex": False,
    "text.parse_math": False,
    "text.hinting": "none",  # so that a line is as wide as it was measured, at any dpi
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


class Picture(Figure):
    """A matplotlib figure whose file depends on nothing but what is drawn."""

    about: str = ""  # what the picture is of, kept in the file

    @classmethod
    def sized(cls, width: float, height: float, about: str = "") -> Picture:
        """An empty sheet of `width` x `height` points."""
        with styled():
            made = cls(figsize=(width / 72, height / 72), dpi=144, facecolor="white")
        made.about = shown(about)
        return made

    def sheet(self, left: float = PAD, top: float = PAD) -> Axes:
        """Axes over the whole picture, without frame or ticks, in points from (`left`, `top`) on, y downwards."""
        width, height = 72 * self.get_figwidth(), 72 * self.get_figheight()
        axes = self.add_axes((0, 0, 1, 1))
        axes.set(xlim=(-left, width - left), ylim=(height - top, -top))
        axes.set_axis_off()
        return axes

    def savefig(self, fname: Any, **options: Any) -> None:
        """Write the figure to a file, as matplotlib does, but without date and with the same ids every time."""
        kind = options.get("format") or (Path(fname).suffix[1:] if isinstance(fname, str | Path) else "") or "png"
        undated = dict(_UNDATED.get(kind.lower(), {}))
        if undated and self.about:
            undated["Title"] = self.about
        metadata = {**undated, **(options.pop("metadata", None) or {})}
        with styled():
            super().savefig(fname, **options, metadata=metadata or None)

    def draw(self, renderer: Any) -> None:
        """Draw the figure, in its own style."""
        with styled():
            super().draw(renderer)

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        held = io.BytesIO()
        self.savefig(held, format="png", dpi=192)
        with Image.open(held) as drawn:  # 256 colours are enough for our shades, and make a fifth of the file
            flat = drawn.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        held = io.BytesIO()
        flat.save(held, format="png", optimize=True)
        return held.getvalue(), {"width": round(96 * self.get_figwidth()), "height": round(96 * self.get_figheight())}


@contextmanager
def styled() -> Iterator[None]:
    """Our style alone; and a character that no font has is a box, not a warning."""
    with style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from")
        warnings.filterwarnings("ignore", r"Matplotlib currently does not support")
        yield


_MEASURE = TextToPath()


def width_of(text: str, size: float, weight: str = "normal") -> float:
    """The width of a line of text."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from|Matplotlib currently")
        font = FontProperties(family="DejaVu Sans", size=size, weight=weight)
        return float(_MEASURE.get_text_width_height_descent(text, font, ismath=False)[0])


def shown(text: str) -> str:
    """The beginning of `text` on one line, as it may be drawn."""
    return shortened(text).replace("\ufeff", "\\ufeff")  # a byte order mark, which breaks matplotlib's PDFs


def fitted(text: str, size: float, width: float, weight: str = "normal") -> str:
    """The beginning of `text`, on one line that is no wider than `width`."""
    line = shown(text) or "␣"
    if width_of(line, size, weight) <= width:
        return line
    kept = len(line)
    while kept > 1 and width_of(line[:kept] + "…", size, weight) > width:
        kept -= 1
    return line[:kept] + "…"


def wrapped(text: str, size: float, width: float) -> list[str]:
    """`text` broken at spaces into lines that are no wider than `width`."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and width_of(longer, size) <= width:
            lines[-1] = longer
        else:
            lines.append(fitted(word, size, width))
    return lines


def colour(level: float) -> Colour:
    """The shade of -LEVELS to LEVELS, as matplotlib wants it."""
    red, green, blue = shade(round(level))
    return red / 255, green / 255, blue / 255


def ink(level: float, kind: str = "letters") -> Colour:
    """What is drawn on a shade: its letters, or the "line" around or below it."""
    back = shade(round(level))
    red, green, blue = foreground(back) if kind == "letters" else underline(round(level))
    return red / 255, green / 255, blue / 255


def name_of(att: Attribution) -> str:
    """The headline: what was explained, and how sure the model is."""
    chance = "" if att.probability is None else f"{att.probability:.1%}"
    return f"{shown(att.label)} {chance}".rstrip()


def flags(att: Attribution) -> list[str]:
    """What must not be missed."""
    found, certificate = [], att.certificate
    if certificate is not None and certificate.dead:
        found.append("DEAD: nothing flows, every score is 0")
    elif certificate is not None and not certificate.converged:
        found.append("NOT CONVERGED: do not rely on these scores")
    if "warning" in att.diagnostics:
        found += [f"WARNING: {shown(part)}" for part in str(att.diagnostics["warning"]).split("; ")]
    return found


def remarks(att: Attribution) -> list[str]:
    """What stands below the headline, whatever the method."""
    contrast = isinstance(att.target, tuple)
    found = [f"TRUNCATED: the model read only the first {len(att.tokens)} tokens"] if att.truncated else []
    if att.prediction == att.label:
        found.append("the model’s prediction")
    elif contrast and att.probability is not None:
        found.append("probability of the first of the two")
    found.append(f"{shown(att.output_name)} {att.output:.4g}")
    if att.prediction != att.label:
        found.append(f"the model predicts {shown(att.prediction)}")
    return [*found, f"{len(att.tokens)} tokens"]


def facts(att: Attribution) -> str:
    """All that stands below the headline of one attribution."""
    return " · ".join([*flags(att), *remarks(att), f"explained by {shown(att.method)}"])
