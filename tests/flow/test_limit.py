"""Where barrier solutions go as mu falls: to the analytic centre of the set of maximum flows."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, linprog

from benchmarks.cvxpy_reference import CLARABEL_SETTINGS, _import_cvxpy, _incidence
from gaflow.flow.barrier.solve import solve
from gaflow.flow.maxflow.max_flow import max_flow
from gaflow.flow.network import LayeredNetwork
from gaflow.flow.paper_algorithms import Arcs, layered_arcs
from tests.support.networks import random_information


def edge_ranges(arcs: Arcs, balance: np.ndarray, value: float) -> np.ndarray:
    """Least and largest flow (2, m) of every edge over all maximum flows, by HiGHS."""
    m = len(arcs.capacity)
    source = (arcs.tail == arcs.source).astype(float)
    equal = np.vstack([balance, source])
    right = np.append(np.zeros(len(balance)), value)
    bounds = np.stack([np.zeros(m), arcs.capacity], 1)
    ranges = np.zeros((2, m))
    for edge in range(m):
        cost = np.zeros(m)
        cost[edge] = 1
        for row, sign in enumerate((1, -1)):
            program = linprog(sign * cost, A_eq=equal, b_eq=right, bounds=bounds, method="highs")
            ranges[row, edge] = sign * program.fun
    return ranges


def analytic_centre(network: LayeredNetwork, value: float, weighted: bool) -> np.ndarray:
    """The maximum flow (l t t + 2 t,) that maximises the weighted sum of the logarithms which are open on the face."""
    cp: Any = _import_cvxpy()
    capacity = network.capacity[0].numpy()
    arcs = layered_arcs(capacity, network.source[0].numpy(), network.target[0].numpy(), "backward")
    inner = np.ones(arcs.nodes, dtype=bool)
    inner[[arcs.source, arcs.target]] = False
    balance = _incidence(arcs).toarray()[:-1].T[inner]
    low, high = edge_ranges(arcs, balance, value)
    can_carry = high > 1e-7
    has_room = low < arcs.capacity - 1e-7
    weight = arcs.capacity if weighted else np.ones_like(arcs.capacity)
    flow = cp.Variable(len(arcs.capacity))
    carried = cp.sum(cp.multiply(weight[can_carry], cp.log(flow[can_carry])))
    room = cp.sum(cp.multiply(weight[has_room], cp.log((arcs.capacity - flow)[has_room])))
    constraints = [balance @ flow == 0, flow[~can_carry] == 0, flow[~has_room] == arcs.capacity[~has_room]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "may be inaccurate": it goes as far as it can
        cp.Problem(cp.Maximize(carried + room), constraints).solve(solver="CLARABEL", **CLARABEL_SETTINGS)
    edges = np.zeros(capacity.size + 2 * capacity.shape[-1])
    edges[arcs.slot] = flow.value
    return edges


@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
@pytest.mark.parametrize("seed", range(4))
def test_solutions_tend_to_the_analytic_centre_of_the_maximum_flows(seed, barrier):
    information = random_information(seed, 3, 3, 3, density=0.8)
    terminal = "adjacent" if barrier == "capacity" else None
    network = LayeredNetwork.build(information, terminal)
    value = max_flow(information, integral=False).value.item()
    centre = analytic_centre(network, value, barrier == "capacity")
    errors = []
    for epsilon in (1e-2, 1e-4, 1e-9):
        flow = solve(information, epsilon=epsilon, barrier=barrier)
        edges = torch.cat([flow.edges[0].flatten(), flow.source[0], flow.target[0]]).numpy()
        errors.append(np.abs(edges - centre).max() / value)
    assert errors[0] > errors[1] > errors[2]
    assert errors[1] < 0.05 * errors[0]  # in proportion to mu
    assert errors[2] < 1e-5  # what is left is CVXPY's


@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
def test_one_unit_shared_by_two_tokens_is_where_the_derivative_vanishes(barrier):
    """One edge lets 1 through, then tokens 0 and 1 are behind edges of 3 and 2 and terminals of 4."""
    information = torch.tensor([[[3.0, 2.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]]])

    def weight(capacity: float) -> float:
        return capacity if barrier == "capacity" else 1.0

    def slope(first: float) -> float:
        """Of the logarithms of both tokens' edges, if token 0 has `first`."""
        total = 0.0
        for capacity in (3.0, 4.0):
            total += weight(capacity) * (1 / first - 1 / (capacity - first))
        for capacity in (2.0, 4.0):
            total -= weight(capacity) * (1 / (1 - first) - 1 / (capacity - 1 + first))
        return total

    flow = solve(information, epsilon=1e-10, barrier=barrier, terminal=4.0)
    expected: Any = brentq(slope, 1e-9, 1 - 1e-9, xtol=1e-14)
    assert abs(expected - 0.5) > 0.01
    assert flow.target[0].tolist() == pytest.approx([expected, 1 - expected], rel=1e-8)
