"""The items being solved: all their edges, the potentials of their nodes, and the passes of a Newton step over them.

What happens on an edge is in `edges.py`. The two conventions this file owns:

* **A potential is the sum of two or three floats.** Where nothing binds, potentials differ by `mu / f`, far below the
  rounding error of a potential near -1, and the flow there depends on just these differences.
* **All edges are one row of numbers**: those of the layers in the order (l, t, t), then source edges, target edges and
  the return edge, `m = l t^2 + 2 t + 1` in all. Nodes are `n = (l + 1) t + 1`, the super-source last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from gaflow.flow.barrier.edges import GROW, KEEP, Edges, largest
from gaflow.flow.network import LayeredNetwork

__all__ = ["Balance", "Part", "State"]

CACHED = 1 << 17  # edges worked on at a time on the CPU, so that the passes of a step stay in cache
MANY = 1 << 25  # and on a GPU, whose memory has to hold what the passes leave in between
FINE = 1e-20  # a mu below this, in units of flow, needs potentials in three parts: two are good to 1e-32


@dataclass(frozen=True)
class Part:
    """Edges worked on together: those that leave some nodes downwards, the outer ones, or both."""

    start: int  # the tails, counted from layer 1 on; whole layers, or nodes of one layer
    stop: int
    outer: bool
    edges: slice  # where they are in the row


@dataclass(frozen=True)
class Balance:
    """Sums over the edges of every node, and what is furthest from balance."""

    right: Tensor  # (b, n) outflow less inflow, of flows and residuals together
    up: Tensor  # (b, n) weights of the edges that enter
    down: Tensor  # (b, n) weights of the edges that leave
    off: Tensor  # (b,) the largest residual
    lost: Tensor  # (b,) the largest imbalance of flows

    def take(self, items: Tensor) -> Balance:
        """Those of these items."""
        return Balance(*(getattr(self, f.name)[items] for f in fields(self)))


@dataclass
class State:
    """The items that are still being solved; capacities, flows and mu are in each item's own unit of flow."""

    item: Tensor  # (b,) where in the batch each came from
    level: Tensor  # (b,) no mu_e is below it yet; never rises
    floor: Tensor  # (b,) the smallest mu_e to reach
    mean: Tensor  # (b,) the mean of the mu_e to reach
    count: Tensor  # (b,) the number of live edges
    before: Tensor  # (b,) the level of the last step
    first: bool  # there was none yet
    careful: bool  # spare no expense
    short: Tensor  # (b,) the share of the live edges that were cut short in the last step
    edges: Edges
    node: Tensor  # (2 or 3, b, n) potentials, largest part first
    shape: tuple[int, int]  # (l, t)
    top: int  # output nodes from here on are dead in every item

    @classmethod
    def start(
        cls, network: LayeredNetwork, unit: Tensor, mu: Tensor, items: Tensor, *, weighted: bool, careful: bool
    ) -> State:
        """`items` of the network at the start of the central path; `mu` (b,) is the target in units of `unit` (b,)."""
        unit, target = unit[items], mu[items]
        _, layers, t, _ = network.capacity.shape
        rows = (network.capacity.flatten(1), network.source, network.target, network.returning[:, None])
        capacity = torch.cat([x[items] for x in rows], 1).div_(unit[:, None])
        count = network.edges[items].to(unit.dtype)
        goal = target[:, None]
        if weighted:
            weights = capacity.clone()
            weights[:, -1] = network.kappa[items] / unit  # the return edge weighs kappa
            goal = torch.where(weights > 0, weights * (target / (weights.sum(-1) / count))[:, None], goal)
        level, floor = torch.maximum(target, 2 / count), goal.amin(-1)
        edges = Edges.start(capacity, goal)
        parts = 3 if bool((floor < FINE).any()) else 2
        alive = (network.source[items] > 0).any(0)
        return cls(
            items,
            level,
            floor=floor,
            mean=target,
            count=count,
            before=level,
            first=True,
            careful=careful,
            short=torch.zeros_like(level),
            edges=edges,
            node=capacity.new_zeros(parts, len(items), (layers + 1) * t + 1),
            shape=(layers, t),
            top=int(alive.nonzero().amax()) + 1,
        )

    def parts(self) -> Iterator[tuple[Part, Edges]]:
        """All edges, in parts that fit the cache; where there are several, those of dead output nodes are left out."""
        layers, t = self.shape
        items, row = self.edges.capacity.shape
        most, tails = MANY if self.edges.book.is_cuda else CACHED, layers * t
        if items * row <= most:
            return iter([(Part(0, tails, True, slice(0, row)), self.edges)])
        size, last = max(1, most // (items * t)), tails - t  # tails at a time, where the highest layer begins
        pieces = [k + i for k in range(0, last, t) for i in range(0, t, size)]  # of a layer, or else several layers
        ends = [
            *(pieces if size < t else range(0, last, size // t * t)),
            *range(last, last + self.top, size),
            last + self.top,
        ]
        chosen = [Part(k, stop, False, slice(k * t, stop * t)) for k, stop in pairwise(ends)]
        chosen.append(Part(0, 0, True, slice(tails * t, row)))
        return ((part, self.edges[part.edges]) for part in chosen)

    def drop(self, node: Tensor, part: Part) -> Tensor:
        """Potential (..., n) at the tail less that at the head, for the edges of a part: (..., edges)."""
        t = self.shape[1]
        found = []
        if part.stop:
            first, last = part.start // t, -(-part.stop // t)
            shape = (*node.shape[:-1], last - first)
            tails = node[..., t + part.start : t + part.stop].view(*shape, -1, 1)
            heads = node[..., first * t : last * t].view(*shape, 1, t)
            found = [(tails - heads).view(*node.shape[:-1], -1)]
        if part.outer:
            source = node[..., -1:]
            found += [source - node[..., -1 - t : -1], node[..., :t], -source]
        return found[0] if len(found) == 1 else torch.cat(found, -1)

    def cost(self, part: Part) -> Tensor:
        """Reduced costs (b, edges) of a part; the return edge costs -1."""
        high, *low = self.drop(self.node, part)
        if part.outer:
            high[:, -1].sub_(1)
        return high.add_(low[0] if len(low) == 1 else low[0].add_(low[1]))  # small ones first: the others may cancel

    def linearize(self) -> Balance:
        """Set weight and residual of every edge at the present level, and sum them up at the nodes."""
        fused = None if self.careful else _fused(self.edges.book)
        if fused is not None:
            return Balance(*fused.linearize(self, GROW))
        layers, t = self.shape
        rows, columns, off = self._linearize()
        source, target, returning = self.edges.book[1:, :, layers * t * t :].split([t, t, 1], -1)
        leaving = torch.cat([target, *rows, source.sum(-1, keepdim=True)], -1)  # (3, b, n)
        entering = torch.cat([*columns, source, returning], -1)
        imbalance, pushed = leaving[:2] - entering[:2]
        return Balance(imbalance + pushed, entering[2], leaving[2], off, largest(imbalance))

    def _linearize(self) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Sums over the heads of each tail and over the tails of each head, and the largest residual.

        The sums are (3, b, ...) for a part of the nodes each, from the lowest up.
        """
        (layers, t), items = self.shape, len(self.level)
        book = self.edges.book[1:]  # flows, residuals, weights
        rows, columns, off, seen = [], [], [], 0
        for part, edges in self.parts():
            edges.linearize(self.cost(part), self.before, self.level, first=self.first, careful=self.careful)
            off.append(largest(edges.residual))
            if part.stop:
                whole = max(1, (part.stop - part.start) // t)  # layers, unless it is a piece of one
                inner = book[..., part.start * t : part.stop * t].view(3, items, whole, -1, t)
                rows.append(inner.sum(-1).flatten(2))
                entering = inner.sum(-2).flatten(2)
                if part.start % t:  # another piece of the same layer
                    columns[-1].add_(entering)
                else:
                    columns.append(entering)
                seen = part.stop
        rows.append(book.new_zeros(3, items, layers * t - seen))  # the dead output nodes that were left out
        return rows, columns, torch.stack(off).amax(0)

    def step(self, change: Tensor) -> None:
        """Add `change` (b, n) to the potentials and let every edge follow."""
        fused = _fused(self.edges.book)
        if fused is not None:
            short = fused.step(self, change, KEEP)
        else:
            short = sum(edges.step(self.drop(change, part)).sum(-1) for part, edges in self.parts())
        self.short, self.before, self.first = short / self.count, self.level, False
        self.node = _accumulate(self.node, change)

    def errors(self) -> tuple[Tensor, Tensor]:
        """Largest dual and centrality error of any edge at the target mu, (b,) each."""
        found = [edges.errors(self.cost(part)) for part, edges in self.parts()]
        dual, central = (torch.stack(x).amax(0) for x in zip(*found, strict=True))
        return dual, central

    def cut(self) -> Tensor:
        """A bound of every flow: potentials scaled to -1 at the source are a fractional cut, and so is the unit."""
        source, total = self.node[0, :, -1], torch.zeros_like(self.level)
        for part, edges in self.parts():
            uncut = self.cost(part).neg_().relu_()
            if part.outer:
                uncut[:, -1] = 0
            total = total + uncut.mul_(edges.capacity).sum(-1)
        bound = torch.nan_to_num(total / -source, nan=1.0).clamp_max(1.0)
        return torch.where(source < 0, bound, 1.0)

    def take(self, items: Tensor) -> State:
        """These items, copied."""
        names = ("item", "level", "floor", "mean", "count", "before", "short")
        each: dict[str, Any] = {name: getattr(self, name)[items] for name in names}
        return replace(self, **each, edges=self.edges.take(items), node=self.node[:, items])


def _fused(book: Tensor) -> Any:
    """The room of GPU kernels, where they can be used."""
    if not book.is_cuda:
        return None
    from gaflow.flow.barrier import gpu as fused

    return fused if fused.available(book) else None


def _accumulate(parts: Tensor, change: Tensor) -> Tensor:
    """A number in two or three parts plus a plain one, in as many parts again."""
    if len(parts) == 2:  # each rounding error goes to the low part; one of `change` itself is corrected like any other
        high = parts[0] + change
        low = (change - (high - parts[0])).add_(parts[1])
        total = high + low
        return torch.stack([total, low.sub_(total - high)])
    high, rest = _two_sum(parts[0], change)
    middle, rest = _two_sum(parts[1], rest)
    high, middle = _two_sum(high, middle)
    return torch.stack([high, *_two_sum(middle, parts[2] + rest)])


def _two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The rounded sum and its rounding error, exactly (Knuth)."""
    total = a + b
    shifted = total - a
    return total, (a - (total - shifted)) + (b - shifted)
