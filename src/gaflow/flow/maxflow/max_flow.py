"""Plain maximum flow (eq. 8), exactly, by OR-Tools: Attention Flow before the barrier makes it unique.

Capacities become integers, either those of Algorithms 1 and 2 (`dense_network(...).upper_int`) or as fine as int64
allows; `integers.py` says how. Flows come back in the units of the input. A layered network usually has many maximum
flows; which one is found depends on the direction the edges point to.

The convention this file owns: the **certificate** of a maximum flow speaks of the capacities as given. `cut` is the
capacity of the minimum cut's edges before rounding, so `gap` bounds what rounding to integers lost; the integers
themselves are checked: their flow equals their cut. `negligible` counts live edges that rounding took away, `gamma`
and `clamped` are those of `dense_network`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaflow.flow.arguments import Nodes
from gaflow.flow.maxflow.integer_network import Integers, Problem, new_solver, push
from gaflow.flow.network import LayeredNetwork
from gaflow.flow.paper_algorithms import check_direction
from gaflow.flow.result import BatchCertificate, Flow

__all__ = ["max_flow"]


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
    `integral=False` scales the capacities as finely as 64 bits allow. `terminal`, `mask`, `sources` and `targets`
    are those of `solve`: by default terminals never bind; `terminal=t` is what the algorithms print.
    """
    new_solver()  # a missing library is the first thing to say
    check_direction(direction)
    problem = Problem.build(information, terminal, mask, sources, targets)
    solved = [_solve_one(problem, item, direction, integral) for item in range(len(problem.given))]
    return _gather(problem.network, solved, integral)


@dataclass(frozen=True)
class _Solved:
    whole: Integers
    flow: np.ndarray  # (l t t + 2 t,) in the units of the input
    value: float
    cut: float
    seconds: float


def _solve_one(problem: Problem, item: int, direction: str, integral: bool) -> _Solved:
    began = time.perf_counter()
    whole = problem.integers(item, direction, integral)
    found, arcs = push(whole), whole.arcs
    layers, t, _ = problem.network.capacity[item].shape
    flow = np.zeros(layers * t * t + 2 * t)
    flow[arcs.slot] = whole.real(found.flow)
    crossing = found.near_source[arcs.tail] & ~found.near_source[arcs.head]
    cut = float(arcs.capacity[crossing].sum())
    return _Solved(whole, flow, float(whole.real(found.value)), cut, time.perf_counter() - began)


def _gather(network: LayeredNetwork, solved: list[_Solved], integral: bool) -> Flow:
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
    certificate = BatchCertificate(
        conservation=imbalance,
        dual=zero,
        centrality=zero,
        gap=cut - value,
        cut=cut,
        kappa=network.kappa,
        mu=zero,
        epsilon=zero,
        edges=network.edges,
        negligible=column([int((s.whole.capacity == 0).sum()) for s in solved], torch.int64),
        gamma=column([s.whole.gamma if integral else 0.0 for s in solved]),
        clamped=column([s.whole.clamped for s in solved], torch.bool),
        dead=network.dead,
        iterations=torch.zeros_like(network.edges),
        seconds=column([s.seconds for s in solved]),
        converged=yes,
    )
    return Flow(
        edges, source, target, value, mu=zero, converged=yes, certificate=certificate, capacity=network.capacity
    )
