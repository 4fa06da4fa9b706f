"""Which edges of a flow are shown, on a flow whose edges can be counted by hand."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import gaflow
from gaflow.view.flow_graph import EdgeSelection, Graph
from tests.support.attributions import make_flow

# Two layers of three tokens: edges[l, i, j] goes from i above to j below; every layer carries 10
EDGES = np.array(
    [
        [[4.0, 1.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0]],
        [[5.0, 0.0, 0.5], [0.0, 2.0, 0.0], [0.0, 0.0, 2.5]],
    ]
)
THROUGH = np.array([[4.0, 3.0, 3.0], [5.0, 2.0, 3.0], [5.5, 2.0, 2.5]])
GRAPH = Graph(EDGES, THROUGH[[0, -1]], THROUGH)


def edges_of(selection: EdgeSelection) -> list[tuple[int, int, int, float]]:
    return [
        *zip(
            selection.layer.tolist(), selection.i.tolist(), selection.j.tolist(), selection.amount.tolist(), strict=True
        )
    ]


def random_graph(layers: int = 4, t: int = 12, seed: int = 0) -> Graph:
    noise = torch.randn(layers, t, t, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Graph.of(gaflow.solve((4 * noise).softmax(-1)))


def test_a_graph_has_the_amounts_of_its_flow():
    flow = gaflow.solve(torch.tensor([[[2.0, 1.0], [0.0, 1.0]], [[1.0, 1.0], [1.0, 3.0]]]))
    graph = Graph.of(flow)
    np.testing.assert_array_equal(graph.edges, flow.edges[0].numpy())
    np.testing.assert_array_equal(graph.through, flow.through()[0].numpy())
    for amounts, expected in zip(graph.ends, (flow.target, flow.source), strict=True):
        assert amounts is not None
        np.testing.assert_array_equal(amounts, expected[0].numpy())
        assert amounts.dtype == np.float64
        assert amounts.sum() == pytest.approx(flow.value.item(), rel=1e-12)


def test_the_strongest_edges_are_equally_many_in_each_layer_and_the_weakest_comes_first():
    assert edges_of(GRAPH.strongest(4)) == [(1, 2, 2, 2.5), (0, 2, 2, 3.0), (0, 0, 0, 4.0), (1, 0, 0, 5.0)]
    assert edges_of(GRAPH.strongest(2)) == [(0, 0, 0, 4.0), (1, 0, 0, 5.0)]


def test_at_least_one_edge_of_each_layer_is_shown_and_never_one_that_carries_nothing():
    assert edges_of(GRAPH.strongest(1)) == edges_of(GRAPH.strongest(2))
    everything = GRAPH.strongest(1000)
    assert len(edges_of(everything)) == int((EDGES > 0).sum()) == 8
    assert all(amount == EDGES[layer, i, j] > 0 for layer, i, j, amount in edges_of(everything))


@pytest.mark.parametrize("most", [4, 40, 200, 576])
def test_no_edge_that_is_left_out_carries_more_than_one_that_is_shown(most):
    graph = random_graph()
    selection = graph.strongest(most)
    hidden = graph.edges.copy()
    hidden[selection.layer, selection.i, selection.j] = 0
    for layer in range(4):
        assert selection.amount[selection.layer == layer].min() >= hidden[layer].max()
        assert (selection.layer == layer).sum() == most // 4
    assert (np.diff(selection.amount) >= 0).all()


def test_ties_are_broken_by_place_so_that_the_same_flow_gives_the_same_edges():
    flat = Graph(np.ones((1, 3, 3)), np.full((2, 3), 3.0), np.full((2, 3), 3.0))
    assert edges_of(flat.strongest(2)) == [(0, 0, 0, 1.0), (0, 0, 1, 1.0)]


def test_edges_of_another_flow_count_too_but_show_what_flows_here():
    beside = np.zeros_like(EDGES)
    beside[0, 0, 2] = 9.0
    assert (0, 0, 2, 0.0) in edges_of(GRAPH.strongest(2, beside))


@pytest.mark.parametrize("most", [1, 20])
def test_with_ways_every_token_at_either_end_reaches_the_other(most):
    graph = random_graph(layers=5)
    selection = graph.strongest(most, complete_paths=True)
    is_shown = np.zeros_like(graph.edges, dtype=bool)
    is_shown[selection.layer, selection.i, selection.j] = True
    up = down = np.eye(12, dtype=bool)
    for layer in range(5):
        up = (is_shown[layer].astype(int) @ up) > 0
        down = (is_shown[4 - layer].T.astype(int) @ down) > 0
    assert up.any(0).all()
    assert down.any(0).all()
    assert set(edges_of(graph.strongest(most))) <= set(edges_of(selection))


def test_a_way_goes_along_the_strongest_edge_of_every_node_on_it():
    graph = random_graph(layers=3, t=7)
    edges = set(edges_of(graph.strongest(1, complete_paths=True)))
    for token in range(7):
        up, down = token, token
        for layer in range(3):
            best = int(graph.edges[layer, :, up].argmax())
            assert (layer, best, up, graph.edges[layer, best, up]) in edges
            up = best
        for layer in (2, 1, 0):
            best = int(graph.edges[layer, down].argmax())
            assert (layer, down, best, graph.edges[layer, down, best]) in edges
            down = best


def test_a_share_is_the_part_of_the_flow_summed_over_layers():
    selection = GRAPH.strongest(4)
    assert selection.share() == 14.5 / 20
    np.testing.assert_allclose(selection.layer_shares(), [0.7, 0.75])
    assert not selection.is_complete
    assert re.findall(r"[\d.]+%?", selection.describe("flow")) == ["4", "8", "72.5%"]


def test_everything_is_said_to_be_all():
    selection = GRAPH.strongest(18)
    assert selection.is_complete
    assert selection.share() == pytest.approx(1, abs=1e-15)
    assert re.findall(r"\d+", selection.describe("capacity")) == ["8"]


def test_where_nothing_flows_nothing_is_shown():
    dead = Graph(np.zeros((2, 3, 3)), np.zeros((2, 3)), np.zeros((3, 3)))
    selection = dead.strongest(100, complete_paths=True)
    assert edges_of(selection) == []
    assert selection.is_complete
    assert selection.share() == 1
    np.testing.assert_array_equal(selection.layer_shares(), [0, 0])


def test_what_is_no_single_flow_is_refused():
    flow = make_flow(3)
    both = replace(flow, value=torch.cat([flow.value, flow.value]))
    with pytest.raises(ValueError, match=r"against.*batch of 2.*flow\[0\]"):
        Graph.of(both, "against")
    with pytest.raises(TypeError, match=r"flow.*Flow.*str"):
        Graph.of("agf")  # type: ignore[arg-type]
