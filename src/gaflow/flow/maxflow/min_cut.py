"""The minimum cut: which edges hold the flow back, and in which layer they lie.

A cut puts every node on the source's side or on the target's; its edges lead from one to the other, and no flow exceeds
their capacity. The cuts of least capacity have a smallest and a largest source's side. They are the two that can be
named without choosing: the minimum cut nearest to the output, and the one nearest to the input. All others lie in
between, and if these two have the same edges, there is only one.

The convention this file owns: **layers of edges** are counted like the information tensor, `k` between node layers
`k+1` and `k`; the terminal edges are layer `l` above (node 0 of node layer `l+1` is the super-source) and layer -1
below (node 0 of node layer -1 is the super-target).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gaflow.arguments import checked, one_of
from gaflow.errors import Argument, ArgumentError
from gaflow.flow.arguments import ArrayLike, Mask, Nodes, only_network
from gaflow.flow.maxflow.integer_network import Problem, run_solver
from gaflow.flow.network import Terminal
from gaflow.flow.paper_algorithms import Arcs
from gaflow.flow.result import Flow, capacities_of

TERMINAL_TOLERANCE = 1e-9  # relative: a cut wider than the flow's bound by more means that a terminal binds


class CutEdge(NamedTuple):
    """An edge from node `i` of node layer `layer + 1` to node `j` of node layer `layer`."""

    layer: int  # -1 to l; see above
    i: int
    j: int
    capacity: float


@dataclass(frozen=True)
class MinCut:
    """A cut of least capacity of one network."""

    value: float  # the sum of the edges' capacities: the maximum flow
    edges: tuple[CutEdge, ...]  # widest first
    side: Tensor  # (l+1, t) bool: live nodes on the source's side; dead nodes are on neither
    share: Tensor  # (l+2,) how much of the value lies in each layer of edges; share[k + 1] is layer k
    nearest: str  # "output" or "input": to which end it is nearest among all minimum cuts
    unique: bool  # every minimum cut has these edges; of decimals, where rounding breaks ties, ask with integral=True
    dead: bool  # there is no path at all, and so nothing to cut
    excess: float | None = None  # value less that of the flow whose potentials gave the cut; None: exact, of integers

    @property
    def bottleneck(self) -> int | None:
        """The layer of edges that most of the cut lies in, -1 to l; None without any path."""
        return None if self.dead else int(self.share.argmax()) - 1


@checked
def min_cut(
    information: ArrayLike | Flow,
    *,
    nearest: str = "output",
    integral: bool = False,
    exact: bool = False,
    terminal: Terminal = None,
    mask: Mask = None,
    sources: Nodes = None,
    targets: Nodes = None,
) -> MinCut:
    """The minimum cut of one network (l, t, t), or of the one that a Flow was solved on.

    `nearest`: to the "output" or to the "input".
    `integral=True` looks for it among the integer capacities of Algorithms 1 and 2. The rest is as in `solve`: unless
    `terminal` is given, terminals never bind and never are in the cut.

    The cut of a barrier flow is read off its potentials. It exceeds the value of the flow by no more than the gap of
    its certificate, and cuts that differ by less count as equal. `exact=True` finds it by a maximum flow of integers,
    as that of a tensor.

        cut = gaflow.min_cut(att.flow)
        cut.bottleneck  # the layer that holds the flow back
    """
    one_of("nearest", nearest, ("output", "input"))
    problem = Problem.build(capacities_of(information), terminal, mask, sources, targets)
    layers, t, _ = only_network(problem.network.capacity, "min_cut").shape
    integers = problem.integers(0, integral=integral)
    arcs = integers.arcs
    changed = exact or integral or any(choice is not None for choice in (terminal, mask, sources, targets))
    if isinstance(information, Flow) and not changed and _has_cuts(information):
        near_source, near_target = _cuts_of_potentials(arcs, information)
        certified = True
    else:
        solution = run_solver(integers)
        near_source = solution.near_source
        near_target = solution.near_target
        certified = False
    crossing_output = arcs.crossing(near_source)
    crossing_input = arcs.crossing(near_target)
    side = near_source
    crossing = crossing_output
    if nearest == "input":
        side = near_target
        crossing = crossing_input
    edges = _edges(arcs, crossing, t)
    layer_sums = np.zeros(layers + 2)
    for edge in edges:
        layer_sums[edge.layer + 1] += edge.capacity
    value = float(layer_sums.sum())
    if isinstance(information, Flow) and terminal is None:
        _check_terminals(information, value)
    if value:
        layer_sums /= value
    inner_side = (side & arcs.alive())[1:-1]
    return MinCut(
        value=value,
        edges=edges,
        side=torch.from_numpy(inner_side.reshape(layers + 1, t)),
        share=torch.from_numpy(layer_sums),
        nearest=nearest,
        unique=bool((crossing_output == crossing_input).all()),
        dead=bool(problem.network.dead[0]),
        excess=value - float(information.value[0]) if certified and isinstance(information, Flow) else None,
    )


def _has_cuts(flow: Flow) -> bool:
    """Whether a flow of one text has potentials whose cuts are certified."""
    return flow.potentials is not None and len(flow.value) == 1 and bool(flow.converged[0])


def _cuts_of_potentials(arcs: Arcs, flow: Flow) -> tuple[np.ndarray, np.ndarray]:
    """The source's sides (n,) of the least cuts between nodes above and below a threshold of their potentials.

    The capacities of these cuts average, over all thresholds, to the fractional cut of the potentials. So the least is
    no larger than the bound in the certificate. The highest and the lowest threshold of a least cut are given.
    """
    height = _heights(arcs, flow)
    order = np.argsort(-height, kind="stable")
    rank = np.empty(arcs.nodes, dtype=np.int64)
    rank[order] = np.arange(arcs.nodes)
    change = np.zeros(arcs.nodes + 1)  # of the capacity between the first k nodes and the others, with k
    forward = rank[arcs.tail] < rank[arcs.head]
    np.add.at(change, rank[arcs.tail[forward]] + 1, arcs.capacity[forward])
    np.add.at(change, rank[arcs.head[forward]] + 1, -arcs.capacity[forward])
    capacity = np.cumsum(change)[1 : arcs.nodes]  # for k = 1 ... n - 1: the ends stay apart
    limit = capacity.min() + float(flow.certificate.gap[0])
    least = 1 + np.flatnonzero(capacity <= limit)
    return rank < least[0], rank < least[-1]


def _heights(arcs: Arcs, flow: Flow) -> np.ndarray:
    """Potentials (n,) in the node numbers of the arcs, 1 at the source and 0 at the target."""
    potentials = flow.potentials
    assert potentials is not None
    height = np.zeros(arcs.nodes)
    height[1:-1] = -potentials.nodes[0].cpu().double().numpy().ravel()
    height = height.clip(0, 1)
    height[arcs.source] = 2
    height[arcs.target] = -1
    return height


def _check_terminals(flow: Flow, value: float) -> None:
    """Refuse a cut wider than the bound in the flow's own certificate: a narrow terminal must have held it back."""
    bound = flow.certificate.cut[0].item()
    if flow.converged[0] and value > bound * (1 + TERMINAL_TOLERANCE):
        raise ArgumentError(
            f"the terminals of this flow bind: no more than {bound:.6g} passes them, while the narrowest layers let "
            f"{value:.6g} through; give min_cut the same ",
            Argument("terminal"),
            " that the flow was solved with",
        )


def _edges(arcs: Arcs, crossing: np.ndarray, t: int) -> tuple[CutEdge, ...]:
    """The crossing edges, widest first; ties in the order of the information tensor."""
    cut = np.flatnonzero(crossing)
    order = np.lexsort((arcs.slot[cut], -arcs.capacity[cut]))
    edges = []
    for arc in cut[order]:
        tail_layer, i = divmod(int(arcs.tail[arc]) - 1, t)
        head = max(1, int(arcs.head[arc]))  # 0 is the super-target
        j = (head - 1) % t
        edges.append(CutEdge(tail_layer - 1, i, j, float(arcs.capacity[arc])))
    return tuple(edges)
