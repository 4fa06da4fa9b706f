"""Definition 2.1 as printed: a circulation of minimum cost, between lower and upper bounds, in integers by OR-Tools.

    minimise  sum_e c_e f_e      subject to  l_e <= f_e <= u_e  and conservation at every node

The substitution `f = l + g` leaves `0 <= g <= u - l`, and what the lower bounds bring to a node becomes its supply. The
maximum flow of Algorithms 1 and 2 is the instance with `l = 0`, a return edge of cost -1 and no other costs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gaflow.arguments import checked, vector
from gaflow.errors import Argument, ArgumentError, ArgumentTypeError, GaflowError
from gaflow.flow.arguments import ArrayLike
from gaflow.flow.maxflow.integer_network import load_ortools

# Node numbers have 32 bits, and the sum of all bounds must stay within 64.
LIMITS = {"tail": 1 << 30, "head": 1 << 30, "lower": 1 << 62, "upper": 1 << 62}


class Circulation(NamedTuple):
    """A circulation of minimum cost."""

    flow: Tensor  # (m,) int64
    cost: int


@checked
def min_cost_circulation(
    tail: ArrayLike, head: ArrayLike, lower: ArrayLike, upper: ArrayLike, cost: ArrayLike
) -> Circulation:
    """A circulation of minimum cost in the network whose edge `e` leads from node `tail[e]` to node `head[e]`.

    All five are whole numbers, one for each edge: nodes are counted from 0, an edge carries at least `lower` and at
    most `upper`, and a unit of flow costs `cost`, which may be negative. Bounds that no circulation fits are an error.

        circulation = gaflow.min_cost_circulation([0, 1, 1], [1, 0, 0], [0, 0, 1], [5, 2, 4], [0, -1, 1])
        circulation.flow, circulation.cost  # tensor([3, 2, 1]), -1
    """
    _, min_cost_flow = load_ortools()
    solver = min_cost_flow.SimpleMinCostFlow()
    tails = _whole_numbers("tail", tail)
    count = len(tails)
    heads = _whole_numbers("head", head, count)
    low = _whole_numbers("lower", lower, count)
    high = _whole_numbers("upper", upper, count)
    prices = _whole_numbers("cost", cost, count)
    if (low > high).any():
        edge = int(np.argmax(low > high))
        raise ArgumentError(
            Argument("lower"), f" of edge {edge} is {low[edge]}, which is more than its upper bound {high[edge]}"
        )
    nodes = 1 + max(tails.max(initial=0), heads.max(initial=0))
    supply = np.zeros(nodes, dtype=np.int64)
    np.add.at(supply, heads, low)
    np.subtract.at(supply, tails, low)
    ends = np.stack([tails, heads]).astype(np.int32)
    arcs = solver.add_arcs_with_capacity_and_unit_cost(*ends, high - low, prices)
    solver.set_nodes_supplies(np.arange(nodes, dtype=np.int32), supply)
    status = solver.solve()
    if status == solver.INFEASIBLE:
        bounds = (Argument("lower"), " and ", Argument("upper"))
        raise ArgumentError(*bounds, " allow no circulation from ", Argument("tail"), " to ", Argument("head"))
    if status != solver.OPTIMAL:
        raise GaflowError(f"OR-Tools found no circulation: {status}; smaller ", Argument("cost"), " may help")
    flow = low + solver.flows(arcs)
    total = int(flow.astype(object) @ prices.astype(object))  # Python's integers, which do not overflow
    return Circulation(torch.from_numpy(flow), total)


def _whole_numbers(name: str, values: ArrayLike, count: int | None = None) -> np.ndarray:
    """One whole number for each of `count` edges, (m,) int64; nodes and bounds are not negative."""
    numbers = vector(name, values.cpu() if isinstance(values, Tensor) else values, count)
    if numbers.size and numbers.dtype.kind not in "iu":
        raise ArgumentTypeError(Argument(name), f" must hold whole numbers, not {numbers.dtype}")
    limit = LIMITS.get(name)
    if limit is None:
        return numbers.astype(np.int64)
    largest = numbers.sum(dtype=float) if name == "upper" else numbers.max(initial=0)
    if numbers.min(initial=0) < 0 or largest >= limit:
        raise ArgumentError(Argument(name), " must hold numbers that are not negative and not too large for 64 bits")
    return numbers.astype(np.int64)
