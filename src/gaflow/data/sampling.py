"""The sample of the paper (appendix F.1): as many texts shorter as longer than the most frequent length.

Length is counted in characters, as the paper's Table 6 does. Of a data set with no more texts than are asked for,
all are taken. Every text draws a key, uniform and seeded, in the order of the rows; each side gives its `n/2`
smallest keys. Where a side has fewer than that, the smallest keys of all other texts (the most frequent length
among them) make up for it.

The convention this file owns: a sample depends on the texts and the seed alone, and drawing it holds `O(n)` row
numbers, however many rows there are.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gaflow.data.rows import Row, Survey

__all__ = ["Sample", "draw_sample"]


@dataclass(frozen=True)
class Sample:
    """Which rows were drawn, and from which side of the mode."""

    rows: frozenset[int]  # row numbers
    mode: int  # the most frequent length in characters, the smallest of several
    shorter: int  # texts drawn that are shorter than the mode
    longer: int
    equal: int


def draw_sample(rows: Iterable[Row], found: Survey, size: int, seed: int) -> Sample:
    """A sample of `size` texts from a second pass over the rows that `found` is the survey of."""
    mode = min(found.lengths, key=lambda length: (-found.lengths[length], length))
    generator = np.random.default_rng(seed)
    best: dict[int, list[tuple[float, int]]] = {-1: [], 0: [], 1: []}  # the smallest keys, negated, as heaps
    for row in rows:
        if row.skipped:
            continue
        side = (len(row.text) > mode) - (len(row.text) < mode)
        entry = (-generator.random(), row.number)
        if len(best[side]) < size:
            heapq.heappush(best[side], entry)
        else:
            heapq.heappushpop(best[side], entry)
    ranked = {side: sorted(entries, reverse=True) for side, entries in best.items()}
    half = {-1: size // 2, 0: 0, 1: size - size // 2}
    if found.texts <= size:
        half = dict.fromkeys(half, size)
    chosen = {side: entries[: half[side]] for side, entries in ranked.items()}
    missing = min(size, found.texts) - sum(map(len, chosen.values()))
    rest = sorted(((entry, side) for side in ranked for entry in ranked[side][half[side] :]), reverse=True)
    for entry, side in rest[:missing]:
        chosen[side].append(entry)
    numbers = frozenset(number for entries in chosen.values() for _, number in entries)
    return Sample(numbers, mode, len(chosen[-1]), len(chosen[1]), len(chosen[0]))
