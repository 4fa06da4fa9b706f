"""The log-barrier maximum flow of a layered network (paper eq. 12), by a primal-dual Newton method.

    minimise  -f_return - sum_e mu_e [ log f_e + log(u_e - f_e) ]      subject to conservation at every node

One step: lower the common level of mu (to a tenth where all edges can follow), linearise the optimality conditions edge
by edge, solve for the potentials, and let every edge follow as far as it can. No line search, no predictor: see
`edges.py` for why none is needed. At the target mu the steps converge quadratically.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from gaflow.arguments import checked, one_of
from gaflow.errors import Argument, SolveError
from gaflow.flow.arguments import ArrayLike, Mask, Nodes, per_item
from gaflow.flow.barrier.lengths import group_by_length
from gaflow.flow.barrier.linear.dispatch import Way
from gaflow.flow.barrier.newton import TOLERANCE, change_of_potentials, lower_level
from gaflow.flow.barrier.state import State
from gaflow.flow.barrier.without_looking import Loop, advance, choose_loop
from gaflow.flow.network import LayeredNetwork, Terminal
from gaflow.flow.result import BatchCertificate, Flow, Potentials
from gaflow.progress import checkpoint, return_freed_memory

Barrier = Literal["uniform", "capacity"]
BARRIERS: tuple[Barrier, ...] = ("uniform", "capacity")

DEFAULT_EPSILON = 1e-6


@checked
def solve(
    information: ArrayLike,
    *,
    epsilon: float | Tensor = DEFAULT_EPSILON,
    mu: float | Tensor | None = None,
    barrier: Barrier = "uniform",
    terminal: Terminal = None,
    mask: Mask = None,
    sources: Nodes = None,
    targets: Nodes = None,
    throw: bool = True,
) -> Flow:
    """The unique barrier-regularised maximum flow of each information tensor.

    `information`: (l, t, t) or (b, l, t, t), non-negative; `mask`: (t,) or (b, t), which tokens are real.
    `epsilon`: how far, relative to the smallest layer sum kappa, the flow value may be from the maximum; it sets
    `mu = epsilon kappa / (2 m)` unless `mu` (absolute) is given. `barrier`: "uniform" is the paper's; "capacity" weighs
    each edge by its capacity, and edges which do not bind then share the flow in proportion to it.
    `terminal`: the capacity of the terminal edges, one number or one per item; None takes one that never binds
    (`t max(information)`, or for barrier="capacity" the sum of the capacities beside it: "adjacent"). The paper's is
    `t`, the number of real tokens of each item: "tokens". `sources`, `targets`: the output positions that flow comes
    from and the input positions that it may go to, as positions, a list of them for each item, or a boolean mask (t,)
    or (b, t); None takes all real tokens.

    The result is always a batch: `flow.edges` is (b, l, t, t). Raises SolveError when an item did not converge, unless
    `throw` is False. An item without any path has flow 0 and is flagged in `certificate.dead`.

    Capacities may be any numbers of float64 whose sum, terminals included, does not overflow. A `terminal` that you
    give may be 1e100 times narrower or wider than the edges. Edges below 1e-100 of kappa are left out, and
    `certificate.negligible` counts them. A capacity above 1e100 times the unit of flow counts as that much; the unit is
    kappa, or what all paths together can carry where that is far less.

        flow = gaflow.solve(torch.rand(12, 14, 14))
        flow.target[0]  # the score of each token
    """
    solver = LogBarrier(epsilon=epsilon, mu=mu, barrier=barrier)
    if terminal is None:
        terminal = default_terminal(barrier)
    network = LayeredNetwork.build(information, terminal, mask, sources, targets)
    return solve_network(network, solver, terminal, throw=throw)


def solve_network(network: LayeredNetwork, solver: LogBarrier, terminal: Terminal, *, throw: bool) -> Flow:
    """The same of a network that was built with this `terminal`, for callers that need the tensor's memory."""
    if not isinstance(terminal, str | None):
        terminal = per_item(terminal, len(network.dead), network.dead.device, "terminal")
    flow = replace(solver(network), barrier=solver.barrier, terminal=terminal)
    if throw and not flow.converged.all():
        raise _not_converged(flow)
    return flow


def default_terminal(barrier: Barrier) -> Terminal:
    """The capacity of terminal edges that never bind: t max(information), or what is beside them."""
    return "adjacent" if barrier == "capacity" else None


def _not_converged(flow: Flow) -> SolveError:
    items = (~flow.converged).nonzero().flatten().tolist()
    certificate = flow.certificate
    errors = torch.stack([certificate.conservation, certificate.dual, certificate.centrality])
    worst = errors[:, items].max()
    message = [
        f"{len(items)} of {len(flow.value)} flows did not converge (items {items}, errors up to "
        f"{worst:.1e} of the flow value); a larger ",
        Argument("epsilon"),
        " or ",
        Argument("mu"),
        " makes the problem easier, and ",
        Argument("throw", False),
        " returns the flagged result",
    ]
    return SolveError(message, flow, items)


@dataclass(frozen=True)
class LogBarrier:
    """Settings of the solver; calling it with a network gives the flow, flagged where it did not converge."""

    epsilon: float | Tensor = DEFAULT_EPSILON
    mu: float | Tensor | None = None  # absolute; overrides epsilon
    barrier: Barrier = "uniform"
    steps: int = 150
    subtraction_free_steps: int = 500  # for the items that failed, from the start, by the factorisation of that name
    way: Way | None = None  # to solve the linear systems of the first `steps`; None: by size and device
    loop: Loop | None = None  # to take these steps; None: by size and device, or "looking" where there is a `way`

    def __post_init__(self) -> None:
        one_of("barrier", self.barrier, BARRIERS)

    def __call__(self, network: LayeredNetwork) -> Flow:
        """Solve the whole batch, networks of similar length together; items leave the loop as they converge."""
        unit = network.unit()
        device = network.kappa.device
        if self.mu is None:
            epsilon = per_item(self.epsilon, len(unit), device, "epsilon")
            relative = epsilon / (2 * network.edges.clamp_min(1))
            mu = relative * network.kappa
            mu_in_units = relative * (network.kappa / unit)
        else:
            mu = per_item(self.mu, len(unit), device, "mu")
            mu_in_units = mu / unit
        result = _Result(network, unit, mu)
        with torch.inference_mode():  # autograd's bookkeeping would be a fifth of the time of small networks
            for items, tokens in group_by_length(network):
                started = time.perf_counter()
                self._solve_group(network, unit, mu_in_units, items, tokens, result)
                result.seconds[items] = time.perf_counter() - started
        return result.flow()

    def _solve_group(
        self, network: LayeredNetwork, unit: Tensor, mu: Tensor, items: Tensor, tokens: int, result: _Result
    ) -> None:
        """Solve these items, none of which has more live nodes in a layer than `tokens`."""
        return_freed_memory(network.capacity.nbytes)
        start = partial(State.start, network, unit, mu, tokens=tokens, weighted=self.barrier == "capacity")
        state = start(items=items, subtraction_free=False)
        loop = self.loop
        if loop is None:
            loop = choose_loop(state) if self.way is None else "looking"
        advance(state, self.steps, loop, self.way)
        failed = _iterate(state, self.steps, self.way, result)
        if len(failed):
            _iterate(start(items=failed, subtraction_free=True), self.subtraction_free_steps, self.way, result)


def _iterate(state: State, steps: int, way: Way | None, result: _Result) -> Tensor:
    """Newton steps until every item has converged; returns the items that have not after `steps`."""
    failed = [state.item[:0]]
    while len(state.item):
        checkpoint()
        lower_level(state)
        balance = state.linearize()
        value = state.outer()[1, :, -1]
        error = torch.maximum(balance.max_residual, balance.max_imbalance)
        last = state.taken >= steps
        done = (state.level <= state.floor) & (error < TOLERANCE * value)
        hopeless = ~(error < torch.inf) | last
        if (done | hopeless).any():
            errors = torch.stack([balance.max_imbalance, *state.errors()]) / value
            done |= last  # edges too narrow to matter may be behind the others
            # a weight that may not grow makes its residual look small, which these errors do not
            done &= errors.amax(0) < 10 * TOLERANCE
            leaving = done | hopeless
            if leaving.any():
                result.store(state, leaving, done, errors)
                failed.append(state.item[leaving & ~done])
                staying = (~leaving).nonzero().flatten()
                state = state.take(staying)
                balance = balance.take(staying)
        if len(state.item):
            state.step(change_of_potentials(state, balance, way))
    return torch.cat(failed)


class _Result:
    """Collects the items of a batch as they leave the loop."""

    def __init__(self, network: LayeredNetwork, unit: Tensor, mu: Tensor):
        self.network = network
        self.unit = unit
        self.mu = mu
        self.edges: Tensor | None = None  # not before an item leaves: long texts need the memory until then
        b, layers, t, _ = network.capacity.shape
        self.node = network.capacity.new_zeros(b, layers + 1, t)  # potentials
        self.source_node = network.capacity.new_zeros(b)
        self.source = network.capacity.new_zeros(b, t)  # flows
        self.target = network.capacity.new_zeros(b, t)
        self.value = network.capacity.new_zeros(b)
        self.seconds = network.capacity.new_zeros(b)
        self.converged = network.dead.clone()
        self.iterations = torch.zeros_like(network.edges)
        self.errors = network.kappa.new_zeros(3, b)  # conservation, dual, centrality
        self.cut = torch.zeros_like(network.kappa)

    def store(self, state: State, leaving: Tensor, done: Tensor, errors: Tensor) -> None:
        """Store flows and errors of the `leaving` items; one that broke down has flow 0 everywhere and errors 1."""
        if not leaving.all():
            items = leaving.nonzero().flatten()
            state = state.take(items)
            done = done[items]
            errors = errors[:, items]
        item = state.item
        unit = self.unit[item]
        sound = torch.isfinite(errors).all(0)
        self.converged[item] = done
        self.iterations[item] += state.taken
        self.errors[:, item] = torch.where(sound, errors, 1.0)
        self.cut[item] = state.cut() * unit
        layers, t = state.shape
        node = state.node.sum(0).masked_fill_(~sound[:, None], 0)
        self.node[item, :, :t] = node[:, :-1].unflatten(-1, (layers + 1, t))
        self.source_node[item] = node[:, -1]
        inner = state.inner(1)
        outer = state.outer()[1]
        for flow in (inner.flatten(1), outer):
            flow.mul_(unit[:, None]).masked_fill_(~sound[:, None], 0)
        if self.edges is None:
            return_freed_memory(self.network.capacity.nbytes)
            with torch.inference_mode(False):  # results may be used in autograd
                self.edges = torch.zeros_like(self.network.capacity)
        source, target, returning = outer.split([t, t, 1], -1)
        self.edges[item, :, :t, :t] = inner
        self.source[item, :t] = source
        self.target[item, :t] = target
        self.value[item] = returning[:, 0]

    def flow(self) -> Flow:
        """The finished batch with its certificate."""
        network = self.network
        value = self.value
        kappa = torch.where(network.dead, 1.0, network.kappa)
        certificate = BatchCertificate.start(network, value, self.cut)
        certificate = replace(
            certificate,
            conservation=self.errors[0].clone(),
            dual=self.errors[1].clone(),
            centrality=self.errors[2].clone(),
            mu=self.mu,
            epsilon=2 * network.edges * self.mu / kappa,
            iterations=self.iterations,
            seconds=self.seconds,
            converged=self.converged,
        )
        if self.edges is None:
            self.edges = torch.zeros_like(network.capacity)
        potentials = Potentials(
            nodes=self.node,
            source=self.source_node,
            target=torch.zeros_like(self.source_node),
        )
        return Flow(
            edges=self.edges,
            source=self.source,
            target=self.target,
            value=value,
            mu=self.mu,
            converged=self.converged,
            certificate=certificate,
            capacity=network.capacity,
            potentials=potentials,
        )
