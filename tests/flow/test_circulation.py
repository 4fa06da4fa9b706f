"""Circulations of minimum cost: against linear programs, brute force and maximum flows."""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from gaflow.errors import ArgumentError
from gaflow.flow.maxflow.circulation import min_cost_circulation
from gaflow.flow.maxflow.max_flow import max_flow
from gaflow.flow.paper_algorithms import dense_network
from tests.support.networks import random_information


def random_network(seed: int, nodes: int, edges: int) -> tuple[np.ndarray, ...]:
    """Edges between random nodes, loops and parallel ones included; few of them must carry flow."""
    generator = np.random.default_rng(seed)
    tail = generator.integers(0, nodes, edges)
    head = generator.integers(0, nodes, edges)
    lower = generator.integers(0, 3, edges) * (generator.random(edges) < 0.3)
    upper = lower + generator.integers(0, 8, edges)
    cost = generator.integers(-9, 10, edges)
    return tail, head, lower, upper, cost


def balance(tail: np.ndarray, head: np.ndarray, nodes: int) -> np.ndarray:
    """B' of the paper, (n, m): -1 at the tail, 1 at the head."""
    matrix = np.zeros((nodes, len(tail)))
    np.add.at(matrix, (tail, np.arange(len(tail))), -1)
    np.add.at(matrix, (head, np.arange(len(tail))), 1)
    return matrix


@pytest.mark.parametrize("seed", range(60))
def test_cost_and_feasibility_are_those_of_a_linear_program(seed):
    nodes = 2 + seed % 7
    tail, head, lower, upper, cost = random_network(seed, nodes, 3 * nodes)
    matrix = balance(tail, head, nodes)
    bounds = np.stack([lower, upper], 1)
    program = linprog(cost, A_eq=matrix, b_eq=np.zeros(nodes), bounds=bounds, method="highs")
    if program.status == 2:
        with pytest.raises(ArgumentError, match="no circulation"):
            min_cost_circulation(tail, head, lower, upper, cost)
        return
    flow, total = min_cost_circulation(tail, head, lower, upper, cost)
    assert total == round(program.fun)
    assert abs(program.fun - total) < 1e-6
    assert (matrix @ flow.numpy() == 0).all()
    assert (lower <= flow.numpy()).all()
    assert (flow.numpy() <= upper).all()
    assert int(cost @ flow.numpy()) == total


@pytest.mark.parametrize("seed", range(20))
def test_no_other_circulation_is_cheaper(seed):
    tail, head, lower, upper, cost = random_network(seed, 3, 5)
    upper = np.minimum(upper, lower + 3)
    matrix = balance(tail, head, 3)
    costs = []
    for flow in itertools.product(*map(range, lower, upper + 1)):
        if not (matrix @ flow).any():
            costs.append(int(cost @ np.array(flow)))
    if costs:
        assert min_cost_circulation(tail, head, lower, upper, cost).cost == min(costs)
    else:
        with pytest.raises(ArgumentError, match="no circulation"):
            min_cost_circulation(tail, head, lower, upper, cost)


@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_a_return_edge_of_cost_minus_one_makes_it_a_maximum_flow(direction):
    """The remark after eq. 8, on the integers of Algorithms 1 and 2."""
    information = random_information(0, 3, 4, 4, density=0.8)
    network = dense_network(information, direction)
    tail, head = network.adjacency.nonzero().unbind(1)
    upper = network.upper_int[tail, head]
    tail = torch.cat([tail, torch.tensor([network.target])])
    head = torch.cat([head, torch.tensor([network.source])])
    upper = torch.cat([upper, upper.sum()[None]])
    cost = torch.zeros_like(upper)
    cost[-1] = -1
    circulation = min_cost_circulation(tail, head, torch.zeros_like(upper), upper, cost)
    value = max_flow(information, direction, terminal="tokens").value.item()
    assert circulation.flow[-1].item() == -circulation.cost
    assert circulation.flow[-1].item() / network.gamma == value


def test_the_example_of_the_documentation():
    flow, cost = min_cost_circulation([0, 1, 1], [1, 0, 0], [0, 0, 1], [5, 2, 4], [0, -1, 1])
    assert flow.tolist() == [3, 2, 1]
    assert flow.dtype == torch.int64
    assert cost == -1


@pytest.mark.parametrize("dead_end", [(0, 2), (2, 0)])
def test_an_edge_to_or_from_nowhere_carries_nothing(dead_end):
    tail, head = dead_end
    flow, cost = min_cost_circulation([0, 1, tail], [1, 0, head], [0, 0, 0], [5, 2, 4], [0, -1, -9])
    assert flow.tolist() == [2, 2, 0]
    assert cost == -2


def test_a_network_without_edges_has_a_circulation_of_nothing():
    flow, cost = min_cost_circulation([], [], [], [], [])
    assert flow.tolist() == []
    assert cost == 0


def test_costs_beyond_64_bits_are_summed_exactly():
    amount = 10**9
    price = -(10**11)
    flow, cost = min_cost_circulation([0, 1], [1, 0], [0, 0], [amount, amount], [price, 0])
    assert flow.tolist() == [amount, amount]
    assert cost == amount * price < -(2**63)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tail": [0, -1]}, "tail must hold numbers that are not negative"),
        ({"tail": [2**30, 0]}, "tail must hold numbers that are not negative"),
        ({"head": [2**30, 0]}, "head must hold numbers that are not negative"),
        ({"lower": [2**62, 0]}, "lower must hold numbers that are not negative"),
        ({"lower": [-1, 0]}, "lower must hold numbers that are not negative"),
        ({"lower": [4, 9]}, "lower of edge 1 is 9, which is more than its upper bound 4"),
        ({"upper": [2**61, 2**61]}, "upper must hold numbers that are not negative"),
        ({"cost": [1]}, "cost has 1 values where 2 are needed"),
        ({"cost": [[1, 2]]}, "cost must be a list"),
        ({"cost": [[1], [2, 3]]}, "cost must be a list"),
    ],
)
def test_what_is_no_network_is_refused(changes, message):
    arguments = {"tail": [0, 1], "head": [1, 0], "lower": [0, 0], "upper": [4, 4], "cost": [1, 1]}
    with pytest.raises(ArgumentError, match=message):
        min_cost_circulation(**{**arguments, **changes})


def test_fractions_are_refused():
    with pytest.raises(TypeError, match="whole numbers"):
        min_cost_circulation([0], [0], [0], [1.5], [1])
