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
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gaflow.data.rows import Row, Survey

__all__ = ["Sample", "draw_sample"]

_SHORTER = -1  # the signs of a text's length minus the mode
_EQUAL = 0
_LONGER = 1

_Entry = tuple[float, int]  # minus the key, so that a heap drops the largest key first, and the row number


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
    drawn: dict[int, list[_Entry]] = {}
    spare: list[tuple[_Entry, int]] = []
    for side, entries in candidates.items():
        drawn[side] = entries[: quota[side]]
        spare += [(entry, side) for entry in entries[quota[side] :]]
    missing = min(size, surveyed.texts) - sum(len(entries) for entries in drawn.values())
    spare.sort(reverse=True)
    for entry, side in spare[:missing]:
        drawn[side].append(entry)
    numbers = frozenset(number for entries in drawn.values() for _, number in entries)
    return Sample(
        rows=numbers,
        mode=mode,
        shorter=len(drawn[_SHORTER]),
        longer=len(drawn[_LONGER]),
        equal=len(drawn[_EQUAL]),
    )


def _smallest_keys(rows: Iterable[Row], mode: int, size: int, seed: int) -> dict[int, list[_Entry]]:
    """The `size` smallest keys of each side, in ascending order."""
    generator = np.random.default_rng(seed)
    heaps: dict[int, list[_Entry]] = {_SHORTER: [], _EQUAL: [], _LONGER: []}
    for row in rows:
        if row.skipped:
            continue
        heap = heaps[int(np.sign(len(row.text) - mode))]
        entry = (-generator.random(), row.number)
        if len(heap) < size:
            heapq.heappush(heap, entry)
        else:
            heapq.heappushpop(heap, entry)
    return {side: sorted(heap, reverse=True) for side, heap in heaps.items()}
