"""Algorithms 1 and 2 of the paper, to the letter: the layered network as dense capacity matrices.

Nodes are numbered as printed, for `l` layers and `t` tokens: 0, then token `i` of node layer `k` (0 the
input, `l` the output) as `1 + t k + i`, then `1 + t (l+1)`. Backward (Algorithm 1), flow runs from the output
to the input: the super-source is the last node and the super-target node 0. Forward (Algorithm 2) is the
transpose, the two exchanged.

The convention this file owns: **row = tail**, `upper[a, b]` is the capacity of the edge a -> b. The
algorithms as printed follow it in every assignment; what disagrees in the paper are the two loop comments of
Algorithm 1, which are those of Algorithm 2 (its first loop fills first layer -> super-target, its second
super-source -> last layer), and the itemised text below the algorithms, which transposes the two terminal
entries but not the layers.

As printed, nothing is pruned, terminals have capacity `u_inf = t`, the return edge is left to the solver, and
the integral capacities are `int(gamma u)` with `gamma = 10^beta`, `beta = -floor(log10(smallest positive
entry))`. Where the sum of all integral capacities (that of the return edge) would overflow int64, gamma is
the largest power of ten for which it does not, and `clamped` says so: entries below 1 / gamma are then 0 in
`upper_int`. `max_flow` takes the same gamma. It solves these integers with `terminal="tokens"`; without, its terminals
are wide, and its flow is larger where `u_inf = t` binds.

Where the smallest entry is 10 or more, gamma is below 1 and `int(gamma t)` can be 0: nothing flows from terminal to
terminal, as printed. A GaflowWarning says so.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gaflow.arguments import checked, one_of
from gaflow.errors import Argument, ArgumentError, GaflowWarning
from gaflow.flow.arguments import ArrayLike, as_networks, only_network

Direction = Literal["backward", "forward"]
DIRECTIONS: tuple[Direction, ...] = ("backward", "forward")
MAX_INTEGER_SUM = 9.2e18  # of all integral capacities: below 2^63 by more than floats of that size round
MAX_EXPONENT = 308  # of ten, in float64


@dataclass(frozen=True)
class DenseNetwork:
    """The result of Algorithm 1 or 2; `n = 2 + t (l+1)` nodes, row = tail."""

    adjacency: Tensor  # (n, n) int64, 1 where there is an edge
    lower: Tensor  # (n, n) float64, all 0
    lower_int: Tensor  # (n, n) int64
    upper: Tensor  # (n, n) float64
    upper_int: Tensor  # (n, n) int64, int(gamma * upper)
    source: int  # super-source
    target: int  # super-target
    gamma: float  # a power of ten
    clamped: bool  # gamma is smaller than printed, for int64 to hold all capacities together


@checked
def dense_network(information: ArrayLike, direction: Direction = "backward") -> DenseNetwork:
    """The capacity matrices of one network (l, t, t): Algorithm 1, or 2 for `direction="forward"`.

    network = gaflow.dense_network(torch.rand(2, 5, 5))
    network.upper  # (17, 17) capacities, row = tail
    """
    check_direction(direction)
    capacity = only_network(as_networks(information), "dense_network").cpu()
    t = capacity.shape[-1]
    terminals = np.full(t, t)
    arcs = layered_arcs(capacity.numpy(), terminals, terminals, direction)
    upper = torch.zeros(arcs.nodes, arcs.nodes, dtype=torch.float64)
    upper[arcs.tail, arcs.head] = torch.from_numpy(arcs.capacity)
    gamma, clamped = integral_scale(capacity)
    warn_of_lost_terminals(gamma, t)
    upper_int = (gamma * upper).long()
    return DenseNetwork(
        adjacency=(upper > 0).long(),
        lower=torch.zeros_like(upper),
        lower_int=torch.zeros_like(upper_int),
        upper=upper,
        upper_int=upper_int,
        source=arcs.source,
        target=arcs.target,
        gamma=gamma,
        clamped=clamped,
    )


@dataclass(frozen=True)
class Arcs:
    """The edges of one layered network in the node numbers of Algorithms 1 and 2, sorted by tail and head."""

    tail: np.ndarray  # (m,) int32
    head: np.ndarray  # (m,) int32
    capacity: np.ndarray  # (m,) float64
    slot: np.ndarray  # (m,) int64, position among layer edges (l t t), source edges (t), target edges (t)
    source: int
    target: int

    @property
    def nodes(self) -> int:
        """The number of nodes, terminals included."""
        return 1 + max(self.source, self.target)

    def alive(self) -> np.ndarray:
        """Which nodes (n,) an edge leaves: all live ones but the target."""
        alive = np.zeros(self.nodes, dtype=bool)
        alive[self.tail] = True
        return alive

    def crossing(self, side: np.ndarray) -> np.ndarray:
        """Which arcs (m,) lead from nodes of `side` (n,) to others."""
        return side[self.tail] & ~side[self.head]


def layered_arcs(capacity: np.ndarray, source: np.ndarray, target: np.ndarray, direction: Direction) -> Arcs:
    """Arcs with positive capacity of one network: layers (l, t, t) and the terminals (t,) at either end."""
    layers, t, _ = capacity.shape
    nodes = (layers + 1) * t
    node = 1 + np.arange(nodes).reshape(layers + 1, t)
    last = 1 + nodes
    layer_tails = np.broadcast_to(node[1:, :, None], capacity.shape)
    layer_heads = np.broadcast_to(node[:-1, None, :], capacity.shape)
    tail = np.concatenate([layer_tails.ravel(), np.full(t, last), node[0]])
    head = np.concatenate([layer_heads.ravel(), node[-1], np.zeros(t, dtype=int)])
    capacities = np.concatenate([capacity.ravel(), source, target])
    super_source = last
    super_target = 0
    if direction == "forward":
        tail, head = head, tail
        super_source, super_target = super_target, super_source
    slot = np.flatnonzero(capacities > 0)
    order = np.lexsort((head[slot], tail[slot]))
    slot = slot[order]
    return Arcs(
        tail=tail[slot].astype(np.int32),
        head=head[slot].astype(np.int32),
        capacity=capacities[slot],
        slot=slot,
        source=super_source,
        target=super_target,
    )


def integral_scale(information: Tensor) -> tuple[float, bool]:
    """gamma = 10^beta for one network (l, t, t), and whether int64 forced a smaller one."""
    positive = information[information > 0]
    if not positive.numel():
        return 1.0, False
    smallest = float(positive.min())
    beta = -math.floor(math.log10(smallest))
    # log10 rounds: just below a power of ten it gives that power, and gamma would be ten times too small.
    if beta <= MAX_EXPONENT and smallest * 10.0**beta < 1:
        beta += 1
    # fsum: the same gamma for the same numbers, in whatever order they come.
    terminals = 2 * information.shape[-1] ** 2
    try:
        total = math.fsum(positive.tolist()) + terminals
    except OverflowError:
        raise ArgumentError(
            Argument("information"),
            f" is too large: the sum of all capacities overflows (largest {positive.max():.3g}); scale it down",
        ) from None
    largest = math.floor(math.log10(MAX_INTEGER_SUM) - math.log10(total))
    largest = min(largest, MAX_EXPONENT)
    return 10.0 ** min(beta, largest), largest < beta


def warn_of_lost_terminals(gamma: float, terminal: float) -> None:
    """Warn where the integral capacity of the widest terminal is 0, and with it every flow."""
    if gamma * terminal < 1:
        warnings.warn(
            f"nothing flows in these integers: gamma is {gamma:g}, so terminals of capacity {terminal:g} become "
            f"int(gamma u) = 0; scale the information down, or solve it with integral=False",
            GaflowWarning,
            stacklevel=4,
        )


def check_direction(direction: str) -> None:
    """Refuse anything but the names of the two algorithms."""
    one_of("direction", direction, DIRECTIONS)
