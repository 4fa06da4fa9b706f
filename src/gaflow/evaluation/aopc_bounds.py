"""The best and the worst that any scores could reach on a text: what normalises Normalized AOPC (Edin et al. 2025).

    NAOPC = (AOPC - low) / (high - low)

AOPC depends on how sharply a model reacts to masking at all, so that it must not be compared across models; NAOPC says
where between the worst and the best order of a text's tokens the scores are.

An order is a chain of sets S_1, S_2, ... that grow by a token each, and AOPC of an order is the mean over levels k of
the probability lost by masking S_{m_k}. Texts of few tokens are solved exactly, by dynamic programming over all sets:

    V(S) = w(|S|) loss(S) + max over i in S of V(S - i),        w(s) = share of levels with m_k = s

(2^n sets instead of n! orders). Longer ones are searched by a beam: sets grow token by token, and those of largest
AOPC so far are kept, counting a set between two levels as if it were the next level's. A beam gives orders that exist,
so that its bounds are reached, but there may be better ones: NAOPC can then lie outside [0, 1].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gaflow.evaluation.masking import Answers, Masker, masked_count
from gaflow.progress import Report, silent, within

__all__ = ["Bounds"]


@dataclass(frozen=True)
class Bounds:
    """Settings of the search for a text's lowest and highest AOPC."""

    exact: int = 8  # texts of up to this many ordinary tokens are solved exactly
    beam: int = 5  # sets that are kept at each size, for longer texts
    longest: int = 64  # texts of more tokens are left out: they would take about beam * n^2 passes each

    def __post_init__(self) -> None:
        for name, least, most in (("exact", 0, 16), ("beam", 1, 10**6), ("longest", 1, 10**6)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise ValueError(f"{name} must be a whole number from {least} to {most}, not {value!r}")

    def __call__(
        self, masker: Masker, base: np.ndarray, target: np.ndarray, levels: Sequence[int], report: Report = silent
    ) -> np.ndarray:
        """Lowest and highest AOPC (b, 2) of every text; NaN where it is left out. `base` (b,) are log-probabilities."""
        sizes = np.array([len(p) for p in masker.places])
        found = np.full((len(masker), 2), np.nan)
        short = np.flatnonzero((sizes <= self.exact) & (sizes <= self.longest))
        if len(short):
            chosen = set(short.tolist())
            sets = [_subsets(n if k in chosen else 0, n) for k, n in enumerate(sizes)]
            losses = _losses(masker(sets, within(report, 0, 0.5)), base, target)
            for k in short:
                found[k] = _chains(losses[k], _weights(sizes[k], levels))
        long = np.flatnonzero((sizes > self.exact) & (sizes <= self.longest))
        if len(long):
            for k, ends in self._search(masker, base, target, levels, long, within(report, 0.5, 0.5)):
                found[k] = ends
        report(1.0)
        return found

    def _search(
        self,
        masker: Masker,
        base: np.ndarray,
        target: np.ndarray,
        levels: Sequence[int],
        texts: np.ndarray,
        report: Report,
    ) -> Iterator[tuple[int, tuple[float, float]]]:
        """Both ends for `texts`, all of them a token further at a time."""
        sizes = [len(p) for p in masker.places]
        weights = {k: _weights(sizes[k], levels) for k in texts}
        beams = {(k, sign): (np.zeros((1, sizes[k]), dtype=bool), np.zeros(1)) for k in texts for sign in (-1, 1)}
        last = max(len(w) - 1 for w in weights.values())
        for size in range(1, last + 1):
            wanted = [np.zeros((0, n), dtype=bool) for n in sizes]
            origins = {}
            for k in [k for k in texts if size < len(weights[k])]:
                grown = {sign: _grow(beams[k, sign], sign) for sign in (-1, 1)}
                wanted[k] = np.concatenate([grown[-1][0], grown[1][0]])
                origins[k] = grown
            losses = _losses(masker(wanted), base, target)
            for k, grown in origins.items():
                parts = np.split(losses[k], [len(grown[-1][0])])
                for sign, loss in zip((-1, 1), parts, strict=True):
                    sets, values = grown[sign]
                    beams[k, sign] = self._best(sets, values, loss, sign, weights[k], size)
            report(size / last)
        for k in texts:
            yield int(k), (float(beams[k, -1][1].min()), float(beams[k, 1][1].max()))

    def _best(
        self, sets: np.ndarray, values: np.ndarray, losses: np.ndarray, sign: int, weights: np.ndarray, size: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The sets to go on from, and their AOPC so far."""
        coming = next(w for w in weights[size:] if w > 0)
        order = np.argsort(-sign * (values + coming * losses), kind="stable")[: self.beam]
        return sets[order], (values + weights[size] * losses)[order]


def _weights(n: int, levels: Sequence[int]) -> np.ndarray:
    """Share of levels that mask 0, 1, ... tokens of n, up to the most that any level masks."""
    count = Counter(masked_count(int(n), k) for k in levels)
    return np.array([count[s] / len(levels) for s in range(max(count) + 1)])


def _losses(answers: Answers, base: np.ndarray, target: np.ndarray) -> list[np.ndarray]:
    return [np.exp(base[k]) - np.exp(answers[k][:, target[k]]) for k in range(len(base))]


def _subsets(n: int, width: int) -> np.ndarray:
    """All subsets of n tokens but the empty one (2^n - 1, n); none of `width` tokens if n is 0."""
    if n == 0:
        return np.zeros((0, width), dtype=bool)
    return ((np.arange(1, 1 << n)[:, None] >> np.arange(n)) & 1).astype(bool)


def _chains(losses: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Lowest and highest weighted sum of losses (2^n - 1,) along a chain of sets that grow by one."""
    whole = np.concatenate([[0.0], losses])
    count = len(whole)
    n = count.bit_length() - 1
    every = np.arange(count)
    size = ((every[:, None] >> np.arange(n)) & 1).sum(1)
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    low[0] = high[0] = 0.0
    for s in range(1, len(weights)):
        sets = every[size == s]
        for i in range(n):
            mine = sets[(sets >> i) & 1 == 1]
            low[mine] = np.minimum(low[mine], low[mine ^ (1 << i)])
            high[mine] = np.maximum(high[mine], high[mine ^ (1 << i)])
        low[sets] += weights[s] * whole[sets]
        high[sets] += weights[s] * whole[sets]
    final = size == len(weights) - 1
    return float(low[final].min()), float(high[final].max())


def _grow(beam: tuple[np.ndarray, np.ndarray], sign: int) -> tuple[np.ndarray, np.ndarray]:
    """Every set with one token more, once, with the best value among those that it grew from."""
    sets, values = beam
    rows, tokens = np.nonzero(~sets)
    order = np.argsort(-sign * values[rows], kind="stable")
    rows, tokens = rows[order], tokens[order]
    grown = sets[rows]
    grown[np.arange(len(rows)), tokens] = True
    different, first = np.unique(grown, axis=0, return_index=True)
    return different, values[rows][first]
