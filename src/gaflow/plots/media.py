"""Scores on what was seen or heard: patches on the picture, frames over time with the wave."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from gaflow.inputs.media import Image, Sound
from gaflow.plots.elements import box, head, head_height, scale, scale_height, shaded, word
from gaflow.plots.figure import INK, PAD, Picture, facts, name_of, styled, wrapped
from gaflow.view.media import envelope, frames, heat_map
from gaflow.view.text import number_format

if TYPE_CHECKING:
    from gaflow.attribution.attribution import Attribution

__all__ = ["seen"]

_WIDTH = 600.0
_WAVE = 110.0  # height of a wave


def seen(att: Attribution) -> Picture:
    """The picture beside its heat map, or the wave of a sound over its shaded frames."""
    if att.media is None:
        raise ValueError("att explains a text, not a picture or a sound; gaflow.plots.bars draws its scores")
    inner = _WIDTH - 2 * PAD
    below = wrapped(facts(att), 8.5, inner)
    kind = "patch" if isinstance(att.media, Image) else "frame"
    says = wrapped(f"score of each {kind}; special tokens are not shown", 8, inner - 200)
    side = (inner - 12) / 2
    if isinstance(att.media, Image):
        h, w = att.media.pixels.shape[:2]
        high, scores = side * h / w, att.scores[~att.special_mask]
    else:
        high, scores = _WAVE + 14, np.array([frame.score for frame in frames(att)])
    tops = [head_height(below), head_height(below) + scale_height(says) + 10]
    picture = Picture.sized(_WIDTH, tops[1] + high + 2 * PAD, f"{name_of(att)} by {att.method}: {att.text}")
    with styled():
        sheet = picture.sheet()
        head(sheet, name_of(att), below, inner)
        largest = float(np.abs(scores).max(initial=0.0))
        form, signed = number_format(largest), bool((scores < 0).any())
        scale(sheet, tops[0], form(-largest) if signed else "0", form(largest), says, signed=signed)
        if isinstance(att.media, Image):
            for left, pixels in ((0.0, att.media.pixels), (side + 12, heat_map(att))):
                place = (left, left + side, tops[1] + high, tops[1])
                sheet.imshow(pixels, extent=place, interpolation="nearest", aspect="auto", zorder=0)
            sheet.set(xlim=(-PAD, _WIDTH - PAD), ylim=(tops[1] + high + PAD, -PAD))
        else:
            _wave(sheet, att, att.media, tops[1], inner)
    return picture


def _wave(sheet: Axes, att: Attribution, sound: Sound, top: float, width: float) -> None:
    n, shown = len(sound.samples), frames(att)
    boxes = [box(frame.start / n * width, top, frame.end / n * width, top + _WAVE) for frame in shown]
    shaded(sheet, boxes, [frame.level for frame in shown])
    ends = envelope(sound)
    middle, step = top + _WAVE / 2, width / len(ends)
    lines = [
        (((k + 0.5) * step, middle - high * _WAVE / 2), ((k + 0.5) * step, middle - low * _WAVE / 2))
        for k, (low, high) in enumerate(ends.tolist())
    ]
    sheet.add_collection(LineCollection(lines, colors=[INK], linewidths=0.7))
    word(sheet, 0, top + _WAVE + 8, "0 s", size=8, ha="left")
    word(sheet, width, top + _WAVE + 8, f"{n / sound.rate:.2f} s", size=8, ha="right")
