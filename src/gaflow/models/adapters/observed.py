"""What is seen of a forward pass, and what an adapter makes of it.

A layer of the network is a matrix of attention, but models compute it in parts: windows, blocks, fewer rows after
pooling. A `Layer` holds the parts `a` as the model used them, still in autograd's graph, and a **linear** map `layout`
to the matrix: `A = layout(a)`. An element of `A` may stand for several parts (BigBird attends to a block twice), or for a
share of one (Swin merges four patches into a node). Its gradient is the slope of `y` when its parts grow together:

    A = layout(a)        dy/dA = layout(a * dy/da) / layout(a)        so that  sum(A * dy/dA) = sum(a * dy/da)

where a part that is its own element keeps its own gradient. Elements that stand for nothing are 0 and have none.

The convention this file owns: node `i` of a layer sits at one of the `t` places of the input. A layer with fewer nodes
leaves the other places empty, and their edges are dead. A node that pools others sits at the place of the first.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge
from torch.overrides import TorchFunctionMode

from gaflow.models.attention_tensors import accumulation_dtype

__all__ = ["AttentionLayer", "Call", "ObservedPass", "Softmax", "averages", "group", "place", "watch"]

_SOFTMAX = (torch.softmax, nn.functional.softmax, Tensor.softmax)


@dataclass(frozen=True)
class AttentionLayer:
    """One layer of attention."""

    parts: tuple[Tensor, ...]  # any shapes, as the model used them
    layout: Callable[..., Tensor] | None = None  # parts -> (b, h, t, t), linear; None: the only part is that already
    edges: tuple[GradientEdge, ...] = ()  # where to differentiate, if the parts are mere copies of what the model used

    def handles(self) -> Sequence[Tensor | GradientEdge]:
        """What to differentiate by, one for each part."""
        return self.edges or self.parts

    def weights(self) -> Tensor:
        """A, (b, h, t, t)."""
        return self.parts[0] if self.layout is None else self.layout(*self.parts)

    def gradient(self, of_parts: Sequence[Tensor | None]) -> Tensor:
        """dy/dA, (b, h, t, t), from dy/da of the parts; None is zero."""
        gradients = []
        for part, gradient in zip(self.parts, of_parts, strict=True):
            gradients.append(torch.zeros_like(part) if gradient is None else gradient.view_as(part))
        if self.layout is None:
            return gradients[0]
        wide_parts = []
        products = []
        for part, gradient in zip(self.parts, gradients, strict=True):
            wide = part.to(accumulation_dtype(part))
            wide_parts.append(wide)
            products.append(wide * gradient.to(wide.dtype))
        weights = self.layout(*wide_parts)
        return torch.where(weights > 0, self.layout(*products) / weights.clamp_min(1e-45), 0)


@dataclass(frozen=True)
class Call:
    """A module at work."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def given(self, name: str) -> Any:
        """What the module was called with; None if it does not know the name."""
        bound = inspect.signature(self.module.forward).bind_partial(*self.args, **self.kwargs)
        return bound.arguments.get(name, bound.arguments.get("kwargs", {}).get(name))


@dataclass(frozen=True)
class Softmax:
    """A softmax over the last axis, and who called it."""

    weights: Tensor  # (..., q, k)
    calls: tuple[Call, ...]  # outermost first
    edge: GradientEdge | None = None  # where to differentiate, if the weights are a mere copy

    def inside(self, module: nn.Module) -> bool:
        """Whether `module` was at work."""
        return any(call.module is module for call in self.calls)

    def call(self, name: str) -> Call | None:
        """The innermost call that was given an argument of this name."""
        return next((call for call in reversed(self.calls) if call.given(name) is not None), None)

    def given(self, name: str) -> Any:
        """The argument of this name that the innermost module with one was given."""
        call = self.call(name)
        return None if call is None else call.given(name)


@dataclass(frozen=True)
class ObservedPass:
    """A forward pass of a borrowed model."""

    model: Any
    outputs: Any
    mask: Tensor  # (b, t) bool: real tokens; (b, 0) for inputs whose nodes only the model knows
    softmaxes: Sequence[Softmax] = field(default_factory=tuple)  # in order; none unless they were watched

    @property
    def config(self) -> Any:
        """The model's config; None if it has none."""
        return getattr(self.model, "config", None)


class _Watch(TorchFunctionMode):
    """While active, keeps every softmax over the last of at least three axes that autograd knows."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Softmax] = []
        self.calls: list[Call] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `func`, and remember its result if it is such a softmax."""
        if func is nn.functional.multi_head_attention_forward:
            return self._fused(func, args, kwargs)
        result = func(*args, **(kwargs or {}))
        if func in _SOFTMAX and result.dim() > 2 and result.requires_grad:
            axis = (kwargs or {}).get("dim", args[1] if len(args) > 1 else None)
            if axis in (-1, result.dim() - 1):
                self.found.append(Softmax(result, tuple(self.calls)))
        return result

    def _fused(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Torch's own attention takes its softmax unseen, and hands out a view of it."""
        output, weights = func(*args, **kwargs | {"need_weights": True, "average_attn_weights": False})
        if weights.grad_fn is not None:
            (below, *_) = weights.grad_fn.next_functions
            self.found.append(Softmax(weights, tuple(self.calls), GradientEdge(*below)))
        if not kwargs.get("need_weights", True):
            return output, None
        return output, weights.mean(1) if kwargs.get("average_attn_weights", True) else weights


@contextmanager
def watch(model: nn.Module) -> Iterator[list[Softmax]]:
    """While this lasts, softmaxes of the model come into the list, with the modules that were at work."""
    watching = _Watch()

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        watching.calls.append(Call(module, args, kwargs))

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        watching.calls.pop()

    handles: list[Any] = []
    for module in model.modules():
        handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        with watching:
            yield watching.found
    finally:
        for handle in handles:
            handle.remove()


def group(softmaxes: Iterable[Softmax], name: str) -> list[tuple[Call, list[Softmax]]]:
    """Softmaxes by the call that was given an argument `name`, in order."""
    found: list[tuple[Call, list[Softmax]]] = []
    for softmax in softmaxes:
        call = softmax.call(name)
        if call is not None:
            if not found or found[-1][0] is not call:
                found.append((call, []))
            found[-1][1].append(softmax)
    return found


def place(weights: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Weights (b, h, q, k) of q nodes at places `rows` (q,) and keys that are averages `columns` (k, t) of places."""
    b, h, _, _ = weights.shape
    t = columns.shape[1]
    laid = weights.new_zeros(b, h, t, t)
    laid[:, :, rows] = weights @ columns.to(weights)
    return laid


def averages(members: Sequence[Sequence[int]], t: int, device: torch.device | None = None) -> Tensor:
    """Columns (k, t) of keys that are the averages of places; a key without members comes from nowhere."""
    columns = torch.zeros(len(members), t)
    for key, places in enumerate(members):
        for p in places:
            columns[key, p] += 1 / len(places)
    return columns.to(device)
