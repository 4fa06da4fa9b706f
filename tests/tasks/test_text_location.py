import numpy as np
import pytest
import torch

from gaflow.errors import TargetError
from gaflow.inputs.encoding import encode
from gaflow.tasks.text_location import TextLocation, find_tokens, parse_location
from tests.support.models import SENTENCE, byte_bpe, wordpiece


def encoding(text, pair=None, tokenizer=None):
    return encode(tokenizer or wordpiece(), [text if pair is None else (text, pair)])[0]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (5, TextLocation(token=5)),
        ("#5", TextLocation(token=5)),
        ((4, 9), TextLocation(span=(4, 9))),
        ("4:9", TextLocation(span=(4, 9))),
        (" dog ", TextLocation(piece="dog")),
        ("5", TextLocation(piece="5")),
        (np.int64(5), TextLocation(token=5)),
        (torch.tensor(5), TextLocation(token=5)),
        ((np.int32(4), 9), TextLocation(span=(4, 9))),
    ],
)
def test_places_are_read_as_meant(given, expected):
    assert parse_location(given) == expected


@pytest.mark.parametrize(
    "given", [1.5, np.float32(1), True, np.True_, torch.tensor(True), "", (1,), (1, 2, 3), ("a", 2), b"dog", None]
)
def test_what_is_no_location_is_a_type_error(given):
    with pytest.raises(TypeError, match="is no location"):
        parse_location(given)


@pytest.mark.parametrize("tokenizer", [wordpiece(), byte_bpe()])
def test_a_place_is_every_token_that_reaches_into_it(tokenizer):
    found = encoding("a zebra film", tokenizer=tokenizer)
    for given in ("zebra", (2, 7), "3:5"):
        (place,) = find_tokens(parse_location(given), found, 0, "text")
        assert {found.offsets[k] for k in place.tokens} <= {(a, b) for a in range(2, 8) for b in range(a, 8)}
        assert place.tokens == tuple(range(place.tokens[0], place.tokens[-1] + 1))
        if given != "3:5":
            assert place.span == (2, 7)
    (token,) = find_tokens(parse_location(1), found, 0, "text")
    assert token.tokens == (1,)


def test_a_piece_is_a_whole_word_if_it_ever_is_one_and_spelt_so_if_it_ever_is():
    found = encoding("is this Is it")
    assert [place.span for place in find_tokens(parse_location("is"), found, 0, "text")] == [(0, 2)]
    assert [place.span for place in find_tokens(parse_location("Is"), found, 0, "text")] == [(8, 10)]
    assert [place.span for place in find_tokens(parse_location("THIS"), found, 0, "text")] == [(3, 7)]
    assert [place.span for place in find_tokens(parse_location("hi"), found, 0, "text")] == [(3, 7)]  # inside one token
    assert len(find_tokens(parse_location("is"), encoding("is it is"), 0, "text")) == 2


def test_a_piece_with_marks_of_regular_expressions_is_taken_as_it_is():
    (place,) = find_tokens(parse_location("(ok)..."), encoding("fine (ok)..."), 0, "text")
    assert place.span == (5, 12)


def test_the_pair_has_places_of_its_own():
    found = encoding("this dog", "it is a dog")
    (place,) = find_tokens(parse_location("dog"), found, 1, "text")
    assert place.span == (8, 11)
    assert {found.segments[k] for k in place.tokens} == {1}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("cat", r"target 'cat' is not in 'although this dog is not cute, it is .* \(text\); give a piece of it"),
        ((40, 90), "characters 40 to 90 are no part of 'although.*which has 48"),
        ((9, 9), "characters 9 to 9 are no part"),
        ((8, 9), "no token at characters 8 to 9"),
        (99, "target: there is no token 99 in text; there are 14"),
        (0, r"token 0 of text is '\[CLS\]'"),
    ],
)
def test_a_place_that_is_not_there_is_named(given, message):
    with pytest.raises(TargetError, match=message):
        find_tokens(parse_location(given), encoding(SENTENCE), 0, "text")


def test_a_place_that_was_cut_off_says_so():
    (cut,) = encode(wordpiece(), [SENTENCE], limit=6, truncation=True)
    with pytest.raises(TargetError, match=r"no token at 'smart'.*truncated"):
        find_tokens(parse_location("smart"), cut, 0, "text")
