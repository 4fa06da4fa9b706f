"""Plain maximum flow (eq. 8), exactly, by OR-Tools: Attention Flow before the barrier makes it unique.

Capacities become integers, either those of Algorithms 1 and 2 (`dense_network(...).upper_int`) or as fine as int64
allows; `integer_network.py` says how. Flows come back in the units of the input. A layered network usually has many
maximum flows; which one is found depends on the direction the edges point to.

The convention this file owns: the **certificate** of a maximum flow speaks of the capacities as given. `cut` is the
capacity of the minimum cut's edges before rounding, so `gap` bounds what rounding to integers lost; the integers
themselves are checked: their flow equals their cut. The potentials are those of this cut, -1 on the side of the
super-source and 0 on the other; of a forward flow they are turned round like everything else in a Flow. `negligible`
counts live edges that rounding took away, `gamma` and `clamped` are those of `dense_network`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from gaflow.arguments import checked
from gaflow.flow.arguments import ArrayLike, Mask, Nodes
from gaflow.flow.maxflow.integer_network import Problem, new_solver, run_solver
from gaflow.flow.network import LayeredNetwork, Terminal
from gaflow.flow.paper_algorithms import Direction, check_direction
from gaflow.flow.result import BatchCertificate, Flow, Potentials


@checked
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
    are those of `solve`: by default terminals never bind; `terminal="tokens"` is the algorithms' choice.

        flow = gaflow.max_flow(torch.rand(12, 14, 14))
        flow.value  # (1,) the maximum
    """
    new_solver()  # a missing library is the first thing to report
    check_direction(direction)
    problem = Problem.build(information, terminal, mask, sources, targets)
    b, layers, t, _ = problem.network.capacity.shape
    flows = np.zeros((b, layers * t * t + 2 * t))  # in the units of the input
    nodes = np.zeros((b, layers + 1, t))  # potentials
    facts = defaultdict(list)  # of each item; all but the value are fields of its certificate
    for item in range(b):
        started = time.perf_counter()
        integers = problem.integers(item, direction, integral)
        solution = run_solver(integers)
        arcs = integers.arcs
        flows[item, arcs.slot] = integers.to_units(solution.flow)
        facts["value"].append(integers.to_units(solution.value))
        crossing = arcs.crossing(solution.near_source)
        facts["cut"].append(arcs.capacity[crossing].sum())
        near_output = solution.near_source if direction == "backward" else ~solution.near_source
        side = (near_output & arcs.alive())[1:-1]
        nodes[item] = np.where(side, -1.0, 0.0).reshape(layers + 1, t)
        facts["gamma"].append(integers.gamma if integral else 0.0)
        facts["clamped"].append(integers.clamped)
        facts["negligible"].append((integers.capacity == 0).sum())
        facts["seconds"].append(time.perf_counter() - started)
    return _flow(problem.network, flows, nodes, facts)


def _flow(network: LayeredNetwork, flows: np.ndarray, nodes: np.ndarray, facts: Mapping[str, list]) -> Flow:
    """One Flow of all items, on the device of the network."""
    b, layers, t, _ = network.capacity.shape
    device = network.capacity.device
    amounts = torch.as_tensor(flows, device=device)
    edges, source, target = amounts.split([layers * t * t, t, t], 1)
    edges = edges.reshape(b, layers, t, t)
    tensors = {}
    for name, values in facts.items():
        tensors[name] = torch.as_tensor(np.array(values), device=device)
    value = tensors.pop("value")
    inflow = torch.cat([edges.sum(-2), source[:, None]], 1)  # (b, l+1, t)
    outflow = torch.cat([target[:, None], edges.sum(-1)], 1)
    imbalance = (inflow - outflow).abs().amax((-2, -1))
    tiny = torch.finfo(value.dtype).tiny
    certificate = BatchCertificate.start(network, value, tensors["cut"])
    certificate = replace(certificate, conservation=imbalance / value.clamp_min(tiny), **tensors)
    source_potential = torch.where(network.dead, 0.0, -1.0).to(value)
    node_potentials = torch.as_tensor(nodes, device=device)
    potentials = Potentials(nodes=node_potentials, source=source_potential, target=torch.zeros_like(value))
    return Flow(
        edges=edges,
        source=source,
        target=target,
        value=value,
        mu=certificate.mu,
        converged=certificate.converged,
        certificate=certificate,
        capacity=network.capacity,
        potentials=potentials,
    )
