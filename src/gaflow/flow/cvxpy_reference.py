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
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaflow.errors import GaflowError, MissingExtraError
from gaflow.flow.arguments import Nodes, as_networks, as_nodes
from gaflow.flow.network import LayeredNetwork
from gaflow.flow.paper_algorithms import Arcs, check_direction, layered_arcs
from gaflow.flow.result import BatchCertificate, Flow

__all__ = ["cvxpy_flow"]

# Tolerances out of reach: Clarabel goes as far as it can.
SETTINGS = {"tol_gap_abs": 1e-15, "tol_gap_rel": 1e-15, "tol_feas": 1e-15, "max_iter": 500}
CONSERVED, OPTIMAL = 1e-9, 1e-8  # of the flow value: what `converged` asks of conservation and of dual error or gap


def cvxpy_flow(
    information: Any,
    *,
    epsilon: float = 1e-6,
    mu: float | None = None,
    barrier: str = "uniform",
    terminal: float | str | None = None,
    direction: str = "backward",
    sources: Nodes | None = None,
    targets: Nodes | None = None,
) -> Flow:
    """The flow of one network (l, t, t) as a batch of one; `epsilon=0` or `mu=0` is eq. 8, plain max-flow."""
    _cvxpy()
    check_direction(direction)
    if barrier not in ("uniform", "capacity"):
        raise ValueError(f"barrier must be uniform or capacity, not {barrier!r}")
    networks = as_networks(information).cpu()
    if len(networks) != 1:
        raise ValueError(f"cvxpy_flow takes one network (l, t, t), not a batch of {len(networks)}: index it first")
    if terminal is None and barrier == "capacity":
        terminal = "adjacent"
    above, below = as_nodes(sources, networks, None, "sources"), as_nodes(targets, networks, None, "targets")
    network = LayeredNetwork.build(networks, None, terminal, above, below)
    kappa, edges = float(network.kappa), int(network.edges)
    if mu is None:
        mu = epsilon * kappa / (2 * edges) if edges else 0.0
    if mu < 0:
        raise ValueError(f"epsilon and mu must not be negative, not {epsilon!r} and {mu!r}")
    if edges:
        return _flow(network, mu, _solve(network, mu, barrier, direction))
    nothing = np.zeros(network.capacity.numel() + network.source.numel() + network.target.numel())
    return _flow(network, mu, _Solution(nothing, 0.0, 0.0, 0.0, 0.0, 0, 0.0, True))


@dataclass(frozen=True)
class _Solution:
    flow: np.ndarray  # (l t t + 2 t,) layer edges, source edges, target edges
    value: float
    conservation: float
    dual: float
    cut: float
    iterations: int
    seconds: float
    converged: bool


def _solve(network: LayeredNetwork, mu: float, barrier: str, direction: str) -> _Solution:
    began = time.perf_counter()
    kappa = float(network.kappa)
    capacity, source, target = (x[0].numpy() / kappa for x in (network.capacity, network.source, network.target))
    arcs = layered_arcs(capacity, source, target, direction)
    upper = np.append(arcs.capacity, arcs.capacity.sum())
    weight = np.append(arcs.capacity, 1.0) if barrier == "capacity" else np.ones_like(upper)
    strength = mu / kappa * weight / weight.mean()
    incidence = _incidence(arcs)
    share, potential, iterations = _minimise(incidence, upper, strength)
    flow = share * upper
    value = float(flow[-1])
    conservation = float(np.abs(incidence.T @ flow).max() / value)
    cut = _cut(arcs, potential)
    dual = 0.0
    if mu:
        cost = np.append(np.zeros_like(arcs.capacity), -1.0)
        dual = float(np.abs(_off(cost + incidence @ potential, flow, upper - flow, strength)).max() / value)
    full = np.zeros(capacity.size + source.size + target.size)
    full[arcs.slot] = flow[:-1] * kappa
    return _Solution(
        flow=full,
        value=value * kappa,
        conservation=conservation,
        dual=dual,
        cut=cut * kappa,
        iterations=iterations,
        seconds=time.perf_counter() - began,
        converged=bool(conservation < CONSERVED and (dual if mu else (cut - value) / value) < OPTIMAL),
    )


def _off(cost: np.ndarray, flow: np.ndarray, slack: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """What each edge's flow is off because `s = z - v` does not hold with the barrier's own `z = mu / f`, `v = mu / g`.

    To first order: what the barrier solver's certificate calls its dual error, here of edges that are all central.
    """
    below, above = mu / flow, mu / slack
    return (cost - below + above) * flow * slack / (below * slack + above * flow)


def _incidence(arcs: Arcs) -> Any:
    """B (m, n) of the circulation, the return edge last: -1 at the tail, 1 at the head."""
    from scipy.sparse import coo_array

    tail, head = np.append(arcs.tail, arcs.target), np.append(arcs.head, arcs.source)
    edge, one = np.arange(len(tail)), np.ones(len(tail))
    shape = (len(tail), 1 + max(arcs.source, arcs.target))
    rows, columns = np.concatenate([edge, edge]), np.concatenate([tail, head])
    return coo_array((np.concatenate([-one, one]), (rows, columns)), shape=shape).tocsc()


def _minimise(incidence: Any, upper: np.ndarray, strength: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Shares f / u of eq. 8 or 12, node potentials, iterations."""
    cp = _cvxpy()
    share = cp.Variable(len(upper))
    conservation = (incidence.T * upper) @ share == 0
    objective = -upper[-1] * share[-1]
    constraints = [conservation]
    if strength.any():
        objective -= strength @ (cp.log(share) + cp.log(1 - share))
    else:
        constraints += [share >= 0, share <= 1]
    problem = cp.Problem(cp.Minimize(objective), constraints)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "may be inaccurate": the certificate tells
            problem.solve(solver="CLARABEL", **SETTINGS)
    except cp.error.SolverError as error:
        raise GaflowError(f"Clarabel gave up on {len(upper)} edges; raise epsilon, or use solve()") from error
    if share.value is None:
        raise GaflowError(f"Clarabel ended {problem.status} on {len(upper)} edges; raise epsilon, or use solve()")
    return share.value, conservation.dual_value, problem.solver_stats.num_iters


def _cut(arcs: Arcs, potential: np.ndarray) -> float:
    """Capacity of the fractional cut that the potentials describe: no flow can exceed it."""
    side = np.clip(potential - potential[arcs.target], 0, 1)
    side[arcs.source] = 1
    return float(arcs.capacity @ np.maximum(side[arcs.tail] - side[arcs.head], 0))


def _cvxpy() -> Any:
    # CVXPY brings a HiGHS of its own, after which that of OR-Tools (see maxflow.py) could no longer be loaded.
    with contextlib.suppress(ImportError):
        import ortools.graph.python.max_flow  # noqa: F401
    try:
        import clarabel  # noqa: F401
        import cvxpy
    except ImportError as error:
        raise MissingExtraError('cvxpy_flow needs CVXPY and Clarabel: pip install "gaflow[reference]"') from error
    return cvxpy


def _flow(network: LayeredNetwork, mu: float, solution: _Solution) -> Flow:
    """The solution as a batch of one."""
    _, layers, t, _ = network.capacity.shape
    edges, source, target = torch.as_tensor(solution.flow)[None].split([layers * t * t, t, t], 1)
    kappa, count = float(network.kappa), int(network.edges)

    def one(value: float | int | bool) -> Tensor:
        dtype = torch.float64 if isinstance(value, float) else None
        return torch.tensor([value], dtype=dtype)

    certificate = BatchCertificate(
        conservation=one(solution.conservation),
        dual=one(solution.dual),
        centrality=one(0.0),
        gap=one(solution.cut - solution.value),
        cut=one(solution.cut),
        kappa=network.kappa,
        mu=one(mu),
        epsilon=one(2 * count * mu / kappa if count else 0.0),
        edges=network.edges,
        negligible=one(0),
        gamma=one(0.0),
        clamped=one(False),
        dead=network.dead,
        iterations=one(solution.iterations),
        seconds=one(solution.seconds),
        converged=one(solution.converged),
    )
    return Flow(
        edges=edges.reshape(1, layers, t, t),
        source=source,
        target=target,
        value=one(solution.value),
        mu=one(mu),
        converged=one(solution.converged),
        certificate=certificate,
        capacity=network.capacity,
    )
