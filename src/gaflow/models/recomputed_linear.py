"""Outputs of linear layers that the backward pass needs are computed again there, in place of being kept.

Of a long text, what activation functions and attention keep for the backward pass is most of a pass's memory. Much of
it is the output of a linear layer, several times as large as the layer's input. So the input is kept instead.

The convention this file owns: the output is computed by the same call from the same tensors, so no digit changes. Calls
under autocast, which chooses a precision of its own, are left alone; so is what code changes through `tensor.data`,
which no version tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode

from gaflow.errors import UnsupportedModelError

LEAST_GROWTH = 1.5  # of the output over the input: less saves too little


@dataclass(frozen=True)
class _Call:
    """One call of a linear layer."""

    operands: tuple[Tensor | None, ...]  # input, weight, bias; detached
    versions: tuple[int, ...]
    result: StorageWeakRef
    result_version: int

    def compute(self) -> Tensor:
        """The output again; refuses operands that were overwritten since."""
        if _versions(self.operands) != self.versions:
            raise UnsupportedModelError("the input of a linear layer was overwritten")
        with torch.no_grad():
            return linear(*self.operands)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class _View:
    """A tensor that is (a part of) the output of a call."""

    call: _Call
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class _Kept:
    """A tensor that stays in memory; autograd itself checks the versions of no tensors that go through hooks."""

    tensor: Tensor
    version: int

    def unchanged(self) -> Tensor:
        """The tensor; refuses one that was overwritten since."""
        if self.tensor._version != self.version:
            raise UnsupportedModelError("a tensor that the backward pass needs was overwritten")
        return self.tensor


class _LinearCalls(TorchFunctionMode):
    """While active, records the calls of linear layers whose output is still in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[int, _Call] = {}  # by the address of the output's storage
        self._latest: tuple[_Call, Tensor] | None = None  # an output may be needed by several operations in a row

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run `func`, and record it if it is such a call."""
        result = func(*args, **(kwargs or {}))
        if func is linear and not kwargs and _is_plain(args[0], args[1], result):
            self._forget()
            operands = tuple(None if operand is None else operand.detach() for operand in args)
            storage = result.untyped_storage()
            self.calls[storage._cdata] = _Call(operands, _versions(operands), StorageWeakRef(storage), result._version)
        return result

    def _forget(self) -> None:
        """Let go of the inputs of calls whose output is gone."""
        self.calls = {key: call for key, call in self.calls.items() if not call.result.expired()}

    def pack(self, tensor: Tensor) -> _Kept | _View:
        """What is kept of a tensor for the backward pass."""
        call = self.calls.get(tensor.untyped_storage()._cdata)
        if call is None or call.result_version != tensor._version:
            return _Kept(tensor, tensor._version)
        return _View(call, tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))

    def unpack(self, packed: _Kept | _View) -> Tensor:
        """The tensor itself."""
        if isinstance(packed, _Kept):
            return packed.unchanged()
        if self._latest is None or self._latest[0] is not packed.call:
            self._latest = None  # its memory is needed
            self._latest = (packed.call, packed.call.compute())
        return self._latest[1].as_strided(packed.size, packed.stride, packed.offset)


def _is_plain(value: Tensor, weight: Tensor, result: Tensor) -> bool:
    """Whether a call of `linear` is worth computing again, and gives the same then."""
    grows = result.numel() > LEAST_GROWTH * value.numel()
    return grows and result.dtype == value.dtype == weight.dtype and not torch.is_autocast_enabled(value.device.type)


def _versions(operands: tuple[Tensor | None, ...]) -> tuple[int, ...]:
    return tuple(-1 if operand is None else operand._version for operand in operands)


@contextmanager
def recomputed_linear() -> Iterator[None]:
    """Keep inputs of linear layers in place of larger outputs in the passes inside this block."""
    calls = _LinearCalls()
    with calls, saved_tensors_hooks(calls.pack, calls.unpack):
        yield
    calls.calls.clear()
