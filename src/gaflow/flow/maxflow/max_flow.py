"""Plain maximum flow (eq. 8), exactly, by OR-Tools: Attention Flow before the barrier makes it unique.

Capacities become integers, either those of Algorithms 1 and 2 (`dense_network(...).upper_int`) or as fine as int64
allows; `integer_network.py` says how. Flows come back in the units of the input. A layered network usually has many
maximum flows; which one is found depends on the direction the edges point to.

The convention this file owns: the **certificate** of a maximum flow speaks of the capacities as given. `cut` is the
capacity of the minimum cut's edges before rounding, so `gap` bounds what rounding to integers lost; the integers
themselves are checked: their flow equals their cut. `negligible` counts live edges that rounding took away, `gamma`
and `clamped` are those of `dense_network`.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import torch

from gaflow.flow.arguments import ArrayLike, Mask, Nodes
from gaflow.flow.maxflow.integer_network import Problem, new_solver, run_solver
from gaflow.flow.network import LayeredNetwork, Terminal
from gaflow.flow.paper_algorithms import Direction, check_direction
from gaflow.flow.result import BatchCertificate, Flow

__all__ = ["max_flow"]


def max_flow(
    information: ArrayLike,
    direction: Direction = "backward",
    integral: bool = True,
    *,
    terminal: Terminal = None,
    mask: Mask = None,
    sources: Nodes = None,
    targets: Nodes = None,
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
    return batch.flow()


class _Batch:
    """Flows and certificates of a batch, filled in item by item on the CPU."""

    def __init__(self, network: LayeredNetwork):
        b, layers, t, _ = network.capacity.shape
        self.network = network
        edges = layers * t * t + 2 * t
        self.flows = np.zeros((b, edges))  # in the units of the input
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
        crossing = arcs.crossing(solution.near_source)
        self.cut[item] = arcs.capacity[crossing].sum()
        if integral:
            self.gamma[item] = integers.gamma
        self.clamped[item] = integers.clamped
        self.negligible[item] = (integers.capacity == 0).sum()
        self.seconds[item] = time.perf_counter() - started

    def flow(self) -> Flow:
        """One Flow of all items, on the device of the network."""
        network = self.network
        b, layers, t, _ = network.capacity.shape
        device = network.capacity.device
        flows = torch.as_tensor(self.flows, device=device)
        edges, source, target = flows.split([layers * t * t, t, t], 1)
        edges = edges.reshape(b, layers, t, t)
        value = torch.as_tensor(self.value, device=device)
        cut = torch.as_tensor(self.cut, device=device)
        inflow = torch.cat([edges.sum(-2), source[:, None]], 1)  # (b, l+1, t)
        outflow = torch.cat([target[:, None], edges.sum(-1)], 1)
        imbalance = (inflow - outflow).abs().amax((-2, -1))
        tiny = torch.finfo(value.dtype).tiny
        certificate = replace(
            BatchCertificate.start(network, value, cut),
            conservation=imbalance / value.clamp_min(tiny),
            negligible=torch.as_tensor(self.negligible, device=device),
            gamma=torch.as_tensor(self.gamma, device=device),
            clamped=torch.as_tensor(self.clamped, device=device),
            seconds=torch.as_tensor(self.seconds, device=device),
        )
        return Flow(
            edges=edges,
            source=source,
            target=target,
            value=value,
            mu=certificate.mu,
            converged=certificate.converged,
            certificate=certificate,
            capacity=network.capacity,
        )
