"""CVXPY with Clarabel against the high-precision reference and OR-Tools."""

import sys
from typing import Any

import numpy as np
import pytest
import torch

from gaflow.errors import GaflowError, MissingExtraError
from gaflow.network import Flow
from gaflow.solvers.maxflow import max_flow
from gaflow.solvers.reference import cvxpy_flow
from tests.exact import Exact, exact_flow
from tests.make_exact import load
from tests.problems import Problem, problems


def assert_same(flow: Flow, expected: Exact | Problem, tolerance: float) -> None:
    for part in ("edges", "source", "target", "value"):
        error = np.abs(getattr(flow, part)[0].numpy() - getattr(expected, part)).max() / expected.value
        assert error <= tolerance, f"{part} is off by {error:.2e} of the flow value"


def converged_or_none(information: np.ndarray, **settings: Any) -> Flow | None:
    """Clarabel does not manage every network; what it does not is flagged, or refused."""
    try:
        flow = cvxpy_flow(information, **settings)
    except GaflowError:
        return None
    return flow if flow.converged.item() else None


@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
def test_eq_12_agrees_with_fifty_digits_wherever_clarabel_converges(barrier, direction):
    cases = [c for c in load() if c.epsilon >= 1e-3 and c.barrier == barrier and c.name[:6] != "graded"]
    agreed = 0
    for case in cases:
        flow = converged_or_none(case.information, epsilon=case.epsilon, barrier=barrier, direction=direction)
        if flow is not None:
            assert_same(flow, case.flow, 1e-8)
            assert flow.mu.item() == pytest.approx(case.flow.mu, rel=1e-14)
            assert flow.certificate.edges.item() == case.flow.live
            assert 0 <= flow.certificate.gap.item() <= case.epsilon * case.flow.kappa
            agreed += 1
    assert agreed >= len(cases) / 3


def test_eq_12_agrees_with_answers_derived_by_hand():
    blunt = [p for p in problems() if p.settings["epsilon"] >= 1e-4]
    flows = [(p, converged_or_none(p.information, **p.settings)) for p in blunt]
    for problem, flow in flows:
        if flow is not None:
            assert_same(flow, problem, 1e-8)
    assert sum(flow is not None for _, flow in flows) >= len(blunt) / 2


@pytest.mark.parametrize("terminal", [None, "adjacent", 0.6])
@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
def test_terminals_and_an_absolute_mu_mean_the_same_to_both(barrier, terminal):
    information = np.random.default_rng(0).random((3, 4, 4))
    settings = {"mu": 1e-2, "barrier": barrier, "terminal": terminal}
    flow = cvxpy_flow(information, **settings)
    assert_same(flow, exact_flow(information, **settings), 1e-8)
    assert flow.certificate.mu.item() == 1e-2


@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize("seed", range(3))
def test_eq_8_has_the_value_that_integers_give(seed, direction):
    generator = torch.Generator().manual_seed(seed)
    information = torch.rand(4, 5, 5, generator=generator) * (torch.rand(4, 5, 5, generator=generator) < 0.6)
    flow = cvxpy_flow(information, epsilon=0, direction=direction)
    largest = max_flow(information, integral=False)
    assert flow.value.item() == pytest.approx(largest.value.item(), rel=1e-9)
    assert flow.certificate.cut.item() == pytest.approx(largest.certificate.cut.item(), rel=1e-9)
    assert flow.mu.item() == 0
    assert flow.converged.item()


@pytest.mark.parametrize("case", load(), ids=lambda c: c.name)
def test_every_reference_is_within_epsilon_kappa_of_the_maximum(case):
    # 2 sum_e mu_e = epsilon kappa under both barriers, and the terminals of neither bind a maximum flow.
    largest = max_flow(case.information, integral=False)
    short = largest.value.item() - case.flow.value
    assert -1e-14 * case.flow.kappa <= short <= case.epsilon * case.flow.kappa


def test_a_blunt_solution_is_flagged():
    information = np.random.default_rng(1).random((4, 6, 6)) ** 3
    flow = cvxpy_flow(information, epsilon=1e-9, barrier="capacity")
    exact = exact_flow(information, epsilon=1e-9, barrier="capacity")
    assert np.abs(flow.edges[0].numpy() - exact.edges).max() > 1e-6 * exact.value
    assert not flow.converged.item()


def test_no_path_is_a_flagged_zero():
    flow = cvxpy_flow(torch.zeros(2, 3, 3))
    assert flow.value.item() == 0
    assert flow.certificate[0].dead is True
    assert flow.edges.shape == (1, 2, 3, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"barrier": "log"}, "barrier must be uniform or capacity, not 'log'"),
        ({"epsilon": -1.0}, "negative"),
        ({"mu": -1.0}, "negative"),
        ({"direction": "up"}, "direction"),
        ({"terminal": "far"}, "terminal"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        cvxpy_flow(torch.ones(1, 2, 2), **settings)


def test_a_batch_is_refused():
    with pytest.raises(ValueError, match="not a batch of 2"):
        cvxpy_flow(torch.ones(2, 1, 2, 2))


@pytest.mark.parametrize("library", ["cvxpy", "clarabel"])
def test_a_missing_library_names_its_extra(monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=r"gaflow\[reference\]"):
        cvxpy_flow(torch.ones(1, 2, 2))
