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

from dataclasses import dataclass

import torch
from torch import Tensor

from gaflow.errors import Argument, ArgumentError
from gaflow.flow.arguments import ArrayLike, Mask, Nodes, as_mask, as_networks, as_nodes, per_item

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
    edges: Tensor  # (b,) m, the number of live edges, terminals and return edge included
    dead: Tensor  # (b,) bool: no path at all, every flow is 0
    negligible: Tensor  # (b,) live edges dropped because their capacity is below NEGLIGIBLE_SHARE of kappa
    tokens: Tensor  # (b,) nodes from this one on are dead in every layer

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
        networks = as_networks(information)
        real = as_mask(mask, networks)
        outputs = as_nodes(sources, real, "sources")
        inputs = as_nodes(targets, real, "targets")
        real_edges = real[:, None, :, None] & real[:, None, None, :]
        capacity = networks * real_edges
        del networks, real_edges  # long texts need the memory
        capacity, node = _prune(capacity, outputs, inputs)
        kappa = capacity.sum((-2, -1)).amin(-1)
        limit = torch.where(torch.isfinite(kappa), NEGLIGIBLE_SHARE * kappa, 0.0)
        negligible = (capacity > 0) & (capacity < limit[:, None, None, None])
        if negligible.any():
            capacity.masked_fill_(negligible, 0)
            capacity, node = _prune(capacity, outputs, inputs)

        live_outputs = node[:, -1]
        live_inputs = node[:, 0]
        if isinstance(terminal, str):
            check_terminal_name(terminal)
        if isinstance(terminal, str) and terminal == "adjacent":
            source = capacity[:, -1].sum(-1)
            target = capacity[:, 0].sum(-2)
        else:
            tokens = real.sum(-1).to(capacity)
            if terminal is None:
                width = tokens * capacity.amax((-3, -2, -1))
            elif isinstance(terminal, str):
                width = tokens
            else:
                width = per_item(terminal, len(real), real.device, "terminal")
            source = width[:, None] * live_outputs
            target = width[:, None] * live_inputs

        layer_sums = capacity.sum((-2, -1))  # (b, l)
        layers_sum = layer_sums.sum(-1)
        returning = layers_sum + source.sum(-1) + target.sum(-1)
        if not torch.isfinite(returning).all():
            raise ArgumentError(
                Argument("information"),
                f" is too large: the sum of all capacities overflows (largest {capacity.max():.3g}); scale it down",
            )
        live = capacity > 0
        dead = ~live.flatten(1).any(-1)
        terminals = live_outputs.sum(-1) + live_inputs.sum(-1)
        count = live.sum((-3, -2, -1)) + terminals + 1
        return cls(
            capacity=capacity,
            source=source,
            target=target,
            returning=returning,
            kappa=layer_sums.amin(-1),
            edges=torch.where(dead, 0, count),
            dead=dead,
            negligible=negligible.sum((-3, -2, -1)),
            tokens=_count_up_to_last(node.any(1)),
        )

    def unit(self) -> Tensor:
        """The unit of flow inside the solvers, (b,): the smallest cut through a layer or the terminals, 1 if dead."""
        terminals = torch.minimum(self.source.sum(-1), self.target.sum(-1))
        narrowest = torch.minimum(self.kappa, terminals)
        paths_bound = self.edges * self._widest_path()  # a flow is the sum of at most so many paths
        unit = torch.where(paths_bound < NARROW_SHARE * narrowest, paths_bound, narrowest)
        return torch.where(self.dead, 1.0, unit)

    def _widest_path(self) -> Tensor:
        """The most that one path can carry, (b,)."""
        width = self.target
        for layer in self.capacity.unbind(1):
            width = torch.minimum(layer, width.unsqueeze(1)).amax(-1)
        return torch.minimum(width, self.source).amax(-1)


def check_terminal_name(terminal: str) -> None:
    """Refuse a terminal capacity that has no such name."""
    if terminal not in TERMINAL_NAMES:
        raise ArgumentError(Argument("terminal"), f' must be None, a number, "tokens" or "adjacent", not {terminal!r}')


def _count_up_to_last(live: Tensor) -> Tensor:
    """How many tokens there are up to the last live one, (b,), from flags (b, t)."""
    position = torch.arange(1, live.shape[1] + 1, device=live.device)
    return (live * position).amax(-1)


def _prune(capacity: Tensor, outputs: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Capacities of live edges only, in place, and which nodes are alive (b, l+1, t)."""
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
    node = torch.stack(reached, 1) & torch.stack(reaching, 1)
    live = node[:, 1:, :, None] & node[:, :-1, None, :]
    return capacity.mul_(live), node
