"""Capacities as 64-bit integers, for OR-Tools to find exact maximum flows.

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
from importlib.util import find_spec
from typing import Any

import numpy as np
from torch import Tensor

from gaflow.errors import GaflowError
from gaflow.extras import need
from gaflow.flow.arguments import ArrayLike, Mask, Nodes, as_mask, as_networks
from gaflow.flow.maxflow.own_solver import MOST_ARCS, PlainMaxFlow
from gaflow.flow.network import LayeredNetwork, Terminal
from gaflow.flow.paper_algorithms import (
    MAX_INTEGER_SUM,
    Arcs,
    Direction,
    integral_scale,
    layered_arcs,
    warn_of_lost_terminals,
)
from gaflow.progress import checkpoint

HEADROOM_BITS = 62  # every node's inflow stays below 2^62, and no sum of capacities overflows


@dataclass(frozen=True)
class IntegerNetwork:
    """One network in integers."""

    arcs: Arcs  # live edges, with their capacities in the units of the input
    capacity: np.ndarray  # (m,) int64
    gamma: float  # a power of ten, or 1
    bits: int  # a further power of two, or 0
    clamped: bool  # gamma is smaller than the algorithms print it, for int64 to hold all capacities together

    def to_units(self, amounts: Any) -> Any:
        """Integer amounts in the units of the input."""
        integers = np.asarray(amounts, dtype=np.int64)
        return np.ldexp(integers / self.gamma, -self.bits)


@dataclass(frozen=True)
class Problem:
    """A batch of networks, before and after pruning."""

    network: LayeredNetwork
    unpruned: Tensor  # (b, l, t, t), dead edges included
    real: Tensor  # (b, t) bool: not padding
    wide_terminals: bool  # no terminal capacity was given: terminals are wider than all edges beside them

    @classmethod
    def build(
        cls,
        information: ArrayLike,
        terminal: Terminal = None,
        mask: Mask = None,
        sources: Nodes = None,
        targets: Nodes = None,
    ) -> Problem:
        """Check the arguments, which are those of `solve`, and prune."""
        networks = as_networks(information)
        real = as_mask(mask, networks)
        network = LayeredNetwork.build(networks, terminal, real, sources, targets)
        return cls(network, networks, real, wide_terminals=terminal is None)

    def integers(self, item: int, direction: Direction = "backward", integral: bool = False) -> IntegerNetwork:
        """Item `item` in integers: those of Algorithms 1 and 2, or as fine as possible."""
        network = self.network
        layers = network.capacity[item].cpu().numpy()
        source = network.source[item].cpu().numpy()
        target = network.target[item].cpu().numpy()
        gamma = 1.0
        bits = 0
        clamped = False
        limit = math.inf
        if integral:
            tokens = self.real[item]  # the numbers at padding positions must not choose gamma
            gamma, clamped = integral_scale(self.unpruned[item][:, tokens][:, :, tokens])
            if not self.wide_terminals and not network.dead[item]:
                warn_of_lost_terminals(gamma, min(source.max(), target.max()))
        elif not network.dead[item]:
            limit = 2 * network.unit[item].item()
            layer_sums = np.minimum(layers, limit).sum((-2, -1))
            bits = spare_bits(layer_sums.max())

        def to_integers(capacity: np.ndarray) -> np.ndarray:
            scaled = np.ldexp(gamma * np.minimum(capacity, limit), bits)
            return np.minimum(scaled, MAX_INTEGER_SUM).astype(np.int64)

        inner = to_integers(layers)
        above = inner[-1].sum(-1) + 1
        below = inner[0].sum(-2) + 1
        if not self.wide_terminals:
            above = np.minimum(to_integers(source), above)
            below = np.minimum(to_integers(target), below)
        arcs = layered_arcs(layers, source, target, direction)
        capacity = np.concatenate([inner.ravel(), above, below])[arcs.slot]
        return IntegerNetwork(arcs=arcs, capacity=capacity, gamma=gamma, bits=bits, clamped=clamped)


def spare_bits(largest_sum: float) -> int:
    """The power of two by which capacities can be multiplied, if those of no layer sum to more than this."""
    _, exponent = math.frexp(float(largest_sum))
    return HEADROOM_BITS - exponent


@dataclass(frozen=True)
class IntegerFlow:
    """A maximum flow of integers, and the two minimum cuts at either end of all of them."""

    flow: np.ndarray  # (m,) int64
    value: int
    near_source: np.ndarray  # (n,) bool, the source's side of the minimum cut nearest to it
    near_target: np.ndarray  # (n,) bool, the source's side of the minimum cut nearest to the target


def run_solver(network: IntegerNetwork) -> IntegerFlow:
    """Find a maximum flow, and check that its value is that of its cuts."""
    arcs = network.arcs
    capacity = network.capacity
    near_source = np.zeros(arcs.nodes, dtype=bool)
    near_target = np.ones(arcs.nodes, dtype=bool)
    if not len(capacity):
        near_source[arcs.source] = True
        near_target[arcs.target] = False
        return IntegerFlow(capacity, 0, near_source, near_target)
    solver = solver_of(len(capacity))
    numbers = solver.add_arcs_with_capacity(arcs.tail, arcs.head, capacity)
    maximum(solver, arcs.source, arcs.target)
    near_source[solver.get_source_side_min_cut()] = True
    near_target[solver.get_sink_side_min_cut()] = False
    flow = np.asarray(solver.flows(numbers), dtype=np.int64)
    value = int(flow[arcs.tail == arcs.source].sum())
    for side in (near_source, near_target):
        cut = int(capacity[arcs.crossing(side)].sum())
        if value != cut:
            raise GaflowError(
                f"the solver gave a flow of {value}, which is not its minimum cut {cut}; please report it"
            )
    return IntegerFlow(flow, value, near_source, near_target)


def maximum(solver: Any, source: int, target: int) -> int:
    """The maximum flow between two nodes of an OR-Tools solver."""
    checkpoint()
    status = solver.solve(source, target)
    if status != solver.OPTIMAL:
        raise GaflowError(f"the solver found no maximum flow of {solver.num_arcs()} edges: status {status}")
    return solver.optimal_flow()


def solver_of(arcs: int) -> Any:
    """An empty solver for so many arcs: OR-Tools', or for small networks gaflow's own if that is not installed."""
    if arcs <= MOST_ARCS and find_spec("ortools") is None:
        return PlainMaxFlow()
    return new_solver()


def new_solver() -> Any:
    """An empty OR-Tools solver."""
    max_flow, _ = load_ortools()
    return max_flow.SimpleMaxFlow()


def load_ortools() -> tuple[Any, Any]:
    """OR-Tools' modules for maximum flows and for flows of minimum cost."""
    need("ortools.graph.python", "maxflow", "maximum flows need OR-Tools")
    try:
        from ortools.graph.python import max_flow, min_cost_flow
    except ImportError as error:
        raise GaflowError(
            f"OR-Tools is installed but cannot be loaded ({error}); if CVXPY or highspy was imported before it, import "
            "ortools.graph.python.max_flow first"
        ) from error
    return max_flow, min_cost_flow
