"""A torch function mode under which autograd propagates relevance instead of gradients.

While it is active, results that depend on the input **carry** relevance: they come out of the autograd functions in
`rules.py`, or of operations that merely route elements. Everything else is a constant: weights, positions, masks, and
tensors that the model itself detaches. Nothing is attached to the model, so nothing has to be removed from it.

Beyond the table of operations:

- element-wise functions of the same tensor, however combined, are one activation and get the identity: a GELU
  written as `0.5 * x * (1 + tanh(...))` is a GELU
- a statistic (mean, variance, maximum ... over the last axis, which is kept) is a constant, which gives normalisations
  written by hand the identity; it may shift, scale and divide, and nothing else
- operations in place have the rule of their counterpart

The convention this file owns: no operation is missed. One that carries relevance and is in no table is an error that
names it, and so is a tensor that depends on the input through operations that this mode was not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from gaflow.errors import UnsupportedModelError
from gaflow.methods.lrp import operation_table as table
from gaflow.methods.lrp.marks import STATISTIC, Marks, float_tensors
from gaflow.methods.lrp.operation_table import Call, operation, uncovered
from gaflow.methods.lrp.rules import Sum
from gaflow.methods.lrp.two_operands import combine, multiply


class RelevanceMode(TorchFunctionMode):
    """Makes autograd propagate relevance, down to what the `roots` (weights of the input embedding) give."""

    def __init__(self, roots: Iterable[Tensor], items: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.seeds: list[Tensor] = []  # (b, t, d) each: where the relevance of the input is collected
        self.marks = Marks(items, dtype)
        self._roots = list(roots)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run `func` with its rule."""
        call = Call(func, operation(func), args, kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, call.kwargs)) if isinstance(leaf, Tensor)]
        for tensor in tensors:
            if tensor.requires_grad and not tensor.is_leaf and tensor not in self.marks:
                raise _untracked(tensor)
        marked = [tensor for tensor in tensors if tensor in self.marks]
        if not marked or not torch.is_grad_enabled():
            return self._run_constant(call, tensors)
        if call.op.name in table.CONSTANT:
            return call.run()
        if call.op.name in table.CAST:
            return self._cast(call)
        carriers = self.marks.carriers(marked)
        if not carriers:
            return self._statistic(call)
        if call.op.name in table.BINARY:
            return combine(self.marks, call)
        if len(carriers) < len(marked):
            return self._query(call)
        return self._run_carriers(call, carriers)

    def _run_carriers(self, call: Call, carriers: list[Tensor]) -> Any:
        """An operation of carriers and constants, without statistics."""
        name = call.op.name
        if name in table.BILINEAR:
            return combine(self.marks, call)
        if name in table.ELEMENTWISE or name in table.NORMALISING:
            return self._activate(call, carriers)
        if name in table.REDUCTION:
            return self._reduce(call, carriers)
        if name in table.ROUTING:
            return self._route(call)
        if name == "glu":
            return self._gate(call)
        return self._query(call)

    def _run(self, call: Call) -> Any:
        """The result in the precision of the pass."""
        return call.func(*self.marks.lift(call.args), **self.marks.lift(call.kwargs))

    def _value(self, call: Call) -> Any:
        with torch.no_grad():
            return self._run(call)

    def _run_constant(self, call: Call, tensors: list[Tensor]) -> Any:
        """An operation that does not depend on the input, unless it reads the input's embedding."""
        dtypes = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
        mixed = self.marks.dtype in dtypes and len(dtypes) > 1 and not call.op.in_place
        tracked = any(tensor.requires_grad for tensor in tensors)
        with torch.no_grad() if tracked else nullcontext():
            result = self._run(call) if mixed else call.run()
        rooted = any(tensor is root for tensor in tensors for root in self._roots)
        if not (tracked and rooted and call.op.name in table.START and torch.is_grad_enabled()):
            return result
        seed = result.to(self.marks.dtype, copy=True).requires_grad_()
        self.seeds.append(seed)
        return self.marks.begin(seed)

    def _query(self, call: Call) -> Any:
        """An operation without a rule: allowed if its result is no floating-point tensor, as for `x > 0`."""
        result = self._value(call)
        if result is None or float_tensors(result):
            raise uncovered(call.op)
        return result

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

    def _activate(self, call: Call, carriers: list[Tensor]) -> Tensor:
        """An activation or a normalisation: the identity."""
        if not self.marks.alike(carriers):
            raise uncovered(call.op)
        value = self._value(call)
        if any(value is carrier for carrier in carriers):  # overwritten, or nothing was done
            return value
        return self.marks.identity(carriers, value, elementwise=call.op.name not in table.NORMALISING)

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
        extreme = name in ("max", "min", "amax", "amin")
        if extreme and isinstance(call.get(1, "other"), Tensor):
            return self._activate(call, carriers)
        result = self._value(call)
        value = float_tensors(result)[0]
        if x.shape[-1] > 1 and value.shape == (*x.shape[:-1], 1):
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
        """GLU: the product of one half and the activated other half."""
        passed, gate = self.marks.put(call.get(0, "input").chunk(2, call.get(1, "dim", default=-1)))
        return multiply(self.marks, passed, self.marks.identity([gate], gate.detach().sigmoid()))


def _axes(call: Call, x: Tensor) -> list[int]:
    """The axes of `x` that a reduction sums over, in order; all if it names none."""
    axes = call.get(1, "dim", "axis")
    if isinstance(axes, int):
        axes = [axes]
    return sorted({axis % x.dim() for axis in axes or range(x.dim())})


def _untracked(tensor: Tensor) -> UnsupportedModelError:
    origin = tensor.grad_fn.name() if tensor.grad_fn else "an unknown function"
    return UnsupportedModelError(
        f"no relevance can be propagated through {origin}: it is no torch operation but one of the model's own (a "
        "custom kernel, script or autograd function); use a method of another family, such as agf or attcat"
    )
