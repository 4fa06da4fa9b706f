"""Algorithms 1 and 2, assignment by assignment."""

import math

import numpy as np
import pytest
import torch

from gaflow.errors import GaflowWarning
from gaflow.flow.maxflow.max_flow import max_flow
from gaflow.flow.paper_algorithms import dense_network, integral_scale, layered_arcs

INFORMATION = torch.rand(4, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def printed_backward(abar: np.ndarray) -> tuple[np.ndarray, int, int]:
    """Algorithm 1 with the loops and negative indices of the paper."""
    layers, t, _ = abar.shape
    q = t * (layers + 1) + 2
    u = np.zeros((q, q))
    for i in range(t):
        u[i + 1][0] = t
    for i in range(t):
        u[-1][-i - 2] = t
    for j in range(layers):
        start, mid, end = t * j + 1, t * (j + 1) + 1, t * (j + 2) + 1
        u[mid:end, start:mid] = abar[j, :, :]
    return u, t * (layers + 1) + 1, 0


def printed_forward(abar: np.ndarray) -> tuple[np.ndarray, int, int]:
    """Algorithm 2 likewise."""
    layers, t, _ = abar.shape
    q = t * (layers + 1) + 2
    u = np.zeros((q, q))
    for i in range(t):
        u[0][i + 1] = t
    for i in range(t):
        u[-i - 2][-1] = t
    for j in range(layers):
        start, mid, end = t * j + 1, t * (j + 1) + 1, t * (j + 2) + 1
        u[start:mid, mid:end] = abar[j, :, :].T
    return u, 0, t * (layers + 1) + 1


@pytest.mark.parametrize(("direction", "printed"), [("backward", printed_backward), ("forward", printed_forward)])
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 3, 3), (4, 3, 3), (3, 5, 5)])
def test_the_matrices_are_the_printed_ones(direction, printed, shape):
    information = np.random.default_rng(1).random(shape) * (np.random.default_rng(2).random(shape) < 0.7)
    network = dense_network(information, direction)
    upper, source, target = printed(information)
    np.testing.assert_array_equal(network.upper.numpy(), upper)
    np.testing.assert_array_equal(network.adjacency.numpy(), upper > 0)
    assert (network.source, network.target) == (source, target)
    assert not network.lower.any()
    assert not network.lower_int.any()
    np.testing.assert_array_equal(network.upper_int.numpy(), (network.gamma * upper).astype(np.int64))


def test_rows_are_tails_and_the_source_has_only_outgoing_edges():
    for direction in ("backward", "forward"):
        network = dense_network(INFORMATION, direction)
        assert not network.upper[:, network.source].any()
        assert not network.upper[network.target].any()
        assert network.upper[network.source].sum() == network.upper[:, network.target].sum() == 9


def test_forward_is_backward_reversed():
    backward, forward = dense_network(INFORMATION), dense_network(INFORMATION, "forward")
    assert torch.equal(forward.upper, backward.upper.T)
    assert (forward.source, forward.target) == (backward.target, backward.source)


@pytest.mark.parametrize(
    ("smallest", "gamma"),
    [(0.5, 10.0), (0.1, 10.0), (0.09, 100.0), (1e-3, 1e3), (0.00371, 1e3), (1.0, 1.0)],
)
def test_gamma_makes_the_smallest_entry_a_digit(smallest, gamma):
    information = torch.full((1, 2, 2), max(1.0, 2 * smallest), dtype=torch.float64)
    information[0, 0, 0], information[0, 1, 1] = smallest, 0
    network = dense_network(information)
    assert network.gamma == pytest.approx(gamma, rel=1e-15)
    assert not network.clamped
    assert 1 <= int(network.upper_int[3, 1]) <= 9
    assert int(network.upper_int[4, 2]) == 0


@pytest.mark.parametrize("t", [2, 9])
def test_a_gamma_that_takes_the_terminals_away_is_warned_of(t):
    information = torch.full((1, t, t), 25.0, dtype=torch.float64)
    with pytest.warns(GaflowWarning, match="gamma is 0.1"):
        network = dense_network(information)
    assert network.gamma == 0.1
    assert int(network.upper_int[1 + t, 1]) == 2
    assert not network.upper_int[network.source].any()  # as printed: int(gamma t) = 0
    with pytest.warns(GaflowWarning, match="gamma is 0.1"):
        assert max_flow(information, terminal="tokens").value.item() == 0
    assert max_flow(information).value.item() == t * t * 20  # wide terminals, and one digit of each capacity
    assert max_flow(information, integral=False, terminal="tokens").value.item() == t * t


@pytest.mark.parametrize("narrow", [0, 1])
def test_terminals_are_lost_if_those_of_one_end_are(narrow):
    information = torch.ones(2, 3, 3, dtype=torch.float64)
    information[narrow] = 1e-30
    with pytest.warns(GaflowWarning, match=r"gamma is 1e\+17"):
        assert max_flow(information, terminal="adjacent").value.item() == 0


def test_terminals_of_dead_nodes_are_no_reason_to_warn():
    information = torch.zeros(2, 3, 3, dtype=torch.float64)
    information[:, :2, 1:] = 25
    assert max_flow(information, terminal=50.0).value.item() == 40  # one path; gamma is 0.1, and 25 becomes 2


def test_ten_tokens_survive_a_gamma_of_a_tenth():
    network = dense_network(torch.full((1, 10, 10), 25.0, dtype=torch.float64))
    assert network.gamma == 0.1
    assert int(network.upper_int[network.source].sum()) == 10


def test_a_network_without_capacities_is_no_reason_to_warn():
    assert dense_network(torch.zeros(1, 2, 2)).gamma == 1
    assert max_flow(torch.zeros(1, 2, 2), terminal="tokens").value.item() == 0


def test_gamma_just_below_a_power_of_ten_keeps_the_smallest_entry():
    below = math.nextafter(1e-5, 0)
    gamma, clamped = integral_scale(torch.tensor([[[below]]], dtype=torch.float64))
    assert gamma == 1e6
    assert not clamped


@pytest.mark.parametrize("smallest", [1e-18, 1e-30, 5e-324])
def test_gamma_is_clamped_and_flagged_where_int64_would_overflow(smallest):
    information = INFORMATION.clone()
    information[2, 1, 0] = smallest
    network = dense_network(information)
    assert network.clamped
    total = sum(int(v) for v in network.upper_int.flatten())  # Python integers do not wrap around
    assert total < 2**63 <= 11 * total
    assert (network.upper_int >= 0).all()
    tail, head = 1 + 3 * 3 + 1, 1 + 2 * 3 + 0  # node 1 of layer 3, node 0 of layer 2
    assert network.adjacency[tail, head] == 1
    assert network.upper[tail, head] == smallest
    assert network.upper_int[tail, head] == 0


def test_the_terminals_count_where_gamma_is_clamped():
    information = torch.full((2, 5, 5), 0.01, dtype=torch.float64)
    information[1, 2, 3] = 1e-30
    network = dense_network(information)
    assert network.gamma == 1e17  # the layers alone, a sum of 0.49, would leave room for 1e19
    assert sum(int(v) for v in network.upper_int.flatten()) < 2**63


def test_capacities_whose_sum_overflows_are_refused():
    with pytest.raises(ValueError, match=r"information.*1e\+308"):
        dense_network(torch.full((2, 3, 3), 1e308, dtype=torch.float64))


def test_a_zero_tensor_is_a_network_without_layer_edges():
    network = dense_network(torch.zeros(2, 3, 3))
    assert network.gamma == 1
    assert network.adjacency.sum() == 6
    assert not network.clamped


@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_the_arcs_are_the_nonzeros_of_the_matrix_in_its_order(direction):
    information = (INFORMATION * (INFORMATION > 0.3)).numpy()
    network = dense_network(information, direction)
    arcs = layered_arcs(information, np.full(3, 3.0), np.full(3, 3.0), direction)
    tail, head = np.nonzero(network.upper.numpy())
    np.testing.assert_array_equal(arcs.tail, tail)
    np.testing.assert_array_equal(arcs.head, head)
    np.testing.assert_array_equal(arcs.capacity, network.upper.numpy()[tail, head])
    assert (arcs.source, arcs.target) == (network.source, network.target)
    capacities = np.concatenate([information.ravel(), np.full(6, 3.0)])
    np.testing.assert_array_equal(capacities[arcs.slot], arcs.capacity)


@pytest.mark.parametrize(
    ("information", "error", "message"),
    [
        (torch.ones(2, 3, 4), ValueError, r"not \(2, 3, 4\)"),
        (torch.ones(3, 3), ValueError, r"not \(3, 3\)"),
        (torch.ones(2, 0, 0), ValueError, r"not \(2, 0, 0\)"),
        (torch.full((1, 2, 2), math.nan), ValueError, "NaN or infinite"),
        (torch.full((1, 2, 2), math.inf), ValueError, "NaN or infinite"),
        (-torch.ones(1, 2, 2), ValueError, "smallest -1"),
        (torch.ones(1, 2, 2, dtype=torch.complex64), TypeError, "complex64"),
        (torch.ones(2, 1, 2, 2), ValueError, "not a batch of 2"),
    ],
)
def test_what_is_no_network_is_refused(information, error, message):
    with pytest.raises(error, match=message):
        dense_network(information)


def test_an_unknown_direction_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"direction must be .*'sideways'"):
        dense_network(INFORMATION, "sideways")  # type: ignore[arg-type]
