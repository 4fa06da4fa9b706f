"""The variables of the barrier problem: flows, slacks and multipliers on edges, potentials on nodes.

With potentials `p` (target at 0), reduced cost `s = c + p_tail - p_head`, slack `g = u - f` and multipliers `z`, `v`
the solution satisfies `s = z - v`, `f z = mu`, `g v = mu` and conservation. Eliminating `df`, `dz` and `dv` from a
Newton step leaves a weighted Laplacian in the potentials. With `d = z g + v f`:

    w = f g / d                            e = (mu (g - f) - f g s) / d
    Laplacian(w) dp = div(f + e)           df = e - w (dp_tail - dp_head)

`e` is also how far each edge is from optimal, in units of flow: when all `e` and all node imbalances vanish, `f` is
the answer. The three conventions this file owns:

* **Every edge has its own step length.** `f`, `g`, `z` and `v` keep at least the share `KEEP` of themselves in a step,
  each edge for itself. A common step length would be dictated by the worst of a million edges; an edge that is cut
  short only adds an imbalance of its own size, which the next step removes.
* **No edge goes below a common level before all do.** `mu_e = max(mu omega_e, level)` while the level falls: weighted
  barriers would otherwise start with some edges pressed against their bounds.
* **A potential is the sum of three floats.** Where nothing binds, potentials differ by `mu / f`, far below the rounding
  error of a potential near -1, and the flow there depends on just these differences.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from gaflow.network import LayeredNetwork

__all__ = ["KEEP", "Edges", "State", "divergence", "drop", "largest", "outer_drop"]

KEEP = 0.05
GONE = 1e-250  # stands for the flow on a dead edge: no weight, no residual, and no division by zero
CACHED = 1 << 18  # edges worked on at a time on the CPU, so that the passes of a step stay in cache


@dataclass
class Edges:
    """The primal-dual variables of some edges, all of one shape (b, ...), changed in place."""

    capacity: Tensor  # u
    live: Tensor  # 1.0 or 0.0
    goal: Tensor  # the mu_e to reach, broadcastable
    flow: Tensor  # f
    slack: Tensor  # g, kept apart from u - f, which rounds to 0 where an edge is full
    below: Tensor  # z, multiplier of f >= 0
    above: Tensor  # v, multiplier of g >= 0
    weight: Tensor  # w of the current step; scratch, like the next: fresh memory is slower than arithmetic
    residual: Tensor  # e of the current step, then the change of flow

    @classmethod
    def start(cls, capacity: Tensor, goal: Tensor, level: Tensor) -> Edges:
        """A central start: a moderate flow on every edge, whatever its capacity, and multipliers to match."""
        live = capacity > 0
        flow = torch.where(live, capacity / (2 + capacity), GONE)
        slack = torch.where(live, capacity - flow, 1.0)
        push = torch.maximum(goal, along(level, goal))  # as in push()
        below, above = push / flow, push / slack
        scratch = torch.empty_like(flow), torch.empty_like(flow)
        return cls(capacity, live.to(capacity.dtype), goal, flow, slack, below, above, *scratch)

    def push(self, level: Tensor) -> Tensor:
        """mu_e of every edge: no edge goes below the common level before all do."""
        return torch.maximum(self.goal, along(level, self.goal))

    def linearize(self, cost: Tensor, level: Tensor) -> None:
        """Set the Newton weight w and the residual e of every edge."""
        scale = self.live / torch.addcmul(self.below * self.slack, self.above, self.flow)
        product = torch.mul(self.flow, self.slack, out=self.weight)
        residual = torch.sub(self.slack, self.flow, out=self.residual)
        residual.mul_(self.push(level)).addcmul_(product, cost, value=-1).mul_(scale)
        product.mul_(scale)

    def complementarity(self, level: Tensor) -> Tensor:
        """Sum of the squares of f z / mu_e and g v / mu_e, (b,): twice the number of live edges if all are central."""
        push = self.push(level)
        below, above = (self.flow * self.below).div_(push), (self.slack * self.above).div_(push)
        return below.square_().addcmul_(above, above).mul_(self.live).flatten(1).sum(-1)

    def step(self, drop: Tensor, level: Tensor) -> None:
        """Take the Newton step that follows from the `drop` of the new potentials, as far as each edge allows."""
        push, change = self.push(level), self.residual.addcmul_(self.weight, drop, value=-1)
        below = torch.addcmul(push, self.below, change, value=-1).div_(self.flow)
        torch.maximum(below, self.below * KEEP, out=self.below)
        above = torch.addcmul(push, self.above, change).div_(self.slack)
        torch.maximum(above, self.above * KEEP, out=self.above)
        change = change.clamp(self.flow * (KEEP - 1), self.slack * (1 - KEEP))
        self.flow.add_(change)
        self.slack.sub_(change)

    def errors(self, cost: Tensor) -> tuple[Tensor, Tensor]:
        """Largest dual and centrality error, (b,) each: the two parts of the residual e, in units of flow."""
        scale = self.live / torch.addcmul(self.below * self.slack, self.above, self.flow)
        dual = (cost - self.below + self.above) * self.flow * self.slack * scale
        lower = (self.goal - self.flow * self.below) * self.slack * scale
        upper = (self.goal - self.slack * self.above) * self.flow * scale
        return largest(dual), torch.maximum(largest(lower), largest(upper))

    def take(self, items: Tensor) -> Edges:
        """These items of the batch, copied."""
        return Edges(*(getattr(self, f.name)[items] for f in fields(self)))

    def layers(self, part: slice) -> Edges:
        """A view of these layers."""
        goal = self.goal if self.goal.shape[1] == 1 else self.goal[:, part]
        names = ("flow", "slack", "below", "above", "weight", "residual")
        return Edges(self.capacity[:, part], self.live[:, part], goal, *(getattr(self, n)[:, part] for n in names))


@dataclass
class State:
    """The items that are still being solved; capacities, flows and mu are in each item's own unit of flow."""

    item: Tensor  # (b,) where in the batch each came from
    level: Tensor  # (b,) no mu_e is below it yet; never rises
    floor: Tensor  # (b,) the smallest mu_e to reach
    mean: Tensor  # (b,) the mean of the mu_e to reach
    count: Tensor  # (b,) m, the number of live edges
    inner: Edges  # (b, l, t, t)
    outer: Edges  # (b, 2 t + 1): source edges, target edges, return edge
    node: Tensor  # (3, b, l+1, t) potentials, largest part first
    source: Tensor  # (3, b) the super-source's
    top: int  # output nodes from here on are dead in every item

    @classmethod
    def start(cls, network: LayeredNetwork, unit: Tensor, mu: Tensor, weighted: bool, items: Tensor) -> State:
        """`items` of the network at the start of the central path; `mu` (b,) is the target in units of `unit` (b,)."""
        unit, target = unit[items], mu[items]
        inner = network.capacity[items] / along(unit, network.capacity)
        ends = (network.source, network.target, network.returning[:, None])
        outer = torch.cat([x[items] / unit[:, None] for x in ends], 1)
        count = network.edges[items].to(unit.dtype)
        if weighted:
            returning = (network.kappa[items] / unit)[:, None]  # the return edge weighs kappa
            weights = (inner, torch.cat([outer[:, :-1], returning], 1))
            mean = sum(x.flatten(1).sum(-1) for x in weights) / count
            goals = [torch.where(x > 0, x * along(target / mean, x), along(target, x)) for x in weights]
        else:
            goals = [target[:, None, None, None], target[:, None]]
        level = torch.maximum(target, 1 / count)
        floor = torch.minimum(*(x.flatten(1).amin(-1) for x in goals))
        b, layers, t, _ = inner.shape
        return cls(
            items,
            level,
            floor,
            target,
            count,
            Edges.start(inner, goals[0], level),
            Edges.start(outer, goals[1], level),
            node=inner.new_zeros(3, b, layers + 1, t),
            source=inner.new_zeros(3, b),
            top=int((outer[:, :t] > 0).any(0).nonzero().amax()) + 1,
        )

    def parts(self) -> list[tuple[slice, Edges]]:
        """The layers in pieces that fit the cache (all in one on a GPU)."""
        b, layers, t, _ = self.inner.flow.shape
        size = layers if self.inner.flow.is_cuda else max(1, CACHED // (b * t * t))
        slices = [slice(k, min(k + size, layers)) for k in range(0, layers, size)]
        return [(part, self.inner.layers(part)) for part in slices]

    def cost(self, part: slice) -> Tensor:
        """Reduced costs of the edges of layers `part`."""
        return _total([drop(node, part) for node in self.node])

    def outer_cost(self) -> Tensor:
        """Reduced costs of the outer edges; the return edge costs -1."""
        parts = [outer_drop(node, source) for node, source in zip(self.node, self.source, strict=True)]
        parts[0][:, -1] -= 1
        return _total(parts)

    def errors(self) -> tuple[Tensor, Tensor]:
        """Largest dual and centrality error of any edge at the target mu, (b,) each."""
        dual, central = self.outer.errors(self.outer_cost())
        for part, edges in self.parts():
            more = edges.errors(self.cost(part))
            dual, central = torch.maximum(dual, more[0]), torch.maximum(central, more[1])
        return dual, central

    def cut(self) -> Tensor:
        """A bound of every flow: potentials scaled to -1 at the source are a fractional cut, and so is the unit."""
        outer = (-outer_drop(self.node[0], self.source[0])[:, :-1]).relu_()
        total = (self.outer.capacity[:, :-1] * outer).sum(-1)
        for part, edges in self.parts():
            total = total + (edges.capacity * self.cost(part).neg_().relu_()).flatten(1).sum(-1)
        bound = torch.nan_to_num(total / -self.source[0], nan=1.0).clamp_max(1.0)
        return torch.where(self.source[0] < 0, bound, 1.0)

    def move(self, node: Tensor, source: Tensor) -> None:
        """Add to the potentials, keeping in the lower parts what rounding would lose."""
        self.node = _accumulate(self.node, node)
        self.source = _accumulate(self.source, source)

    def take(self, items: Tensor) -> State:
        """These items, copied."""
        inner, outer = self.inner.take(items), self.outer.take(items)
        node, source = self.node[:, items], self.source[:, items]
        item, level, floor = self.item[items], self.level[items], self.floor[items]
        return State(item, level, floor, self.mean[items], self.count[items], inner, outer, node, source, self.top)


def along(values: Tensor, like: Tensor) -> Tensor:
    """One value per item, shaped to broadcast over `like` (b, ...)."""
    return values.reshape(-1, *[1] * (like.dim() - 1))


def largest(values: Tensor) -> Tensor:
    """The largest magnitude of each item, (b,)."""
    return torch.maximum(values.flatten(1).amax(-1), -values.flatten(1).amin(-1))


def drop(node: Tensor, part: slice) -> Tensor:
    """Potential at the tail less that at the head, for the edges of layers `part`."""
    return node[:, part.start + 1 : part.stop + 1, :, None] - node[:, part, None, :]


def outer_drop(node: Tensor, source: Tensor) -> Tensor:
    """The same for the source edges, the target edges and the return edge, (b, 2 t + 1)."""
    return torch.cat([source[:, None] - node[:, -1], node[:, 0], -source[:, None]], 1)


def divergence(inner: Tensor, outer: Tensor) -> tuple[Tensor, Tensor]:
    """Outflow less inflow of every node (b, l+1, t) and of the super-source (b,)."""
    t = inner.shape[-1]
    source, target, returning = outer[:, :t], outer[:, t:-1], outer[:, -1]
    leaving = torch.cat([target[:, None], inner.sum(-1)], 1)
    entering = torch.cat([inner.sum(-2), source[:, None]], 1)
    return leaving - entering, source.sum(-1) - returning


def _total(parts: list[Tensor]) -> Tensor:
    """Sum of the parts of a potential difference; the first two may cancel, so the small ones are added first."""
    high, middle, low = parts
    return high.add_(middle.add_(low))


def _accumulate(parts: Tensor, change: Tensor) -> Tensor:
    """A number in three parts plus a plain one, in three parts again."""
    high, rest = _two_sum(parts[0], change)
    middle, rest = _two_sum(parts[1], rest)
    high, middle = _two_sum(high, middle)
    middle, low = _two_sum(middle, parts[2] + rest)
    return torch.stack([high, middle, low])


def _two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The rounded sum and its rounding error, exactly (Knuth)."""
    total = a + b
    shifted = total - a
    return total, (a - (total - shifted)) + (b - shifted)
