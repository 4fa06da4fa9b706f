"""What an adapter sees of a forward pass, and the attention layers that it makes of it.

A layer of the network is one matrix of attention, but models compute it in parts: windows, blocks, fewer rows after
pooling. An `AttentionLayer` holds the parts `a` as the model used them, still in autograd's graph, and a **linear** map
`layout` to the matrix `A`. An element of `A` may stand for several parts (BigBird attends to a block twice), or for a
share of one (Swin merges four patches into a node). Its gradient is the slope of `y` when its parts grow together:

    A = layout(a)        dy/dA = layout(a * dy/da) / layout(a)        and therefore  sum(A * dy/dA) = sum(a * dy/da)

A part that is an element by itself keeps its gradient. Elements that stand for nothing are 0 and have gradient 0.

The convention this file owns: each node of a layer sits at one of the `t` positions of the input. A layer with fewer
nodes leaves the other positions empty, and their edges are dead. A node that pools others sits at the first of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from gaflow.inputs.transformers_types import ModelOutput, PretrainedModel
from gaflow.models.attention_tensors import accumulation_dtype

SOFTMAX_FUNCTIONS = (torch.softmax, nn.functional.softmax, Tensor.softmax)


@dataclass(frozen=True)
class AttentionLayer:
    """One layer of attention."""

    parts: tuple[Tensor, ...]  # any shapes, as the model used them
    layout: Callable[..., Tensor] | None = None  # parts -> (b, h, t, t), linear; None: the only part is that already
    copied_from: tuple[GradientEdge, ...] = ()  # what the model used, if the parts are mere copies of it

    def edges(self) -> Sequence[GradientEdge]:
        """What to differentiate by, one for each part."""
        return self.copied_from or [get_gradient_edge(part) for part in self.parts]

    def weights(self) -> Tensor:
        """A, (b, h, t, t)."""
        return self.parts[0] if self.layout is None else self.layout(*self.parts)

    def gradient(self, of_parts: Sequence[Tensor | None]) -> Tensor:
        """dy/dA, (b, h, t, t), from dy/da of the parts; None is zero."""
        gradients = []
        for part, of_part in zip(self.parts, of_parts, strict=True):
            gradients.append(torch.zeros_like(part) if of_part is None else of_part.view_as(part))
        if self.layout is None:
            return gradients[0]
        wide_parts = [part.to(accumulation_dtype(part)) for part in self.parts]
        products = [part * gradient.to(part) for part, gradient in zip(wide_parts, gradients, strict=True)]
        weights = self.layout(*wide_parts)
        return torch.where(weights > 0, self.layout(*products) / weights.clamp_min(1e-45), 0)


def positioned_layer(
    weights: Tensor, queries: Sequence[int], keys: Tensor, expand: Callable[[Tensor], Tensor] | None = None
) -> AttentionLayer:
    """A layer of one part: its queries sit at `queries` (q,), its keys are averages `keys` (k, t) of positions.

    `expand` turns the part into a matrix (b, h, q, k), if it is none yet.
    """
    positions = torch.tensor(queries, device=weights.device)
    keys = keys.to(weights.device)
    t = keys.shape[1]

    def layout(part: Tensor) -> Tensor:
        matrix = part if expand is None else expand(part)
        full = matrix.new_zeros(*matrix.shape[:2], t, t)
        full[:, :, positions] = matrix @ keys.to(matrix)
        return full

    return AttentionLayer((weights,), layout)


def averages(members: Sequence[Sequence[int]], t: int) -> Tensor:
    """Keys (k, t) that are averages over their members' positions; a key without members comes from nowhere."""
    keys = torch.zeros(len(members), t)
    for key, positions in enumerate(members):
        for position in positions:
            keys[key, position] += 1 / len(positions)
    return keys


@dataclass(frozen=True)
class ModuleCall:
    """A module and the arguments of its call."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def argument(self, name: str) -> Any:
        """The argument of this name; None if the call has none."""
        arguments = inspect.signature(self.module.forward).bind_partial(*self.args, **self.kwargs).arguments
        return arguments.get(name, arguments.get("kwargs", {}).get(name))


@dataclass(frozen=True)
class Softmax:
    """A softmax over the last axis, and the modules that were running."""

    weights: Tensor  # (..., q, k)
    calls: tuple[ModuleCall, ...]  # outermost first
    copied_from: tuple[GradientEdge, ...] = ()  # what the model used, if the weights are a mere copy of it

    def call_with(self, name: str) -> ModuleCall | None:
        """The innermost call with an argument of this name."""
        for call in reversed(self.calls):
            if call.argument(name) is not None:
                return call
        return None


def group_by_call(softmaxes: Iterable[Softmax], name: str) -> list[tuple[ModuleCall, list[Softmax]]]:
    """Softmaxes by the innermost call with an argument `name`, in order."""
    groups = []
    for softmax in softmaxes:
        call = softmax.call_with(name)
        if call is None:
            continue
        if not groups or groups[-1][0] is not call:
            groups.append((call, []))
        groups[-1][1].append(softmax)
    return groups


@dataclass(frozen=True)
class ObservedPass:
    """A forward pass of a borrowed model."""

    model: PretrainedModel
    outputs: ModelOutput
    mask: Tensor  # (b, t) bool: real tokens; (b, 0) for inputs whose nodes only the model knows
    softmaxes: Sequence[Softmax] = ()  # in order; none unless they were recorded

    @property
    def config(self) -> Any:
        """The model's config; None if it has none."""
        return getattr(self.model, "config", None)

    def softmaxes_inside(self, module: nn.Module) -> list[Softmax]:
        """The softmaxes that `module` computed."""
        softmaxes = []
        for softmax in self.softmaxes:
            if any(call.module is module for call in softmax.calls):
                softmaxes.append(softmax)
        return softmaxes


class _Recorder(TorchFunctionMode):
    """While active, records each softmax over the last of at least three axes that autograd tracks."""

    def __init__(self) -> None:
        super().__init__()
        self.softmaxes: list[Softmax] = []
        self.running: list[ModuleCall] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run `func`, and record its result if it is such a softmax."""
        kwargs = kwargs or {}
        if func is nn.functional.multi_head_attention_forward:
            return self._run_fused(func, args, kwargs)
        result = func(*args, **kwargs)
        if func in SOFTMAX_FUNCTIONS and result.dim() > 2 and result.requires_grad:
            axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if axis in (-1, result.dim() - 1):
                self.softmaxes.append(Softmax(result, tuple(self.running)))
        return result

    def _run_fused(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run torch's own attention, which hides its softmax and returns a view of it."""
        output, weights = func(*args, **kwargs | {"need_weights": True, "average_attn_weights": False})
        if weights.grad_fn is not None:
            below = GradientEdge(*weights.grad_fn.next_functions[0])
            self.softmaxes.append(Softmax(weights, tuple(self.running), (below,)))
        if not kwargs.get("need_weights", True):
            return output, None
        if kwargs.get("average_attn_weights", True):
            weights = weights.mean(1)
        return output, weights


@contextmanager
def recorded_softmaxes(model: nn.Module) -> Iterator[list[Softmax]]:
    """Inside this block the softmaxes of the model are added to the list, with the modules that were running."""
    recorder = _Recorder()

    def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        recorder.running.append(ModuleCall(module, args, kwargs))

    def leave(module: nn.Module, args: object, output: object) -> None:
        recorder.running.pop()

    with ExitStack() as hooks:
        for module in model.modules():
            hooks.enter_context(module.register_forward_pre_hook(enter, with_kwargs=True))
            hooks.enter_context(module.register_forward_hook(leave, always_call=True))
        with recorder:
            yield recorder.softmaxes
