"""What follows if the network of a flow is changed: edges cut or widened, nodes cut, layers skipped, tokens grouped.

A flow knows the capacities that it was solved on, so a changed network is solved again without the model. The answer
has a certificate of its own. Whether the model itself would change in the same way is another question.

The three conventions this file owns:

* **Changes are counted in the original network**: layers of edges like the information tensor, node layers from 0
  (input) to l (output), tokens from 0. Tokens are grouped last.
* **A skipped layer passes tokens on.** Each token that took part in layer `k` goes straight from node layer `k + 1` to
  `k`, along an edge as wide as all edges above and below it together. It never binds, so the maximum flow is that of
  the network without the layer.
* **A group is one node in every layer.** The capacity from group A to group B is the sum over their tokens. Flow that
  reaches a group leaves it by any of its tokens, and therefore a maximum flow between groups is never smaller than one
  between tokens. A group is a source if one of its tokens is, and a target likewise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from gaflow.arguments import checked, is_whole_number, plain_number
from gaflow.errors import Argument, ArgumentError
from gaflow.flow.arguments import Nodes, as_nodes
from gaflow.flow.barrier.solve import Barrier, solve
from gaflow.flow.network import Terminal
from gaflow.flow.result import Flow

Edge = tuple[int, int, int]  # layer, i, j: from node i of node layer `layer + 1` to node j of node layer `layer`
Node = tuple[int, int]  # node layer, token
_LARGEST_WIDENED = 1e290  # capacity; sums of larger ones overflow


@dataclass(frozen=True)
class Edits:
    """Changes to a layered network; `edit` explains them."""

    cut_edges: Sequence[Edge] = ()
    cut_nodes: Sequence[Node] = ()
    skip_layers: Sequence[int] = ()
    widen: Mapping[Edge, float] = field(default_factory=dict)
    sources: Nodes = None
    targets: Nodes = None
    groups: Sequence[Sequence[int]] | None = None

    def capacity(self, capacity: Tensor) -> Tensor:
        """The changed capacities: (b, l, t, t), or (b, l, g, g) for g groups."""
        _, layers, t, _ = capacity.shape
        original = capacity
        capacity = capacity.clone()
        for edge, factor in self.widen.items():
            layer, i, j = _numbers("widen", edge, (layers, t, t))
            capacity[:, layer, i, j] *= _factor(factor)
        if self.widen and capacity.max() > max(_LARGEST_WIDENED, original.max().item()):
            largest = f" makes a capacity of {capacity.max():.3g}; take a smaller factor"
            raise ArgumentError(Argument("widen"), largest)
        skipped = _skipped_layers(self.skip_layers, layers)
        for layer in skipped:
            capacity[:, layer] = _straight(original[:, layer], capacity, layer, skipped)
        for edge in self.cut_edges:
            layer, i, j = _numbers("cut_edges", edge, (layers, t, t))
            capacity[:, layer, i, j] = 0
        for node in self.cut_nodes:
            layer, token = _numbers("cut_nodes", node, (layers + 1, t))
            if layer > 0:
                capacity[:, layer - 1, token] = 0
            if layer < layers:
                capacity[:, layer, :, token] = 0
        if self.groups is None:
            return capacity
        member = _membership(grouped(t, self.groups), t).to(capacity)
        return member @ capacity @ member.T

    def nodes(self, name: str, real: Tensor) -> Tensor | None:
        """The sources or targets of the changed network, (b, t) or (b, g) bool; None for all."""
        selection = getattr(self, name)
        if selection is None:
            return None
        flags = as_nodes(selection, real, name)
        if not flags.any():
            raise ArgumentError(Argument(name), " names no token, so nothing can flow; None means all tokens")
        if self.groups is None:
            return flags
        t = real.shape[-1]
        member = _membership(grouped(t, self.groups), t).to(flags.device)
        return (flags[:, None] & member).any(-1)


@checked
def edit(
    flow: Flow,
    *,
    cut_edges: Sequence[Edge] = (),
    cut_nodes: Sequence[Node] = (),
    skip_layers: Sequence[int] = (),
    widen: Mapping[Edge, float] | None = None,
    sources: Nodes = None,
    targets: Nodes = None,
    groups: Sequence[Sequence[int]] | None = None,
    epsilon: float | None = None,
    barrier: Barrier | None = None,
    terminal: Terminal = None,
    throw: bool = True,
) -> Flow:
    """Change the network of `flow` and solve it again, without the model; every item of a batch changes alike.

    `cut_edges`: edges (layer, i, j) to remove, numbered as in `flow.edges`. `cut_nodes`: nodes (node layer, token) to
    remove; node layer 0 is the input. `skip_layers`: layers of edges that each token passes straight. `widen`: factors
    of capacities, by edge. `sources`, `targets`: output tokens that flow may come from and input tokens that it may
    reach. `groups`: lists of tokens that become one node in every layer, such as the words of a text; `grouped` gives
    the nodes of the result in order.

    `epsilon`, `barrier` and `terminal` are those of `solve`; None keeps those of the flow. A flow that does not know
    its barrier (a plain maximum flow, or one from an old file) needs `epsilon` and `barrier`.

        without = gaflow.edit(att.flow, cut_edges=[(2, 0, 5)])
        without.value / att.flow.value  # how much of the flow finds another way
        gaflow.edit(att.flow, groups=[word.tokens for word in att.words()])
    """
    if flow.capacity is None:
        raise ArgumentError(
            Argument("flow"),
            " does not know its capacities: it had node capacities, or comes from an older file; explain again with a "
            "method without nodes, such as agf",
        )
    edits = Edits(
        cut_edges=cut_edges,
        cut_nodes=cut_nodes,
        skip_layers=skip_layers,
        widen={} if widen is None else widen,
        sources=sources,
        targets=targets,
        groups=None if groups is None else grouped(flow.capacity.shape[-1], groups),
    )
    if barrier is None and flow.barrier not in ("uniform", "capacity"):
        raise ArgumentError(
            Argument("flow"),
            " does not know one barrier that it was solved with (a plain maximum flow, flows of several texts side by "
            "side, or an older file); give ",
            Argument("barrier"),
            ' "uniform" (the paper\'s) or "capacity", and ',
            Argument("epsilon"),
        )
    real = torch.ones(flow.target.shape, dtype=torch.bool, device=flow.target.device)
    return solve(
        edits.capacity(flow.capacity),
        epsilon=_epsilon(flow) if epsilon is None else epsilon,
        barrier=barrier or flow.barrier,  # type: ignore[arg-type]
        terminal=flow.terminal if terminal is None else terminal,
        sources=edits.nodes("sources", real),
        targets=edits.nodes("targets", real),
        throw=throw,
    )


@checked
def grouped(count: int, groups: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """The nodes that `count` tokens become: the groups, and each other token by itself, ordered by first token.

    grouped(5, [[1, 2]])  # [(0,), (1, 2), (3,), (4,)]
    """
    group_of = {}
    nodes = []
    for group in groups:
        if isinstance(group, str) or not isinstance(group, Iterable) or getattr(group, "ndim", 1) == 0:
            raise ArgumentError(Argument("groups"), f" must hold lists of tokens, not {group!r}")
        members = []
        for token in group:
            (number,) = _numbers("groups", (token,), (count,))
            members.append(number)
        members.sort()
        if not members:
            raise ArgumentError(Argument("groups"), " has an empty group; leave it out")
        for token in members:
            if token in group_of:
                raise ArgumentError(Argument("groups"), f" has token {token} twice; a token is in one group at most")
            group_of[token] = members
        nodes.append(tuple(members))
    for token in range(count):
        if token not in group_of:
            nodes.append((token,))
    return sorted(nodes)


def _epsilon(flow: Flow) -> Tensor:
    """The relative barrier parameter of every item; 1 for one without any path, which nothing depends on."""
    epsilon = flow.certificate.epsilon
    return torch.where(flow.certificate.dead, 1.0, epsilon)


def _straight(layer: Tensor, capacity: Tensor, number: int, skipped: Sequence[int]) -> Tensor:
    """A layer (b, t, t) of edges i -> i, wide enough never to bind, for the tokens that took part in `layer`."""
    above = number + 1
    below = number - 1
    while above in skipped:
        above += 1
    while below in skipped:
        below -= 1
    width = torch.zeros_like(layer[:, 0])
    if above < capacity.shape[1]:
        width = width + capacity[:, above].sum(-2)
    if below >= 0:
        width = width + capacity[:, below].sum(-1)
    took_part = (layer.sum(-1) > 0) & (layer.sum(-2) > 0)
    return torch.diag_embed(width * took_part)


def _skipped_layers(skip_layers: Sequence[int], count: int) -> list[int]:
    """The layers to skip, in order; at least one layer must stay."""
    numbers = {_numbers("skip_layers", (layer,), (count,))[0] for layer in skip_layers}
    if len(numbers) == count:
        raise ArgumentError(Argument("skip_layers"), f" names all {count} layers; at least one has to stay")
    return sorted(numbers)


def _membership(nodes: Sequence[Sequence[int]], count: int) -> Tensor:
    """Which tokens a node consists of, (g, t) bool."""
    member = torch.zeros(len(nodes), count, dtype=torch.bool)
    for row, tokens in enumerate(nodes):
        member[row, list(tokens)] = True
    return member


def _numbers(name: str, values: object, counts: Sequence[int]) -> tuple[int, ...]:
    """Whole numbers from 0 to below each of `counts`."""
    parts = {3: "(layer, i, j)", 2: "(node layer, token)", 1: "a number"}
    if isinstance(values, np.ndarray | Tensor):
        values = values.tolist()
    if isinstance(values, str) or not isinstance(values, Sequence) or len(values) != len(counts):
        raise ArgumentError(Argument(name), f": {values!r} must be {parts[len(counts)]}")
    for value, count in zip(values, counts, strict=True):
        if not is_whole_number(plain_number(value)):
            raise ArgumentError(Argument(name), f": {values!r} must be whole numbers")
        if not 0 <= value < count:
            raise ArgumentError(Argument(name), f": {value} in {values!r} does not exist; use 0 to {count - 1}")
    return tuple(int(value) for value in values)


def _factor(factor: object) -> float:
    """A finite factor from 0 on."""
    factor = plain_number(factor)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 <= factor < math.inf:
        raise ArgumentError(Argument("widen"), f" takes factors from 0 on, not {factor!r}")
    return factor
