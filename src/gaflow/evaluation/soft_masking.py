"""Soft sufficiency and comprehensiveness (Zhao and Aletras 2023): words that are more or less there by their scores.

Masking by rank forgets by how much one token counts more than another. Here no token is masked; every element of a
word embedding is kept or zeroed by a coin of its own, whose chance is the score s_i of the token, scaled to [0, 1]:

    x'_i = x_i * e_i,    e_i ~ Bernoulli(q_i)  in every element;    q_i = s_i to keep what counts, 1 - s_i to remove it

With p the probability of the target, `kept` and `removed` the two perturbed texts and `zero` the text without words,

    Soft-NS = (S(kept) - S(zero)) / (1 - S(zero)),      S(x') = 1 - max(0, p(x) - p(x'))
    Soft-NC =       C(removed) / (1 - S(zero)),         C(x') = max(0, p(x) - p(x'))

both cut off at 0 and 1, and high for scores that are right. S and C are averaged over several draws first.

The conventions this file owns: **only the word embeddings of ordinary tokens change** (special tokens, positions and
token types stay, in the text without words too), and **a text's coins are the same for every method**, and whichever
texts are beside it, so that methods are compared on equal luck.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaflow.evaluation.masking import Masker
from gaflow.progress import Report, silent

__all__ = ["SCALES", "Scale", "Soft", "by_range", "by_rank"]

Scale = Callable[[np.ndarray], np.ndarray]  # scores (n,) -> probabilities (n,)


def by_range(scores: np.ndarray) -> np.ndarray:
    """The lowest score becomes 0, the highest 1, what is between them in proportion; 1/2 if all are equal."""
    low, high = scores.min(), scores.max()
    if low == high:
        return np.full(len(scores), 0.5)
    return np.clip((scores - low) / (high - low), 0.0, 1.0)


def by_rank(scores: np.ndarray) -> np.ndarray:
    """Evenly from 0 to 1 by rank, ties sharing theirs: half of every text is kept on average, by every method."""
    if len(scores) == 1:
        return np.full(1, 0.5)
    below = (scores[:, None] > scores).sum(1)
    equal = (scores[:, None] == scores).sum(1)
    return (below + (equal - 1) / 2) / (len(scores) - 1)


SCALES: dict[str, Scale] = {"range": by_range, "rank": by_rank}


@dataclass(frozen=True)
class Soft:
    """Settings of the soft measures."""

    draws: int = 5  # of all coins of a text, to average over
    scale: str | Scale = "range"  # scores -> probabilities: a name of SCALES, or a callable
    seed: int = 0  # of the coins

    def __post_init__(self) -> None:
        for name, least in (("draws", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number >= {least}, not {value!r}")
        if not callable(self.scale) and self.scale not in SCALES:
            raise ValueError(f"scale must be {', '.join(map(repr, SCALES))} or a callable, not {self.scale!r}")

    def describe(self) -> dict[str, Any]:
        """The settings, in JSON."""
        scale = self.scale if isinstance(self.scale, str) else getattr(self.scale, "__name__", repr(self.scale))
        return {"draws": self.draws, "scale": scale, "seed": self.seed}

    def __call__(
        self,
        masker: Masker,
        every: Mapping[str, Sequence[np.ndarray]],
        base: np.ndarray,
        target: np.ndarray,
        report: Report = silent,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Probability lost with words softly kept and softly removed (m, n, 2), and log-probability of no words (n,).

        `every` has the scores (n,) of each method and text, `base` (n,) the log-probabilities of whole texts.
        """
        chances = [[self._chances(scores, name) for scores in items] for name, items in every.items()]
        rows = np.array(list(self._rows(len(chances), len(masker))))  # (r, 4) text, draw, method, side
        logs = np.empty(len(rows))
        done = 0
        for group in masker.groups(masker.lengths[rows[:, 0]]):
            mine = rows[group]
            logs[group] = masker.with_words(mine[:, 0], self._change(masker, chances, mine))[
                np.arange(len(group)), target[mine[:, 0]]
            ]
            done += len(group)
            report(done / len(rows))
        whole = rows[:, 3] < 2
        # rows are in the order of texts, draws, methods, sides
        found = logs[whole].reshape(len(masker), self.draws, len(chances), 2)
        lost = np.maximum(0.0, np.exp(base)[:, None, None, None] - np.exp(found)).mean(1)
        return lost.swapaxes(0, 1), logs[~whole]

    def _rows(self, methods: int, texts: int) -> Iterator[tuple[int, int, int, int]]:
        """Everything to ask about; side 0 keeps, 1 removes, 2 zeroes all words."""
        for text in range(texts):
            for draw in range(self.draws):
                yield from ((text, draw, method, side) for method in range(methods) for side in (0, 1))
            yield text, 0, 0, 2

    def _chances(self, scores: np.ndarray, name: str) -> np.ndarray:
        scale = self.scale if callable(self.scale) else SCALES[self.scale]
        found = np.asarray(scale(scores), dtype=np.float64)
        if found.shape != scores.shape or not ((found >= 0) & (found <= 1)).all():
            raise ValueError(
                f"scale must give a probability from 0 to 1 for each of the {len(scores)} scores, but for method "
                f"{name!r} it gave {found!r}"
            )
        return found

    def _change(
        self, masker: Masker, chances: Sequence[Sequence[np.ndarray]], rows: np.ndarray
    ) -> Callable[[Tensor], Tensor]:
        """What becomes of the word embeddings (r, t, d) of `rows`."""

        def change(words: Tensor) -> Tensor:
            keep = np.ones(words.shape[:2], dtype=np.float32)
            for at, (text, _, method, side) in zip(keep, rows, strict=True):
                chance = chances[method][text]
                at[masker.places[text]] = (chance, 1 - chance, np.zeros_like(chance))[side]
            coins, which = np.unique(rows[:, :2], axis=0, return_inverse=True)
            drawn = np.zeros((len(coins), *words.shape[1:]), dtype=np.float32)
            for at, (text, draw) in zip(drawn, coins, strict=True):
                at[masker.places[text]] = self._coins(masker, int(text), int(draw), words.shape[2])
            luck = torch.from_numpy(drawn).to(words.device)[torch.from_numpy(which.reshape(-1)).to(words.device)]
            return words * (luck < torch.from_numpy(keep).to(words.device)[:, :, None])

        return change

    def _coins(self, masker: Masker, text: int, draw: int, width: int) -> np.ndarray:
        """Uniform numbers (n, d) in [0, 1), which the text itself decides and not its place among others."""
        ids = masker.inputs["input_ids"][text, : masker.lengths[text]].tolist()
        generator = np.random.default_rng([self.seed, draw, *ids])
        return generator.random((len(masker.places[text]), width), dtype=np.float32)
