"""Plain maximum flow (eq. 8), exactly, by OR-Tools: Attention Flow before the barrier makes it unique.

Capacities become integers, either those of Algorithms 1 and 2 (`dense_network(...).upper_int`) or as fine as int64
allows; `integer_network.py` says how. Flows come back in the units of the input. A layered network usually has many maximum
flows; which one is found depends on the direction the edges point to.

The convention this file owns: the **certificate** of a maximum flow speaks of the capacities as given. `cut` is the
capacity of the minimum cut's edges before rounding, so `gap` bounds what rounding to integers lost; the integers
themselves are checked: their flow equals their cut. `negligible` counts live edges that rounding took away, `gamma`
and `clamped` are those of `dense_network`.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from gaflow.flow.arguments import Nodes
from gaflow.flow.maxflow.integer_network import Problem, new_solver, run_solver
from gaflow.flow.network import LayeredNetwork, Terminal
from gaflow.flow.paper_algorithms import Direction, check_direction
from gaflow.flow.result import BatchCertificate, Flow

__all__ = ["max_flow"]


def max_flow(
    information: Any,
    direction: Direction = "backward",
    integral: bool = True,
    *,
    terminal: Terminal = None,
    mask: Any = None,
    sources: Nodes | None = None,
    targets: Nodes | None = None,
) -> Flow:
    """A maximum flow of every network in `information`, (l, t, t) or (b, l, t, t).

    `integral=True` solves the network of Algorithm 1 (backward) or 2 (forward) with its integer capacities,
    `integral=False` scales the capacities as finely as 64 bits allow. `terminal`, `mask`, `sources` and `targets`
    are those of `solve`: by default terminals never bind; `terminal=t` is the algorithms' choice.

        flow = gaflow.max_flow(torch.rand(12, 14, 14))
        flow.value  # (1,) the maximum
    """
    new_solver()  # a missing library is the first thing to report
    check_direction(direction)
    problem = Problem.build(information, terminal, mask, sources, targets)
    batch = _Batch(problem.network)
    for item in range(len(problem.unpruned)):
        batch.solve(problem, item, direction, integral)
    return batch.flow(integral)


class _Batch:
    """Flows and certificates of a batch, filled in item by item on the CPU."""

    def __init__(self, network: LayeredNetwork):
        b, layers, t, _ = network.capacity.shape
        self.network = network
        self.flows = np.zeros((b, layers * t * t + 2 * t))  # in the units of the input
        self.value = np.zeros(b)
        self.cut = np.zeros(b)
        self.gamma = np.zeros(b)
        self.clamped = np.zeros(b, dtype=bool)
        self.negligible = np.zeros(b, dtype=np.int64)
        self.seconds = np.zeros(b)

    def solve(self, problem: Problem, item: int, direction: Direction, integral: bool) -> None:
        """Solve one item."""
        started = time.perf_counter()
        integers = problem.integers(item, direction, integral)
        solution = run_solver(integers)
        arcs = integers.arcs
        self.flows[item, arcs.slot] = integers.to_units(solution.flow)
        self.value[item] = integers.to_units(solution.value)
        self.cut[item] = arcs.capacity[arcs.crossing(solution.near_source)].sum()
        self.gamma[item] = integers.gamma
        self.clamped[item] = integers.clamped
        self.negligible[item] = (integers.capacity == 0).sum()
        self.seconds[item] = time.perf_counter() - started

    def flow(self, integral: bool) -> Flow:
        """One Flow of all items, on the device of the network."""
        network = self.network
        b, layers, t, _ = network.capacity.shape
        device = network.capacity.device
        edges, source, target = torch.as_tensor(self.flows, device=device).split([layers * t * t, t, t], 1)
        edges = edges.reshape(b, layers, t, t)
        value = torch.as_tensor(self.value, device=device)
        cut = torch.as_tensor(self.cut, device=device)
        zero = torch.zeros_like(value)
        converged = torch.ones_like(network.dead)
        inflow = torch.cat([edges.sum(-2), source[:, None]], 1)  # (b, l+1, t)
        outflow = torch.cat([target[:, None], edges.sum(-1)], 1)
        imbalance = (inflow - outflow).abs().amax((-2, -1))
        certificate = BatchCertificate(
            conservation=imbalance / value.clamp_min(torch.finfo(value.dtype).tiny),
            dual=zero,
            centrality=zero,
            gap=cut - value,
            cut=cut,
            kappa=network.kappa,
            mu=zero,
            epsilon=zero,
            edges=network.edges,
            negligible=torch.as_tensor(self.negligible, device=device),
            gamma=torch.as_tensor(self.gamma, device=device) if integral else zero,
            clamped=torch.as_tensor(self.clamped, device=device),
            dead=network.dead,
            iterations=torch.zeros_like(network.edges),
            seconds=torch.as_tensor(self.seconds, device=device),
            converged=converged,
        )
        return Flow(
            edges=edges,
            source=source,
            target=target,
            value=value,
            mu=zero,
            converged=converged,
            certificate=certificate,
            capacity=network.capacity,
        )
