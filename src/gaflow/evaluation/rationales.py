"""Whether scores agree with what people marked as their reasons (DeYoung et al. 2020). That is plausibility: a faithful
explanation of a model that has other reasons than people is implausible, so it is reported apart from faithfulness.

Over the ordinary tokens of a text, with R the tokens that people marked and S those that the scores choose:

    auprc     area under precision over recall as the threshold goes down the scores, by trapezoids (as ERASER's code)
    token F1  2 |S and R| / (|S| + |R|)
    iou       |S and R| / |S or R|
    iou_f1    F1 of runs of chosen tokens, where a run counts if it overlaps one of R by more than half of their union

The convention this file owns: S are the top m tokens, where m / n is the share that people mark of a text on average
(ERASER's rule, so that no text tells how much of it is marked), rounded as in masking; ties go by position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gaflow.attribution.attribution import Attribution
from gaflow.errors import MissingExtraError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["auprc", "choose", "iou", "iou_f1", "plausibility", "rationale_mask", "token_f1"]


def plausibility(
    attributions: Mapping[str, Sequence[Attribution]], rationales: Sequence[Any], *, share: float | None = None
) -> pd.DataFrame:
    """One row per method and text: auprc, token_f1, iou, iou_f1; average them as you like.

    `rationales` has an entry for each text: spans [(start, end), ...] in characters of the text, or a bool for every
    token or every ordinary token. Texts of which nothing or everything is marked tell nothing, and have NaN as auprc.
    `share` of the tokens is chosen; None is the average share that is marked.
    """
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError(f"cannot import pandas ({error}); run: pip install 'gaflow[data]'") from error
    if share is not None and not 0 < share <= 1:
        raise ValueError(f"share must lie above 0 and be at most 1, not {share!r}")
    rows = []
    for method, items in attributions.items():
        if len(items) != len(rationales):
            raise ValueError(f"{method} has {len(items)} attributions but there are {len(rationales)} rationales")
        marked = [
            rationale_mask(att, rationale, f"rationales[{k}]")
            for k, (att, rationale) in enumerate(zip(items, rationales, strict=True))
        ]
        part = float(np.mean([m.mean() for m in marked])) if share is None and marked else share or 0.0
        for text, (att, gold) in enumerate(zip(items, marked, strict=True)):
            scores = att.scores[~att.special_mask]
            chosen = choose(scores, part)
            found = {"token_f1": token_f1(chosen, gold), "iou": iou(chosen, gold), "iou_f1": iou_f1(chosen, gold)}
            rows.append({"method": method, "text": text, "auprc": auprc(scores, gold), **found})
    return pandas.DataFrame(rows, columns=["method", "text", "auprc", "token_f1", "iou", "iou_f1"])


def rationale_mask(attribution: Attribution, rationale: Any, name: str = "rationale") -> np.ndarray:
    """Which ordinary tokens (n,) a rationale marks: any that it shares a character with."""
    ordinary = ~attribution.special_mask
    given = np.asarray(rationale)
    if given.size == 0:
        return np.zeros(int(ordinary.sum()), dtype=bool)
    if given.ndim == 1 and np.isin(given, (0, 1)).all():
        if len(given) not in (len(ordinary), int(ordinary.sum())):
            raise ValueError(
                f"{name} marks {len(given)} tokens, but the text has {len(ordinary)}, {int(ordinary.sum())} of them "
                "ordinary; give one mark for each, or spans of characters"
            )
        return given.astype(bool) if len(given) == ordinary.sum() else given.astype(bool)[ordinary]
    if given.ndim != 2 or given.shape[1] != 2 or given.dtype.kind not in "iu":
        raise ValueError(f"{name} must be spans [(start, end), ...] in characters, or a bool for every token")
    if (given[:, 0] >= given[:, 1]).any() or given.min() < 0 or given.max() > len(attribution.text):
        raise ValueError(f"{name} has a span that is empty or outside the text of {len(attribution.text)} characters")
    offsets = np.array(attribution.offsets)
    overlap = np.minimum(offsets[:, None, 1], given[:, 1]) > np.maximum(offsets[:, None, 0], given[:, 0])
    return (overlap.any(1) & (np.array(attribution.segments) == 0))[ordinary]


def choose(scores: np.ndarray, share: float) -> np.ndarray:
    """The top tokens (n,) by score, `share` of them and at least one."""
    count = max(1, int(np.floor(share * len(scores) + 0.5)))
    chosen = np.zeros(len(scores), dtype=bool)
    chosen[np.argsort(-scores, kind="stable")[:count]] = True
    return chosen


def auprc(scores: np.ndarray, gold: np.ndarray) -> float:
    """Area under the precision-recall curve; NaN where nothing or everything is marked."""
    if gold.all() or not gold.any():
        return float("nan")
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.diff(scores[order]) != 0, True)  # equal scores cross the threshold together
    hits = np.cumsum(gold[order])[last]
    precision = np.append(1.0, hits / (np.flatnonzero(last) + 1))
    recall = np.append(0.0, hits / gold.sum())
    return float(((precision[1:] + precision[:-1]) / 2 * np.diff(recall)).sum())


def token_f1(chosen: np.ndarray, gold: np.ndarray) -> float:
    """F1 of the chosen tokens; 0 if none is marked, since at least one is chosen."""
    return float(2 * (chosen & gold).sum() / (chosen.sum() + gold.sum()))


def iou(chosen: np.ndarray, gold: np.ndarray) -> float:
    """Intersection over union of the tokens."""
    return float((chosen & gold).sum() / (chosen | gold).sum())


def iou_f1(chosen: np.ndarray, gold: np.ndarray) -> float:
    """F1 of runs of tokens, where runs match that overlap by more than half of their union."""
    ours, theirs = _runs(chosen), _runs(gold)
    if not len(ours) or not len(theirs):
        return 0.0
    both = np.minimum(ours[:, None, 1], theirs[:, 1]) - np.maximum(ours[:, None, 0], theirs[:, 0])
    union = np.maximum(ours[:, None, 1], theirs[:, 1]) - np.minimum(ours[:, None, 0], theirs[:, 0])
    match = 2 * both > union  # such a pair is each other's only match
    return float(2 * match.sum() / (len(ours) + len(theirs)))


def _runs(mask: np.ndarray) -> np.ndarray:
    """Starts and ends (r, 2) of the runs of True."""
    steps = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    return steps.reshape(-1, 2)
