"""The log-barrier maximum flow of a layered network (paper eq. 12), by a primal-dual Newton method.

    minimise  -f_return - sum_e mu_e [ log f_e + log(u_e - f_e) ]      subject to conservation at every node

One step: lower the common level of mu (to a tenth where all edges can follow), linearise the optimality conditions edge
by edge, solve for the potentials, and let every edge follow as far as it can. No line search, no predictor: see
`edges.py` for why none is needed. At the target mu the steps converge quadratically.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gaflow.errors import SolveError
from gaflow.flow.arguments import Nodes, as_mask, as_networks, as_nodes, per_item
from gaflow.flow.barrier.edges import KEEP
from gaflow.flow.barrier.linear.dispatch import Care, solve_laplacian
from gaflow.flow.barrier.linear.system import System
from gaflow.flow.barrier.state import Balance, State
from gaflow.flow.network import LayeredNetwork
from gaflow.flow.result import BatchCertificate, Flow

__all__ = ["Barrier", "LogBarrier", "solve"]

Barrier = Literal["uniform", "capacity"]

SHRINK = 0.1  # the next level, relative to this one where all edges can follow
SLOW, SLOWEST = 20, 0.7  # how much more of it is kept for the share of the edges that cannot, and the most
TOLERANCE = 1e-10  # largest node imbalance and largest edge residual, relative to the flow value


def solve(
    information: Tensor | np.ndarray | list,
    *,
    epsilon: float = 1e-6,
    mu: float | Tensor | None = None,
    barrier: Barrier = "uniform",
    terminal: float | Tensor | str | None = None,
    mask: Tensor | np.ndarray | list | None = None,
    sources: Nodes | None = None,
    targets: Nodes | None = None,
    throw: bool = True,
) -> Flow:
    """The unique barrier-regularised maximum flow of each information tensor.

    `information`: (l, t, t) or (b, l, t, t), non-negative; `mask`: (t,) or (b, t), which tokens are real.
    `epsilon`: how far, relative to the smallest layer sum kappa, the flow value may be from the maximum; it sets
    `mu = epsilon kappa / (2 m)` unless `mu` (absolute) is given. `barrier`: "uniform" is the paper's; "capacity" weighs
    each edge by its capacity, so that edges which do not bind share the flow in proportion to it.
    `terminal`: the capacity of the terminal edges, one number or one per item; None takes one that never binds
    (`t max(information)`, or for barrier="capacity" the sum of the capacities beside it: "adjacent"). The paper's is
    `t`. `sources`, `targets`: the output positions that flow comes from and the input positions that it may go to, as
    positions, a list of them for each item, or a boolean mask (t,) or (b, t); None takes all real tokens.

    The result is always a batch: `flow.edges` is (b, l, t, t). Raises SolveError when an item did not converge, unless
    `throw` is False. An item without any path has flow 0 and is flagged in `certificate.dead`.
    """
    networks = as_networks(information)
    settings = LogBarrier(epsilon=epsilon, mu=mu, barrier=barrier)
    ends = "adjacent" if terminal is None and barrier == "capacity" else terminal
    real = as_mask(mask, networks)
    above, below = as_nodes(sources, networks, real, "sources"), as_nodes(targets, networks, real, "targets")
    flow = settings(LayeredNetwork.build(networks, real, ends, above, below))
    if throw and not bool(flow.converged.all()):
        items = (~flow.converged).nonzero().flatten().tolist()
        found = flow.certificate
        worst = max(float(x[items].max()) for x in (found.conservation, found.dual, found.centrality))
        raise SolveError(
            f"{len(items)} of {len(flow.value)} flows did not converge (items {items}, off by up to "
            f"{worst:.1e} of the flow value); a larger epsilon or mu makes the problem easier, and throw=False returns "
            "the flagged result",
            flow,
            items,
        )
    return flow


@dataclass(frozen=True)
class LogBarrier:
    """Settings of the solver; calling it with a network gives the flow, flagged where it did not converge."""

    epsilon: float = 1e-6
    mu: float | Tensor | None = None  # absolute; overrides epsilon
    barrier: Barrier = "uniform"
    steps: int = 150
    careful_steps: int = 200  # for what is left then, from the start, with the subtraction-free factorisation

    def __post_init__(self) -> None:
        if self.barrier not in ("uniform", "capacity"):
            raise ValueError(f'barrier must be "uniform" or "capacity", not {self.barrier!r}')

    def __call__(self, network: LayeredNetwork) -> Flow:
        """Solve the whole batch; items leave the loop as they converge."""
        started = time.perf_counter()
        unit, device = network.unit(), network.kappa.device
        if self.mu is None:
            relative = per_item(self.epsilon, len(unit), device, "epsilon") / (2 * network.edges.clamp_min(1))
            mu, target = relative * network.kappa, relative * (network.kappa / unit)
        else:
            mu = per_item(self.mu, len(unit), device, "mu")
            target = mu / unit
        result = _Result(network, unit, mu)
        left = (~network.dead).nonzero().flatten()
        with torch.inference_mode():  # a fifth of the time of small networks is autograd looking on
            for careful, steps in ((False, self.steps), (True, self.careful_steps)):
                if len(left):
                    weighted = self.barrier == "capacity"
                    state = State.start(network, unit, target, left, weighted=weighted, careful=careful)
                    left = _iterate(state, steps, result)
        return result.flow(time.perf_counter() - started)


def _iterate(state: State, steps: int, result: _Result) -> Tensor:
    """Newton steps until every item has converged; returns the items that have not after `steps`."""
    failed = [state.item[:0]]
    precise: Care = "exact" if state.level.is_cuda else "rough"  # GPUs are as fast in float64
    care = "careful" if state.careful else precise
    for step in range(steps + 1):
        _lower(state)
        balance = state.linearize()
        value, error = state.edges.flow[:, -1], torch.maximum(balance.off, balance.lost)
        done = (state.level <= state.floor) & (error < TOLERANCE * value)
        hopeless = ~(error < torch.inf) | (step == steps)
        leaving = done | hopeless
        if bool(leaving.any()):
            errors = torch.stack([balance.lost, *state.errors()]) / value
            done &= errors.amax(0) < 10 * TOLERANCE  # a weight that may not grow makes its residual look small: is it?
            leaving = done | hopeless
            if bool(leaving.any()):
                result.store(state, leaving, done, errors, step)
                failed.append(state.item[leaving & ~done])
                stay = (~leaving).nonzero().flatten()
                state, balance = state.take(stay), balance.take(stay)
        if not len(state.item):
            break
        state.step(_newton(state, balance, care))
    return torch.cat(failed)


def _lower(state: State) -> None:
    """Lower the level as far as the edges that lag behind allow."""
    # below the mean only edges that hardly matter are left behind, and slacks can follow no faster than by KEEP
    factor = torch.where(state.level > state.mean, SHRINK, KEEP) + SLOW * state.short
    state.level = torch.maximum(state.floor, state.level * factor.clamp_max(SLOWEST))


def _newton(state: State, balance: Balance, care: Care) -> Tensor:
    """The change of every potential, (b, n)."""
    layers, t = state.shape
    inner, source, target, returning = state.edges.weight.split([layers * t * t, t, t, 1], 1)
    weight, returning = inner.view(-1, layers, t, t), returning[:, 0]
    system = System(weight, source, target, returning, balance.right, balance.up, balance.down, state.top)
    return solve_laplacian(system, care)


class _Result:
    """Collects the items of a batch as they leave the loop."""

    def __init__(self, network: LayeredNetwork, unit: Tensor, mu: Tensor):
        self.network, self.unit, self.mu = network, unit, mu
        self.edges: Tensor | None = None  # not before there is something to keep: long texts need the memory until then
        b, t = network.source.shape
        self.outer = network.capacity.new_zeros(b, 2 * t + 1)
        self.converged = network.dead.clone()
        self.iterations = torch.zeros_like(network.edges)
        zero = torch.zeros_like(network.kappa)
        self.conservation, self.dual, self.centrality, self.cut = (zero.clone() for _ in range(4))

    def store(self, state: State, leaving: Tensor, done: Tensor, errors: Tensor, steps: int) -> None:
        """Keep flows and errors of the `leaving` items; one that broke down is 0 everywhere and off by all of it."""
        if not bool(leaving.all()):
            chosen = leaving.nonzero().flatten()
            state, done, errors = state.take(chosen), done[chosen], errors[:, chosen]
        item, unit = state.item, self.unit[state.item]
        sound = torch.isfinite(errors).all(0)
        self.converged[item] = done
        self.iterations[item] += steps
        self.conservation[item], self.dual[item], self.centrality[item] = torch.where(sound, errors, 1.0)
        self.cut[item] = state.cut() * unit
        flow = state.edges.flow.mul_(unit[:, None]).masked_fill_(~sound[:, None], 0)
        with torch.inference_mode(False):  # what is handed out may be used in autograd
            self.edges = torch.zeros_like(self.network.capacity) if self.edges is None else self.edges
        inner = self.edges[0].numel()
        self.edges[item] = flow[:, :inner].unflatten(-1, self.edges.shape[1:])
        self.outer[item] = flow[:, inner:]

    def flow(self, seconds: float) -> Flow:
        """The finished batch with its certificate."""
        network, t = self.network, self.network.source.shape[-1]
        value = self.outer[:, -1]
        certificate = BatchCertificate(
            conservation=self.conservation,
            dual=self.dual,
            centrality=self.centrality,
            gap=(self.cut - value).clamp_min(0),  # below 0 by rounding only
            cut=self.cut,
            kappa=network.kappa,
            mu=self.mu,
            epsilon=2 * network.edges * self.mu / torch.where(network.dead, 1.0, network.kappa),
            edges=network.edges,
            negligible=network.negligible,
            gamma=torch.zeros_like(value),
            clamped=torch.zeros_like(network.dead),
            dead=network.dead,
            iterations=self.iterations,
            seconds=torch.full_like(value, seconds),
            converged=self.converged,
        )
        return Flow(
            edges=torch.zeros_like(network.capacity) if self.edges is None else self.edges,
            source=self.outer[:, :t],
            target=self.outer[:, t:-1],
            value=value,
            mu=self.mu,
            converged=self.converged,
            certificate=certificate,
            capacity=network.capacity,
        )
