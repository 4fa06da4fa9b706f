"""Pictures and sounds with their scores on them: a heat map of patches, a wave with its frames shaded.

The conventions this file owns: a score's shade is that of texts, laid over the picture in grey the more strongly the
larger the score, so that what scored nothing is still seen; where several bands of a sound share a time their scores
are summed. A score below 0 has a dashed line at its lower edge, since the sign must not hang on the colour alone.
"""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

import numpy as np

from gaflow.errors import MissingExtraError
from gaflow.inputs.media import Image, Sound
from gaflow.view.shades import LEVELS, shade

if TYPE_CHECKING:
    from gaflow.attribution.attribution import Attribution

__all__ = ["depicted", "envelope", "frames", "heat_map", "levels"]

_STRONGEST = 0.8  # of the shade, over the picture
_SIDE = 320  # pixels at least that a picture is shown in
_WIDE, _HIGH = 900, 120  # of a wave
_BINS = 450  # points of a wave


def depicted(att: Attribution) -> str:
    """The picture beside its heat map, or the shaded wave, as HTML that needs nothing from elsewhere."""
    if isinstance(att.media, Image):
        shown = ((att.media.pixels, "what the model saw"), (heat_map(att), "the same, each patch shaded by its score"))
        size = f'style="width:{_SIDE}px;max-width:48%;image-rendering:pixelated"'
        return "".join(f'<img src="{_uri(pixels)}" alt="{about}" {size}>\n' for pixels, about in shown)
    assert isinstance(att.media, Sound)
    return _wave(att, att.media)


def levels(att: Attribution, scores: np.ndarray) -> np.ndarray:
    """The shades of scores, -LEVELS to LEVELS; the largest has the strongest."""
    largest = np.abs(scores).max(initial=0.0)
    return np.rint(scores / largest * LEVELS).astype(int) if largest > 0 else np.zeros(scores.shape, dtype=int)


def heat_map(att: Attribution) -> np.ndarray:
    """The picture (h, w, 3) uint8 with every patch shaded by its score."""
    image = att.media
    assert isinstance(image, Image)
    rows, columns = image.grid
    h, w = image.pixels.shape[:2]
    level = levels(att, att.scores[~att.special_mask].reshape(rows, columns))
    row, column = (np.arange(h) * rows // h)[:, None], (np.arange(w) * columns // w)[None, :]
    colours = np.array([shade(k) for k in range(-LEVELS, LEVELS + 1)])[level + LEVELS]  # (rows, columns, 3)
    part = _STRONGEST * (np.abs(level) / LEVELS)[row, column][..., None]
    grey = image.pixels.mean(-1, keepdims=True)
    made = (1 - part) * grey + part * colours[row, column]
    last = np.append(np.diff(row[:, 0]) > 0, True)[:, None]
    dashes = last & (level[row, column] < 0) & (np.arange(w) // 2 % 2 == 0)[None, :]
    made[dashes] = 0
    return made.round().astype(np.uint8)


def frames(att: Attribution) -> list[tuple[int, int, float]]:
    """(first sample, last sample, score) of every stretch of time that has tokens, in order."""
    found: dict[tuple[int, int], float] = {}
    for span, score, special in zip(att.offsets, att.scores.tolist(), att.special_mask, strict=True):
        if not special:
            found[span] = found.get(span, 0.0) + score
    return [(a, b, score) for (a, b), score in sorted(found.items())]


def envelope(sound: Sound, bins: int = _BINS) -> np.ndarray:
    """The lowest and highest sample (n, 2) of up to `bins` equal stretches of time, in parts of the loudest."""
    parts = np.array_split(sound.samples, min(bins, len(sound.samples)))
    loudest = float(np.abs(sound.samples).max()) or 1.0
    return np.array([[part.min(), part.max()] for part in parts]) / loudest


def _wave(att: Attribution, sound: Sound) -> str:
    n, shown = len(sound.samples), frames(att)
    shades = levels(att, np.array([score for *_, score in shown]))
    boxes = []
    for (a, b, score), level in zip(shown, shades.tolist(), strict=True):
        x, width = a / n * _WIDE, (b - a) / n * _WIDE
        fill = "rgb({},{},{})".format(*shade(level))
        title = f"{a / sound.rate:.2f} to {b / sound.rate:.2f} s: {score:.4g}"
        boxes.append(
            f'<rect x="{x:.2f}" y="0" width="{width:.2f}" height="{_HIGH}" fill="{fill}"><title>{title}</title></rect>'
        )
        if level < 0:
            line = f'x1="{x:.2f}" x2="{x + width:.2f}" y1="{_HIGH - 1}" y2="{_HIGH - 1}"'
            boxes.append(f'<line {line} stroke="#000" stroke-width="2" stroke-dasharray="4 3"/>')
    ends = envelope(sound)
    step = _WIDE / len(ends)
    path = " ".join(
        f"M{(k + 0.5) * step:.1f} {_HIGH / 2 * (1 - high):.1f}V{_HIGH / 2 * (1 - low) + 0.5:.1f}"
        for k, (low, high) in enumerate(ends)
    )
    wave = f'<path d="{path}" stroke="#1a1c20" stroke-width="1" fill="none"/>'
    size = f'viewBox="0 0 {_WIDE} {_HIGH}" role="img" aria-label="the sound over time, shaded by score"'
    seconds = f'<p class="caption">0 to {n / sound.rate:.2f} s</p>\n'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="width:100%">{"".join(boxes)}{wave}</svg>\n{seconds}'


def _uri(pixels: np.ndarray) -> str:
    try:
        from PIL import Image as pillow
    except ImportError as error:
        raise MissingExtraError(f"pictures need Pillow ({error}); run: pip install 'gaflow[image]'") from error
    held = io.BytesIO()
    pillow.fromarray(np.ascontiguousarray(pixels)).save(held, format="png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(held.getvalue()).decode()}"
