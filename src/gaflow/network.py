"""The layered network of Generalized Attention Flow (paper section 3.2) and the flows on it.

`L` attention layers make `L+1` node layers of `t` tokens: node layer 0 is the input, node layer `L` the output.
Edge `(l+1, i) -> (l, j)` has capacity `information[l, i, j]`; the super-source feeds every output node, every input
node feeds the super-target, and the return edge target -> source closes the circulation. This is the backward
direction (Algorithm 1); the forward network is the same with every edge reversed, and so is its barrier solution.

The convention this file owns: **dead edges are removed first**. An edge lives if its capacity is positive, its tail
can be reached from the source and its head reaches the target through positive edges. Everything else (`m`, kappa,
terminal capacities) is counted over live edges and real tokens only, so padding and dead ends change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

__all__ = ["Certificate", "Flow", "LayeredNetwork", "as_mask", "as_networks"]

NEGLIGIBLE = 1e-100


def as_networks(information: Any) -> Tensor:
    """`information` as float64 (b, l, t, t), detached; refuses what is no batch of layered networks."""
    try:
        given = torch.as_tensor(information).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"information must be a tensor or array, not {type(information).__name__}: {error}") from None
    if given.is_complex() or given.dtype == torch.bool:
        raise TypeError(f"information must hold real numbers, not {given.dtype}")
    shape = tuple(given.shape)
    if given.dim() not in (3, 4) or shape[-1] != shape[-2] or 0 in shape:
        raise ValueError(f"information must have shape (l, t, t) or (b, l, t, t), no axis empty, not {shape}")
    given = given.to(torch.float64).reshape(-1, *shape[-3:])
    if not bool(torch.isfinite(given).all()):
        raise ValueError("information holds NaN or infinite values: find out where they come from before solving")
    if bool((given < 0).any()):
        raise ValueError(
            f"information holds negative values (smallest {given.min():.3g}), which cannot be capacities: "
            "take its positive part, information.relu()"
        )
    return given


def as_mask(mask: Any, networks: Tensor) -> Tensor | None:
    """`mask` as bool (b, t) beside `networks` (b, l, t, t); None stays None: every token is real."""
    if mask is None:
        return None
    real = torch.as_tensor(mask, device=networks.device)
    shape = (networks.shape[0], networks.shape[-1])
    if tuple(real.shape) not in {shape, shape[1:]}:
        raise ValueError(f"mask must have shape {shape}, one flag per token, not {tuple(real.shape)}")
    return real.bool().expand(shape)


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
    negligible: Tensor  # (b,) edges dropped because they are beyond NEGLIGIBLE of the largest capacity

    @classmethod
    def build(
        cls,
        information: Tensor,
        mask: Tensor | None = None,
        terminal: float | Tensor | str | None = None,
    ) -> LayeredNetwork:
        """Prune `information` (b, l, t, t) to its live edges and attach the terminals.

        `terminal` is the capacity of the terminal edges: None gives `t * max(information)`, which never binds and
        scales with the input; a number (or one per item) is taken literally, the paper's choice being `t`;
        "adjacent" gives each terminal the sum of the live capacities next to it (paper, appendix A.2).
        """
        b, _, t, _ = information.shape
        real = torch.ones(b, t, dtype=torch.bool, device=information.device) if mask is None else mask.bool()
        capacity = information.to(torch.float64) * (real[:, None, :, None] & real[:, None, None, :])
        # a 1e-100th of the largest capacity can change no score, but its square would underflow in the solver
        positive = capacity > NEGLIGIBLE * capacity.amax((-3, -2, -1), keepdim=True)
        negligible = (capacity > 0).sum((-3, -2, -1)) - positive.sum((-3, -2, -1))
        above, below = _liveness(positive, real)
        node = above & below  # (b, l+1, t)
        capacity = capacity * (positive & node[:, 1:, :, None] & node[:, :-1, None, :])
        live = capacity > 0
        top, bottom = node[:, -1], node[:, 0]
        if isinstance(terminal, str):
            if terminal != "adjacent":
                raise ValueError(f'terminal must be None, a number or "adjacent", not {terminal!r}')
            source, target = capacity[:, -1].sum(-1), capacity[:, 0].sum(-2)
        else:
            if terminal is None:
                each = real.sum(-1) * capacity.amax((-3, -2, -1))
            else:
                each = torch.as_tensor(terminal, dtype=torch.float64, device=capacity.device).expand(b)
                if not bool((each > 0).all() & torch.isfinite(each).all()):
                    raise ValueError(f"terminal must be positive and finite, not {terminal}")
            source, target = each[:, None] * top, each[:, None] * bottom
        sums = capacity.sum((-2, -1))  # (b, l)
        dead = ~live.flatten(1).any(-1)
        return cls(
            capacity=capacity,
            source=source,
            target=target,
            returning=sums.sum(-1) + source.sum(-1) + target.sum(-1),
            kappa=sums.amin(-1),
            edges=torch.where(dead, 0, live.sum((-3, -2, -1)) + top.sum(-1) + bottom.sum(-1) + 1),
            dead=dead,
            negligible=negligible,
        )


def _liveness(positive: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes reached from the source (going down) and nodes that reach the target (going up), each (b, l+1, t)."""
    layers = positive.shape[1]
    down, up = [real], [real]
    for k in reversed(range(layers)):
        down.append((positive[:, k] & down[-1][:, :, None]).any(-2))
    for k in range(layers):
        up.append((positive[:, k] & up[-1][:, None, :]).any(-1))
    return torch.stack(down[::-1], 1), torch.stack(up, 1)


@dataclass(frozen=True)
class Certificate:
    """How good a flow is, one value per item of the batch; `certificate[i]` holds item i's as plain numbers.

    A flow that satisfies all optimality conditions of eq. 12 exactly would show 0 in the first three.
    """

    conservation: Any  # largest node imbalance, relative to the flow value
    dual: Any  # what an edge's flow is off because s = z - v does not hold, relative to the flow value
    centrality: Any  # what an edge's flow is off because f z = mu and (u - f) v = mu do not hold, likewise
    gap: Any  # cut - value: how far the flow value can be from the maximum flow
    cut: Any  # an upper bound of every flow: the capacity of the (fractional) cut the potentials describe
    kappa: Any  # the smallest layer sum of capacities
    mu: Any  # barrier parameter, absolute
    epsilon: Any  # barrier parameter, relative: mu = epsilon * kappa / (2 m)
    edges: Any  # m, live edges, terminals and return edge included
    negligible: Any  # positive capacities that were dropped, below 1e-100 of the largest
    dead: Any  # no path from source to target: all flows are 0
    iterations: Any  # factorisations used
    seconds: Any  # wall-clock time of the solve that held this item
    converged: Any

    def __getitem__(self, item: int) -> Certificate:
        return Certificate(**{f.name: getattr(self, f.name)[item].item() for f in fields(self)})

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers (one item) or lists (a batch), ready for JSON."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: v.tolist() if isinstance(v, Tensor) else v for name, v in values.items()}


@dataclass(frozen=True)
class Flow:
    """The flow on every edge of a batch of layered networks."""

    edges: Tensor  # (b, l, t, t) from node i of layer l+1 to node j of layer l
    source: Tensor  # (b, t) super-source -> output nodes
    target: Tensor  # (b, t) input nodes -> super-target: the token scores
    value: Tensor  # (b,)
    mu: Tensor  # (b,) barrier parameter, absolute; 0 for a plain maximum flow
    converged: Tensor  # (b,) bool
    certificate: Certificate

    def through(self) -> Tensor:
        """Through-flow of every node, (b, l+1, t); row 0 are the input tokens, each row sums to the flow value."""
        return torch.cat([self.target[:, None], self.edges.sum(-1)], 1)

    def __getitem__(self, item: int) -> Flow:
        """Item `item` as a batch of one."""
        if not -len(self.value) <= item < len(self.value):
            raise IndexError(f"item {item} of a batch of {len(self.value)} flows")
        one = slice(item, item + 1 or None)
        parts = {f.name: getattr(self, f.name)[one] for f in fields(self) if isinstance(getattr(self, f.name), Tensor)}
        parts["certificate"] = replace(
            self.certificate,
            **{f.name: getattr(self.certificate, f.name)[one] for f in fields(self.certificate)},
        )
        return Flow(**parts)
