"""Tokens, words and sentences of a text, and that they all add up to the same."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gaflow.attribution.words import UNITS, TextUnit, pieces_of, sentences_of, unit_of, words_of
from tests.support.attributions import make
from tests.support.models import TEXTS, byte_bpe, unigram, wordpiece

TEXT = "The dog barks. It is smart!"
PLACES = ((0, 0), (0, 3), (4, 7), (8, 11), (11, 13), (13, 14), (15, 17), (18, 20), (21, 26), (26, 27), (0, 0))
TOKENS = ("[CLS]", "the", "dog", "bar", "##ks", ".", "it", "is", "smart", "!", "[SEP]")
SCORES = np.array([100.0, 1, 2, 3, 4, 5, -6, 7, 8, 9, 1000])


def att_of(**changes):
    parts = {"text": TEXT, "tokens": TOKENS, "offsets": PLACES, "segments": (-1, *[0] * 9, -1), "scores": SCORES}
    return replace(make(flow=False), **{**parts, **changes})


def test_pieces_are_the_ordinary_tokens_as_they_were_written():
    pieces = pieces_of(att_of())
    assert [p.text for p in pieces] == ["The", "dog", "bar", "ks", ".", "It", "is", "smart", "!"]
    assert [p.score for p in pieces] == [1, 2, 3, 4, 5, -6, 7, 8, 9]
    assert pieces[3] == TextUnit("ks", 11, 13, 4.0, (4,), 0)


def test_words_add_up_their_tokens():
    words = words_of(att_of())
    assert [(w.text, w.score) for w in words] == [
        ("The", 1),
        ("dog", 2),
        ("barks", 7),
        (".", 5),
        ("It", -6),
        ("is", 7),
        ("smart", 8),
        ("!", 9),
    ]
    assert words[2] == TextUnit("barks", 8, 13, 7.0, (3, 4), 0)


def test_sentences_add_up_their_tokens_and_are_slices_of_the_text():
    assert sentences_of(att_of()) == [
        TextUnit("The dog barks.", 0, 14, 15.0, (1, 2, 3, 4, 5), 0),
        TextUnit("It is smart!", 15, 27, 18.0, (6, 7, 8, 9), 0),
    ]


def test_a_pair_comes_after_the_text_and_has_places_of_its_own():
    att = att_of(
        text="The dog.",
        text_pair="It is.",
        tokens=("[CLS]", "the", "dog", ".", "[SEP]", "it", "is", ".", "[SEP]"),
        offsets=((0, 0), (0, 3), (4, 7), (7, 8), (0, 0), (0, 2), (3, 5), (5, 6), (0, 0)),
        segments=(-1, 0, 0, 0, -1, 1, 1, 1, -1),
        scores=np.arange(9.0),
    )
    assert [(s.text, s.score, s.segment) for s in sentences_of(att)] == [("The dog.", 6, 0), ("It is.", 18, 1)]
    assert [(w.text, w.start, w.segment) for w in words_of(att)][3:] == [("It", 0, 1), ("is", 3, 1), (".", 5, 1)]
    assert [p.segment for p in pieces_of(att)] == [0, 0, 0, 1, 1, 1]


def test_a_sum_is_exact_and_rounded_once():
    scores = np.array([0, 1e16, 1.0, -1e16, 0.1, 0.2, 0, 0, 0, 0, 0])
    first = sentences_of(att_of(scores=scores))[0]
    assert first.score == math.fsum([1e16, 1.0, -1e16, 0.1, 0.2]) == pytest.approx(1.3, rel=1e-15)
    one_after_the_other = 0.0  # which `sum` of Python 3.12 and later is not
    for score in scores[1:6].tolist():
        one_after_the_other += score
    assert one_after_the_other != pytest.approx(1.3, rel=1e-6)  # the 1 is lost


@pytest.mark.parametrize("text", [text for text in TEXTS if text.strip()], ids=ascii)
@pytest.mark.parametrize("tokenizer", [wordpiece, byte_bpe, unigram])
def test_units_of_every_kind_share_out_the_same_tokens(text, tokenizer):
    att = make(text, tokenizer=tokenizer(), flow=False)
    att = replace(att, scores=np.random.default_rng(0).normal(size=len(att.tokens)))
    ordinary = [k for k, segment in enumerate(att.segments) if segment >= 0]
    for unit, divide in UNITS.items():
        units = divide(att)
        assert sorted(k for w in units for k in w.tokens) == ordinary, unit
        assert [w.text for w in units] == [text[w.start : w.end] for w in units]
        assert math.fsum(w.score for w in units) == pytest.approx(math.fsum(att.scores[ordinary]), abs=1e-12)
        assert [w.start for w in units] == sorted(w.start for w in units)


def test_a_text_of_special_tokens_alone_has_no_units():
    att = att_of(text="", tokens=("[CLS]", "[SEP]"), offsets=((0, 0),) * 2, segments=(-1, -1), scores=np.ones(2))
    assert [divide(att) for divide in UNITS.values()] == [[], [], []]


def test_flags_name_one_unit_and_tokens_are_the_default():
    assert unit_of(words=False, sentences=False) == "token"
    assert unit_of(words=True, sentences=False) == "word"
    assert unit_of(words=False, sentences=True) == "sentence"
    assert set(UNITS) == {"token", "word", "sentence"}
    with pytest.raises(ValueError, match=r"words.*sentences"):
        unit_of(words=True, sentences=True)
