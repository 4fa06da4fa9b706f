"""The lowest and the highest AOPC that any scores could reach on a text, for Normalized AOPC (Edin et al. 2025).

    NAOPC = (AOPC - low) / (high - low)

AOPC depends on how sharply a model reacts to masking at all, so it must not be compared across models. NAOPC locates
the scores between the worst and the best order of a text's tokens.

An order is a chain of sets S_1, S_2, ... that grow by a token each, and AOPC of an order is the mean over levels k of
the probability lost by masking S_{m_k}. Texts of few tokens are solved exactly, by dynamic programming over all sets:

    V(S) = w(|S|) loss(S) + max over i in S of V(S - i),        w(s) = share of levels with m_k = s

(2^n sets instead of n! orders). Longer ones are searched by a beam: sets grow token by token, and those of the largest
AOPC so far stay in the beam, where a set between two levels counts as if it were the next level's. A beam finds orders
that exist, so its bounds are reached, but there may be better ones: NAOPC can then lie outside [0, 1].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gaflow.arguments import whole_number
from gaflow.evaluation.masking import Masker, masked_count
from gaflow.progress import Report, silent, within

__all__ = ["Bounds"]


@dataclass(frozen=True)
class Bounds:
    """Settings of the search for a text's lowest and highest AOPC."""

    exact: int = 8  # texts of up to this many ordinary tokens are solved exactly
    beam: int = 5  # sets in the beam at each size, for longer texts
    longest: int = 64  # longer texts are left out: they would take about beam * n^2 passes each

    def __post_init__(self) -> None:
        whole_number("exact", self.exact, 0, 16)
        whole_number("beam", self.beam, 1, 10**6)
        whole_number("longest", self.longest, 1, 10**6)

    def __call__(
        self, masker: Masker, base: np.ndarray, targets: np.ndarray, levels: Sequence[int], report: Report = silent
    ) -> np.ndarray:
        """Lowest and highest AOPC (b, 2) of every text; NaN where it is left out.

        `base` (b,) are the log-probabilities of the `targets` (b,) with nothing masked.
        """
        sizes = np.array([len(ordinary) for ordinary in masker.positions])
        texts = _Texts(masker, base, targets, [_level_weights(int(n), levels) for n in sizes])
        short = (sizes <= self.exact) & (sizes <= self.longest)
        long = (sizes > self.exact) & (sizes <= self.longest)
        bounds = np.full((len(masker), 2), np.nan)
        if short.any():
            bounds[short] = _solve_exactly(texts, np.flatnonzero(short), within(report, 0, 0.5))
        if long.any():
            bounds[long] = self._search(texts, np.flatnonzero(long), within(report, 0.5, 0.5))
        report(1.0)
        return bounds

    def _search(self, texts: _Texts, indices: np.ndarray, report: Report) -> list[tuple[float, float]]:
        """Lowest and highest AOPC of the texts `indices`, all of which grow by a token at a time."""
        searches = [_Search.start(k, texts.size(k), texts.weights[k]) for k in indices.tolist()]
        last_size = max(search.last_size for search in searches)
        for size in range(1, last_size + 1):
            growing = [search for search in searches if size <= search.last_size]
            masks = texts.no_masks()
            for search in growing:
                masks[search.text] = search.grow()
            losses = texts.losses(masks)
            for search in growing:
                search.select(self.beam, losses[search.text], size)
            report(size / last_size)
        return [search.ends for search in searches]


@dataclass(frozen=True)
class _Texts:
    """The texts to bound, and how their losses are weighed."""

    masker: Masker
    base: np.ndarray  # (b,)
    targets: np.ndarray  # (b,)
    weights: list[np.ndarray]  # per text: share of levels that mask 0, 1, ... tokens

    def size(self, text: int) -> int:
        """Ordinary tokens of a text."""
        return len(self.masker.positions[text])

    def no_masks(self) -> list[np.ndarray]:
        """For every text a list of no masks, (0, n)."""
        return [np.zeros((0, len(ordinary)), dtype=bool) for ordinary in self.masker.positions]

    def losses(self, masks: Sequence[np.ndarray], report: Report = silent) -> list[np.ndarray]:
        """Loss of probability (r,) by each of the masks (r, n) of every text."""
        outputs = self.masker(masks, report)
        losses = []
        for k, target in enumerate(self.targets):
            losses.append(np.exp(self.base[k]) - np.exp(outputs[k][:, target]))
        return losses


@dataclass(frozen=True)
class _Beam:
    """Sets of one text's tokens, and their AOPC so far."""

    sets: np.ndarray  # (s, n) bool
    values: np.ndarray  # (s,)
    sign: int  # 1: towards the highest AOPC, -1: towards the lowest

    @classmethod
    def start(cls, n: int, sign: int) -> _Beam:
        """The empty set."""
        return cls(np.zeros((1, n), dtype=bool), np.zeros(1), sign)

    def grow(self) -> _Beam:
        """Every set with one token more, once, with the best value among the sets that it grew from."""
        rows, tokens = np.nonzero(~self.sets)
        best_first = np.argsort(-self.sign * self.values[rows], kind="stable")
        rows = rows[best_first]
        grown = self.sets[rows]
        grown[np.arange(len(rows)), tokens[best_first]] = True
        unique, first = np.unique(grown, axis=0, return_index=True)
        return _Beam(unique, self.values[rows][first], self.sign)

    def select(self, width: int, losses: np.ndarray, weights: np.ndarray, size: int) -> _Beam:
        """The best sets of `size` tokens, with their `losses` (s,) added to the values."""
        next_weight = next(weight for weight in weights[size:] if weight > 0)
        outlook = self.values + next_weight * losses
        best = np.argsort(-self.sign * outlook, kind="stable")[:width]
        values = self.values + weights[size] * losses
        return _Beam(self.sets[best], values[best], self.sign)


@dataclass
class _Search:
    """The search for the lowest and the highest AOPC of one text."""

    text: int
    weights: np.ndarray  # share of levels that mask 0, 1, ... tokens
    lowest: _Beam
    highest: _Beam

    @classmethod
    def start(cls, text: int, n: int, weights: np.ndarray) -> _Search:
        """The search from the empty set of a text's n tokens."""
        return cls(text, weights, lowest=_Beam.start(n, -1), highest=_Beam.start(n, 1))

    @property
    def last_size(self) -> int:
        """The most tokens that any level masks."""
        return len(self.weights) - 1

    @property
    def ends(self) -> tuple[float, float]:
        """Lowest and highest AOPC."""
        return float(self.lowest.values.min()), float(self.highest.values.max())

    def grow(self) -> np.ndarray:
        """Add a token to all sets; returns the sets of both beams, (s, n)."""
        self.lowest = self.lowest.grow()
        self.highest = self.highest.grow()
        return np.concatenate([self.lowest.sets, self.highest.sets])

    def select(self, width: int, losses: np.ndarray, size: int) -> None:
        """Reduce both beams to their best sets, by the losses (s,) of the sets that `grow` returned."""
        low_losses, high_losses = np.split(losses, [len(self.lowest.sets)])
        self.lowest = self.lowest.select(width, low_losses, self.weights, size)
        self.highest = self.highest.select(width, high_losses, self.weights, size)


def _level_weights(n: int, levels: Sequence[int]) -> np.ndarray:
    """Share of levels that mask 0, 1, ... tokens of n, up to the most that any level masks."""
    count = Counter(masked_count(n, level) for level in levels)
    return np.array([count[size] / len(levels) for size in range(max(count) + 1)])


def _solve_exactly(texts: _Texts, indices: np.ndarray, report: Report) -> list[tuple[float, float]]:
    """Lowest and highest AOPC of the texts `indices`, from the losses of all sets of their tokens."""
    masks = texts.no_masks()
    for k in indices:
        masks[k] = _all_subsets(texts.size(k))
    losses = texts.losses(masks, report)
    return [_extreme_chains(losses[k], texts.weights[k]) for k in indices]


def _all_subsets(n: int) -> np.ndarray:
    """All subsets of n tokens except the empty one, (2^n - 1, n)."""
    return ((np.arange(1, 1 << n)[:, None] >> np.arange(n)) & 1).astype(bool)


def _extreme_chains(losses: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Lowest and highest weighted sum of losses (2^n - 1,) along a chain of sets that grow by one token."""
    losses = np.concatenate([[0.0], losses])  # of the empty set too, so that set number s is at s
    n = len(losses).bit_length() - 1
    numbers = np.arange(len(losses))
    sizes = ((numbers[:, None] >> np.arange(n)) & 1).sum(1)
    low = np.full(len(losses), np.inf)
    high = np.full(len(losses), -np.inf)
    low[0] = 0.0
    high[0] = 0.0
    for size in range(1, len(weights)):
        sets = numbers[sizes == size]
        for token in range(n):
            with_token = sets[(sets >> token) & 1 == 1]
            without_token = with_token ^ (1 << token)
            low[with_token] = np.minimum(low[with_token], low[without_token])
            high[with_token] = np.maximum(high[with_token], high[without_token])
        low[sets] += weights[size] * losses[sets]
        high[sets] += weights[size] * losses[sets]
    largest = sizes == len(weights) - 1
    return float(low[largest].min()), float(high[largest].max())
