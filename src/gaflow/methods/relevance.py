"""Relevance methods: scores from the relevance of attention weights (layer-wise relevance propagation, LRP).

With `R^l` the relevance of the attention weights of layer `l` (`gaflow.methods.lrp`), `G^l = dy/dA^l`, `E` the mean
over heads and `r` the rows that the head reads (`Trace.rows`):

- partial LRP: `r E relu(R^L)`
- transformer attribution: `r M^L ... M^1` with `M^l = rownorm(E relu(G^l * R^l) + I)`

Both need one more pass through the model than the trace, and share it. The convention this file owns: what was
propagated is kept as long as the trace's question lives, and no longer.

LRP is patented in places; its use for research is free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from gaflow.methods.attention import read_rows
from gaflow.methods.base import MethodInfo, Scores, full_name
from gaflow.methods.lrp import Relevance, propagate
from gaflow.models.tracing import Trace

__all__ = ["PartialLrp", "TransAtt"]

_PASSES = "2 forward, 2 backward"
_LOST = 0.01  # of the relevance, without a warning
_KEPT: Any = WeakIdKeyDictionary()  # Question -> {double: Relevance}


@dataclass(frozen=True)
class PartialLrp:
    """Partial LRP: relevance of the last layer's attention weights, where positive.

    LRP is patented in places; its use for research is free.
    """

    double: bool = True  # propagate in float64 whatever the model's precision; False is quicker and less exact

    info: ClassVar[MethodInfo] = MethodInfo("relevance", False, True, _PASSES, "Voita et al. 2019, ACL")

    def __post_init__(self) -> None:
        _check_double(self.double)

    @property
    def name(self) -> str:
        """Name and settings that are not the defaults."""
        return full_name("partial_lrp", self)

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a traced batch; `facts` say how much of the relevance 1 reached the embeddings."""
        found = _relevance(trace, self.double)
        return Scores(read_rows(trace.rows(), found.attention[:, -1].relu().mean(1)), diagnostics=_facts(found))


@dataclass(frozen=True)
class TransAtt:
    """Transformer attribution: relevance times gradient of all layers' attention, multiplied out.

    LRP is patented in places; its use for research is free.
    """

    double: bool = True  # propagate in float64 whatever the model's precision; False is quicker and less exact

    info: ClassVar[MethodInfo] = MethodInfo("relevance", False, True, _PASSES, "Chefer et al. 2021, CVPR")

    def __post_init__(self) -> None:
        _check_double(self.double)

    @property
    def name(self) -> str:
        """Name and settings that are not the defaults."""
        return full_name("transatt", self)

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a traced batch; `facts` say how much of the relevance 1 reached the embeddings."""
        found = _relevance(trace, self.double)
        scores = trace.rows()  # zero at padding, so that the identity below adds nothing there
        for layer in reversed(range(found.attention.shape[1])):
            change = (trace.gradients[layer] * found.attention[:, layer]).relu().mean(1)  # (b, t, t)
            shares = scores / (change.sum(-1) + 1)  # rows of change + I are divided by their sums
            scores = read_rows(shares, change) + shares
        return Scores(scores, diagnostics=_facts(found))


def _relevance(trace: Trace, double: bool) -> Relevance:
    """The relevance of a traced batch, propagated once for all methods."""
    kept: dict[bool, Relevance] = _KEPT.setdefault(trace.require_model(), {})
    if double not in kept:
        found = propagate(trace, torch.float64 if double else torch.float32)
        attention: Tensor = found.attention.to(trace.gradients[0])
        kept[double] = Relevance(attention, found.input, found.output)
    return kept[double]


def _facts(found: Relevance) -> tuple[dict[str, float | str], ...]:
    each: list[dict[str, float | str]] = []
    for value in found.input.tolist():
        each.append({"conserved_relevance": value})
        if not abs(value - 1) <= _LOST:
            each[-1]["warning"] = f"{value:.3g} of the relevance 1 reached the embeddings: the rest met dead ends"
    return tuple(each)


def _check_double(double: Any) -> None:
    if not isinstance(double, bool):
        raise ValueError(f"double must be True or False, not {double!r}")
