import numpy as np
import pytest
import torch

from gaflow.errors import TargetError
from gaflow.inputs.encoding import encode
from gaflow.tasks.text_location import find_tokens, parse_location
from tests.support.models import SENTENCE, byte_bpe, wordpiece


def encoding(text, pair=None, tokenizer=None):
    return encode(tokenizer or wordpiece(), [text if pair is None else (text, pair)])[0]


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (5, 5),
        ("#5", 5),
        ((4, 9), (4, 9)),
        ("4:9", (4, 9)),
        (" dog ", "dog"),
        ("5", "5"),
        (np.int64(5), 5),
        (torch.tensor(5), 5),
        ((np.int32(4), 9), (4, 9)),
    ],
)
def test_locations_are_read_as_meant(location, expected):
    assert parse_location(location) == expected


@pytest.mark.parametrize(
    "location", [1.5, np.float32(1), True, np.True_, torch.tensor(True), "", (1,), (1, 2, 3), ("a", 2), b"dog", None]
)
def test_what_is_no_location_is_a_type_error(location):
    with pytest.raises(TypeError, match="is no location"):
        parse_location(location)


@pytest.mark.parametrize("tokenizer", [wordpiece(), byte_bpe()])
def test_a_location_is_every_token_that_reaches_into_it(tokenizer):
    encoded = encoding("a zebra film", tokenizer=tokenizer)
    for location in ("zebra", (2, 7), "3:5"):
        (span,) = find_tokens(parse_location(location), encoded, 0, "text")
        assert {encoded.offsets[k] for k in span.tokens} <= {(a, b) for a in range(2, 8) for b in range(a, 8)}
        assert span.tokens == tuple(range(span.tokens[0], span.tokens[-1] + 1))
        if location != "3:5":
            assert span.span == (2, 7)
    (token,) = find_tokens(parse_location(1), encoded, 0, "text")
    assert token.tokens == (1,)


def test_a_piece_is_a_whole_word_if_it_ever_is_one_and_spelt_so_if_it_ever_is():
    encoded = encoding("is this Is it")
    assert [span.span for span in find_tokens(parse_location("is"), encoded, 0, "text")] == [(0, 2)]
    assert [span.span for span in find_tokens(parse_location("Is"), encoded, 0, "text")] == [(8, 10)]
    assert [span.span for span in find_tokens(parse_location("THIS"), encoded, 0, "text")] == [(3, 7)]
    assert [span.span for span in find_tokens(parse_location("hi"), encoded, 0, "text")] == [(3, 7)]  # inside one token
    assert len(find_tokens(parse_location("is"), encoding("is it is"), 0, "text")) == 2


def test_a_piece_with_marks_of_regular_expressions_is_taken_as_it_is():
    (span,) = find_tokens(parse_location("(ok)..."), encoding("fine (ok)..."), 0, "text")
    assert span.span == (5, 12)


def test_the_pair_has_locations_of_its_own():
    encoded = encoding("this dog", "it is a dog")
    (span,) = find_tokens(parse_location("dog"), encoded, 1, "text")
    assert span.span == (8, 11)
    assert {encoded.segments[k] for k in span.tokens} == {1}


@pytest.mark.parametrize(
    ("location", "message"),
    [
        (
            "cat",
            r"target.*'cat'.*'although this dog is not .* \(text, 48 characters\)",
        ),
        ((40, 90), r"\(40, 90\).*'although.*48 characters"),
        ((9, 9), r"\(9, 9\) is not in"),
        ((8, 9), r"\(8, 9\) has no token in"),
        (99, "target.*token 99 .*text.*14"),
        (0, r"token 0 of text is '\[CLS\]'"),
    ],
)
def test_a_location_that_is_not_there_is_named(location, message):
    with pytest.raises(TargetError, match=message):
        find_tokens(parse_location(location), encoding(SENTENCE), 0, "text")


def test_a_location_that_was_cut_off_says_so():
    (cut,) = encode(wordpiece(), [SENTENCE], limit=6, truncation=True)
    with pytest.raises(TargetError, match=r"'smart'.*truncated"):
        find_tokens(parse_location("smart"), cut, 0, "text")
