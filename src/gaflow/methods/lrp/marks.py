"""Marks of tensors during a pass under rules: which tensors carry relevance, and where it goes from them.

A tensor that depends on the input **carries** relevance, or is a **statistic** of something that does; everything
else is a constant. The convention this file owns: a mark is an attribute of its tensor and dies with it. Every pass has
marks of its own, and sees no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from gaflow.methods.lrp.rules import Identity

_ATTRIBUTE = "_gaflow_mark"  # of tensors: the marks of a pass, and the mark among them

Values = TypeVar("Values")  # a tensor, or tensors and other values in any nested structure


@dataclass(frozen=True)
class Mark:
    """The mark of one tensor."""

    statistic: bool = False
    attention: bool = False  # attention weights that are constants for what lies below them
    origin: Tensor | None = None  # the tensor that this one is an element-wise function or statistic of; None: itself
    version: int = 0  # of the origin, which may be overwritten later
    function: Callable[[Tensor], Tensor] | None = None  # of the origin, where the rules need to know it


CARRIER = Mark()
STATISTIC = Mark(statistic=True)


class Marks:
    """The marks of a pass."""

    def get(self, value: object) -> Mark | None:
        """The mark of a tensor; None for other values and for constants."""
        marks, mark = getattr(value, _ATTRIBUTE, (None, None))
        return mark if marks is self else None

    def __contains__(self, value: object) -> bool:
        return self.get(value) is not None

    def __getitem__(self, tensor: Tensor) -> Mark:
        mark = self.get(tensor)
        if mark is None:
            raise KeyError(tensor)
        return mark

    def carries(self, value: object) -> bool:
        """Whether `value` is a tensor that relevance can go back from."""
        mark = self.get(value)
        return mark is not None and not mark.statistic

    def carriers(self, values: Iterable[object]) -> list[Tensor]:
        """Those of the values that carry relevance."""
        return [value for value in values if isinstance(value, Tensor) and self.carries(value)]

    def put(self, values: Values, mark: Mark = CARRIER) -> Values:
        """`values`, with every floating-point tensor in them marked (as a carrier, if autograd tracks it)."""
        for tensor in float_tensors(values):
            if mark.statistic or tensor.requires_grad:
                setattr(tensor, _ATTRIBUTE, (self, mark))
        return values

    def overwritten(self, target: Tensor) -> Tensor:
        """`target` after something was written into it: a carrier, as is the tensor that it is a view of."""
        if target._base is not None:
            self.put(target._base)
        return self.put(target)

    def alike(self, tensors: Sequence[Tensor]) -> bool:
        """Whether all are element-wise functions of one and the same tensor."""
        origins = [self.origin(tensor) for tensor in tensors]
        return all(origin is origins[0] for origin in origins)

    def origin(self, x: Tensor) -> Tensor:
        """The tensor that `x` is an element-wise function of, maybe itself."""
        mark = self[x]
        if mark.origin is None or mark.origin._version != mark.version:
            return x
        return mark.origin

    def function_of(self, x: Tensor, function: Callable[[Tensor], Tensor] | None = None) -> Mark:
        """The mark of an element-wise function of `x`; `function` says which one of the origin of `x` it is."""
        origin = self.origin(x)
        return Mark(origin=origin, version=origin._version, function=function)


class RelevanceMarks(Marks):
    """The marks of a relevance pass over `items` texts in precision `dtype`."""

    def __init__(self, items: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self._items = items

    def begin(self, seed: Tensor) -> Tensor:
        """A carrier with the values of `seed`, which collects its relevance."""
        return self.put(Identity.apply(seed, lambda: seed.detach().clone()))

    def lift(self, arguments: Values) -> Values:
        """Arguments of any structure in the precision of the pass."""
        return tree_map(self._lift_leaf, arguments)

    def _lift_leaf(self, value: object) -> object:
        if isinstance(value, torch.dtype) and value.is_floating_point:
            return self.dtype
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.dtype == self.dtype:
            return value
        wide = value.to(self.dtype)
        if value in self:
            return self.put(wide, self[value])
        return wide.detach()

    def copy(self, x: Tensor, device: torch.device) -> Tensor:
        """A copy of `x` on a device, with the same meaning."""
        mark = self[x]
        if not mark.statistic:
            mark = self.function_of(x)
        return self.put(x.to(device, copy=True), mark)

    def identity(self, carriers: Sequence[Tensor], value: Tensor, elementwise: bool = True) -> Tensor:
        """`value`, whose relevance goes to the tensor that the `carriers` (alike, or a single one) are functions of."""
        x = carriers[0] if len(carriers) == 1 else self.origin(carriers[0])
        result = Identity.apply(x, lambda: value)
        if elementwise and self.origin(x).shape == value.shape:
            return self.put(result, self.function_of(x))
        return self.put(result)

    def items_in(self, shape: Sequence[int]) -> int:
        """How many items lie along the first axis; 1 if it is no axis of items, which the pass detects later."""
        return self._items if len(shape) > 0 and shape[0] % self._items == 0 else 1


def float_tensors(values: object) -> list[Tensor]:
    """Floating-point (or complex) tensors anywhere in `values`."""
    leaves = [values] if isinstance(values, Tensor) else tree_leaves(values)
    tensors = []
    for leaf in leaves:
        if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex()):
            tensors.append(leaf)
    return tensors
