"""What a flow diagram shows of a network: the strongest edges, how much they carry, and where everything stands.

The convention this file owns: **every layer may show equally many edges**, since each carries the whole flow. How much
of it the shown edges carry is said for each layer and in all, so that nobody takes them for everything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["EDGE", "Graph", "Layout", "Shown", "edge_of"]

EDGE = 12.0


def edge_of(row: float) -> float:
    """What belongs to the first and last token, above and below, if rows are `row` apart."""
    return min(row / 2, EDGE)


@dataclass(frozen=True)
class Graph:
    """Amounts on the edges of one layered network: flows, or capacities."""

    edges: np.ndarray  # (l, t, t) from node i of layer l+1 to node j of layer l
    source: np.ndarray | None  # (t,) at the output end; None: not drawn in proportion
    target: np.ndarray | None  # (t,) at the input end
    through: np.ndarray  # (l+1, t) of the nodes

    def strongest(self, most: int, beside: np.ndarray | None = None) -> Shown:
        """The strongest edges, about `most` in all; `beside` (l, t, t) is another flow, whose edges count too."""
        layers, t, _ = self.edges.shape
        amounts = (self.edges if beside is None else np.maximum(self.edges, beside)).reshape(layers, -1)
        each = min(max(1, most // layers), t * t)
        order = np.argsort(-amounts, axis=1, kind="stable")[:, :each]
        layer = np.repeat(np.arange(layers), each)
        place = order.ravel()
        place, layer = (x[amounts[layer, place] > 0] for x in (place, layer))
        rank = np.argsort(amounts[layer, place], kind="stable")  # the strongest is drawn last
        layer, place = layer[rank], place[rank]
        return Shown(layer, place // t, place % t, self.edges.reshape(layers, -1)[layer, place], self)


@dataclass(frozen=True)
class Shown:
    """Some edges of a graph, weakest first."""

    layer: np.ndarray  # (m,) between node layers layer + 1 and layer
    i: np.ndarray  # (m,) above
    j: np.ndarray  # (m,) below
    amount: np.ndarray  # (m,)
    graph: Graph

    @property
    def all(self) -> bool:
        """Nothing is left out."""
        return int((self.amount > 0).sum()) == int((self.graph.edges > 0).sum())

    def share(self) -> float:
        """The part of the whole flow, summed over the layers, that these edges carry."""
        total = self.graph.edges.sum()
        return float(self.amount.sum() / total) if total else 1.0

    def layer_shares(self) -> np.ndarray:
        """The same for each layer, (l,)."""
        total = self.graph.edges.sum((1, 2))
        held = np.bincount(self.layer, weights=self.amount, minlength=len(total))
        return held / np.where(total > 0, total, 1.0)

    def says(self, kind: str) -> str:
        """How many of how many edges, and what they carry."""
        total = int((self.graph.edges > 0).sum())
        shown = int((self.amount > 0).sum())
        if shown == total:
            return f"all {total:,} edges with {kind}"
        return f"the {shown:,} strongest of {total:,} edges with {kind} carry {self.share():.1%} of it"


@dataclass(frozen=True)
class Layout:
    """Places in points: node layers from left (input) to right (output), tokens from top to bottom."""

    left: float  # of node layer 0
    top: float  # of token 0
    column: float  # from layer to layer
    row: float  # from token to token
    layers: int  # node layers
    tokens: int
    end: float  # from a terminal to the nodes next to it; 0 without terminals
    straight: bool  # edges

    def x(self, layer: np.ndarray | int) -> np.ndarray:
        """Of node layers; -1 is the terminal at the input, `layers` that at the output."""
        inside = np.clip(layer, 0, self.layers - 1) * self.column
        return self.left + inside + self.end * (np.asarray(layer) == self.layers) - self.end * (np.asarray(layer) < 0)

    def y(self, token: np.ndarray) -> np.ndarray:
        """Of tokens."""
        return self.top + np.asarray(token, dtype=float) * self.row

    @property
    def middle(self) -> float:
        """The height of the terminals."""
        return self.top + (self.tokens - 1) / 2 * self.row

    @property
    def bottom(self) -> float:
        """Below the last token."""
        return self.top + (self.tokens - 1) * self.row + self.edge

    @property
    def edge(self) -> float:
        """What belongs to the first and last token, above and below."""
        return edge_of(self.row)

    @property
    def right(self) -> float:
        """Of the output layer."""
        return self.left + (self.layers - 1) * self.column
