"""A torch function mode that tells which kind of operation each call of a model is, for rules to act on.

While it is active, results that depend on the input **carry** relevance. Everything else is a constant: weights,
positions, masks, and tensors that the model itself detaches. Nothing is attached to the model, so nothing has to be
removed from it. `RelevanceMode` and `BalancedMode` say what becomes of each kind.

The convention this file owns: no operation is missed. One that carries relevance and is in no table is an error that
names it, and so is a tensor that depends on the input through operations that the mode was not shown.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from gaflow.errors import UnsupportedModelError
from gaflow.methods.lrp import operation_table as table
from gaflow.methods.lrp.marks import Marks, float_tensors
from gaflow.methods.lrp.operation_table import Call, operation, uncovered

AnyMarks = TypeVar("AnyMarks", bound=Marks)


class OperationMode(TorchFunctionMode, ABC, Generic[AnyMarks]):
    """Sorts operations by the tables, from what the `roots` (weights of the input embedding) give on."""

    def __init__(self, roots: Iterable[Tensor], marks: AnyMarks) -> None:
        super().__init__()
        self.marks = marks
        self._roots = list(roots)

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run `func` with its rule."""
        call = Call(func, operation(func), args, kwargs or {})
        tensors = _tensors(call)
        marked = []
        for tensor in tensors:
            if tensor in self.marks:
                marked.append(tensor)
            elif tensor.requires_grad and not tensor.is_leaf:
                raise _untracked(tensor)
        if call.op.name in table.QUESTION:
            return call.run()
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
            return self._combine(call)
        if len(carriers) < len(marked):
            return self._query(call)
        return self._run_carriers(call, carriers)

    def _run_carriers(self, call: Call, carriers: list[Tensor]) -> Any:
        """An operation of carriers and constants, without statistics."""
        name = call.op.name
        if name in table.BILINEAR:
            return self._multiply(call)
        if name in table.ELEMENTWISE:
            return self._activate(call, carriers)
        if name in table.NORMALISING:
            return self._normalise(call, carriers)
        if name in table.REDUCTION:
            return self._reduce(call, carriers)
        if name in table.ROUTING:
            return self._route(call)
        if name in table.LINEAR:
            return self._add_up(call)
        if name in table.STREAMED:
            return self._stream(call)
        if name == "glu":
            return self._gate(call)
        return self._query(call)

    def _query(self, call: Call) -> Any:
        """An operation without a rule: allowed if its result is no floating-point tensor, as for `x > 0`."""
        result = self._value(call)
        if result is None or float_tensors(result):
            raise uncovered(call.op)
        return result

    def _reads_input(self, call: Call, tensors: list[Tensor]) -> bool:
        """Whether an operation of constants reads the input's embedding."""
        if call.op.name not in table.START or not torch.is_grad_enabled():
            return False
        return any(tensor is root for tensor in tensors for root in self._roots)

    @abstractmethod
    def _value(self, call: Call) -> Any:
        """The result without a graph."""

    @abstractmethod
    def _run_constant(self, call: Call, tensors: list[Tensor]) -> Any:
        """An operation that does not depend on the input, unless it reads the input's embedding."""

    @abstractmethod
    def _cast(self, call: Call) -> Any:
        """A change of precision or device."""

    @abstractmethod
    def _statistic(self, call: Call) -> Any:
        """An operation of statistics and constants."""

    @abstractmethod
    def _combine(self, call: Call) -> Tensor:
        """An operation in BINARY of at least one carrier."""

    @abstractmethod
    def _multiply(self, call: Call) -> Tensor:
        """An operation in BILINEAR of at least one carrier."""

    @abstractmethod
    def _activate(self, call: Call, carriers: list[Tensor]) -> Tensor:
        """An operation in ELEMENTWISE."""

    @abstractmethod
    def _normalise(self, call: Call, carriers: list[Tensor]) -> Tensor:
        """An operation in NORMALISING."""

    @abstractmethod
    def _reduce(self, call: Call, carriers: list[Tensor]) -> Any:
        """An operation in REDUCTION."""

    @abstractmethod
    def _route(self, call: Call) -> Any:
        """An operation in ROUTING."""

    def _add_up(self, call: Call) -> Any:
        """An operation in LINEAR."""
        return self._query(call)

    def _stream(self, call: Call) -> Any:
        """An operation in STREAMED."""
        return self._query(call)

    @abstractmethod
    def _gate(self, call: Call) -> Tensor:
        """GLU: the product of one half and the activated other half."""


def is_statistic(x: Tensor, reduced: Tensor) -> bool:
    """Whether a reduction of `x` was over the last axis and kept it, as those of normalisations are."""
    return x.shape[-1] > 1 and reduced.shape == (*x.shape[:-1], 1)


def _tensors(call: Call) -> list[Tensor]:
    """The tensors among the arguments, at any depth; most calls need no look into depth, which takes time."""
    tensors = []
    for value in (*call.args, *call.kwargs.values()):
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, list | tuple | dict):
            tensors += [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
    return tensors


def _untracked(tensor: Tensor) -> UnsupportedModelError:
    origin = tensor.grad_fn.name() if tensor.grad_fn else "an unknown function"
    return UnsupportedModelError(
        f"no relevance can be propagated through {origin}: it is no torch operation but one of the model's own (a "
        "custom kernel, script or autograd function); use a method of another family, such as agf or attcat"
    )
