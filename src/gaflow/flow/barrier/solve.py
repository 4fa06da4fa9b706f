"""The log-barrier maximum flow of a layered network (paper eq. 12), by a primal-dual Newton method.

    minimise  -f_return - sum_e mu_e [ log f_e + log(u_e - f_e) ]      subject to conservation at every node

One step: lower the common level of mu (to a tenth where all edges can follow), linearise the optimality conditions edge
by edge, solve for the potentials, and let every edge follow as far as it can. No line search, no predictor: see
`edges.py` for why none is needed. At the target mu the steps converge quadratically.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from gaflow.arguments import checked, one_of
from gaflow.errors import Argument, SolveError
from gaflow.flow.arguments import ArrayLike, Mask, Nodes, per_item
from gaflow.flow.barrier.edges import Balance
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
        unit = network.unit
        device = unit.device
        if self.mu is None:
            epsilon = per_item(self.epsilon, len(unit), device, "epsilon")
            relative = epsilon / (2 * network.edges.clamp_min(1))
            mu = relative * network.kappa
            mu_in_units = relative * (network.kappa / unit)
        else:
            mu = per_item(self.mu, len(unit), device, "mu")
            mu_in_units = mu / unit
        results = _Results(network, mu)
        # autograd's bookkeeping would be a fifth of the time of small networks; Triton starts on the current device
        with torch.inference_mode(), torch.cuda.device_of(network.capacity):
            for items, tokens in group_by_length(network):
                started = time.perf_counter()
                self._solve_group(network, mu_in_units, items, tokens, results)
                results.set_seconds(items, time.perf_counter() - started)
        return results.flow()

    def _solve_group(
        self, network: LayeredNetwork, mu: Tensor, items: list[int], tokens: int, results: _Results
    ) -> None:
        """Solve these items, none of which has more live nodes in a layer than `tokens`."""
        return_freed_memory(network.capacity.nbytes)
        start = partial(State.start, network, network.unit, mu, tokens=tokens, weighted=self.barrier == "capacity")
        state = start(items=items, subtraction_free=False)
        loop = self.loop
        if loop is None:
            loop = choose_loop(state) if self.way is None else "looking"
        advance(state, self.steps, loop, self.way)
        failed = _iterate(state, self.steps, self.way, results)
        if failed:
            _iterate(start(items=failed, subtraction_free=True), self.subtraction_free_steps, self.way, results)


# "last": no more steps are allowed; "broken": numbers are no longer finite
Verdict = Literal["running", "converged", "last", "broken"]


def _iterate(state: State, steps: int, way: Way | None, results: _Results) -> list[int]:
    """Newton steps until every item has converged; returns the items that have not after `steps`."""
    failed = []
    while True:
        checkpoint()
        lower_level(state)
        balance = state.linearize()
        verdicts = _judge(state, balance, steps)
        if set(verdicts) != {"running"}:
            errors = torch.stack([balance.max_imbalance, *state.errors()]) / state.value()
            leaving = []
            staying = []
            for k, (verdict, item_errors) in enumerate(zip(verdicts, errors.T.tolist(), strict=True)):
                # a weight that may not grow makes its residual look small, which these errors do not; edges too narrow
                # to matter may be behind the others after the last step
                exact = all(error < 10 * TOLERANCE for error in item_errors)
                if verdict in ("last", "broken") or (verdict == "converged" and exact):
                    sound = all(map(math.isfinite, item_errors))
                    leaving.append(_Leaving(k, converged=exact and verdict != "broken", sound=sound))
                else:
                    staying.append(k)
            if leaving:
                results.store(state, leaving, errors)
                for item in leaving:
                    if not item.converged:
                        failed.append(state.items[item.index])
            if not staying:
                return sorted(failed)
            if leaving:
                state = state.take(staying)
                balance = balance.take(staying)
        state.step(change_of_potentials(state, balance, way))


def _judge(state: State, balance: Balance, steps: int) -> list[Verdict]:
    """What to do with each item, from a single look at a device."""
    error = torch.maximum(balance.max_residual, balance.max_imbalance)
    numbers = torch.stack([error, state.value(), state.level, state.floor, state.taken], 1)
    verdicts: list[Verdict] = []
    for item_error, value, level, floor, taken in numbers.tolist():
        if taken >= steps:
            verdicts.append("last")
        elif not item_error < math.inf:
            verdicts.append("broken")
        elif level <= floor and item_error < TOLERANCE * value:
            verdicts.append("converged")
        else:
            verdicts.append("running")
    return verdicts


@dataclass(frozen=True)
class _Leaving:
    """An item that leaves the loop."""

    index: int  # in the state
    converged: bool
    sound: bool  # its errors are finite


@dataclass
class _Solutions:
    """What is stored of items that have left the loop."""

    edges: Tensor  # (b, l, t, t) flows
    source: Tensor  # (b, t)
    target: Tensor  # (b, t)
    value: Tensor  # (b,)
    nodes: Tensor  # (b, l+1, t) potentials
    source_node: Tensor  # (b,)
    converged: Tensor  # (b,) bool
    iterations: Tensor  # (b,)
    errors: Tensor  # (3, b) conservation, dual, centrality
    cut: Tensor  # (b,)

    @classmethod
    def empty(cls, network: LayeredNetwork) -> _Solutions:
        """Those of dead items."""
        b, layers, t, _ = network.capacity.shape
        return cls(
            edges=torch.zeros_like(network.capacity),
            source=torch.zeros_like(network.source),
            target=torch.zeros_like(network.target),
            value=torch.zeros_like(network.kappa),
            nodes=network.capacity.new_zeros(b, layers + 1, t),
            source_node=torch.zeros_like(network.kappa),
            converged=network.dead.clone(),
            iterations=torch.zeros_like(network.edges),
            errors=network.kappa.new_zeros(3, b),
            cut=torch.zeros_like(network.kappa),
        )

    def put(self, items: Tensor, solutions: _Solutions) -> None:
        """Store those of some items, which may have fewer tokens."""
        t = solutions.source.shape[1]
        self.edges[items, :, :t, :t] = solutions.edges
        self.source[items, :t] = solutions.source
        self.target[items, :t] = solutions.target
        self.value[items] = solutions.value
        self.nodes[items, :, :t] = solutions.nodes
        self.source_node[items] = solutions.source_node
        self.converged[items] = solutions.converged
        self.iterations[items] += solutions.iterations
        self.errors[:, items] = solutions.errors
        self.cut[items] = solutions.cut

    def clear(self, unsound: list[int]) -> None:
        """Set the flows of items that broke down to 0 everywhere, and their errors to 1."""
        for numbers in (self.edges, self.source, self.target, self.value, self.nodes, self.source_node):
            numbers[unsound] = 0
        self.errors[:, unsound] = 1


class _Results:
    """Collects the items of a batch as they leave the loop."""

    def __init__(self, network: LayeredNetwork, mu: Tensor):
        self.network = network
        self.mu = mu
        self.solutions: _Solutions | None = None  # not before an item leaves: long texts need the memory until then
        self.seconds = torch.zeros_like(mu)

    def set_seconds(self, items: list[int], seconds: float) -> None:
        """Store how long the group of these items took."""
        if len(items) == len(self.seconds):
            self.seconds.fill_(seconds)
        else:
            self.seconds[items] = seconds

    def store(self, state: State, leaving: list[_Leaving], errors: Tensor) -> None:
        """Store flows and `errors` (3, b) of the items that leave a state."""
        network = self.network
        device = network.capacity.device
        if len(leaving) < len(state.items):
            index = [item.index for item in leaving]
            state = state.take(index)
            errors = errors[:, index]
        unit = network.unit
        items = None
        if len(state.items) < len(unit):
            items = torch.tensor(state.items, device=device)
            unit = unit[items]
        cut = state.cut()
        edges = state.inner(1).mul_(unit[:, None, None, None])  # in place: long texts need the memory
        return_freed_memory(network.capacity.nbytes)
        with torch.inference_mode(False):  # results may be used in autograd
            solutions = _solutions(state, unit, edges, leaving, errors, cut)
            if self.solutions is None and edges.shape == network.capacity.shape:
                solutions.edges = edges.clone()
                self.solutions = solutions
            else:
                if self.solutions is None:
                    self.solutions = _Solutions.empty(network)
                if items is None:
                    items = torch.arange(len(unit), device=device)
                self.solutions.put(items, solutions)
            unsound = [state.items[k] for k, item in enumerate(leaving) if not item.sound]
            if unsound:
                self.solutions.clear(unsound)

    def flow(self) -> Flow:
        """The finished batch with its certificate."""
        network = self.network
        solutions = self.solutions
        if solutions is None:
            solutions = _Solutions.empty(network)
        kappa = network.kappa.masked_fill(network.dead, 1)
        value = solutions.value
        conservation, dual, centrality = solutions.errors.unbind()
        certificate = BatchCertificate(
            conservation=conservation,
            dual=dual,
            centrality=centrality,
            gap=(solutions.cut - value).clamp_min(0),  # below 0 by rounding only
            cut=solutions.cut,
            kappa=network.kappa,
            mu=self.mu,
            epsilon=2 * network.edges * self.mu / kappa,
            edges=network.edges,
            negligible=network.negligible,
            gamma=torch.zeros_like(value),
            clamped=torch.zeros_like(network.dead),
            dead=network.dead,
            iterations=solutions.iterations,
            seconds=self.seconds,
            converged=solutions.converged,
        )
        potentials = Potentials(nodes=solutions.nodes, source=solutions.source_node, target=torch.zeros_like(value))
        return Flow(
            edges=solutions.edges,
            source=solutions.source,
            target=solutions.target,
            value=value,
            mu=self.mu,
            converged=solutions.converged,
            certificate=certificate,
            capacity=network.capacity,
            potentials=potentials,
        )


def _solutions(
    state: State, unit: Tensor, edges: Tensor, leaving: list[_Leaving], errors: Tensor, cut: Tensor
) -> _Solutions:
    """Those of all items of a state. `edges` are the flows in the network's own units, `cut` is in units of flow."""
    layers, t = state.shape
    converged = [item.converged for item in leaving]
    if all(converged):
        is_converged = torch.ones_like(unit, dtype=torch.bool)
    else:
        is_converged = torch.tensor(converged, device=unit.device)
    source, target, returning = state.outer()[1].split([t, t, 1], -1)
    node = state.node.sum(0)
    return _Solutions(
        edges=edges,
        source=source * unit[:, None],
        target=target * unit[:, None],
        value=returning[:, 0] * unit,
        nodes=node[:, :-1].unflatten(1, (layers + 1, t)).contiguous(),
        source_node=node[:, -1].clone(),
        converged=is_converged,
        iterations=state.taken.clone(),
        errors=errors.clone(),
        cut=cut * unit,
    )
