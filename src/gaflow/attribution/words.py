"""The units of a text that scores are given for: tokens, words, sentences.

The convention this file owns: **a unit's score is the exact sum of its tokens' scores**, rounded once, and every
ordinary token is in exactly one unit of a kind, special tokens in none. So the units of any kind add up to the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gaflow.inputs.segmentation import Span, TokenGroup, sentence_spans, word_spans

if TYPE_CHECKING:
    from gaflow.attribution.attribution import Attribution

__all__ = ["UNITS", "TextUnit", "Unit", "pieces_of", "sentences_of", "unit_of", "words_of"]

Unit = Literal["token", "word", "sentence"]
Divide = Callable[[str, Sequence[Span], Sequence[int]], list[TokenGroup]]


@dataclass(frozen=True)
class TextUnit:
    """A piece of the original text (a word, one token, or a sentence) and its score."""

    text: str  # as the user wrote it
    start: int  # in characters of the text, or of the pair if segment is 1
    end: int
    score: float
    tokens: tuple[int, ...]  # indices into Attribution.tokens
    segment: int = 0  # 0: text, 1: pair


def pieces_of(att: Attribution) -> list[TextUnit]:
    """The ordinary tokens, each as the piece of text it stands for (empty for a whitespace token)."""
    found = []
    for k, (segment, (start, end)) in enumerate(zip(att.segments, att.offsets, strict=True)):
        if segment >= 0:
            source = att.text if segment == 0 else att.text_pair or ""
            text = source[start:end] if att.media is None else att.tokens[k]
            found.append(TextUnit(text, start, end, float(att.scores[k]), (k,), segment))
    return found


def words_of(att: Attribution) -> list[TextUnit]:
    """The words of the text, then of the pair, in order; of a picture or a sound, the patches or frames."""
    if att.media is not None:
        return pieces_of(att)
    return _divided(att, word_spans)


def sentences_of(att: Attribution) -> list[TextUnit]:
    """The sentences of the text, then of the pair, in order; those that the model has not read are left out."""
    if att.media is not None:
        return []
    return _divided(att, sentence_spans)


UNITS: dict[Unit, Callable[[Attribution], list[TextUnit]]] = {
    "token": pieces_of,
    "word": words_of,
    "sentence": sentences_of,
}


def unit_of(*, words: bool, sentences: bool) -> Unit:
    """The unit that two flags ask for; tokens if neither is set."""
    if words and sentences:
        raise ValueError("words and sentences are both asked for, but a text is shaded by one of them: choose")
    return "word" if words else "sentence" if sentences else "token"


def _without_masks(att: Attribution, source: str) -> str:
    """The source with blanks in place of special tokens that stand in it, so that no word takes in a part of them."""
    for token, (start, end), segment in zip(att.tokens, att.offsets, att.segments, strict=True):
        if segment < 0 and start < end and source[start:end] == token:
            source = source[:start] + " " * (end - start) + source[end:]
    return source


def _divided(att: Attribution, divide: Divide) -> list[TextUnit]:
    found = []
    for segment, source in enumerate((att.text, att.text_pair)):
        indices = [k for k, s in enumerate(att.segments) if s == segment]
        if source is None or not indices:
            continue
        for span in divide(_without_masks(att, source), [att.offsets[k] for k in indices], indices):
            score = math.fsum(att.scores[k] for k in span.tokens)
            found.append(TextUnit(source[span.start : span.end], span.start, span.end, score, span.tokens, segment))
    return found
