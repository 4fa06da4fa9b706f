"""A torch function mode under which autograd propagates relevance instead of gradients.

Results that carry relevance come out of the autograd functions in `rules.py`, or of operations that merely route
elements. Beyond the table of operations:

- element-wise functions of the same tensor, however combined, are one activation and get the identity: a GELU
  written as `0.5 * x * (1 + tanh(...))` is a GELU
- a statistic (mean, variance, maximum ... over the last axis, which is kept) is a constant, which gives normalisations
  written by hand the identity; it may shift, scale and divide, and nothing else
- operations in place have the rule of their counterpart

The convention this file owns: relevance is in the precision of the pass, whatever the model casts to.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from gaflow.methods.lrp import operation_table as table
from gaflow.methods.lrp.marks import STATISTIC, RelevanceMarks, float_tensors
from gaflow.methods.lrp.operation_mode import OperationMode, is_statistic
from gaflow.methods.lrp.operation_table import Call, uncovered
from gaflow.methods.lrp.rules import Sum
from gaflow.methods.lrp.two_operands import combine, multiply


class RelevanceMode(OperationMode[RelevanceMarks]):
    """Makes autograd propagate relevance, down to what the `roots` (weights of the input embedding) give."""

    def __init__(self, roots: Iterable[Tensor], items: int, dtype: torch.dtype) -> None:
        super().__init__(roots, RelevanceMarks(items, dtype))
        self.seeds: list[Tensor] = []  # (b, t, d) each: where the relevance of the input is collected

    def _run(self, call: Call) -> Any:
        """The result in the precision of the pass."""
        return call.func(*self.marks.lift(call.args), **self.marks.lift(call.kwargs))

    def _value(self, call: Call) -> Any:
        with torch.no_grad():
            return self._run(call)

    def _run_constant(self, call: Call, tensors: list[Tensor]) -> Any:
        dtypes = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
        mixed = self.marks.dtype in dtypes and len(dtypes) > 1 and not call.op.in_place
        tracked = any(tensor.requires_grad for tensor in tensors)
        with torch.no_grad() if tracked else nullcontext():
            result = self._run(call) if mixed else call.run()
        if not (tracked and self._reads_input(call, tensors)):
            return result
        seed = result.to(self.marks.dtype, copy=True).requires_grad_()
        self.seeds.append(seed)
        return self.marks.begin(seed)

    def _cast(self, call: Call) -> Any:
        """Relevance stays in the precision of the pass, whatever the model casts to; devices are the model's."""
        with torch.no_grad():
            result = call.run()
        x = call.args[0]
        if not float_tensors(result) or x not in self.marks:
            return result
        return x if result is x else self.marks.copy(x, result.device)

    def _statistic(self, call: Call) -> Any:
        if call.op.name not in table.ELEMENTWISE | table.BINARY | table.ROUTING:
            return self._query(call)
        return self.marks.put(self._value(call), STATISTIC)

    def _combine(self, call: Call) -> Tensor:
        return combine(self.marks, call)

    def _multiply(self, call: Call) -> Tensor:
        return combine(self.marks, call)

    def _activate(self, call: Call, carriers: list[Tensor]) -> Tensor:
        """An activation or a normalisation: the identity."""
        if not self.marks.alike(carriers):
            raise uncovered(call.op)
        value = self._value(call)
        if any(value is carrier for carrier in carriers):  # overwritten, or nothing was done
            return value
        return self.marks.identity(carriers, value, elementwise=call.op.name not in table.NORMALISING)

    def _normalise(self, call: Call, carriers: list[Tensor]) -> Tensor:
        return self._activate(call, carriers)

    def _route(self, call: Call) -> Any:
        if not (call.op.in_place or call.op.name == "setitem"):
            return self.marks.put(self._run(call))
        target, *others = call.args
        result = call.func(target, *self.marks.lift(others), **self.marks.lift(call.kwargs))
        self.marks.overwritten(target)
        return result

    def _reduce(self, call: Call, carriers: list[Tensor]) -> Any:
        x = carriers[0]
        name = call.op.name
        extreme = name in table.EXTREMES
        if extreme and isinstance(call.get(1, "other"), Tensor):
            return self._activate(call, carriers)
        result = self._value(call)
        if is_statistic(x, float_tensors(result)[0]):
            return self.marks.put(result, STATISTIC)
        if extreme:
            return self._route(call)
        axes = _axes(call, x)
        if name not in ("sum", "mean") or axes[0] == 0:
            raise uncovered(call.op)
        x = self.marks.lift(x)
        parts = x.movedim(axes, list(range(-len(axes), 0))).flatten(-len(axes))  # reduced axes as one, the last
        return self.marks.put(Sum.apply(parts, -1, self.marks.items_in(x.shape), lambda: result))

    def _gate(self, call: Call) -> Tensor:
        passed, gate = self.marks.put(call.get(0, "input").chunk(2, call.get(1, "dim", default=-1)))
        return multiply(self.marks, passed, self.marks.identity([gate], gate.detach().sigmoid()))


def _axes(call: Call, x: Tensor) -> list[int]:
    """The axes of `x` that a reduction sums over, in order; all if it names none."""
    axes = call.get(1, "dim", "axis")
    if isinstance(axes, int):
        axes = [axes]
    return sorted({axis % x.dim() for axis in axes or range(x.dim())})
