"""Offsets and words of any text by any tokenizer: in order, inside the text, and complete."""

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gaflow.errors import TextError
from gaflow.inputs.encoding import Encoding, encode
from gaflow.inputs.segmentation import sentence_spans, word_spans
from tests.support.models import CORPUS
from tests.support.tokenizer_kinds import KINDS

# Letters of scripts with and without spaces, marks, joiners, emoji, wide and invisible characters.
SCRIPTS = (
    "aZéß ﬁ İǅ 3½٣ жΩ אב عر हिं ไทยเ ກ ខ្មែ မြ 日本語カ゚ｶﾞ 한글 e\u0301\u0323 "
    "👩\u200d💻👍🏽🇩🇪❤\ufe0f \u200b\u202e\ufeff\u00ad\u2028\t\n .,!?'’\"()[]_-"
)
TEXTS = st.one_of(
    st.text(max_size=40),
    st.text(SCRIPTS, max_size=40),
    st.lists(st.sampled_from([*CORPUS, "xz", "[SEP]", "[UNK]", "<s>", "##s", "▁", "Ġ", " "]), max_size=4).map("".join),
)


@cache
def tokenizer(kind):
    return KINDS[kind].make()


def encoded(kind, text) -> Encoding:
    """The encoding of a text that the tokenizer can read."""
    try:
        (encoding,) = encode(tokenizer(kind), [text])
    except TextError:  # empty, unreadable, or all of it dropped
        assume(False)
        raise
    return encoding


def ordinary(encoding, segment=0):
    """Indices and spans of the tokens of a text."""
    indices = [k for k, token_segment in enumerate(encoding.segments) if token_segment == segment]
    return indices, [encoding.offsets[k] for k in indices]


@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXTS)
def test_offsets_are_in_order_and_inside_the_text(kind, text):
    encoding = encoded(kind, text)
    _, spans = ordinary(encoding)
    assert len(encoding.offsets) == len(encoding.tokens) == len(encoding.segments)
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    starts = [start for start, _ in spans]
    assert starts == sorted(starts)
    assert all(text[start:end] == text[start:end].strip() for start, end in spans)


@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXTS)
def test_every_token_is_in_one_word_and_in_one_sentence(kind, text):
    indices, spans = ordinary(encoded(kind, text))
    for groups in (word_spans(text, spans, indices), sentence_spans(text, spans, indices)):
        assert sorted(token for group in groups for token in group.tokens) == indices
        for before, after in pairwise(groups):
            assert before.end <= after.start
        assert all(0 <= group.start <= group.end <= len(text) for group in groups)


@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXTS)
def test_words_cover_what_their_tokens_cover(kind, text):
    indices, spans = ordinary(encoded(kind, text))
    span_of = dict(zip(indices, spans, strict=True))
    for word in word_spans(text, spans, indices):
        for token in word.tokens:
            start, end = span_of[token]
            assert start == end or (word.start < end and start < word.end)
        covered = {k for token in word.tokens for k in range(*span_of[token])}
        assert covered <= set(range(word.start, word.end))
