"""Where the output of attention joins the residual stream: found in the data flow of a pass, whatever the model is.

A block adds what its attention gives to what it was given: `s = h + attention(h)`, before a norm or after one, and in
parallel blocks together with the feed-forward part. Of all additions of a pass, those of layer `l` are the ones with
one operand that depends on the attention weights `A^l` and another that depends on the input, but on no attention later
than `A^(l-1)`. What depends on what is read off autograd's graph, so that shared layers are told apart by their place
in the pass, and no module or its name is looked at.

The convention this file owns: `h`, the **stream**, is all of `s` that does not come from this layer's attention. Where
several additions follow each other, as in `attention + feed_forward + h`, `s` is their result and `h` the sum of the
other operands; all of them have the gradient of `s`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

__all__ = ["Additions", "Junction", "junctions"]

_IN_PLACE = (Tensor.add_, Tensor.__iadd__)
_ADDITIONS = (torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__, *_IN_PLACE)
_WEIGHT, _INPUT = -2, -1  # levels of what depends on weights only, and on the input but on no attention


@dataclass(frozen=True)
class Junction:
    """The residual sum of one layer."""

    stream: Tensor  # (b, t, d) h, detached
    total: GradientEdge  # s, to be differentiated by


@dataclass(frozen=True)
class _Addition:
    operands: tuple[Tensor, Tensor]  # (b, t, d) each, detached
    versions: tuple[int, int]  # of the operands: a model may overwrite them
    origins: tuple[Any, Any]  # their nodes in autograd's graph
    total: GradientEdge


class Additions(TorchFunctionMode):
    """While active, keeps the additions of two tensors (b, t, d) that autograd knows; any t, if `tokens` is 0."""

    def __init__(self, items: int, tokens: int) -> None:
        super().__init__()
        self.found: list[_Addition] = []
        self._items, self._tokens = items, tokens

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `func`, and remember it if it is such an addition."""
        kwargs = kwargs or {}
        if func not in _ADDITIONS:
            return func(*args, **kwargs)
        given = [*args[:2], *(kwargs[name] for name in ("input", "other") if name in kwargs)]
        if not self._wanted(given):
            return func(*args, **kwargs)
        left, right = (x.detach() for x in given)
        origins = get_gradient_edge(given[0]).node, get_gradient_edge(given[1]).node
        if func in _IN_PLACE:
            left = left.clone()
        if kwargs.get("alpha", 1) != 1:
            right = right * kwargs["alpha"]
        result = func(*args, **kwargs)
        versions = left._version, right._version
        self.found.append(_Addition((left, right), versions, origins, get_gradient_edge(result)))
        return result

    def _wanted(self, given: list[Any]) -> bool:
        if len(given) != 2 or not torch.is_grad_enabled() or not all(isinstance(x, Tensor) for x in given):
            return False
        left, right = given
        fitting = left.dim() == 3 and left.shape == right.shape and len(left) == self._items
        fitting = fitting and self._tokens in (0, left.shape[1])
        return fitting and left.requires_grad and right.requires_grad


def junctions(
    additions: Sequence[_Addition], attentions: Sequence[Tensor], roots: Iterable[Tensor]
) -> list[Junction | None]:
    """The residual sum of every layer of attention; None where there is none, or where its operands are lost.

    `roots` are the leaves of autograd's graph that the input comes in by.
    """
    levels = _Levels(attentions, roots)
    found: list[Junction | None] = []
    for layer in range(len(attentions)):
        stream, total, intact = None, None, True
        for addition in additions:
            depends = [levels(node) for node in addition.origins]
            branch = depends.index(layer) if layer in depends else -1
            if branch < 0 or not _INPUT <= depends[1 - branch] < layer:
                continue
            if total is None or addition.origins[branch] is total.node:
                other = addition.operands[1 - branch]
                intact &= other._version == addition.versions[1 - branch]
                stream, total = other if stream is None else stream + other, addition.total
        found.append(Junction(stream, total) if stream is not None and total is not None and intact else None)
    return found


class _Levels:
    """The last layer of attention that a node of autograd's graph depends on."""

    def __init__(self, attentions: Sequence[Tensor], roots: Iterable[Tensor]) -> None:
        self._known: dict[Any, int] = {get_gradient_edge(a).node: layer for layer, a in enumerate(attentions)}
        self._roots = list(roots)

    def __call__(self, node: Any) -> int:
        waiting = [node]
        while waiting:  # no recursion: graphs are deep
            here = waiting[-1]
            below = [n for n, _ in here.next_functions if n is not None]
            unknown = [] if here in self._known else [n for n in below if n not in self._known]
            waiting += unknown
            if not unknown:
                waiting.pop()
                if here not in self._known:
                    self._known[here] = max((self._known[n] for n in below), default=self._leaf(here))
        return self._known[node]

    def _leaf(self, node: Any) -> int:
        variable = getattr(node, "variable", None)
        return _INPUT if any(variable is root for root in self._roots) else _WEIGHT
