"""What a Newton step does on the edges: flows, slacks, weights and residuals.

With potentials `p` (target at 0), reduced cost `s = c + p_tail - p_head`, slack `g = u - f` and multipliers `z`, `v`
the solution satisfies `s = z - v`, `f z = mu`, `g v = mu` and conservation. Eliminating `df`, `dz` and `dv` from a
Newton step leaves a weighted Laplacian in the potentials. With `d = z g + v f`:

    w = f g / d                            e = w (mu (g - f) / (f g) - s)
    Laplacian(w) dp = div(f + e)           df = e - w (dp_tail - dp_head)

`e` is also how far each edge is from optimal, in units of flow: when all `e` and all node imbalances vanish, `f` is
the answer. The four conventions this file owns:

* **Multipliers follow from the potentials.** Edge by edge the barrier has a closed form: at the reduced cost `s` the
  optimal multipliers are `z = k + r + s / 2` and `v = k + r - s / 2` with `k = mu / u` and `r^2 = k^2 + s^2 / 4`. They
  are never stored; `s = z - v` always holds, and all that is left of them is `d = mu + r u + s (g - f) / 2`, which is
  never below mu. (Multipliers with steps of their own fall behind the potentials, and the worst networks take twice as
  many steps.) Here mu is that of the step which led to these potentials, `before`, not the smaller one of the next.
* **Every edge has its own step length.** `f` and `g` keep at least the share `KEEP` of themselves in a step, and `w`
  grows to at most `GROW` times itself, each edge for itself. A common step length would be dictated by the worst of a
  million edges; an edge that is cut short only adds an imbalance of its own size, which the next step removes.
* **No edge goes below a common level before all do.** `mu_e = max(mu omega_e, level)` while the level falls: weighted
  barriers would otherwise start with some edges pressed against their bounds.
* **A dead edge has capacity, flow and slack 0**, from which weight and residual 0 follow.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["GROW", "KEEP", "Edges", "largest"]

KEEP = 0.05  # the least share of a flow or slack that a step leaves
GROW = 50  # the most that a step multiplies a weight by
ROUNDING = 1e-15
TINY = 1e-300


@dataclass
class Edges:
    """The variables of some edges, changed in place."""

    capacity: Tensor  # (b, m) u
    goal: Tensor  # (b, m) or (b, 1): the mu_e to reach
    book: Tensor  # (4, b, m): what the four names below say, side by side

    slack = property(lambda self: self.book[0])  # g, kept apart from u - f, which rounds to 0 where an edge is full
    flow = property(lambda self: self.book[1])  # f
    residual = property(lambda self: self.book[2])  # e of the current step, then the change of flow
    weight = property(lambda self: self.book[3])  # w of the current step

    @classmethod
    def start(cls, capacity: Tensor, goal: Tensor) -> Edges:
        """A moderate flow on every edge, whatever its capacity."""
        book = capacity.new_zeros(4, *capacity.shape)
        slack, flow = book[:2]
        torch.div(capacity, capacity + 2, out=flow)
        torch.sub(capacity, flow, out=slack)
        return cls(capacity, goal, book)

    def push(self, level: Tensor) -> Tensor:
        """mu_e of every edge: no edge goes below the common level before all do."""
        return torch.maximum(self.goal, level[:, None])

    def linearize(self, cost: Tensor, before: Tensor, level: Tensor, *, first: bool, careful: bool) -> None:
        """Set the Newton weight w and the residual e of every edge; `before` is the level of the last step."""
        slack, flow, residual, weight = self.book
        mu = self.push(before)
        torch.sub(slack, flow, out=residual)
        if first:  # no potentials to follow yet: d of multipliers mu / f and mu / g
            product = flow * slack
            scale = self.capacity.square().div_(product.clamp_min(TINY)).sub_(2).clamp_min_(1).mul_(mu)
            torch.div(product, scale, out=weight)
            product.clamp_min_(TINY)
        else:  # a dead edge had weight 0 in the first step, and keeps it
            scale = self._scale(cost, mu, careful)
            product = torch.addcmul(flow.new_full((1, 1), TINY), flow, slack)
            torch.minimum(weight.mul_(GROW), torch.div(product, scale, out=scale), out=weight)
        residual.mul_(self.push(level)).div_(product).sub_(cost).mul_(weight)
        if careful:  # a residual below the rounding error of its flow is noise, and drowns smaller differences
            residual.mul_(residual.abs() > ROUNDING * flow)

    def _scale(self, cost: Tensor, mu: Tensor, careful: bool) -> Tensor:
        """d of every edge; `residual` has to be g - f."""
        reach = cost * self.capacity
        square = torch.addcmul(mu.square().clamp_min_(TINY), reach, reach, value=0.25)  # of r u
        inverse = torch.rsqrt(square)  # three times as fast as sqrt on the CPU
        if careful:  # without a cancellation, for an edge that is nearly empty and should be full
            rest = mu.square() / inverse.mul_(square).add_(reach.abs_(), alpha=0.5)
            return rest.add_(mu).add_(torch.maximum(cost * self.slack, -cost * self.flow))
        scale = torch.addcmul(mu, square, inverse, out=reach).addcmul_(cost, self.residual, value=0.5)
        return torch.maximum(scale, mu, out=scale)  # below mu by rounding only

    def step(self, drop: Tensor) -> Tensor:
        """Take the Newton step that follows from the `drop` of the new potentials; 1.0 where it was cut short."""
        slack, flow, residual, weight = self.book
        wanted = residual.addcmul_(weight, drop, value=-1)
        change = torch.clamp(wanted, torch.mul(flow, KEEP - 1, out=drop), slack * (1 - KEEP))
        flow.add_(change)
        slack.sub_(change)
        return torch.ne(change, wanted, out=drop)

    def errors(self, cost: Tensor) -> tuple[Tensor, Tensor]:
        """Largest dual and centrality error, (b,) each: the two parts of the residual e, in units of flow."""
        slack, flow, mu, size = self.slack, self.flow, self.goal, self.capacity
        half = (size * cost).abs_().mul_(0.5)
        root = half.square().add_(mu.square()).sqrt_().add_(half)
        less, more = (mu.square() / root).add_(mu), root.add_(mu)  # u times the multipliers, without a cancellation
        below, above = torch.where(cost > 0, more, less), torch.where(cost > 0, less, more)
        scale = (below * slack).addcmul_(above, flow).clamp_min_(TINY)  # u d; 0 for a dead edge, as all else
        dual = (cost * size).sub_(below).add_(above).mul_(flow).mul_(slack).div_(scale)
        lower = (mu * size).sub_(below.mul_(flow)).mul_(slack).div_(scale)
        upper = (mu * size).sub_(above.mul_(slack)).mul_(flow).div_(scale)
        return largest(dual), torch.maximum(largest(lower), largest(upper))

    def take(self, items: Tensor) -> Edges:
        """These items of the batch, copied."""
        return Edges(self.capacity[items], self.goal[items], self.book[:, items])

    def __getitem__(self, part: slice) -> Edges:
        """A view of these edges."""
        goal = self.goal if self.goal.shape[1] == 1 else self.goal[:, part]
        return Edges(self.capacity[:, part], goal, self.book[:, :, part])


def largest(values: Tensor) -> Tensor:
    """The largest magnitude of each item, (b,)."""
    return values.abs().amax(-1)
