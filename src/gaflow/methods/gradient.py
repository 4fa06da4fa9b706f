"""Gradient methods: scores from the gradient of the explained output `y` by attention weights or hidden states.

With `E` the mean over heads, `A^l` the attention weights of block `l = 1 ... L` (query x key), `G^l = dy/dA^l`, `h^l`
the hidden states that block `l+1` reads, `g^l = dy/dh^l`, and `r` the rows that the head reads (`Trace.rows`):

- grads: `r (E G^L)`
- attgrads: `sum_l r E(A^l * G^l)`
- gradsam: the mean over layers, heads and queries of `A * relu(G)`
- cat: `sum_{l=0}^{L-1} <g^l_i, h^l_i>`
- attcat: `sum_{l=1}^{L} a^l_i <g^{l-1}_i, h^{l-1}_i>`, with `a^l_i` the mean over heads and queries of `A^l[:, :, i]`

The convention this file owns: a block's attention goes with the block's **input**, so `h^L`, which some models
normalise once more, is never used. Means over queries are over real tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gaflow.errors import UnsupportedModelError
from gaflow.methods.attention import read_rows
from gaflow.methods.base import MethodInfo, Scores
from gaflow.models.attention_tensors import accumulation_dtype
from gaflow.models.tracing import Trace

__all__ = ["AttCat", "AttGrads", "Cat", "GradSam", "Grads"]

_PASSES = "1 forward, 1 backward"
_BARKAN = "Barkan et al. 2021, CIKM"
_QIANG = "Qiang et al. 2022, NeurIPS"


@dataclass(frozen=True)
class Grads:
    """Attention gradients of the last layer, mean over heads."""

    info: ClassVar[MethodInfo] = MethodInfo("gradient", True, True, _PASSES, _BARKAN)
    name = "grads"

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a traced batch."""
        return Scores(read_rows(trace.rows(), trace.gradients[-1].mean(1)))


@dataclass(frozen=True)
class AttGrads:
    """Attention times its gradient, summed over layers, mean over heads."""

    info: ClassVar[MethodInfo] = MethodInfo("gradient", True, True, _PASSES, _BARKAN)
    name = "attgrads"

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a traced batch."""
        layers = zip(trace.attentions, trace.gradients, strict=True)
        return Scores(read_rows(trace.rows(), _products(layers).mean(1)))


@dataclass(frozen=True)
class GradSam:
    """Grad-SAM: attention times its positive gradient, mean over layers, heads and queries."""

    info: ClassVar[MethodInfo] = MethodInfo("gradient", False, True, _PASSES, _BARKAN)
    name = "gradsam"

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a traced batch."""
        layers = zip(trace.attentions, (g.relu() for g in trace.gradients), strict=True)
        return Scores(_received(_products(layers), trace.mask) / len(trace.attentions))


@dataclass(frozen=True)
class Cat:
    """CAT, class activation tokens: hidden states times their gradient, summed over layers."""

    info: ClassVar[MethodInfo] = MethodInfo("gradient", True, True, _PASSES, _QIANG)
    name = "cat"

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a traced batch."""
        return Scores(_activations(trace).sum(1))


@dataclass(frozen=True)
class AttCat:
    """AttCAT: as CAT, each layer weighted by the attention that the token receives in it."""

    info: ClassVar[MethodInfo] = MethodInfo("gradient", True, True, _PASSES, _QIANG)
    name = "attcat"

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a traced batch."""
        received = torch.stack([_received(a, trace.mask) for a in trace.attentions], 1)
        return Scores((received * _activations(trace)).sum(1))


def _products(layers: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """The sum over layers of the products of two tensors (b, h, t, t), with no more than one of that size at a time."""
    pairs = iter(layers)
    total = torch.mul(*next(pairs))
    for a, g in pairs:
        total.addcmul_(a, g)
    return total


def _received(attention: Tensor, mask: Tensor) -> Tensor:
    """Mean over heads and real queries of (b, h, query, key), for every key: (b, t)."""
    return attention.sum((1, 2)) / (attention.shape[1] * mask.sum(-1, keepdim=True))


def _activations(trace: Trace) -> Tensor:
    """`<g^l, h^l>` (b, l, t) for the input of every block, zero at padding, in float32 or wider."""
    blocks = len(trace.attentions)
    if len(trace.hidden) < blocks:
        raise UnsupportedModelError(
            f"cat and attcat need the hidden states that each of the {blocks} blocks reads, and the model returns "
            f"{len(trace.hidden)}; use attgrads, or a flow method"
        )
    found: list[Tensor] = []
    for layer in range(blocks):
        hidden, gradient = trace.hidden[layer], trace.hidden_gradient[layer]
        if gradient is None:
            raise UnsupportedModelError(
                f"cat and attcat need the gradient of the hidden states of layer {layer}, but what the model returns "
                "for it is a copy that its output does not depend on; use attgrads, or a flow method"
            )
        if hidden.shape[:2] != trace.mask.shape:
            raise UnsupportedModelError(
                f"cat and attcat need one hidden state per token, but those of layer {layer} have shape "
                f"{tuple(hidden.shape)} for {tuple(trace.mask.shape)} tokens; use attgrads, or a flow method"
            )
        found.append(
            (hidden.to(accumulation_dtype(hidden)) * gradient.to(accumulation_dtype(hidden)))
            .sum(-1)
            .to(trace.mask.device)
        )
    return torch.stack(found, 1).masked_fill(~trace.mask[:, None], 0)
