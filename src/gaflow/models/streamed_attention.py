"""Attention that is never held for all heads: an autograd function of ours, which models call through transformers.

The forward pass is fused. The backward pass computes the weights `A` and their gradient `G = dy/dA` again, a few heads
at a time, and adds what methods asked for to one matrix (t, t) per layer: means over heads of functions of `A` and `G`.

    S = cap(q k^T scale) + bias + mask        A = softmax(S), with a sink's score in the sum if there is one
    G = dO v^T                                dS = A (G - sum_k A G)

The convention this file owns: **a head is independent of the others**, so a mean over all heads is the mean of the
means over a few. Sums are in float32 or wider, whatever the model's precision, and in the same order in every run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import handle_torch_function, has_torch_function

from gaflow.errors import UnsupportedModelError
from gaflow.models.attention_interface import register_attention
from gaflow.models.attention_tensors import accumulation_dtype
from gaflow.models.cost import CHUNK_WEIGHTS
from gaflow.models.restore import attention_implementation, uncompiled
from gaflow.progress import return_freed_memory

STREAMED = "gaflow_streamed"  # the name of our function in transformers' registry
_TENSORS_OF_LAYER = 12  # as large as queries: about as much as a layer allocates
_LOCAL = threading.local()  # the stream of this thread's pass


@dataclass(frozen=True)
class HeadMean:
    """What a method needs of every layer: the mean over heads of a function of attention and gradient.

    `function` maps (..., h, t, t) twice to (..., t, t). It treats each head by itself, averages over them, and does not
    look at the gradient where the attention is 0. With sign -1 it gets the gradient of `-y`.
    """

    function: Callable[[Tensor, Tensor], Tensor]
    sign: int = 1

    def of(self, attention: Tensor, gradient: Tensor) -> Tensor:
        """The mean over heads, from attention and gradient."""
        return self.function(attention, gradient if self.sign == 1 else -gradient)


@dataclass(frozen=True)
class Derivative:
    """How a layer is differentiated: `PLAIN`, or the rules of balanced gradients."""

    product: float = 1.0  # share of the gradient that queries and keys get of their product
    readout: float = 1.0  # share that attention weights and values get of theirs
    cap_is_line: bool = False  # the cap's slope is that of a line through 0


PLAIN = Derivative()


@dataclass(frozen=True)
class ScoreFunction:
    """How queries and keys make scores."""

    scale: float
    cap: float | None = None  # scores are `cap tanh(s / cap)`
    terms: tuple[Tensor, ...] = ()  # (b or 1, h or 1, t, t) that are added: masks, position biases
    sinks: Tensor | None = None  # (h,) scores of a key that has no value

    def weights(self, query: Tensor, key: Tensor, heads: slice) -> tuple[Tensor, Tensor | None]:
        """Attention weights (b, c, t, t) of queries and keys (b, c, t, d), and the scores over the cap, if any."""
        scores = torch.matmul(query * self.scale, key.transpose(-1, -2))
        capped = None
        if self.cap is not None:
            capped = scores.div_(self.cap)
            scores = capped.tanh().mul_(self.cap)
        for term in self.terms:
            scores = scores.add_(term if term.shape[1] == 1 else term[:, heads])
        if self.sinks is None:
            return scores.softmax(-1), capped
        sinks = self.sinks[heads].to(scores).reshape(1, -1, 1, 1)
        with_sinks = torch.cat([scores, sinks.expand(*scores.shape[:-1], 1)], -1)
        return with_sinks.softmax(-1)[..., :-1], capped


@dataclass
class StreamedLayer:
    """One call of attention, and what the backward pass found in it."""

    stream: Stream
    module: nn.Module
    shape: tuple[int, int, int, int]  # (b, h, t, t) of its weights
    token: Tensor  # () to differentiate by, which makes autograd visit this layer
    output: Tensor | None = None  # what the rest of the model reads; let go of when the layer's place is known
    is_wanted: bool = False  # one of the layers that are explained
    is_top: bool = False
    means: dict[HeadMean, Tensor] = field(default_factory=dict)  # (b, t, t) each
    read: Tensor | None = None  # (b, t) bool: rows with a gradient; of the top layer only

    def observe(self, weights: Tensor, gradient: Tensor, live: Tensor, reach: Tensor) -> None:
        """Add some heads' share to the means, and to the flags of edges that any head has (live) or reads (reach)."""
        if self.stream.scale != 1:
            gradient = gradient / self.stream.scale
        if self.stream.padding is not None:
            weights = weights.masked_fill(self.stream.padding, 0)
            gradient = gradient.masked_fill(self.stream.padding, 0)
        share = weights.shape[1] / self.shape[1]
        for head_mean in self.stream.head_means:
            mean = head_mean.of(weights, gradient)
            if head_mean in self.means:
                self.means[head_mean].add_(mean, alpha=share)
            else:
                self.means[head_mean] = mean * share
        live.logical_or_(weights.amax(1) != 0)  # none is below 0
        if self.is_top:
            reach.logical_or_((gradient != 0).any(1))

    def finish(self, live: Tensor, reach: Tensor) -> None:
        """A masked edge is no edge: its mean is 0, whatever its gradient."""
        dead = live.logical_not()
        for mean in self.means.values():
            mean.masked_fill_(dead, 0)
        if self.is_top:
            self.read = (reach & live).any(-1)


@dataclass
class Stream:
    """One pass whose attention is streamed."""

    head_means: Sequence[HeadMean]
    padding: Tensor | None = None  # (b, 1, t, t) bool: edges from or to padding; None: there is none
    calls: list[StreamedLayer] = field(default_factory=list)
    scale: float = 1.0  # that the gradient is multiplied by, against underflow

    def choose(self, layers: Sequence[StreamedLayer]) -> None:
        """Say which calls are the layers that are explained, from the input up."""
        for layer in layers:
            layer.is_wanted = True
        layers[-1].is_top = True


@contextmanager
def streaming(model: nn.Module, stream: Stream) -> Iterator[None]:
    """Stream the attention of a borrowed model inside this block."""
    register_attention(STREAMED, _attention)
    _LOCAL.stream = stream
    try:
        with attention_implementation(uncompiled(model), STREAMED):
            yield
    finally:
        del _LOCAL.stream


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    position_bias: Tensor | None = None,
    s_aux: Tensor | None = None,
    **_options: Any,
) -> tuple[Tensor, None]:
    """Attention as models call it: queries (b, h, t, d), keys and values (b, groups, t, d)."""
    stream: Stream = _LOCAL.stream
    sinks = s_aux if s_aux is not None else getattr(module, "sinks", None)
    terms = tuple(term for term in (position_bias, attention_mask) if term is not None)
    if any(term.requires_grad or not term.is_floating_point() or term.dim() != 4 for term in terms):
        raise UnsupportedModelError("its attention scores have terms that depend on the text")
    if sinks is not None and tuple(sinks.shape) != (query.shape[1],):
        raise UnsupportedModelError("its attention sinks are not one number for each head")
    scores = ScoreFunction(
        scale=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        cap=softcap,
        terms=terms,
        sinks=None if sinks is None else sinks.detach(),
    )
    b, h, t, _ = query.shape
    _return_freed_memory(query)
    with torch.no_grad():
        token = torch.zeros((), dtype=accumulation_dtype(query), device=query.device)
    layer = StreamedLayer(stream, module, (b, h, t, key.shape[2]), token.requires_grad_())
    layer.output = streamed_attention(query, key, value, scores, layer)
    stream.calls.append(layer)
    return layer.output.transpose(1, 2).contiguous(), None


def streamed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scores: ScoreFunction,
    layer: StreamedLayer,
    derivative: Derivative = PLAIN,
) -> Tensor:
    """What every head reads, (b, h, t, d). Torch function modes see this call as one operation."""
    tensors = (query, key, value)
    if has_torch_function(tensors):
        return handle_torch_function(streamed_attention, tensors, *tensors, scores, layer, derivative)
    return _StreamedAttention.apply(*tensors, layer.token, scores, layer, derivative)


class _StreamedAttention(Function):
    """Attention whose weights are computed again in the backward pass, a few heads at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        token: Tensor,
        scores: ScoreFunction,
        layer: StreamedLayer,
        derivative: Derivative,
    ) -> Tensor:
        """Fused, unless scores are capped or have sinks, which torch's own attention does not know."""
        ctx.save_for_backward(query, key, value)
        ctx.scores = scores
        ctx.layer = layer
        ctx.derivative = derivative
        if scores.cap is None and scores.sinks is None:
            repeats = query.shape[1] // key.shape[1]
            mask = None
            for term in scores.terms:
                mask = term if mask is None else mask + term
            return scaled_dot_product_attention(
                query,
                key.repeat_interleave(repeats, 1) if repeats > 1 else key,
                value.repeat_interleave(repeats, 1) if repeats > 1 else value,
                attn_mask=None if mask is None else mask.to(query.dtype),
                scale=scores.scale,
            )
        outputs = []
        for heads in _Heads.of(query, key):
            weights, _ = scores.weights(heads.queries(query), heads.keys(key), heads.queried)
            outputs.append(torch.matmul(weights, heads.keys(value)))
        return torch.cat(outputs, 1).to(query.dtype)

    @staticmethod
    @once_differentiable  # whose type loses the names of arguments
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Gradients of queries, keys and values; the layer observes weights and their gradient on the way."""
        (upstream,) = grad_outputs
        query, key, value = ctx.saved_tensors
        layer: StreamedLayer = ctx.layer
        derivative: Derivative = ctx.derivative
        b, _, t, s = layer.shape
        live = torch.zeros(b, t, s, dtype=torch.bool, device=query.device)
        reach = torch.zeros_like(live) if layer.is_top else live
        layer.means.clear()
        dtype = accumulation_dtype(query)
        query_gradient = torch.zeros_like(query)
        key_gradient = torch.zeros(key.shape, dtype=dtype, device=key.device)
        value_gradient = torch.zeros(value.shape, dtype=dtype, device=value.device)
        for heads in _Heads.of(query, key):
            queries = heads.queries(query)
            keys = heads.keys(key)
            weights, capped = ctx.scores.weights(queries, keys, heads.queried)
            output_gradient = heads.queries(upstream)
            if derivative.readout != 1:
                output_gradient = output_gradient * derivative.readout
            heads.add(value_gradient, torch.matmul(weights.transpose(-1, -2), output_gradient))
            gradient = torch.matmul(output_gradient, heads.keys(value).transpose(-1, -2))
            if layer.is_wanted:
                layer.observe(weights, gradient, live, reach)
            if derivative.product == 0:
                continue
            of_scores = gradient.mul_(weights)
            of_scores.addcmul_(weights, of_scores.sum(-1, keepdim=True), value=-1)
            if capped is not None:
                of_scores.mul_(_slope_of_cap(capped, derivative.cap_is_line))
            of_scores.mul_(ctx.scores.scale * derivative.product)
            query_gradient[:, heads.queried] = torch.matmul(of_scores, keys).to(query.dtype)
            heads.add(key_gradient, torch.matmul(of_scores.transpose(-1, -2), queries))
        if layer.is_wanted:
            layer.finish(live, reach)
        _return_freed_memory(query)
        nothing = torch.zeros_like(layer.token)
        return query_gradient, key_gradient.to(key.dtype), value_gradient.to(value.dtype), nothing, None, None, None


def _return_freed_memory(query: Tensor) -> None:
    """What a layer has freed is of no use to the next one, in the way in which memory is allocated on a CPU."""
    if query.device.type == "cpu":
        return_freed_memory(_TENSORS_OF_LAYER * query.nbytes)


def _slope_of_cap(capped: Tensor, is_line: bool) -> Tensor:
    """The derivative of `tanh` at these scores, or of the line through 0 and its value."""
    value = capped.tanh()
    if not is_line:
        return value.square_().neg_().add_(1)
    return torch.where(capped == 0, 1, value / capped)


@dataclass(frozen=True)
class _Heads:
    """Some heads whose weights are held together: all that share keys, several such groups, or a part of one."""

    queried: slice  # of the heads of queries
    keyed: slice  # of the heads of keys and values
    repeats: int  # heads of queries for each of keys

    @classmethod
    def of(cls, query: Tensor, key: Tensor) -> Iterator[_Heads]:
        """All heads, a few at a time."""
        b, h, t, _ = query.shape
        groups = h // key.shape[1]
        kind = query.device.type if query.device.type in CHUNK_WEIGHTS else "cpu"
        most = max(1, CHUNK_WEIGHTS[kind] // (b * t * key.shape[2]))
        if most >= groups:
            size = most // groups * groups
        else:
            size = max(divisor for divisor in range(1, most + 1) if groups % divisor == 0)
        for start in range(0, h, size):
            stop = min(start + size, h)
            keyed = slice(start // groups, (stop - 1) // groups + 1)
            yield cls(slice(start, stop), keyed, (stop - start) // (keyed.stop - keyed.start))

    def queries(self, tensor: Tensor) -> Tensor:
        """These heads (b, c, t, d) of a tensor with the heads of queries, in the precision of sums."""
        return tensor[:, self.queried].to(accumulation_dtype(tensor))

    def keys(self, tensor: Tensor) -> Tensor:
        """These heads (b, c, t, d) of a tensor with the heads of keys, one for each query's."""
        heads = tensor[:, self.keyed].to(accumulation_dtype(tensor))
        return heads if self.repeats == 1 else heads.repeat_interleave(self.repeats, 1)

    def add(self, total: Tensor, gradient: Tensor) -> None:
        """Add a gradient (b, c, t, d) of these heads to that of the keys or values (b, groups, t, d)."""
        if self.repeats > 1:
            gradient = gradient.unflatten(1, (-1, self.repeats)).sum(2)
        total[:, self.keyed].add_(gradient)
