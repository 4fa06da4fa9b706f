import math

import pytest

from gaflow.estimate import STEPS, estimate, extrapolate, solve_flops, solve_seconds


def test_a_trace_holds_attention_and_gradient_twice_in_float32():
    assert estimate(layers=2, heads=3, length=5).trace == 4 * (2 * 3 * 5 * 5) * 4


def test_the_solver_stays_within_the_estimate_of_its_largest_measured_size():
    measured, allowed = 422 * 2**20, 2**30
    assert measured <= estimate(layers=12, heads=12, length=512).solve < allowed


def test_flops_are_three_cubes_per_layer_and_step():
    assert solve_flops(7, 10) == STEPS * 3 * 7 * 1000
    assert estimate(layers=7, heads=2, length=10).flops == solve_flops(7, 10)


def test_weights_are_float32():
    assert estimate(layers=1, heads=1, length=1, parameters=10).weights == 40


def test_a_batch_costs_as_much_as_its_items_but_for_the_weights():
    one = estimate(layers=3, heads=2, length=9, parameters=100)
    many = estimate(layers=3, heads=2, length=9, parameters=100, batch=4)
    assert (many.trace, many.solve, many.flops) == (4 * one.trace, 4 * one.solve, 4 * one.flops)
    assert many.weights == one.weights


def test_extrapolating_to_the_same_size_changes_nothing():
    assert extrapolate(0.25, 64, 64, 12, 1e9) == 0.25


def test_extrapolated_seconds_grow_by_edges_and_then_by_flops():
    assert math.isclose(extrapolate(1.0, 10, 30, 2, math.inf), 9.0)
    flops = solve_flops(2, 30) - 9 * solve_flops(2, 10)
    assert math.isclose(extrapolate(1.0, 10, 30, 2, 1e6), 9.0 + flops / 1e6)


@pytest.mark.parametrize("length", [1, 100])
def test_seconds_are_taken_on_the_spot(length):
    assert 0 < solve_seconds(2, length) < math.inf


@pytest.mark.parametrize("size", ["layers", "heads", "length", "batch"])
def test_sizes_below_one_are_refused_by_name(size):
    with pytest.raises(ValueError, match=f"{size} must be at least 1, not 0"):
        estimate(**{"layers": 1, "heads": 1, "length": 1, "batch": 1, size: 0})
