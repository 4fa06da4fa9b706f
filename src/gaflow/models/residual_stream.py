"""Where the output of attention joins the residual stream, found in the data flow of a pass of any model.

A block adds the output of its attention to its input: `s = h + attention(h)`, before a norm or after one, and in
parallel blocks together with the feed-forward part. The additions of layer `l` are those with one operand that depends
on the attention weights `A^l`, and another that depends on the input but on no attention later than `A^(l-1)`. These
dependencies are read off autograd's graph. So layers that share weights differ by their position in the pass, and no
module or name is looked at.

The convention this file owns: `h`, the **stream**, is all of `s` that does not come from this layer's attention. Where
several additions follow each other, as in `attention + feed_forward + h`, `s` is their result and `h` the sum of the
other operands; all of them have the gradient of `s`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.overrides import TorchFunctionMode

_IN_PLACE = (Tensor.add_, Tensor.__iadd__)
_ADDITIONS = frozenset([torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__, *_IN_PLACE])
_WEIGHTS_ONLY = -2  # level of a node that depends on weights alone
_INPUT_ONLY = -1  # level of a node that depends on the input but on no attention


@dataclass(frozen=True)
class ResidualSum:
    """The residual sum of one layer."""

    stream: Tensor  # (b, t, d) h, detached
    total: GradientEdge  # s, to be differentiated by


@dataclass(frozen=True)
class _Terms:
    """The operands of an addition."""

    values: tuple[Tensor, Tensor]  # (b, t, d) each, detached
    versions: tuple[int, int]  # a model may overwrite them
    nodes: tuple[Node, Node]  # in autograd's graph


@dataclass(frozen=True)
class _Addition:
    terms: _Terms
    total: GradientEdge


class Additions(TorchFunctionMode):
    """While active, records the additions of two tensors (b, t, d) that autograd tracks; any t if `tokens` is 0."""

    def __init__(self, items: int, tokens: int) -> None:
        super().__init__()
        self.recorded: list[_Addition] = []
        self._items = items
        self._tokens = tokens

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run `func`, and record it if it is such an addition."""
        kwargs = kwargs or {}
        if func not in _ADDITIONS:
            return func(*args, **kwargs)
        with torch._C.DisableTorchFunction():  # what is noted here is nothing to other modes
            terms = self._terms(func, args, kwargs)
        result = func(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            if terms is not None and result.requires_grad:  # another mode may have run it without a graph
                self.recorded.append(_Addition(terms, get_gradient_edge(result)))
        return result

    def _terms(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Terms | None:
        """What is added; None if that is no pair of hidden states."""
        operands = [*args[:2], *(kwargs[name] for name in ("input", "other") if name in kwargs)]
        if not self._are_hidden_states(operands):
            return None
        nodes = (get_gradient_edge(operands[0]).node, get_gradient_edge(operands[1]).node)
        left = operands[0].detach()
        right = operands[1].detach()
        if func in _IN_PLACE:
            left = left.clone()
        if kwargs.get("alpha", 1) != 1:
            right = right * kwargs["alpha"]
        return _Terms((left, right), (left._version, right._version), nodes)

    def _are_hidden_states(self, operands: list[Any]) -> bool:
        if len(operands) != 2 or not torch.is_grad_enabled() or not all(isinstance(x, Tensor) for x in operands):
            return False
        left, right = operands
        if left.dim() != 3 or left.shape != right.shape or len(left) != self._items:
            return False
        if self._tokens not in (0, left.shape[1]):
            return False
        return left.requires_grad and right.requires_grad


def find_residual_sums(
    additions: Sequence[_Addition], attentions: Sequence[Tensor], roots: Iterable[Tensor]
) -> list[ResidualSum | None]:
    """The residual sum of each layer of attention; None where there is none, or where its operands were overwritten.

    `roots` are the leaves of autograd's graph by which the input comes in.
    """
    levels = _Levels(attentions, roots)
    levels_of_terms = []
    for addition in additions:
        left, right = addition.terms.nodes
        levels_of_terms.append((levels.of(left), levels.of(right)))
    residual_sums = []
    for layer in range(len(attentions)):
        residual_sums.append(_residual_sum(layer, additions, levels_of_terms))
    return residual_sums


def _residual_sum(
    layer: int, additions: Sequence[_Addition], levels_of_terms: Sequence[tuple[int, int]]
) -> ResidualSum | None:
    stream = None
    total = None
    for addition, term_levels in zip(additions, levels_of_terms, strict=True):
        if layer not in term_levels:
            continue
        branch = term_levels.index(layer)  # the term that comes from this layer's attention
        other = 1 - branch
        if not _INPUT_ONLY <= term_levels[other] < layer:
            continue
        terms = addition.terms
        if total is not None and terms.nodes[branch] is not total.node:
            continue
        value = terms.values[other]
        if value._version != terms.versions[other]:
            return None
        stream = value if stream is None else stream + value
        total = addition.total
    if stream is None or total is None:
        return None
    return ResidualSum(stream, total)


class _Levels:
    """The last layer of attention that a node of autograd's graph depends on."""

    def __init__(self, attentions: Sequence[Tensor], roots: Iterable[Tensor]) -> None:
        self._level_of: dict[Node, int] = {get_gradient_edge(a).node: layer for layer, a in enumerate(attentions)}
        self._roots = list(roots)

    def of(self, node: Node) -> int:
        stack = [node]
        while stack:  # no recursion: graphs are deep
            top = stack[-1]
            if top in self._level_of:
                stack.pop()
                continue
            parents = [parent for parent, _ in top.next_functions if parent is not None]
            unvisited = [parent for parent in parents if parent not in self._level_of]
            if unvisited:
                stack += unvisited
                continue
            stack.pop()
            levels = (self._level_of[parent] for parent in parents)
            self._level_of[top] = max(levels, default=self._level_of_leaf(top))
        return self._level_of[node]

    def _level_of_leaf(self, node: Node) -> int:
        variable = getattr(node, "variable", None)
        is_root = any(variable is root for root in self._roots)
        return _INPUT_ONLY if is_root else _WEIGHTS_ONLY
