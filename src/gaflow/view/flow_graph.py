"""The edges of a network that are drawn: the strongest ones, and how much they carry.

The convention this file owns: **every layer shows equally many edges**, because each layer carries the whole flow. How
much of it the drawn edges carry is reported for each layer and in total: readers must not mistake them for all edges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from gaflow.errors import Argument, ArgumentError, ArgumentTypeError
from gaflow.flow.result import Flow


@dataclass(frozen=True)
class Graph:
    """Amounts on the edges of one layered network: flows, or capacities."""

    edges: np.ndarray  # (l, t, t) from node i of layer l+1 to node j of layer l
    ends: np.ndarray  # (2, t) of the terminals, first at the input, then at the output
    through: np.ndarray  # (l+1, t) of the nodes
    is_flow: bool = True  # otherwise capacities, of which only those of the edges are drawn in proportion

    @classmethod
    def of(cls, flow: Flow, name: str = "flow") -> Graph:
        """The amounts of a flow, a batch of one; `name` is the argument that it was given as."""
        if not isinstance(flow, Flow):
            message = f" must be a Flow (an attribution's is att.flow), not {type(flow).__name__}"
            raise ArgumentTypeError(Argument(name), message)
        if len(flow.value) != 1:
            message = f" must be one flow, not a batch of {len(flow.value)}: index it, flow[0]"
            raise ArgumentError(Argument(name), message)
        ends = np.stack([_only_item(flow.target), _only_item(flow.source)])
        return cls(edges=_only_item(flow.edges), ends=ends, through=_only_item(flow.through()))

    def strongest(self, count: int, other: np.ndarray | None = None, *, complete_paths: bool = False) -> EdgeSelection:
        """The strongest edges, about `count` in all, weakest first; `other` (l, t, t) is a flow whose edges count too.

        `complete_paths` adds a path from each token at either end to the other end, along the strongest edge of
        every node on it.
        """
        layers, t, _ = self.edges.shape
        amounts = self.edges if other is None else np.maximum(self.edges, other)
        amounts = amounts.reshape(layers, t * t)
        per_layer = min(max(1, count // layers), t * t)
        strongest = np.argsort(-amounts, axis=1, kind="stable")[:, :per_layer]
        selected = np.zeros_like(amounts, dtype=bool)
        np.put_along_axis(selected, strongest, True, axis=1)
        if complete_paths:
            upwards = amounts.reshape(layers, t, t)
            downwards = upwards[::-1].swapaxes(1, 2)  # the network seen from the output
            selected |= _paths_from_input(upwards).reshape(layers, t * t)
            selected |= _paths_from_input(downwards)[::-1].swapaxes(1, 2).reshape(layers, t * t)
        indices = np.flatnonzero(selected & (amounts > 0))
        indices = indices[np.argsort(amounts.ravel()[indices], kind="stable")]
        layer, i, j = np.unravel_index(indices, self.edges.shape)
        return EdgeSelection(layer=layer, i=i, j=j, amount=self.edges[layer, i, j], graph=self)


def _only_item(batch: Tensor) -> np.ndarray:
    return batch[0].detach().cpu().double().numpy()


def _paths_from_input(amounts: np.ndarray) -> np.ndarray:
    """Which edges are strongest into a token on the way up, (l, t, t) bool; paths that meet stay together."""
    on_path = np.zeros(amounts.shape, dtype=bool)
    tokens = np.arange(amounts.shape[-1])
    for layer, strengths in enumerate(amounts):
        best = strengths.argmax(0)[tokens]
        on_path[layer, best, tokens] = True
        tokens = np.unique(best)
    return on_path


@dataclass(frozen=True)
class EdgeSelection:
    """Some edges of a graph, weakest first."""

    layer: np.ndarray  # (m,) between node layers layer + 1 and layer
    i: np.ndarray  # (m,) above
    j: np.ndarray  # (m,) below
    amount: np.ndarray  # (m,)
    graph: Graph

    @property
    def count(self) -> int:
        """How many of these edges carry something; a comparison also selects edges of the other flow."""
        return int((self.amount > 0).sum())

    @property
    def total(self) -> int:
        """How many edges of the graph carry something."""
        return int((self.graph.edges > 0).sum())

    @property
    def is_complete(self) -> bool:
        """No edge is left out."""
        return self.count == self.total

    def share(self) -> float:
        """The fraction of the whole flow, summed over the layers, that these edges carry."""
        total = self.graph.edges.sum()
        if total == 0:
            return 1.0
        return float(self.amount.sum() / total)

    def layer_shares(self) -> np.ndarray:
        """The same for each layer, (l,)."""
        totals = self.graph.edges.sum((1, 2))
        carried = np.bincount(self.layer, weights=self.amount, minlength=len(totals))
        return carried / np.where(totals > 0, totals, 1.0)

    def describe(self, kind: str) -> str:
        """How many of how many edges with `kind` (flow, capacity) these are, and how much of it they carry."""
        if self.is_complete:
            return f"all {self.total:,} edges with {kind}"
        return f"the {self.count:,} strongest of {self.total:,} edges with {kind} carry {self.share():.1%} of it"
