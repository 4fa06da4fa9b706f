"""CVXPY with Clarabel against the high-precision reference and OR-Tools."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import cvxpy_reference as reference
from benchmarks.cvxpy_reference import cvxpy_flow
from gaflow.errors import GaflowError, MissingExtraError
from gaflow.flow.maxflow.max_flow import max_flow
from gaflow.flow.result import Flow
from tests.support.exact import Exact, exact_flow
from tests.support.make_exact import load
from tests.support.problems import Problem, problems

ROOT = Path(__file__).parents[2]


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
            assert flow.certificate.dual.item() < 1e-8
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
@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
def test_ends_mean_the_same_to_both(barrier, direction):
    information = np.random.default_rng(1).random((3, 4, 4))
    settings = {"mu": 5e-2, "barrier": barrier, "sources": [1, 3], "targets": [0]}
    assert_same(cvxpy_flow(information, direction=direction, **settings), exact_flow(information, **settings), 1e-8)


def closed_form(cost: np.ndarray, upper: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """The flow of edges with these reduced costs: the zero of s = mu / f - mu / (u - f)."""
    x = cost * upper / (2 * mu)
    return upper / (1 + x + np.sqrt(1 + x * x))


def test_the_dual_error_is_what_the_flow_is_off():
    generator = np.random.default_rng(3)
    upper, mu, cost = (10 ** generator.uniform(*ends, 200) for ends in ((-2, 2), (-4, 0), (-3, 0)))
    cost *= generator.choice([-1, 1], 200)
    flow = closed_form(cost, upper, mu)
    np.testing.assert_allclose(reference._dual_error(cost, flow, upper - flow, mu), 0, atol=1e-9)
    change = 1e-6 * mu / upper
    moved = flow - closed_form(cost + change, upper, mu)
    np.testing.assert_allclose(
        reference._dual_error(cost + change, flow, upper - flow, mu), moved, rtol=1e-3, atol=1e-9
    )


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_the_certificates_dual_error_is_in_units_of_the_flow_value(scale, monkeypatch):
    errors = []
    solve = reference._minimise

    def astray(incidence, upper, strength):
        share, potential, iterations = solve(incidence, upper, strength)
        potential = potential + 1e-8 * np.arange(len(potential))
        cost = incidence @ potential - (np.arange(len(upper)) == len(upper) - 1)
        flow = share * upper
        errors.append(np.abs(closed_form(cost, upper, strength) - flow).max() / flow[-1])
        return share, potential, iterations

    # An exact solver leaves no error to measure, so its potentials are moved; nobody else would pass another solver.
    monkeypatch.setattr(reference, "_minimise", astray)
    flow = cvxpy_flow(scale * np.random.default_rng(0).random((3, 4, 4)), epsilon=0.1)
    assert flow.certificate.dual.item() == pytest.approx(errors[0], rel=1e-2)
    assert flow.certificate.dual.item() > 1e-5
    assert not flow.converged.item()


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
        ({"barrier": "log"}, "barrier must be .*'log'"),
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
    with pytest.raises(MissingExtraError, match=r"gaflow\[dev\]"):
        cvxpy_flow(torch.ones(1, 2, 2))


def test_a_maximum_flow_can_be_had_afterwards():
    code = (
        "from benchmarks.cvxpy_reference import cvxpy_flow\n"
        "from gaflow.flow.maxflow.max_flow import max_flow\n"
        "for solve in (cvxpy_flow, max_flow): print(round(solve([[[2.0]]]).value.item(), 3))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split() == ["2.0", "2.0"], done.stderr
