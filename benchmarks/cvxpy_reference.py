"""Eq. 8 and eq. 12 written down in CVXPY and solved by Clarabel: slow, independent, for small networks.

    maximise  f_return                                              B'f = 0,  0 <= f <= u        (eq. 8)
    maximise  f_return + sum_e mu_e (log f_e + log(u_e - f_e))      B'f = 0                      (eq. 12)

The edges are those of Algorithm 1 (backward) or 2 (forward), live ones only: a dead edge would leave eq. 12
without an interior. Capacities are divided by kappa first, since Clarabel's tolerances are absolute. With
tightened tolerances it is good to about 1e-8 for epsilon >= 1e-3 on networks of a few hundred edges, and
gives up far below.

The convention this file owns: `converged` is read off the certificate (conservation and dual error, for
eq. 8 the gap, each relative to the flow value), not off Clarabel's status: below mu of about 1e-8 kappa its
own tolerances say little about single edges.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaflow.arguments import one_of
from gaflow.errors import Argument, ArgumentError, GaflowError
from gaflow.extras import need
from gaflow.flow.arguments import ArrayLike, Nodes, only_network
from gaflow.flow.barrier.solve import BARRIERS, Barrier
from gaflow.flow.network import LayeredNetwork, Terminal
from gaflow.flow.paper_algorithms import Arcs, Direction, check_direction, layered_arcs
from gaflow.flow.result import BatchCertificate, Flow, Potentials

__all__ = ["cvxpy_flow"]

# Tolerances out of reach: Clarabel goes as far as it can.
CLARABEL_SETTINGS = {"tol_gap_abs": 1e-15, "tol_gap_rel": 1e-15, "tol_feas": 1e-15, "max_iter": 500}
MAX_IMBALANCE_SHARE = 1e-9  # of the flow value, for a flow to have converged
MAX_ERROR_SHARE = 1e-8  # of the flow value, for dual error or gap


def cvxpy_flow(
    information: ArrayLike,
    *,
    epsilon: float = 1e-6,
    mu: float | None = None,
    barrier: Barrier = "uniform",
    terminal: Terminal = None,
    direction: Direction = "backward",
    sources: Nodes = None,
    targets: Nodes = None,
) -> Flow:
    """The flow of one network (l, t, t) as a batch of one; `epsilon=0` or `mu=0` is eq. 8, plain max-flow."""
    _import_cvxpy()
    check_direction(direction)
    one_of("barrier", barrier, BARRIERS)
    if terminal is None and barrier == "capacity":
        terminal = "adjacent"
    if isinstance(information, Tensor):
        information = information.cpu()
    network = LayeredNetwork.build(information, terminal, None, sources, targets)
    only_network(network.capacity, "cvxpy_flow")
    edges = int(network.edges)
    if mu is None:
        mu = epsilon * float(network.kappa) / (2 * edges) if edges else 0.0
    if mu < 0:
        raise ArgumentError(
            Argument("epsilon"), " and ", Argument("mu"), f" must not be negative, not {epsilon!r} and {mu!r}"
        )
    solution = _solve(network, mu, barrier, direction) if edges else _no_flow(network)
    return _flow(network, mu, solution)


@dataclass(frozen=True)
class _Solution:
    flow: np.ndarray  # (l t t + 2 t,) layer edges, source edges, target edges
    potential: np.ndarray  # (n,) in the node numbers of Algorithm 1, the super-target at 0
    value: float
    conservation: float
    dual: float
    cut: float
    iterations: int
    seconds: float
    converged: bool


def _no_flow(network: LayeredNetwork) -> _Solution:
    """The flow of a network without a path."""
    size = network.capacity.numel() + network.source.numel() + network.target.numel()
    return _Solution(
        flow=np.zeros(size),
        potential=np.zeros(network.capacity.shape[1] * network.source.numel() + network.source.numel() + 2),
        value=0.0,
        conservation=0.0,
        dual=0.0,
        cut=0.0,
        iterations=0,
        seconds=0.0,
        converged=True,
    )


def _solve(network: LayeredNetwork, mu: float, barrier: Barrier, direction: Direction) -> _Solution:
    started = time.perf_counter()
    kappa = float(network.kappa)
    capacity = network.capacity[0].numpy() / kappa
    source = network.source[0].numpy() / kappa
    target = network.target[0].numpy() / kappa
    arcs = layered_arcs(capacity, source, target, direction)
    upper = np.append(arcs.capacity, arcs.capacity.sum())
    weight = np.append(arcs.capacity, 1.0) if barrier == "capacity" else np.ones_like(upper)
    edge_mu = mu / kappa * weight / weight.mean()
    incidence = _incidence(arcs)
    share, potential, iterations = _minimise(incidence, upper, edge_mu)
    flow = share * upper
    value = float(flow[-1])
    cut = _cut(arcs, potential)
    conservation = float(np.abs(incidence.T @ flow).max() / value)
    dual = 0.0
    error = (cut - value) / value
    if mu:
        cost = incidence @ potential
        cost[-1] -= 1.0  # of the return edge
        dual = float(np.abs(_dual_error(cost, flow, upper - flow, edge_mu)).max() / value)
        error = dual
    edge_flow = np.zeros(capacity.size + source.size + target.size)
    edge_flow[arcs.slot] = flow[:-1] * kappa
    return _Solution(
        flow=edge_flow,
        potential=_potential(arcs, potential, direction),
        value=value * kappa,
        conservation=conservation,
        dual=dual,
        cut=cut * kappa,
        iterations=iterations,
        seconds=time.perf_counter() - started,
        converged=bool(conservation < MAX_IMBALANCE_SHARE and error < MAX_ERROR_SHARE),
    )


def _dual_error(cost: np.ndarray, flow: np.ndarray, slack: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """Error of each edge's flow because `s = z - v` does not hold with the barrier's own `z = mu / f`, `v = mu / g`.

    To first order: the dual error of the barrier solver's certificate, here of edges that are all central.
    """
    z = mu / flow
    v = mu / slack
    return (cost - z + v) * flow * slack / (z * slack + v * flow)


def _incidence(arcs: Arcs) -> Any:
    """B (m, n) of the circulation, the return edge last: -1 at the tail, 1 at the head."""
    from scipy.sparse import coo_array

    tail = np.append(arcs.tail, arcs.target)
    head = np.append(arcs.head, arcs.source)
    edge = np.arange(len(tail))
    rows = np.concatenate([edge, edge])
    columns = np.concatenate([tail, head])
    values = np.repeat([-1.0, 1.0], len(tail))
    return coo_array((values, (rows, columns)), shape=(len(tail), arcs.nodes)).tocsc()


def _minimise(incidence: Any, upper: np.ndarray, edge_mu: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Shares f / u of eq. 8 or 12, node potentials, iterations."""
    cp = _import_cvxpy()
    share = cp.Variable(len(upper))
    conservation = (incidence.T * upper) @ share == 0
    objective = -upper[-1] * share[-1]
    constraints = [conservation]
    if edge_mu.any():
        objective -= edge_mu @ (cp.log(share) + cp.log(1 - share))
    else:
        constraints += [share >= 0, share <= 1]
    problem = cp.Problem(cp.Minimize(objective), constraints)
    advice = (f" on {len(upper)} edges; raise ", Argument("epsilon"), ", or use solve()")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "may be inaccurate": the certificate says so
            problem.solve(solver="CLARABEL", **CLARABEL_SETTINGS)
    except cp.error.SolverError as error:
        raise GaflowError("Clarabel gave up", *advice) from error
    if share.value is None:
        raise GaflowError(f"Clarabel ended {problem.status}", *advice)
    return share.value, conservation.dual_value, problem.solver_stats.num_iters


def _cut(arcs: Arcs, potential: np.ndarray) -> float:
    """Capacity of the fractional cut that the potentials describe: no flow can exceed it."""
    side = np.clip(potential - potential[arcs.target], 0, 1)
    side[arcs.source] = 1
    return float(arcs.capacity @ np.maximum(side[arcs.tail] - side[arcs.head], 0))


def _potential(arcs: Arcs, multiplier: np.ndarray, direction: Direction) -> np.ndarray:
    """`y` of the dual in eq. 8 at live nodes, for backward flow, from CVXPY's multipliers of conservation."""
    potential = multiplier[arcs.target] - multiplier
    if direction == "forward":  # every edge is turned round, and with it the sign of `y_tail - y_head`
        potential = potential[arcs.source] - potential
    alive = arcs.alive()
    alive[arcs.target] = True
    return np.where(alive, potential, 0.0)


def _import_cvxpy() -> Any:
    # CVXPY brings a HiGHS of its own, after which that of OR-Tools (see integer_network.py) could no longer be loaded.
    with contextlib.suppress(ImportError):
        import ortools.graph.python.max_flow  # noqa: F401
    need("clarabel", "dev", "cvxpy_flow needs CVXPY and Clarabel")
    need("cvxpy", "dev", "cvxpy_flow needs CVXPY and Clarabel")
    import cvxpy

    return cvxpy


def _flow(network: LayeredNetwork, mu: float, solution: _Solution) -> Flow:
    """The solution as a batch of one."""
    _, layers, t, _ = network.capacity.shape
    edges, source, target = torch.as_tensor(solution.flow)[None].split([layers * t * t, t, t], 1)
    kappa = float(network.kappa)
    count = int(network.edges)

    def one(value: float | int | bool) -> Tensor:
        dtype = torch.float64 if isinstance(value, float) else None
        return torch.tensor([value], dtype=dtype)

    value = one(solution.value)
    certificate = replace(
        BatchCertificate.start(network, value, one(solution.cut)),
        conservation=one(solution.conservation),
        dual=one(solution.dual),
        mu=one(mu),
        epsilon=one(2 * count * mu / kappa if count else 0.0),
        negligible=one(0),
        iterations=one(solution.iterations),
        seconds=one(solution.seconds),
        converged=one(solution.converged),
    )
    return Flow(
        edges=edges.reshape(1, layers, t, t),
        source=source,
        target=target,
        value=value,
        mu=certificate.mu,
        converged=certificate.converged,
        certificate=certificate,
        capacity=network.capacity,
        potentials=Potentials(
            nodes=torch.as_tensor(solution.potential[1:-1]).reshape(1, layers + 1, t),
            source=one(float(solution.potential[-1])),
            target=one(float(solution.potential[0])),
        ),
    )
