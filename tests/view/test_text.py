import math
from itertools import pairwise

import numpy as np
import pytest

from gaflow.attribution.attribution import TextUnit
from gaflow.inputs.encoding import encode
from gaflow.view.text import number_format, one_line, runs, shortened, visible
from tests.support.attributions import make
from tests.support.models import TEXTS, byte_bpe, unigram, wordpiece

SCOTLAND = "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"


def word(start, end, score, token):
    return TextUnit("", start, end, score, (token,))


@pytest.mark.parametrize("tokenizer", [wordpiece, byte_bpe, unigram])
@pytest.mark.parametrize("text", TEXTS)
def test_runs_cover_exactly_the_characters_of_tokens_and_sum_their_scores(tokenizer, text):
    t = len(encode(tokenizer(), [text])[0])
    att = make(text, tokenizer=tokenizer(), scores=np.random.default_rng(1).normal(size=t))
    text_runs = runs(text, att.pieces())
    for before, after in pairwise(text_runs):
        assert before.end <= after.start
    for run in text_runs:
        assert run.start < run.end
        assert run.score == math.fsum(att.scores[list(run.tokens)])
    covered = {at for run in text_runs for at in range(run.start, run.end)}
    token_characters = {at for a, b in att.offsets for at in range(a, b)}
    assert token_characters <= covered
    assert all(text[at] in "\u200d\ufe0f" or not text[at].isalnum() for at in covered - token_characters)
    run_tokens = {k for run in text_runs for k in run.tokens}
    assert run_tokens == {k for k, (a, b) in enumerate(att.offsets) if a < b}


def test_tokens_that_share_characters_add_up_where_they_meet():
    assert runs("abcdef", [word(0, 4, 1.0, 3), word(2, 6, 10.0, 4)]) == [
        TextUnit("ab", 0, 2, 1.0, (3,)),
        TextUnit("cd", 2, 4, 11.0, (3, 4)),
        TextUnit("ef", 4, 6, 10.0, (4,)),
    ]


@pytest.mark.parametrize(
    "glyph", ["e\u0301", "👍🏽", "👩\u200d💻", "🇩🇪", "❤\ufe0f", "🏴\U000e0067\U000e0062\U000e007f"]
)
def test_what_is_drawn_as_one_is_coloured_as_one(glyph):
    pieces = [word(0, 1, 1.0, 0), *(word(k, k + 1, 2.0, k) for k in range(1, len(glyph) + 1))]
    assert runs(f"a{glyph}b", pieces) == [
        TextUnit("a", 0, 1, 1.0, (0,)),
        TextUnit(glyph, 1, 1 + len(glyph), 2.0 * len(glyph), tuple(range(1, len(glyph) + 1))),
    ]


def test_two_flags_are_two_runs():
    assert [(r.start, r.end) for r in runs("🇩🇪🇫🇷", [word(k, k + 1, 1.0, k) for k in range(4)])] == [(0, 2), (2, 4)]


def test_tokens_of_no_characters_and_texts_of_no_tokens_have_no_runs():
    assert runs("abc", [word(1, 1, 5.0, 0)]) == []
    assert runs("abc", []) == []
    assert runs("", []) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\x00b\x1b[0m\x7f\x9f", "a\\x00b\\x1b[0m\\x7f\\x9f"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("a\u200e\u200f\u061cb", "a\\u200e\\u200f\\u061cb"),
        ("a\U000e0041\U000e007f", "a\\U000e0041\\U000e007f"),
        ("🏴\U000e0041", "🏴\\U000e0041"),
        (SCOTLAND, SCOTLAND),
        ("❤\ufe0f 🏳\ufe0f\u200d🌈 👨\u200d👩\u200d👧 مرحبا", "❤\ufe0f 🏳\ufe0f\u200d🌈 👨\u200d👩\u200d👧 مرحبا"),
        ("\ud800 \uffff", "\\ud800 \\uffff"),
        ("a\r\nb\rc\nd\te", "a\nb\nc\nd\te"),
        ("שלום 👩\u200d💻 e\u0301", "שלום 👩\u200d💻 e\u0301"),
    ],
    ids=ascii,
)
def test_what_would_steer_a_screen_is_written_out_and_all_else_stays(text, expected):
    assert visible(text) == expected
    visible(text).encode()


@pytest.mark.parametrize(
    ("largest", "score", "expected"),
    [
        (0.5, 0.123456, "0.1235"),
        (12.0, -3.14159, "-3.14"),
        (0.0, 0.0, "0.000"),
        (99999.0, 12.6, "13"),
        (3e-9, 1.23456e-10, "1.235e-10"),
        (1e308, 5e-324, "4.941e-324"),
    ],
)
def test_scores_are_written_with_as_many_decimals_as_the_largest_needs(largest, score, expected):
    assert number_format(largest)(score) == expected


@pytest.mark.parametrize(
    ("token", "expected"), [("\ufeff", "\\ufeff"), ("\u200b\u2060", "\\u200b\\u2060"), ("a\u200bb", "a\u200bb")]
)
def test_a_token_that_cannot_be_seen_is_written_out(token, expected):
    assert shortened(token) == expected


def test_long_words_are_shortened_for_tables():
    assert shortened("a\n b") == "a b"
    assert shortened("x" * 60) == "x" * 60
    assert shortened("x" * 61) == "x" * 59 + "…"


@pytest.mark.parametrize("glyph", [SCOTLAND, "👩\u200d💻", "e\u0301"])
def test_what_is_drawn_as_one_is_not_cut(glyph):
    assert shortened("x" * 58 + glyph + "yy") == "x" * 58 + "…"
    assert shortened(glyph * 60).removesuffix("…").replace(glyph, "") == ""


def test_one_line_is_one_line_of_bearable_length():
    assert one_line("a\nb\x1b[0m\t c") == "a b\\x1b[0m c"
    assert len(one_line("x" * 10**6)) == 1000
