"""The units of a text that have scores: tokens, words and sentences.

The convention this file owns: **a unit's score is the exact sum of its tokens' scores**, rounded once. Every ordinary
token is in exactly one unit of a kind, and special tokens are in none. So the units of any kind add up to the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from gaflow.arguments import checked
from gaflow.errors import Argument, ArgumentError
from gaflow.inputs.segmentation import Span, SplitSentences, TokenGroup, sentence_spans, word_spans

if TYPE_CHECKING:
    from gaflow.attribution.attribution import Attribution

ALL_ZERO = "every score is 0"  # what readers are told, in warnings and on pages
Unit = Literal["token", "word", "sentence"]
FindSpans = Callable[[str, Sequence[Span], Sequence[int]], list[TokenGroup]]


@dataclass(frozen=True)
class TextUnit:
    """A piece of the original text (a word, one token, or a sentence) and its score.

    >>> [(word.text, word.score) for word in attribution.words()]
    """

    text: str  # as the user wrote it
    start: int  # in characters of the text, or of the pair if segment is 1
    end: int
    score: float
    tokens: tuple[int, ...]  # indices into Attribution.tokens
    segment: int = 0  # 0: text, 1: pair


def pieces_of(att: Attribution) -> list[TextUnit]:
    """The ordinary tokens, each as the piece of text it stands for (empty for a whitespace token)."""
    sources = (att.text, att.text_pair or "")
    pieces = []
    for k, segment in enumerate(att.segments):
        if segment < 0:
            continue
        start, end = att.offsets[k]
        text = sources[segment][start:end]
        if att.media is not None:
            text = att.tokens[k]
        score = float(att.scores[k])
        pieces.append(TextUnit(text, start, end, score, tokens=(k,), segment=segment))
    return pieces


def words_of(att: Attribution) -> list[TextUnit]:
    """The words of the text, then of the pair, in order: every ordinary token is in exactly one, special ones in none.

    The words of a picture or a sound are its patches or frames.
    """
    if att.media is not None:
        return pieces_of(att)
    return _units(att, word_spans)


@checked
def sentences_of(att: Attribution, split: SplitSentences | None = None) -> list[TextUnit]:
    """The sentences of the text, then of the pair, in order, as far as the model has read.

    Each ordinary token is in exactly one. `split` is a splitter of your own: a function that takes a text and returns
    its sentences in order, such as `nltk.sent_tokenize`.
    """
    if att.media is not None:
        return []
    return _units(att, partial(sentence_spans, split=split))


UNITS: dict[Unit, Callable[[Attribution], list[TextUnit]]] = {
    "token": pieces_of,
    "word": words_of,
    "sentence": sentences_of,
}


def unit_of(*, words: bool, sentences: bool) -> Unit:
    """The unit that two flags mean; tokens if neither is set."""
    if words and sentences:
        raise ArgumentError(
            Argument("words"), " and ", Argument("sentences"), " are both set: a text is shaded by one of them; choose"
        )
    if words:
        return "word"
    return "sentence" if sentences else "token"


def _units(att: Attribution, find_spans: FindSpans) -> list[TextUnit]:
    """The units of both texts, where `find_spans` says that they are."""
    units = []
    for segment, source in enumerate((att.text, att.text_pair)):
        indices = [k for k, token_segment in enumerate(att.segments) if token_segment == segment]
        if source is None or not indices:
            continue
        offsets = [att.offsets[k] for k in indices]
        for span in find_spans(_without_masks(att, source), offsets, indices):
            text = source[span.start : span.end]
            score = math.fsum(att.scores[k] for k in span.tokens)
            units.append(TextUnit(text, span.start, span.end, score, tokens=span.tokens, segment=segment))
    return units


def _without_masks(att: Attribution, source: str) -> str:
    """The source with blanks in place of special tokens written in it, so that no word takes in a part of them."""
    for token, (start, end), segment in zip(att.tokens, att.offsets, att.segments, strict=True):
        if segment < 0 and start < end and source[start:end] == token:
            source = source[:start] + " " * (end - start) + source[end:]
    return source
