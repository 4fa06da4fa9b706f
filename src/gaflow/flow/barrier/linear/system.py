"""The linear system of a Newton step: a weighted Laplacian of a layered network, and a right-hand side."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

__all__ = ["System", "layered"]


@dataclass(frozen=True)
class System:
    """Edge weights, not negative, and a number for each node, whose potentials are wanted; the target is at 0.

    Nodes are those of the layers from the input up, then the super-source: `n = (l + 1) t + 1`.
    """

    weight: Tensor  # (b, l, t, t) from tails to heads, lowest layer first
    source: Tensor  # (b, t) from the super-source to the output nodes
    target: Tensor  # (b, t) from the input nodes to the target
    returning: Tensor  # (b,) from the target to the super-source
    right: Tensor  # (b, n)
    up: Tensor  # (b, n) all that enters each node, which is what leads upwards from it
    down: Tensor  # (b, n) all that leaves it
    top: int  # output nodes from here on are known to be dead; a head that reads one token leaves a single one

    @classmethod
    def of(
        cls, weight: Tensor, source: Tensor, target: Tensor, returning: Tensor, right: Tensor, top: int | None = None
    ) -> System:
        """A system of these weights, which are summed up here."""
        up = torch.cat([weight.sum(-2).flatten(1), source, returning[:, None]], 1)
        down = torch.cat([target, weight.sum(-1).flatten(1), source.sum(-1, keepdim=True)], 1)
        return cls(weight, source, target, returning, right, up, down, top or source.shape[-1])

    @property
    def shape(self) -> tuple[int, int, int]:
        """Items, layers and tokens."""
        b, layers, t, _ = self.weight.shape
        return b, layers, t

    @cached_property
    def degree(self) -> Tensor:
        """The diagonal (b, n)."""
        return self.up + self.down

    @cached_property
    def dead(self) -> Tensor:
        """1.0 for a node without any weight, (b, n): added to its diagonal it gives the node potential 0."""
        return (self.degree == 0).to(self.degree.dtype)

    def take(self, items: Tensor) -> System:
        """The systems of these items."""
        each: dict[str, Any] = {f.name: getattr(self, f.name)[items] for f in fields(self) if f.name != "top"}
        return replace(self, **each)


def layered(nodes: Tensor, t: int) -> tuple[Tensor, Tensor]:
    """Numbers of the nodes, (b, n), as those of the layers (b, l+1, t) and of the super-source (b,)."""
    return nodes[:, :-1].unflatten(1, (-1, t)), nodes[:, -1]
