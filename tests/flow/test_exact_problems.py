"""The high-precision reference against answers found by hand, the committed file against the reference."""

import math

import numpy as np
import pytest

from tests.support.exact import Exact, exact_flow
from tests.support.make_exact import KINDS, Case, load
from tests.support.problems import Problem, path, problems

CASES = load()


def assert_same(actual: Exact, expected: Exact | Problem, tolerance: float = 1e-15) -> None:
    """Every flow equal, in units of the flow value."""
    for part in ("edges", "source", "target", "value"):
        error = np.abs(np.asarray(getattr(actual, part)) - getattr(expected, part)).max()
        assert error <= tolerance * expected.value, f"{part} is off by {error / expected.value:.2e} of the value"


@pytest.mark.parametrize("problem", problems(), ids=lambda p: p.name)
def test_the_reference_finds_what_was_derived_by_hand(problem):
    assert_same(exact_flow(problem.information, **problem.settings), problem)


def test_one_edge_without_pull_settles_at_the_root_of_a_quadratic():
    # Capacities 1, 1, 1 and 3 around the loop, mu -> inf: 4/f = 3/(1-f) + 1/(3-f), so 8f^2 - 26f + 12 = 0.
    root = (26 - math.sqrt(26**2 - 4 * 8 * 12)) / 16
    expected = path("one-edge", [1.0], epsilon=1e25).value
    assert expected == pytest.approx(root, rel=1e-15)
    assert exact_flow(np.ones((1, 1, 1)), epsilon=1e25).value == pytest.approx(root, rel=1e-15)


def test_two_unequal_edges_share_by_capacity_under_the_capacity_barrier_when_nothing_binds():
    # A wide fan below a narrow layer: its edges carry far less than they could, and act as resistors.
    information = np.array([[[1.0, 3.0], [0.0, 0.0]], [[1e-6, 0.0], [0.0, 0.0]]])
    flow = exact_flow(information, barrier="capacity", epsilon=1e-3)
    assert flow.edges[0, 0, 1] / flow.edges[0, 0, 0] == pytest.approx(3, rel=1e-5)
    uniform = exact_flow(information, barrier="uniform", epsilon=1e-3)
    assert uniform.edges[0, 0, 1] / uniform.edges[0, 0, 0] == pytest.approx(1, rel=1e-5)


def test_the_file_holds_every_kind_under_both_barriers_from_sharp_to_blunt():
    assert {case.name.split("-")[0] for case in CASES} == set(KINDS)
    assert {case.barrier for case in CASES} == {"uniform", "capacity"}
    assert {case.epsilon for case in CASES} == {1e-9, 1e-6, 1e-3, 1e-1, 10.0}


@pytest.mark.parametrize("case", [c for c in CASES if c.flow.live < 60], ids=lambda c: c.name)
def test_the_file_is_what_the_reference_gives_today(case: Case):
    assert_same(exact_flow(case.information, epsilon=case.epsilon, barrier=case.barrier), case.flow)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_stored_flows_are_flows(case: Case):
    flow = case.flow
    assert flow.residual < 1e-50
    assert (flow.edges <= case.information).all()
    assert (flow.edges >= 0).all()
    through = np.concatenate([flow.target[None], flow.edges.sum(-1)])
    into = np.concatenate([flow.edges.sum(-2), flow.source[None]])
    np.testing.assert_allclose(through, into, rtol=0, atol=1e-14 * flow.value)
    np.testing.assert_allclose(through.sum(-1), flow.value, rtol=1e-14)
    assert flow.value < flow.kappa


@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
def test_reversing_every_edge_reverses_the_flow(barrier):
    information = np.random.default_rng(3).random((3, 4, 4)) ** 4
    flow = exact_flow(information, barrier=barrier)
    back = exact_flow(information[::-1].transpose(0, 2, 1), barrier=barrier)
    np.testing.assert_allclose(back.edges[::-1].transpose(0, 2, 1), flow.edges, rtol=0, atol=1e-15 * flow.value)


@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
def test_flows_scale_with_the_capacities_unless_mu_is_absolute(barrier):
    information = np.random.default_rng(4).random((2, 3, 3))
    flow, more = (exact_flow(scale * information, barrier=barrier) for scale in (1.0, 2.0**70))
    np.testing.assert_array_equal(more.edges, 2.0**70 * flow.edges)
    absolute = exact_flow(2 * information, barrier=barrier, mu=2 * flow.mu)
    np.testing.assert_allclose(absolute.edges, 2 * flow.edges, rtol=1e-14)


def test_a_dead_end_changes_nothing_and_no_path_means_no_flow():
    information = np.ones((2, 3, 3))
    information[0, 2] = information[1, :, 2] = 0
    flow = exact_flow(information)
    information[1, 0, 2] = 0.5  # leads to node 2 of the middle layer, which leads nowhere
    assert_same(exact_flow(information), flow, 0)
    information[1, :, :2] = 0
    nothing = exact_flow(information)
    assert nothing.value == 0
    assert nothing.live == 0
    assert not nothing.edges.any()
