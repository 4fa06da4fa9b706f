from dataclasses import replace

import numpy as np
import pytest

import gaflow
from gaflow.inputs.media import Sound
from gaflow.view.media import Frame, envelope, frames, heat_map
from gaflow.view.shades import LEVELS, shade
from tests.support.task_models import listener, picture, sound, viewer

PICTURE = gaflow.Explainer(*viewer())(picture())
SOUND = gaflow.Explainer(*listener())(sound(960))


def scored(att, scores):
    return replace(att, scores=np.array(scores, dtype=float), layers=None, flow=None, certificate=None)


def test_a_patch_is_shaded_by_its_score_and_by_nothing_else():
    att = scored(PICTURE, [99.0] + [0.0] * 5 + [2.0, 1.0, -2.0] + [0.0] * 8)
    grey = att.media.pixels.mean(-1)  # type: ignore[union-attr]
    pixels = heat_map(att).astype(float)
    assert pixels.shape == (32, 32, 3)
    darkest = np.array(shade(LEVELS)) * 0.8
    assert np.abs(pixels[8:16, 8:16] - (0.2 * grey[8:16, 8:16, None] + darkest)).max() <= 0.5
    assert np.abs(pixels[:8] - grey[:8, :, None]).max() <= 0.5
    assert not np.allclose(pixels[8:16, 16:24], pixels[8:16, 8:16], atol=20)


def test_the_sign_does_not_hang_on_the_colour_alone():
    att = scored(PICTURE, [0.0, -1.0, 1.0] + [0.0] * 14)
    black = (heat_map(att) == 0).all(-1)
    assert black[7, :8].sum() == 4
    assert not black[7, 8:16].any()


def test_without_any_score_a_picture_is_grey():
    att = scored(PICTURE, [0.0] * 17)
    pixels = heat_map(att)
    assert (pixels[..., 0] == pixels[..., 1]).all()


def test_frames_are_in_the_order_of_time_and_bands_are_summed():
    assert [(frame.start, frame.end) for frame in frames(SOUND)] == [(80 * k, 80 * k + 80) for k in range(12)]
    assert [frame.score for frame in frames(SOUND)] == SOUND.scores.tolist()
    double = replace(
        SOUND,
        scores=np.array([1.0, 2.0, 5.0]),
        tokens=("a", "b", "c"),
        offsets=((0, 9), (0, 9), (9, 12)),
        segments=(0, 0, 0),
        layers=None,
    )
    assert frames(double) == [Frame(0, 9, 3.0, round(3 / 5 * LEVELS)), Frame(9, 12, 5.0, LEVELS)]


def test_a_wave_is_drawn_by_its_lowest_and_highest_samples():
    wave = envelope(Sound(np.array([0.0, 0.5, -2.0, 1.0], dtype=np.float32), 4), 2)
    assert wave.tolist() == [[0.0, 0.25], [-1.0, 0.5]]
    assert envelope(Sound(np.zeros(3, dtype=np.float32), 4)).tolist() == [[0.0, 0.0]] * 3


@pytest.mark.parametrize("att", [PICTURE, SOUND])
def test_the_figure_is_drawn_and_saved(att, tmp_path):
    for name in ("a.svg", "a.png", "a.pdf"):
        att.plot().savefig(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    assert att.label in (tmp_path / "a.svg").read_text(encoding="utf-8")
