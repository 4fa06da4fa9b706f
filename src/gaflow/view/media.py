"""Pictures and sounds with their scores: a heat map of patches, frames over time, the envelope of a wave.

The conventions this file owns: scores have the shades of texts. A shade is laid over the picture in grey, the more
opaque the larger the score, so that patches without a score stay visible. If several bands of a sound share a time,
their scores are summed. A dashed line marks the lower edge of scores below 0: colour alone must not carry the sign.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from gaflow.attribution.attribution import Attribution
from gaflow.inputs.media import Image, Sound
from gaflow.view.shades import LEVELS, level_of, shade

_OPACITY = 0.8  # of the strongest shade, over the picture
_ENVELOPE_POINTS = 450


@dataclass(frozen=True)
class Frame:
    """A stretch of time of a sound."""

    start: int  # in samples
    end: int
    score: float
    level: int  # of the shade


def heat_map(att: Attribution) -> np.ndarray:
    """The picture (h, w, 3) uint8 with every patch shaded by its score."""
    image = att.media
    assert isinstance(image, Image)
    rows, columns = image.grid
    height, width, _ = image.pixels.shape
    row = np.arange(height) * rows // height  # the patch that each pixel is in
    column = np.arange(width) * columns // width
    scores = att.scores[~att.special_mask].reshape(rows, columns)
    levels = _levels(scores)[np.ix_(row, column)]  # (h, w)

    shades = np.array([shade(level) for level in range(-LEVELS, LEVELS + 1)])
    opacity = _OPACITY * (np.abs(levels) / LEVELS)[..., None]
    grey = image.pixels.mean(-1, keepdims=True)
    pixels = (1 - opacity) * grey + opacity * shades[levels + LEVELS]

    last_row_of_patch = np.append(np.diff(row) > 0, True)[:, None]
    dash = (np.arange(width) // 2 % 2 == 0)[None, :]
    pixels[last_row_of_patch & dash & (levels < 0)] = 0
    return pixels.round().astype(np.uint8)


def frames(att: Attribution) -> list[Frame]:
    """Every stretch of time that has tokens, in order."""
    scores: dict[tuple[int, int], float] = defaultdict(float)
    for span, score, special in zip(att.offsets, att.scores.tolist(), att.special_mask, strict=True):
        if not special:
            scores[span] += score
    spans = sorted(scores)
    levels = _levels(np.array([scores[span] for span in spans]))
    result = []
    for (start, end), level in zip(spans, levels.tolist(), strict=True):
        result.append(Frame(start=start, end=end, score=scores[start, end], level=level))
    return result


def envelope(sound: Sound, points: int = _ENVELOPE_POINTS) -> np.ndarray:
    """The lowest and highest sample (n, 2) of up to `points` equal stretches of time, relative to the loudest."""
    loudest = float(np.abs(sound.samples).max()) or 1.0
    parts = np.array_split(sound.samples, min(points, len(sound.samples)))
    bounds = [(part.min(), part.max()) for part in parts]
    return np.array(bounds) / loudest


def _levels(scores: np.ndarray) -> np.ndarray:
    """The shades of scores; the largest has the strongest."""
    largest = float(np.abs(scores).max(initial=0.0))
    return np.vectorize(level_of, otypes=[int])(scores, largest)
