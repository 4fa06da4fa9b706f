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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gaflow.arguments import whole_number
from gaflow.evaluation.masking import Masker, masked_count
from gaflow.evaluation.significance import all_subsets
from gaflow.progress import Report, silent, within


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
        sizes = masker.sizes
        weights = []
        for n in sizes:
            counts = [masked_count(n, level) for level in levels]
            weights.append(np.bincount(counts) / len(levels))
        texts = _Texts(masker, base, targets, weights)
        bounded = (sizes > 0) & (sizes <= self.longest)
        short = np.flatnonzero(bounded & (sizes <= self.exact))
        long = np.flatnonzero(bounded & (sizes > self.exact))
        bounds = np.full((len(masker), 2), np.nan)
        if len(short):
            bounds[short] = _solve_exactly(texts, short.tolist(), within(report, 0, 0.5))
        if len(long):
            bounds[long] = _search(texts, long.tolist(), self.beam, within(report, 0.5, 0.5))
        report(1.0)
        return bounds + 0.0  # never -0.0, which the search for the lowest gives


@dataclass(frozen=True)
class _Texts:
    """The texts to bound, and how their losses are weighed."""

    masker: Masker
    base: np.ndarray  # (b,)
    targets: np.ndarray  # (b,)
    weights: list[np.ndarray]  # per text: share of levels that mask 0, 1, ... tokens

    def losses(self, masks: Sequence[np.ndarray], report: Report = silent) -> list[np.ndarray]:
        """Loss of probability (r,) by each of the masks (r, n) of every text."""
        outputs = self.masker(masks, report)
        losses = []
        for text, target in enumerate(self.targets):
            masked = outputs[text][:, target]
            losses.append(np.exp(self.base[text]) - np.exp(masked))
        return losses


def _solve_exactly(texts: _Texts, indices: list[int], report: Report) -> list[list[float]]:
    """Lowest and highest AOPC of the texts `indices`, from the losses of all sets of their tokens."""
    masks = texts.masker.no_masks(0)
    for text in indices:
        masks[text] = all_subsets(texts.masker.sizes[text])[1:]
    losses = texts.losses(masks, report)
    extremes = []
    for text in indices:
        weights = texts.weights[text]
        lowest = -_highest_chain(-losses[text], weights)
        highest = _highest_chain(losses[text], weights)
        extremes.append([lowest, highest])
    return extremes


def _highest_chain(losses: np.ndarray, weights: np.ndarray) -> float:
    """Highest weighted sum of losses (2^n - 1,) along a chain of sets that grow by one token."""
    losses = np.append(0.0, losses)  # of the empty set too, so that set number s is at s
    subsets = all_subsets(len(losses).bit_length() - 1)
    sizes = subsets.sum(1)
    highest = np.zeros(len(losses))
    for size in range(1, len(weights)):
        sets = np.flatnonzero(sizes == size)
        _, tokens = np.nonzero(subsets[sets])
        without_token = sets[:, None] ^ (1 << tokens.reshape(-1, size))
        best_before = highest[without_token].max(1)
        highest[sets] = best_before + weights[size] * losses[sets]
    largest = sizes == len(weights) - 1
    return highest[largest].max()


def _search(texts: _Texts, indices: list[int], width: int, report: Report) -> np.ndarray:
    """Lowest and highest AOPC (i, 2) of the texts `indices`, all of which grow by a token at a time."""
    empty_sets = texts.masker.no_masks(1)
    beams = []
    for text in indices:
        for sign in (-1, 1):
            beams.append(_Beam(text, sign, weights=texts.weights[text], sets=empty_sets[text], values=np.zeros(1)))
    last_size = max(len(beam.weights) for beam in beams) - 1
    for size in range(1, last_size + 1):
        growing = [beam for beam in beams if size < len(beam.weights)]
        masks = texts.masker.no_masks(0)
        for beam in growing:
            beam.grow()
            masks[beam.text] = np.concatenate([masks[beam.text], beam.sets])
        losses = texts.losses(masks)
        for beam in growing:
            beam_losses, losses[beam.text] = np.split(losses[beam.text], [len(beam.sets)])
            beam.select(width, beam_losses, size)
        report(size / last_size)
    extremes = [beam.sign * (beam.sign * beam.values).max() for beam in beams]
    return np.reshape(extremes, (-1, 2))


@dataclass
class _Beam:
    """Sets of one text's tokens, and their AOPC so far."""

    text: int
    sign: int  # 1: towards the highest AOPC, -1: towards the lowest
    weights: np.ndarray  # share of levels that mask 0, 1, ... tokens
    sets: np.ndarray  # (s, n) bool
    values: np.ndarray  # (s,)

    def grow(self) -> None:
        """Replace the sets by all with one token more, with the best value among the sets that they grew from."""
        rows, tokens = np.nonzero(~self.sets)
        best_first = np.argsort(-self.sign * self.values[rows], kind="stable")
        rows = rows[best_first]
        grown = self.sets[rows]
        grown[np.arange(len(rows)), tokens[best_first]] = True
        self.sets, first = np.unique(grown, axis=0, return_index=True)
        self.values = self.values[rows[first]]

    def select(self, width: int, losses: np.ndarray, size: int) -> None:
        """Reduce the beam to the best sets of `size` tokens, with their `losses` (s,) added to the values."""
        next_weight = next(weight for weight in self.weights[size:] if weight > 0)
        outlook = self.values + next_weight * losses
        best = np.argsort(-self.sign * outlook, kind="stable")[:width]
        values = self.values + self.weights[size] * losses
        self.sets = self.sets[best]
        self.values = values[best]
