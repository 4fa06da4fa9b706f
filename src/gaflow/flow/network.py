"""The layered network of Generalized Attention Flow (paper section 3.2) and the flows on it.

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
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["Certificate", "Flow", "LayeredNetwork", "Nodes", "as_mask", "as_networks", "as_nodes", "per_item"]

Nodes = Tensor | np.ndarray | int | Sequence[int] | Sequence[bool] | Sequence[Sequence[int]] | Sequence[Sequence[bool]]

NEGLIGIBLE = 1e-100  # of kappa: can change no score, but its square would underflow in the solver


def as_networks(information: Any) -> Tensor:
    """`information` as float64 (b, l, t, t), detached; refuses what is no batch of layered networks."""
    if isinstance(information, Tensor):
        given = information.detach()
    elif information is None:
        raise TypeError(
            "information is None: a flow with node capacities, such as that of path_flow, knows no capacities of edges "
            "alone; use a method without them, such as agf"
        )
    else:
        array = _array(information)
        if array.dtype.kind not in "fiub":
            raise TypeError(
                f"information must be a tensor or array of real numbers, not {type(information).__name__} "
                "(what a flow was solved on is flow.capacity, for an attribution att.flow.capacity)"
            )
        given = torch.from_numpy(array if array.dtype.kind == "b" else array.astype(np.float64))
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


def _array(information: Any) -> np.ndarray:
    """A copy: any stride or byte order, read-only or not; also of a list of layers, each a tensor."""
    layers = isinstance(information, list | tuple) and any(isinstance(x, Tensor) for x in information)
    try:
        return np.array([_plain(x) for x in information] if layers else information)
    except ValueError:
        raise ValueError(
            "information must have shape (l, t, t) or (b, l, t, t), not rows of different length"
        ) from None


def as_mask(mask: Any, networks: Tensor) -> Tensor | None:
    """`mask` as bool (b, t) beside `networks` (b, l, t, t); None stays None: every token is real."""
    if mask is None:
        return None
    try:
        real = torch.as_tensor(mask, device=networks.device)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"mask must hold one flag per token, not {reprlib.repr(mask)}") from None
    shape = (networks.shape[0], networks.shape[-1])
    if tuple(real.shape) not in {shape, shape[1:]}:
        raise ValueError(f"mask must have shape {shape}, one flag per token, not {tuple(real.shape)}")
    if not bool(((real == 0) | (real == 1)).all()):
        raise ValueError("mask must hold 1 for real tokens and 0 for padding, nothing else")
    return real.bool().expand(shape)


def as_nodes(chosen: Nodes | None, networks: Tensor, real: Tensor | None, name: str) -> Tensor | None:
    """`chosen` tokens as bool (b, t) beside `networks` (b, l, t, t); None stays None: every real token.

    Booleans are a mask, (t,) or (b, t); whole numbers are positions, the same for every item or a list for each.
    """
    if chosen is None:
        return None
    b, t = networks.shape[0], networks.shape[-1]
    if isinstance(chosen, Tensor) and chosen.dtype == torch.bool and tuple(chosen.shape) in {(t,), (b, t)}:
        return chosen.to(networks.device).expand(b, t)  # without a detour over the host
    given = _plain(chosen)
    rows = given if isinstance(given, list) else [given]
    if not any(isinstance(row, list) for row in rows):
        rows = [rows] * b
    if len(rows) != b:
        raise ValueError(f"{name} must be one list of positions, or one for each of {b} items, not {len(rows)} lists")
    there = [[True] * t] * b if real is None else real.tolist()
    flags = [_flags(row, there[item], f"{name} of item {item}") for item, row in enumerate(rows)]
    return torch.tensor(flags, device=networks.device)


def _plain(given: Any) -> Any:
    """Tensors, arrays and sequences of whatever kind as lists of plain numbers."""
    if isinstance(given, Tensor | np.ndarray | np.generic):
        return given.tolist()
    return [_plain(x) for x in given] if isinstance(given, Sequence) and not isinstance(given, str) else given


def _flags(row: Any, real: list[bool], name: str) -> list[bool]:
    """One flag per token: `row` itself, or True at the positions it lists."""
    t = len(real)
    kinds = {type(k) for k in row} if isinstance(row, list) else {list}
    if not kinds <= {int} and kinds != {bool}:
        raise TypeError(f"{name} must be positions (whole numbers) or a boolean mask, not {reprlib.repr(row)}")
    if kinds == {bool}:
        if len(row) != t:
            raise ValueError(f"{name} must have one flag for each of {t} tokens, not {len(row)}")
        return row
    flags = [False] * t
    for k in row:
        if not -t <= k < t:
            raise ValueError(f"{name}: there is no position {k} among {t} tokens, which are 0 to {t - 1}")
        if not real[k]:
            raise ValueError(f"{name}: position {k} is padding")
        if flags[k]:
            raise ValueError(f"{name}: position {k} is given twice; a mask has to be boolean, not 0 and 1")
        flags[k] = True
    return flags


def per_item(value: Any, items: int, device: torch.device, name: str) -> Tensor:
    """`value`, one positive number or one per item, as float64 (b,)."""
    try:
        given = torch.as_tensor(value, dtype=torch.float64, device=device).detach()
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be a number, or one per item, not {value!r}") from None
    if given.dim() > 1 or given.numel() not in (1, items):
        raise ValueError(f"{name} must be one number or one for each of {items} items, not shape {tuple(given.shape)}")
    if not bool((given > 0).all() & torch.isfinite(given).all()):
        raise ValueError(f"{name} must be positive and finite, not {value}")
    return given.expand(items)


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
    negligible: Tensor  # (b,) live edges dropped because their capacity is below NEGLIGIBLE of kappa

    @classmethod
    def build(
        cls,
        information: Tensor,
        mask: Tensor | None = None,
        terminal: float | Tensor | str | None = None,
        sources: Tensor | None = None,
        targets: Tensor | None = None,
    ) -> LayeredNetwork:
        """Prune `information` (b, l, t, t) to its live edges and attach the terminals.

        `mask` (b, t) says which tokens are real, `sources` and `targets` (b, t) which of them get a terminal edge.
        `terminal` is the capacity of the terminal edges: None gives `t * max(information)`, which never binds and
        scales with the input; a number (or one per item) is taken literally, the paper's choice being `t`;
        "adjacent" gives each terminal the sum of the live capacities next to it (paper, appendix A.2).
        """
        b, _, t, _ = information.shape
        real = torch.ones(b, t, dtype=torch.bool, device=information.device) if mask is None else mask.bool()
        capacity = information.to(torch.float64) * (real[:, None, :, None] & real[:, None, None, :])
        first = real if sources is None else real & sources
        last = real if targets is None else real & targets
        capacity, node = _prune(capacity, first, last)
        kappa = capacity.sum((-2, -1)).amin(-1)
        limit = torch.where(torch.isfinite(kappa), NEGLIGIBLE * kappa, 0.0)
        tiny = (capacity > 0) & (capacity < limit[:, None, None, None])
        if bool(tiny.any()):
            capacity, node = _prune(capacity.masked_fill(tiny, 0), first, last)
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
                each = per_item(terminal, b, capacity.device, "terminal")
            source, target = each[:, None] * top, each[:, None] * bottom
        sums = capacity.sum((-2, -1))  # (b, l)
        dead = ~live.flatten(1).any(-1)
        returning = sums.sum(-1) + source.sum(-1) + target.sum(-1)
        if not bool(torch.isfinite(returning).all()):
            raise ValueError(f"the sum of all capacities overflows (largest {capacity.max():.3g}): scale them down")
        return cls(
            capacity=capacity,
            source=source,
            target=target,
            returning=returning,
            kappa=sums.amin(-1),
            edges=torch.where(dead, 0, live.sum((-3, -2, -1)) + top.sum(-1) + bottom.sum(-1) + 1),
            dead=dead,
            negligible=tiny.sum((-3, -2, -1)),
        )

    def unit(self) -> Tensor:
        """The smallest cut through a layer or the terminals (b,), 1 for dead items: what a solver measures flow in."""
        ends = torch.minimum(self.source.sum(-1), self.target.sum(-1))
        return torch.where(self.dead, 1.0, torch.minimum(self.kappa, ends))


def _prune(capacity: Tensor, first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """Capacities of live edges only, and which nodes are alive (b, l+1, t)."""
    above, below = _liveness(capacity > 0, first, last)
    node = above & below
    return capacity * (node[:, 1:, :, None] & node[:, :-1, None, :]), node


def _liveness(positive: Tensor, first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes reached from the source (going down) and nodes that reach the target (going up), each (b, l+1, t)."""
    layers = positive.shape[1]
    down, up = [first], [last]
    for k in reversed(range(layers)):
        down.append((positive[:, k] & down[-1][:, :, None]).any(-2))
    for k in range(layers):
        up.append((positive[:, k] & up[-1][:, None, :]).any(-1))
    return torch.stack(down[::-1], 1), torch.stack(up, 1)


_MERGED = {"converged": min, "dead": min, "gamma": min, "edges": sum, "negligible": sum}  # of certificates; else max


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
    gamma: Any  # capacities were int(gamma u), as in Algorithms 1 and 2; 0: not these integers
    clamped: Any  # gamma is smaller than the algorithms print it, so that int64 holds all capacities together
    dead: Any  # no path from source to target: all flows are 0
    iterations: Any  # factorisations used
    seconds: Any  # wall-clock time of the solve that held this item
    converged: Any

    def __getitem__(self, item: int) -> Certificate:
        return Certificate(**{f.name: getattr(self, f.name)[item].item() for f in fields(self)})

    def combine(self, other: Certificate) -> Certificate:
        """Of two flows that scores are the difference of, both in plain numbers."""
        both = Certificate.worst((self, other), (1.0, 1.0))
        more = {name: getattr(self, name) + getattr(other, name) for name in ("iterations", "seconds")}
        return replace(both, **more)

    @classmethod
    def worst(cls, found: Sequence[Certificate], weights: Sequence[float]) -> Certificate:
        """The worst of several, in plain numbers; what is in units of the flow adds up as flows of these weights do."""
        columns = {f.name: [getattr(one, f.name) for one in found] for f in fields(cls)}
        merged: dict[str, Any] = {name: _MERGED.get(name, max)(values) for name, values in columns.items()}
        for name in ("gap", "cut", "kappa"):
            merged[name] = math.fsum(w * value for w, value in zip(weights, columns[name], strict=True))
        return cls(**merged)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers (one item) or lists (a batch), ready for JSON."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: v.tolist() if isinstance(v, Tensor) else v for name, v in values.items()}


@dataclass(frozen=True, repr=False)
class Flow:
    """The flow on every edge of a batch of layered networks."""

    edges: Tensor  # (b, l, t, t) from node i of layer l+1 to node j of layer l
    source: Tensor  # (b, t) super-source -> output nodes
    target: Tensor  # (b, t) input nodes -> super-target: the token scores
    value: Tensor  # (b,)
    mu: Tensor  # (b,) barrier parameter, absolute; 0 for a plain maximum flow
    converged: Tensor  # (b,) bool
    certificate: Certificate
    capacity: Tensor | None = None  # (b, l, t, t) live capacities that it was solved on; None: not known

    def __repr__(self) -> str:
        more = ", ..." if len(self.value) > 3 else ""
        values = ", ".join(f"{v:.4g}" for v in self.value[:3].tolist()) + more
        state = "converged" if bool(self.converged.all()) else f"{int((~self.converged).sum())} NOT CONVERGED"
        return f"Flow(value {values}; edges {tuple(self.edges.shape)}; {state})"

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
