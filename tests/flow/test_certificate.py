"""What the certificate of a solved flow says, on networks of one path, where every number is known."""

import math
import time
from functools import partial

import pytest
import torch
from torch import Tensor

from gaflow.errors import Argument, SolveError
from gaflow.flow.barrier.edges import Balance
from gaflow.flow.barrier.solve import LogBarrier, solve
from gaflow.flow.barrier.state import State
from gaflow.flow.network import LayeredNetwork


def path_flow(capacities: list[float], mu: float) -> float:
    """The flow of one path by bisection: where the derivative -1 - sum of mu (1/f - 1/(u - f)) of eq. 12 vanishes."""
    low = 0.0
    high = min(capacities)
    for _ in range(200):
        flow = (low + high) / 2
        slope = -1 - math.fsum(mu / flow - mu / (capacity - flow) for capacity in capacities)
        if slope < 0:
            low = flow
        else:
            high = flow
    return low


@pytest.mark.parametrize(("epsilon", "mu"), [(1e-2, None), (1e-6, None), (1e-6, 0.03)])
def test_a_path_carries_what_balances_all_its_barriers(epsilon, mu):
    information = torch.tensor([3.0, 2.0]).reshape(2, 1, 1)
    flow = solve(information, epsilon=epsilon, mu=mu)
    certificate = flow.certificate[0]
    edges = 2 + 2 + 1
    level = epsilon * 2 / (2 * edges) if mu is None else mu
    assert certificate.edges == edges
    assert certificate.kappa == 2
    assert certificate.mu == flow.mu.item() == pytest.approx(level, rel=1e-15)
    assert certificate.epsilon == pytest.approx(2 * edges * level / 2, rel=1e-15)
    terminal = 3.0  # one token times the widest edge
    returning = 3.0 + 2.0 + 2 * terminal
    value = path_flow([3.0, 2.0, terminal, terminal, returning], level)
    assert flow.value.item() == pytest.approx(value, rel=1e-9)
    for part in (flow.edges, flow.source, flow.target):
        torch.testing.assert_close(part, torch.full_like(part, value), rtol=1e-9, atol=0)
    assert certificate.cut == 2
    assert certificate.gap == certificate.cut - flow.value.item()
    assert 0 <= max(certificate.conservation, certificate.dual, certificate.centrality) < 1e-9
    assert (certificate.converged, certificate.dead, certificate.negligible) == (True, False, 0)
    assert 0 < certificate.iterations < LogBarrier.steps
    assert certificate.seconds > 0


def test_a_capacity_barrier_weighs_edges_by_their_capacity():
    """The weights of a path of capacity 2 with adjacent terminals, all 2, and kappa 2 for the return edge: uniform."""
    flow = solve(torch.full((1, 1, 1), 2.0), epsilon=1e-2, barrier="capacity")
    level = 1e-2 * 2 / (2 * 4)
    assert flow.mu.item() == pytest.approx(level, rel=1e-15)
    assert flow.value.item() == pytest.approx(path_flow([2.0, 2.0, 2.0, 6.0], level), rel=1e-9)


def test_a_dead_item_is_converged_with_nothing_in_it():
    information = torch.tensor([0.0, 1.0]).reshape(2, 1, 1, 1)
    flow = solve(information)
    dead = flow.certificate[0]
    assert (dead.dead, dead.converged, dead.iterations, dead.edges) == (True, True, 0, 0)
    assert (dead.gap, dead.cut, dead.mu, dead.epsilon, dead.conservation, dead.dual, dead.centrality) == (0,) * 7
    assert flow.value.tolist() == [0, pytest.approx(path_flow([1, 1, 1, 3], 1e-6 / 8), rel=1e-9)]


def test_too_few_steps_are_flagged_and_counted():
    network = LayeredNetwork.build(torch.ones(1, 3, 4, 4))
    flow = LogBarrier(steps=1, subtraction_free_steps=2)(network)
    assert flow.converged.tolist() == [False]
    certificate = flow.certificate[0]
    assert certificate.iterations == 1 + 2
    # multipliers follow from the potentials, so only f z = mu and (u - f) v = mu are not reached yet
    assert max(certificate.conservation, certificate.dual) < 1e-9 < 1 < certificate.centrality
    assert LogBarrier()(network).converged.tolist() == [True]


def test_errors_are_relative_to_the_flow_value():
    information = torch.tensor([[[1.0, 1e-3], [1e-4, 3.0]], [[0.2, 5.0], [1e-2, 1e-5]]], dtype=torch.float64)
    flow = LogBarrier(steps=0, subtraction_free_steps=0)(LayeredNetwork.build(information))
    entering = torch.cat([flow.edges[0].sum(-2), flow.source])
    leaving = torch.cat([flow.target, flow.edges[0].sum(-1)])
    at_source = flow.source.sum() - flow.value
    imbalance = max((entering - leaving).abs().max().item(), at_source.abs().item())
    assert flow.certificate.conservation.item() == pytest.approx(imbalance / flow.value.item(), rel=1e-12)
    assert not 0.9 < flow.value.item() / flow.certificate.kappa.item() < 1.1  # else a product would be as good


@pytest.mark.parametrize(("share", "converged"), [(0.98e-9, True), (1.02e-9, False)])
def test_a_flow_has_converged_if_its_errors_are_below_a_billionth_of_its_value(monkeypatch, share, converged):
    def errors(state: State) -> tuple[Tensor, Tensor]:
        value = state.outer()[1, :, -1]
        return 0 * value, share * value

    monkeypatch.setattr(State, "errors", errors)
    flow = LogBarrier(epsilon=100.0, steps=20, subtraction_free_steps=20)(LayeredNetwork.build(torch.ones(1, 2, 3, 3)))
    assert flow.converged.tolist() == [converged]
    assert flow.certificate.centrality.item() == pytest.approx(share, rel=1e-12)


@pytest.mark.parametrize("residual", [math.inf, math.nan])
def test_an_item_that_breaks_down_is_solved_again_at_once(monkeypatch, residual):
    network = LayeredNetwork.build(torch.ones(1, 3, 4, 4))
    subtraction_free = LogBarrier(steps=0)(network)
    linearize = State.linearize
    points = []

    def break_down(state: State) -> Balance:
        balance = linearize(state)
        points.append(state.level.item())
        if len(points) == 4:  # after three steps
            balance.max_residual.fill_(residual)
        return balance

    monkeypatch.setattr(State, "linearize", break_down)
    flow = LogBarrier()(network)
    assert flow.converged.tolist() == [True]
    assert flow.certificate.iterations.item() == 3 + subtraction_free.certificate.iterations.item()
    torch.testing.assert_close(flow.edges, subtraction_free.edges, rtol=0, atol=0)


@pytest.mark.parametrize("steps", [0, 150])
def test_a_dead_node_has_potential_zero(steps):
    information = torch.ones(2, 3, 3)
    information[0, 1] = 0  # no way down from the middle node
    network = LayeredNetwork.build(information)
    potentials = LogBarrier(steps=steps)(network).potentials
    assert potentials is not None
    assert potentials.nodes[0, 1, 1] == 0
    assert (potentials.nodes != 0).sum() == 8


def test_edges_too_narrow_to_matter_are_waited_for_but_do_not_fail_a_flow():
    information = torch.diag(torch.tensor([1.0, 1e-30], dtype=torch.float64))[None, None]
    network = LayeredNetwork.build(information, terminal="adjacent")
    patient = LogBarrier(barrier="capacity")(network)
    assert patient.certificate.iterations.item() > 20
    hasty = LogBarrier(barrier="capacity", steps=20)(network)
    assert hasty.certificate.iterations.item() == 20  # and no more by the subtraction-free factorisation
    assert hasty.converged.tolist() == patient.converged.tolist() == [True]


def test_seconds_are_those_of_the_solve():
    started = time.perf_counter()
    certificate = solve(torch.ones(1, 1, 1)).certificate[0]
    assert 0 < certificate.seconds <= time.perf_counter() - started


def test_a_single_item_that_does_not_converge_raises_with_its_largest_error(monkeypatch):
    hasty = partial(LogBarrier, steps=1, subtraction_free_steps=1)
    monkeypatch.setattr("gaflow.flow.barrier.solve.LogBarrier", hasty)
    information = torch.tensor([0.0, 1.0, 0.0]).reshape(3, 1, 1, 1)  # the others are dead, which is no failure
    with pytest.raises(SolveError) as caught:
        solve(information)
    assert caught.value.items == [1]
    flow = caught.value.flow
    assert flow.converged.tolist() == [True, False, True]
    certificate = flow.certificate[1]
    worst = max(certificate.conservation, certificate.dual, certificate.centrality)
    assert f"{worst:.1e}" in str(caught.value)
    assert Argument("throw", False) in caught.value.args
