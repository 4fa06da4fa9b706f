"""The items being solved: all their edges, the potentials of their nodes, and the passes of a Newton step over them.

The arithmetic of one edge is in `edges.py`. The two conventions this file owns:

* **A potential is the sum of several floats**, see `multifloat.py`. Where nothing binds, potentials differ by `mu / f`,
  far below the rounding error of a potential near -1, and the flow there depends on just these differences.
* **All edges are one row of numbers**: those of the layers in the order (l, t, t), then source edges, target edges and
  the return edge, `m = l t^2 + 2 t + 1` in all. Nodes are `n = (l + 1) t + 1`, the super-source last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import torch
from torch import Tensor

from gaflow.flow.barrier import gpu
from gaflow.flow.barrier.edges import (
    LEAN_NARROWEST,
    LEAN_WIDEST,
    TINY,
    Balance,
    Edges,
    LeanEdges,
    LentEdges,
    largest,
    proportional_mu,
    scaled_capacity,
    spread_flow,
    start_flow,
)
from gaflow.flow.barrier.multifloat import accumulate, total
from gaflow.flow.network import LayeredNetwork
from gaflow.flow.records import take_items

CPU_GROUP_EDGES = 1 << 17  # edges worked on at a time, for the passes of a step to stay in cache
LEAN_GROUP_EDGES = 1 << 15  # likewise of long networks, whose edges bring more intermediate results with them
GPU_GROUP_EDGES = 1 << 25  # the memory has to hold the intermediate results of the passes
LEAN_MIN_TOKENS = {"cpu": 256, "cuda": 4096}  # from which on memory counts more than time
LEAST_SHARE_OF_TOKENS = 0.9  # of long networks: they are cut to the live ones only where less is alive
THREE_FLOATS_MU = 1e-20  # a mu below this, in units of flow, needs potentials of three floats: two are good to 1e-32
FLOAT_DIGITS = 15.9  # decimal digits that one more float adds to a potential
FLOW_DIGITS = 14  # decimal digits of a flow that potentials have to tell


def lean_min_tokens(device_kind: str) -> int:
    """The length from which on networks are solved with less memory, on "cpu", "cuda" or another kind of device."""
    return LEAN_MIN_TOKENS.get(device_kind, LEAN_MIN_TOKENS["cpu"])


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

    items: list[int]  # (b,) positions in the batch, ascending
    level: Tensor  # (b,) no mu_e is below it yet; never rises
    floor: Tensor  # (b,) the smallest mu_e to reach
    mean: Tensor  # (b,) the mean of the mu_e to reach
    count: Tensor  # (b,) the number of live edges
    before: Tensor  # (b,) the level of the last step
    first: bool  # no step was taken yet
    taken: Tensor  # (b,) steps
    subtraction_free: bool  # slower formulas, in which nothing cancels
    cut_short: Tensor  # (b,) the share of the live edges that were cut short in the last step
    edges: Edges | LeanEdges
    node: Tensor  # (floats, b, n) potentials, the largest float first
    shape: tuple[int, int]  # (l, t)
    top: int  # output nodes from this one on are dead in every item
    group_edges: int  # that are worked on at a time, at most

    @classmethod
    def start(
        cls,
        network: LayeredNetwork,
        unit: Tensor,
        mu: Tensor,
        items: Sequence[int],
        tokens: int,
        *,
        weighted: bool,
        subtraction_free: bool,
    ) -> State:
        """`items` of the network at the start of the central path; `mu` (b,) is the target in units of `unit` (b,).

        No item has a live node from number `tokens` on.
        """
        inner = network.capacity
        all_items = len(items) == len(inner)
        index = slice(None) if all_items else torch.tensor(items, device=inner.device)
        unit = unit[index]
        target = mu[index]
        layers = inner.shape[1]
        group_edges = GPU_GROUP_EDGES if inner.is_cuda else CPU_GROUP_EDGES
        several_groups = len(items) * layers * tokens**2 > group_edges
        long = tokens >= lean_min_tokens(inner.device.type) and several_groups
        lean = long and not subtraction_free and _fit_float32(inner, index, unit)
        if lean and not inner.is_cuda:
            group_edges = LEAN_GROUP_EDGES
        if lean and all_items and tokens > LEAST_SHARE_OF_TOKENS * inner.shape[-1]:
            tokens = inner.shape[-1]  # a few dead nodes take less memory than a copy
        if not all_items or tokens < inner.shape[-1]:
            inner = inner[index, :, :tokens, :tokens]
        inner = inner.flatten(1)
        returning = network.returning[index].unsqueeze(1)
        outer = [network.source[index, :tokens], network.target[index, :tokens], returning]
        count = network.edges[index].to(unit.dtype)
        weight_of_return = network.kappa[index] / unit if weighted else None
        if lean:
            edges, floor = _lean_edges(
                inner, torch.cat(outer, 1), layers, unit, target, count, weight_of_return, group_edges
            )
        else:
            capacity = scaled_capacity(torch.cat([inner, *outer], 1), unit)
            edge_mu = target[:, None]
            floor = target
            if weight_of_return is not None:
                weights = capacity.clone()
                weights[:, -1] = weight_of_return
                mu_of_unit = target / (weights.sum(-1) / count)
                edge_mu = proportional_mu(weights, mu_of_unit, edge_mu)
                floor = edge_mu.amin(-1)
            edges = Edges.start(capacity, edge_mu)
            if weighted:
                _spread_over_layers(edges, layers, tokens)
        del inner  # maybe a copy of all capacities
        level = torch.maximum(target, 2 / count)
        if isinstance(edges, Edges) and subtraction_free:
            floats = _count_floats(edges.capacity, edges.target_mu)
        else:
            floats = 3 if (floor < THREE_FLOATS_MU).any() else 2
        nodes = (layers + 1) * tokens + 1
        return cls(
            items=list(items),
            level=level,
            floor=floor,
            mean=target,
            count=count,
            before=level,
            first=True,
            taken=torch.zeros_like(level, dtype=torch.int64),
            subtraction_free=subtraction_free,
            cut_short=torch.zeros_like(level),
            edges=edges,
            node=unit.new_zeros(floats, len(items), nodes),
            shape=(layers, tokens),
            top=max(network.outputs[item] for item in items),
            group_edges=group_edges,
        )

    def groups(self) -> Iterator[tuple[EdgeGroup, Edges | LentEdges]]:
        """All edges, in groups that fit the cache; where there are several, those of dead output nodes are left out."""
        layers, t = self.shape
        tails = layers * t
        items = len(self.level)
        row = tails * t + 2 * t + 1
        if isinstance(self.edges, Edges) and items * row <= self.group_edges:
            yield EdgeGroup(0, tails, True, slice(0, row)), self.edges
            return
        size = max(1, self.group_edges // (items * t))  # tails in a group
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
            inner = self.edges[columns] if isinstance(self.edges, Edges) else self.edges.inner(columns)
            yield EdgeGroup(start, stop, False, columns), inner
        columns = slice(tails * t, row)
        outer = self.edges[columns] if isinstance(self.edges, Edges) else self.edges.outer
        yield EdgeGroup(0, 0, True, columns), outer

    def inner(self, variable: int) -> Tensor:
        """Slacks (0), flows (1) or weights (3) of the edges of the layers, (b, l, t, t)."""
        layers, t = self.shape
        if isinstance(self.edges, LeanEdges):
            lean_variables = (*self.edges.variables, *self.edges.newton)
            variables = lean_variables[variable]
        else:
            variables = self.edges.variables[variable, :, : layers * t * t]
        return variables.unflatten(-1, (layers, t, t))

    def value(self) -> Tensor:
        """The flow of the return edge, (b,)."""
        edges = self.edges.outer if isinstance(self.edges, LeanEdges) else self.edges
        return edges.variables[1, :, -1]

    def outer(self) -> Tensor:
        """The variables (4, b, 2 t + 1) of source edges, target edges and the return edge."""
        layers, t = self.shape
        if isinstance(self.edges, LeanEdges):
            return self.edges.outer.variables
        return self.edges.variables[:, :, layers * t * t :]

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
        difference = self.potential_difference(self.node, group)
        if group.outer:
            difference[0, :, -1].sub_(1)
        return total(difference)

    def linearize(self) -> Balance:
        """Set weight and residual of every edge at the present level, and sum them up at the nodes."""
        if isinstance(self.edges, Edges) and not self.subtraction_free and gpu.available(self.edges.variables):
            return gpu.linearize(self.edges, self.node, self.shape, self.before, self.level, self.taken)
        t = self.shape[1]
        rows, columns, max_residual = self._linearize()
        outer = self.outer()[1:]  # flows, residuals, weights
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
                tails = (group.stop - group.start) // group_layers
                leaving, entering = edges.node_sums((items, group_layers, tails, t))
                rows.append(leaving.flatten(2))
                entering = entering.flatten(2)
                if group.start % t:  # another piece of the same layer
                    columns[-1].add_(entering)
                else:
                    columns.append(entering)
                done = group.stop
        left_out = layers * t - done  # dead output nodes
        rows.append(self.node.new_zeros(3, items, left_out))
        max_residual = torch.stack(residuals).amax(0)
        return rows, columns, max_residual

    def step(self, change: Tensor) -> None:
        """Add `change` (floats, b, n) to the potentials and let every edge follow."""
        if isinstance(self.edges, Edges) and len(change) == 1 and gpu.available(self.edges.variables):
            cut_short = gpu.step(self.edges, self.shape, change[0])
        else:
            cut_short = torch.zeros_like(self.level)
            for group, edges in self.groups():
                difference = total(self.potential_difference(change, group))
                cut_short += edges.step(difference).sum(-1)
        self.cut_short = cut_short / self.count
        self.before = self.level
        self.first = False
        self.taken = self.taken + 1
        for part in change:
            self.node = accumulate(self.node, part)

    def errors(self) -> tuple[Tensor, Tensor]:
        """Largest dual and centrality error of any edge at the target mu, (b,) each."""
        duals = []
        centralities = []
        for group, edges in self.groups():
            dual, centrality = edges.errors(self.cost(group))
            duals.append(dual)
            centralities.append(centrality)
        return reduce(torch.maximum, duals), reduce(torch.maximum, centralities)

    def cut(self) -> Tensor:
        """A bound of every flow: the smallest of the unit and two cuts that the potentials describe.

        Scaled to -1 at the source they are a fractional cut. Where wide edges make much of rounding errors, the nodes
        nearer to the source than to the target are a better one.
        """
        floats, items, nodes = self.node.shape
        source = self.node[0, :, -1:]
        cuts = self.node.new_zeros(floats, 2, items, nodes)
        torch.div(self.node, -source, out=cuts[:, 0])
        torch.lt(self.node[0], source / 2, out=cuts[0, 1]).neg_()
        fractional = []
        plain = []
        for group, edges in self.groups():  # an edge is cut by how far it leads up; the return edge leads down
            share = total(self.potential_difference(cuts, group)).neg_().relu_().mul_(edges.capacity)
            fractional.append(share[0].sum(-1))
            plain.append(share[1].sum(-1))
        bound = torch.minimum(reduce(torch.add, fractional), reduce(torch.add, plain))
        bound = torch.nan_to_num(bound, nan=1.0).clamp_max_(1.0)
        return torch.where(source[:, 0] < 0, bound, 1.0)

    def take(self, staying: Sequence[int]) -> State:
        """These items, copied."""
        index = torch.tensor(staying, device=self.level.device)
        items = [self.items[k] for k in staying]
        return take_items(self, index, items=items, edges=self.edges.take(index), node=self.node[:, index])


def _spread_over_layers(edges: Edges, layers: int, t: int) -> None:
    """Start with the same amount of flow in every layer.

    With a weighted barrier the narrow layers end up nearly full, and edges of wide ones share the flow in proportion.
    """
    inner = edges[slice(0, layers * t * t)]
    by_layer = [part.unflatten(-1, (layers, t * t)) for part in (inner.capacity, inner.slack, inner.flow)]
    capacity, slack, flow = by_layer
    spread_flow(capacity, capacity.sum(-1, keepdim=True), slack, flow)


def _lean_edges(
    inner: Tensor,
    outer: Tensor,
    layers: int,
    unit: Tensor,
    mu: Tensor,
    count: Tensor,
    weight_of_return: Tensor | None,
    group_edges: int,
) -> tuple[LeanEdges, Tensor]:
    """The edges of long texts at the start, and the smallest mu_e of each item (b,).

    Capacities of the layers `inner` (b, l t t) and of the `outer` edges (b, 2 t + 1) are in the network's own units.
    """
    items, row = inner.shape
    pieces = _pieces(row, layers, group_edges // items + 1)
    outer = scaled_capacity(outer, unit)
    outer_mu = mu[:, None]
    floor = mu
    mu_of_unit = None
    layer_sums = outer.new_zeros(layers, items, 1)  # of a weighted barrier
    if weight_of_return is not None:
        weights = outer.clone()
        weights[:, -1] = weight_of_return
        total_weight = weights.sum(-1)
        for layer, piece in pieces:
            piece_sum = scaled_capacity(inner[:, piece], unit).sum(-1)
            total_weight += piece_sum
            layer_sums[layer, :, 0] += piece_sum
        mu_of_unit = mu / (total_weight / count)
        outer_mu = proportional_mu(weights, mu_of_unit, outer_mu)
        floor = outer_mu.amin(-1)
    edges = LeanEdges(
        capacity=inner,
        unit=unit,
        mu=mu,
        mu_of_unit=mu_of_unit,
        variables=outer.new_zeros(2, items, row),
        newton=outer.new_zeros(2, items, row, dtype=torch.float32),
        outer=Edges.start(outer, outer_mu),
    )
    slack, flow = edges.variables
    for layer, piece in pieces:
        capacity = scaled_capacity(inner[:, piece], unit)
        if mu_of_unit is None:
            start_flow(capacity, slack[:, piece], flow[:, piece])
        else:
            spread_flow(capacity, layer_sums[layer], slack[:, piece], flow[:, piece])
            floor = torch.minimum(floor, proportional_mu(capacity, mu_of_unit, mu[:, None]).amin(-1))
    return edges, floor


def _pieces(row: int, layers: int, size: int) -> list[tuple[int, slice]]:
    """At most `size` edges of one layer each, with the number of the layer."""
    edges = row // layers
    pieces = []
    for layer in range(layers):
        end = (layer + 1) * edges
        for start in range(layer * edges, end, size):
            pieces.append((layer, slice(start, min(start + size, end))))
    return pieces


def _fit_float32(inner: Tensor, items: Tensor | slice, unit: Tensor) -> bool:
    """Whether float32 holds weights and residuals of these items' edges; `unit` (b,) is that of each item."""
    widest = inner.amax((-3, -2, -1))[items]
    narrowest = torch.full_like(widest, math.inf)
    for layer in inner.unbind(1):  # a copy of all capacities would take much memory
        live = layer.masked_fill(layer == 0, math.inf)
        narrowest = torch.minimum(narrowest, live.amin((-2, -1))[items])
    fits = (widest <= LEAN_WIDEST * unit) & (narrowest >= LEAN_NARROWEST * unit)
    return bool(fits.all())


def _count_floats(capacity: Tensor, mu: Tensor) -> int:
    """How many floats tell apart potentials that differ by a mu, among the largest that edges (b, m) may need."""
    smallest = mu.amin().clamp_min(TINY)
    cost = torch.nan_to_num(mu / capacity.clamp_max(1), posinf=0)  # of a flow of a unit at most; infinite if dead
    largest_potential = cost.amax().clamp_min(1)  # the source's is near -1, or below
    digits = FLOW_DIGITS + torch.log10(largest_potential) - torch.log10(smallest)
    return max(3, math.ceil(digits / FLOAT_DIGITS))
