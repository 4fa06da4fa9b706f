"""Scores on a picture or a sound: patches on the picture, frames over time with the wave."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from gaflow.arguments import checked
from gaflow.attribution.attribution import Attribution
from gaflow.errors import Argument, ArgumentError
from gaflow.inputs.media import Image, Sound
from gaflow.plots.elements import (
    NEGATIVE,
    draw_boxes,
    draw_heading,
    draw_scale,
    draw_text,
    rectangle,
    summary_remarks,
)
from gaflow.plots.figure import INK, PAD, Picture, styled
from gaflow.view.media import envelope, frames, heat_map
from gaflow.view.summary import summarize

_INNER = 600.0 - 2 * PAD  # width
_GAP = 12.0  # between a picture and its heat map
_WAVE_HEIGHT = 110.0


@checked
def media(att: Attribution) -> Picture:
    """A figure of a picture next to its heat map, or of a sound's wave over its shaded frames."""
    if isinstance(att.media, Image):
        scores = att.scores[~att.special_mask]
    elif isinstance(att.media, Sound):
        scores = np.array([frame.score for frame in frames(att)])
    else:
        raise ArgumentError(
            Argument("att"), " explains a text, not a picture or a sound; gaflow.plots.bars draws its scores"
        )
    summary = summarize(att)
    largest = float(np.abs(scores).max(initial=0.0))
    legend = summary.score_legend(NEGATIVE, largest, signed=summary.signed)
    picture = Picture.padded(_INNER, summary.title)
    with styled():
        sheet = picture.sheet()
        bottom = draw_heading(sheet, summary.headline, summary_remarks(summary), _INNER)
        bottom = draw_scale(sheet, bottom, legend, _INNER, ["special tokens are not shown"])
        if isinstance(att.media, Image):
            bottom = _draw_picture(sheet, att, att.media, bottom + 10)
        else:
            bottom = _draw_wave(sheet, att, att.media, bottom + 10)
        picture.end_at(bottom)
    return picture


def _draw_picture(sheet: Axes, att: Attribution, image: Image, top: float) -> float:
    width = (_INNER - _GAP) / 2
    rows, columns, _ = image.pixels.shape
    bottom = top + width * rows / columns
    for left, pixels in ((0.0, image.pixels), (width + _GAP, heat_map(att))):
        extent = (left, left + width, bottom, top)
        sheet.imshow(pixels, extent=extent, interpolation="nearest", aspect="auto", zorder=0)
    return bottom


def _draw_wave(sheet: Axes, att: Attribution, sound: Sound, top: float) -> float:
    samples = len(sound.samples)
    boxes = []
    levels = []
    for frame in frames(att):
        left = frame.start / samples * _INNER
        width = (frame.end - frame.start) / samples * _INNER
        boxes.append(rectangle(left, top, width, _WAVE_HEIGHT))
        levels.append(frame.level)
    draw_boxes(sheet, boxes, levels)
    bounds = envelope(sound)
    step = _INNER / len(bounds)
    x = (np.arange(len(bounds)) + 0.5) * step
    lower, upper = (top + _WAVE_HEIGHT / 2 * (1 - bounds)).T
    sheet.vlines(x, upper, lower, colors=[INK], linewidths=0.7)
    bottom = top + _WAVE_HEIGHT
    draw_text(sheet, 0, bottom + 8, "0 s", ha="left")
    draw_text(sheet, _INNER, bottom + 8, f"{samples / sound.rate:.2f} s", ha="right")
    return bottom + 14
