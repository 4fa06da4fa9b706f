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

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function

__all__ = ["RULES", "Add", "Bilinear", "Identity", "Linear", "Product", "Sum", "div"]

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
            (v,) = _pull(lambda x: f(x, w), (x,), lambda _: relevance)
            z = positive * v.clamp(min=0) + negative * v.clamp(max=0)
            z = z.reshape(ctx.readout(x.shape), -1)
            total = z.sum(1, keepdim=True)
            shares = z * div(torch.ones_like(total), total)
            return shares.reshape(x.shape), None, None, None
        positive_w = w.clamp(min=0)
        negative_w = w.clamp(max=0)
        to_positive, to_negative = _pull(
            lambda x_positive, x_negative: f(x_positive, positive_w) + f(x_negative, negative_w),
            (positive, negative),
            lambda z: div(relevance, z),
        )
        return positive * to_positive + negative * to_negative, None, None, None


class Product(Function):
    """`f(x, y)` of two operands: half of the relevance each, or all of it for the only one that is no constant."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, f: Bilinear) -> Tensor:
        """`f(x, y)`; the result is not kept, since models may go on writing into attention scores."""
        ctx.save_for_backward(x, y)
        ctx.f = f
        ctx.carrying = (x.requires_grad, y.requires_grad)
        return _owned(f(x, y))

    @staticmethod
    def backward(ctx: Any, *results: Tensor) -> Relevances:
        """Relevance in proportion to contributions, shared out evenly."""
        (relevance,) = results
        x, y = ctx.saved_tensors
        f = ctx.f
        x_carries, y_carries = ctx.carrying
        if x_carries and y_carries:
            to_x, to_y = _pull(f, (x, y), lambda z: div(relevance, z))
            return x * to_x / 2, y * to_y / 2, None
        if x_carries:
            (to_x,) = _pull(lambda x: f(x, y), (x,), lambda z: div(relevance, z))
            return x * to_x, None, None
        (to_y,) = _pull(lambda y: f(x, y), (y,), lambda z: div(relevance, z))
        return None, y * to_y, None


class Add(Function):
    """`x + y` of two operands, which may be broadcast."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, items: int) -> Tensor:
        """The sum."""
        ctx.save_for_backward(x, y)
        ctx.items = items
        return x + y

    @staticmethod
    def backward(ctx: Any, *results: Tensor) -> Relevances:
        """Relevance in proportion to contributions, balanced between the two."""
        (relevance,) = results
        x, y = ctx.saved_tensors
        share = div(relevance, x + y)
        parts = _balance(torch.stack([x * share, y * share]), relevance, ctx.items)
        return parts[0].sum_to_size(x.shape), parts[1].sum_to_size(y.shape), None


class Sum(Function):
    """Sum of `x` over `axis`, which stays with length 1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: int, items: int) -> Tensor:
        """The sum."""
        ctx.save_for_backward(x)
        ctx.axis = axis
        ctx.items = items
        return x.sum(axis, keepdim=True)

    @staticmethod
    def backward(ctx: Any, *results: Tensor) -> Relevances:
        """Relevance in proportion to contributions, balanced between the positions along the axis."""
        (relevance,) = results
        (x,) = ctx.saved_tensors
        contributions = x * div(relevance, x.sum(ctx.axis, keepdim=True))
        parts = _balance(contributions.movedim(ctx.axis, 0), relevance, ctx.items)
        return parts.movedim(0, ctx.axis), None, None


RULES = (Identity, Linear, Product, Add, Sum)


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


def _pull(f: Callable[..., Tensor], operands: Sequence[Tensor], back: Callable[[Tensor], Tensor]) -> Sequence[Tensor]:
    """`back(f(operands))` through the transpose of `f`, in every operand."""
    with torch.enable_grad():
        leaves = [operand.detach().requires_grad_() for operand in operands]
        z = f(*leaves)
    return torch.autograd.grad(z, leaves, back(z.detach()))
