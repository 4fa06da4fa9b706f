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

from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gaflow.errors import GaflowError, MissingExtraError
from gaflow.flow.arguments import Nodes
from gaflow.flow.maxflow.integer_network import Integers, Problem, new_solver, push

__all__ = ["ScoreRanges", "score_ranges"]

ROUNDING = (
    1e-12  # of the flow: 0.1 + 0.2 and 0.3 are a tie, but not as floats, which leaves scores open by a last digit
)


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
        return (self.width <= ROUNDING * self.high.sum(-1, keepdim=True)).all(-1)

    @property
    def dead(self) -> Tensor:
        """No path from source to target, so that every score is 0, () or (b,) bool."""
        return (self.high == 0).all(-1)


def score_ranges(
    information: Any,
    *,
    layer: int = 0,
    integral: bool = False,
    terminal: float | Tensor | str | None = None,
    mask: Any = None,
    sources: Nodes | None = None,
    targets: Nodes | None = None,
) -> ScoreRanges:
    """The least and the largest score of each token over all maximum flows of `information`.

    (l, t, t) gives two vectors (t,), (b, l, t, t) two matrices (b, t). `layer` asks for the nodes of another node
    layer: 0 is the input, l (or -1) the output. `integral=True` takes the integer capacities of Algorithms 1 and 2.
    The rest is as in `solve`. Exact in integers; in the units of the input, to the last digit of a layer's sum.
    """
    new_solver()
    problem = Problem.build(information, terminal, mask, sources, targets)
    b, layers, t, _ = problem.network.capacity.shape
    if isinstance(layer, bool) or not isinstance(layer, Integral):
        raise TypeError(f"layer must be a whole number, not {layer!r}")
    if not -layers - 1 <= layer <= layers:
        raise ValueError(
            f"there is no node layer {layer}: {layers} layers have node layers 0 (input) to {layers} (output)"
        )
    found = np.zeros((2, b, t))
    for item in range(b):
        whole = problem.integers(item, integral=integral)
        if whole.capacity.any():
            found[:, item] = whole.real(_ranges(whole, int(layer) % (layers + 1), t))
    low, high = torch.as_tensor(found, device=problem.network.capacity.device)
    one = _depth(information) == 3
    return ScoreRanges(low[0], high[0]) if one else ScoreRanges(low, high)


def _depth(given: Any) -> int:
    """The number of axes, also of a list of tensors."""
    return given.ndim if hasattr(given, "ndim") else 1 + _depth(given[0]) if isinstance(given, list | tuple) else 0


def _ranges(whole: Integers, layer: int, t: int) -> np.ndarray:
    """Least and largest through-flow (2, t) of the nodes of `layer`."""
    arcs, capacity, flow = whole.arcs, whole.capacity, push(whole).flow
    n = 1 + max(arcs.source, arcs.target)
    entry, outlet = 1 + layer * t + np.arange(t), n + np.arange(t)
    leaving = (arcs.tail >= entry[0]) & (arcs.tail <= entry[-1])
    tail, head = arcs.tail + leaving * (n - entry[0]), arcs.head
    through, room = np.zeros(n + t, dtype=np.int64), np.zeros(n + t, dtype=np.int64)
    np.add.at(through, head, flow)
    np.add.at(room, head, capacity + 1)  # more than can enter, so that no node binds
    graph = _Residual(
        tail=np.concatenate([entry, outlet, tail, head]),
        head=np.concatenate([outlet, entry, head, tail]),
        capacity=np.concatenate([(room - through)[entry], through[entry], capacity - flow, flow]),
        nodes=t,
    )
    more, less = graph.slack()
    return np.stack([through[entry] - less, through[entry] + more])


@dataclass(frozen=True)
class _Residual:
    """The residual graph: first the arcs through the `nodes` that are asked for, as many back, then all others."""

    tail: np.ndarray  # (m,)
    head: np.ndarray  # (m,)
    capacity: np.ndarray  # (m,) int64
    nodes: int

    def slack(self) -> tuple[np.ndarray, np.ndarray]:
        """How much the through-flow of each node can grow and shrink, (t,) twice."""
        label = _components(self.tail, self.head, self.capacity)
        more, less = np.zeros((2, self.nodes), dtype=np.int64)
        inner = (self.capacity > 0) & (label[self.tail] == label[self.head])
        mine = label[self.tail[: self.nodes]]
        mine = np.where(mine == label[self.head[: self.nodes]], mine, -1)
        for component in np.unique(mine[mine >= 0]):
            self._search(inner & (label[self.tail] == component), np.flatnonzero(mine == component), more, less)
        return more, less

    def _search(self, inside: np.ndarray, nodes: np.ndarray, more: np.ndarray, less: np.ndarray) -> None:
        """Fill in what the `nodes` of one strongly connected component can gain and lose."""
        kept = np.flatnonzero(inside)
        names, ends = np.unique(np.concatenate([self.tail[kept], self.head[kept]]), return_inverse=True)
        tail, head = ends.astype(np.int32).reshape(2, -1)
        solver = new_solver()
        solver.add_arcs_with_capacity(tail, head, self.capacity[kept])
        others = kept >= 2 * self.nodes
        leave, enter = (np.bincount(x[others], minlength=len(names)) for x in (tail, head))
        entry, outlet = np.searchsorted(names, self.tail[nodes]), np.searchsorted(names, self.head[nodes])
        for node, a, z in zip(nodes.tolist(), entry.tolist(), outlet.tolist(), strict=True):
            own = [(k, int(self.capacity[k])) for k in (node, self.nodes + node) if inside[k]]
            places = [(int(np.searchsorted(kept, k)), capacity) for k, capacity in own]
            for place, _ in places:
                solver.set_arc_capacity(place, 0)
            if leave[z] and enter[a]:
                more[node] = _value(solver, z, a)
            if leave[a] and enter[z]:
                less[node] = _value(solver, a, z)
            for place, capacity in places:
                solver.set_arc_capacity(place, capacity)


def _value(solver: Any, source: int, target: int) -> int:
    status = solver.solve(source, target)
    if status != solver.OPTIMAL:
        raise GaflowError(f"OR-Tools found no maximum flow of {solver.num_arcs()} residual edges: status {status}")
    return solver.optimal_flow()


def _components(tail: np.ndarray, head: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """The strongly connected component of every node, over arcs of positive capacity."""
    try:
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components
    except ImportError as error:
        raise MissingExtraError('score_ranges needs SciPy: pip install "gaflow[maxflow]"') from error
    there = capacity > 0
    n = 1 + int(max(tail.max(), head.max()))
    graph = coo_array((np.ones(there.sum(), dtype=np.int8), (tail[there], head[there])), shape=(n, n))
    return connected_components(graph.tocsr(), connection="strong")[1]
