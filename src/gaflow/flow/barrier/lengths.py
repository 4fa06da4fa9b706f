"""Which networks of a batch are solved together: those of similar length, since shorter ones are padded to the longest.

A group costs the work of its networks, each as long as the longest, and the calls of one solve. The grouping with the
lowest cost is found by dynamic programming over the lengths. The convention this file owns: lengths are compared in
steps of `LENGTH_STEP` tokens: two texts that differ by less are never worth a solve of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from gaflow.flow.network import LayeredNetwork

LENGTH_STEP = 8
CUBE = 3  # flops of a Newton step for each layer, over t^3: a factor, a triangular solve and a product
SQUARE = 600  # likewise over t^2: the passes over all edges, in flops that take as long
CPU_CALLS = 2e7  # flops of a step that take as long as its calls
GPU_CALLS = 1e10


def group_by_length(network: LayeredNetwork) -> list[tuple[list[int], int]]:
    """The items of each group of networks that have a path at all, longest first, and their greatest length."""
    live = [item for item, tokens in enumerate(network.tokens) if tokens]
    lengths = [network.tokens[item] for item in live]
    if len(set(lengths)) == 1:
        return [(live, lengths[0])]
    layers = network.capacity.shape[1]
    calls = GPU_CALLS if network.capacity.is_cuda else CPU_CALLS
    groups = []
    for longest, shortest in best_ranges(lengths, layers, calls):
        items = [item for item in live if shortest <= network.tokens[item] <= longest]
        groups.append((items, longest))
    return groups


def best_ranges(lengths: Sequence[int], layers: int, calls: float) -> list[tuple[int, int]]:
    """The longest and the shortest length of each group, longest groups first; `calls` is the cost of one more."""
    counts: dict[int, int] = {}  # networks of each step of lengths
    for length in lengths:
        step = -(-length // LENGTH_STEP)
        counts[step] = counts.get(step, 0) + 1
    steps = sorted(counts, reverse=True)
    cheapest = [0.0]  # cost of the first steps, grouped at best
    group_start = [0]  # where the last of their groups begins
    for stop in range(1, len(steps) + 1):
        networks = 0
        best = float("inf")
        best_start = 0
        for start in reversed(range(stop)):
            networks += counts[steps[start]]
            cost = cheapest[start] + calls + networks * _work(layers, steps[start] * LENGTH_STEP)
            if cost < best:
                best = cost
                best_start = start
        cheapest.append(best)
        group_start.append(best_start)
    ranges = []
    stop = len(steps)
    while stop:
        start = group_start[stop]
        in_group = [length for length in lengths if steps[stop - 1] <= -(-length // LENGTH_STEP) <= steps[start]]
        ranges.append((max(in_group), min(in_group)))
        stop = start
    return ranges[::-1]


def _work(layers: int, tokens: int) -> float:
    """Flops of a Newton step of one network."""
    return layers * (CUBE * tokens**3 + SQUARE * tokens**2)
