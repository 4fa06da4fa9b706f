"""Gradient methods: scores from the gradient of the explained output `y` by attention weights or hidden states.

With `E` the mean over heads, `A^l` the attention weights of block `l = 1 ... L` (query x key), `G^l = dy/dA^l`, `h^l`
the hidden states that block `l+1` reads, `g^l = dy/dh^l`, and `r` the rows that the head reads (`Trace.rows`):

- grads: `r (E G^L)`
- attgrads: `sum_l r E(A^l * G^l)`
- gradsam: the mean over layers, heads and queries of `A * relu(G)`
- cat: `sum_{l=0}^{L-1} <g^l_i, h^l_i>`
- attcat: `sum_{l=1}^{L} a^l_i <g^{l-1}_i, h^{l-1}_i>`, with `a^l_i` the mean over heads and queries of `A^l[:, :, i]`
- grad_x_input: `<g^0_i, h^0_i>`
- attnlrp: the same with balanced gradients (`balanced.py`), which all of them take as an option

The convention this file owns: a block's attention goes with the block's **input**, so `h^L`, which some models
normalise once more, is never used. Means over queries are over real tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gaflow.errors import UnsupportedModelError
from gaflow.flow.information import agf, signed_gradient, signed_product
from gaflow.methods.attention import MEAN_ATTENTION, read_rows
from gaflow.methods.balanced import GradientKind, check_gradients, with_gradients
from gaflow.methods.base import MethodInfo, NamedSettings, Scores
from gaflow.methods.peeling import input_relevance
from gaflow.models.attention_tensors import accumulation_dtype
from gaflow.models.streamed_attention import HeadMean
from gaflow.models.tracing import Trace

_GRADIENT = HeadMean(signed_gradient)
_PRODUCT = HeadMean(signed_product)
_POSITIVE_PRODUCT = HeadMean(agf)  # as attention times the positive gradient: attention is never negative
_BARKAN = MethodInfo(
    family="gradient",
    signed=True,
    class_specific=True,
    passes="1 forward, 1 backward",
    reference="Barkan et al. 2021, CIKM",
)
_QIANG = replace(_BARKAN, reference="Qiang et al. 2022, NeurIPS")


@dataclass(frozen=True)
class _GradientMethod(NamedSettings, ABC):
    """What all of them have in common."""

    gradients: GradientKind = "plain"  # or balanced ones

    def __post_init__(self) -> None:
        super().__post_init__()
        check_gradients(self.gradients)

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a traced batch."""
        return Scores(self._score(with_gradients(trace, self.gradients)))

    @abstractmethod
    def _score(self, trace: Trace) -> Tensor:
        """Scores (b, t) from a trace with the gradients of the settings."""


@dataclass(frozen=True)
class Grads(_GradientMethod):
    """Attention gradients of the last layer, mean over heads."""

    info = _BARKAN
    base_name = "grads"
    head_means = (_GRADIENT,)

    def _score(self, trace: Trace) -> Tensor:
        return read_rows(trace.rows(), trace.head_mean(_GRADIENT, -1))


@dataclass(frozen=True)
class AttGrads(_GradientMethod):
    """Attention times its gradient, summed over layers, mean over heads."""

    info = _BARKAN
    base_name = "attgrads"
    head_means = (_PRODUCT,)

    def _score(self, trace: Trace) -> Tensor:
        return read_rows(trace.rows(), _sum_over_layers(trace, _PRODUCT))


@dataclass(frozen=True)
class GradSam(_GradientMethod):
    """Grad-SAM: attention times its positive gradient, mean over layers, heads and queries."""

    info = replace(_BARKAN, signed=False)
    base_name = "gradsam"
    head_means = (_POSITIVE_PRODUCT,)

    def _score(self, trace: Trace) -> Tensor:
        return _received(_sum_over_layers(trace, _POSITIVE_PRODUCT), trace.mask) / trace.layers


@dataclass(frozen=True)
class Cat(_GradientMethod):
    """CAT, class activation tokens: hidden states times their gradient, summed over layers."""

    info = _QIANG
    base_name = "cat"
    head_means = ()

    def _score(self, trace: Trace) -> Tensor:
        return _activations(trace).sum(1)


@dataclass(frozen=True)
class AttCat(_GradientMethod):
    """AttCAT: as CAT, each layer weighted by the attention that the token receives in it."""

    info = _QIANG
    base_name = "attcat"
    head_means = (MEAN_ATTENTION,)

    def _score(self, trace: Trace) -> Tensor:
        received = [_received(trace.head_mean(MEAN_ATTENTION, layer), trace.mask) for layer in range(trace.layers)]
        return (torch.stack(received, 1) * _activations(trace)).sum(1)


@dataclass(frozen=True)
class GradientTimesInput(_GradientMethod):
    """Gradient times input, at the hidden states that the first block reads."""

    info = replace(_BARKAN, reference="Shrikumar et al. 2016, arXiv:1605.01713")
    base_name = "grad_x_input"
    head_means = ()

    def _score(self, trace: Trace) -> Tensor:
        return input_relevance(trace)


@dataclass(frozen=True)
class AttnLrp(GradientTimesInput):
    """AttnLRP: balanced gradient times input; with "balanced_cp", CP-LRP.

    LRP is patented in places; its use for research is free.
    """

    gradients: GradientKind = "balanced"

    info = replace(_BARKAN, family="relevance", reference="Achtibat et al. 2024, ICML")
    base_name = "attnlrp"


def _sum_over_layers(trace: Trace, head_mean: HeadMean) -> Tensor:
    """The sum over layers of a mean over heads, (b, t, t)."""
    total = trace.head_mean(head_mean, 0).clone()
    for layer in range(1, trace.layers):
        total += trace.head_mean(head_mean, layer)
    return total


def _received(matrix: Tensor, mask: Tensor) -> Tensor:
    """Mean over real queries of a mean over heads (b, query, key), for every key: (b, t)."""
    return matrix.sum(1) / mask.sum(-1, keepdim=True)


def _activations(trace: Trace) -> Tensor:
    """`<g^l, h^l>` (b, l, t) for the input of every block, zero at padding, in float32 or wider."""
    blocks = trace.layers
    if len(trace.hidden) < blocks:
        raise _unsupported(f"the hidden states that each of the {blocks} blocks reads; it returns {len(trace.hidden)}")
    activations: list[Tensor] = []
    for layer in range(blocks):
        hidden = trace.hidden[layer]
        gradient = trace.hidden_gradient[layer]
        if gradient is None:
            raise _unsupported(
                f"the gradient of the hidden states of layer {layer}; its output does not depend on them"
            )
        if hidden.shape[:2] != trace.mask.shape:
            shapes = f"their shape is {tuple(hidden.shape)} for {tuple(trace.mask.shape)} tokens"
            raise _unsupported(f"one hidden state per token in layer {layer}; {shapes}")
        dtype = accumulation_dtype(hidden)
        products = hidden.to(dtype) * gradient.to(dtype)
        activations.append(products.sum(-1).to(trace.mask.device))
    return torch.stack(activations, 1).masked_fill(~trace.mask[:, None], 0)


def _unsupported(missing: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"cat and attcat need from the model {missing}. Use attgrads, or a flow method")
