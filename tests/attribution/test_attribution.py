import json
import math
import sys
from dataclasses import FrozenInstanceError, replace
from itertools import pairwise
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from gaflow.attribution.attribution import TextUnit
from gaflow.errors import GaflowError, MissingExtraError
from gaflow.inputs.encoding import encode
from tests.support.attributions import make
from tests.support.models import TEXTS, byte_bpe, unigram, wordpiece


def test_a_words_score_is_the_sum_of_its_tokens():
    att = make("don't stop", scores=np.array([100.0, 1, 2, 4, 8, 16, 32, 64, 100]))
    assert att.tokens == ("[CLS]", "don", "'", "t", "s", "##t", "##o", "##p", "[SEP]")
    assert att.words() == [
        TextUnit("don't", 0, 5, 7.0, (1, 2, 3), 0),
        TextUnit("stop", 6, 10, 120.0, (4, 5, 6, 7), 0),
    ]


@pytest.mark.parametrize("tokenizer", [wordpiece, byte_bpe, unigram])
@pytest.mark.parametrize("text", TEXTS)
def test_words_hold_every_ordinary_token_once_and_are_slices_of_the_text(tokenizer, text):
    t = len(encode(tokenizer(), [text])[0])
    att = make(text, tokenizer=tokenizer(), scores=np.random.default_rng(0).normal(size=t) * 1e3)
    words = att.words()
    assert sorted(k for w in words for k in w.tokens) == [k for k in range(t) if not att.special_mask[k]]
    for before, after in pairwise(words):
        assert before.end <= after.start
    for w in words:
        assert w.text == text[w.start : w.end] == w.text.strip()
        assert w.score == math.fsum(att.scores[list(w.tokens)])
        assert all(w.start <= a and b <= w.end for a, b in (att.offsets[k] for k in w.tokens) if a < b)
    assert "".join(w.text for w in words) == "".join(text.split())


def test_the_words_of_a_pair_say_which_text_they_are_from():
    att = make("the dog", "is cute", tokenizer=byte_bpe())
    assert [(w.text, w.segment) for w in att.words()] == [("the", 0), ("dog", 0), ("is", 1), ("cute", 1)]


def test_special_tokens_are_known_and_in_no_word():
    att = make("dog")
    assert att.special_mask.tolist() == [True, False, True]
    assert att.offsets == ((0, 0), (0, 3), (0, 0))
    assert [w.tokens for w in att.words()] == [(1,)]


def test_top_gives_the_largest_first():
    att = make("is not very cute", scores=np.array([9.0, 0.5, -3, 2, 0.5, 9]))
    assert [w.text for w in att.top(3)] == ["very", "is", "cute"]
    assert [w.score for w in att.top(9, words=False)] == [2, 0.5, 0.5, -3]
    assert att.top(0) == []
    with pytest.raises(ValueError, match="k must be"):
        att.top(-1)


def test_normalized_scores_have_largest_size_one_and_keep_their_signs():
    att = make("is not", scores=np.array([-8.0, 2, -4, 0]))
    assert att.normalized().tolist() == [-1, 0.25, -0.5, 0]
    assert att.normalized(special=False).tolist() == [0, 0.5, -1, 0]


@pytest.mark.parametrize("size", [0.0, 5e-324, 1e308])
def test_normalized_scores_are_finite_whatever_the_scores(size):
    normalized = make("is not", scores=np.array([0.0, size, -size, 0])).normalized()
    assert normalized.tolist() == ([0, 0, 0, 0] if size == 0 else [0, 1, -1, 0])


def test_arrays_are_float64_copies_that_cannot_be_written_to():
    scores = np.array([1, 2, 3])
    att = make("dog", scores=scores)
    assert att.scores.dtype == np.float64
    scores[0] = 7
    assert att.scores[0] == 1
    with pytest.raises(ValueError, match="read-only"):
        att.scores[0] = 5
    with pytest.raises(FrozenInstanceError):
        att.method = "x"  # type: ignore[misc]


@pytest.mark.parametrize(
    "change",
    [
        {"scores": np.zeros(2)},
        {"scores": np.full(3, np.nan)},
        {"layers": np.zeros(3)},
        {"offsets": ((0, 0),)},
        {"segments": ()},
    ],
    ids=str,
)
def test_parts_that_do_not_fit_together_are_refused(change):
    with pytest.raises(ValueError, match=r"scores|layers|offsets"):
        make("dog", **change)


def test_to_dict_survives_json():
    att = make("the dog", "is cute 👍", target=(1, 0), probability=None)
    plain = json.loads(json.dumps(att.to_dict(), allow_nan=False))
    assert plain == att.to_dict()
    assert plain["tokens"] == list(att.tokens)
    assert plain["scores"] == att.scores.tolist()
    assert plain["target"] == [1, 0]
    assert plain["special_mask"] == att.special_mask.tolist()
    assert plain["layers"] == att.layers.tolist()  # type: ignore[union-attr]
    assert plain["certificate"]["converged"] is True
    assert [w["text"] for w in plain["words"]] == [w.text for w in att.words()]


def test_facts_are_plain_numbers_and_words_of_its_own():
    diagnostics = {"convergence_delta": np.float32(0.25), "replacement": "pad"}
    att = make(diagnostics=diagnostics)
    diagnostics["replacement"] = "mask"
    assert att.diagnostics == {"convergence_delta": 0.25, "replacement": "pad"}
    assert type(att.diagnostics["convergence_delta"]) is float
    assert json.loads(json.dumps(att.to_dict()))["facts"] == att.diagnostics
    assert make().to_dict()["facts"] == {}


def test_to_dict_has_no_infinities():
    att = make("dog")
    assert att.certificate is not None
    odd = replace(att, certificate=replace(att.certificate, gap=math.inf, cut=math.nan))
    certificate = odd.to_dict()["certificate"]
    assert certificate["gap"] is None
    assert certificate["cut"] is None


def test_to_pandas_has_a_row_for_each_token_or_word():
    att = make("don't stop")
    table = att.to_pandas()
    assert list(table.columns) == ["token", "score", "start", "end", "segment", "special"]
    assert table["token"].tolist() == list(att.tokens)
    assert table["score"].tolist() == att.scores.tolist()
    words = att.to_pandas(words=True)
    assert words["text"].tolist() == ["don't", "stop"]
    assert words["score"].sum() == table.loc[~table["special"], "score"].sum()


@pytest.mark.parametrize(
    ("call", "package", "install"),
    [
        ("to_pandas", "pandas", "'gaflow[data]'"),
        ("to_shap", "shap", "shap"),
        ("to_captum", "captum", "'gaflow[baselines]'"),
    ],
)
def test_a_missing_package_is_named_with_what_to_install(monkeypatch, call, package, install):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, "captum.attr._utils.visualization", None)
    with pytest.raises(MissingExtraError) as caught:
        getattr(make("dog"), call)()
    assert f"needs {package}" in str(caught.value).replace("need ", "needs ")
    assert f"pip install {install}" in str(caught.value)


def test_to_shap_hands_over_tokens_and_scores(monkeypatch):
    module = ModuleType("shap")
    module.Explanation = SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shap", module)
    att = make("dog")
    explanation = att.to_shap()
    assert explanation.values.tolist() == att.scores.tolist()
    assert explanation.data.tolist() == list(att.tokens)
    assert explanation.output_names == ["positive"]
    assert explanation.base_values == 0
    assert make("dog", diagnostics={"baseline_output": -1.5}).to_shap().base_values == -1.5


def test_to_captum_fills_a_record(monkeypatch):
    module = ModuleType("captum.attr._utils.visualization")
    module.VisualizationDataRecord = SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "captum.attr._utils.visualization", module)
    att = make("dog")
    record = att.to_captum("negative")
    assert record.word_attributions.tolist() == att.normalized().tolist()
    assert record.pred_prob == 0.875
    assert (record.pred_class, record.true_class, record.attr_class) == ("positive", "negative", "positive")
    assert record.attr_score == 6.0
    assert record.raw_input_ids == list(att.tokens)
    assert record.convergence_score == 0.0
    assert make("dog", probability=None).to_captum().pred_prob == att.output
    assert make("dog", diagnostics={"convergence_delta": 0.25}).to_captum().convergence_score == 0.25


def test_captum_takes_the_record():
    pytest.importorskip("captum")
    att = make("dog")
    record = att.to_captum("negative")
    assert record.raw_input_ids == list(att.tokens)
    assert record.attr_class == att.label


def test_equal_means_equal_in_everything():
    assert make() == make()
    assert make() != make(method="gf")
    assert make() != make(scores=make().scores + 1e-12)
    assert make(flow=False) != make()
    assert make() != make(diagnostics={"convergence_delta": 0.25})
    assert make() != "text"
    other = make()
    assert other.flow is not None
    assert make() != replace(other, flow=replace(other.flow, value=other.flow.value + 1))


def test_repr_is_one_short_line():
    text = repr(make("is not very cute", scores=np.array([9.0, 0.5, -3, 2, 0.25, 9])))
    assert text == "Attribution(agf, 'positive' (87.5%), 6 tokens, top: 'not' -3, 'very' 2, 'is' 0.5)"
    assert "%" not in repr(make(probability=None))


@pytest.mark.parametrize(("layer", "name"), [(0, "agf"), (2, "agf(layer=2)"), (-1, "agf(layer=-1)")])
def test_scores_can_be_those_of_any_layer(layer, name):
    layers = np.random.default_rng(0).random((3, 9))
    att = make("don't stop", layers=layers, scores=layers[0], layer=0)
    at_layer = att.at_layer(layer)
    assert at_layer.scores.tolist() == layers[layer].tolist()
    assert at_layer.method == name
    assert at_layer == replace(att, scores=layers[layer], method=name, layer=layer)
    assert at_layer.words()[0].score == pytest.approx(layers[layer][1:4].sum())
    assert at_layer.at_layer(0) == att


def test_scores_can_be_summed_over_the_layers():
    att = make("don't stop", method="af(epsilon=0.1)")
    summed = att.at_layer("all")
    assert att.layers is not None
    np.testing.assert_allclose(summed.scores, att.layers.sum(0), rtol=1e-15)
    assert summed.method == "af(epsilon=0.1, layer='all')"
    assert summed.scores.sum() == pytest.approx(len(att.layers) * att.layers[0].sum())


def test_a_layer_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="layer=3 does not exist"):
        make().at_layer(3)
    with pytest.raises(GaflowError, match="'rawatt'"):
        make(flow=False, method="rawatt").at_layer(1)


@pytest.mark.parametrize("source", [*TEXTS, "One. Two! Three?\n\nFour"])
@pytest.mark.parametrize("tokenizer", [wordpiece, byte_bpe, unigram])
def test_sentences_have_every_ordinary_token_once_and_add_up_exactly(source, tokenizer):
    att = make(source, pair=source, tokenizer=tokenizer())
    sentences = att.sentences()
    assert sorted(k for w in sentences for k in w.tokens) == [k for k, s in enumerate(att.segments) if s >= 0]
    for w in sentences:
        assert w.text == source[w.start : w.end] == w.text.strip() or not w.text.strip()
        assert w.score == math.fsum(att.scores[k] for k in w.tokens)
    for one, two in pairwise(sentences):
        assert one.segment < two.segment or one.end <= two.start


def test_a_stored_result_that_sums_over_layers_is_named_so_at_another_one():
    att = make(method="signed_flow")
    assert [att.at_layer(layer).method for layer in ("all", 0, 1)] == [
        "signed_flow", "signed_flow(layer=0)", "signed_flow(layer=1)",
    ]  # fmt: skip
    assert att.at_layer(1).at_layer("all").method == "signed_flow"
