"""Results are kept up to a number of bytes."""

from dataclasses import replace

import pytest

import gaflow
from gaflow.web.kept import Kept, size_of
from gaflow.web.problems import HttpProblem
from tests.support.attributions import make
from tests.support.networks import random_attention


def result() -> gaflow.Attribution:
    att = make("the dog's ok")
    return replace(att, flow=gaflow.solve(random_attention(0, 3, len(att.tokens))))


def test_the_result_that_was_not_used_for_longest_is_dropped():
    att = result()
    results = Kept(2 * size_of(att))
    first = results.add(att, "a")
    second = results.add(att, "b")
    results.get(first)
    third = results.add(att, None)
    assert results.get(first) == (att, "a")
    assert results.get(third) == (att, None)
    with pytest.raises(HttpProblem) as problem:
        results.get(second)
    assert problem.value.status_code == 404
    assert len(results) == 2
    assert results.size == 2 * size_of(att)


def test_the_latest_result_is_kept_however_large_it_is():
    results = Kept(1)
    results.add(result(), None)
    key = results.add(result(), None)
    assert len(results) == 1
    results.get(key)
    results.remove(key)
    assert (len(results), results.size) == (0, 0)


def test_a_size_counts_every_number_of_the_flow():
    att = result()
    flow = att.flow
    assert flow is not None
    assert flow.capacity is not None
    numbers = flow.edges.numel() + flow.capacity.numel()
    assert size_of(att) >= 8 * numbers
    assert size_of(replace(att, flow_against=flow)) - size_of(att) >= 8 * numbers
