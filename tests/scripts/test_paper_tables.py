"""The scripts behind appendix C, Table 7 and the table of mu and u_inf compute what they say."""

import numpy as np
import pytest
import torch

from benchmarks.algorithms import Comparison, barrier_difference, compare, grid
from benchmarks.growth import capacities, exponent
from benchmarks.sensitivity import difference, variants
from tests.support.networks import random_information


def test_with_one_layer_both_algorithms_fill_every_edge():
    comparison = compare(random_information(0, 1, 4, 4))
    assert comparison == Comparison(value=0, edges=0, moved=0, scores=0, range_width=0)


def test_with_more_layers_they_agree_in_value_only():
    comparison = compare(random_information(0, 3, 4, 4))
    assert comparison.value == 0
    assert comparison.edges > 0.01
    assert 0 < comparison.scores < 1
    assert 0 < comparison.moved < 1
    assert comparison.range_width > 0


def test_the_barrier_solutions_of_both_algorithms_coincide():
    assert barrier_difference(0) < 1e-8


def test_a_grid_has_a_row_for_each_number_of_tokens(monkeypatch):
    monkeypatch.setattr("benchmarks.algorithms.TOKENS", (2,))
    monkeypatch.setattr("benchmarks.algorithms.LAYERS", (1, 3))
    same = Comparison(value=0, edges=0, moved=0, scores=0, range_width=0)
    other = Comparison(value=0, edges=0.5, moved=0.25, scores=0.125, range_width=0.5)
    comparisons = {(2, 1): [same, same], (2, 3): [same, other]}
    assert grid("edges", comparisons, share=True) == ["| t \\ l | 1 | 3 |", "|---:|---:|---:|", "| 2 | 0% | 50% |"]
    assert grid("moved", comparisons, share=False)[-1] == "| 2 | 0.0% | 12.5% |"


def test_an_exponent_is_that_of_a_power_law():
    assert exponent([1, 2, 4, 8], [5.0 * size**1.5 for size in (1, 2, 4, 8)]) == pytest.approx(1.5)


def test_capacities_of_the_growth_table_are_those_of_agf():
    tensor = capacities(2, 5, torch.Generator().manual_seed(0))
    assert tensor.shape == (2, 5, 5)
    assert (tensor >= 0).all()
    assert (tensor.sum(-1) < 5).all()  # attention rows sum to 1


def test_scores_are_compared_as_shares_of_the_flow():
    default = [np.array([1.0, 2.0, 3.0])]
    assert difference([10 * default[0]], default) == (0.0, 1.0)
    moved, correlation = difference([np.array([3.0, 2.0, 1.0])], default)
    assert moved == pytest.approx(1 / 3)
    assert correlation == -1


def test_each_variant_changes_one_setting():
    names = {method.name for method in variants("agf").values()}
    assert {"agf", "agf(terminal='tokens')", "agf(epsilon=100.0)"} <= names
    assert len(names) == len(variants("agf")) - 1  # the default is among both sweeps
