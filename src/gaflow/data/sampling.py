"""The sample of the paper (appendix F.1): as many texts shorter as longer than the most frequent length.

Length is counted in characters, as in the paper's Table 6. If the data set has no more texts than the size of the
sample, all are taken. Every text draws a uniform key from a seeded generator, in the order of the rows. Each side
contributes its `n/2` smallest keys. If a side has fewer, the smallest keys of all other texts, those of the most
frequent length included, fill the gap.

The convention this file owns: a sample depends on the texts and the seed alone, and drawing it holds `O(n)` row
numbers, however many rows there are.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gaflow.data.rows import Row, Survey

_SHORTER = -1  # the signs of a text's length minus the mode
_EQUAL = 0
_LONGER = 1

_Entry = tuple[float, int, int]  # minus the key, so that a heap drops the largest key first; row number; side


@dataclass(frozen=True)
class Sample:
    """The rows drawn, and how many of them from each side of the mode."""

    rows: frozenset[int]  # row numbers
    mode: int  # the most frequent length in characters, the smallest of several
    shorter: int  # texts drawn that are shorter than the mode
    longer: int
    equal: int


def draw_sample(rows: Iterable[Row], surveyed: Survey, size: int, seed: int) -> Sample:
    """A sample of `size` texts from a second pass over the surveyed rows."""
    mode = min(surveyed.lengths, key=lambda length: (-surveyed.lengths[length], length))
    candidates = _smallest_keys(rows, mode, size, seed)
    quota = {_SHORTER: size // 2, _EQUAL: 0, _LONGER: size - size // 2}
    if surveyed.texts <= size:
        quota = dict.fromkeys(quota, size)
    drawn: list[_Entry] = []
    spare: list[_Entry] = []
    for side, entries in candidates.items():
        drawn += entries[: quota[side]]
        spare += entries[quota[side] :]
    missing = min(size, surveyed.texts) - len(drawn)
    drawn += sorted(spare, reverse=True)[:missing]
    counts = Counter(side for _, _, side in drawn)
    return Sample(
        rows=frozenset(number for _, number, _ in drawn),
        mode=mode,
        shorter=counts[_SHORTER],
        longer=counts[_LONGER],
        equal=counts[_EQUAL],
    )


def _smallest_keys(rows: Iterable[Row], mode: int, size: int, seed: int) -> dict[int, list[_Entry]]:
    """The `size` smallest keys of each side, in ascending order."""
    generator = np.random.default_rng(seed)
    heaps: dict[int, list[_Entry]] = {_SHORTER: [], _EQUAL: [], _LONGER: []}
    for row in rows:
        if row.skipped:
            continue
        side = int(np.sign(len(row.text) - mode))
        heap = heaps[side]
        heapq.heappush(heap, (-generator.random(), row.number, side))
        if len(heap) > size:
            heapq.heappop(heap)
    return {side: sorted(heap, reverse=True) for side, heap in heaps.items()}
