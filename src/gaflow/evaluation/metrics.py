"""Measures of masked texts, in plain arrays.

For the target class of a text x, and the text with some tokens masked, x~ (paper, section 5):

    AOPC   p(y | x) - p(y | x~), signed                        high is good for top masking, low for bottom
    LOdds  log p(y | x~) - log p(y | x), in nats               low is good for top masking, high for bottom
    accuracy, macro F1, precision, recall of the predictions for masked texts, against gold labels

Macro averages are over the classes that are anybody's label or prediction, and a class without predictions has
precision 0 (as in scikit-learn). ERASER's comprehensiveness is AOPC with the top tokens masked, its sufficiency AOPC
with all others masked, each averaged over 1, 5, 10, 20 and 50 per cent (DeYoung et al. 2020). soft_masking.py has the
soft versions.

The convention this file owns: **texts are the last axis but one**, conditions of masking the last.
"""

from __future__ import annotations

import numpy as np

from gaflow.errors import Argument, ArgumentError

BINS = (1, 5, 10, 20, 50)  # per cent of the tokens, ERASER's
LEAST_GAP = 1e-4  # of probability between a text and no words, for a fraction of it to mean anything
_DIRECTIONS = {
    ("aopc", "top"): 1,
    ("aopc", "bottom"): -1,
    ("lodds", "top"): -1,
    ("lodds", "bottom"): 1,
    ("srg", "both"): 1,
}


def better(metric: str, order: str, argument: str = "metric") -> int:
    """1 where a higher value of a metric is better, -1 where a lower one is; `argument` is what errors name."""
    if (metric, order) not in _DIRECTIONS:
        raise ArgumentError(Argument(argument), f" {metric!r} has no better direction for order {order!r}")
    return _DIRECTIONS[metric, order]


def aopc(base: np.ndarray, masked: np.ndarray) -> np.ndarray:
    """Loss of probability (..., n, c) from log-probabilities (n,) before and (..., n, c) after masking."""
    return np.exp(base)[:, None] - np.exp(masked)


def lodds(base: np.ndarray, masked: np.ndarray) -> np.ndarray:
    """Gain of log-probability (..., n, c), of the same."""
    return masked - base[:, None]


def lost_share(base: np.ndarray, zero: np.ndarray, lost: np.ndarray) -> np.ndarray:
    """Losses (..., n) of probability as shares of what losing all words costs; NaN where that is nothing.

    `base` (n,) and `zero` (n,) are the log-probabilities of whole texts and of none of their words. This is Soft-NC of
    words softly removed, and 1 - Soft-NS of words softly kept.
    """
    gap = np.exp(base) - np.exp(zero)
    gap[gap < LEAST_GAP] = np.nan
    return np.clip(lost / gap, 0.0, 1.0)


def classification_rates(
    gold: np.ndarray, predicted: np.ndarray, classes: int, weights: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Accuracy, macro F1, precision and recall (..., c) from gold labels (n,) and predictions (..., n, c).

    `weights` (r, n) counts texts several times, and the rates then have r rows first.
    """

    def count(texts: np.ndarray) -> np.ndarray:
        if weights is None:
            return texts.sum(-2)
        return np.tensordot(weights, texts, (1, texts.ndim - 2))

    counts = []
    for label in range(classes):  # one after the other, since all of many classes at once would not fit into memory
        has_gold = np.broadcast_to((gold == label)[:, None], predicted.shape)
        has_prediction = predicted == label
        is_correct = has_prediction & has_gold
        counts.append([count(is_correct), count(has_prediction), count(has_gold)])
    correct_count, predicted_count, gold_count = np.stack(counts, -1)  # (..., c, classes) each
    either_count = gold_count + predicted_count
    class_count = (either_count > 0).sum(-1)

    def macro(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
        zeros = np.zeros(numerator.shape)
        rates = np.divide(numerator, denominator, out=zeros, where=denominator > 0)
        return rates.sum(-1) / class_count

    return {
        "accuracy": correct_count.sum(-1) / gold_count.sum(-1),
        "f1": macro(2 * correct_count, either_count),
        "precision": macro(correct_count, predicted_count),
        "recall": macro(correct_count, gold_count),
    }
