"""A torch function mode under which autograd propagates relevance instead of gradients.

While it is active, results that depend on the input **carry** relevance: they come out of the autograd functions in
`rules.py`, or of operations that merely route elements. Everything else is a constant: weights, positions, masks, and
whatever the model itself cuts off. Nothing is attached to the model, so nothing has to be taken off it.

Beyond the table of operations:

- element-wise functions of the same tensor, however combined, are one activation and get the identity: a GELU
  written as `0.5 * x * (1 + tanh(...))` is a GELU
- a statistic (mean, variance, maximum ... over the last axis, which is kept) is a constant, so that normalisations
  written by hand get the identity; it may shift, scale and divide, and nothing else
- operations in place have the rule of their counterpart

The convention this file owns: no operation passes unseen. One that carries relevance and is in no table is an error
that names it, and so is a tensor that depends on the input by a way that this mode did not see.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from gaflow.errors import UnsupportedModelError
from gaflow.methods.lrp import operation_table as table
from gaflow.methods.lrp.marks import STATISTIC, Marks, floats
from gaflow.methods.lrp.operation_table import Call, operation, uncovered
from gaflow.methods.lrp.rules import Sum
from gaflow.methods.lrp.two_operands import combine, multiply

__all__ = ["RelevanceMode"]


class RelevanceMode(TorchFunctionMode):
    """Makes autograd propagate relevance, down to what the `roots` (weights of the input embedding) give."""

    def __init__(self, roots: Iterable[Tensor], items: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.seeds: list[Tensor] = []  # (b, t, d) each: where the relevance of the input is collected
        self.marks = Marks(items, dtype)
        self._roots = list(roots)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `func` with the rule that it has."""
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        for tensor in tensors:
            if tensor.requires_grad and not tensor.is_leaf and tensor not in self.marks:
                raise _unseen(tensor)
        call = Call(func, operation(func), args, kwargs)
        marked = [t for t in tensors if t in self.marks]
        if not marked or not torch.is_grad_enabled():
            return self._constant(call, tensors)
        carriers = [t for t in marked if self.marks.carries(t)]
        name = call.op.name
        if name in table.CONSTANT:
            return func(*args, **kwargs)
        if name in table.CAST:
            return self._cast(call)
        if not carriers:
            return self._statistic(call)
        if name in table.BINARY:
            return combine(self.marks, call)
        if len(carriers) < len(marked):
            return self._ask(call)
        if name in table.BILINEAR:
            return combine(self.marks, call)
        if name in table.ELEMENTWISE or name in table.NORMALISING:
            return self._change(call, carriers)
        if name in table.REDUCTION:
            return self._reduce(call, carriers)
        if name in table.ROUTING:
            return self._route(call)
        return self._gate(call) if name == "glu" else self._ask(call)

    def _run(self, call: Call) -> Any:
        return call.func(*self.marks.lift(call.args), **self.marks.lift(call.kwargs))

    def _value(self, call: Call) -> Any:
        with torch.no_grad():
            return self._run(call)

    def _constant(self, call: Call, tensors: list[Tensor]) -> Any:
        """An operation that does not depend on the input, unless it reads the input's embedding."""
        kinds = {t.dtype for t in tensors if t.is_floating_point()}
        mixed = self.marks.dtype in kinds and len(kinds) > 1 and not call.op.in_place
        if not any(t.requires_grad for t in tensors):
            return self._run(call) if mixed else call.func(*call.args, **call.kwargs)
        with torch.no_grad():
            found = self._run(call) if mixed else call.func(*call.args, **call.kwargs)
        rooted = any(t is root for t in tensors for root in self._roots)
        if rooted and call.op.name in table.START and torch.is_grad_enabled():
            seed = found.to(self.marks.dtype, copy=True).requires_grad_()
            self.seeds.append(seed)
            return self.marks.begin(seed)
        return found

    def _ask(self, call: Call) -> Any:
        """An operation without a rule: fine if it only asks, as `x.shape` and `x > 0` do."""
        found = self._value(call)
        if found is None or floats(found):
            raise uncovered(call.op)
        return found

    def _cast(self, call: Call) -> Any:
        """Relevance stays in the precision of the pass, whatever the model casts to; devices are the model's."""
        with torch.no_grad():
            found = call.func(*call.args, **call.kwargs)
        x = call.args[0]
        if not floats(found) or x not in self.marks:
            return found
        return x if found is x else self.marks.copy(x, found.device)

    def _statistic(self, call: Call) -> Any:
        if call.op.name not in table.ELEMENTWISE | table.BINARY | table.ROUTING:
            return self._ask(call)
        return self.marks.put(self._value(call), STATISTIC)

    def _change(self, call: Call, carriers: list[Tensor]) -> Tensor:
        """An activation or a normalisation: the identity."""
        if not self.marks.alike(carriers):
            raise uncovered(call.op)
        value = self._value(call)
        if any(value is x for x in carriers):  # overwritten, or nothing was done
            return value
        return self.marks.identity(carriers, value, elementwise=call.op.name not in table.NORMALISING)

    def _route(self, call: Call) -> Any:
        if not (call.op.in_place or call.op.name == "setitem"):
            return self.marks.put(self._run(call))
        target, *others = call.args
        found = call.func(target, *self.marks.lift(others), **self.marks.lift(call.kwargs))
        self.marks.overwritten(target)
        return found

    def _reduce(self, call: Call, carriers: list[Tensor]) -> Any:
        x, name = carriers[0], call.op.name
        extreme = name in ("max", "min", "amax", "amin")
        if extreme and isinstance(call.get(1, "other"), Tensor):
            return self._change(call, carriers)
        found = self._value(call)
        first = floats(found)[0]
        if x.shape[-1] > 1 and first.shape == (*x.shape[:-1], 1):
            return self.marks.put(found, STATISTIC)
        if extreme:
            return self._route(call)
        given = call.get(1, "dim", "axis")
        axes = sorted({k % x.dim() for k in ([given] if isinstance(given, int) else given or range(x.dim()))})
        if name not in ("sum", "mean") or axes[0] == 0:
            raise uncovered(call.op)
        x = self.marks.lift(x)
        last = x.movedim(axes, list(range(-len(axes), 0))).flatten(-len(axes))
        total = Sum.apply(last, last.dim() - 1, self.marks.items_in(x.shape)).reshape(first.shape)
        return self.marks.identity([self.marks.put(total)], found)

    def _gate(self, call: Call) -> Tensor:
        """GLU: the product of one half and the activated other half."""
        passed, gate = self.marks.put(call.get(0, "input").chunk(2, call.get(1, "dim", default=-1)))
        return multiply(self.marks, passed, self.marks.identity([gate], gate.detach().sigmoid()))


def _unseen(tensor: Tensor) -> UnsupportedModelError:
    origin = tensor.grad_fn.name() if tensor.grad_fn else "an unknown function"
    return UnsupportedModelError(
        f"no relevance can be propagated through {origin}: it is no torch operation but one of the model's own (a "
        "custom kernel, script or autograd function); use a method of another family, such as agf or attcat"
    )
