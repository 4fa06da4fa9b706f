"""What is known of tensors during a relevance pass: which carry relevance, and where it goes from them.

A tensor that depends on the input **carries** relevance, or is a **statistic** of something that does; everything
else is a constant. The convention this file owns: marks live beside the tensors, weakly, and die with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from gaflow.methods.lrp.rules import Identity

__all__ = ["CARRIER", "STATISTIC", "Mark", "Marks", "floats"]


@dataclass(frozen=True)
class Mark:
    """What is known of one tensor."""

    statistic: bool = False
    origin: Tensor | None = None  # the tensor that this one is an element-wise function of; None: itself
    version: int = 0  # of the origin, which may be overwritten later


CARRIER = Mark()
STATISTIC = Mark(statistic=True)


class Marks:
    """The marks of a pass over `items` texts in precision `dtype`."""

    def __init__(self, items: int, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._items = items
        self._marks: Any = WeakTensorKeyDictionary()

    def __contains__(self, value: Any) -> bool:
        return isinstance(value, Tensor) and value in self._marks

    def carries(self, value: Any) -> bool:
        """Whether `value` is a tensor that relevance can go back from."""
        return value in self and not self._marks[value].statistic

    def put(self, found: Any, mark: Mark = CARRIER) -> Any:
        """`found`, with every floating-point tensor in it marked (as a carrier, if autograd knows it)."""
        for tensor in floats(found):
            if mark.statistic or tensor.requires_grad:
                self._marks[tensor] = mark
        return found

    def overwritten(self, target: Tensor) -> Tensor:
        """`target` after something was written into it: a carrier, as is the tensor that it is a view of."""
        if target._base is not None:
            self.put(target._base)
        return self.put(target)

    def begin(self, seed: Tensor) -> Tensor:
        """A carrier with the values of `seed`, which collects its relevance."""
        return self.put(Identity.apply(seed, lambda: seed.detach().clone()))

    def lift(self, given: Any) -> Any:
        """`given` (arguments of any structure) in the precision of the pass."""

        def one(value: Any) -> Any:
            if isinstance(value, torch.dtype):
                return self.dtype if value.is_floating_point else value
            if not isinstance(value, Tensor) or not value.is_floating_point() or value.dtype == self.dtype:
                return value
            wide = value.to(self.dtype)
            return self.put(wide, self._marks[value]) if value in self else wide.detach()

        return tree_map(one, given)

    def copy(self, x: Tensor, device: torch.device) -> Tensor:
        """A copy of `x` on a device, still what it was."""
        mark = self._marks[x]
        origin = self._origin(x)
        return self.put(x.to(device, copy=True), mark if mark.statistic else Mark(False, origin, origin._version))

    def alike(self, tensors: Sequence[Tensor]) -> bool:
        """Whether all are element-wise functions of one and the same tensor."""
        origins = [self._origin(t) for t in tensors]
        return all(other is origins[0] for other in origins)

    def identity(self, carriers: Sequence[Tensor], value: Tensor, elementwise: bool = True) -> Tensor:
        """`value`, whose relevance goes to what the `carriers` (alike, or a single one) are functions of."""
        x = carriers[0] if len(carriers) == 1 else self._origin(carriers[0])
        found = Identity.apply(x, lambda: value)
        origin = self._origin(x)
        if elementwise and origin.shape == value.shape:
            return self.put(found, Mark(origin=origin, version=origin._version))
        return self.put(found)

    def items_in(self, shape: Sequence[int]) -> int:
        """How many items lie along the first axis; 1 if it is no axis of items, which the pass then finds out."""
        return self._items if len(shape) > 0 and shape[0] % self._items == 0 else 1

    def _origin(self, x: Tensor) -> Tensor:
        mark: Mark = self._marks[x]
        return x if mark.origin is None or mark.origin._version != mark.version else mark.origin


def floats(found: Any) -> list[Tensor]:
    """Floating-point (or complex) tensors anywhere in `found`."""
    leaves = [leaf for leaf in tree_leaves(found) if isinstance(leaf, Tensor)]
    return [leaf for leaf in leaves if leaf.is_floating_point() or leaf.is_complex()]
