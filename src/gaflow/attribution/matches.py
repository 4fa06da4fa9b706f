"""Which words of a text match which words of its pair, for the similarity of two embeddings.

The convention this file owns: the match of two words is **the exact sum of the matches of their tokens**. Special
tokens are in no word, so the matches of all words sum to the similarity less what special tokens add to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gaflow.attribution.words import TextUnit, words_of
from gaflow.errors import Argument, ArgumentError, GaflowError
from gaflow.extras import need

if TYPE_CHECKING:
    from pandas import DataFrame

    from gaflow.attribution.attribution import Attribution


@dataclass(frozen=True)
class WordMatches:
    """The words of both texts, and what each pair of them adds to the similarity."""

    words: tuple[TextUnit, ...]  # (n,) of the text
    pair_words: tuple[TextUnit, ...]  # (m,) of the pair
    scores: np.ndarray  # (n, m)


def check_matches(att: Attribution) -> None:
    """Refuse token matches that do not belong to the tokens of an attribution."""
    if att.token_matches is None:
        return
    rows = len(att.tokens) - att.token_matches.shape[-1]
    if att.text_pair is None or att.token_matches.ndim != 2 or len(att.token_matches) != rows:
        raise ArgumentError(
            Argument("token_matches"),
            f" must have a row for each token of the text and a column for each of the pair, {len(att.tokens)} in all, "
            f"not the shape {att.token_matches.shape}",
        )
    in_order = 1 not in att.segments[:rows] and 0 not in att.segments[rows:]
    if not in_order or not np.isfinite(att.token_matches).all():
        raise ArgumentError(Argument("token_matches"), " must be finite, for the text's tokens first, then the pair's")


def word_matches(att: Attribution) -> WordMatches:
    """The matches of words, (n, m)."""
    if att.token_matches is None:
        raise GaflowError(
            "there are no matches: only the similarity of two texts has them, and only if its embeddings are sums over "
            "tokens, as with mean pooling"
        )
    first = len(att.token_matches)
    words = []
    pair_words = []
    for word in words_of(att):
        (words if word.segment == 0 else pair_words).append(word)
    scores = np.zeros((len(words), len(pair_words)))
    for row, word in enumerate(words):
        for column, pair_word in enumerate(pair_words):
            columns = [token - first for token in pair_word.tokens]
            scores[row, column] = att.token_matches[np.ix_(word.tokens, columns)].sum()
    return WordMatches(tuple(words), tuple(pair_words), scores)


def matches_of(att: Attribution) -> DataFrame:
    """A DataFrame of all pairs of a word of the text and a word of the pair, the best match first.

    `score` is what the two add to the similarity together, below 0 if they make it smaller. `start` and `pair_start`
    count characters. The matrix of tokens is `token_matches`.

        >>> explainer(("a cat sat", "the kitten sat")).matches().head()
    """
    need("pandas", "data", "a DataFrame needs pandas")
    import pandas as pd

    matches = word_matches(att)
    rows = []
    for word, scores in zip(matches.words, matches.scores, strict=True):
        for pair_word, score in zip(matches.pair_words, scores.tolist(), strict=True):
            rows.append((word.text, pair_word.text, score, word.start, pair_word.start))
    table = pd.DataFrame(rows, columns=["word", "pair_word", "score", "start", "pair_start"])
    return table.sort_values("score", ascending=False, kind="stable", ignore_index=True)
