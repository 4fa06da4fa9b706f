"""The rules of layer-wise relevance propagation (alpha = 1), as autograd functions whose backward is the rule.

With `R` the relevance of an operation's result and `div(a, b) = a / (b + 1e-9)`, 0 where `b = 0`:

- identity: the operand gets `R`
- linear `y = x Wᵀ + b`: `Z_kj = x_j⁺ W_kj⁺ + x_j⁻ W_kj⁻`, `R_j = Σ_k Z_kj div(R_k, Σ_j' Z_kj')`; no part for `b`
- product `Z = X Y`: `S = div(R, Z)`, `R_X = X * (S Yᵀ) / 2`, `R_Y = Y * (Xᵀ S) / 2`; not halved if one is a constant
- sum of parts `y = Σ_i x_i`: `a_i = x_i div(R, y)`, then with `S_i = Σ a_i` and `T = Σ R` over the whole item
  `R_i = a_i div(T |S_i| / Σ_k |S_k|, S_i)`; an addition has two parts, a pooling sum has one per position

The convention this file owns: linear and product rules hold for any function that is linear in each of its two
operands (matrix product, convolution, element-wise product ...); transposes are left to autograd. Items of a batch
lie one after another along the first axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function
from torch.func import vjp

Bilinear = Callable[[Tensor, Tensor], Tensor]
Relevances = tuple[Tensor | None, ...]  # of the arguments of `forward`; None for those that get none
_TINY = 1e-9


def div(a: Tensor, b: Tensor) -> Tensor:
    """`a / (b + 1e-9)`, 0 where `b` is 0."""
    return torch.where(b == 0, 0, a / (b + _TINY))


class Identity(Function):
    """The relevance of the result is the operand's; where the operand was broadcast it is summed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Callable[[], Tensor]) -> Tensor:
        """The result that `value` gives; a function, since autograd would take a tensor for an operand."""
        ctx.shape = x.shape
        return _owned(value())

    @staticmethod
    def backward(ctx: Any, *results: Tensor) -> Relevances:
        """Relevance as it is."""
        (relevance,) = results
        return relevance.sum_to_size(ctx.shape), None


class Linear(Function):
    """`f(x, w) + bias` of an operand and a constant.

    The layer that `y` is read from has a `readout`, which counts the items in a shape. Then `y = Σ V x`, where `V` is
    the product of the weights of the layer and of the read-out, and the rule is applied to that one layer. For a single
    logit this is the same; for the difference of two it finds the evidence for one rather than the other.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, f: Bilinear, bias: Tensor | None) -> Tensor:
        """`f(x, w) + bias` in the precision of `x`; `w` keeps its own precision, to avoid a copy of the model."""
        ctx.save_for_backward(x, w)
        ctx.f = f
        ctx.readout = None
        y = f(x, w.to(x.dtype))
        return _owned(y) if bias is None else y + bias

    @staticmethod
    def backward(ctx: Any, *results: Tensor) -> Relevances:
        """Relevance in proportion to positive contributions."""
        (relevance,) = results
        x, w = ctx.saved_tensors
        f = ctx.f
        w = w.to(x.dtype)
        positive = x.clamp(min=0)
        negative = x.clamp(max=0)
        if ctx.readout is not None:
            _, pull, *_ = vjp(lambda x: f(x, w), x)
            (v,) = pull(relevance)
            z = positive * v.clamp(min=0) + negative * v.clamp(max=0)
            z = z.reshape(ctx.readout(x.shape), -1)
            total = z.sum(1, keepdim=True)
            shares = z * div(torch.ones_like(total), total)
            return shares.reshape(x.shape), None, None, None
        positive_w = w.clamp(min=0)
        negative_w = w.clamp(max=0)
        z, pull, *_ = vjp(lambda above, below: f(above, positive_w) + f(below, negative_w), positive, negative)
        to_positive, to_negative = pull(div(relevance, z))
        return positive * to_positive + negative * to_negative, None, None, None


class Product(Function):
    """`f(x, y)` of two operands: half of the relevance each, or all of it for the only one that is no constant."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, f: Bilinear) -> Tensor:
        """`f(x, y)`; the result is not kept, since models may go on writing into attention scores."""
        ctx.save_for_backward(x, y)
        ctx.f = f
        ctx.carriers = 2 if x.requires_grad and y.requires_grad else 1
        return _owned(f(x, y))

    @staticmethod
    def backward(ctx: Any, *results: Tensor) -> Relevances:
        """Relevance in proportion to contributions, shared out evenly."""
        (relevance,) = results
        x, y = ctx.saved_tensors
        z, pull, *_ = vjp(ctx.f, x, y)
        to_x, to_y = pull(div(relevance, z))
        return x * to_x / ctx.carriers, y * to_y / ctx.carriers, None


class Sum(Function):
    """Sum of `x` over `axis`, or a multiple of it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: int, items: int, value: Callable[[], Tensor]) -> Tensor:
        """The result that `value` gives, of any shape."""
        ctx.save_for_backward(x)
        ctx.axis = axis
        ctx.items = items
        return _owned(value())

    @staticmethod
    def backward(ctx: Any, *results: Tensor) -> Relevances:
        """Relevance in proportion to contributions, balanced between the positions along the axis."""
        (relevance,) = results
        (x,) = ctx.saved_tensors
        total = x.sum(ctx.axis, keepdim=True)
        contributions = x * div(relevance.reshape(total.shape), total)
        parts = _balance(contributions.movedim(ctx.axis, 0), relevance, ctx.items)
        return parts.movedim(0, ctx.axis), None, None, None


def add(x: Tensor, y: Tensor, items: int) -> Tensor:
    """`x + y` of two operands, which may be broadcast."""
    parts = torch.stack(torch.broadcast_tensors(x, y))
    return Sum.apply(parts, 0, items, lambda: x + y)


RULES = (Identity, Linear, Product, Sum)


def _balance(parts: Tensor, relevance: Tensor, items: int) -> Tensor:
    """Parts (p, ...) of an item scaled to sums that have one sign and the item's relevance as their total."""
    flat = parts.reshape(len(parts), items, -1)  # (p, items, n)
    sums = flat.sum(-1)  # (p, items)
    total = relevance.reshape(items, -1).sum(-1)  # (items,)
    sum_of_parts = sums.abs().sum(0)
    balanced = total * torch.where(sum_of_parts == 0, 0, sums.abs() / sum_of_parts)
    return (flat * div(balanced, sums)[..., None]).reshape(parts.shape)


def _owned(result: Tensor) -> Tensor:
    """`result` in memory of its own: autograd lets nobody write into views that such functions give."""
    return result.clone() if result._is_view() else result
