"""Potentials and dual values: against exact arithmetic, CVXPY's multipliers, and the closed form of an edge's flow."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from benchmarks.cvxpy_reference import cvxpy_flow
from gaflow.flow.barrier.solve import solve
from gaflow.flow.maxflow.max_flow import max_flow
from gaflow.flow.network import LayeredNetwork
from gaflow.flow.result import Flow
from tests.support.networks import random_attention, random_information


def reduced_costs(flow: Flow, item: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """`s = c + y_tail - y_head` of layer edges (l, t, t), source edges, target edges and the return edge."""
    potentials = flow.potentials
    assert potentials is not None
    nodes = potentials.nodes[item].numpy()
    source = potentials.source[item].item()
    target = potentials.target[item].item()
    layers = nodes[1:, :, None] - nodes[:-1, None, :]
    return layers, source - nodes[-1], nodes[0] - target, -1 + target - source


def exact_dual_value(flow: Flow, network: LayeredNetwork, item: int = 0) -> Fraction:
    """-sum_e min(0, u_e s_e), the dual objective of eq. 8 with its sign turned round, in rational numbers."""
    layers, source, target, returning = reduced_costs(flow, item)
    costs = [*layers.ravel(), *source, *target, returning]
    capacity = torch.cat([network.capacity[item].flatten(), network.source[item], network.target[item]]).tolist()
    capacity.append(network.returning[item].item())
    value = Fraction(0)
    for cost, upper in zip(costs, capacity, strict=True):
        value += Fraction(upper) * max(Fraction(0), -Fraction(float(cost)))
    return value


@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
@pytest.mark.parametrize("epsilon", [1e-8, 1e-6, 1e-3, 1.0])
@pytest.mark.parametrize(("seed", "density"), [(0, 1.0), (1, 0.6), (2, 0.35)])
def test_the_dual_value_of_the_potentials_bounds_the_flow_by_the_gap_of_eq_12(barrier, epsilon, seed, density):
    information = random_information(seed, 4, 6, 6, density=density)
    flow = solve(information, epsilon=epsilon, barrier=barrier)
    terminal = "adjacent" if barrier == "capacity" else None
    network = LayeredNetwork.build(information, terminal)
    value = Fraction(flow.value.item())
    dual = exact_dual_value(flow, network)
    rounding = Fraction(1, 10**12) * value
    # f z + (u - f) v = 2 mu_e on every edge, and the mean of mu_e is mu
    barrier_gap = Fraction(2 * int(network.edges) * flow.mu.item())
    assert value - rounding <= dual <= value + barrier_gap + rounding
    best = Fraction(flow.dual_value.item())
    assert best <= dual + rounding
    maximum = max_flow(information, integral=False)
    assert value <= Fraction(maximum.value.item()) + rounding
    assert Fraction(maximum.value.item()) <= best + rounding


@pytest.mark.parametrize("epsilon", [1e-9, 1e-6, 1e-2, 10.0])
def test_value_dual_value_and_gap_are_in_order_to_the_last_bit(epsilon):
    information = torch.stack([random_information(seed, 3, 7, 7, density=0.7) for seed in range(20)])
    for flow in (solve(information, epsilon=epsilon), max_flow(information), max_flow(information, integral=False)):
        assert flow.dual_value.dtype == flow.value.dtype == torch.float64
        assert (flow.value <= flow.dual_value).all()
        assert (flow.dual_value <= flow.value + flow.certificate.gap).all()
        torch.testing.assert_close(flow.dual_value, flow.certificate.cut, rtol=1e-13, atol=0)


@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize("seed", range(6))
def test_a_plain_maximum_flow_has_strong_duality_and_complementary_slackness(seed, direction):
    information = random_information(seed, 3, 5, 5, density=0.5)
    flow = max_flow(information, direction, integral=False)
    network = LayeredNetwork.build(information)
    dual = exact_dual_value(flow, network)
    assert float(dual) == pytest.approx(flow.value.item(), rel=1e-14)
    layers, _, _, returning = reduced_costs(flow)
    assert returning == 0
    edges = flow.edges[0].numpy()
    capacity = network.capacity[0].numpy()
    live = capacity > 0
    np.testing.assert_allclose(edges[live & (layers < 0)], capacity[live & (layers < 0)], rtol=1e-12)
    np.testing.assert_array_equal(edges[live & (layers > 0)], 0)


@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
def test_potentials_are_the_multipliers_of_conservation_that_cvxpy_finds(barrier, direction):
    for seed in range(3):
        information = random_information(seed, 2, 3, 3)
        flow = solve(information, epsilon=0.1, barrier=barrier)
        reference = cvxpy_flow(information, epsilon=0.1, barrier=barrier, direction=direction)
        assert flow.potentials is not None
        assert reference.potentials is not None
        torch.testing.assert_close(flow.potentials.nodes, reference.potentials.nodes, rtol=0, atol=1e-6)
        torch.testing.assert_close(flow.potentials.source, reference.potentials.source, rtol=0, atol=1e-6)
        assert flow.potentials.target.item() == reference.potentials.target.item() == 0


def test_the_flow_of_an_edge_follows_from_the_potentials_at_its_ends():
    """The closed form: f / u = 1 / (1 + x + sqrt(1 + x^2)) with x = s u / (2 mu)."""
    information = random_attention(0, 3, 5)
    flow = solve(information, epsilon=1e-2)
    costs, _, _, _ = reduced_costs(flow)
    x = costs * information.numpy() / (2 * flow.mu.item())
    share = 1 / (1 + x + np.sqrt(1 + x**2))
    np.testing.assert_allclose(flow.edges[0].numpy(), share * information.numpy(), rtol=1e-7)


def test_dead_nodes_and_dead_networks_have_potential_0():
    information = random_information(3, 3, 6, 6, density=0.2)
    network = LayeredNetwork.build(information)
    leaving = torch.cat([network.target[:, None] > 0, (network.capacity > 0).any(-1)], 1)
    assert not leaving.all()
    for flow in (solve(information), max_flow(information), max_flow(information, "forward")):
        assert flow.potentials is not None
        assert not flow.potentials.nodes[~leaving].any()
    for flow in (solve(torch.zeros(2, 3, 3)), max_flow(torch.zeros(2, 3, 3))):
        assert flow.potentials is not None
        for part in (flow.potentials.nodes, flow.potentials.source, flow.potentials.target):
            assert not part.any()
        assert flow.dual_value.tolist() == [0]


def test_an_item_of_a_batch_has_the_potentials_that_it_has_alone():
    information = torch.stack([random_information(seed, 2, 4, 4) for seed in range(3)])
    batch = solve(information)
    for item in range(3):
        alone = solve(information[item]).potentials
        of_item = batch[item].potentials
        assert alone is not None
        assert of_item is not None
        assert of_item.nodes.shape == (1, 3, 4)
        torch.testing.assert_close(of_item.nodes, alone.nodes, rtol=0, atol=1e-12)
        torch.testing.assert_close(of_item.source, alone.source, rtol=0, atol=1e-12)


@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_potentials_of_chosen_ends_bound_the_flow_between_them(direction):
    information = random_information(5, 3, 6, 6)
    flow = max_flow(information, direction, integral=False, sources=[0, 2], targets=[1, 4, 5])
    network = LayeredNetwork.build(information, None, None, [0, 2], [1, 4, 5])
    assert float(exact_dual_value(flow, network)) == pytest.approx(flow.value.item(), rel=1e-14)
