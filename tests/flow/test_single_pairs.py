from itertools import product

import numpy as np
import pytest

import gaflow
from gaflow.flow.maxflow.single_pairs import pair_values


def smallest_cut(capacity, start, end):
    """The least capacity between output node `start` and input node `end` of (l, t, t), over all cuts there are."""
    layers, t, _ = capacity.shape
    inner = [(k, i) for k in range(layers + 1) for i in range(t)]
    inner.remove((layers, start))
    inner.remove((0, end))
    best = np.inf
    for sides in product((False, True), repeat=len(inner)):
        side = dict(zip(inner, sides, strict=True)) | {(layers, start): True, (0, end): False}
        crossing = (
            capacity[k, i, j]
            for k in range(layers)
            for i in range(t)
            for j in range(t)
            if side[k + 1, i] and not side[k, j]
        )
        best = min(best, sum(crossing))
    return best


@pytest.mark.parametrize("shape", [(1, 3), (2, 2), (2, 3), (4, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_every_pair_carries_its_smallest_cut(shape, seed):
    layers, t = shape
    rng = np.random.default_rng(seed)
    capacity = rng.random((layers, t, t)) ** 3 * (rng.random((layers, t, t)) < 0.7)
    expected = [[smallest_cut(capacity, i, j) for j in range(t)] for i in range(t)]
    values = pair_values(capacity, range(t))
    assert values == pytest.approx(np.array(expected), rel=1e-12, abs=1e-12)


def test_a_pair_is_a_flow_with_one_source_and_one_target():
    capacity = np.random.default_rng(0).random((4, 6, 6)) ** 6
    values = pair_values(capacity, [5, 2])
    for row, output in enumerate((5, 2)):
        for token in range(6):
            flow = gaflow.max_flow(capacity, integral=False, sources=[output], targets=[token])
            assert values[row, token] == pytest.approx(flow.value.item(), rel=1e-12)


@pytest.mark.parametrize("scale", [1e-200, 1e-9, 1.0, 1e12, 1e200])
def test_units_do_not_matter(scale):
    capacity = np.random.default_rng(1).random((3, 4, 4))
    assert pair_values(scale * capacity, [0]) == pytest.approx(scale * pair_values(capacity, [0]), rel=1e-12)


def test_nodes_that_no_edge_touches_get_nothing():
    capacity = np.zeros((2, 3, 3))
    assert pair_values(capacity, [0, 2]).tolist() == [[0, 0, 0], [0, 0, 0]]
    capacity[1, 0, 1] = 0.5
    capacity[0, 1, 2] = 0.25
    assert pair_values(capacity, [0, 2]).tolist() == [[0, 0, 0.25], [0, 0, 0]]
