"""Rules of operations with two operands: sums, products, quotients and everything that is linear in both.

The convention this file owns: an operand that does not carry relevance is a constant and gets none. Adding,
multiplying or dividing by a constant is the identity. A matrix product with a constant is a linear layer if the
constant is one matrix for all texts and heads, that is, a weight; a stack of matrices, as in relative attention scores
or in pooling by a mask, is the other operand of a product.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gaflow.methods.lrp.marks import Marks
from gaflow.methods.lrp.operation_table import Call, uncovered
from gaflow.methods.lrp.rules import Add, Bilinear, Linear, Product

__all__ = ["combine", "multiply"]


def combine(marks: Marks, call: Call) -> Tensor:
    """The result of an operation in BINARY or BILINEAR, with its rule."""
    if call.op.in_place:
        return _in_place(marks, call)
    name = call.op.name
    if name in ("conv1d", "conv2d"):
        return _convolve(marks, call)
    if name in ("addmm", "baddbmm"):
        return _add_product(marks, call)
    if name == "einsum":
        return _einsum(marks, call)
    if name == "linear":
        bias = marks.lift(call.get(2, "bias"))
        return _bilinear(marks, functional.linear, call.get(0, "input"), call.get(1, "weight"), bias)
    a, b = call.get(0, "input", "self"), call.get(1, "other", "mat2", "vec", "tensor")
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


def multiply(marks: Marks, a: Any, b: Any) -> Tensor:
    """`a * b`: half of the relevance each, or all of it to the only one that carries."""
    carriers = [t for t in (a, b) if marks.carries(t)]
    if len(carriers) == 2 and not marks.alike(carriers):
        return marks.put(Product.apply(a, b, torch.mul))
    with torch.no_grad():
        value = a * b
    return marks.identity(carriers, value)


def _scale(marks: Marks, x: Any, factor: Any) -> Any:
    if isinstance(factor, int | float) and factor == 1:
        return x
    return multiply(marks, x, factor) if marks.carries(x) else x * factor


def _add(marks: Marks, a: Any, b: Any) -> Tensor:
    carriers = [t for t in (a, b) if marks.carries(t)]
    if len(carriers) == 2 and not marks.alike(carriers):
        return marks.put(Add.apply(a, b, marks.items_in(torch.broadcast_shapes(a.shape, b.shape))))
    with torch.no_grad():
        value = a + b
    return marks.identity(carriers, value)


def _divide(marks: Marks, call: Call, a: Any, b: Any) -> Tensor:
    carriers = [t for t in (a, b) if marks.carries(t)]
    if call.kwargs.get("rounding_mode") is not None or not marks.alike(carriers):
        raise uncovered(call.op)
    with torch.no_grad():
        value = a / b
    return marks.identity(carriers, value)


def _bilinear(marks: Marks, f: Bilinear, a: Tensor, b: Tensor, bias: Any = None, weight: bool = True) -> Tensor:
    """`f(a, b) + bias`; whether an operand that does not carry is a weight, and the bias is a constant."""
    both = marks.carries(a) and marks.carries(b)
    if both or not weight:
        found = marks.put(Product.apply(*(t if marks.carries(t) else t.detach() for t in marks.lift((a, b))), f))
        return found if bias is None else _add(marks, found, bias)
    if marks.carries(a):
        return marks.put(Linear.apply(marks.lift(a), b.detach(), f, bias))
    return marks.put(Linear.apply(marks.lift(b), a.detach(), lambda x, w: f(w, x), bias))


def _matmul(marks: Marks, a: Tensor, b: Tensor, bias: Any = None) -> Tensor:
    """A single matrix is a weight, a stack is none, even of one: the first axis may be that of the texts."""
    fixed = b if marks.carries(a) else a
    return _bilinear(marks, torch.matmul, a, b, bias, weight=fixed.dim() <= 2)


def _add_product(marks: Marks, call: Call) -> Tensor:
    """`beta * input + alpha * a @ b`."""
    added, a, b = call.get(0, "input"), call.get(1, "mat1", "batch1"), call.get(2, "mat2", "batch2")
    alpha, beta = call.kwargs.get("alpha", 1), call.kwargs.get("beta", 1)
    added = marks.lift(added)
    if not (marks.carries(a) or marks.carries(b)):
        with torch.no_grad():
            product = torch.matmul(*marks.lift((a, b)))
    elif alpha == 1 and beta == 1 and not marks.carries(added):
        return _matmul(marks, a, b, added)
    else:
        product = _matmul(marks, a, b)
    product = _scale(marks, product, alpha)
    return product if beta == 0 else _add(marks, _scale(marks, added, beta), product)


def _einsum(marks: Marks, call: Call) -> Tensor:
    equation, *operands = call.args
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = list(operands[0])
    if not isinstance(equation, str) or len(operands) != 2 or "->" not in equation:
        raise uncovered(call.op)
    left, right, result = (set(part) - {" "} for part in re.split(",|->", equation))
    a, b = operands
    weight = not left & right & result
    return _bilinear(marks, lambda a, b: torch.einsum(equation, a, b), a, b, weight=weight)


def _convolve(marks: Marks, call: Call) -> Tensor:
    x, weight, bias = call.get(0, "input"), call.get(1, "weight"), marks.lift(call.get(2, "bias"))
    rest = call.args[3:]
    named = {k: v for k, v in call.kwargs.items() if k not in ("input", "weight", "bias")}
    if bias is not None:
        bias = bias.reshape(-1, *[1] * (weight.dim() - 2))
    return _bilinear(marks, lambda x, w: call.func(x, w, None, *rest, **named), x, weight, bias)


def _in_place(marks: Marks, call: Call) -> Tensor:
    """The rule for a copy of the operand that is overwritten, then the result written over it."""
    target = call.args[0]
    before = target.clone()
    if marks.carries(target):
        marks.put(before)
    target.copy_(combine(marks, call.out_of_place(before)))
    return marks.overwritten(target)
