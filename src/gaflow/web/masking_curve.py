"""Tokens masked from the strongest down: how fast an explanation takes the model's probability away.

The random band has the middle 90 % of as many random orders as a request asks for, measured on the same text.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gaflow.attribution.attribution import Attribution
from gaflow.evaluation.faithfulness import CONTROL, evaluate
from gaflow.evaluation.masking import masked_count
from gaflow.explainer.explainer import Explainer
from gaflow.web.bodies import MaskBody
from gaflow.web.work import Answer, Progress

BAND = (0.05, 0.95)  # quantiles of the random orders
_ATTRIBUTION = "attribution"
_ORDER = "random order {}"


def masking_curve(explainer: Explainer, att: Attribution, body: MaskBody, progress: Progress) -> Answer:
    """The probability of the explained class at every level, and that of random orders."""
    ordinary = np.flatnonzero(~att.special_mask)
    scores: dict[str, list[Attribution | np.ndarray]] = {_ATTRIBUTION: [att]}
    generator = np.random.default_rng(0)
    for number in range(body.random_orders):
        order = _Scores(att, generator.permutation(len(att.tokens)).astype(float))
        scores[_ORDER.format(number)] = [order]  # type: ignore[list-item]
    evaluation = evaluate(
        explainer,
        [input_of(att)],
        methods=[],
        scores=scores,
        order="top",
        levels=sorted(set(body.levels)),
        replacement=body.replacement,
        eraser=False,
        truncation=att.truncated,
        progress=progress,
    )
    probabilities = dict(zip(evaluation.methods, np.exp(evaluation.masked[:, 0]), strict=True))
    predicted = evaluation.prediction[evaluation.methods.index(_ATTRIBUTION), 0]
    size = int(evaluation.sizes[0])
    answer: Answer = {
        "levels": list(evaluation.levels),
        "masked": [masked_count(size, level) for level in evaluation.levels],
        "tokens": size,
        "unmasked": float(np.exp(evaluation.base[0])),
        "probability": probabilities[_ATTRIBUTION].tolist(),
        "random": probabilities[CONTROL].tolist(),
        "prediction": [evaluation.classes[index] for index in predicted.tolist()],
    }
    if size == len(ordinary):  # tokens were not joined
        strongest_first = np.argsort(-att.scores[ordinary], kind="stable")
        answer["order"] = ordinary[strongest_first].tolist()
    if body.random_orders:
        runs = np.stack([probabilities[_ORDER.format(number)] for number in range(body.random_orders)])
        low, high = np.quantile(runs, BAND, axis=0)
        answer["band"] = {"low": low.tolist(), "mean": runs.mean(0).tolist(), "high": high.tolist()}
    return answer


def input_of(att: Attribution) -> str | tuple[str, str]:
    """The text of an attribution as explainers take it."""
    return att.text if att.text_pair is None else (att.text, att.text_pair)


@dataclass(frozen=True)
class _Scores:
    """Other scores of the pieces of an attribution, as `evaluate` reads them."""

    att: Attribution
    scores: np.ndarray  # (t,)

    @property
    def offsets(self) -> tuple[tuple[int, int], ...]:
        return self.att.offsets

    @property
    def segments(self) -> tuple[int, ...]:
        return self.att.segments

    @property
    def tokens(self) -> tuple[str, ...]:
        return self.att.tokens
