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

import numpy as np
from torch import Tensor

from gaflow.arguments import checked
from gaflow.errors import Argument, ArgumentError
from gaflow.flow.result import Flow
from gaflow.progress import checkpoint


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


@checked
def routes(flow: Flow, k: int | None = 10) -> Routes:
    """The `k` widest routes of one flow, or all of them for `k=None`: a barrier solution has as many as live edges.

    for route in gaflow.routes(att.flow, k=5):
        print(route.tokens, route.share)
    """
    if len(flow.value) != 1:
        raise ArgumentError(Argument("flow"), f" must be one flow, not a batch of {len(flow.value)}: index it, flow[0]")
    if k is not None and k < 0:
        raise ArgumentError(Argument("k"), f" must be a whole number >= 0, or None for all routes, not {k!r}")
    edges = _amounts(flow.edges)
    source = _amounts(flow.source)
    target = _amounts(flow.target)
    value = flow.value.item()
    layers = np.arange(len(edges))
    widest_first: list[Route] = []
    while k is None or len(widest_first) < k:
        checkpoint()
        nodes, amount = _widest(edges, source, target)
        if amount <= 0:
            break
        source[nodes[-1]] -= amount
        edges[layers, nodes[1:], nodes[:-1]] -= amount
        target[nodes[0]] -= amount
        route = Route(tuple(nodes.tolist()), amount, amount / value)
        widest_first.append(route)
    rest = value - math.fsum(route.amount for route in widest_first)
    return Routes(tuple(widest_first), max(rest, 0.0), value)


def _amounts(flow: Tensor) -> np.ndarray:
    """A copy of the flow of the only item; refuses numbers that are no amounts of flow."""
    amounts = flow[0].detach().cpu().double().numpy().copy()
    if not (np.isfinite(amounts).all() and (amounts >= 0).all()):
        raise ArgumentError(
            Argument("flow"), " holds negative or non-finite amounts, which are no routes: solve it again"
        )
    return amounts


def _widest(edges: np.ndarray, source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, float]:
    """The nodes (l+1,) of the widest route, input first, and its width."""
    layers = len(edges)
    width = source
    best_tail = []  # of each node, from the highest layer of edges down
    for k in reversed(range(layers)):
        narrow = np.minimum(edges[k], width[:, None])
        best = narrow.argmax(0)
        width = np.take_along_axis(narrow, best[None], 0)[0]
        best_tail.append(best)
    width = np.minimum(width, target)
    nodes = np.empty(layers + 1, dtype=np.int64)
    nodes[0] = width.argmax()
    for k in range(layers):
        nodes[k + 1] = best_tail[layers - 1 - k][nodes[k]]
    return nodes, float(width[nodes[0]])
