"""The linear system of a Newton step: a weighted Laplacian of a layered network, and a right-hand side."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from gaflow.flow.records import take_items


@dataclass(frozen=True)
class System:
    """Edge weights, not negative, and a right-hand side; the unknowns are potentials, the target's being 0.

    Nodes are those of the layers from the input up, then the super-source: `n = (l + 1) t + 1`.
    """

    weight: Tensor  # (b, l, t, t) from tails to heads, lowest layer first; of long texts in float32
    source: Tensor  # (b, t) from the super-source to the output nodes
    target: Tensor  # (b, t) from the input nodes to the target
    returning: Tensor  # (b,) from the target to the super-source
    right: Tensor  # (b, n)
    up: Tensor  # (b, n) the weights of all edges that enter each node, which lead upwards from it
    down: Tensor  # (b, n) the weights of all edges that leave it
    top: int  # output nodes from this one on are dead; a head that reads one token leaves a single one

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
        return take_items(self, items)


def split_layers(nodes: Tensor, t: int) -> tuple[Tensor, Tensor]:
    """Numbers of the nodes, (b, n), as those of the layers (b, l+1, t) and of the super-source (b,)."""
    layers = nodes[:, :-1].unflatten(1, (-1, t))
    return layers, nodes[:, -1]


def fill_laplacian(weights: Tensor, ground: Tensor) -> Tensor:
    """Turn `weights` (b, n, n) into `diag(weights 1 + ground) - weights` in place; returns a view of the diagonal."""
    diagonal = weights.diagonal(dim1=-2, dim2=-1)
    diagonal.zero_()
    total = weights.sum(-1).add_(ground)
    weights.neg_()
    return diagonal.copy_(total)
