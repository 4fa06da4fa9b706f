"""What masking says of scores, in plain arrays.

For the target class of a text x, and the text with some tokens masked, x~ (paper, section 5):

    AOPC   p(y | x) - p(y | x~), signed                        high is good for top masking, low for bottom
    LOdds  log p(y | x~) - log p(y | x), in nats               low is good for top masking, high for bottom
    accuracy, macro F1, precision, recall of the predictions for masked texts, against gold labels

Macro averages are over the classes that are somebody's label or prediction, and a class without predictions has
precision 0 (as scikit-learn does it). ERASER's comprehensiveness is AOPC of the top tokens masked, its sufficiency that
of all others masked, each averaged over 1, 5, 10, 20 and 50 per cent (DeYoung et al. 2020); soft.py has soft ones.

The convention this file owns: **texts are the last axis but one**, conditions of masking the last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["BINS", "RATES", "Tally", "aopc", "better", "lodds", "soft_comprehensiveness", "soft_sufficiency"]

BINS = (1, 5, 10, 20, 50)  # per cent of the tokens, ERASER's
LEAST_GAP = 1e-4  # of probability between a text and no words, for a share of it to mean anything
RATES = ("accuracy", "f1", "precision", "recall")
_HIGH = {("aopc", "top"), ("lodds", "bottom"), ("srg", "both")}
_LOW = {("aopc", "bottom"), ("lodds", "top")}


def better(metric: str, order: str) -> int:
    """1 where more of a metric is better, -1 where less is."""
    if (metric, order) in _HIGH:
        return 1
    if (metric, order) in _LOW:
        return -1
    raise ValueError(f"it is not said whether more or less {metric} is better for order {order!r}")


def aopc(base: np.ndarray, masked: np.ndarray) -> np.ndarray:
    """Loss of probability (..., n, c) from log-probabilities (n,) before and (..., n, c) after masking."""
    return np.exp(base)[:, None] - np.exp(masked)


def lodds(base: np.ndarray, masked: np.ndarray) -> np.ndarray:
    """Gain of log-probability (..., n, c), of the same."""
    return masked - base[:, None]


def soft_sufficiency(base: np.ndarray, zero: np.ndarray, lost: np.ndarray) -> np.ndarray:
    """Soft-NS (..., n) from log-probabilities (n,) of whole texts and of none of their words, and losses (..., n)."""
    return 1 - soft_comprehensiveness(base, zero, lost)


def soft_comprehensiveness(base: np.ndarray, zero: np.ndarray, lost: np.ndarray) -> np.ndarray:
    """Soft-NC (..., n) of the same; NaN where the model says as much without any word."""
    gap = np.exp(base) - np.exp(zero)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(gap >= LEAST_GAP, np.clip(lost / gap, 0.0, 1.0), np.nan)


@dataclass(frozen=True)
class Tally:
    """How often a class was right, predicted and given, for every condition of masking."""

    hits: np.ndarray  # (..., c, classes)
    said: np.ndarray  # (..., c, classes)
    given: np.ndarray  # (..., c, classes)

    @classmethod
    def of(cls, gold: np.ndarray, predicted: np.ndarray, classes: int, weights: np.ndarray | None = None) -> Tally:
        """Counts from gold labels (n,) and predictions (..., n, c).

        `weights` (r, n) counts texts several times, and the counts then have r rows first.
        """
        hits, said, given = [], [], []
        for label in range(classes):
            mine = np.broadcast_to((gold == label)[:, None], predicted.shape)
            here = predicted == label
            for kept, chosen in ((hits, here & mine), (said, here), (given, mine)):
                kept.append(chosen.sum(-2) if weights is None else np.tensordot(weights, chosen, (1, chosen.ndim - 2)))
        return cls(*(np.stack(kept, -1).astype(np.float64) for kept in (hits, said, given)))

    def rates(self) -> dict[str, np.ndarray]:
        """Accuracy, macro F1, precision and recall (..., c)."""
        there = (self.given + self.said) > 0
        number = there.sum(-1)

        def macro(above: np.ndarray, below: np.ndarray) -> np.ndarray:
            return np.divide(above, below, out=np.zeros_like(above), where=below > 0).sum(-1) / number

        return {
            "accuracy": self.hits.sum(-1) / self.given.sum(-1),
            "f1": macro(2 * self.hits, self.given + self.said),
            "precision": macro(self.hits, self.said),
            "recall": macro(self.hits, self.given),
        }
