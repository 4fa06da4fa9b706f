"""The items being solved: all their edges, the potentials of their nodes, and the passes of a Newton step over them.

The arithmetic of one edge is in `edges.py`. The two conventions this file owns:

* **A potential is the sum of two or three floats.** Where nothing binds, potentials differ by `mu / f`, far below the
  rounding error of a potential near -1, and the flow there depends on just these differences.
* **All edges are one row of numbers**: those of the layers in the order (l, t, t), then source edges, target edges and
  the return edge, `m = l t^2 + 2 t + 1` in all. Nodes are `n = (l + 1) t + 1`, the super-source last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from gaflow.flow.barrier import gpu
from gaflow.flow.barrier.edges import Balance, Edges, largest
from gaflow.flow.network import LayeredNetwork
from gaflow.flow.records import take_items

__all__ = ["EdgeGroup", "State"]

CPU_GROUP_EDGES = 1 << 17  # edges worked on at a time, for the passes of a step to stay in cache
GPU_GROUP_EDGES = 1 << 25  # the memory has to hold the intermediate results of the passes
THREE_FLOATS_MU = 1e-20  # a mu below this, in units of flow, needs potentials of three floats: two are good to 1e-32


@dataclass(frozen=True)
class EdgeGroup:
    """Edges worked on together: those that leave a range of nodes downwards, the outer ones, or both."""

    start: int  # the tails, counted from layer 1 on; whole layers, or nodes of one layer
    stop: int
    outer: bool  # source, target and return edges belong to it
    columns: slice  # of the row of all edges


@dataclass
class State:
    """The items that are still being solved; capacities, flows and mu are in each item's own unit of flow."""

    item: Tensor  # (b,) position in the batch
    level: Tensor  # (b,) no mu_e is below it yet; never rises
    floor: Tensor  # (b,) the smallest mu_e to reach
    mean: Tensor  # (b,) the mean of the mu_e to reach
    count: Tensor  # (b,) the number of live edges
    before: Tensor  # (b,) the level of the last step
    first: bool  # no step was taken yet
    subtraction_free: bool  # slower formulas, in which nothing cancels
    cut_short: Tensor  # (b,) the share of the live edges that were cut short in the last step
    edges: Edges
    node: Tensor  # (2 or 3, b, n) potentials, the largest float first
    shape: tuple[int, int]  # (l, t)
    top: int  # output nodes from this one on are dead in every item

    @classmethod
    def start(
        cls, network: LayeredNetwork, unit: Tensor, mu: Tensor, items: Tensor, *, weighted: bool, subtraction_free: bool
    ) -> State:
        """`items` of the network at the start of the central path; `mu` (b,) is the target in units of `unit` (b,)."""
        unit = unit[items]
        target = mu[items]
        source = network.source[items]
        _, layers, t, _ = network.capacity.shape
        inner = network.capacity.flatten(1)[items]
        returning = network.returning[items].unsqueeze(1)
        capacity = torch.cat([inner, source, network.target[items], returning], 1)
        del inner  # a copy of all capacities
        capacity.div_(unit[:, None])
        count = network.edges[items].to(unit.dtype)
        edge_mu = target[:, None]
        if weighted:
            weights = capacity.clone()
            weights[:, -1] = network.kappa[items] / unit  # the return edge weighs kappa
            mean_weight = weights.sum(-1) / count
            mu_per_weight = target / mean_weight
            weighted_mu = weights * mu_per_weight[:, None]
            edge_mu = torch.where(weights > 0, weighted_mu, edge_mu)
        level = torch.maximum(target, 2 / count)
        floor = edge_mu.amin(-1)
        floats = 3 if (floor < THREE_FLOATS_MU).any() else 2
        nodes = (layers + 1) * t + 1
        live_outputs = (source > 0).any(0).nonzero()
        return cls(
            item=items,
            level=level,
            floor=floor,
            mean=target,
            count=count,
            before=level,
            first=True,
            subtraction_free=subtraction_free,
            cut_short=torch.zeros_like(level),
            edges=Edges.start(capacity, edge_mu),
            node=capacity.new_zeros(floats, len(items), nodes),
            shape=(layers, t),
            top=int(live_outputs.amax()) + 1,
        )

    def groups(self) -> Iterator[tuple[EdgeGroup, Edges]]:
        """All edges, in groups that fit the cache; where there are several, those of dead output nodes are left out."""
        layers, t = self.shape
        tails = layers * t
        items, row = self.edges.capacity.shape
        limit = GPU_GROUP_EDGES if self.edges.variables.is_cuda else CPU_GROUP_EDGES
        if items * row <= limit:
            yield EdgeGroup(0, tails, True, slice(0, row)), self.edges
            return
        size = max(1, limit // (items * t))  # tails in a group
        output_tails = tails - t  # those of the highest layer begin here
        starts = []
        if size < t:
            for layer_start in range(0, output_tails, t):
                starts.extend(range(layer_start, layer_start + t, size))
        else:
            starts.extend(range(0, output_tails, size // t * t))
        end = output_tails + self.top
        starts.extend(range(output_tails, end, size))
        for start, stop in pairwise([*starts, end]):
            columns = slice(start * t, stop * t)
            yield EdgeGroup(start, stop, False, columns), self.edges[columns]
        outer = slice(tails * t, row)
        yield EdgeGroup(0, 0, True, outer), self.edges[outer]

    def potential_difference(self, node: Tensor, group: EdgeGroup) -> Tensor:
        """Potential (..., n) at the tail less that at the head, for the edges of a group: (..., edges)."""
        t = self.shape[1]
        differences = []
        if group.stop:
            first = group.start // t
            last = -(-group.stop // t)
            tails = node[..., t + group.start : t + group.stop]
            heads = node[..., first * t : last * t]
            shape = (*node.shape[:-1], last - first)
            inner = tails.view(*shape, -1, 1) - heads.view(*shape, 1, t)
            differences.append(inner.flatten(-3))
        if group.outer:
            source = node[..., -1:]
            outputs = node[..., -1 - t : -1]
            inputs = node[..., :t]
            differences.extend([source - outputs, inputs, -source])
        if len(differences) == 1:
            return differences[0]
        return torch.cat(differences, -1)

    def cost(self, group: EdgeGroup) -> Tensor:
        """Reduced costs (b, edges) of a group; the return edge costs -1."""
        high, *low = self.potential_difference(self.node, group)
        if group.outer:
            high[:, -1].sub_(1)
        small, *smallest = low
        if smallest:  # small floats first: the others may cancel
            small.add_(smallest[0])
        return high.add_(small)

    def linearize(self) -> Balance:
        """Set weight and residual of every edge at the present level, and sum them up at the nodes."""
        if not self.subtraction_free and gpu.available(self.edges.variables):
            return gpu.linearize(self.edges, self.node, self.shape, self.before, self.level, first=self.first)
        layers, t = self.shape
        rows, columns, max_residual = self._linearize()
        outer = self.edges.variables[1:, :, layers * t * t :]  # flows, residuals, weights
        source, target, returning = outer.split([t, t, 1], -1)
        leaving_source = source.sum(-1, keepdim=True)
        leaving = torch.cat([target, *rows, leaving_source], -1)  # (3, b, n)
        entering = torch.cat([*columns, source, returning], -1)
        imbalance, residual = leaving[:2] - entering[:2]
        return Balance(
            right=imbalance + residual,
            up=entering[2],
            down=leaving[2],
            max_residual=max_residual,
            max_imbalance=largest(imbalance),
        )

    def _linearize(self) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Sums over the heads of each tail and over the tails of each head, and the largest residual.

        The sums are (3, b, ...) for a range of nodes each, from the lowest up.
        """
        layers, t = self.shape
        items = len(self.level)
        variables = self.edges.variables[1:]  # flows, residuals, weights
        rows = []
        columns = []
        residuals = []
        done = 0  # tails
        for group, edges in self.groups():
            edges.linearize(
                self.cost(group), self.before, self.level, first=self.first, subtraction_free=self.subtraction_free
            )
            residuals.append(largest(edges.residual))
            if group.stop:
                group_layers = max(1, (group.stop - group.start) // t)  # or a piece of one
                inner = variables[..., group.start * t : group.stop * t]
                inner = inner.view(3, items, group_layers, -1, t)
                rows.append(inner.sum(-1).flatten(2))
                entering = inner.sum(-2).flatten(2)
                if group.start % t:  # another piece of the same layer
                    columns[-1].add_(entering)
                else:
                    columns.append(entering)
                done = group.stop
        left_out = layers * t - done  # dead output nodes
        rows.append(variables.new_zeros(3, items, left_out))
        max_residual = torch.stack(residuals).amax(0)
        return rows, columns, max_residual

    def step(self, change: Tensor) -> None:
        """Add `change` (b, n) to the potentials and let every edge follow."""
        if gpu.available(self.edges.variables):
            cut_short = gpu.step(self.edges, self.shape, change)
        else:
            cut_short = torch.zeros_like(self.level)
            for group, edges in self.groups():
                cut_short += edges.step(self.potential_difference(change, group)).sum(-1)
        self.cut_short = cut_short / self.count
        self.before = self.level
        self.first = False
        self.node = _accumulate(self.node, change)

    def errors(self) -> tuple[Tensor, Tensor]:
        """Largest dual and centrality error of any edge at the target mu, (b,) each."""
        duals = []
        centralities = []
        for group, edges in self.groups():
            dual, centrality = edges.errors(self.cost(group))
            duals.append(dual)
            centralities.append(centrality)
        max_dual = torch.stack(duals).amax(0)
        max_centrality = torch.stack(centralities).amax(0)
        return max_dual, max_centrality

    def cut(self) -> Tensor:
        """A bound of every flow: potentials scaled to -1 at the source are a fractional cut, and so is the unit."""
        source = self.node[0, :, -1]
        total = torch.zeros_like(self.level)
        for group, edges in self.groups():
            share = self.cost(group).neg_().relu_()
            if group.outer:
                share[:, -1] = 0
            crossing = share.mul_(edges.capacity)
            total += crossing.sum(-1)
        bound = torch.nan_to_num(total / -source, nan=1.0)
        bound.clamp_max_(1.0)
        return torch.where(source < 0, bound, 1.0)

    def take(self, items: Tensor) -> State:
        """These items, copied."""
        return take_items(self, items, edges=self.edges.take(items), node=self.node[:, items])


def _accumulate(parts: Tensor, change: Tensor) -> Tensor:
    """A number in two or three floats plus a plain one, in as many floats again."""
    if len(parts) == 2:  # each rounding error goes to the low float; one of `change` itself is corrected like any other
        high = parts[0] + change
        low = (change - (high - parts[0])).add_(parts[1])
        total = high + low
        error = low.sub_(total - high)
        return torch.stack([total, error])
    high, error = _two_sum(parts[0], change)
    middle, error = _two_sum(parts[1], error)
    high, middle = _two_sum(high, middle)
    middle, low = _two_sum(middle, parts[2] + error)
    return torch.stack([high, middle, low])


def _two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The rounded sum and its rounding error, exactly (Knuth)."""
    total = a + b
    rounded_b = total - a
    rounded_a = total - rounded_b
    error = (a - rounded_a) + (b - rounded_b)
    return total, error
