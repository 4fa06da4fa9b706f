"""Ranges over all maximum flows: against a linear program, against polymatroids, and against solvers' answers."""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.sparse import coo_array
from torch import Tensor

from gaflow.errors import ArgumentError, MissingExtraError
from gaflow.flow.barrier.solve import solve
from gaflow.flow.maxflow.max_flow import max_flow
from gaflow.flow.maxflow.score_ranges import ScoreRanges, score_ranges
from gaflow.flow.maxflow.shapley import shapley_estimate
from tests.support.networks import random_information


def attention(seed: int, layers: int, t: int, sharpness: float = 3.0) -> Tensor:
    """Rows that sum to 1, as Attention Flow has them."""
    scores = torch.randn(layers, t, t, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (sharpness * scores).softmax(-1)


def linear_program(
    information: np.ndarray, layer: int, terminal: float, of: tuple[int, int] | None = None
) -> np.ndarray | float:
    """Least and largest through-flow (2, t) of a layer's nodes among all flows of maximum value, by HiGHS.

    With `of=(i, j)`, the most by which node i can be ahead of node j.
    """
    layers, t, _ = information.shape
    node = np.arange((layers + 1) * t).reshape(layers + 1, t)
    shape = information.shape
    tail = np.concatenate([np.broadcast_to(node[1:, :, None], shape).ravel(), np.full(t, -1), node[0]])
    head = np.concatenate([np.broadcast_to(node[:-1, None, :], shape).ravel(), node[-1], np.full(t, -1)])
    upper = np.concatenate([information.ravel(), np.full(2 * t, terminal)])
    m = len(upper)
    rows, columns = np.concatenate([tail, head]), np.tile(np.arange(m), 2)
    signs = np.repeat([-1.0, 1.0], m)
    inner = rows >= 0
    balance = coo_array((signs[inner], (rows[inner], columns[inner])), shape=(node.size, m)).toarray()
    source = np.zeros(m)
    source[layers * t * t : layers * t * t + t] = 1

    def least(cost: np.ndarray, fixed: float | None) -> float:
        equal, right = (balance, np.zeros(len(balance)))
        if fixed is not None:
            equal, right = np.vstack([equal, source]), np.append(right, fixed)
        result = linprog(cost, A_eq=equal, b_eq=right, bounds=np.stack([np.zeros(m), upper], 1), method="highs")
        assert result.status == 0, result.message
        return result.fun

    value = -least(-source, None)
    through = [(head == v).astype(float) for v in node[layer]]
    if of is not None:
        return -least(through[of[1]] - through[of[0]], value)
    return np.array([[least(c, value) for c in through], [-least(-c, value) for c in through]])


@pytest.mark.parametrize("density", [1.0, 0.5])
@pytest.mark.parametrize(("layers", "t"), [(1, 3), (2, 4), (4, 3), (3, 6)])
@pytest.mark.parametrize("seed", range(2))
def test_ranges_of_every_layer_are_those_of_a_linear_program(seed, layers, t, density):
    information = random_information(seed, layers, t, t, density=density)
    terminal = t * float(information.max())
    for layer in range(layers + 1):
        low, high = score_ranges(information, layer=layer)
        expected = linear_program(information.numpy(), layer, terminal)
        np.testing.assert_allclose(np.stack([low, high]), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_ranges_under_terminals_that_bind_are_those_of_a_linear_program(seed):
    information = random_information(seed, 3, 4, 4)
    for layer in range(4):
        ranges = torch.stack(score_ranges(information, layer=layer, terminal=0.9))
        np.testing.assert_allclose(ranges, linear_program(information.numpy(), layer, 0.9), rtol=0, atol=1e-8)


@pytest.mark.parametrize("end", [0, -1])
@pytest.mark.parametrize("seed", range(4))
def test_ends_are_what_a_token_gets_alone_and_what_is_lost_without_it(seed, end):
    information = attention(seed, 4, 9)

    def value(tokens: list[int] | None = None) -> float:
        ends = (None, tokens) if end == 0 else (tokens, None)
        return max_flow(information, integral=False, sources=ends[0], targets=ends[1]).value.item()

    low, high = score_ranges(information, layer=end)
    everyone = list(range(9))
    np.testing.assert_allclose(high, [value([j]) for j in everyone], rtol=1e-13)
    lost = [value() - value([k for k in everyone if k != j]) for j in everyone]
    np.testing.assert_allclose(low, lost, rtol=0, atol=1e-13)


@pytest.mark.parametrize("seed", range(3))
def test_one_token_has_most_in_the_maximum_flow_where_another_has_least(seed):
    """So the order of two input tokens is open exactly where their ranges overlap."""
    information = attention(seed, 3, 5)
    low, high = score_ranges(information)
    lead = np.zeros((5, 5))
    for i in range(5):
        for j in range(5):
            if i != j:
                lead[i, j] = linear_program(information.numpy(), 0, 10.0, of=(i, j))
    expected = (high[:, None] - low).fill_diagonal_(0)
    np.testing.assert_allclose(lead, expected, rtol=0, atol=1e-8)


def test_a_network_by_hand():
    # One output node gives 2; token 0 can take 1.5 of it, token 1 all, token 2 nothing.
    information = torch.tensor([[[1.5, 3.0, 0.0]] + 2 * [[0.0] * 3], [[2.0, 0.0, 0.0]] + 2 * [[0.0] * 3]])
    ranges = score_ranges(information)
    assert ranges.low.tolist() == [0, 0.5, 0]
    assert ranges.high.tolist() == [1.5, 2, 0]
    assert ranges.width.tolist() == [1.5, 1.5, 0]
    assert not ranges.unique
    for layer in (1, 2):
        assert score_ranges(information, layer=layer).low.tolist() == [2, 0, 0]
        assert score_ranges(information, layer=layer).unique


@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize("integral", [True, False])
def test_every_maximum_flow_lies_inside(integral, direction):
    for seed in range(5):
        information = attention(seed, 3, 8, sharpness=1.0 + seed)
        flow = max_flow(information, direction, integral)
        for layer in range(4):
            low, high = score_ranges(information, layer=layer, integral=integral)
            through = flow.through()[0, layer]
            slack = 1e-14 * flow.value
            assert ((low - slack <= through) & (through <= high + slack)).all()


@pytest.mark.parametrize("epsilon", [1.0, 1e-2, 1e-6, 1e-9])
@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
def test_the_barrier_solution_lies_inside_but_for_its_gap(barrier, epsilon):
    information = torch.stack([attention(seed, 4, 7, sharpness=seed) for seed in range(1, 7)])
    flow = solve(information, epsilon=epsilon, barrier=barrier)
    best = max_flow(information, integral=False).value
    missing = (best - flow.value).clamp_min(0)[:, None]
    assert (missing[:, 0] <= flow.certificate.gap + 1e-12 * best).all()
    assert (flow.certificate.gap <= epsilon * flow.certificate.kappa * (1 + 1e-6)).all()
    noise = 1e-9 * best[:, None]  # what a converged certificate allows
    for layer in range(5):
        low, high = score_ranges(information, layer=layer)
        through = flow.through()[:, layer]
        assert (through >= low - missing - noise).all()
        assert (through <= high + (noise if layer in (0, 4) else missing + noise)).all()


def test_the_slack_below_is_needed_and_goes_away():
    """What all maximum flows agree on: a blunt barrier gives less, a sharp one all of it."""
    information = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    low, high = score_ranges(information)
    assert low.tolist() == high.tolist() == [1, 1]
    short = [(low - solve(information, epsilon=epsilon).target[0]).max().item() for epsilon in (1.0, 1e-3, 1e-9)]
    assert short[0] > 0.05
    assert short[2] < 1e-9 < short[1] < 1e-3


def test_ranges_scale_with_the_capacities_and_follow_the_tokens():
    information = attention(3, 3, 6)
    low, high = score_ranges(information)
    assert (high - low).max() > 1e-3  # else this says little
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    for factor in (0.25, 1e-200, 1e200):
        again = score_ranges(factor * information[:, order][:, :, order])
        torch.testing.assert_close(again.low / factor, low[order], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(again.high / factor, high[order], rtol=1e-12, atol=1e-12)


def test_padding_and_company_change_nothing():
    items = [attention(k, 3, t) for k, t in enumerate((2, 5, 4))]
    batch, mask = torch.full((3, 3, 5, 5), 7.0, dtype=torch.float64), torch.zeros(3, 5)
    for k, item in enumerate(items):
        t = item.shape[-1]
        batch[k, :, :t, :t] = item
        mask[k, :t] = 1
    low, high = score_ranges(batch, mask=mask)
    assert low.shape == high.shape == (3, 5)
    for k, item in enumerate(items):
        t = item.shape[-1]
        alone = score_ranges(item)
        assert alone.low.shape == (t,)
        torch.testing.assert_close(low[k, :t], alone.low, rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(high[k, :t], alone.high, rtol=1e-13, atol=1e-13)
        assert not low[k, t:].any()
        assert not high[k, t:].any()


def test_chosen_ends_are_respected():
    information = attention(4, 3, 6)
    low, high = score_ranges(information, sources=[0], targets=[1, 2])
    assert high[[0, 3, 4, 5]].tolist() == [0, 0, 0, 0]
    value = max_flow(information, integral=False, sources=[0], targets=[1, 2]).value.item()
    assert low[1] + high[2] == pytest.approx(value, rel=1e-13)
    assert score_ranges(information, layer=-1, sources=[0]).unique


def test_integral_capacities_have_ranges_of_their_own():
    information = attention(5, 3, 5) + 0.1  # gamma is 10
    flow = max_flow(information)
    low, high = score_ranges(information, integral=True)
    assert flow.certificate.gamma.item() == 10
    np.testing.assert_allclose(10 * np.stack([low, high]), np.round(10 * np.stack([low, high])), atol=1e-12)
    assert (score_ranges(information).high.sum() - high.sum()).item() > 0.1


def test_a_tie_that_floats_break_is_a_tie():
    # 0.1 + 0.2 is more than 0.3 by a last digit, so that the two nodes above could share that digit as they like.
    information = torch.zeros(2, 2, 2, dtype=torch.float64)
    information[1, 0, 0], information[1, 1, 0], information[0, 0, 0] = 0.1, 0.2, 0.3
    assert score_ranges(information, layer=-1).width.max() > 0
    assert score_ranges(information, layer=-1).unique
    information[0, 0, 0] = 0.3 - 1e-9
    assert not score_ranges(information, layer=-1).unique


def test_a_layer_may_be_numbered_by_numpy():
    information = attention(3, 2, 3)
    numbers: Any = np.arange(3)
    for layer in numbers:
        assert torch.equal(score_ranges(information, layer=layer).low, score_ranges(information, layer=int(layer)).low)


def test_one_network_gives_vectors_and_a_batch_matrices_whatever_they_are_made_of():
    information = attention(3, 2, 3)
    layers: Any = [x.clone().requires_grad_() for x in information]
    for capacities in (information, information.numpy(), information.tolist(), layers):
        assert score_ranges(capacities).low.shape == (3,)
    for capacities in (information[None], [information.numpy()], [information.tolist()], [information]):
        assert score_ranges(capacities).low.shape == (1, 3)


def test_no_path_is_a_flagged_zero():
    information = torch.zeros(3, 2, 3, 3)
    information[1, 0] = 1.0
    information[2] = 1.0
    ranges = score_ranges(information)
    assert not ranges.high[:2].any()
    assert ranges.dead.tolist() == [True, True, False]
    assert ranges.high[2].tolist() == [3, 3, 3]


@pytest.mark.parametrize(
    ("capacities", "settings", "error", "message"),
    [
        (torch.ones(2, 3, 4), {}, ValueError, r"not \(2, 3, 4\)"),
        (torch.full((1, 2, 2), torch.nan), {}, ValueError, "NaN"),
        (-torch.ones(1, 2, 2), {}, ValueError, "negative"),
        (torch.ones(2, 3, 3), {"layer": 3}, ValueError, "layer=3.* 0 .* 2"),
        (torch.ones(2, 3, 3), {"layer": -4}, ValueError, "layer=-4 does not exist"),
        (torch.ones(2, 3, 3), {"layer": 0.5}, ValueError, "whole number, not 0.5"),
        (torch.ones(2, 3, 3), {"layer": True}, ValueError, "whole number, not True"),
        (torch.ones(2, 3, 3), {"mask": torch.ones(4)}, ValueError, r"mask must have shape \(1, 3\)"),
        (torch.ones(2, 3, 3), {"terminal": "wide"}, ValueError, "'wide'"),
    ],
)
def test_what_cannot_be_is_refused(capacities, settings, error, message):
    with pytest.raises(error, match=message):
        score_ranges(capacities, **settings)


def test_a_missing_library_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.graph.python", None)
    with pytest.raises(MissingExtraError, match=r"gaflow\[maxflow\]"):
        score_ranges(torch.ones(1, 2, 2))


def test_scores_are_unique_if_they_are_open_by_a_trillionth_of_their_own_flow():
    high = torch.tensor([[1.0, 1.0], [1.0, 1.0], [1e3, 1e3], [0.0, 0.0]], dtype=torch.float64)
    width = torch.tensor([[1.5e-12, 0.0], [1e-10, 0.0], [1e-9, 0.0], [0.0, 0.0]], dtype=torch.float64)
    ranges = ScoreRanges(high - width, high)
    assert ranges.unique.tolist() == [True, False, True, True]
    assert ScoreRanges(ranges.low[1], high[1]).unique.tolist() is False


def test_a_network_is_dead_if_no_token_gets_anything():
    high = torch.tensor([[0.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
    assert ScoreRanges(high, high).dead.tolist() == [False, True, False]


def test_an_edge_that_rounding_takes_away_leaves_the_ranges_of_the_others():
    information = torch.tensor([[[1.0, 1e-30], [0.0, 1.0]]], dtype=torch.float64)
    low, high = score_ranges(information)
    assert low.tolist() == high.tolist() == [1, 1]


def test_a_flow_stands_for_the_network_that_it_was_solved_on():
    information = torch.rand(3, 4, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    flow = solve(information)
    for function in (score_ranges, shapley_estimate):
        for actual, expected in zip(function(flow), function(information), strict=True):
            assert actual.tolist() == expected.tolist()
    assert score_ranges(solve(information.expand(2, 3, 4, 4))).low.shape == (2, 4)
    with pytest.raises(ArgumentError) as caught:
        score_ranges(replace(flow, capacity=None))
    assert caught.value.argument == "information"
