"""Capacities in integers: exact where they can be, never too many bits, and checked after solving."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from gaflow.errors import GaflowError
from gaflow.flow.maxflow import integer_network as integers
from gaflow.flow.maxflow.integer_network import Problem, run_solver
from gaflow.flow.paper_algorithms import dense_network


def random_information(seed: int, *shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_fine_integers_are_the_capacities_of_single_precision_exactly():
    information = random_information(0, 3, 5, 5).float().double() + 2.0**-20
    network = Problem.build(information).integers(0)
    unit = Fraction(2) ** -network.bits
    inner = network.arcs.slot < information.numel()
    for capacity, integer in zip(network.arcs.capacity[inner], network.capacity[inner].tolist(), strict=True):
        assert integer * unit == Fraction(capacity)
    np.testing.assert_array_equal(network.to_units(network.capacity[inner]), network.arcs.capacity[inner])


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e290])
@pytest.mark.parametrize("orders", [0, 30])
def test_sums_stay_below_the_headroom_and_use_it(orders, scale):
    information = scale * 10.0 ** (-orders * random_information(1, 4, 6, 6))
    network = Problem.build(information).integers(0)
    into = np.zeros(4 * 6 + 6 + 2, dtype=object)  # Python integers do not wrap around
    np.add.at(into, network.arcs.head, network.capacity.astype(object))
    assert max(into) <= 2**62 + 6
    assert sum(network.capacity.tolist()) > 2**60


@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_integers_of_the_algorithms_are_the_dense_ones(direction):
    information = random_information(2, 3, 4, 4)
    dense = dense_network(information, direction)
    network = Problem.build(information, terminal=4).integers(0, direction, integral=True)
    inner = network.arcs.slot < information.numel()
    printed = dense.upper_int.numpy()[network.arcs.tail, network.arcs.head]
    np.testing.assert_array_equal(network.capacity[inner], printed[inner])
    assert (network.capacity[~inner] <= printed[~inner]).all()
    assert (network.gamma, network.bits, network.clamped) == (dense.gamma, 0, dense.clamped)


def test_terminals_are_one_unit_wider_than_what_is_beside_them():
    information = torch.full((2, 3, 3), 1.0)  # t times the largest is here just what is beside a terminal
    network = Problem.build(information).integers(0, integral=True)
    assert sorted(network.capacity.tolist()) == [1] * 18 + [4] * 6
    narrow = Problem.build(information, terminal=2).integers(0, integral=True)
    assert sorted(narrow.capacity.tolist()) == [1] * 18 + [2] * 6


def test_narrow_terminals_keep_their_digits():
    network = Problem.build(torch.ones(2, 3, 3), terminal=1e-30).integers(0)
    assert network.to_units(run_solver(network).value) == pytest.approx(3e-30, rel=1e-15)


def test_both_cuts_are_those_at_the_ends():
    path = torch.tensor([0.5, 2.0, 0.5])[:, None, None]
    solution = run_solver(Problem.build(path).integers(0))
    assert solution.near_source.tolist() == [False, False, False, False, True, True]  # 0 is the target, 5 the source
    assert solution.near_target.tolist() == [False, False, True, True, True, True]


def test_an_empty_network_has_no_flow():
    solution = run_solver(Problem.build(torch.zeros(2, 3, 3)).integers(0))
    assert solution.value == 0
    assert solution.flow.shape == (0,)
    assert np.flatnonzero(solution.near_source).tolist() == [10]
    assert np.flatnonzero(~solution.near_target).tolist() == [0]


class Liar:
    """A library that solves something else, or nothing."""

    OPTIMAL = 0

    def __init__(self, status: int):
        self.status = status

    def add_arcs_with_capacity(self, tail, head, capacity):
        self.capacity = capacity
        return np.arange(len(capacity))

    def solve(self, source, target):
        self.source, self.target = source, target
        return self.status

    def optimal_flow(self):
        return 0

    def num_arcs(self):
        return len(self.capacity)

    def flows(self, numbers):
        return self.capacity[numbers] // 2

    def get_source_side_min_cut(self):
        return [self.source]

    def get_sink_side_min_cut(self):
        return [self.target]


def test_a_flow_that_is_not_its_cut_is_refused(monkeypatch):
    problem = Problem.build(torch.ones(2, 3, 3)).integers(0)
    monkeypatch.setattr(integers, "new_solver", lambda: Liar(0))
    with pytest.raises(GaflowError, match="minimum cut"):
        run_solver(problem)
    monkeypatch.setattr(integers, "new_solver", lambda: Liar(3))
    with pytest.raises(GaflowError, match="24 edges: status 3"):
        run_solver(problem)
