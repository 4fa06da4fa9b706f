"""Attributions handed to the real libraries, and taken from them."""

import json
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import visualization
from matplotlib import pyplot

import gaflow
from gaflow.attribution.attribution import Attribution
from gaflow.errors import ArgumentError, ArgumentTypeError
from tests.support.attributions import make, scored
from tests.support.graph_format import check_readable
from tests.support.models import bert
from tests.support.shortcut import one_word_bert
from tests.support.task_models import sentence_encoder

TEXT = "although this dog is not cute, it is very smart."


@pytest.fixture(scope="module")
def shap():
    """The library, whose import uses what matplotlib is about to drop."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import shap
    return shap


def test_shap_draws_what_it_is_handed(shap):
    att = scored(TEXT, label="positive")
    explanation = att.to_shap()
    assert isinstance(explanation, shap.Explanation)
    assert explanation.feature_names == list(att.tokens)
    assert np.array_equal(explanation.values, att.scores)
    markup = shap.plots.text(explanation, display=False)
    assert "smart" in markup
    shap.plots.bar(explanation, show=False)
    labels = [label.get_text() for label in pyplot.gca().get_yticklabels()]
    pyplot.close("all")
    strongest = att.tokens[abs(att.scores).argmax()]
    assert any(strongest in label for label in labels)


@pytest.mark.usefixtures("shap")
def test_what_shap_was_handed_comes_back():
    att = scored(TEXT, diagnostics={"baseline_output": -0.5})
    back = Attribution.from_shap(att.to_shap(), TEXT, method="agf")
    for name in ("text", "tokens", "offsets", "segments", "label"):
        assert getattr(back, name) == getattr(att, name)
    assert np.array_equal(back.scores, att.scores)
    assert back.words() == att.words()
    assert back.output == pytest.approx(att.scores.sum() - 0.5)
    assert back.provenance == {}


def test_an_explanation_that_shap_computed_becomes_an_attribution(shap):
    lengths = shap.Explainer(lambda texts: np.array([[len(t), -len(t)] for t in texts]), shap.maskers.Text(r"\W"))
    explanation = lengths(["a very smart dog"], silent=True)
    att = Attribution.from_shap(explanation[0, :, 0])
    assert att.text == "a very smart dog"
    assert [word.text for word in att.words()] == ["a", "very", "smart", "dog"]
    assert att.scores == pytest.approx(np.asarray(explanation.values[0][:, 0]))
    assert att.output == pytest.approx(len("a very smart dog"))
    with pytest.raises(ArgumentError, match="one text and one output"):
        Attribution.from_shap(explanation)


def test_a_record_of_captum_is_shown_and_comes_back():
    att = scored(TEXT, prediction="positive")
    record = att.to_captum()
    assert isinstance(record, visualization.VisualizationDataRecord)
    assert "smart" in str(visualization.visualize_text([record]).data)
    back = Attribution.from_captum(record, TEXT)
    assert (back.tokens, back.offsets, back.segments) == (att.tokens, att.offsets, att.segments)
    assert back.scores == pytest.approx(att.normalized())
    assert (back.label, back.prediction, back.probability) == (att.label, att.prediction, att.probability)


def test_captum_records_have_tensors_too_and_need_no_text():
    make_record: Any = visualization.VisualizationDataRecord
    record = make_record(
        torch.tensor([0.0, 0.5, -0.25, 0.0]), 0.75, "yes", "no", "yes", 0.25, ["[CLS]", "good", "film", "[SEP]"], 0.01
    )
    att = Attribution.from_captum(record)
    assert att.text == "good film"
    assert [(word.text, word.score) for word in att.words()] == [("good", 0.5), ("film", -0.25)]
    assert att.diagnostics == {"convergence_delta": 0.01}
    with pytest.raises(ArgumentTypeError, match="record"):
        Attribution.from_captum("a record")


def test_the_list_of_lime_has_the_largest_scores_first():
    att = make("dog is cute", scores=np.array([9.0, 1.0, -3.0, 2.0, 9.0]))
    assert att.as_list() == [("is", -3.0), ("cute", 2.0), ("dog", 1.0)]
    assert [score for _, score in att.as_list(words=False)] == [-3.0, 2.0, 1.0]


@pytest.mark.parametrize("words", [True, False])
def test_highlighted_pieces_are_the_whole_text(words):
    for att in (scored(TEXT), scored("  the dog's ok ", pair="not cute")):
        pieces = att.highlighted(words=words)
        whole_text = att.text if att.text_pair is None else f"{att.text}\n{att.text_pair}"
        assert "".join(text for text, _ in pieces) == whole_text
        scores = [score for _, score in pieces if score is not None]
        assert max(map(abs, scores)) == 1
        assert all(text for text, _ in pieces)
    zeros = make("dog is cute", scores=np.zeros(5)).highlighted()
    assert {score for _, score in zeros} == {0.0, None}


def flow_of(att: Any) -> Any:
    return att.flow


def graph_of(method):
    att = gaflow.Explainer(*bert())("a smart dog", method)
    graph = att.to_graph(edges=10**6)
    assert json.loads(json.dumps(graph, allow_nan=False)) == graph
    return att, graph


def sums(links, end, ids):
    return [sum(link["weight"] for link in links if link[end] == node) for node in ids]


def test_links_of_a_graph_conserve_the_flow():
    att, graph = graph_of("agf")
    nodes = {node["node_id"]: node for node in graph["nodes"]}
    assert len(nodes) == len(graph["nodes"])
    inputs = [node["node_id"] for node in graph["nodes"] if node["feature_type"] == "embedding"]
    (output,) = [node for node in graph["nodes"] if node["feature_type"] == "logit"]
    assert sums(graph["links"], "source", inputs) == pytest.approx(att.scores)
    assert sums(graph["links"], "target", [output["node_id"]]) == pytest.approx([flow_of(att).value.item()])
    hidden = [node for node in nodes if node not in (*inputs, output["node_id"])]
    assert hidden
    assert sums(graph["links"], "source", hidden) == pytest.approx(sums(graph["links"], "target", hidden))
    assert output["token_prob"] == att.probability
    assert graph["metadata"]["prompt_tokens"] == list(att.tokens)


def test_signed_flows_and_methods_without_flow_make_graphs_too():
    att, graph = graph_of(gaflow.FlowMethod("agf", signed=True))
    inputs = [f"E_{k}_{k}" for k in range(len(att.tokens))]
    assert sums(graph["links"], "source", inputs) == pytest.approx(att.scores, abs=1e-12)
    att, graph = graph_of("attcat")
    assert sums(graph["links"], "source", inputs) == pytest.approx(att.scores)
    assert sums(graph["links"], "target", [graph["nodes"][-1]["node_id"]]) == pytest.approx([att.scores.sum()])


@pytest.mark.parametrize("method", ["agf", "peeled_flow", "attcat", "lime"])
def test_pages_of_circuit_tracer_and_neuronpedia_can_read_graphs(method):
    att, graph = graph_of(method)
    assert check_readable(graph) == pytest.approx(att.probability, abs=5e-4)
    assert graph["metadata"]["generation_settings"]["provenance"]["weights"] == att.provenance["weights"]


def test_graphs_of_one_layer_and_of_outputs_without_probability_can_be_read_too():
    one_layer = gaflow.Explainer(*one_word_bert())("a good dog", "agf")
    assert check_readable(one_layer.to_graph()) == pytest.approx(one_layer.probability, abs=5e-4)
    similarity = gaflow.Explainer(*sentence_encoder())(("a smart dog", "dog"), "agf")
    graph = similarity.to_graph()
    assert np.isnan(check_readable(graph))
    assert graph["nodes"][-1]["activation"] == similarity.output


def test_influences_of_numbers_whose_sum_overflows_are_shares():
    att, _ = graph_of("attcat")
    large = replace(att, scores=np.full(len(att.tokens), 1e308))
    graph = json.loads(json.dumps(large.to_graph(), allow_nan=False))
    assert all(0 <= node["influence"] <= 1 for node in graph["nodes"][:-1])


def test_the_influence_of_a_node_is_the_share_of_all_flow_in_nodes_as_strong_or_stronger():
    att, graph = graph_of("agf")
    assert att.layers is not None
    through = np.abs(att.layers)
    for node in graph["nodes"][:-1]:
        stronger = through[through >= abs(node["activation"])]
        ties = through == abs(node["activation"])
        if ties.sum() == 1:
            assert node["influence"] == pytest.approx(stronger.sum() / through.sum())
    assert max(node["influence"] for node in graph["nodes"][:-1]) <= 1


def test_a_graph_keeps_the_strongest_links():
    att = gaflow.Explainer(*bert())("a smart dog", "agf")
    few = att.to_graph(edges=3)
    between_layers = [link for link in few["links"] if link["target"] != few["nodes"][-1]["node_id"]]
    assert sorted(link["weight"] for link in between_layers) == sorted(flow_of(att).edges.flatten().tolist())[-3:]
    ids = {node["node_id"] for node in few["nodes"]}
    assert {link[end] for link in few["links"] for end in ("source", "target")} <= ids
