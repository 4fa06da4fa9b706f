"""The barrier problem (eq. 12) to as many digits as asked for, on an edge list: slow, small and independent.

Nothing here comes from the library: liveness is a graph search, the network is a list of edges, the arithmetic is
FLINT's. With q = p / (2 mu) for the potentials p, tau = 1 / (2 mu) and weights w_e (1, or the capacity barrier's),

    x_e = (u_e / w_e) (c_e tau + q_tail - q_head),     f_e = u_e phi(x_e),     phi(x) = 1 / (1 + x + sqrt(1 + x^2))

satisfies every optimality condition except conservation, which is the gradient of a smooth concave dual in q. Newton's
method with an exact line search climbs it; tau grows from (almost) 0 tenfold, each start predicted along the path.
The imbalance of the result therefore tells its whole error.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from flint import arb, arb_mat, ctx

Node = Hashable


@dataclass(frozen=True)
class Exact:
    """The solution, rounded to float64 once, at the very end."""

    edges: np.ndarray  # (l, t, t) from node i of layer l+1 to node j of layer l
    source: np.ndarray  # (t,) super-source -> output nodes
    target: np.ndarray  # (t,) input nodes -> super-target
    value: float
    mu: float
    kappa: float
    live: int  # m, the live edges, terminals and return edge included
    residual: float  # largest imbalance of a node, relative to the flow value, before rounding


@dataclass(frozen=True)
class Edge:
    """One edge of the circulation; `key` says where its flow belongs in the answer."""

    tail: Node
    head: Node
    capacity: arb
    weight: arb  # of its barrier term, relative to the mean
    cost: int
    key: tuple


def exact_flow(
    information: np.ndarray,
    *,
    epsilon: float = 1e-6,
    mu: float | None = None,
    barrier: str = "uniform",
    terminal: float | str | None = None,
    digits: int = 50,
) -> Exact:
    """Solve eq. 12 for one network (l, t, t), every edge flow to about `digits` digits of the flow value."""
    information = np.asarray(information, dtype=np.float64)
    positive = information[information > 0]
    if not positive.size:
        return _assemble(information.shape, [], [], arb(0), arb(0), arb(0))
    spread = np.log10(positive.max()) - np.log10(positive.min())
    before = ctx.dps
    # The Newton matrix is about as badly conditioned as (capacity ratio)^2 / epsilon^2.
    ctx.dps = int(2 * digits + 3 * spread + 60)
    try:
        layers = _live_edges(information)
        if not layers:
            return _assemble(information.shape, [], [], arb(0), arb(0), arb(0))
        edges, kappa = _circulation(layers, information.shape, barrier, terminal)
        target = arb(epsilon) * kappa / (2 * len(edges)) if mu is None else arb(mu)
        flows, residual = _solve(edges, target, kappa, digits)
        return _assemble(information.shape, edges, flows, target, kappa, residual)
    finally:
        ctx.dps = before


def _live_edges(information: np.ndarray) -> list[tuple[Node, Node, float, tuple]]:
    """Positive edges on a path from some output node to some input node, by graph search both ways."""
    depth = len(information)
    positive = [
        ((int(k) + 1, int(i)), (int(k), int(j)), float(information[k, i, j]), (int(k), int(i), int(j)))
        for k, i, j in np.argwhere(information > 0)
    ]
    down: dict[Node, list[Node]] = {}
    up: dict[Node, list[Node]] = {}
    for tail, head, _, _ in positive:
        down.setdefault(tail, []).append(head)
        up.setdefault(head, []).append(tail)
    tokens = range(information.shape[1])
    from_source = _reach([(depth, i) for i in tokens], down)
    to_target = _reach([(0, j) for j in tokens], up)
    return [e for e in positive if e[0] in from_source and e[1] in to_target]


def _reach(start: list[Node], neighbours: dict[Node, list[Node]]) -> set[Node]:
    seen, stack = set(start), list(start)
    while stack:
        for node in neighbours.get(stack.pop(), []):
            if node not in seen:
                seen.add(node)
                stack.append(node)
    return seen


def _circulation(layers: list, shape: tuple, barrier: str, terminal: float | str | None) -> tuple[list[Edge], arb]:
    """Attach terminals and the return edge; give every edge the weight of its barrier term."""
    depth, tokens, _ = shape
    entries = [(tail, head, arb(u), ("edges", *key)) for tail, head, u, key in layers]
    sums = [sum((u for _, _, u, key in entries if key[1] == k), arb(0)) for k in range(depth)]
    kappa = min(sums, key=float)
    out = sorted({tail[1] for tail, *_ in layers if tail[0] == depth})
    into = sorted({head[1] for _, head, *_ in layers if head[0] == 0})
    if terminal is None:
        terminal = "adjacent" if barrier == "capacity" else None
    widest = tokens * arb(max(u for _, _, u, _ in layers))
    for i in out:
        near = sum((u for tail, _, u, _ in entries if tail == (depth, i)), arb(0))
        entries.append(("source", (depth, i), _terminal(terminal, widest, near), ("source", i)))
    for j in into:
        near = sum((u for _, head, u, _ in entries if head == (0, j)), arb(0))
        entries.append(((0, j), "target", _terminal(terminal, widest, near), ("target", j)))
    total = sum((u for _, _, u, _ in entries), arb(0))
    if barrier not in ("uniform", "capacity"):
        raise ValueError(f"barrier {barrier!r}")
    one = arb(1)
    weights = [u for _, _, u, _ in entries] + [kappa] if barrier == "capacity" else [one] * (len(entries) + 1)
    mean = sum(weights, arb(0)) / len(weights)
    entries.append(("target", "source", total, ("value",)))
    return [
        Edge(tail, head, u.mid(), (w / mean).mid(), -1 if key == ("value",) else 0, key)
        for (tail, head, u, key), w in zip(entries, weights, strict=True)
    ], kappa.mid()


def _terminal(terminal: float | str | None, widest: arb, adjacent: arb) -> arb:
    if terminal is None:
        return widest
    if isinstance(terminal, str):
        if terminal != "adjacent":
            raise ValueError(f"terminal {terminal!r}")
        return adjacent
    return arb(float(terminal))


class _Dual:
    """The dual at one tau: flows, gradient (out - in at every node but the target) and Newton matrix."""

    def __init__(self, edges: list[Edge]):
        nodes = [n for n in dict.fromkeys([e.tail for e in edges] + [e.head for e in edges]) if n != "target"]
        index: dict[Node, int] = {n: k for k, n in enumerate(nodes)}
        self.edges = edges
        self.size = len(nodes)
        self.ends = [(index.get(e.tail, -1), index.get(e.head, -1)) for e in edges]  # -1: the grounded target
        self.ratio = [(e.capacity / e.weight).mid() for e in edges]

    def difference(self, q: list[arb]) -> list[arb]:
        q = [*q, arb(0)]
        return [q[a] - q[b] for a, b in self.ends]

    def flows(self, difference: list[arb], tau: arb) -> list[arb]:
        flows = []
        for e, ratio, d in zip(self.edges, self.ratio, difference, strict=True):
            x = ratio * (d + e.cost * tau)
            root = (1 + x * x).sqrt()
            flows.append((e.capacity / (1 + x + root) if x > 0 else e.capacity - e.capacity / (1 - x + root)).mid())
        return flows

    def gradient(self, flows: list[arb]) -> list[arb]:
        g = [arb(0)] * (self.size + 1)
        for (a, b), f in zip(self.ends, flows, strict=True):
            g[a] += f
            g[b] -= f
        return [v.mid() for v in g[:-1]]

    def step(self, difference: list[arb], tau: arb, gradient: list[arb]) -> tuple[list[arb], list[arb]]:
        """Newton direction, and dq/dtau along the central path (conservation kept to first order)."""
        laplacian = [[arb(0)] * (self.size + 1) for _ in range(self.size + 1)]
        push = [arb(0)] * (self.size + 1)
        for e, ratio, d, (a, b) in zip(self.edges, self.ratio, difference, self.ends, strict=True):
            x = ratio * (d + e.cost * tau)
            root = (1 + x * x).sqrt()
            w = (e.capacity * ratio / (2 * root * (1 + root))).mid()
            laplacian[a][a] += w
            laplacian[b][b] += w
            laplacian[a][b] -= w
            laplacian[b][a] -= w
            push[a] -= w * e.cost
            push[b] += w * e.cost
        matrix = arb_mat([[v.mid() for v in row[:-1]] for row in laplacian[:-1]])
        right = arb_mat([[g, p.mid()] for g, p in zip(gradient, push[:-1], strict=True)])
        solution = matrix.solve(right, algorithm="approx")
        return [solution[k, 0] for k in range(self.size)], [solution[k, 1] for k in range(self.size)]


def _solve(edges: list[Edge], mu: arb, kappa: arb, digits: int) -> tuple[list[arb], arb]:
    dual = _Dual(edges)
    goal = (1 / (2 * mu)).mid()
    stages = 0
    while goal / 10**stages > 1 / kappa:
        stages += 1
    q = [arb(0)] * dual.size
    for stage in range(stages, -1, -1):
        tau = (goal / 10**stage).mid()
        # Intermediate points only have to be good starts for the next one.
        q, slope, flows, residual = _climb(dual, q, tau, digits if stage == 0 else 2)
        q = [(v + 9 * tau * s).mid() for v, s in zip(q, slope, strict=True)]
    return flows, residual  # pyright: ignore[reportPossiblyUnbound]


def _climb(dual: _Dual, q: list[arb], tau: arb, digits: int) -> tuple[list[arb], list[arb], list[arb], arb]:
    """Newton ascent at one tau until the imbalance, and the last change of every flow, are below 10^-digits."""
    tolerance = arb(10) ** -digits
    difference = dual.difference(q)
    flows = dual.flows(difference, tau)
    for _ in range(500):
        gradient = dual.gradient(flows)
        direction, slope = dual.step(difference, tau, gradient)
        ascent = _dot(gradient, direction)
        along = dual.difference(direction)
        length, moved = _line_search(dual, difference, along, direction, tau, ascent)
        change = max(abs(new - old) / new for new, old in zip(moved, flows, strict=True))
        q = [(v + length * d).mid() for v, d in zip(q, direction, strict=True)]
        difference = [(v + length * d).mid() for v, d in zip(difference, along, strict=True)]
        flows = moved
        residual = max(abs(g) for g in dual.gradient(flows)) / flows[-1]
        if residual < tolerance and change < tolerance:
            return q, slope, flows, residual
    raise ArithmeticError(f"no convergence at tau = {float(tau):.3g}: imbalance {float(residual):.3g}")


def _line_search(
    dual: _Dual, difference: list[arb], along: list[arb], direction: list[arb], tau: arb, ascent: arb
) -> tuple[arb, list[arb]]:
    """A step after which the slope, which only falls along a concave function, is at most half of what it was."""
    low, high, length = arb(0), None, arb(1)
    for _ in range(200):
        flows = dual.flows([a + length * b for a, b in zip(difference, along, strict=True)], tau)
        slope = _dot(dual.gradient(flows), direction)
        if abs(slope) <= ascent / 2:
            break
        if slope > 0:
            low = length
        else:
            high = length
        length = (2 * length if high is None else (low + high) / 2).mid()
    else:
        raise ArithmeticError("the line search found no step")
    return length, flows


def _dot(a: list[arb], b: list[arb]) -> arb:
    return sum((x * y for x, y in zip(a, b, strict=True)), arb(0)).mid()


def _assemble(shape: tuple, edges: list[Edge], flows: list[arb], mu: arb, kappa: arb, residual: arb) -> Exact:
    depth, tokens, _ = shape
    parts = {"edges": np.zeros(shape), "source": np.zeros(tokens), "target": np.zeros(tokens), "value": np.zeros(())}
    for e, f in zip(edges, flows, strict=True):
        parts[e.key[0]][e.key[1:]] = float(f)
    return Exact(
        edges=parts["edges"],
        source=parts["source"],
        target=parts["target"],
        value=float(parts["value"]),
        mu=float(mu),
        kappa=float(kappa),
        live=len(edges),
        residual=float(residual),
    )
