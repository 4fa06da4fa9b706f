"""A flow as routes: the widest ways from a token to the output, and how much of the flow each of them is.

Every flow of a layered network is a sum of routes, each with one node per layer. Which routes is a matter of choice;
here it is always the widest of what is left: the route whose narrowest edge carries the most. Its amount is taken off
all its edges, and so on. Widths are found layer by layer,

    width[k, j] = max_i min(width[k+1, i], flow[k, i, j]),

l vectorised passes over t x t numbers for a route. Each route empties an edge, so that there are no more routes than
edges with flow.

The convention this file owns: **routes read upwards**. `tokens[k]` is the node of layer `k`, so that the first is the
input token and the last the output position. Ties go to the smaller index.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from gaflow.flow.result import Flow

__all__ = ["Route", "Routes", "routes"]


@dataclass(frozen=True)
class Route:
    """One way through the network."""

    tokens: tuple[int, ...]  # (l+1,) the node of every layer, from the input token to the output position
    amount: float  # flow along it
    share: float  # of the flow value


@dataclass(frozen=True)
class Routes:
    """The widest routes of a flow, in order; `sum of amounts + rest = value`. Behaves like a sequence of routes."""

    routes: tuple[Route, ...]  # widest first
    rest: float  # flow along all other routes
    value: float  # of the whole flow

    @property
    def rest_share(self) -> float:
        """The part of the flow that `routes` leave out."""
        return self.rest / self.value if self.value else 0.0

    def __len__(self) -> int:
        return len(self.routes)

    def __iter__(self) -> Iterator[Route]:
        return iter(self.routes)

    def __getitem__(self, index: int) -> Route:
        return self.routes[index]


def routes(flow: Flow, k: int | None = 10) -> Routes:
    """The `k` widest routes of one flow, or all of them for `k=None`: a barrier solution has as many as live edges."""
    if not isinstance(flow, Flow):
        raise TypeError(f"routes takes a Flow (an attribution's is att.flow), not {type(flow).__name__}")
    if len(flow.value) != 1:
        raise ValueError(f"routes takes one flow, not a batch of {len(flow.value)}: index it, flow[0]")
    if k is not None and (isinstance(k, bool) or not isinstance(k, Integral) or k < 0):
        raise ValueError(f"k must be a whole number >= 0, or None for all routes, not {k!r}")
    edges, source, target = (
        x[0].detach().cpu().double().numpy().copy() for x in (flow.edges, flow.source, flow.target)
    )
    value = flow.value.item()
    if not all(np.isfinite(x).all() and (x >= 0).all() for x in (edges, source, target)):
        raise ValueError("the flow holds negative or non-finite amounts, which are no routes: solve it again")
    found: list[Route] = []
    while k is None or len(found) < k:
        nodes, amount = _widest(edges, source, target)
        if amount <= 0:
            break
        source[nodes[-1]] -= amount
        edges[np.arange(len(edges)), nodes[1:], nodes[:-1]] -= amount
        target[nodes[0]] -= amount
        found.append(Route(tuple(nodes.tolist()), amount, amount / value))
    rest = value - math.fsum(route.amount for route in found)
    return Routes(tuple(found), max(rest, 0.0), value)


def _widest(edges: np.ndarray, source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, float]:
    """The nodes (l+1,) of the widest route, input first, and its width."""
    layers = len(edges)
    width, best = source, []
    for k in reversed(range(layers)):
        narrow = np.minimum(edges[k], width[:, None])
        best.append(narrow.argmax(0))
        width = np.take_along_axis(narrow, best[-1][None], 0)[0]
    width = np.minimum(width, target)
    nodes = np.empty(layers + 1, dtype=np.int64)
    nodes[0] = width.argmax()
    for k in range(layers):
        nodes[k + 1] = best[layers - 1 - k][nodes[k]]
    return nodes, float(width[nodes[0]])
