"""Derivatives of balanced gradients, as autograd functions whose forward is the model's own value.

With `sg` a constant of the backward pass:

- activation `a`: as `a(0) + x sg((a(x) - a(0)) / x)`, with `a'(0)` where `x` is 0; `a(0)`, mostly 0, is a bias
- LayerNorm: as `w (x - mean x) sg(1 / std x) + b`
- factor of a product of two carriers: half of its gradient

The convention this file owns: forward values are those of the model, bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function

from gaflow.methods.lrp.operation_table import Operation, uncovered
from gaflow.methods.lrp.rules import Relevances

Elementwise = Callable[[Tensor], Tensor]


class Scaled(Function):
    """The operand itself; its gradient is multiplied by a factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        """A view of `x`."""
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *results: Tensor) -> Relevances:
        """A multiple of the gradient."""
        (gradient,) = results
        return gradient * ctx.factor, None


class Activation(Function):
    """`value() = function(x)`, element by element, differentiated as a line through its value at 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Callable[[], Tensor], function: Elementwise, op: Operation) -> Tensor:
        """The value as the model computed it."""
        ctx.save_for_backward(x)  # not the value, which is as large, and computed again in no time
        ctx.function = function
        ctx.op = op
        return value()

    @staticmethod
    def backward(ctx: Any, *results: Tensor) -> Relevances:
        """The gradient by the slope of the line; a function without a value at 0 has none."""
        (gradient,) = results
        (x,) = ctx.saved_tensors
        at_zero = ctx.function(x.new_zeros(()))
        # The difference of nearly equal values has few digits: near 0 the derivative there is more exact.
        nearest = at_zero.any().to(x.dtype) * torch.finfo(x.dtype).eps ** 0.5
        near_zero = x.abs() <= nearest
        flags = torch.stack([at_zero.isfinite().all(), near_zero.any()])
        is_finite, is_near_zero = flags.tolist()  # a GPU is waited for once
        if not is_finite:
            raise uncovered(ctx.op)
        slope = (ctx.function(x) - at_zero).div_(x)
        if is_near_zero:
            slope = torch.where(near_zero, _derivative_at_zero(ctx.function, x), slope)
        return gradient * slope, None, None, None


def _derivative_at_zero(function: Elementwise, x: Tensor) -> Tensor:
    with torch.enable_grad():
        zero = x.new_zeros(()).requires_grad_()
        value = function(zero.clone())
        (slope,) = torch.autograd.grad(value.sum(), zero)
    return slope


class LayerNorm(Function):
    """LayerNorm with a constant standard deviation."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> Tensor:
        """As torch's own."""
        result, _, inverse_deviation = torch.native_layer_norm(x, shape, weight, bias, eps)
        ctx.save_for_backward(inverse_deviation, weight)
        ctx.axes = tuple(range(-len(shape), 0))
        return result

    @staticmethod
    def backward(ctx: Any, *results: Tensor) -> Relevances:
        """The gradient of the centred and scaled operand."""
        (gradient,) = results
        inverse_deviation, weight = ctx.saved_tensors
        if weight is not None:
            gradient = gradient * weight
        centred = gradient - gradient.mean(ctx.axes, keepdim=True)
        return centred * inverse_deviation.to(centred), None, None, None, None
