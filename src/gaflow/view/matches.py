"""The matches of words as a table: which words of a text and its pair make them similar.

The convention this file owns: all cells are shaded by the largest match, so that they can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from gaflow.attribution.attribution import Attribution
from gaflow.attribution.matches import word_matches
from gaflow.view.shades import level_of
from gaflow.view.text import number_format

MOST_WORDS = 60  # of each text; a larger table could not be read


@dataclass(frozen=True)
class MatchCell:
    """A word of the text and a word of the pair."""

    level: int  # its shade
    number: str
    is_best: bool  # of its row


@dataclass(frozen=True)
class MatchTable:
    """A row for each word of the text, a column for each word of the pair."""

    words: tuple[str, ...]  # (n,)
    pair_words: tuple[str, ...]  # (m,)
    cells: tuple[tuple[MatchCell, ...], ...]  # (n, m)
    signed: bool  # some match is below 0


def match_table(att: Attribution) -> MatchTable | None:
    """The table of an attribution; None if it has no matches, or too many words."""
    if att.token_matches is None:
        return None
    matches = word_matches(att)
    if max(matches.scores.shape) > MOST_WORDS:
        return None
    largest = float(abs(matches.scores).max(initial=0.0))
    form = number_format(largest)
    rows = []
    for scores in matches.scores.tolist():
        best = max(scores)
        rows.append(tuple(MatchCell(level_of(score, largest), form(score), score == best) for score in scores))
    return MatchTable(
        words=tuple(word.text for word in matches.words),
        pair_words=tuple(word.text for word in matches.pair_words),
        cells=tuple(rows),
        signed=bool((matches.scores < 0).any()),
    )
