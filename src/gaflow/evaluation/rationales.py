"""Agreement of scores with the tokens that people marked as their reasons (DeYoung et al. 2020).

That is plausibility. A faithful explanation of a model that has other reasons than people is implausible, so it is
reported apart from faithfulness. Over the ordinary tokens of a text, with R the tokens that people marked and S those
that the scores select:

    auprc     area under precision over recall as the threshold goes down the scores, by trapezoids (as ERASER's code)
    token F1  2 |S and R| / (|S| + |R|)
    iou       |S and R| / |S or R|
    iou_f1    F1 of runs of selected tokens, where a run counts if it overlaps one of R by more than half of their union

The convention this file owns: S are the top m tokens, where m / n is the share that people mark of a text on average
(ERASER's rule, so that no text reveals how much of it is marked), rounded as in masking; ties go by position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gaflow.arguments import checked, vector
from gaflow.attribution.attribution import Attribution
from gaflow.errors import Argument, ArgumentError
from gaflow.evaluation.tokens import ordinary_values, span_overlap
from gaflow.extras import need

if TYPE_CHECKING:
    import pandas as pd


@checked
def plausibility(
    attributions: Mapping[str, Sequence[Attribution]], rationales: Sequence[Any], *, share: float | None = None
) -> pd.DataFrame:
    """One row per method and text: auprc, token_f1, iou, iou_f1; average them as you like.

    `rationales` has an entry for each text: spans [(start, end), ...] in characters of the text, or a bool for every
    token or every ordinary token. Texts of which nothing or everything is marked say nothing, and have NaN as auprc.
    `share` of the tokens is selected; None is the average share that is marked.
    """
    need("pandas", "data", "tables need pandas")
    import pandas as pd

    if share is not None and not 0 < share <= 1:
        raise ArgumentError(Argument("share"), f" must be above 0 and at most 1, not {share!r}")
    rows = []
    for method, items in attributions.items():
        if len(items) != len(rationales):
            message = f"{method} has {len(items)} attributions but there are {len(rationales)} "
            raise ArgumentError(message, Argument("rationales"))
        marked = []
        for k, (attribution, rationale) in enumerate(zip(items, rationales, strict=True)):
            marked.append(rationale_mask(attribution, rationale, f"rationales[{k}]"))
        if share is None and marked:
            selected_share = float(np.mean([gold.mean() for gold in marked]))
        else:
            selected_share = share or 0.0
        for text, (attribution, gold) in enumerate(zip(items, marked, strict=True)):
            scores = attribution.scores[~attribution.special_mask]
            selected = select_top(scores, selected_share)
            overlap = [token_f1(selected, gold), iou(selected, gold), iou_f1(selected, gold)]
            rows.append([method, text, auprc(scores, gold), *overlap])
    return pd.DataFrame(rows, columns=["method", "text", "auprc", "token_f1", "iou", "iou_f1"])


@checked
def rationale_mask(attribution: Attribution, rationale: object, name: str = "rationale") -> np.ndarray:
    """Which ordinary tokens (n,) a rationale marks: any that share a character with it."""
    ordinary = ~attribution.special_mask
    try:
        values = np.asarray(rationale)
    except ValueError:  # entries of different lengths
        values = np.array(None)
    if values.size == 0:
        return np.zeros(ordinary.sum(), dtype=bool)
    if values.ndim == 1 and np.isin(values, (0, 1)).all():
        return ordinary_values(values.astype(bool), ordinary, name, "", "spans of characters")
    if values.ndim != 2 or values.shape[1] != 2 or values.dtype.kind not in "iu":
        raise ArgumentError(
            Argument(name), " must be spans [(start, end), ...] in characters, or a bool for every token"
        )
    starts, ends = values.T
    length = len(attribution.text)
    if (starts >= ends).any() or starts.min() < 0 or ends.max() > length:
        raise ArgumentError(Argument(name), f" has a span that is empty or outside the text of {length} characters")
    overlap = span_overlap(np.array(attribution.offsets), values)
    marked = (overlap > 0).any(1)
    in_text = np.array(attribution.segments) == 0
    return (marked & in_text)[ordinary]


@checked
def select_top(scores: np.ndarray, share: float) -> np.ndarray:
    """The top tokens (n,) by score, `share` of them and at least one."""
    scores = vector("scores", scores).astype(np.float64)
    if not 0 <= share <= 1:
        raise ArgumentError(Argument("share"), f" must lie between 0 and 1, not {share!r}")
    count = max(1, int(np.floor(share * len(scores) + 0.5)))
    selected = np.zeros(len(scores), dtype=bool)
    selected[np.argsort(-scores, kind="stable")[:count]] = True
    return selected


@checked
def auprc(scores: np.ndarray, gold: np.ndarray) -> float:
    """Area under the precision-recall curve; NaN where nothing or everything is marked."""
    scores = vector("scores", scores).astype(np.float64)
    gold = vector("gold", gold, len(scores)).astype(bool)
    if gold.all() or not gold.any():
        return float("nan")
    order = np.argsort(-scores, kind="stable")
    last_of_equal = np.append(np.diff(scores[order]) != 0, True)  # equal scores cross the threshold together
    hits = np.cumsum(gold[order])[last_of_equal]
    precision = np.append(1.0, hits / (np.flatnonzero(last_of_equal) + 1))
    recall = np.append(0.0, hits / gold.sum())
    heights = (precision[1:] + precision[:-1]) / 2
    return float((heights * np.diff(recall)).sum())


@checked
def token_f1(selected: np.ndarray, gold: np.ndarray) -> float:
    """F1 of the selected tokens; 0 if none is marked, since at least one is selected."""
    selected = vector("selected", selected).astype(bool)
    gold = vector("gold", gold, len(selected)).astype(bool)
    agreed = (selected & gold).sum()
    return float(2 * agreed / (selected.sum() + gold.sum()))


def iou(selected: np.ndarray, gold: np.ndarray) -> float:
    """Intersection over union of the tokens."""
    return float((selected & gold).sum() / (selected | gold).sum())


def iou_f1(selected: np.ndarray, gold: np.ndarray) -> float:
    """F1 of runs of tokens, where runs match that overlap by more than half of their union."""
    selected_runs = _runs(selected)
    gold_runs = _runs(gold)
    intersection = span_overlap(selected_runs, gold_runs)
    union = np.diff(selected_runs) + np.diff(gold_runs).T - intersection
    matches = 2 * intersection > union  # at most one per run
    if not matches.any():
        return 0.0
    return float(2 * matches.sum() / (len(selected_runs) + len(gold_runs)))


def _runs(mask: np.ndarray) -> np.ndarray:
    """Starts and ends (r, 2) of the runs of True."""
    padded = np.concatenate([[0], mask.astype(np.int8), [0]])
    return np.flatnonzero(np.diff(padded)).reshape(-1, 2)
