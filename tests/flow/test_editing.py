"""Edited networks, against maximum flows that OR-Tools finds in graphs that this file builds edge by edge."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from ortools.graph.python import max_flow as ortools
from torch import Tensor

from gaflow.errors import ArgumentError, ArgumentTypeError
from gaflow.flow.barrier.solve import solve
from gaflow.flow.editing import edit, grouped
from gaflow.flow.maxflow.max_flow import max_flow
from gaflow.flow.result import Flow

LAYERS = 4
TOKENS = 5
WIDE = 10**9
TIGHT = 1e-9  # epsilon: how far a barrier flow may be from the maximum

Arcs = dict[tuple[tuple[int, int], tuple[int, int]], int]


def whole_numbers(seed: int = 0, layers: int = LAYERS, t: int = TOKENS) -> Tensor:
    return torch.randint(1, 20, (layers, t, t), generator=torch.Generator().manual_seed(seed)).double()


def arcs_of(information: Tensor) -> Arcs:
    """The edges of the network by their two nodes, (node layer, token)."""
    arcs = {}
    for k, i, j in information.nonzero().tolist():
        arcs[(k + 1, i), (k, j)] = int(information[k, i, j])
    return arcs


def maximum(arcs: Arcs, sources: list[tuple[int, int]], targets: list[tuple[int, int]]) -> int:
    """The maximum flow from any of the sources to any of the targets."""
    solver = ortools.SimpleMaxFlow()
    numbers = {node: k + 2 for k, node in enumerate({node for arc in arcs for node in arc})}
    for (tail, head), capacity in arcs.items():
        solver.add_arc_with_capacity(numbers[tail], numbers[head], capacity)
    for node in sources:
        if node in numbers:
            solver.add_arc_with_capacity(0, numbers[node], WIDE)
    for node in targets:
        if node in numbers:
            solver.add_arc_with_capacity(numbers[node], 1, WIDE)
    assert solver.solve(0, 1) == solver.OPTIMAL
    return solver.optimal_flow()


def all_of(layer: int, t: int = TOKENS) -> list[tuple[int, int]]:
    return [(layer, token) for token in range(t)]


def assert_maximum(flow: Flow, expected: int) -> None:
    """The edited flow is certified, and its bounds enclose the maximum."""
    assert flow.converged.all()
    value = flow.value.item()
    bound = flow.dual_value.item()
    assert value <= expected * (1 + 1e-12)
    assert expected <= bound * (1 + 1e-12)
    assert bound - value <= 2 * TIGHT * flow.certificate.kappa.item()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
def test_a_flow_without_edges_and_nodes_is_that_of_the_graph_without_them(seed, barrier):
    information = whole_numbers(seed)
    edges = [(2, 0, 1), (2, 3, 3), (0, 1, 1)]
    nodes = [(2, 4), (0, 0), (LAYERS, 2)]
    arcs = arcs_of(information)
    for k, i, j in edges:
        del arcs[(k + 1, i), (k, j)]
    arcs = {arc: capacity for arc, capacity in arcs.items() if not set(arc) & set(nodes)}
    flow = edit(solve(information, barrier=barrier), cut_edges=edges, cut_nodes=nodes, epsilon=TIGHT)
    assert_maximum(flow, maximum(arcs, all_of(LAYERS), all_of(0)))
    assert flow.barrier == barrier
    for k, i, j in edges:
        assert flow.edges[0, k, i, j] == 0
    for layer, token in nodes:
        assert flow.through()[0, layer, token] == 0


def test_a_wider_edge_has_a_multiple_of_its_capacity():
    information = whole_numbers(1)
    information[2] /= 4
    arcs = arcs_of(information * 4)
    arcs[(3, 1), (2, 2)] *= 7
    flow = edit(solve(information * 4), widen={(2, 1, 2): 7}, epsilon=TIGHT)
    assert_maximum(flow, maximum(arcs, all_of(LAYERS), all_of(0)))
    assert flow.capacity is not None
    assert flow.capacity[0, 2, 1, 2] == 7 * 4 * information[2, 1, 2]


@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
@pytest.mark.parametrize("skipped", [[0], [1], [3], [1, 2], [0, 3], [1, 2, 3]])
def test_a_network_with_skipped_layers_has_the_maximum_flow_of_one_without_them(skipped, barrier):
    information = whole_numbers(2)
    staying = [k for k in range(LAYERS) if k not in skipped]
    arcs = arcs_of(information[staying])
    flow = edit(solve(information, barrier=barrier), skip_layers=skipped, epsilon=TIGHT)
    assert_maximum(flow, maximum(arcs, all_of(len(staying)), all_of(0)))
    through = flow.through()[0]
    for k in skipped:
        torch.testing.assert_close(through[k + 1], through[k], rtol=1e-9, atol=1e-9 * flow.value.item())


@pytest.mark.parametrize(("skipped", "above", "below"), [([1, 2], [3], [0]), ([3], [], [2]), ([0, 1], [2], [])])
def test_edges_that_pass_a_layer_straight_are_as_wide_as_all_beside_them(skipped, above, below):
    information = whole_numbers(2) + 1
    capacity = edit(solve(information), skip_layers=skipped).capacity
    assert capacity is not None
    width = sum((information[k].sum(0) for k in above), torch.zeros(TOKENS))
    width = width + sum((information[k].sum(1) for k in below), torch.zeros(TOKENS))
    for k in skipped:
        torch.testing.assert_close(capacity[0, k], torch.diag(width).double(), rtol=1e-12, atol=0)


def test_an_edge_that_is_widened_by_0_is_cut():
    flow = solve(whole_numbers(2))
    torch.testing.assert_close(edit(flow, widen={(2, 1, 2): 0}).edges, edit(flow, cut_edges=[(2, 1, 2)]).edges)


@pytest.mark.parametrize("change", [{"skip_layers": ["first"]}, {"cut_nodes": [(1,)]}, {"cut_edges": [(0, 1)]}])
def test_what_is_no_place_in_the_network_is_refused(change):
    with pytest.raises((ArgumentError, ArgumentTypeError), match=next(iter(change))):
        edit(solve(whole_numbers(2)), **change)


def test_a_missing_edge_cannot_be_widened_without_end():
    with pytest.raises(ArgumentError, match="widen"):
        edit(solve(torch.eye(2)[None]), widen={(0, 0, 1): np.inf})


def test_a_cut_node_stops_what_would_go_straight_through_it():
    flow = edit(solve(whole_numbers(3)), skip_layers=[1, 2], cut_nodes=[(2, 0)])
    assert (flow.through()[0, 1:4, 0] == 0).all()
    assert (flow.through()[0, 1:4, 1:] > 0).all()


def test_only_tokens_that_took_part_pass_a_skipped_layer():
    information = whole_numbers(4)
    information[-1, 1:] = 0  # the head reads one row
    flow = edit(solve(information), skip_layers=[LAYERS - 1])
    assert flow.source[0].nonzero().flatten().tolist() == [0]


@pytest.mark.parametrize("seed", range(3))
def test_chosen_sources_and_targets_are_those_of_a_new_problem(seed):
    information = whole_numbers(seed)
    sources = [0, 3]
    targets = [1, 2, 4]
    ends: dict[str, Any] = {"sources": sources, "targets": targets}
    flow = edit(solve(information), **ends, epsilon=TIGHT)
    expected = maximum(arcs_of(information), [(LAYERS, i) for i in sources], [(0, j) for j in targets])
    assert_maximum(flow, expected)
    fresh = solve(information, **ends, epsilon=TIGHT)
    torch.testing.assert_close(flow.target, fresh.target, rtol=1e-9, atol=0)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 1.0, 1e3])
@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
def test_another_epsilon_is_another_problem(epsilon, barrier):
    information = whole_numbers(5)
    flow = edit(solve(information, barrier=barrier), epsilon=epsilon)
    fresh = solve(information, barrier=barrier, epsilon=epsilon)
    torch.testing.assert_close(flow.target, fresh.target, rtol=1e-9, atol=0)


@pytest.mark.parametrize("seed", range(3))
def test_groups_are_nodes_of_a_graph_whose_capacities_are_sums(seed):
    information = whole_numbers(seed)
    groups = [[1, 3], [4, 2]]
    nodes = [(0,), (1, 3), (2, 4)]
    assert grouped(TOKENS, groups) == nodes
    node_of = {token: node for node, tokens in enumerate(nodes) for token in tokens}
    arcs: Arcs = {}
    for ((k, i), (below, j)), capacity in arcs_of(information).items():
        arc = ((k, node_of[i]), (below, node_of[j]))
        arcs[arc] = arcs.get(arc, 0) + capacity
    flow = edit(solve(information), groups=groups, sources=[0, 3], targets=[1, 2], epsilon=TIGHT)
    assert_maximum(flow, maximum(arcs, [(LAYERS, 0), (LAYERS, 1)], [(0, 1), (0, 2)]))
    assert flow.edges.shape == (1, LAYERS, 3, 3)
    assert flow.capacity is not None
    for ((k, i), (_, j)), capacity in arcs.items():
        if flow.capacity[0, k - 1, i, j]:  # alive between the chosen ends
            assert flow.capacity[0, k - 1, i, j] == capacity


def test_grouping_never_lowers_the_maximum_flow_and_groups_of_one_change_nothing():
    flow = solve(whole_numbers(6), epsilon=TIGHT)
    same = edit(flow, groups=[[token] for token in range(TOKENS)])
    torch.testing.assert_close(same.target, flow.target, rtol=1e-9, atol=0)
    assert edit(flow, groups=[[0, 1], [2, 3]]).value >= flow.value * (1 - TIGHT)


def test_changes_are_made_before_tokens_are_grouped():
    information = whole_numbers(7)
    direct = information.clone()
    direct[1, 2, 3] = 0
    both = edit(solve(information), cut_edges=[(1, 2, 3)], groups=[[2, 3]])
    one = edit(solve(direct), groups=[[2, 3]])
    torch.testing.assert_close(both.target, one.target, rtol=1e-9, atol=0)


def test_no_change_gives_the_same_flow_and_settings_are_kept():
    information = whole_numbers(8)
    settings: list[dict[str, Any]] = [
        {"epsilon": 0.1},
        {"barrier": "capacity", "epsilon": 0.1},
        {"terminal": "tokens"},
        {"terminal": 7.0},
        {"terminal": "adjacent"},
        {"mu": 0.01},
    ]
    for setting in settings:
        flow = solve(information, **setting)
        again = edit(flow)
        torch.testing.assert_close(again.edges, flow.edges, rtol=1e-8, atol=0)
        torch.testing.assert_close(again.mu, flow.mu, rtol=1e-12, atol=0)


def test_the_original_is_left_alone():
    flow = solve(whole_numbers(9))
    assert flow.capacity is not None
    before = flow.capacity.clone(), flow.edges.clone()
    edit(flow, cut_edges=[(0, 0, 0)], widen={(1, 1, 1): 2}, skip_layers=[2], cut_nodes=[(1, 1)])
    assert torch.equal(before[0], flow.capacity)
    assert torch.equal(before[1], flow.edges)


def test_items_of_a_batch_are_edited_alike():
    information = torch.stack([whole_numbers(k) for k in range(3)])
    changes: dict[str, Any] = {"cut_edges": [(1, 0, 0)], "skip_layers": [2], "groups": [[0, 4]], "sources": [0, 1]}
    flow = edit(solve(information, terminal=torch.tensor([5.0, 6.0, 700.0])), **changes)
    for item in range(3):
        one = edit(solve(information[item], terminal=[5.0, 6.0, 700.0][item]), **changes)
        torch.testing.assert_close(flow.target[item], one.target[0], rtol=1e-8, atol=0)


def test_a_network_without_a_path_is_flagged_and_can_be_edited_again():
    dead = edit(solve(whole_numbers()), cut_nodes=[(2, token) for token in range(TOKENS)])
    assert dead.value == 0
    assert dead.certificate.dead.all()
    assert edit(dead, skip_layers=[0]).value == 0


def test_a_plain_maximum_flow_needs_a_barrier():
    information = whole_numbers()
    plain = max_flow(information)
    with pytest.raises(ArgumentError, match="barrier"):
        edit(plain)
    with pytest.raises(ArgumentError, match="epsilon"):
        edit(plain, barrier="uniform")
    flow = edit(plain, barrier="uniform", epsilon=1e-3)
    torch.testing.assert_close(flow.target, solve(information, epsilon=1e-3).target, rtol=1e-9, atol=0)


def test_changes_may_be_arrays_and_generators():
    flow = solve(whole_numbers())
    expected = edit(flow, cut_edges=[(0, 1, 2), (1, 1, 1)], groups=[[1, 2]], sources=[0, 1], widen={(2, 0, 0): 2.0})
    actual = edit(
        flow,
        cut_edges=np.array([[0, 1, 2], [1, 1, 1]]),  # type: ignore[arg-type]
        groups=(iter([token, token + 1]) for token in (1,)),  # type: ignore[arg-type]
        sources=np.array([0, 1]),
        widen={(np.int64(2), 0, 0): np.float32(2)},  # type: ignore[dict-item]
    )
    torch.testing.assert_close(actual.edges, expected.edges, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"cut_edges": [(LAYERS, 0, 0)]}, "cut_edges"),
        ({"cut_edges": [(0, -1, 0)]}, "cut_edges"),
        ({"cut_edges": [(0, 0)]}, "cut_edges"),
        ({"cut_edges": [(0, 0, 1.5)]}, "cut_edges"),
        ({"cut_edges": ["012"]}, "cut_edges"),
        ({"cut_nodes": [(LAYERS + 1, 0)]}, "cut_nodes"),
        ({"cut_nodes": [(0, True)]}, "cut_nodes"),
        ({"skip_layers": range(LAYERS)}, "skip_layers"),
        ({"skip_layers": [LAYERS]}, "skip_layers"),
        ({"widen": {(0, 0, 0): -1.0}}, "widen"),
        ({"widen": {(0, 0, 0): np.inf}}, "widen"),
        ({"widen": {(0, 0, 0): 1e308}}, "widen"),
        ({"widen": {(0, 0, 0): "2"}}, "widen"),
        ({"sources": [TOKENS]}, "sources"),
        ({"sources": []}, "sources"),
        ({"targets": [False] * TOKENS}, "targets"),
        ({"groups": [[0, 1], [1, 2]]}, "groups"),
        ({"groups": [[0, 0]]}, "groups"),
        ({"groups": [[]]}, "groups"),
        ({"groups": [np.array(0.0)]}, "groups"),
        ({"groups": [[TOKENS]]}, "groups"),
        ({"epsilon": 0.0}, "epsilon"),
    ],
)
def test_changes_that_cannot_be_are_refused_by_name(changes, argument):
    with pytest.raises((ArgumentError, ArgumentTypeError)) as error:
        edit(solve(whole_numbers()), **changes)
    assert error.value.argument == argument


def test_a_flow_without_capacities_is_refused():
    with pytest.raises(ArgumentError) as error:
        edit(replace(solve(whole_numbers()), capacity=None))
    assert error.value.argument == "flow"
