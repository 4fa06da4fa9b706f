"""The barrier problem (eq. 12) to as many digits as asked for, on an edge list: slow, small and independent.

Nothing here comes from the library: liveness is a graph search, the network a list of edges, the arithmetic
FLINT's. With potentials p, reduced costs s_e = c_e + p_tail - p_head and mu_e = mu w_e (w_e = 1, or the
capacity barrier's weights),

    f_e = u_e phi(s_e u_e / (2 mu_e)),     phi(x) = 1 / (1 + x + sqrt(1 + x^2))

satisfies every optimality condition except conservation, which is the gradient of a smooth concave dual in p.
Newton's method climbs it to all digits, started from a point that a primal-dual method finds by following the
central path. The imbalance of the result therefore tells its whole error.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
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
    sources: Iterable[int] | None = None,
    targets: Iterable[int] | None = None,
    digits: int = 50,
) -> Exact:
    """Solve eq. 12 for one network (l, t, t), every edge flow to about `digits` digits of the flow value.

    Flow comes from the output nodes `sources` and goes to the input nodes `targets` (None: all).
    """
    information = np.asarray(information, dtype=np.float64)
    positive = information[information > 0]
    if not positive.size:
        return _assemble(information.shape, [], [], arb(0), arb(0), arb(0))
    spread = np.log10(positive.max()) - np.log10(positive.min())
    before = ctx.dps
    # The Newton matrix is about as badly conditioned as (capacity ratio)^2 / epsilon^2.
    ctx.dps = int(2 * digits + 3 * spread + 60)
    try:
        layers = _live_edges(information, sources, targets)
        if not layers:
            return _assemble(information.shape, [], [], arb(0), arb(0), arb(0))
        edges, kappa = _circulation(layers, information.shape, barrier, terminal)
        target = arb(epsilon) * kappa / (2 * len(edges)) if mu is None else arb(mu)
        flows, residual = _solve(edges, target, kappa, digits)
        return _assemble(information.shape, edges, flows, target, kappa, residual)
    finally:
        ctx.dps = before


def _live_edges(
    information: np.ndarray, sources: Iterable[int] | None, targets: Iterable[int] | None
) -> list[tuple[Node, Node, float, tuple]]:
    """Positive edges on a path from a source among the output nodes to a target among the input nodes, by graph search
    both ways."""
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
    from_source = _reach([(depth, i) for i in (tokens if sources is None else sources)], down)
    to_target = _reach([(0, j) for j in (tokens if targets is None else targets)], up)
    return [e for e in positive if e[0] in from_source and e[1] in to_target]


def _reach(start: list[Node], neighbours: dict[Node, list[Node]]) -> set[Node]:
    reached, stack = set(start), list(start)
    while stack:
        for node in neighbours.get(stack.pop(), []):
            if node not in reached:
                reached.add(node)
                stack.append(node)
    return reached


def _circulation(layers: list, shape: tuple, barrier: str, terminal: float | str | None) -> tuple[list[Edge], arb]:
    """Attach terminals and the return edge; give every edge the weight of its barrier term."""
    depth, tokens, _ = shape
    entries = [(tail, head, arb(u), ("edges", *key)) for tail, head, u, key in layers]
    sums = [sum((u for _, _, u, key in entries if key[1] == k), arb(0)) for k in range(depth)]
    kappa = min(sums, key=float)
    out = sorted({tail[1] for tail, *_ in layers if tail[0] == depth})
    into = sorted({head[1] for _, head, *_ in layers if head[0] == 0})
    if terminal is None and barrier == "capacity":
        terminal = "adjacent"
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
    weights = [*(u for _, _, u, _ in entries), kappa]
    if barrier == "uniform":
        weights = [arb(1)] * len(weights)
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


class _Circulation:
    """The incidence matrix of an edge list, the target's row left out (its potential is 0)."""

    def __init__(self, edges: list[Edge]):
        nodes = [n for n in dict.fromkeys([e.tail for e in edges] + [e.head for e in edges]) if n != "target"]
        index: dict[Node, int] = {n: k for k, n in enumerate(nodes)}
        self.size = len(nodes)
        self.ends = [(index.get(e.tail, -1), index.get(e.head, -1)) for e in edges]

    def excess(self, flow: list[arb]) -> list[arb]:
        """What leaves minus what enters every node but the target."""
        total = [arb(0)] * (self.size + 1)
        for (tail, head), f in zip(self.ends, flow, strict=True):
            total[tail] += f
            total[head] -= f
        return [v.mid() for v in total[:-1]]

    def drop(self, potential: list[arb]) -> list[arb]:
        """Potential of the tail minus potential of the head, for every edge."""
        grounded = [*potential, arb(0)]
        return [(grounded[tail] - grounded[head]).mid() for tail, head in self.ends]

    def solve(self, conductance: list[arb], right: list[arb]) -> list[arb]:
        """Potentials whose drops, times the conductances, have the excess `right`."""
        laplacian = [[arb(0)] * (self.size + 1) for _ in range(self.size + 1)]
        for (tail, head), c in zip(self.ends, conductance, strict=True):
            laplacian[tail][tail] += c
            laplacian[head][head] += c
            laplacian[tail][head] -= c
            laplacian[head][tail] -= c
        matrix = arb_mat([[v.mid() for v in row[:-1]] for row in laplacian[:-1]])
        solution = matrix.solve(arb_mat([[v] for v in right]), algorithm="approx")
        return [solution[k, 0] for k in range(self.size)]


def _solve(edges: list[Edge], mu: arb, kappa: arb, digits: int) -> tuple[list[arb], arb]:
    """Follow the path to the neighbourhood of the solution, then climb the dual to all digits."""
    circulation = _Circulation(edges)
    potential = _approach(circulation, edges, [(mu * e.weight).mid() for e in edges], kappa)
    tolerance = arb(10) ** -digits
    last = None
    residual = arb("inf")
    for _ in range(50):
        drop = circulation.drop(potential)
        flow, conductance = [], []
        for e, d in zip(edges, drop, strict=True):
            ratio = e.capacity / (2 * mu * e.weight)
            x = ratio * (e.cost + d)
            root = (1 + x * x).sqrt()
            small = e.capacity / (1 + abs(x) + root)
            flow.append((small if x > 0 else e.capacity - small).mid())
            conductance.append((e.capacity * ratio / (2 * root * (1 + root))).mid())
        excess = circulation.excess(flow)
        residual = max(abs(v) for v in excess) / flow[-1]
        if last is not None and residual < tolerance:
            change = max(abs(f - g) / f for f, g in zip(flow, last, strict=True))
            if change < tolerance:
                return flow, residual
        last = flow
        step = circulation.solve(conductance, excess)
        potential = [(p + s).mid() for p, s in zip(potential, step, strict=True)]
    raise ArithmeticError(f"Newton's method on the dual left an imbalance of {float(residual):.3g}")


@dataclass(frozen=True)
class _Iterate:
    """A primal-dual point: 0 < f < u, multipliers z of f >= 0 and v of f <= u, potentials p."""

    f: list[arb]
    g: list[arb]  # u - f
    z: list[arb]
    v: list[arb]
    p: list[arb]


def _approach(circulation: _Circulation, edges: list[Edge], goal: list[arb], kappa: arb) -> list[arb]:
    """Potentials at which every product f z and (u - f) v is within 1 % of its goal.

    The products follow max(level, goal) with one falling level: all edges start equal and each stops at its
    own goal, so goals many orders apart (the capacity barrier's) are no harder than equal ones.
    """
    lowest = min(goal, key=float)
    level = max([kappa, *goal], key=float)
    u = [e.capacity for e in edges]
    now = _Iterate(
        f=[c / 2 for c in u],
        g=[c / 2 for c in u],
        z=[2 * max(level, w) / c for c, w in zip(u, goal, strict=True)],
        v=[2 * max(level, w) / c for c, w in zip(u, goal, strict=True)],
        p=[arb(0)] * circulation.size,
    )
    for _ in range(1000):
        aim = [max(level, w) for w in goal]
        products = [float(f * z / w) for f, z, w in zip(now.f, now.z, aim, strict=True)]
        products += [float(g * v / w) for g, v, w in zip(now.g, now.v, aim, strict=True)]
        excess = circulation.excess(now.f)
        near = min(products) > 0.99 and max(products) < 1.01
        if level <= lowest and near and max(abs(v) for v in excess) < kappa * arb(10) ** -30:
            return now.p
        if level > lowest and min(products) > 1e-3 and max(products) < 1e3:
            free = _direction(circulation, edges, now, [arb(0)] * len(edges), excess)
            sigma = max(1e-3, (1 - float(min(arb(1), _room(now, free)))) ** 2)
            level = max(lowest, (level * sigma).mid())
            aim = [max(level, w) for w in goal]
        step = _direction(circulation, edges, now, aim, excess)
        length = min(arb(1), (_room(now, step) * 9 / 10).mid())
        moved = {
            name: [(a + length * b).mid() for a, b in zip(getattr(now, name), getattr(step, name), strict=True)]
            for name in "fgzvp"
        }
        now = _Iterate(**moved)
    raise ArithmeticError("the path was not followed to its end")


def _direction(
    circulation: _Circulation, edges: list[Edge], now: _Iterate, aim: list[arb], excess: list[arb]
) -> _Iterate:
    """The Newton step to conservation, s = z - v and products equal to `aim`."""
    columns = list(zip(now.f, now.g, now.z, now.v, aim, strict=True))
    conductance = [(1 / (z / f + v / g)).mid() for f, g, z, v, _ in columns]
    drop = circulation.drop(now.p)
    pull = [(e.cost + d - w / f + w / g).mid() for e, d, (f, g, _, _, w) in zip(edges, drop, columns, strict=True)]
    induced = circulation.excess([(c * r).mid() for c, r in zip(conductance, pull, strict=True)])
    dp = circulation.solve(conductance, [(a - b).mid() for a, b in zip(excess, induced, strict=True)])
    df = [(-c * (d + r)).mid() for c, d, r in zip(conductance, circulation.drop(dp), pull, strict=True)]
    return _Iterate(
        f=df,
        g=[-d for d in df],
        z=[(w / f - z - z / f * d).mid() for d, (f, _, z, _, w) in zip(df, columns, strict=True)],
        v=[(w / g - v + v / g * d).mid() for d, (_, g, _, v, w) in zip(df, columns, strict=True)],
        p=dp,
    )


def _room(now: _Iterate, step: _Iterate) -> arb:
    """How many such steps lead to the boundary."""
    shrink = max(-d / x for name in "fgzv" for d, x in zip(getattr(step, name), getattr(now, name), strict=True))
    return 1 / shrink if shrink > 0 else arb(10) ** 9


def _assemble(shape: tuple, edges: list[Edge], flows: list[arb], mu: arb, kappa: arb, residual: arb) -> Exact:
    tokens = shape[1]
    parts = {
        "edges": np.zeros(shape),
        "source": np.zeros(tokens),
        "target": np.zeros(tokens),
        "value": np.zeros(()),
    }
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
