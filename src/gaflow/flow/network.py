"""The layered network of Generalized Attention Flow (paper section 3.2).

`L` attention layers make `L+1` node layers of `t` tokens: node layer 0 is the input, node layer `L` the output.
Edge `(l+1, i) -> (l, j)` has capacity `information[l, i, j]`; the super-source feeds every output node, every input
node feeds the super-target, and the return edge target -> source closes the circulation. This is the backward
direction (Algorithm 1); the forward network is the same with every edge reversed, and so is its barrier solution.
Where sources or targets are chosen, only these output nodes hang on the super-source, only these input nodes on the
super-target.

The convention this file owns: **dead edges are removed first**. An edge lives if its capacity is positive, its tail
can be reached from the source and its head reaches the target through positive edges. Everything else (`m`, kappa,
terminal capacities) is counted over live edges and real tokens only, so padding and dead ends change nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gaflow.errors import Argument, ArgumentError
from gaflow.flow.arguments import ArrayLike, Mask, Nodes, as_float_networks, as_mask, as_nodes, check_range, per_item

# A number, one per item, "tokens" (the number of real tokens), "adjacent", or None: wide enough never to bind.
Terminal = float | Tensor | str | None
TERMINAL_NAMES = ("tokens", "adjacent")

NEGLIGIBLE_SHARE = 1e-100  # of kappa: such an edge can change no score, but its square would underflow in the solver

NARROW_SHARE = 1e-12  # of every layer: a network whose paths together carry less has a unit of flow of its own


@dataclass(frozen=True)
class LayeredNetwork:
    """Live capacities of a batch of layered networks; a dead edge has capacity exactly 0."""

    capacity: Tensor  # (b, l, t, t) float64: from node i of layer l+1 to node j of layer l
    source: Tensor  # (b, t) super-source -> output node
    target: Tensor  # (b, t) input node -> super-target
    returning: Tensor  # (b,) super-target -> super-source: the sum of all other live capacities
    kappa: Tensor  # (b,) the smallest layer sum, an upper bound of the flow
    unit: Tensor  # (b,) of flow inside the solvers: the smallest cut through a layer or the terminals, 1 if dead
    edges: Tensor  # (b,) m, the number of live edges, terminals and return edge included
    dead: Tensor  # (b,) bool: no path at all, every flow is 0
    negligible: Tensor  # (b,) live edges dropped because their capacity is below NEGLIGIBLE_SHARE of kappa
    tokens: list[int]  # (b,) nodes from this one on are dead in every layer; 0 if there is no path
    outputs: list[int]  # (b,) output nodes from this one on are dead

    @classmethod
    def build(
        cls,
        information: ArrayLike,
        terminal: Terminal = None,
        mask: Mask = None,
        sources: Nodes = None,
        targets: Nodes = None,
    ) -> LayeredNetwork:
        """Check the arguments that every solver takes, prune `information` to its live edges and attach the terminals.

        `mask` (b, t) says which tokens are real, `sources` and `targets` which of them get a terminal edge.
        `terminal` is the capacity of the terminal edges: None gives `t * max(information)`, which never binds and
        scales with the input; a number (or one per item) is taken literally; "tokens" is the paper's choice, the number
        `t` of real tokens of each item; "adjacent" gives each terminal the sum of the live capacities next to it
        (paper, appendix A.2).
        """
        if isinstance(terminal, str):
            check_terminal_name(terminal)
        networks = as_float_networks(information)
        extremes = networks.aminmax()
        real = as_mask(mask, networks)
        outputs = as_nodes(sources, real, "sources")
        inputs = as_nodes(targets, real, "targets")
        real_edges = real.unsqueeze(2) & real.unsqueeze(1)
        capacity = networks * real_edges.unsqueeze(1)
        del networks, real_edges  # long texts need the memory

        _remove_stumps(capacity, outputs, inputs)
        # nearly always nothing is left to remove: everything is computed as if, and read at once
        draft = _Draft.of(capacity, outputs, inputs, real, terminal)
        decisions = draft.read(extremes)
        check_range(decisions.least, decisions.most)
        if decisions.has_strays:
            _prune(capacity, outputs, inputs)
            draft = _Draft.of(capacity, outputs, inputs, real, terminal)
            decisions = draft.read(extremes)
        negligible = draft.negligible
        if decisions.has_negligible:
            capacity.masked_fill_(capacity < draft.limit[:, None, None, None], 0)
            _prune(capacity, outputs, inputs)
            draft = _Draft.of(capacity, outputs, inputs, real, terminal)
            decisions = draft.read(extremes)
        if not decisions.is_finite:
            raise ArgumentError(
                Argument("information"),
                f" is too large: the sum of all capacities overflows (largest {capacity.max():.3g}); scale it down",
            )
        unit = draft.narrowest
        if decisions.may_be_narrow:
            paths_bound = draft.edges * draft.widest_path()  # a flow is the sum of at most so many paths
            unit = torch.where(paths_bound < NARROW_SHARE * unit, paths_bound, unit)
        return cls(
            capacity=capacity,
            source=draft.source,
            target=draft.target,
            returning=draft.returning,
            kappa=draft.kappa,
            unit=unit.masked_fill(draft.dead, 1),
            edges=draft.edges,
            dead=draft.dead,
            negligible=negligible,
            tokens=decisions.tokens,
            outputs=decisions.outputs,
        )


@dataclass(frozen=True)
class _Decisions:
    """What the host has to know of a network."""

    least: float  # of all capacities, before the mask was applied
    most: float
    has_strays: bool  # edges that no path uses
    has_negligible: bool
    is_finite: bool  # the sum of all capacities
    may_be_narrow: bool  # all paths together may carry less than NARROW_SHARE of every layer
    tokens: list[int]
    outputs: list[int]


@dataclass(frozen=True)
class _Draft:
    """Sums and extremes of capacities, which are those of the network if no edge has to be removed."""

    capacity: Tensor  # (b, l, t, t)
    source: Tensor  # (b, t)
    target: Tensor  # (b, t)
    returning: Tensor  # (b,)
    kappa: Tensor  # (b,)
    narrowest: Tensor  # (b,) the smallest cut through a layer or the terminals
    narrowest_path: Tensor  # (b,) some path can carry that much, or more
    edges: Tensor  # (b,)
    dead: Tensor  # (b,)
    limit: Tensor  # (b,) narrower edges are negligible
    negligible: Tensor  # (b,) how many
    has_strays: Tensor  # () bool
    node: Tensor  # (b, l+1, t) bool: nodes with an edge on either side

    @classmethod
    def of(cls, capacity: Tensor, outputs: Tensor, inputs: Tensor, real: Tensor, terminal: Terminal) -> _Draft:
        """Everything from a few passes over the capacities."""
        b, layers, t, _ = capacity.shape
        widest_down = capacity.amax(-1)  # (b, l, t) of each tail
        leaves = widest_down > 0
        enters = capacity.amax(-2) > 0
        node = _between(leaves, enters, outputs, inputs)
        # no edge ends in a node that has edges on one side only: then all of them are on paths
        has_edges = torch.cat([leaves, enters], 1)
        alive = torch.cat([node[:, 1:], node[:, :-1]], 1)

        layer_sums = capacity.sum((-2, -1))  # (b, l)
        kappa = layer_sums.amin(-1)
        limit = torch.nan_to_num(NEGLIGIBLE_SHARE * kappa, posinf=0)
        live_edges = (capacity > 0).sum((-3, -2, -1))
        below_limit = (capacity < limit[:, None, None, None]).sum((-3, -2, -1))  # dead edges included
        negligible = below_limit + live_edges - layers * t * t

        ends = node[:, ::layers]  # (b, 2, t) inputs, outputs
        if isinstance(terminal, str) and terminal == "adjacent":
            terminals = torch.stack([capacity[:, 0].sum(-2), capacity[:, -1].sum(-1)], 1)
        else:
            if terminal is None:
                width = real.sum(-1, dtype=capacity.dtype) * widest_down.amax((-2, -1))
            elif isinstance(terminal, str):
                width = real.sum(-1, dtype=capacity.dtype)
            else:
                width = per_item(terminal, b, real.device, "terminal")
            terminals = width[:, None, None] * ends
        target, source = terminals.unbind(1)
        target_sum, source_sum = terminals.sum(-1).unbind(1)
        # from each node on, some path takes its widest edge
        widths = torch.cat([terminals, widest_down], 1)
        widths.masked_fill_(widths == 0, torch.inf)
        dead = live_edges == 0
        edges = live_edges + ends.sum((-2, -1)) + 1
        return cls(
            capacity=capacity,
            source=source,
            target=target,
            returning=layer_sums.sum(-1) + source_sum + target_sum,
            kappa=kappa,
            narrowest=torch.minimum(kappa, torch.minimum(source_sum, target_sum)),
            narrowest_path=widths.amin((-2, -1)),
            edges=edges.masked_fill_(dead, 0),
            dead=dead,
            limit=limit,
            negligible=negligible.clamp_min_(0),
            has_strays=(has_edges != alive).any(),
            node=node,
        )

    def read(self, extremes: tuple[Tensor, Tensor]) -> _Decisions:
        """Bring what decides to the host, all of it at once: a GPU is waited for."""
        b, node_layers, t = self.node.shape
        position = torch.arange(1, t + 1, device=self.node.device)
        live_position = self.node * position
        last_live = live_position.amax(-1)  # (b, l+1) counted from 1
        may_be_narrow = self.edges * self.narrowest_path < NARROW_SHARE * self.narrowest
        parts = [*extremes, self.has_strays, self.negligible, self.returning, may_be_narrow, last_live]
        numbers = torch.cat([part.flatten() for part in parts])  # all of them in float64
        least, most, has_strays, *of_items = numbers.tolist()
        negligible = of_items[:b]
        returning = of_items[b : 2 * b]
        narrow = of_items[2 * b : 3 * b]
        last_live_nodes = of_items[3 * b :]
        tokens = []
        outputs = []
        for start in range(0, b * node_layers, node_layers):
            last_of_layers = last_live_nodes[start : start + node_layers]
            tokens.append(int(max(last_of_layers)))
            outputs.append(int(last_of_layers[-1]))
        return _Decisions(
            least=least,
            most=most,
            has_strays=bool(has_strays),
            has_negligible=any(negligible),
            is_finite=all(map(math.isfinite, returning)),
            may_be_narrow=any(narrow),
            tokens=tokens,
            outputs=outputs,
        )

    def widest_path(self) -> Tensor:
        """The most that one path can carry, (b,)."""
        width = self.target
        for layer in self.capacity.unbind(1):
            width = torch.minimum(layer, width.unsqueeze(1)).amax(-1)
        return torch.minimum(width, self.source).amax(-1)


def check_terminal_name(terminal: str) -> None:
    """Refuse a terminal capacity that has no such name."""
    if terminal not in TERMINAL_NAMES:
        raise ArgumentError(Argument("terminal"), f' must be None, a number, "tokens" or "adjacent", not {terminal!r}')


def _between(leaves: Tensor, enters: Tensor, outputs: Tensor, inputs: Tensor) -> Tensor:
    """The nodes (b, l+1, t) with an edge on either side, terminals included.

    From flags (b, l, t) of tails that an edge leaves and of heads that one enters.
    """
    above = torch.cat([enters, outputs.unsqueeze(1)], 1)
    below = torch.cat([inputs.unsqueeze(1), leaves], 1)
    return above & below


def _remove_stumps(capacity: Tensor, outputs: Tensor, inputs: Tensor) -> None:
    """Remove the edges of nodes with edges on one side only, in place: nearly always those are all that lead nowhere.

    Where one output is read, half of the nodes below may have no edge to it.
    """
    node = _between(capacity.amax(-1) > 0, capacity.amax(-2) > 0, outputs, inputs)
    _keep_edges_between(capacity, node)


def _keep_edges_between(capacity: Tensor, node: Tensor) -> None:
    """Remove all edges but those between live nodes (b, l+1, t), in place."""
    tails = node[:, 1:].unsqueeze(3)
    heads = node[:, :-1].unsqueeze(2)
    capacity.mul_(tails & heads)


def _prune(capacity: Tensor, outputs: Tensor, inputs: Tensor) -> None:
    """Remove the edges that no path uses, in place."""
    positive = capacity > 0
    layers = positive.unbind(1)
    tails = outputs
    reached = [tails]  # from the source, downwards
    for layer in reversed(layers):
        tails = (layer & tails.unsqueeze(2)).any(-2)
        reached.append(tails)
    heads = inputs
    reaching = [heads]  # the target, upwards
    for layer in layers:
        heads = (layer & heads.unsqueeze(1)).any(-1)
        reaching.append(heads)
    reached.reverse()
    _keep_edges_between(capacity, torch.stack(reached, 1) & torch.stack(reaching, 1))
