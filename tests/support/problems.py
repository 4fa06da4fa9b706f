"""Barrier problems (eq. 12) whose answer follows from a few scalar equations, derived by hand.

The least barrier cost B of pushing a flow F through an edge of capacity u has the slope B'(F) = mu w (1 / (u
- F) - 1 / F), which grows from -inf to inf. In series slopes add at equal flow; in parallel flows add at
equal slope. Where a network is built from edges by these two rules, one equation remains, that of the return
edge closing the loop: -1 + B'_return(F) + B'_network(F) = 0. Nodes that symmetry makes interchangeable have
equal potentials and may be merged, which brings symmetric networks under the same rules.

Every answer is the zero of a monotone function, in decimals of twice float64's precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cache
from typing import Any

import numpy as np

DIGITS = 34  # twice what float64 holds


@dataclass(frozen=True)
class Problem:
    """A network with its exact flow; `settings` are keyword arguments of `solve`."""

    name: str
    information: np.ndarray  # (l, t, t)
    settings: dict[str, Any]
    edges: np.ndarray  # (l, t, t)
    source: np.ndarray  # (t,)
    target: np.ndarray  # (t,)
    value: float


@dataclass(frozen=True)
class Edge:
    """Equal edges side by side: where their flows belong in the answer, and the capacity of each."""

    part: str
    where: tuple[tuple[int, ...], ...]
    capacity: Decimal


@dataclass(frozen=True)
class Series:
    """One after the other."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True)
class Parallel:
    """Side by side between the same two nodes."""

    parts: tuple[Tree, ...]


Tree = Edge | Series | Parallel


def leaves(tree: Tree) -> list[Edge]:
    return [tree] if isinstance(tree, Edge) else [leaf for part in tree.parts for leaf in leaves(part)]


@dataclass(frozen=True)
class Barrier:
    """mu_e of every edge: mu itself, or mu times capacity over the mean weight."""

    mu: Decimal
    mean: Decimal | None  # mean weight of the capacity barrier; None for the uniform one

    def of(self, capacity: Decimal) -> Decimal:
        return self.mu if self.mean is None else self.mu * capacity / self.mean

    def slope(self, tree: Tree, flow: Decimal) -> Decimal:
        """B'(F)."""
        if isinstance(tree, Edge):
            edge_flow = flow / len(tree.where)
            return self.of(tree.capacity) * (1 / (tree.capacity - edge_flow) - 1 / edge_flow)
        if isinstance(tree, Series):
            return sum((self.slope(part, flow) for part in tree.parts), Decimal(0))
        # Were the slope beyond all of these, every part would carry more (or less) than its share.
        shares = [self.slope(part, flow * largest(part) / largest(tree)) for part in tree.parts]
        low, high = min(shares), max(shares)
        return zero(lambda s: self.flow(tree, s) - flow, low, high) if low < high else low

    def flow(self, tree: Tree, slope: Decimal) -> Decimal:
        """The flow at which B' is `slope`."""
        if isinstance(tree, Edge):
            x = -slope * tree.capacity / (2 * self.of(tree.capacity))
            small = tree.capacity / (1 + abs(x) + (1 + x * x).sqrt())
            return len(tree.where) * (small if x > 0 else tree.capacity - small)
        if isinstance(tree, Parallel):
            return sum((self.flow(part, slope) for part in tree.parts), Decimal(0))
        shares = [self.flow(part, slope / len(tree.parts)) for part in tree.parts]
        low, high = min(shares), min(max(shares), largest(tree))
        return zero(lambda f: self.slope(tree, f) - slope, low, high) if low < high else low


def largest(tree: Tree) -> Decimal:
    """The most that can pass: the smallest part in series, the sum in parallel."""
    if isinstance(tree, Edge):
        return len(tree.where) * tree.capacity
    parts = [largest(part) for part in tree.parts]
    return min(parts) if isinstance(tree, Series) else sum(parts, Decimal(0))


def zero(rising: Callable[[Decimal], Decimal], low: Decimal, high: Decimal) -> Decimal:
    """The zero of a rising function inside (low, high), by Ridders' method: two evaluations square the error.

    Works on y / (1 + |y|), which has no poles; ends at the last digits, or at 10^-50 of the interval.
    """
    tiny = (high - low).scaleb(-50)
    below, above = Decimal(-1), Decimal(1)
    best = low
    while True:
        middle = (low + high) / 2
        y = _bounded(rising(middle))
        guess = middle - (middle - low) * y / (y * y - below * above).sqrt()
        if y == 0 or abs(guess - best) <= max(tiny, abs(guess).scaleb(4 - DIGITS)):
            return guess
        best = guess
        for x, value in sorted([(middle, y), (guess, _bounded(rising(guess)))]):
            if value < 0 and x > low:
                low, below = x, value
            elif value >= 0 and x < high:
                high, above = x, value
        if above == 0:
            return high


def _bounded(y: Decimal) -> Decimal:
    return y / (1 + abs(y))


def problem(
    name: str,
    network: Series,
    shape: tuple[int, int],
    *,
    epsilon: float = 1e-6,
    barrier: str = "uniform",
    terminal: float | str | None = None,
) -> Problem:
    """Attach the return edge to a network of layers and terminals, and solve."""
    layers, tokens = shape
    with localcontext(prec=DIGITS):
        capacities = [(leaf.part, w, leaf.capacity) for leaf in leaves(network) for w in leaf.where]
        kappa = min(
            sum((u for part, w, u in capacities if part == "edges" and w[0] == k), Decimal(0)) for k in range(layers)
        )
        back = sum((u for _, _, u in capacities), Decimal(0))
        count = len(capacities) + 1
        mu = Decimal(epsilon) * kappa / (2 * count)
        mean = (back + kappa) / count if barrier == "capacity" else None
        law = Barrier(mu, mean)
        closing = mu if mean is None else mu * kappa / mean

        def loop(flow: Decimal) -> Decimal:
            return closing * (1 / (back - flow) - 1 / flow) - 1 + law.slope(network, flow)

        value = zero(loop, Decimal(0), largest(network))
        flows = {
            "edges": np.zeros((layers, tokens, tokens)),
            "source": np.zeros(tokens),
            "target": np.zeros(tokens),
        }
        _distribute(law, network, value, flows)
    information = np.zeros((layers, tokens, tokens))
    for part, where, u in capacities:
        if part == "edges":
            information[where] = float(u)
    settings: dict[str, Any] = {"epsilon": epsilon, "barrier": barrier, "terminal": terminal}
    return Problem(name, information, settings, **flows, value=float(value))


def _distribute(law: Barrier, tree: Tree, flow: Decimal, flows: dict[str, np.ndarray]) -> None:
    """Write the flow of every edge of `tree`, through which `flow` passes."""
    if isinstance(tree, Edge):
        for where in tree.where:
            flows[tree.part][where] = float(flow / len(tree.where))
        return
    slope = law.slope(tree, flow) if isinstance(tree, Parallel) else None
    for part in tree.parts:
        _distribute(law, part, flow if slope is None else law.flow(part, slope), flows)


def path(name: str, capacities: Sequence[float], **settings: Any) -> Problem:
    """One token, one path: every edge carries the same flow."""
    u = [Decimal(c) for c in capacities]
    literal = settings.get("terminal")
    if isinstance(literal, float):
        top = bottom = Decimal(literal)
    elif settings.get("barrier") == "capacity" or literal == "adjacent":
        top, bottom = u[-1], u[0]
    else:
        top = bottom = max(u)
    middle = [Edge("edges", ((k, 0, 0),), u[k]) for k in reversed(range(len(u)))]
    network = Series((Edge("source", ((0,),), top), *middle, Edge("target", ((0,),), bottom)))
    return problem(name, network, (len(u), 1), **settings)


def fan(name: str, capacities: Sequence[float], **settings: Any) -> Problem:
    """One layer and one live output node: an edge to every token, in parallel."""
    u = [Decimal(c) for c in capacities]
    adjacent = settings.get("barrier") == "capacity"
    wide = sum(u, Decimal(0)) if adjacent else len(u) * max(u)
    rays = tuple(
        Series((Edge("edges", ((0, 0, j),), c), Edge("target", ((j,),), c if adjacent else wide)))
        for j, c in enumerate(u)
    )
    return problem(name, Series((Edge("source", ((0,),), wide), Parallel(rays))), (1, len(u)), **settings)


def disjoint(name: str, capacities: Sequence[Sequence[float]], **settings: Any) -> Problem:
    """Every token attends to itself alone: token j's path has capacity `capacities[k][j]` in layer k."""
    u = [[Decimal(c) for c in layer] for layer in capacities]
    adjacent = settings.get("barrier") == "capacity"
    tokens = range(len(u[0]))
    wide = len(tokens) * max(c for layer in u for c in layer)
    paths = tuple(
        Series(
            (
                Edge("source", ((j,),), u[-1][j] if adjacent else wide),
                *(Edge("edges", ((k, j, j),), u[k][j]) for k in reversed(range(len(u)))),
                Edge("target", ((j,),), u[0][j] if adjacent else wide),
            )
        )
        for j in tokens
    )
    return problem(name, Series((Parallel(paths),)), (len(u), len(tokens)), **settings)


def exchangeable(name: str, same: Sequence[float], other: Sequence[float], tokens: int, **settings: Any) -> Problem:
    """Tokens can be exchanged: capacity `same[k]` to a token itself, `other[k]` to each other token.

    All nodes of a layer have the same potential, so each layer acts as its t^2 edges in parallel.
    """
    keep, swap = [Decimal(c) for c in same], [Decimal(c) for c in other]
    sums = [a + (tokens - 1) * b for a, b in zip(keep, swap, strict=True)]
    adjacent = settings.get("barrier") == "capacity"
    wide = tokens * max(*keep, *swap)
    all_tokens = tuple((i,) for i in range(tokens))
    pairs = [(i, j) for i in range(tokens) for j in range(tokens)]
    middle = []
    for k in reversed(range(len(keep))):
        straight = Edge("edges", tuple((k, i, j) for i, j in pairs if i == j), keep[k])
        cross = Edge("edges", tuple((k, i, j) for i, j in pairs if i != j), swap[k])
        middle.append(Parallel((straight, cross)))
    top = Edge("source", all_tokens, sums[-1] if adjacent else wide)
    bottom = Edge("target", all_tokens, sums[0] if adjacent else wide)
    return problem(name, Series((top, *middle, bottom)), (len(keep), tokens), **settings)


@cache
def problems() -> tuple[Problem, ...]:
    """Every problem, under both barriers and from sharp to blunt."""
    collected = []
    for barrier in ("uniform", "capacity"):
        for epsilon in (1e-9, 1e-3, 10.0):
            how = {"barrier": barrier, "epsilon": epsilon}
            tag = f"{barrier}-{epsilon:g}"
            collected += [
                path(f"path-{tag}", [0.3, 0.07, 2.0, 0.7], **how),
                path(f"bottleneck-{tag}", [1.0, 1e-12, 1.0], **how),
                fan(f"fan-{tag}", [0.1, 0.5, 3.0], **how),
                disjoint(f"disjoint-{tag}", [[0.2, 1.0], [0.6, 0.3], [0.9, 0.8]], **how),
                exchangeable(f"exchangeable-{tag}", [0.4, 0.1, 0.2], [0.05, 0.3, 0.2], 3, **how),
            ]
    collected.append(path("path-literal-terminal", [0.5, 0.25], terminal=0.125, epsilon=1e-4))
    return tuple(collected)
