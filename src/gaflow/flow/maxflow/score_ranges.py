"""How far plain maximum flow leaves the scores open: each token's least and largest over **all** maximum flows.

Take any maximum flow `f`. Every other one is `f` plus a circulation of its residual graph (an edge can take `u - f`
more and give back `f`), the return edge left out, and every such circulation leads to a maximum flow. So split a node
into an entry and an outlet: the most its through-flow can grow is the maximum flow from the outlet back to the entry
in the residual graph without the node itself, and the most it can shrink is that from entry to outlet. In integers
both are exact. A circulation never leaves a strongly connected component, so only a node's component is searched.

For input tokens the two numbers also have names in the theory of polymatroids (and tests use them): `high` is the
maximum flow into this token alone, `low` what the maximum flow loses without it.

**Where a barrier solution lies.** A flow of value `F - d`, `F` the maximum, becomes a maximum flow by augmenting
paths of `d` units in all. A path passes a node once, so that it changes its through-flow by no more than its own
amount, and never takes from a terminal edge. Hence `low - d <= through-flow <= high + d` at every node, and at input
and output nodes even `through-flow <= high`. For `solve`, `d` is at most `certificate.gap`, which is at most
`epsilon kappa`: as epsilon goes to 0, its scores end inside the range.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gaflow.arguments import checked
from gaflow.flow.arguments import ArrayLike, Mask, Nodes, as_tensor
from gaflow.flow.maxflow.integer_network import IntegerNetwork, Problem, maximum, run_solver, solver_of
from gaflow.flow.network import Terminal
from gaflow.flow.result import Flow, capacities_of, check_layer_exists

# Of the flow: 0.1 + 0.2 and 0.3 are a tie, but not as floats, which leaves scores open by a last digit.
ROUNDING_SHARE = 1e-12


class ScoreRanges(NamedTuple):
    """Smallest and largest through-flow of each node over all maximum flows; unpacks as `low, high`."""

    low: Tensor  # (t,), or (b, t) for a batch
    high: Tensor  # likewise

    @property
    def width(self) -> Tensor:
        """How far each score is open, (t,) or (b, t)."""
        return self.high - self.low

    @property
    def unique(self) -> Tensor:
        """Whether all maximum flows agree on every score, but for rounding, () or (b,) bool."""
        flow = self.high.sum(-1, keepdim=True)
        return (self.width <= ROUNDING_SHARE * flow).all(-1)

    @property
    def dead(self) -> Tensor:
        """No path from source to target, and every score is 0, () or (b,) bool."""
        return (self.high == 0).all(-1)


@checked
def score_ranges(
    information: ArrayLike | Flow,
    *,
    layer: int = 0,
    integral: bool = False,
    terminal: Terminal = None,
    mask: Mask = None,
    sources: Nodes = None,
    targets: Nodes = None,
) -> ScoreRanges:
    """The least and the largest score of each token over all maximum flows of `information`, or of a flow's network.

    (l, t, t) and a flow of one text give two vectors (t,), (b, l, t, t) two matrices (b, t). `layer` asks for the nodes
    of another node layer: 0 is the input, l (or -1) the output. `integral=True` takes the integer capacities of
    Algorithms 1 and 2. The rest is as in `solve`. Exact in integers; in the units of the input, to the last digit of a
    layer's sum.

        low, high = gaflow.score_ranges(torch.rand(12, 14, 14))
        (high - low).max()  # how far plain maximum flow leaves a score open
        low, high = gaflow.score_ranges(att.flow)
    """
    networks = as_tensor(capacities_of(information))
    problem = Problem.build(networks, terminal, mask, sources, targets)
    b, layers, t, _ = problem.network.capacity.shape
    check_layer_exists(layer, layers + 1)
    node_layer = layer % (layers + 1)
    ranges = np.zeros((2, b, t))
    for item in range(b):
        integers = problem.integers(item, integral=integral)
        if integers.capacity.any():
            item_ranges = _ranges(integers, node_layer, t)
            ranges[:, item] = integers.to_units(item_ranges)
    low, high = torch.as_tensor(ranges, device=problem.network.capacity.device)
    if networks.dim() == 3 or (isinstance(information, Flow) and b == 1):
        return ScoreRanges(low[0], high[0])
    return ScoreRanges(low, high)


def _ranges(integers: IntegerNetwork, layer: int, t: int) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest through-flow (t,) of the nodes of `layer`, in integers."""
    arcs = integers.arcs
    flow = run_solver(integers).flow
    entry = 1 + layer * t + np.arange(t)
    outlet = arcs.nodes + np.arange(t)
    leaving = (arcs.tail >= entry[0]) & (arcs.tail <= entry[-1])
    tail = arcs.tail + leaving * (arcs.nodes - entry[0])
    inflow = np.zeros(arcs.nodes, dtype=np.int64)
    np.add.at(inflow, arcs.head, flow)
    through = inflow[entry]
    limit = np.zeros(arcs.nodes, dtype=np.int64)
    np.add.at(limit, arcs.head, integers.capacity + 1)  # more than can enter: no node binds
    node_slack = limit[entry] - through
    arc_slack = integers.capacity - flow
    # arcs of the residual graph: through the nodes and back, then along the arcs and back
    residual_tail = np.concatenate([entry, outlet, tail, arcs.head])
    residual_head = np.concatenate([outlet, entry, arcs.head, tail])
    capacity = np.concatenate([node_slack, through, arc_slack, flow])
    more, less = _slack(residual_tail.astype(np.int32), residual_head.astype(np.int32), capacity, t)
    return through - less, through + more


def _slack(tail: np.ndarray, head: np.ndarray, capacity: np.ndarray, t: int) -> tuple[np.ndarray, np.ndarray]:
    """How much the through-flow of each node can grow and shrink, (t,) twice, from the arcs (m,) of the residual graph.

    The first t arcs lead through the nodes, the next t back. An arc from source to target adds its capacity to the
    maximum flow, and an arc from target to source nothing, so the arcs of a node itself need not be taken out.
    """
    component = _components(tail, head, capacity)
    tail_component = component[tail]
    inner = (capacity > 0) & (tail_component == component[head])
    entry_component = tail_component[:t]
    is_open = entry_component == component[head[:t]]
    more = np.zeros(t, dtype=np.int64)
    less = np.zeros(t, dtype=np.int64)
    for label in np.unique(entry_component[is_open]):
        inside = inner & (tail_component == label)
        solver = solver_of(int(inside.sum()))
        solver.add_arcs_with_capacity(tail[inside], head[inside], capacity[inside])
        for node in np.flatnonzero(is_open & (entry_component == label)):
            more[node] = maximum(solver, head[node], tail[node]) - capacity[t + node]
            less[node] = maximum(solver, tail[node], head[node]) - capacity[node]
    return more, less


def _components(tail: np.ndarray, head: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """The strongly connected component of every node, over arcs of positive capacity."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    nodes = 1 + int(max(tail.max(), head.max()))
    positive = capacity > 0
    ends = (tail[positive], head[positive])
    ones = np.ones(positive.sum(), dtype=np.int8)
    graph = coo_array((ones, ends), shape=(nodes, nodes))
    _, labels = connected_components(graph.tocsr(), connection="strong")
    return labels
