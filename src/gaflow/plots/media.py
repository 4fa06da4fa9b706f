"""Scores on a picture or a sound: patches on the picture, frames over time with the wave."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from gaflow.attribution.attribution import Attribution
from gaflow.errors import Argument, ArgumentError
from gaflow.inputs.media import Image, Sound
from gaflow.plots.elements import NEGATIVE, Heading, Scale, draw_boxes, draw_text, rectangle
from gaflow.plots.figure import INK, PAD, Picture, styled
from gaflow.view.media import envelope, frames, heat_map
from gaflow.view.summary import score_legend, summarize

__all__ = ["media"]

_INNER = 600.0 - 2 * PAD  # width
_GAP = 12.0  # between a picture and its heat map
_WAVE_HEIGHT = 110.0


def media(att: Attribution) -> Picture:
    """A figure of a picture beside its heat map, or of a sound's wave over its shaded frames."""
    if isinstance(att.media, Image):
        height, width, _ = att.media.pixels.shape
        drawing_height = (_INNER - _GAP) / 2 * height / width
        scores = att.scores[~att.special_mask]
    elif isinstance(att.media, Sound):
        drawing_height = _WAVE_HEIGHT + 14
        scores = np.array([frame.score for frame in frames(att)])
    else:
        raise ArgumentError(
            Argument("att"), " explains a text, not a picture or a sound; gaflow.plots.bars draws its scores"
        )
    summary = summarize(att)
    heading = Heading.about(summary, _INNER)
    largest = float(np.abs(scores).max(initial=0.0))
    legend = score_legend(largest, summary.unit_name, summary.label, NEGATIVE, signed=summary.signed)
    scale = Scale.of(legend, _INNER, "special tokens are not shown")
    top = heading.height + scale.height + 10
    picture = Picture.padded(_INNER, top + drawing_height, summary.title)
    with styled():
        sheet = picture.sheet()
        heading.draw(sheet)
        scale.draw(sheet, heading.height)
        if isinstance(att.media, Image):
            _draw_picture(sheet, att, att.media, top, drawing_height)
        else:
            _draw_wave(sheet, att, att.media, top)
    return picture


def _draw_picture(sheet: Axes, att: Attribution, image: Image, top: float, height: float) -> None:
    width = (_INNER - _GAP) / 2
    limits = {"xlim": sheet.get_xlim(), "ylim": sheet.get_ylim()}
    for left, pixels in ((0.0, image.pixels), (width + _GAP, heat_map(att))):
        extent = (left, left + width, top + height, top)
        sheet.imshow(pixels, extent=extent, interpolation="nearest", aspect="auto", zorder=0)
    sheet.set(**limits)  # which imshow has changed


def _draw_wave(sheet: Axes, att: Attribution, sound: Sound, top: float) -> None:
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
    lines = []
    for index, (bottom, upper) in enumerate(top + _WAVE_HEIGHT / 2 * (1 - bounds)):
        x = (index + 0.5) * step
        lines.append(((x, upper), (x, bottom)))
    sheet.add_collection(LineCollection(lines, colors=[INK], linewidths=0.7))
    below = top + _WAVE_HEIGHT + 8
    draw_text(sheet, 0, below, "0 s", size=8, ha="left")
    draw_text(sheet, _INNER, below, f"{samples / sound.rate:.2f} s", size=8, ha="right")
