"""What is shown of a network: the strongest edges, and how much they carry.

The convention this file owns: **every layer may show equally many edges**, since each carries the whole flow. How much
of it the shown edges carry is said for each layer and in all, so that nobody takes them for everything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gaflow.network import Flow

__all__ = ["Graph", "Shown"]


@dataclass(frozen=True)
class Graph:
    """Amounts on the edges of one layered network: flows, or capacities."""

    edges: np.ndarray  # (l, t, t) from node i of layer l+1 to node j of layer l
    source: np.ndarray | None  # (t,) at the output end; None: not drawn in proportion
    target: np.ndarray | None  # (t,) at the input end
    through: np.ndarray  # (l+1, t) of the nodes

    @classmethod
    def of(cls, flow: Flow, name: str = "flow") -> Graph:
        """What flows where, in a batch of one."""
        if not isinstance(flow, Flow):
            raise TypeError(f"{name} must be a Flow (an attribution's is att.flow), not {type(flow).__name__}")
        if len(flow.value) != 1:
            raise ValueError(f"{name} must be one flow, not a batch of {len(flow.value)}: index it, flow[0]")
        parts = (x[0].detach().cpu().double().numpy() for x in (flow.edges, flow.source, flow.target, flow.through()))
        return cls(*parts)

    def strongest(self, most: int, beside: np.ndarray | None = None, *, every_node: bool = False) -> Shown:
        """The strongest edges, about `most` in all; `beside` (l, t, t) is another flow, whose edges count too.

        `every_node` adds the strongest edge into and out of each node, so that none stands alone.
        """
        layers, t, _ = self.edges.shape
        amounts = (self.edges if beside is None else np.maximum(self.edges, beside)).reshape(layers, -1)
        each = min(max(1, most // layers), t * t)
        order = np.argsort(-amounts, axis=1, kind="stable")[:, :each]
        if every_node and each < t * t:
            square, nodes = amounts.reshape(layers, t, t), np.arange(t)
            order = np.concatenate([order, nodes * t + square.argmax(2), square.argmax(1) * t + nodes], axis=1)
        layer, place = np.divmod(np.unique(np.arange(layers)[:, None] * t * t + order), t * t)
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
