"""What is shown of a network: the strongest edges, and how much they carry.

The convention this file owns: **every layer may show equally many edges**, since each carries the whole flow. How much
of it the shown edges carry is said for each layer and in all, so that nobody takes them for everything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gaflow.flow.result import Flow

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

    def strongest(self, most: int, beside: np.ndarray | None = None, *, ways: bool = False) -> Shown:
        """The strongest edges, about `most` in all; `beside` (l, t, t) is another flow, whose edges count too.

        `ways` adds a way from each token at either end to the other end, along the strongest edge of every node on it.
        """
        layers, t, _ = self.edges.shape
        amounts = (self.edges if beside is None else np.maximum(self.edges, beside)).reshape(layers, -1)
        each = min(max(1, most // layers), t * t)
        order = np.argsort(-amounts, axis=1, kind="stable")[:, :each]
        chosen = (np.arange(layers)[:, None] * t * t + order).ravel()
        layer, place = np.divmod(np.unique(np.concatenate([chosen, _ways(amounts, t)]) if ways else chosen), t * t)
        place, layer = (x[amounts[layer, place] > 0] for x in (place, layer))
        rank = np.argsort(amounts[layer, place], kind="stable")  # the strongest is drawn last
        layer, place = layer[rank], place[rank]
        return Shown(layer, place // t, place % t, self.edges.reshape(layers, -1)[layer, place], self)


def _ways(amounts: np.ndarray, t: int) -> np.ndarray:
    """Edges of the ways from end to end, as indices into `amounts` (l, t * t); ways that meet go on together."""
    square, found = amounts.reshape(-1, t, t), []
    above = below = np.arange(t)
    for k in range(len(square)):  # from the input up: of j's edges, the strongest
        best = square[k].argmax(0)[below]
        found.append((k * t + best) * t + below)
        below = np.unique(best)
    for k in reversed(range(len(square))):
        best = square[k].argmax(1)[above]
        found.append((k * t + above) * t + best)
        above = np.unique(best)
    return np.concatenate(found)


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
