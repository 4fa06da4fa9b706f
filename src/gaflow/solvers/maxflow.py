"""Plain maximum flow (eq. 8), exactly, by OR-Tools: Attention Flow before the barrier makes it unique.

Capacities become integers, either `int(gamma u)` as Algorithms 1 and 2 say (gamma a power of ten), or as
finely as int64 allows (a power of two, so that scaling itself rounds nothing). Flows come back in the units
of the input. A layered network usually has many maximum flows; which one is found depends on the direction
the edges point to.

The convention this file owns: the **certificate** of a maximum flow speaks of the capacities as given. `cut`
is the capacity of the minimum cut's edges before rounding, so `gap` bounds what rounding to integers lost;
the integers themselves are checked: their flow equals their cut. `negligible` counts live edges that rounding
took away.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaflow.dense import Arcs, check_direction, integral_scale, layered_arcs
from gaflow.errors import GaflowError, MissingExtraError
from gaflow.network import Certificate, Flow, LayeredNetwork, Nodes, as_mask, as_networks, as_nodes

__all__ = ["max_flow"]

HEADROOM = 62  # bits: every node's inflow stays below 2^62, so that no sum of capacities overflows


def max_flow(
    information: Any,
    direction: str = "backward",
    integral: bool = True,
    *,
    terminal: float | Tensor | str | None = None,
    mask: Any = None,
    sources: Nodes | None = None,
    targets: Nodes | None = None,
) -> Flow:
    """A maximum flow of every network in `information`, (l, t, t) or (b, l, t, t).

    `integral=True` solves the network of Algorithm 1 (backward) or 2 (forward) with its integer capacities,
    `integral=False` scales the capacities as finely as 64 bits allow. `terminal`, `mask`, `sources` and
    `targets` are those of `solve`; by default terminals never bind.
    """
    _solver()
    check_direction(direction)
    given = as_networks(information)
    real = as_mask(mask, given)
    if real is not None:  # what padding holds must not choose gamma
        given = given * (real[:, None, :, None] & real[:, None, None, :])
    above, below = as_nodes(sources, given, real, "sources"), as_nodes(targets, given, real, "targets")
    network = LayeredNetwork.build(given, real, terminal, above, below)
    solved = [_solve_one(network, k, given[k], direction, integral) for k in range(len(given))]
    return _gather(network, solved)


@dataclass(frozen=True)
class _Solved:
    flow: np.ndarray  # (l t t + 2 t,) in the units of the input
    value: float
    cut: float
    negligible: int
    seconds: float


def _solve_one(network: LayeredNetwork, item: int, given: Tensor, direction: str, integral: bool) -> _Solved:
    began = time.perf_counter()
    capacity = network.capacity[item].cpu().numpy()
    if not integral:  # no edge carries more than kappa; wider ones would only take precision from the narrow
        capacity = np.minimum(capacity, network.kappa[item].item())
    # A terminal wider than the edges next to it never binds; the narrower number leaves int64 more room.
    source = np.minimum(network.source[item].cpu().numpy(), capacity[-1].sum(-1))
    target = np.minimum(network.target[item].cpu().numpy(), capacity[0].sum(-2))
    arcs = layered_arcs(capacity, source, target, direction)
    flow = np.zeros(capacity.size + source.size + target.size)
    if not len(arcs.tail):
        return _Solved(flow, 0.0, 0.0, 0, time.perf_counter() - began)
    busiest = float(capacity.sum((-2, -1)).max())
    if integral:
        gamma, bits = integral_scale(given, 2 * busiest)[0], 0
    else:
        gamma, bits = 1.0, HEADROOM - math.frexp(busiest)[1]
    whole = np.ldexp(gamma * arcs.capacity, bits).astype(np.int64)
    flows, side = _push(arcs, whole)
    crossing = side[arcs.tail] & ~side[arcs.head]
    value = int(flows[arcs.tail == arcs.source].sum())
    if value != int(whole[crossing].sum()):
        raise GaflowError(f"the flow {value} of item {item} is not its minimum cut {int(whole[crossing].sum())}")
    flow[arcs.slot] = np.ldexp(flows / gamma, -bits)
    cut = float(arcs.capacity[crossing].sum())
    return _Solved(flow, math.ldexp(value / gamma, -bits), cut, int((whole == 0).sum()), time.perf_counter() - began)


def _push(arcs: Arcs, capacity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Integer flows of all arcs, and which nodes are on the source's side of a minimum cut."""
    solver = _solver()
    numbers = solver.add_arcs_with_capacity(arcs.tail, arcs.head, capacity)
    status = solver.solve(arcs.source, arcs.target)
    if status != solver.OPTIMAL:
        raise GaflowError(f"OR-Tools found no maximum flow of {len(capacity)} edges: status {status}")
    side = np.zeros(1 + max(arcs.source, arcs.target), dtype=bool)
    side[solver.get_source_side_min_cut()] = True
    return np.asarray(solver.flows(numbers), dtype=np.int64), side


def _solver() -> Any:
    try:
        from ortools.graph.python import max_flow as library
    except ImportError as error:
        raise MissingExtraError('max_flow needs OR-Tools: pip install "gaflow[maxflow]"') from error
    return library.SimpleMaxFlow()


def _gather(network: LayeredNetwork, solved: list[_Solved]) -> Flow:
    """One Flow of the whole batch, on the device of the network."""
    b, layers, t, _ = network.capacity.shape
    device = network.capacity.device

    def column(values: list[Any], dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    flows = torch.as_tensor(np.stack([s.flow for s in solved]), device=device)
    edges, source, target = flows.split([layers * t * t, t, t], 1)
    edges, value, cut = (
        edges.reshape(b, layers, t, t),
        column([s.value for s in solved]),
        column([s.cut for s in solved]),
    )
    zero, yes = torch.zeros_like(value), torch.ones_like(network.dead)
    inflow = torch.cat([edges.sum(-2), source[:, None]], 1)  # (b, l+1, t)
    outflow = torch.cat([target[:, None], edges.sum(-1)], 1)
    imbalance = (inflow - outflow).abs().amax((-2, -1)) / value.clamp_min(torch.finfo(value.dtype).tiny)
    certificate = Certificate(
        conservation=imbalance,
        dual=zero,
        centrality=zero,
        gap=cut - value,
        cut=cut,
        kappa=network.kappa,
        mu=zero,
        epsilon=zero,
        edges=network.edges,
        negligible=column([s.negligible for s in solved], torch.int64),
        dead=network.dead,
        iterations=torch.zeros_like(network.edges),
        seconds=column([s.seconds for s in solved]),
        converged=yes,
    )
    return Flow(edges, source, target, value, mu=zero, converged=yes, certificate=certificate)
