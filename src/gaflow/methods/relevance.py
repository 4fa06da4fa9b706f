"""Relevance methods: scores from the relevance of attention weights (layer-wise relevance propagation, LRP).

With `R^l` the relevance of the attention weights of layer `l` (`gaflow.methods.lrp`), `G^l = dy/dA^l`, `E` the mean
over heads and `r` the rows that the head reads (`Trace.rows`):

- partial LRP: `r E relu(R^L)`
- transformer attribution: `r M^L ... M^1` with `M^l = rownorm(E relu(G^l * R^l) + I)`

Both need one more pass through the model than the trace, and share it. The convention this file owns: the propagated
relevance is stored as long as the traced model of the trace lives, and no longer.

LRP is patented in places; its use for research is free.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from gaflow.arguments import boolean
from gaflow.methods.attention import read_rows
from gaflow.methods.base import Diagnostics, MethodInfo, NamedSettings, Scores
from gaflow.methods.lrp import Relevance, propagate
from gaflow.models.tracing import Trace

_LARGEST_LOSS = 0.01  # of the relevance, without a warning
_PROPAGATED: Any = WeakIdKeyDictionary()  # TracedModel -> {double: Relevance}


_INFO = MethodInfo(
    family="relevance",
    signed=False,
    class_specific=True,
    passes="2 forward, 2 backward",
    reference="Voita et al. 2019, ACL",
)


@dataclass(frozen=True)
class _RelevanceMethod(NamedSettings, ABC):
    """What both methods have in common."""

    double: bool = True  # propagate in float64 whatever the model's precision; False is quicker and less exact

    def __post_init__(self) -> None:
        super().__post_init__()
        boolean("double", self.double)

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a traced batch; the diagnostics say how much of the relevance 1 reached the embeddings."""
        relevance = _relevance(trace, self.double)
        return Scores(self._score(trace, relevance.attention), diagnostics=_diagnostics(relevance))

    @abstractmethod
    def _score(self, trace: Trace, relevance: Tensor) -> Tensor:
        """Scores (b, t) from the relevance (b, l, h, t, t) of attention weights."""


@dataclass(frozen=True)
class PartialLrp(_RelevanceMethod):
    """Partial LRP: relevance of the last layer's attention weights, where positive.

    LRP is patented in places; its use for research is free.
    """

    base_name = "partial_lrp"
    info = _INFO

    def _score(self, trace: Trace, relevance: Tensor) -> Tensor:
        return read_rows(trace.rows(), relevance[:, -1].relu().mean(1))


@dataclass(frozen=True)
class TransAtt(_RelevanceMethod):
    """Transformer attribution: relevance times gradient of all layers' attention, multiplied out.

    LRP is patented in places; its use for research is free.
    """

    base_name = "transatt"
    info = replace(_INFO, reference="Chefer et al. 2021, CVPR")

    def _score(self, trace: Trace, relevance: Tensor) -> Tensor:
        scores = trace.rows()  # zero at padding: the identity below adds nothing there
        for layer in reversed(range(relevance.shape[1])):
            change = (trace.gradients[layer] * relevance[:, layer]).relu().mean(1)  # (b, t, t)
            shares = scores / (change.sum(-1) + 1)  # rows of change + I are divided by their sums
            scores = read_rows(shares, change) + shares
        return scores


def _relevance(trace: Trace, double: bool) -> Relevance:
    """The relevance of a traced batch, propagated once for all methods."""
    stored: dict[bool, Relevance] = _PROPAGATED.setdefault(trace.require_model(), {})
    if double not in stored:
        relevance = propagate(trace, torch.float64 if double else torch.float32)
        stored[double] = replace(relevance, attention=relevance.attention.to(trace.gradients[0]))
    return stored[double]


def _diagnostics(relevance: Relevance) -> tuple[Diagnostics, ...]:
    """How much of the relevance 1 reached the embeddings of each text, and a warning where much was lost."""
    diagnostics = []
    for value in relevance.input.tolist():
        item: Diagnostics = {"conserved_relevance": value}
        if not abs(value - 1) <= _LARGEST_LOSS:
            item["warning"] = f"{value:.3g} of the relevance 1 reached the embeddings: the rest met dead ends"
        diagnostics.append(item)
    return tuple(diagnostics)
