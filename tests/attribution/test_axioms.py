"""Theorem 3.1 by brute force, and results that were tampered with."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from gaflow.attribution.axioms import Axioms, axioms
from gaflow.errors import GaflowError
from gaflow.flow.barrier.solve import solve
from gaflow.flow.maxflow.max_flow import max_flow
from gaflow.flow.result import Flow
from gaflow.methods import FlowMethod
from tests.support.attributions import make
from tests.support.networks import random_attention


def blocked(flow: Flow, layer: int, passing: tuple[int, ...]) -> float:
    """What is left of a fixed flow when only the nodes `passing` of a layer let theirs through."""
    keep = torch.zeros(flow.target.shape[-1], dtype=torch.float64)
    keep[list(passing)] = 1
    if layer == 0:
        return float((flow.target[0] * keep).sum())
    return float((flow.edges[0, layer - 1] * keep[:, None]).sum())


def shapley_values(game, players: tuple[int, ...]) -> list[float]:
    """The average of what a player adds, over all coalitions of the others, weighted as eq. 21 has it."""
    n = len(players)
    worth = {s: game(s) for size in range(n + 1) for s in itertools.combinations(players, size)}
    values = []
    for i in players:
        others = [p for p in players if p != i]
        values.append(
            math.fsum(
                math.factorial(size) * math.factorial(n - size - 1) / math.factorial(n)
                * (worth[tuple(sorted((*s, i)))] - worth[s])
                for size in range(n)
                for s in itertools.combinations(others, size)
            )
        )  # fmt: skip
    return values


@pytest.mark.parametrize(("layers", "t"), [(1, 4), (3, 5), (2, 8), (1, 10)])
@pytest.mark.parametrize("solver", [solve, max_flow])
def test_through_flow_is_the_shapley_value_in_every_layer(solver, layers, t):
    flow = solver(random_attention(t, layers, t))
    for layer in range(layers + 1):
        shapley = shapley_values(lambda s, k=layer: blocked(flow, k, s), tuple(range(t)))
        np.testing.assert_allclose(shapley, flow.through()[0, layer], rtol=0, atol=1e-12 * flow.value.item())


@pytest.mark.parametrize("players", [(0,), (1, 4), (0, 2, 3, 5)])
def test_it_is_so_for_any_nodes_of_a_layer(players):
    flow = solve(random_attention(1, 3, 6))
    for layer in range(4):
        shapley = shapley_values(lambda s, k=layer: blocked(flow, k, s), players)
        np.testing.assert_allclose(shapley, flow.through()[0, layer, list(players)], rtol=1e-12)


def test_and_for_the_sum_of_all_layers_games():
    flow = solve(random_attention(2, 3, 5))
    shapley = shapley_values(lambda s: math.fsum(blocked(flow, k, s) for k in range(4)), tuple(range(5)))
    np.testing.assert_allclose(shapley, flow.through()[0].sum(0), rtol=1e-12)


def test_twice_the_capacities_are_twice_the_game():
    information = random_attention(3, 3, 5)
    torch.testing.assert_close(solve(2 * information).through(), 2 * solve(information).through(), rtol=1e-9, atol=0)


def dying(seed: int = 0) -> Tensor:
    """A token that nobody attends to, and two that are each other's likeness."""
    information = random_attention(seed, 3, 5)
    information[0, :, 4] = 0
    for layer in information:
        layer[[0, 1], :] = layer[[0, 1], :].mean(0)
        layer[:, [0, 1]] = layer[:, [0, 1]].mean(1, keepdim=True)
    return information


@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
@pytest.mark.parametrize("epsilon", [1.0, 1e-6])
def test_barrier_solutions_satisfy_all(epsilon, barrier):
    report = axioms(solve(dying(), epsilon=epsilon, barrier=barrier))
    assert report.ok, report
    assert max(report.residuals.values()) < 1e-10
    assert report.games == 4
    assert report.nulls == 1
    assert report.pairs == 4  # tokens 0 and 1 of every layer


@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_so_does_any_one_maximum_flow(direction):
    """The axioms do not tell flows apart: which maximum flow was taken is the arbitrary part."""
    one, other = max_flow(dying(), direction), max_flow(dying(), direction, integral=False)
    assert axioms(one).ok
    assert axioms(other).ok


def test_a_batch_is_as_bad_as_its_worst_item():
    flow = solve(torch.stack([dying(0), dying(1)]))
    assert axioms(flow).ok
    assert axioms(flow).games == 8
    target = flow.target.clone()
    target[1, 2] += 0.1 * flow.value[1]
    report = axioms(replace(flow, target=target))
    assert report.efficiency == pytest.approx(0.1)
    assert axioms(replace(flow, target=target)[0]).ok


def attribution(**changes):
    """Of the tokens of a small text, with the flow of a network in which two are alike and one is dead."""
    flow = solve(dying())
    att = make("a b c", flow=False)
    assert len(att.tokens) == flow.target.shape[-1] == 5
    through = flow.through()[0].numpy()
    fields = {"scores": through[0], "layers": through, "flow": flow, "certificate": flow.certificate[0]}
    return replace(att, **{**fields, **changes})


def moved(scores: np.ndarray, **by: float) -> np.ndarray:
    """`scores` with some changed, e.g. t2=0.1, in units of their sum."""
    changed = np.array(scores)
    for name, amount in by.items():
        changed[int(name[1:])] += amount * scores.sum()
    return changed


def test_an_untouched_attribution_satisfies_all():
    report = axioms(attribution())
    assert report.ok, report
    assert report.games == 5  # scores and four rows of layers
    assert report.nulls == 2


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        ({"t2": -0.01}, {"efficiency", "linearity"}),
        ({"t2": -0.01, "t3": 0.01}, {"linearity"}),
        ({"t0": -0.01, "t1": 0.01}, {"symmetry", "linearity"}),
        ({"t0": -0.01, "t3": 0.01}, {"symmetry", "linearity"}),
        ({"t2": -0.01, "t4": 0.01}, {"nullity", "linearity"}),
        ({"t4": 0.01}, {"efficiency", "nullity", "linearity"}),
    ],
)
@pytest.mark.parametrize("where", ["scores", "layers"])
def test_changed_scores_fail_the_axioms_they_break(change, failed, where):
    att = attribution()
    assert att.layers is not None
    scores = moved(att.scores, **change)
    changed = scores if where == "scores" else np.vstack([scores, att.layers[1:]])
    report = axioms(replace(att, **{where: changed}))
    assert set(report.failed) == failed
    assert not report.ok
    assert report.linearity == pytest.approx(0.01, rel=1e-6)


def test_uniform_scores_are_efficient_and_symmetric_only():
    att = attribution()
    report = axioms(replace(att, scores=np.full(5, att.scores.sum() / 5)))
    assert set(report.failed) == {"nullity", "linearity"}


def test_squared_scores_are_not_linear_only():
    """Efficient, symmetric, null where nothing flows: it is linearity that makes Shapley values unique."""
    att = attribution()
    squares = att.scores**2
    report = axioms(replace(att, scores=squares * att.scores.sum() / squares.sum()))
    assert set(report.failed) == {"linearity"}


@pytest.mark.parametrize("layer", range(3))
def test_a_changed_edge_is_seen(layer):
    flow = solve(dying())
    edges = flow.edges.clone()
    edges[0, layer, 2, 3] += 0.05 * flow.value[0]
    report = axioms(replace(flow, edges=edges))
    assert {"efficiency", "linearity"} <= set(report.failed)
    assert report.linearity == pytest.approx(0.05)
    assert not axioms(attribution(flow=replace(flow, edges=edges))).ok


def test_flow_that_changes_its_way_unbalanced_is_seen():
    """The sums of every layer stay, so that only linearity can tell."""
    flow = solve(dying())
    edges = flow.edges.clone()
    edges[0, 1, 2, 2] -= 0.01 * flow.value[0]
    edges[0, 1, 3, 3] += 0.01 * flow.value[0]
    assert axioms(replace(flow, edges=edges)).failed == ("linearity",)


@pytest.mark.parametrize("part", ["source", "target", "value"])
def test_changed_terminals_and_values_are_seen(part):
    flow = solve(dying())
    assert "efficiency" in axioms(replace(flow, **{part: 1.01 * getattr(flow, part)})).failed


def test_scores_must_agree_with_the_terminal_edges_too():
    flow = solve(dying())
    moved = flow.target.clone()
    moved[0, 2] -= 0.01 * flow.value[0]
    moved[0, 3] += 0.01 * flow.value[0]
    assert axioms(attribution(flow=replace(flow, target=moved))).failed == ("linearity",)


def test_nodes_that_count_as_equal_may_still_differ_by_what_they_add():
    report = axioms(solve(dying()), tolerance=0.1)
    assert report.pairs > 4
    assert report.symmetry < 1e-10


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("part", ["edges", "target", "value"])
def test_what_is_no_number_fails(part, bad):
    flow = solve(dying())
    broken = getattr(flow, part).clone()
    broken.view(-1)[0] = bad
    assert not axioms(replace(flow, **{part: broken})).ok


@pytest.mark.parametrize("layer", [0, 2, -1, "all"])
def test_scores_of_another_layer_belong_to_its_game(layer):
    att = attribution().at_layer(layer)
    assert axioms(att).ok
    assert axioms(att, layer=layer).ok
    wrong = 1 if layer != 1 else 2
    assert not axioms(att, layer=wrong).ok
    assert axioms(replace(att, scores=moved(att.scores, t0=0.1))).efficiency == pytest.approx(0.1)


def test_nothing_flows_and_nobody_earns():
    flow = solve(torch.zeros(2, 3, 3))
    report = axioms(flow)
    assert report.ok
    assert (report.nulls, report.pairs) == (9, 0)
    assert axioms(replace(flow, target=flow.target + 1e-9)).failed == ("efficiency", "nullity", "linearity")


def test_unbalanced_flow_of_a_failed_solve_is_seen():
    flow = solve(dying())
    assert not axioms(replace(flow, edges=flow.edges * (1 + 1e-6 * torch.rand_like(flow.edges)))).ok
    assert axioms(replace(flow, edges=flow.edges * (1 + 1e-6 * torch.rand_like(flow.edges))), tolerance=1e-5).ok


def test_the_report_reads_well():
    report = Axioms(1e-16, 0.25, 0.0, 3e-15, games=4, pairs=2, nulls=1, tolerance=1e-9)
    head, *rows = repr(report).splitlines()
    assert head == "Axioms(failed: symmetry, tolerance 1e-09)"
    assert [row.split()[:3] for row in rows] == [
        ["efficiency", "1.0e-16", "4"],
        ["symmetry", "2.5e-01", "2"],
        ["nullity", "0.0e+00", "1"],
        ["linearity", "3.0e-15", "4"],
    ]
    assert repr(replace(report, symmetry=0.0)).startswith("Axioms(ok, ")
    assert list(report.residuals) == ["efficiency", "symmetry", "nullity", "linearity"]


def test_what_cannot_be_checked_is_refused():
    with pytest.raises(GaflowError, match="keep_flow=True"):
        axioms(make(flow=False))
    with pytest.raises(TypeError, match="result must be"):
        axioms(torch.ones(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="layer is for attributions"):
        axioms(solve(torch.ones(1, 2, 2)), layer=0)
    with pytest.raises(ValueError, match="layer=9 does not exist"):
        axioms(attribution(), layer=9)
    with pytest.raises(ValueError, match=r"tolerance.*-1"):
        axioms(solve(torch.ones(1, 2, 2)), tolerance=-1)


@pytest.mark.parametrize(
    "method",
    [FlowMethod(preset="relevance_flow"), FlowMethod("agf", nodes=True, signed=True, residual=True, layer="all")],
    ids=lambda m: m.name,
)
def test_signed_scores_are_shapley_values_of_the_difference_of_two_games(explainer, method):
    att = explainer("bad, not good", method)
    for layer in range(len(att.layers)):

        def game(s, k=layer):
            return blocked(att.flow, k, s) - blocked(att.flow_against, k, s)

        shapley = shapley_values(game, tuple(range(len(att.tokens))))
        np.testing.assert_allclose(shapley, att.layers[layer], rtol=0, atol=1e-12 * att.flow.value.item())
    assert axioms(att).ok
    assert axioms(replace(att, scores=-att.scores)).failed
    assert axioms(replace(att, layers=att.layers[::-1])).failed


def test_a_signed_attribution_without_its_flow_against_cannot_be_checked(explainer):
    att = explainer("a gripping film.", "relevance_flow")
    with pytest.raises(GaflowError, match="holds no flow against"):
        axioms(replace(att, flow_against=None))
