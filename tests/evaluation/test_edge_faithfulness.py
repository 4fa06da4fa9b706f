from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch

import gaflow
from gaflow.errors import ArgumentError, ArgumentTypeError
from gaflow.evaluation import EdgeEvaluation, cut_edges, edge_sets, edges, route_edges
from gaflow.evaluation.edge_faithfulness import patched_model
from tests.support.models import bert, gpt2

TEXTS = ["the dog is good", "not bad"]


@pytest.fixture(scope="module")
def explainer():
    return gaflow.Explainer(*bert())


@pytest.fixture(scope="module")
def attributions(explainer):
    return explainer(TEXTS, "relevance_flow")


def test_measures_are_differences_of_the_probabilities_of_runs():
    result = EdgeEvaluation(
        methods=("a", "b"),
        levels=(10, 50),
        replacement="zero",
        probability=np.array([0.9, 0.5]),
        without_top=np.array([[[0.8, 0.6], [0.5, 0.1]], [[0.9, 0.9], [0.5, 0.5]]]),
        top_alone=np.array([[[0.9, 0.7], [0.5, 0.5]], [[0.1, 0.1], [0.1, 0.1]]]),
        edge_counts=np.array([10, 20]),
    )
    np.testing.assert_allclose(result.per_text("comprehensiveness"), [[0.2, 0.2], [0.0, 0.0]])
    np.testing.assert_allclose(result.per_text("sufficiency"), [[0.1, 0.0], [0.8, 0.4]])
    assert result.difference("a", "b") == pytest.approx((0.2, 0.0))
    assert result.difference("b", "a", "sufficiency") == pytest.approx((0.55, 0.15))
    table = result.table()
    assert table.loc["a", "comprehensiveness"] == pytest.approx(0.2)
    assert table.loc["b", "sufficiency_error"] == pytest.approx(0.2)


def test_an_edge_that_decides_alone_is_found_by_its_score(explainer):
    """Scores that are the true loss of every single edge beat the same scores negated."""
    (encoding,) = explainer.runner.encode([TEXTS[0]], names=["text"])
    attribution = explainer(TEXTS[0], "agf")
    layers, t, _ = attribution.flow.edges[0].shape
    assert len(encoding) == t
    patched = patched_model(explainer, encoding, "zero")
    single = torch.eye(layers * t * t, dtype=torch.bool).reshape(-1, layers, t, t)
    log_probabilities = patched.logits(single).log_softmax(-1)[:, attribution.target]
    losses = -log_probabilities.numpy().reshape(layers, t, t)
    result = edges(explainer, TEXTS[:1], {"true": [losses], "opposite": [-losses]}, "zero", levels=(1,))
    true, opposite, _ = result.per_text("comprehensiveness")[:, 0]
    assert true > opposite


def test_equal_scores_of_two_methods_give_equal_measures_in_every_replacement(explainer, attributions):
    arrays = [(att.flow.edges[0] - att.flow_against.edges[0]).numpy() for att in attributions]
    for replacement in ("pad", "mask", "zero", "renormalise"):
        result = edges(explainer, TEXTS, {"flow": attributions, "array": arrays}, replacement)
        assert result.methods == ("flow", "array", "random")
        np.testing.assert_array_equal(result.without_top[0], result.without_top[1])
        np.testing.assert_array_equal(result.top_alone[0], result.top_alone[1])


def test_texts_do_not_see_each_other(explainer, attributions):
    together = edges(explainer, TEXTS, {"flow": attributions})
    alone = edges(explainer, TEXTS[1:], {"flow": attributions[1:]})
    np.testing.assert_array_equal(together.without_top[:, 1:], alone.without_top)


def test_removing_all_edges_is_keeping_none_but_the_diagonal(explainer, attributions):
    everything = edges(explainer, TEXTS, {"flow": attributions}, "zero", levels=(100,))
    np.testing.assert_allclose(everything.top_alone, np.broadcast_to(everything.probability[:, None], (2, 2, 1)))
    np.testing.assert_array_equal(everything.without_top[0], everything.without_top[1])


def test_a_decoder_has_no_edges_into_the_future():
    explainer = gaflow.Explainer(*gpt2())
    attributions = explainer(TEXTS, "agf")
    result = edges(explainer, TEXTS, {"flow": attributions}, "zero")
    for count, att in zip(result.edge_counts, attributions, strict=True):
        t = len(att.tokens)
        assert count == explainer.model.config.n_layer * t * (t - 1) // 2


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("scores", {"scores": {}}),
        ("scores", {"scores": {"random": []}}),
        ("scores", {"scores": {"flow": [np.zeros((1, 2, 2))]}}),
        ("replacement", {"replacement": "delete"}),
        ("levels", {"levels": (0, 10)}),
        ("levels", {"levels": ()}),
        ("levels", {"levels": (0.5,)}),
        ("levels", {"levels": (None, 10)}),
        ("levels", {"levels": np.ones((2, 3))}),
    ],
)
def test_wrong_arguments_are_named(explainer, attributions, argument, change):
    settings = {"scores": {"flow": attributions}} | change
    with pytest.raises(ArgumentError) as error:
        edges(explainer, TEXTS, **settings)
    assert error.value.argument == argument


def test_levels_may_be_an_array(explainer, attributions):
    levels = cast("Sequence[int]", np.array([10, 50]))
    assert edges(explainer, TEXTS, {"flow": attributions}, levels=levels).levels == (10, 50)


def test_scores_must_have_layers_queries_and_keys(explainer, attributions):
    with pytest.raises(ArgumentTypeError):
        edges(explainer, TEXTS, {"flow": [np.zeros(4), np.zeros(4)]})
    wrong = [np.zeros((1, 2, 2)), np.zeros((1, 2, 2))]
    with pytest.raises(ArgumentError):
        edges(explainer, TEXTS, {"flow": wrong})
    flowless = SimpleNamespace(certificate=None, flow=None)
    with pytest.raises(ArgumentError):
        edges(explainer, TEXTS, {"flow": [flowless, flowless]})


def test_sets_of_edges_are_compared_with_as_many_of_the_highest_scored(explainer, attributions):
    sets = [route_edges(att.flow, 3) for att in attributions]
    scores = [att.flow.edges[0].numpy() for att in attributions]
    result = edge_sets(explainer, TEXTS, {"routes": sets}, {"flow": scores}, "zero", draws=2)
    assert result.rankings == ("the set itself", "flow", "random")
    for index, (text, att) in enumerate(zip(TEXTS, attributions, strict=True)):
        (encoding,) = explainer.runner.encode([text], names=["text"])
        patched = patched_model(explainer, encoding, "zero")
        live = patched.live_edges()
        candidates = live & ~torch.eye(live.shape[-1], dtype=torch.bool)
        members = torch.from_numpy(sets[index]) & candidates
        count = int(members.sum())
        assert result.sizes[0, index] == count > 0
        flat = torch.from_numpy(scores[index]).masked_fill(~candidates, -1).flatten()
        highest = torch.zeros_like(flat, dtype=torch.bool)
        highest[flat.argsort(descending=True, stable=True)[:count]] = True
        for row, edge_set in enumerate((members, highest.reshape(live.shape))):
            runs = torch.stack([edge_set, candidates & ~edge_set])
            probabilities = patched.logits(runs).softmax(-1)[:, att.target].tolist()
            assert result.without[0, row, index] == pytest.approx(probabilities[0], abs=1e-6)
            assert result.alone[0, row, index] == pytest.approx(probabilities[1], abs=1e-6)
    table = result.table()
    assert table.loc[("routes", "flow"), "size"] == result.sizes[0].mean()
    expected = (result.probability - result.without[0, 1]).mean()
    assert table.loc[("routes", "flow"), "comprehensiveness"] == pytest.approx(expected)


def test_an_empty_set_is_no_measure(explainer, attributions):
    empty = [np.zeros(att.flow.edges.shape[1:], dtype=bool) for att in attributions]
    one = [empty[0], route_edges(attributions[1].flow, 1)]
    result = edge_sets(explainer, TEXTS, {"none": empty, "one": one}, {"flow": attributions}, "zero", draws=1)
    assert np.isnan(result.without[0]).all()
    assert np.isnan(result.without[1, :, 0]).all()
    table = result.table()
    assert table.loc[("none", "flow"), "texts"] == 0
    with pytest.raises(ArgumentError) as error:
        edge_sets(explainer, TEXTS, {}, {"flow": attributions})
    assert error.value.argument == "sets"


def test_routes_and_cuts_name_their_edges(attributions):
    for att in attributions:
        flow = att.flow
        masks = route_edges(flow, 2)
        expected = set()
        for route in gaflow.routes(flow, 2):
            for layer, (below, above) in enumerate(zip(route.tokens, route.tokens[1:], strict=False)):
                expected.add((layer, above, below))
        assert set(zip(*np.nonzero(masks), strict=True)) == expected
        cut = gaflow.min_cut(flow)
        inside = {(edge.layer, edge.i, edge.j) for edge in cut.edges if 0 <= edge.layer < len(masks)}
        assert set(zip(*np.nonzero(cut_edges(flow)), strict=True)) == inside
