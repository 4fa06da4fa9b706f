import math
from itertools import pairwise

import numpy as np
import pytest

from gaflow.attribution.attribution import TextUnit
from gaflow.inputs.encoding import encode
from gaflow.view.shades import (
    LEVELS,
    Run,
    contrast,
    foreground,
    luminance,
    number_format,
    runs,
    shade,
    spelled,
    underline,
    visible,
)
from tests.support.attributions import make
from tests.support.models import TEXTS, byte_bpe, unigram, wordpiece

SCHEMES = ["light", "dark"]
# What is left of linear red, green and blue to people without one kind of cone (Machado, Oliveira, Fernandes 2009)
DICHROMATS = {
    "protan": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deutan": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritan": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def word(start, end, score, token):
    return TextUnit("", start, end, score, (token,))


@pytest.mark.parametrize("tokenizer", [wordpiece, byte_bpe, unigram])
@pytest.mark.parametrize("text", TEXTS)
def test_runs_cover_exactly_the_characters_of_tokens_and_sum_their_scores(tokenizer, text):
    t = len(encode(tokenizer(), [text])[0])
    att = make(text, tokenizer=tokenizer(), scores=np.random.default_rng(1).normal(size=t))
    found = runs(text, att.pieces())
    for before, after in pairwise(found):
        assert before.end <= after.start
    for run in found:
        assert run.start < run.end
        assert run.score == math.fsum(att.scores[list(run.tokens)])
    covered = {at for run in found for at in range(run.start, run.end)}
    wanted = {at for a, b in att.offsets for at in range(a, b)}
    assert wanted <= covered
    assert all(text[at] in "\u200d\ufe0f" or not text[at].isalnum() for at in covered - wanted)
    shown = {k for run in found for k in run.tokens}
    assert shown == {k for k, (a, b) in enumerate(att.offsets) if a < b}


def test_tokens_that_share_characters_add_up_where_they_meet():
    assert runs("abcdef", [word(0, 4, 1.0, 3), word(2, 6, 10.0, 4)]) == [
        Run(0, 2, 1.0, (3,)),
        Run(2, 4, 11.0, (3, 4)),
        Run(4, 6, 10.0, (4,)),
    ]


@pytest.mark.parametrize(
    "glyph", ["e\u0301", "👍🏽", "👩\u200d💻", "🇩🇪", "❤\ufe0f", "🏴\U000e0067\U000e0062\U000e007f"]
)
def test_what_is_drawn_as_one_is_coloured_as_one(glyph):
    pieces = [word(0, 1, 1.0, 0), *(word(k, k + 1, 2.0, k) for k in range(1, len(glyph) + 1))]
    assert runs(f"a{glyph}b", pieces) == [
        Run(0, 1, 1.0, (0,)),
        Run(1, 1 + len(glyph), 2.0 * len(glyph), tuple(range(1, len(glyph) + 1))),
    ]


def test_facts_are_spelled_for_readers():
    found = spelled({"convergence_delta": -0.000123456, "baseline_output": 2.0, "replacement": "[PAD]"})
    assert found == {"convergence delta": "-0.0001235", "baseline output": "2", "replacement": "[PAD]"}


def test_two_flags_are_two_runs():
    assert [(r.start, r.end) for r in runs("🇩🇪🇫🇷", [word(k, k + 1, 1.0, k) for k in range(4)])] == [(0, 2), (2, 4)]


def test_tokens_of_no_characters_and_texts_of_no_tokens_have_no_runs():
    assert runs("abc", [word(1, 1, 5.0, 0)]) == []
    assert runs("abc", []) == []
    assert runs("", []) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x00b\x1b[0m\x7f\x9f", "a\\x00b\\x1b[0m\\x7f\\x9f"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("\ud800 \uffff", "\\ud800 \\uffff"),
        ("a\r\nb\rc\nd\te", "a\nb\nc\nd\te"),
        ("שלום 👩\u200d💻 e\u0301", "שלום 👩\u200d💻 e\u0301"),
    ],
    ids=ascii,
)
def test_what_would_steer_a_screen_is_written_out_and_all_else_stays(text, shown):
    assert visible(text) == shown
    visible(text).encode()


@pytest.mark.parametrize(
    ("largest", "score", "shown"),
    [
        (0.5, 0.123456, "0.1235"),
        (12.0, -3.14159, "-3.14"),
        (0.0, 0.0, "0.000"),
        (99999.0, 12.6, "13"),
        (3e-9, 1.23456e-10, "1.235e-10"),
        (1e308, 5e-324, "4.941e-324"),
    ],
)
def test_scores_are_written_with_as_many_decimals_as_the_largest_needs(largest, score, shown):
    assert number_format(largest)(score) == shown


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
        seen = [np.clip(np.array(DICHROMATS[kind]) @ colour, 0, 1) for colour in linear]
        assert np.abs(seen[0] ** (1 / 2.4) - seen[1] ** (1 / 2.4)).max() > 0.12


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_line_that_marks_negative_scores_stands_out(scheme):
    for level in range(1, LEVELS + 1):
        assert contrast(underline(-level, scheme), shade(-level, scheme)) > 1.7
    assert contrast(underline(-LEVELS, scheme), shade(-LEVELS, scheme)) > 3
