"""Maximum flow between single nodes: from one output node to one input node of a layered network, by OR-Tools.

Many pairs share one graph, which is built once. Capacities are scaled by a power of two, as finely as 64 bits allow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gaflow.flow.maxflow.integer_network import maximum, new_solver, spare_bits
from gaflow.flow.paper_algorithms import layered_arcs


def pair_values(capacity: np.ndarray, outputs: Sequence[int]) -> np.ndarray:
    """Maximum flows (n, t) from each of `outputs` to every input node of one network (l, t, t), each pair by itself."""
    layers, tokens, _ = capacity.shape
    no_terminals = np.zeros(tokens)
    arcs = layered_arcs(capacity, no_terminals, no_terminals, "backward")
    values = np.zeros((len(outputs), tokens))
    if not len(arcs.tail):
        return values
    layer_sums = capacity.sum((-2, -1))
    bits = spare_bits(layer_sums.max())
    integers = np.ldexp(arcs.capacity, bits).astype(np.int64)
    solver = new_solver()
    solver.add_arcs_with_capacity(arcs.tail, arcs.head, integers)
    first_output = 1 + layers * tokens
    for row, output in enumerate(outputs):
        for token in range(tokens):
            value = maximum(solver, first_output + output, 1 + token)
            values[row, token] = math.ldexp(value, -bits)
    return values
