"""Capacities as 64-bit integers, so that OR-Tools can find exact maximum flows.

    capacity = int(gamma u)

`gamma` is either that of Algorithms 1 and 2, a power of ten, and then the integers are `dense_network`'s; or the
largest power of two that 64 bits allow, whose scaling rounds nothing but capacities 2^53 times smaller than a layer.

The convention this file owns: **wide is not infinite**. A terminal edge gets at most one unit more than the edges
beside it carry together (exactly that if no terminal capacity is given), and without `integral` an edge at most twice
the smallest cut through a layer or the terminals. Neither changes a flow or moves a minimum cut, and both leave the
narrow edges more bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from gaflow.errors import GaflowError, MissingExtraError
from gaflow.flow.arguments import Nodes, as_mask, as_networks, as_nodes
from gaflow.flow.network import LayeredNetwork
from gaflow.flow.paper_algorithms import ROOM, Arcs, integral_scale, layered_arcs

__all__ = ["HEADROOM", "Integers", "Problem", "Solution", "new_solver", "push"]

HEADROOM = 62  # bits: every node's inflow stays below 2^62, so that no sum of capacities overflows


@dataclass(frozen=True)
class Integers:
    """One network in integers."""

    arcs: Arcs  # live edges, with their capacities as given
    capacity: np.ndarray  # (m,) int64
    gamma: float  # a power of ten, or 1
    bits: int  # a further power of two, or 0
    clamped: bool  # gamma is smaller than the algorithms print it, so that int64 holds all capacities together

    def real(self, whole: Any) -> Any:
        """Integer amounts in the units of the input."""
        return np.ldexp(np.asarray(whole, dtype=np.int64) / self.gamma, -self.bits)


@dataclass(frozen=True)
class Problem:
    """A batch of networks as given and as pruned."""

    network: LayeredNetwork
    given: list[Tensor]  # (l, t', t') each: real tokens only, dead edges included, as Algorithms 1 and 2 see them
    wide: bool  # no terminal capacity was asked for: terminals are wider than all beside them

    @classmethod
    def build(
        cls,
        information: Any,
        terminal: float | Tensor | str | None = None,
        mask: Any = None,
        sources: Nodes | None = None,
        targets: Nodes | None = None,
    ) -> Problem:
        """Check the arguments, which are those of `solve`, and prune."""
        networks = as_networks(information)
        real = as_mask(mask, networks)
        above, below = as_nodes(sources, networks, real, "sources"), as_nodes(targets, networks, real, "targets")
        # What padding holds must not choose gamma.
        given = [x if real is None else x[:, real[k]][:, :, real[k]] for k, x in enumerate(networks)]
        return cls(LayeredNetwork.build(networks, real, terminal, above, below), given, terminal is None)

    def integers(self, item: int, direction: str = "backward", integral: bool = False) -> Integers:
        """Item `item` in integers: those of Algorithms 1 and 2, or as fine as possible."""
        network = self.network
        layers = network.capacity[item].cpu().numpy()
        source, target = network.source[item].cpu().numpy(), network.target[item].cpu().numpy()
        gamma, bits, clamped, limit = 1.0, 0, False, math.inf
        if integral:
            gamma, clamped = integral_scale(self.given[item])
        elif not bool(network.dead[item]):
            limit = 2 * network.unit()[item].item()
            bits = HEADROOM - math.frexp(float(np.minimum(layers, limit).sum((-2, -1)).max()))[1]

        def whole(capacity: np.ndarray) -> np.ndarray:
            return np.minimum(np.ldexp(gamma * np.minimum(capacity, limit), bits), ROOM).astype(np.int64)

        inner = whole(layers)
        above, below = inner[-1].sum(-1) + 1, inner[0].sum(-2) + 1
        if not self.wide:
            above, below = np.minimum(whole(source), above), np.minimum(whole(target), below)
        arcs = layered_arcs(layers, source, target, direction)
        return Integers(arcs, np.concatenate([inner.ravel(), above, below])[arcs.slot], gamma, bits, clamped)


@dataclass(frozen=True)
class Solution:
    """A maximum flow of integers, and the two minimum cuts at either end of all of them."""

    flow: np.ndarray  # (m,) int64
    value: int
    near_source: np.ndarray  # (n,) bool, the source's side of the minimum cut nearest to it
    near_target: np.ndarray  # (n,) bool, the source's side of the minimum cut nearest to the target


def push(problem: Integers) -> Solution:
    """Solve, and check that the flow is worth its cut."""
    arcs, capacity = problem.arcs, problem.capacity
    n = 1 + max(arcs.source, arcs.target)
    near, far = np.zeros(n, dtype=bool), np.ones(n, dtype=bool)
    if not len(capacity):
        near[arcs.source], far[arcs.target] = True, False
        return Solution(capacity, 0, near, far)
    solver = new_solver()
    numbers = solver.add_arcs_with_capacity(arcs.tail, arcs.head, capacity)
    status = solver.solve(arcs.source, arcs.target)
    if status != solver.OPTIMAL:
        raise GaflowError(f"OR-Tools found no maximum flow of {len(capacity)} edges: status {status}")
    near[solver.get_source_side_min_cut()] = True
    far[solver.get_sink_side_min_cut()] = False
    flow = np.asarray(solver.flows(numbers), dtype=np.int64)
    value = int(flow[arcs.tail == arcs.source].sum())
    for side in (near, far):
        cut = int(capacity[side[arcs.tail] & ~side[arcs.head]].sum())
        if value != cut:
            raise GaflowError(f"OR-Tools gave a flow of {value}, which is not its minimum cut {cut}; please report it")
    return Solution(flow, value, near, far)


def new_solver() -> Any:
    """An empty OR-Tools solver."""
    try:
        from ortools.graph.python import max_flow as library
    except ModuleNotFoundError as error:
        raise MissingExtraError('maximum flows need OR-Tools: pip install "gaflow[maxflow]"') from error
    except ImportError as error:
        raise GaflowError(
            f"OR-Tools is installed but cannot be loaded ({error}); if CVXPY or highspy was imported before it, import "
            "ortools.graph.python.max_flow first"
        ) from error
    return library.SimpleMaxFlow()
