"""What is masked together: tokens one by one, or all tokens of a word.

A word that is masked in part is something that no model has read: masking whole words keeps texts nearer to those that
people write. Words are those of `Attribution.words()`, and the score of a word is the sum of its tokens' scores.

The convention this file owns: units are numbered in the order of their first tokens, and a word of which one token must
stay is never masked.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import numpy as np

from gaflow.inputs.encoding import Encoding
from gaflow.inputs.segmentation import word_spans

MaskingUnit = Literal["token", "word"]
UNITS: tuple[MaskingUnit, ...] = ("token", "word")


def find_units(
    encoding: Encoding, unit: MaskingUnit, never_masked: Collection[int] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Positions (n,) of the tokens of a text that may be masked, and the unit (n,) of each."""
    groups = _tokens(encoding) if unit == "token" else _words(encoding)
    unit_of_token: dict[int, int] = {}
    for number, group in enumerate(sorted(group for group in groups if not set(group) & set(never_masked))):
        for position in group:
            unit_of_token[position] = number
    positions = np.array(sorted(unit_of_token), dtype=np.int64)
    units = np.array([unit_of_token[position] for position in positions.tolist()], dtype=np.int64)
    return positions, units


def sum_by_unit(scores: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Scores (u,) of units from those of their tokens (n,)."""
    count = int(units.max()) + 1 if len(units) else 0
    return np.bincount(units, weights=scores, minlength=count)


def first_of_unit(scores: np.ndarray, units: np.ndarray) -> np.ndarray:
    """The score (u,) of the first token of each unit: random numbers stay as random, however long the words are."""
    _, first = np.unique(units, return_index=True)
    return scores[first]


def _tokens(encoding: Encoding) -> list[tuple[int, ...]]:
    return [(position,) for position, segment in enumerate(encoding.segments) if segment >= 0]


def _words(encoding: Encoding) -> list[tuple[int, ...]]:
    words = []
    for segment in sorted(set(encoding.segments) - {-1}):
        positions = [position for position, token_segment in enumerate(encoding.segments) if token_segment == segment]
        offsets = [encoding.offsets[position] for position in positions]
        for group in word_spans(encoding.source(segment), offsets, positions):
            words.append(group.tokens)
    return words
