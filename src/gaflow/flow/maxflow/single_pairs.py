"""Maximum flow between single nodes: from one output node to one input node of a layered network, by OR-Tools.

Many pairs share one graph, which is built once. Capacities are scaled by a power of two, as finely as 64 bits allow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gaflow.errors import GaflowError
from gaflow.flow.maxflow.integer_network import HEADROOM, new_solver
from gaflow.flow.paper_algorithms import layered_arcs

__all__ = ["pair_values"]


def pair_values(capacity: np.ndarray, outputs: Sequence[int]) -> np.ndarray:
    """Maximum flows (n, t) from each of `outputs` to every input node of one network (l, t, t), each pair by itself."""
    layers, tokens, _ = capacity.shape
    none = np.zeros(tokens)
    arcs = layered_arcs(capacity, none, none, "backward")
    values = np.zeros((len(outputs), tokens))
    if not len(arcs.tail):
        return values
    bits = HEADROOM - math.frexp(float(capacity.sum((-2, -1)).max()))[1]
    solver = new_solver()
    solver.add_arcs_with_capacity(arcs.tail, arcs.head, np.ldexp(arcs.capacity, bits).astype(np.int64))
    for row, output in enumerate(outputs):
        for token in range(tokens):
            status = solver.solve(1 + layers * tokens + output, 1 + token)
            if status != solver.OPTIMAL:
                raise GaflowError(f"OR-Tools found no maximum flow from {output} to {token}: status {status}")
            values[row, token] = math.ldexp(solver.optimal_flow(), -bits)
    return values
