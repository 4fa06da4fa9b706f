"""Pictures and sounds for the templates: data URIs, and the coordinates of a shaded wave."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np

from gaflow.attribution.attribution import Attribution
from gaflow.extras import need
from gaflow.inputs.media import Image, Sound
from gaflow.view.media import envelope, frames, heat_map
from gaflow.view.shades import hex_code, shade

__all__ = ["EmbeddedImage", "Wave", "WaveFrame", "images", "wave"]

_WIDTH = 900  # of a wave, in units of its drawing
_HEIGHT = 120


@dataclass(frozen=True)
class EmbeddedImage:
    """A picture inside a page."""

    uri: str
    description: str


@dataclass(frozen=True)
class WaveFrame:
    """The box behind a stretch of time."""

    left: str
    right: str
    width: str
    fill: str
    negative: bool  # its score is below 0
    tooltip: str


@dataclass(frozen=True)
class Wave:
    """The drawing of a sound."""

    width: int
    height: int
    frames: tuple[WaveFrame, ...]
    path: str  # of the wave itself, in SVG's language
    seconds: float


def images(att: Attribution) -> list[EmbeddedImage]:
    """The picture and its heat map; none for a sound."""
    if not isinstance(att.media, Image):
        return []
    return [
        EmbeddedImage(_data_uri(att.media.pixels), "the picture as the model saw it"),
        EmbeddedImage(_data_uri(heat_map(att)), "the same picture, each patch shaded by its score"),
    ]


def wave(att: Attribution) -> Wave | None:
    """The drawing of a sound over its shaded frames; None for a picture."""
    sound = att.media
    if not isinstance(sound, Sound):
        return None
    samples = len(sound.samples)
    boxes = []
    for frame in frames(att):
        left = frame.start / samples * _WIDTH
        right = frame.end / samples * _WIDTH
        box = WaveFrame(
            left=f"{left:.2f}",
            right=f"{right:.2f}",
            width=f"{right - left:.2f}",
            fill=hex_code(shade(frame.level)),
            negative=frame.level < 0,
            tooltip=f"{frame.start / sound.rate:.2f} to {frame.end / sound.rate:.2f} s: {frame.score:.4g}",
        )
        boxes.append(box)
    return Wave(width=_WIDTH, height=_HEIGHT, frames=tuple(boxes), path=_wave_path(sound), seconds=samples / sound.rate)


def _wave_path(sound: Sound) -> str:
    bounds = envelope(sound)
    step = _WIDTH / len(bounds)
    strokes = []
    for index, (low, high) in enumerate(bounds):
        top = _HEIGHT / 2 * (1 - high)
        bottom = _HEIGHT / 2 * (1 - low) + 0.5
        strokes.append(f"M{(index + 0.5) * step:.1f} {top:.1f}V{bottom:.1f}")
    return " ".join(strokes)


def _data_uri(pixels: np.ndarray) -> str:
    need("PIL", "image", "pictures need Pillow")
    from PIL import Image as pillow

    file = io.BytesIO()
    pillow.fromarray(np.ascontiguousarray(pixels)).save(file, format="png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
