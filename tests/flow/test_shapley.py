"""The Shapley value of the flow game: against brute force over orders and coalitions, ranges, and games by hand."""

import itertools
import math
import sys
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from gaflow.errors import ArgumentError, MissingExtraError
from gaflow.flow.maxflow.max_flow import max_flow
from gaflow.flow.maxflow.score_ranges import score_ranges
from gaflow.flow.maxflow.shapley import MAX_EXACT_TOKENS, MAX_ORDERS, shapley, shapley_estimate
from tests.flow.test_score_ranges import linear_program
from tests.support.networks import random_attention, random_information


def coalition_values(information: Tensor, **options) -> dict[frozenset[int], float]:
    """v(S) of every coalition, each by a maximum flow of its own."""
    t = information.shape[-1]
    values = {frozenset(): 0.0}
    for size in range(1, t + 1):
        for members in itertools.combinations(range(t), size):
            flow = max_flow(information, integral=False, targets=list(members), **options)
            values[frozenset(members)] = flow.value.item()
    return values


def over_all_orders(values: dict[frozenset[int], float], t: int) -> np.ndarray:
    """The mean marginal contribution over all t! orders."""
    total = np.zeros(t)
    for order in itertools.permutations(range(t)):
        for position, token in enumerate(order):
            before = frozenset(order[:position])
            total[token] += values[before | {token}] - values[before]
    return total / math.factorial(t)


@pytest.mark.parametrize("density", [1.0, 0.5])
@pytest.mark.parametrize(("layers", "t"), [(1, 3), (3, 4), (2, 5)])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_mean_over_all_orders(seed, layers, t, density):
    information = random_information(seed, layers, t, t, density=density)
    expected = over_all_orders(coalition_values(information), t)
    np.testing.assert_allclose(shapley(information), expected, rtol=0, atol=1e-12)


def test_it_is_the_printed_formula_divided_by_the_number_of_players():
    """Eq. 14 and 19 of the paper lack 1 / n: as printed they give n times the value."""
    information = random_information(3, 3, 4, 4)
    values = coalition_values(information)
    printed = np.zeros(4)
    for token in range(4):
        others = [other for other in range(4) if other != token]
        for size in range(4):
            for members in itertools.combinations(others, size):
                before = frozenset(members)
                printed[token] += (values[before | {token}] - values[before]) / math.comb(3, size)
    np.testing.assert_allclose(4 * shapley(information), printed, rtol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_under_terminals_that_bind_and_between_chosen_ends_it_is_the_mean_over_all_orders(seed):
    information = random_information(seed, 3, 4, 4)
    options = {"terminal": 0.7, "sources": [0, 2]}
    expected = over_all_orders(coalition_values(information, **options), 4)
    np.testing.assert_allclose(shapley(information, **options), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("orders", [None, 7])
@pytest.mark.parametrize("seed", range(5))
def test_values_lie_inside_the_ranges_and_sum_to_the_maximum_flow(seed, orders):
    information = random_attention(seed, 4, 8)
    values = shapley(information, orders)
    low, high = score_ranges(information)
    assert (values >= low - 1e-12).all()
    assert (values <= high + 1e-12).all()
    assert values.sum().item() == pytest.approx(max_flow(information, integral=False).value.item(), rel=1e-12)


@pytest.mark.parametrize("orders", [None, 3])
@pytest.mark.parametrize("seed", range(8))
def test_a_maximum_flow_has_these_scores(seed, orders):
    """A further layer lets token j have no more than its value: every maximum flow, by a linear program, fills it."""
    information = random_information(seed, 3, 5, 5, density=0.8)
    values = shapley(information, orders).numpy()
    limited = np.concatenate([np.diag(values)[None], information.numpy()])
    ranges = linear_program(limited, 0, 5 * float(information.max()))
    np.testing.assert_allclose(ranges, [values, values], rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_the_game_is_monotone_and_submodular(seed):
    information = random_information(seed, 3, 5, 5, density=0.6)
    values = coalition_values(information)
    for one, two in itertools.product(values, repeat=2):
        assert values[one & two] + values[one | two] <= values[one] + values[two] + 1e-12
        if one <= two:
            assert values[one] <= values[two] + 1e-12


def test_two_tokens_that_compete_for_one_edge_share_it():
    # Output 0 sends 2 to the node below; token 0 can take 1.5 of it, token 1 all, token 2 nothing.
    information = torch.tensor([[[1.5, 3.0, 0.0]] + 2 * [[0.0] * 3], [[2.0, 0.0, 0.0]] + 2 * [[0.0] * 3]])
    assert shapley(information).tolist() == [0.75, 1.25, 0.0]  # (1.5 + 0) / 2 and (2 + 0.5) / 2
    values, error = shapley_estimate(information)
    assert values.tolist() == [0.75, 1.25, 0.0]
    assert error.tolist() == [0.0, 0.0, 0.0]


def test_a_token_that_earns_almost_nothing_has_its_value_to_the_last_digit():
    information = torch.diag(torch.tensor([1.0, 2.0**-50], dtype=torch.float64))[None]
    assert shapley(information).tolist() == [1.0, 2.0**-50]


def test_symmetric_tokens_have_equal_values_and_null_tokens_none():
    information = torch.zeros(2, 4, 4, dtype=torch.float64)
    information[1, 0, 0] = 1
    information[0, 0, :3] = 5
    expected = [Fraction(1, 3)] * 3
    assert shapley(information).tolist() == pytest.approx([*map(float, expected), 0.0], rel=1e-14)


def test_drawn_orders_give_the_exact_value_within_their_error():
    information = random_attention(0, 3, 9)
    exact = shapley(information)
    values, error = shapley_estimate(information, 400)
    assert ((values - exact).abs() <= 4 * error + 1e-12).all()
    more = shapley_estimate(information, 1600).error
    # four times the orders, half the error
    assert 0.4 < (more.sum() / error.sum()).item() < 0.6


def test_the_standard_error_is_that_of_marginal_contributions():
    # of the two orders of two players each has marginals 1 and 0 for one unit: a fair coin
    information = torch.zeros(2, 2, 2, dtype=torch.float64)
    information[1, 0, 0] = 1
    information[0, 0] = 1
    values, error = shapley_estimate(information, 100)
    heads = round(100 * values[0].item())
    assert values.sum().item() == 1
    expected = math.sqrt(heads * (100 - heads) / 100 / 99 / 100)
    assert error.tolist() == pytest.approx([expected, expected], rel=1e-12)
    assert not torch.equal(values, shapley(information, 100, seed=1))
    assert torch.equal(values, shapley(information, 100, seed=0))


def test_as_many_tokens_as_coalitions_allow_have_exact_values():
    values, error = shapley_estimate(random_attention(1, 2, MAX_EXACT_TOKENS))
    assert error.tolist() == [0.0] * MAX_EXACT_TOKENS
    assert (values > 0).all()


def test_two_orders_are_enough_for_an_error():
    values, error = shapley_estimate(random_attention(1, 2, 5), 2)
    assert torch.isfinite(values).all()
    assert error.sum().item() > 0


def test_a_missing_library_is_reported_before_wrong_capacities(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.graph.python", None)
    with pytest.raises(MissingExtraError):
        shapley(-torch.ones(1, 2, 2))


def test_a_negative_seed_is_refused_even_where_nothing_is_drawn():
    with pytest.raises(ArgumentError, match="seed"):
        shapley(torch.ones(1, 2, 2), seed=-1)


def test_more_tokens_than_coalitions_allow_are_sampled():
    information = random_attention(1, 2, 15)
    values, error = shapley_estimate(information)
    assert error.sum().item() > 0
    again = shapley(information, 128)
    assert torch.equal(values, again)


def test_padding_and_units_change_nothing():
    information = random_information(4, 2, 3, 3)
    padded = torch.full((2, 5, 5), 7.0, dtype=torch.float64)
    padded[:, 1:4, 1:4] = information
    values = shapley(padded, mask=[0, 1, 1, 1, 0])
    np.testing.assert_allclose(values[1:4], shapley(information), rtol=1e-12)
    assert values[0] == values[4] == 0
    np.testing.assert_allclose(shapley(1e-20 * information), 1e-20 * shapley(information), rtol=1e-12)


@pytest.mark.parametrize("orders", [None, 5])
def test_a_network_without_a_path_has_values_of_0(orders):
    assert shapley(torch.zeros(2, 3, 3), orders).tolist() == [0, 0, 0]


@pytest.mark.parametrize("orders", [1, 0, -3, 2.5, "all"])
def test_too_few_orders_are_refused(orders):
    with pytest.raises(ArgumentError, match="orders"):
        shapley(torch.ones(1, 2, 2), orders)


def test_a_batch_is_refused():
    with pytest.raises(ValueError, match="batch of 2"):
        shapley(torch.ones(2, 1, 2, 2))


@pytest.mark.parametrize("orders", [1, 0, MAX_ORDERS + 1, 10**30])
def test_orders_that_memory_cannot_hold_or_that_have_no_error_are_refused(orders):
    with pytest.raises(ArgumentError, match=f"orders.*{MAX_ORDERS}"):
        shapley(torch.ones(1, 2, 2), orders)
