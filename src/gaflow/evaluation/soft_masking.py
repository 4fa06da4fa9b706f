"""Soft sufficiency and comprehensiveness (Zhao and Aletras 2023): words are kept in proportion to their scores.

Masking by rank ignores by how much one token's score exceeds another's. Here no token is masked. Every element of a
word embedding is kept or zeroed at random, and the probability is the score s_i of the token, scaled to [0, 1]:

    x'_i = x_i * e_i,    e_i ~ Bernoulli(q_i)  in every element;    q_i = s_i to keep what counts, 1 - s_i to remove it

With p the probability of the target, `kept` and `removed` the two perturbed texts and `zero` the text without words,

    Soft-NS = (S(kept) - S(zero)) / (1 - S(zero)),      S(x') = 1 - max(0, p(x) - p(x'))
    Soft-NC =       C(removed) / (1 - S(zero)),         C(x') = max(0, p(x) - p(x'))

both cut off at 0 and 1, and high for good scores. S and C are averaged over several draws first.

The conventions this file owns: **only the word embeddings of ordinary tokens change** (special tokens, positions and
token types stay, in the text without words too), and **a text's random draws are the same for every method**, whatever
the other texts, so methods are compared on equal luck.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from gaflow.arguments import one_of, whole_number
from gaflow.errors import Argument, ArgumentError
from gaflow.evaluation.masking import Masker
from gaflow.evaluation.tokens import ScoresByMethod
from gaflow.methods.text_random import token_generator
from gaflow.progress import Report, silent

Scale = Callable[[np.ndarray], np.ndarray]  # scores (n,) -> probabilities (n,)

_Row = tuple[int, int, np.ndarray]  # a perturbed text: its index, the draw, and probabilities (n,) to keep an element


def by_range(scores: np.ndarray) -> np.ndarray:
    """Scale linearly: the lowest score becomes 0, the highest 1; all become 1/2 if they are equal."""
    if not len(scores):
        return scores
    low = scores.min()
    high = scores.max()
    if low == high:
        return np.full(len(scores), 0.5)
    return np.clip((scores - low) / (high - low), 0.0, 1.0)


def by_rank(scores: np.ndarray) -> np.ndarray:
    """Spread evenly from 0 to 1 by rank, ties sharing theirs: every method keeps half of every text on average."""
    if len(scores) == 1:
        return np.full(1, 0.5)
    below = (scores[:, None] > scores).sum(1)
    equal = (scores[:, None] == scores).sum(1)
    return (below + (equal - 1) / 2) / (len(scores) - 1)


SCALES: dict[str, Scale] = {"range": by_range, "rank": by_rank}


@dataclass(frozen=True)
class Soft:
    """Settings of the soft measures."""

    draws: int = 5  # of all random numbers of a text, to average over
    scale: str | Scale = "range"  # scores -> probabilities: a name of SCALES, or a callable
    seed: int = 0

    def __post_init__(self) -> None:
        whole_number("draws", self.draws)
        whole_number("seed", self.seed, 0)
        if not callable(self.scale):
            one_of("scale", self.scale, SCALES)

    def describe(self) -> dict[str, int | str]:
        """The settings, in JSON."""
        scale = self.scale
        if not isinstance(scale, str):
            scale = getattr(scale, "__name__", repr(scale))
        return {"draws": self.draws, "scale": scale, "seed": self.seed}

    def __call__(
        self,
        masker: Masker,
        scores_by_method: ScoresByMethod,
        base: np.ndarray,
        targets: np.ndarray,
        report: Report = silent,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Probability lost with words softly kept and softly removed (m, n, 2), and log-probability of no words (n,).

        The scores of each method and text are (n,), `base` (n,) the log-probabilities of whole texts.
        """
        rows: list[_Row] = []
        for text, n in enumerate(masker.sizes):
            sides = []
            for name, text_scores in scores_by_method.items():
                probabilities = self._probabilities(text_scores[text], name)
                sides += [probabilities, 1 - probabilities]
            for draw in range(self.draws):
                rows += [(text, draw, side) for side in sides]
            rows.append((text, 0, np.zeros(n)))
        texts = np.array([text for text, _, _ in rows])
        log_probabilities = np.empty(len(rows))
        done = 0
        for batch in masker.batches(masker.lengths[texts]):
            embed = partial(self._perturbed_embeddings, masker, [rows[k] for k in batch])
            outputs, _ = masker.run_with_embeddings(texts[batch], embed)
            batch_targets = targets[texts[batch]]
            log_probabilities[batch] = outputs[np.arange(len(batch)), batch_targets]
            done += len(batch)
            report(done / len(rows))
        by_text = log_probabilities.reshape(len(masker), -1)
        perturbed = by_text[:, :-1].reshape(len(masker), self.draws, -1, 2)
        original = np.exp(base)[:, None, None, None]
        losses = np.maximum(0.0, original - np.exp(perturbed))
        return losses.mean(1).swapaxes(0, 1), by_text[:, -1]

    def _probabilities(self, scores: np.ndarray, method: str) -> np.ndarray:
        """Scores (n,) as probabilities to keep an element."""
        scale = self.scale if callable(self.scale) else SCALES[self.scale]
        probabilities = np.asarray(scale(scores), dtype=np.float64)
        in_range = (probabilities >= 0) & (probabilities <= 1)
        if probabilities.shape != scores.shape or not in_range.all():
            raise ArgumentError(
                Argument("scale"),
                f" must give a probability from 0 to 1 for each of the {len(scores)} scores, but for method "
                f"{method!r} it gave {probabilities!r}",
            )
        return probabilities

    def _perturbed_embeddings(self, masker: Masker, rows: Sequence[_Row], batch_ids: Tensor) -> Tensor:
        """Word embeddings (r, t, d) of `batch_ids` (r, t), with elements zeroed as `rows` (r,) say."""
        embeddings = masker.embed(batch_ids)
        _, t, width = embeddings.shape
        keep = np.ones((len(rows), t), dtype=np.float32)
        for row_keep, (text, _, probabilities) in zip(keep, rows, strict=True):
            row_keep[masker.positions[text]] = probabilities[masker.units[text]]
        draws, draw_of_row = np.unique([row[:2] for row in rows], axis=0, return_inverse=True)
        uniform = np.zeros((len(draws), t, width), dtype=np.float32)
        for draw_uniform, (text, draw) in zip(uniform, draws.tolist(), strict=True):
            positions = masker.positions[text]
            ids = masker.inputs["input_ids"][text, : masker.lengths[text]].tolist()
            generator = token_generator(self.seed, draw, ids)  # by the text itself and not its index
            draw_uniform[positions] = generator.random((len(positions), width), dtype=np.float32)
        device = embeddings.device
        thresholds = torch.from_numpy(keep).to(device)[:, :, None]
        indices = torch.from_numpy(draw_of_row.reshape(-1)).to(device)
        row_uniform = torch.from_numpy(uniform).to(device)[indices]
        return embeddings * (row_uniform < thresholds)
