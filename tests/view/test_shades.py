from itertools import pairwise

import numpy as np
import pytest

from gaflow.view.shades import LEVELS, contrast, foreground, level_of, luminance, shade, underline

SCHEMES = ["light", "dark"]
# What is left of linear red, green and blue to people without one kind of cone (Machado, Oliveira, Fernandes 2009)
DICHROMATS = {
    "protan": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deutan": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritan": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("sign", [1, -1])
def test_shades_work_in_black_and_white(scheme, sign):
    steps = [luminance(shade(sign * k, scheme)) for k in range(LEVELS + 1)]
    for before, after in pairwise(steps):
        assert after < before if scheme == "light" else after > before
    high, low = max(steps), min(steps)
    assert (high + 0.05) / (low + 0.05) > 3  # WCAG's bound for graphics


@pytest.mark.parametrize("scheme", SCHEMES)
def test_letters_are_readable_on_every_shade(scheme):
    for level in range(-LEVELS, LEVELS + 1):
        back = shade(level, scheme)
        assert contrast(foreground(back), back) >= 4.5
        assert foreground(back) == foreground(shade(0, scheme)), "letters that change colour are hard to read"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_both_signs_are_equally_strong(scheme):
    for level in range(LEVELS + 1):
        assert contrast(shade(level, scheme), shade(-level, scheme)) < 1.1


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", DICHROMATS)
def test_the_colour_blind_tell_the_signs_apart(scheme, kind):
    for level in range(LEVELS // 2, LEVELS + 1):
        linear = [((np.array(shade(s * level, scheme)) / 255 + 0.055) / 1.055) ** 2.4 for s in (1, -1)]
        perceived = [np.clip(np.array(DICHROMATS[kind]) @ colour, 0, 1) for colour in linear]
        assert np.abs(perceived[0] ** (1 / 2.4) - perceived[1] ** (1 / 2.4)).max() > 0.12


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_line_that_marks_negative_scores_stands_out(scheme):
    for level in range(1, LEVELS + 1):
        assert contrast(underline(-level, scheme), shade(-level, scheme)) > 1.7
    assert contrast(underline(-LEVELS, scheme), shade(-LEVELS, scheme)) > 3


def test_levels_grow_with_the_score_and_end_with_the_largest():
    levels = [level_of(score, 2.0) for score in np.linspace(-3, 3, 100)]
    assert all(a <= b for a, b in pairwise(levels))
    assert levels[0] == -LEVELS
    assert levels[-1] == LEVELS
    assert level_of(0.0, 0.0) == 0
    assert level_of(-1e-300, 0.0) == -LEVELS
