"""What a Newton step does on the edges: flows, slacks, weights and residuals.

With potentials `p` (target at 0), reduced cost `s = c + p_tail - p_head`, slack `g = u - f` and multipliers `z`, `v`
the solution satisfies `s = z - v`, `f z = mu`, `g v = mu` and conservation. Eliminating `df`, `dz` and `dv` from a
Newton step leaves a weighted Laplacian in the potentials. With `d = z g + v f`:

    w = f g / d                            e = w (mu (g - f) / (f g) - s)
    Laplacian(w) dp = div(f + e)           df = e - w (dp_tail - dp_head)

`e` is also how far each edge is from optimal, in units of flow: when all `e` and all node imbalances vanish, `f` is
the answer. The five conventions this file owns:

* **Multipliers follow from the potentials.** Edge by edge the barrier has a closed form: at the reduced cost `s` the
  optimal multipliers are `z = k + r + s / 2` and `v = k + r - s / 2` with `k = mu / u` and `r^2 = k^2 + s^2 / 4`. They
  are never stored; `s = z - v` always holds, and all that is left of them is `d = mu + r u + s (g - f) / 2`, which is
  never below mu. (Multipliers with steps of their own fall behind the potentials, and the worst networks take twice as
  many steps.) Here mu is that of the step which led to these potentials, `before`, not the smaller one of the next.
* **Every edge has its own step length.** `f` and `g` keep at least `MIN_SHARE_LEFT` of themselves in a step, and `w`
  grows to at most `MAX_WEIGHT_GROWTH` times itself. A common step length would be dictated by the worst of a million
  edges; an edge that is cut short only adds an imbalance of its own size, which the next step removes.
* **No edge goes below a common level before all do.** `mu_e = max(mu omega_e, level)` while the level falls: weighted
  barriers would otherwise start with some edges pressed against their bounds.
* **A dead edge has capacity, flow and slack 0**, from which weight and residual 0 follow.
* **Long texts store weight and residual in float32.** Both are rounded before they are summed up at the nodes, so the
  flows of a step still balance; the step only goes a little elsewhere, as if the edge were another by 1e-7 of itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from gaflow.flow.records import take_items

MIN_SHARE_LEFT = 0.05  # of a flow or slack, in one step
MAX_WEIGHT_GROWTH = 50  # the most that one step multiplies a weight by
ROUNDING_SHARE = 1e-15  # of a flow: a smaller residual is noise
SPREAD_SHARE = 0.9  # of a unit of flow, with which a layer starts
LEAST_START = 1e-30  # of a moderate flow, with which an edge starts at least
WIDEST = 1e100  # units of flow: a wider edge can change no score, but its square would overflow
TINY = 1e-300  # keeps quotients of dead edges finite
LEAN_WIDEST = 1e30  # units of flow: float32 holds no weights of wider edges
LEAN_NARROWEST = 1e-24  # units of flow: float32 holds no weights of narrower edges

Variables = TypeVar("Variables", Tensor, tuple[Tensor, Tensor, Tensor, Tensor])


@dataclass(frozen=True)
class Balance:
    """Sums over the edges of every node, and how far the worst edge and node are from optimal."""

    right: Tensor  # (b, n) outflow less inflow, of flows and residuals together
    up: Tensor  # (b, n) weights of the edges that enter
    down: Tensor  # (b, n) weights of the edges that leave
    max_residual: Tensor  # (b,) of any edge
    max_imbalance: Tensor  # (b,) of the flows at any node

    def take(self, staying: Sequence[int]) -> Balance:
        """The sums of these items."""
        return take_items(self, torch.tensor(staying, device=self.right.device))


class EdgeArithmetic(Generic[Variables]):
    """A Newton step on a group of edges, wherever their variables are stored. Changes them in place."""

    variables: Variables  # 4 x (b, m): slack, flow, residual, weight

    @property
    def slack(self) -> Tensor:
        """g, kept apart from u - f, which rounds to 0 where an edge is full."""
        return self.variables[0]

    @property
    def flow(self) -> Tensor:
        """f."""
        return self.variables[1]

    @property
    def residual(self) -> Tensor:
        """e of the current step, then the change of flow."""
        return self.variables[2]

    @property
    def weight(self) -> Tensor:
        """w of the current step."""
        return self.variables[3]

    def width(self) -> Tensor:
        """u, (b, m)."""
        raise NotImplementedError

    def mu_to_reach(self) -> Tensor:
        """The mu_e to reach, (b, m) or (b, 1)."""
        raise NotImplementedError

    def linearize(self, cost: Tensor, before: Tensor, level: Tensor, *, first: bool, subtraction_free: bool) -> None:
        """Set the Newton weight w and the residual e of every edge; `before` is the level of the last step.

        No edge goes below the common level before all do.
        """
        slack, flow, residual, weight = self.variables
        target_mu = self.mu_to_reach()
        mu = torch.maximum(target_mu, before[:, None])
        torch.sub(slack, flow, out=residual)
        if first:  # no potentials to follow yet: d of multipliers mu / f and mu / g
            product = flow * slack
            scale = self.width().square().div_(product.clamp_min(TINY))
            scale.sub_(2).clamp_min_(1).mul_(mu)
            torch.div(product, scale, out=weight)
            product.clamp_min_(TINY)
        else:  # a dead edge had weight 0 in the first step, and keeps it
            scale = self._scale(cost, mu, subtraction_free)
            tiny = flow.new_full((1, 1), TINY)
            product = torch.addcmul(tiny, flow, slack)
            full_weight = torch.div(product, scale, out=scale)
            weight.mul_(MAX_WEIGHT_GROWTH)
            torch.minimum(weight, full_weight, out=weight)
        residual.mul_(torch.maximum(target_mu, level[:, None])).div_(product)
        residual.sub_(cost).mul_(weight)
        if subtraction_free:  # a residual below the rounding error of its flow drowns smaller differences
            above_rounding = residual.abs() > ROUNDING_SHARE * flow
            residual.mul_(above_rounding)

    def _scale(self, cost: Tensor, mu: Tensor, subtraction_free: bool) -> Tensor:
        """d of every edge; `residual` has to be g - f."""
        reach = cost * self.width()
        if subtraction_free:  # for an edge that is nearly empty and should be full
            half = reach.abs_().mul_(0.5)
            root = torch.hypot(half, mu).add_(half)
            above_mu = torch.maximum(cost * self.slack, -cost * self.flow)
            scale = (mu / root).mul_(mu)
            return scale.add_(mu).add_(above_mu)
        mu_square = mu.square().clamp_min_(TINY)
        square = torch.addcmul(mu_square, reach, reach, value=0.25)  # of r u
        inverse = torch.rsqrt(square)  # three times as fast as sqrt on the CPU
        scale = torch.addcmul(mu, square, inverse, out=reach)
        scale.addcmul_(cost, self.residual, value=0.5)
        return torch.maximum(scale, mu, out=scale)  # below mu by rounding only

    def step(self, potential_difference: Tensor) -> Tensor:
        """Take the Newton step of new potentials, tail less head; 1.0 where it was cut short. Overwrites its input."""
        slack, flow, residual, weight = self.variables
        full_step = residual.addcmul_(weight, potential_difference, value=-1)
        lowest = torch.mul(flow, MIN_SHARE_LEFT - 1, out=potential_difference)
        highest = slack * (1 - MIN_SHARE_LEFT)
        change = torch.clamp(full_step, lowest, highest)
        flow.add_(change)
        slack.sub_(change)
        return torch.ne(change, full_step, out=potential_difference)

    def errors(self, cost: Tensor) -> tuple[Tensor, Tensor]:
        """Largest dual and centrality error, (b,) each: the two parts of the residual e, in units of flow."""
        slack, flow, _, _ = self.variables
        width = self.width()
        mu = self.mu_to_reach()
        errors = flow.new_empty(3, *flow.shape)
        dual, lower, upper = errors  # of each edge; at first, what they follow from
        reach = width * cost
        half = torch.abs(reach, out=dual).mul_(0.5)
        root = torch.hypot(half, mu).add_(half)
        smaller = torch.div(mu, root, out=lower).mul_(mu).add_(mu)  # u times the multipliers, without a cancellation
        larger = root.add_(mu)
        positive = cost > 0
        uz = torch.where(positive, larger, smaller)
        uv = torch.where(positive, smaller, larger)
        scale = (uz * slack).addcmul_(uv, flow).clamp_min_(TINY)  # u d; 0 for a dead edge, as all else
        torch.sub(reach, uz, out=dual).add_(uv).mul_(flow).mul_(slack)
        mu_width = mu * width
        torch.sub(mu_width, uz.mul_(flow), out=lower).mul_(slack)
        torch.sub(mu_width, uv.mul_(slack), out=upper).mul_(flow)
        max_dual, max_lower, max_upper = largest(errors.div_(scale))
        return max_dual, torch.maximum(max_lower, max_upper)


@dataclass
class Edges(EdgeArithmetic[Tensor]):
    """Edges whose variables are all in memory."""

    capacity: Tensor  # (b, m) u
    target_mu: Tensor  # (b, m) or (b, 1): the mu_e to reach
    variables: Tensor  # (4, b, m): slack, flow, residual, weight

    @classmethod
    def start(cls, capacity: Tensor, target_mu: Tensor) -> Edges:
        """At the start, with a moderate flow on every edge, whatever its capacity."""
        variables = capacity.new_zeros(4, *capacity.shape)
        edges = cls(capacity, target_mu, variables)
        start_flow(capacity, edges.slack, edges.flow)
        return edges

    def width(self) -> Tensor:
        """The capacity."""
        return self.capacity

    def mu_to_reach(self) -> Tensor:
        """As it was given."""
        return self.target_mu

    def node_sums(self, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Flows, residuals and weights, (b, layers, tails, heads) each, summed over heads and over tails."""
        inner = self.variables[1:, :, : math.prod(shape[1:])].view(3, *shape)
        return inner.sum(-1), inner.sum(-2)

    def take(self, items: Tensor) -> Edges:
        """These items of the batch, copied."""
        return take_items(self, items, variables=self.variables[:, items])

    def __getitem__(self, columns: slice) -> Edges:
        """A view of these edges."""
        target_mu = self.target_mu
        if target_mu.shape[1] > 1:
            target_mu = target_mu[:, columns]
        return Edges(self.capacity[:, columns], target_mu, self.variables[:, :, columns])


@dataclass
class LeanEdges:
    """Edges of a long text, more than are worked on at a time: what can be computed again is not stored.

    That are capacities in units of flow and the mu_e to reach. Residuals and weights are in float32.
    """

    capacity: Tensor  # (b, l t t) of the layers, in the network's own units
    unit: Tensor  # (b,) of flow
    mu: Tensor  # (b,) the mu to reach: the mean of all mu_e
    mu_of_unit: Tensor | None  # (b,) mu_e of an edge with the capacity 1; None: mu_e is mu
    variables: Tensor  # (2, b, l t t): slack, flow
    newton: Tensor  # (2, b, l t t) float32: residual, weight
    outer: Edges  # source edges, target edges and the return edge

    def take(self, items: Tensor) -> LeanEdges:
        """These items of the batch, copied."""
        return take_items(
            self,
            items,
            outer=self.outer.take(items),
            variables=self.variables[:, items],
            newton=self.newton[:, items],
        )

    def inner(self, columns: slice) -> LentEdges:
        """These edges of the layers."""
        return LentEdges(self, columns)


class LentEdges(EdgeArithmetic[tuple[Tensor, Tensor, Tensor, Tensor]]):
    """A group of lean edges; weights and residuals are in float64 while the group is worked on."""

    def __init__(self, lean: LeanEdges, columns: slice) -> None:
        self.lean = lean
        self.columns = columns
        slack, flow = lean.variables[:, :, columns]
        self.stored_residual, self.stored_weight = lean.newton[:, :, columns]
        nothing = slack[:, :0]
        self.variables = (slack, flow, nothing, nothing)

    @property
    def capacity(self) -> Tensor:
        """In units of flow, (b, m), a new tensor."""
        return scaled_capacity(self.lean.capacity[:, self.columns], self.lean.unit)

    def width(self) -> Tensor:
        """The capacity but for rounding, from what is at hand."""
        return self.slack + self.flow

    def mu_to_reach(self) -> Tensor:
        """Of a dead edge, any number above 0."""
        if self.lean.mu_of_unit is None:
            return self.lean.mu[:, None]
        return self.width().mul_(self.lean.mu_of_unit[:, None]).clamp_min_(TINY)

    def linearize(self, cost: Tensor, before: Tensor, level: Tensor, *, first: bool, subtraction_free: bool) -> None:
        """Set and store weights and residuals, rounded to float32."""
        weight = self.stored_weight.to(self.slack.dtype)
        weight.masked_fill_(weight == 0, math.inf)  # too small for float32 so far, which must not limit its growth
        self.variables = (self.slack, self.flow, torch.empty_like(weight), weight)
        super().linearize(cost, before, level, first=first, subtraction_free=subtraction_free)
        for stored, value in ((self.stored_residual, self.residual), (self.stored_weight, self.weight)):
            stored.copy_(value)
            value.copy_(stored)

    def step(self, potential_difference: Tensor) -> Tensor:
        """Take the Newton step; what is stored of the residual stays that of the step."""
        residual = self.stored_residual.to(self.slack.dtype)
        weight = self.stored_weight.to(self.slack.dtype)
        self.variables = (self.slack, self.flow, residual, weight)
        return super().step(potential_difference)

    def node_sums(self, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Flows, residuals and weights, (b, layers, tails, heads) each, summed over heads and over tails."""
        rows = []
        columns = []
        for variable in self.variables[1:]:
            inner = variable.view(shape)
            rows.append(inner.sum(-1))
            columns.append(inner.sum(-2))
        return torch.stack(rows), torch.stack(columns)


def start_flow(capacity: Tensor, slack: Tensor, flow: Tensor) -> None:
    """Set slack and flow to a moderate flow on every edge, whatever its capacity."""
    torch.div(capacity, capacity + 2, out=flow)
    torch.sub(capacity, flow, out=slack)


def spread_flow(capacity: Tensor, layer_sum: Tensor, slack: Tensor, flow: Tensor) -> None:
    """Set slack and flow to nearly a unit of flow through every layer, spread in proportion to capacities.

    A layer's edges may have less than what they have by `start_flow`, but not so little that its square underflows.
    """
    start_flow(capacity, slack, flow)
    least = flow.mul_(LEAST_START)
    share = SPREAD_SHARE / layer_sum.clamp_min(1)
    torch.maximum(capacity * share, least, out=flow)
    torch.sub(capacity, flow, out=slack)


def scaled_capacity(capacity: Tensor, unit: Tensor) -> Tensor:
    """Capacities (b, m) in units of flow (b,), a new tensor."""
    return (capacity / unit[:, None]).clamp_max_(WIDEST)


def proportional_mu(weight: Tensor, mu_of_unit: Tensor, dead: Tensor) -> Tensor:
    """mu_e (b, m) in proportion to weights (b, m); that of dead edges, whose weight is 0, is any number (b, 1)."""
    return torch.where(weight > 0, weight * mu_of_unit[:, None], dead)


def largest(values: Tensor) -> Tensor:
    """The largest magnitude of each item, (b,)."""
    return values.abs().amax(-1)
