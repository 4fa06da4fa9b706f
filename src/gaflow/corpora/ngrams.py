"""The words and n-grams of one stored text, and the share of its scores that each has.

The convention this file owns: the share of a word is its score divided by the sum of the absolute scores of all words
of its text. Shares of different texts, models and methods can be averaged; scores cannot. The share of an n-gram is the
sum of the shares of its words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gaflow.inputs.segmentation import Span, word_spans
from gaflow.jobs.stored import Stored

SNIPPET = 60  # characters of the text on either side


@dataclass(frozen=True)
class Occurrence:
    """An n-gram in a text."""

    name: str  # its words, joined by single spaces
    length: int  # words
    share: float
    segment: int  # 0: the text, 1: its pair
    span: Span  # characters of the text or of the pair


@dataclass(frozen=True)
class Snippet:
    """An n-gram in its text, cut to what is near it."""

    row: int | None
    before: str
    match: str
    after: str
    share: float

    def __str__(self) -> str:
        return f"{self.before}{self.match}{self.after}"


@dataclass(frozen=True)
class _Word:
    """A word and its score, later its share."""

    text: str
    score: float
    span: Span


def find_ngrams(stored: Stored, longest: int, fold_case: bool) -> list[Occurrence]:
    """All n-grams of up to `longest` words; none where all scores are 0. They do not cross from a text to its pair."""
    sources = [_words(stored, segment) for segment in (0, 1)]
    total = math.fsum(abs(word.score) for words in sources for word in words)
    if total == 0:
        return []
    occurrences = []
    for segment, words in enumerate(sources):
        names = [word.text.casefold() if fold_case else word.text for word in words]
        for length in range(1, min(longest, len(words)) + 1):
            for start in range(len(words) - length + 1):
                run = words[start : start + length]
                score = math.fsum(word.score for word in run)
                occurrence = Occurrence(
                    name=" ".join(names[start : start + length]),
                    length=length,
                    share=score / total,
                    segment=segment,
                    span=(run[0].span[0], run[-1].span[1]),
                )
                occurrences.append(occurrence)
    return occurrences


def _words(stored: Stored, segment: int) -> list[_Word]:
    """The words of a text or of its pair, with their scores."""
    source = stored.text if segment == 0 else stored.text_pair
    scores = stored.scores
    offsets = stored.offsets
    if source is None or scores is None or offsets is None:
        return []
    indices = []
    for k, (start, end) in enumerate(offsets):
        token_segment = (0 if start < end else -1) if stored.segments is None else stored.segments[k]
        if token_segment == segment:
            indices.append(k)
    if not indices:
        return []
    words = []
    for word in word_spans(source, [offsets[k] for k in indices], indices):
        score = math.fsum(scores[k] for k in word.tokens)
        words.append(_Word(source[word.start : word.end], score, (word.start, word.end)))
    return words


def cut_snippet(stored: Stored, occurrence: Occurrence) -> Snippet:
    """The occurrence with the text near it."""
    source = (stored.text if occurrence.segment == 0 else stored.text_pair) or ""
    start, end = occurrence.span
    before = source[max(0, start - SNIPPET) : start]
    after = source[end : end + SNIPPET]
    if start > SNIPPET:
        before = f"…{before}"
    if end + SNIPPET < len(source):
        after = f"{after}…"
    return Snippet(row=stored.row, before=before, match=source[start:end], after=after, share=occurrence.share)
