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
`upper_int`. `max_flow` takes the same gamma, so that it solves these integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaflow.flow.arguments import as_networks

__all__ = [
    "DIRECTIONS",
    "Arcs",
    "DenseNetwork",
    "check_direction",
    "dense_network",
    "integral_scale",
    "layered_arcs",
]

DIRECTIONS = ("backward", "forward")
ROOM = 9.2e18  # for the sum of all integral capacities: below 2^63 by more than floats of that size round
LARGEST_EXPONENT = 308  # of ten, in float64


@dataclass(frozen=True)
class DenseNetwork:
    """What Algorithm 1 or 2 returns; `n = 2 + t (l+1)` nodes, row = tail."""

    adjacency: Tensor  # (n, n) int64, 1 where there is an edge
    lower: Tensor  # (n, n) float64, all 0
    lower_int: Tensor  # (n, n) int64
    upper: Tensor  # (n, n) float64
    upper_int: Tensor  # (n, n) int64, int(gamma * upper)
    source: int  # super-source
    target: int  # super-target
    gamma: float  # a power of ten
    clamped: bool  # gamma is smaller than printed, so that int64 holds all capacities together


def dense_network(information: Any, direction: str = "backward") -> DenseNetwork:
    """The capacity matrices of one network (l, t, t): Algorithm 1, or 2 for `direction="forward"`."""
    check_direction(direction)
    networks = as_networks(information)
    if len(networks) != 1:
        raise ValueError(f"dense_network takes one network (l, t, t), not a batch of {len(networks)}: index it first")
    abar = networks[0].cpu()
    layers, t, _ = abar.shape
    q = t * (layers + 1) + 2
    upper = torch.zeros(q, q, dtype=torch.float64)
    u_inf = float(t)
    if direction == "backward":
        upper[1 : t + 1, 0] = u_inf
        upper[-1, -t - 1 : -1] = u_inf
    else:
        upper[0, 1 : t + 1] = u_inf
        upper[-t - 1 : -1, -1] = u_inf
    for j in range(layers):
        start, mid, end = t * j + 1, t * (j + 1) + 1, t * (j + 2) + 1
        if direction == "backward":
            upper[mid:end, start:mid] = abar[j]
        else:
            upper[start:mid, mid:end] = abar[j].T
    gamma, clamped = integral_scale(abar)
    lower = torch.zeros_like(upper)
    ends = (q - 1, 0) if direction == "backward" else (0, q - 1)
    return DenseNetwork(
        adjacency=(upper > 0).long(),
        lower=lower,
        lower_int=(gamma * lower).long(),
        upper=upper,
        upper_int=(gamma * upper).long(),
        source=ends[0],
        target=ends[1],
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


def layered_arcs(capacity: np.ndarray, source: np.ndarray, target: np.ndarray, direction: str) -> Arcs:
    """Arcs with positive capacity of one network: layers (l, t, t) and the terminals (t,) at either end."""
    layers, tokens, _ = capacity.shape
    node = 1 + np.arange((layers + 1) * tokens).reshape(layers + 1, tokens)
    last = 1 + node.size
    tail = np.concatenate([_grid(node[1:, :, None], capacity), np.full(tokens, last), node[0]])
    head = np.concatenate([_grid(node[:-1, None, :], capacity), node[-1], np.zeros(tokens, dtype=int)])
    every = np.concatenate([capacity.ravel(), source, target])
    ends = (last, 0)
    if direction == "forward":
        tail, head, ends = head, tail, (0, last)
    keep = np.flatnonzero(every > 0)
    keep = keep[np.lexsort((head[keep], tail[keep]))]
    return Arcs(tail[keep].astype(np.int32), head[keep].astype(np.int32), every[keep], keep, *ends)


def _grid(values: np.ndarray, like: np.ndarray) -> np.ndarray:
    return np.broadcast_to(values, like.shape).ravel()


def integral_scale(information: Tensor) -> tuple[float, bool]:
    """gamma = 10^beta for one network (l, t, t), and whether int64 forced a smaller one."""
    positive = information[information > 0]
    if not positive.numel():
        return 1.0, False
    smallest = float(positive.min())
    beta = -math.floor(math.log10(smallest))
    # log10 rounds: just below a power of ten it gives that power, and gamma would be ten times too small.
    if beta <= LARGEST_EXPONENT and smallest * 10.0**beta < 1:
        beta += 1
    # fsum: the same gamma for the same numbers, in whatever order they come.
    try:
        total = math.fsum(positive.tolist()) + 2 * information.shape[-1] ** 2
    except OverflowError:
        raise ValueError(
            f"the sum of all capacities overflows (largest {positive.max():.3g}): scale them down"
        ) from None
    largest = min(math.floor(math.log10(ROOM) - math.log10(total)), LARGEST_EXPONENT)
    return 10.0 ** min(beta, largest), largest < beta


def check_direction(direction: str) -> None:
    """Refuse anything but the names of the two algorithms."""
    if direction not in DIRECTIONS:
        raise ValueError(f"direction must be one of {', '.join(DIRECTIONS)}, not {direction!r}")
