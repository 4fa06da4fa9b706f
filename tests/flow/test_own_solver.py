"""The plain solver against OR-Tools', and what works without OR-Tools."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from gaflow.errors import MissingExtraError
from gaflow.flow.maxflow.integer_network import Problem, run_solver
from gaflow.flow.maxflow.own_solver import MOST_ARCS, PlainMaxFlow
from gaflow.flow.maxflow.score_ranges import score_ranges


def without_ortools(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools", None)


@pytest.mark.parametrize("seed", range(8))
def test_flow_and_cuts_are_those_of_ortools(seed, monkeypatch):
    pytest.importorskip("ortools")
    generator = torch.Generator().manual_seed(seed)
    information = torch.rand(3, 5, 5, generator=generator, dtype=torch.float64)
    information *= torch.rand(3, 5, 5, generator=generator) < 0.6
    integers = Problem.build(information).integers(0)
    expected = run_solver(integers)
    without_ortools(monkeypatch)
    actual = run_solver(integers)
    assert actual.value == expected.value
    assert (actual.near_source == expected.near_source).all()
    assert (actual.near_target == expected.near_target).all()
    assert (actual.flow >= 0).all()
    assert (actual.flow <= integers.capacity).all()


def test_ranges_are_those_of_ortools(monkeypatch):
    pytest.importorskip("ortools")
    information = torch.randint(4, (4, 5, 5), generator=torch.Generator().manual_seed(3)).double()
    expected = score_ranges(information)
    without_ortools(monkeypatch)
    for ours, theirs in zip(score_ranges(information), expected, strict=True):
        assert ours.tolist() == theirs.tolist()


def test_a_solver_is_used_for_several_pairs_of_nodes():
    solver = PlainMaxFlow()
    tails, heads = np.array([0, 0, 1, 2, 3]), np.array([1, 2, 3, 3, 0])
    numbers = solver.add_arcs_with_capacity(tails, heads, np.array([5, 3, 2, 9, 1]))
    assert solver.num_arcs() == 5
    for source, target, value in ((0, 3, 5), (3, 1, 1), (0, 3, 5), (1, 2, 1)):
        assert solver.solve(source, target) == solver.OPTIMAL
        assert solver.optimal_flow() == value
    solver.solve(0, 3)
    assert solver.flows(numbers) == [2, 3, 2, 3, 0]
    assert solver.get_source_side_min_cut() == [0, 1]
    assert solver.get_sink_side_min_cut() == [2, 3]


def test_a_large_network_needs_ortools(monkeypatch):
    t = 1 + int((MOST_ARCS / 2) ** 0.5)
    without_ortools(monkeypatch)
    monkeypatch.setitem(sys.modules, "ortools.graph.python", None)
    with pytest.raises(MissingExtraError, match="maxflow"):
        score_ranges(torch.ones(2, t, t))


@pytest.mark.slow
def test_the_default_method_needs_no_extra_for_cuts_routes_ranges_pages_and_axioms():
    program = """
import sys
for name in ("ortools", "ortools.graph", "ortools.graph.python", "captum", "sklearn"):
    sys.modules[name] = None
import gaflow
att = gaflow.Explainer()("not cute, but very smart.")
assert att.method == "peeled_flow"
for flow in (att.flow, att.flow_against):
    cut = gaflow.min_cut(flow)
    assert abs(cut.excess) <= float(flow.certificate.gap) + 1e-12
    exact = gaflow.min_cut(flow, exact=True)
    assert abs(exact.value - cut.value) <= float(flow.certificate.gap) + 1e-12
    low, high = gaflow.score_ranges(flow)
    assert (low <= flow.target[0] + float(flow.certificate.gap) + 1e-12).all()
    assert (flow.target[0] <= high + 1e-9).all()
    assert gaflow.routes(flow, k=3)[0].amount > 0
assert gaflow.axioms(att).ok
assert "<html" in att.to_html()
"""
    subprocess.run([sys.executable, "-c", program], check=True)
