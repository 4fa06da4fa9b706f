"""Minimum cuts: against the enumeration of all cuts, against hand-made networks, and against the maximum flow."""

import itertools
import math
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gaflow.errors import MissingExtraError
from gaflow.flow.barrier.solve import solve
from gaflow.flow.maxflow.max_flow import max_flow
from gaflow.flow.maxflow.min_cut import CutEdge, MinCut, min_cut
from gaflow.flow.network import LayeredNetwork


def whole_numbers(seed: int, *shape: int, largest: int = 3) -> Tensor:
    """Capacities with many ties, so that minimum cuts are often not unique."""
    return torch.randint(0, largest + 1, shape, generator=torch.Generator().manual_seed(seed)).double()


def all_cuts(information: Tensor, terminal: float) -> list[tuple[float, np.ndarray]]:
    """Capacity and source's side (l+1, t) of every cut of the live network."""
    network = LayeredNetwork.build(information[None], terminal=terminal)
    capacity = network.capacity[0].numpy()
    top, bottom = network.source[0].numpy(), network.target[0].numpy()
    layers, t, _ = capacity.shape
    alive = np.concatenate([[bottom > 0], capacity.sum(-1) > 0])
    cuts = []
    for bits in itertools.product([False, True], repeat=int(alive.sum())):
        side = np.zeros((layers + 1, t), dtype=bool)
        side[alive] = bits
        inner = capacity[side[1:, :, None] & ~side[:-1, None, :] & alive[:-1, None, :]].sum()
        cuts.append((inner + top[~side[-1]].sum() + bottom[side[0]].sum(), side))
    return cuts


def assert_cut(cut: MinCut, information: Tensor) -> None:
    """Its edges are those between its sides, with their capacities, and add up to the value of the maximum flow."""
    layers = len(information)
    inner = [edge for edge in cut.edges if 0 <= edge.layer < layers]
    for layer, i, j, capacity in inner:
        assert capacity == information[layer, i, j]
        assert cut.side[layer + 1, i]
        assert not cut.side[layer, j]
    assert math.fsum(edge.capacity for edge in cut.edges) == pytest.approx(cut.value, rel=1e-14)
    assert [edge.capacity for edge in cut.edges] == sorted((edge.capacity for edge in cut.edges), reverse=True)
    assert cut.share.sum().item() == pytest.approx(1, rel=1e-14)
    for layer in range(-1, layers + 1):
        layer_capacity = math.fsum(edge.capacity for edge in cut.edges if edge.layer == layer)
        assert cut.share[layer + 1].item() == pytest.approx(layer_capacity / cut.value, rel=1e-14)


@pytest.mark.parametrize("terminal", [None, 4.0])
@pytest.mark.parametrize(("layers", "t"), [(1, 4), (2, 3), (3, 3)])
@pytest.mark.parametrize("seed", range(6))
def test_both_cuts_are_the_ends_of_all_minimum_cuts(seed, layers, t, terminal):
    information = whole_numbers(seed, layers, t, t)
    cuts = all_cuts(information, 100.0 if terminal is None else terminal)
    least = min(value for value, _ in cuts)
    sides = [side for value, side in cuts if value == least]
    output = min_cut(information, terminal=terminal)
    below = min_cut(information, terminal=terminal, nearest="input")
    np.testing.assert_array_equal(output.side, np.logical_and.reduce(sides))
    np.testing.assert_array_equal(below.side, np.logical_or.reduce(sides))
    assert output.value == below.value == least
    for cut in (output, below):
        assert_cut(cut, information)
    assert output.unique == below.unique == (output.edges == below.edges)


def test_both_answers_to_whether_it_is_unique_occur():
    answers = [min_cut(whole_numbers(seed, 3, 3, 3)).unique for seed in range(6)]
    assert True in answers
    assert False in answers


def test_the_narrow_layer_is_the_bottleneck():
    for narrow in range(4):
        information = torch.full((4, 3, 3), 2.0, dtype=torch.float64)
        information[narrow] = 0.5
        cut = min_cut(information)
        assert cut.bottleneck == narrow
        assert cut.unique
        assert cut.value == 4.5
        assert cut.share.tolist() == [float(k == narrow + 1) for k in range(6)]
        assert set(cut.edges) == {CutEdge(narrow, i, j, 0.5) for i in range(3) for j in range(3)}
        assert cut.side.tolist() == [[k > narrow] * 3 for k in range(5)]


def test_a_path_with_two_equal_narrow_places_has_two_cuts():
    path = torch.tensor([0.5, 2.0, 0.5])[:, None, None]
    output, below = min_cut(path), min_cut(path, nearest="input")
    assert output.edges == (CutEdge(2, 0, 0, 0.5),)
    assert below.edges == (CutEdge(0, 0, 0, 0.5),)
    assert (output.unique, below.unique) == (False, False)
    assert (output.nearest, below.nearest) == ("output", "input")
    assert (output.bottleneck, below.bottleneck) == (2, 0)


def test_terminals_can_be_the_bottleneck_if_they_are_given():
    information = torch.full((2, 3, 3), 5.0)
    cut = min_cut(information, terminal=1)
    assert cut.edges == tuple(CutEdge(2, 0, j, 1.0) for j in range(3))
    assert cut.bottleneck == 2
    assert cut.side.sum() == 0
    cut = min_cut(information, terminal=1, nearest="input")
    assert cut.edges == tuple(CutEdge(-1, i, 0, 1.0) for i in range(3))
    assert cut.bottleneck == -1
    assert cut.side.all()
    assert not cut.unique


def test_a_wide_edge_does_not_become_a_cut_of_its_own():
    wide = torch.tensor([1.0, 1e-25, 1e30], dtype=torch.float64)[:, None, None]
    for nearest in ("output", "input"):
        cut = min_cut(wide, nearest=nearest)
        assert cut.edges == (CutEdge(1, 0, 0, 1e-25),)
        assert cut.unique


@pytest.mark.parametrize("integral", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_real_capacities_have_the_value_of_the_maximum_flow(seed, integral):
    generator = torch.Generator().manual_seed(seed)
    information = torch.randn(5, 8, 8, generator=generator, dtype=torch.float64).mul(3).softmax(-1)
    cut = min_cut(information, integral=integral)
    assert_cut(cut, information)
    flow = max_flow(information, integral=integral)
    assert cut.value == pytest.approx(flow.certificate.cut.item(), rel=1e-14)
    assert set(min_cut(information, nearest="input", integral=integral).edges) == set(cut.edges) or not cut.unique


def test_padding_and_dead_nodes_are_on_neither_side():
    information = torch.full((2, 4, 4), 1.0)
    information[:, :, 2] = 0  # nobody listens to token 2, whose node above the input is then dead too
    cut = min_cut(information, mask=[1, 1, 1, 0])
    assert cut.value == 4
    assert not cut.side[:, 3].any()
    assert not cut.side[:2, 2].any()
    below = min_cut(information, mask=[1, 1, 1, 0], nearest="input")
    assert below.side.tolist() == [[False] * 4, [True, True, False, False], [True, True, True, False]]


def test_chosen_ends_are_respected():
    information = torch.full((2, 3, 3), 1.0)
    assert min_cut(information, sources=[0]).edges == tuple(CutEdge(1, 0, j, 1.0) for j in range(3))
    assert min_cut(information, targets=[1]).edges == tuple(CutEdge(0, i, 1, 1.0) for i in range(3))


@pytest.mark.parametrize("kind", ["zero", "no path"])
def test_nothing_to_cut_is_a_flagged_zero(kind):
    information = torch.zeros(2, 3, 3)
    if kind == "no path":
        information[1] = 1.0
    cut = min_cut(information)
    assert (cut.value, cut.edges, cut.bottleneck, cut.dead, cut.unique) == (0, (), None, True, True)
    assert not cut.side.any()
    assert not cut.share.any()


@pytest.mark.parametrize(
    ("information", "settings", "message"),
    [
        (torch.ones(2, 3, 4), {}, r"not \(2, 3, 4\)"),
        (torch.full((1, 2, 2), torch.inf), {}, "infinite"),
        (torch.ones(2, 1, 3, 3), {}, "batch of 2"),
        (torch.ones(1, 3, 3), {"nearest": "middle"}, "nearest must be .*'middle'"),
        (torch.ones(1, 3, 3), {"mask": [1, 1]}, r"mask must have shape \(1, 3\)"),
        (torch.ones(1, 3, 3), {"sources": [3]}, "no position 3"),
    ],
)
def test_what_cannot_be_is_refused(information, settings, message):
    with pytest.raises(ValueError, match=message):
        min_cut(information, **settings)


def test_a_missing_library_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.graph.python", None)
    with pytest.raises(MissingExtraError, match=r"gaflow\[maxflow\]"):
        min_cut(torch.ones(1, 2, 2))


@pytest.mark.parametrize("solver", [solve, max_flow])
@pytest.mark.parametrize("nearest", ["output", "input"])
def test_a_flow_knows_the_network_that_it_is_cut_in(solver, nearest):
    information = whole_numbers(4, 3, 4, 4)
    ends: dict[str, Any] = {"sources": [0, 2], "targets": [1, 2, 3]}
    for nodes in ({}, ends):
        cut = min_cut(solver(information, **nodes), nearest=nearest)
        expected = min_cut(information, nearest=nearest, **nodes)
        assert (cut.value, cut.edges, cut.unique) == (expected.value, expected.edges, expected.unique)
        assert torch.equal(cut.side, expected.side)


def test_a_flow_held_back_by_its_terminals_is_cut_there_if_they_are_given():
    information = torch.ones(2, 3, 3, dtype=torch.float64)
    flow = solve(information, terminal=1.0)
    with pytest.raises(ValueError, match="terminals"):
        min_cut(flow)
    assert min_cut(flow, terminal=1.0).value == 3
    with pytest.raises(ValueError, match="capacities"):
        min_cut(replace(flow, capacity=None))


def test_a_terminal_that_binds_a_little_is_refused():
    flow = solve(torch.ones(1, 2, 2), terminal=1.5)  # 3 pass the terminals and 4 the layer
    with pytest.raises(ValueError, match=r"3.* 4 .*terminal"):
        min_cut(flow)
    assert min_cut(flow, terminal=1.5).value == 3


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
@pytest.mark.parametrize("nearest", ["output", "input"])
def test_the_cut_of_potentials_is_the_exact_one_within_the_gap(seed, barrier, nearest):
    generator = torch.Generator().manual_seed(seed)
    information = torch.rand(4, 6, 6, generator=generator, dtype=torch.float64)
    if seed % 3 == 1:
        information = (4 * information).round()  # with ties
    if seed % 3 == 2:
        information *= torch.rand(4, 6, 6, generator=generator) < 0.4  # with dead ends
    flow = solve(information, barrier=barrier)
    cut = min_cut(flow, nearest=nearest)
    exact = min_cut(flow, nearest=nearest, exact=True)
    gap = float(flow.certificate.gap)
    assert exact.excess is None
    assert cut.excess is not None
    assert cut.excess == cut.value - float(flow.value)
    assert -1e-12 <= cut.excess <= gap + 1e-12
    assert cut.value == pytest.approx(exact.value, abs=gap + 1e-12)
    assert (cut.edges, cut.unique, cut.dead) == (exact.edges, exact.unique, exact.dead)
    assert torch.equal(cut.side, exact.side)


def test_a_flow_that_did_not_converge_is_cut_exactly():
    information = whole_numbers(4, 3, 4, 4)
    flow = solve(information)
    doubtful = replace(flow, converged=torch.tensor([False]))
    assert min_cut(doubtful).excess is None
    assert min_cut(replace(flow, potentials=None)).excess is None
    assert min_cut(flow, terminal=1000.0).excess is None
