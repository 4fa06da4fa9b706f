"""Rules of operations with two operands: sums, products, quotients and everything that is linear in both.

The convention this file owns: an operand that does not carry relevance is a constant and gets none. Adding,
multiplying or dividing by a constant is the identity. A matrix product with a constant is a linear layer if the
constant is one matrix for all texts and heads, that is, a weight; a stack of matrices, as in relative attention scores
or in pooling by a mask, is the other operand of a product.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gaflow.methods.lrp.marks import RelevanceMarks
from gaflow.methods.lrp.operation_table import Call, uncovered
from gaflow.methods.lrp.rules import Bilinear, Linear, Product, add

Operand = Any  # a tensor or a number


def combine(marks: RelevanceMarks, call: Call) -> Tensor:
    """The result of an operation in BINARY or BILINEAR, with its rule."""
    if call.op.in_place:
        return _in_place(marks, call)
    name = call.op.name
    if name in _SPECIAL:
        return _SPECIAL[name](marks, call)
    a = call.get(0, "input", "self")
    b = call.get(1, "other", "mat2", "vec", "tensor")
    if call.op.swapped:
        a, b = b, a
    if name == "matmul":
        return _matmul(marks, a, b)
    a, b = marks.lift((a, b))
    if name == "mul":
        return multiply(marks, a, b)
    if name == "div":
        return _divide(marks, call, a, b)
    sign = -1 if name == "sub" else 1
    return _add(marks, a, _scale(marks, b, sign * call.kwargs.get("alpha", 1)))


def multiply(marks: RelevanceMarks, a: Operand, b: Operand) -> Tensor:
    """`a * b`: half of the relevance each, or all of it to the only one that carries."""
    return _elementwise(marks, a, b, operator.mul, lambda x, y: Product.apply(x, y, torch.mul))


def _add(marks: RelevanceMarks, a: Operand, b: Operand) -> Tensor:
    def rule(x: Tensor, y: Tensor) -> Tensor:
        return add(x, y, marks.items_in(torch.broadcast_shapes(x.shape, y.shape)))

    return _elementwise(marks, a, b, operator.add, rule)


def _divide(marks: RelevanceMarks, call: Call, a: Operand, b: Operand) -> Tensor:
    def refuse(_x: Tensor, _y: Tensor) -> Tensor:
        raise uncovered(call.op)

    if call.kwargs.get("rounding_mode") is not None:
        raise uncovered(call.op)
    return _elementwise(marks, a, b, operator.truediv, refuse)


def _elementwise(
    marks: RelevanceMarks, a: Operand, b: Operand, function: Callable[[Any, Any], Any], rule: Bilinear
) -> Tensor:
    """`function(a, b)`: the `rule` for two different carriers, otherwise the identity."""
    carriers = marks.carriers((a, b))
    if len(carriers) == 2 and not marks.alike(carriers):
        return marks.put(rule(*carriers))
    with torch.no_grad():
        value = function(a, b)
    return marks.identity(carriers, value)


def _scale(marks: RelevanceMarks, x: Operand, factor: float) -> Operand:
    if isinstance(factor, int | float) and factor == 1:
        return x
    return multiply(marks, x, factor) if marks.carries(x) else x * factor


def _bilinear(
    marks: RelevanceMarks, f: Bilinear, a: Tensor, b: Tensor, bias: object = None, weight: bool = True
) -> Tensor:
    """`f(a, b) + bias`; whether an operand that does not carry is a weight, and the bias is a constant."""
    both = marks.carries(a) and marks.carries(b)
    if both or not weight:
        operands = [x if marks.carries(x) else x.detach() for x in marks.lift((a, b))]
        product = marks.put(Product.apply(*operands, f))
        return product if bias is None else _add(marks, product, bias)
    if marks.carries(a):
        return marks.put(Linear.apply(marks.lift(a), b.detach(), f, bias))
    return marks.put(Linear.apply(marks.lift(b), a.detach(), lambda x, w: f(w, x), bias))


def _matmul(marks: RelevanceMarks, a: Tensor, b: Tensor, bias: object = None) -> Tensor:
    """A single matrix is a weight, a stack is none, even of one: the first axis may be that of the texts."""
    fixed = b if marks.carries(a) else a
    return _bilinear(marks, torch.matmul, a, b, bias, weight=fixed.dim() <= 2)


def _add_product(marks: RelevanceMarks, call: Call) -> Tensor:
    """`beta * input + alpha * a @ b`."""
    added = marks.lift(call.get(0, "input"))
    a = call.get(1, "mat1", "batch1")
    b = call.get(2, "mat2", "batch2")
    alpha = call.kwargs.get("alpha", 1)
    beta = call.kwargs.get("beta", 1)
    if not (marks.carries(a) or marks.carries(b)):
        with torch.no_grad():
            product = torch.matmul(*marks.lift((a, b)))
    elif alpha == 1 and beta == 1 and not marks.carries(added):
        return _matmul(marks, a, b, added)
    else:
        product = _matmul(marks, a, b)
    product = _scale(marks, product, alpha)
    return product if beta == 0 else _add(marks, _scale(marks, added, beta), product)


def _einsum(marks: RelevanceMarks, call: Call) -> Tensor:
    equation, *operands = call.args
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = list(operands[0])
    if not isinstance(equation, str) or len(operands) != 2 or "->" not in equation:
        raise uncovered(call.op)
    left, right, result = (set(part) - {" "} for part in re.split(",|->", equation))
    a, b = operands
    weight = not left & right & result
    return _bilinear(marks, lambda a, b: torch.einsum(equation, a, b), a, b, weight=weight)


def _layer(marks: RelevanceMarks, call: Call) -> Tensor:
    """A linear layer or a convolution."""
    weight = call.get(1, "weight")
    bias = marks.lift(call.get(2, "bias"))
    options = {name: value for name, value in call.kwargs.items() if name not in ("input", "weight", "bias")}
    if bias is not None and weight.dim() > 2:
        bias = bias.reshape(-1, *[1] * (weight.dim() - 2))

    def apply(x: Tensor, w: Tensor) -> Tensor:
        return call.func(x, w, None, *call.args[3:], **options)

    return _bilinear(marks, apply, call.get(0, "input"), weight, bias)


def _in_place(marks: RelevanceMarks, call: Call) -> Tensor:
    """The rule for a copy of the operand that is overwritten, then the result written over it."""
    target = call.args[0]
    before = target.clone()
    if marks.carries(target):
        marks.put(before)
    target.copy_(combine(marks, call.out_of_place(before)))
    return marks.overwritten(target)


_SPECIAL = {  # operations whose operands are not simply their first two arguments
    "linear": _layer,
    "addmm": _add_product,
    "baddbmm": _add_product,
    "einsum": _einsum,
    "conv1d": _layer,
    "conv2d": _layer,
}
