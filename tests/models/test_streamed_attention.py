"""Streamed attention gives what eager attention gives, and leaves the model as it was."""

import sys
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    Gemma2Config,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
)

import gaflow
from gaflow.errors import TooLargeError
from gaflow.explainer.batch import explain_batch
from gaflow.explainer.provenance import describe_model
from gaflow.flow.barrier import state as solver_state
from gaflow.methods import METHODS, FlowMethod
from gaflow.models import cost, memory, streamed_attention
from gaflow.models.streamed_attention import HeadMean
from tests.support.models import FAMILIES, SENTENCE, bert, wordpiece
from tests.support.traces import TraceRecorder
from tests.support.tracing import SHORT, state

TEXTS = [SENTENCE, SHORT]
OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory.")
NOT_STREAMED = ("deberta", "mpnet")  # they add biases of their own inside their attention
# In eager attention this model's softmax is in float32, where the mask of float64 is infinite and padding becomes NaN.
SINGLE = ("modernbert",)
SIZE = {
    "vocab_size": len(wordpiece()), "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48, "max_position_embeddings": 64,
    "pad_token_id": 0, "num_labels": 3, "initializer_range": 0.3,
}  # fmt: skip
VARIANTS = {
    "grouped queries": LlamaConfig(**SIZE),
    "a sliding window": MistralConfig(**SIZE, sliding_window=4),
    "softcaps": Gemma2Config(**SIZE, sliding_window=4, attn_logit_softcapping=2.0, query_pre_attn_scalar=8),
    "sinks": GptOssConfig(**SIZE, sliding_window=4, num_local_experts=2, num_experts_per_tok=2),
}
BY_MEANS = [name for name in METHODS if getattr(METHODS[name], "head_means", None)]
QUICK = {"peeled_flow": FlowMethod(preset="peeled_flow", rounds=2, share=0.4)}


class Recorder(TraceRecorder):
    """A method that needs one mean over heads."""

    head_means = (HeadMean(gaflow.information.agf),)


def variant(name):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForSequenceClassification.from_config(VARIANTS[name]).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(0, 0.25) if parameter.dim() > 1 else parameter.add_(0.1 * torch.randn(len(parameter)))
    return model, wordpiece()


def is_streamed(model, tokenizer):
    recorder = Recorder()
    gaflow.Explainer(model, tokenizer)(TEXTS, recorder)
    return recorder.traces[0].layer_means is not None


def assert_same_as_eager(model, tokenizer, methods, tolerance):
    methods = [QUICK.get(name, METHODS[name]) for name in methods]
    actual = gaflow.Explainer(model, tokenizer).compare(TEXTS[0], methods, 1)
    expected = gaflow.Explainer(model, tokenizer, attention="eager").compare(TEXTS[0], methods, 1)
    for name, attribution in expected.items():
        scale = np.abs(attribution.scores).max()
        assert scale > 0
        assert np.abs(actual[name].scores - attribution.scores).max() <= tolerance * scale, name


def test_estimates_know_from_which_length_on_the_solver_is_lean():
    assert cost.LEAN_TOKENS == solver_state.LEAN_MIN_TOKENS


@pytest.mark.parametrize("family", FAMILIES)
def test_which_families_are_streamed(family):
    assert is_streamed(*FAMILIES[family]()) == (family not in NOT_STREAMED)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_method_by_means_gives_what_eager_attention_gives(family):
    model, tokenizer = FAMILIES[family]()
    if family in SINGLE:
        assert_same_as_eager(model, tokenizer, BY_MEANS, 1e-4)
    else:
        assert_same_as_eager(model.double(), tokenizer, BY_MEANS, 1e-6)


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_of_attention_are_streamed_and_give_the_same(name):
    model, tokenizer = variant(name)
    assert is_streamed(model, tokenizer)
    assert_same_as_eager(model, tokenizer, ["rawatt", "attgrads", "agf"], 1e-4)


@pytest.mark.parametrize("family", ["bert", "gpt2", "modernbert"])
def test_a_batch_gives_what_each_text_alone_gives(family):
    explainer = gaflow.Explainer(*FAMILIES[family]())
    for attribution, text in zip(explainer(TEXTS, "agf"), TEXTS, strict=True):
        alone = explainer(text, "agf")
        np.testing.assert_allclose(attribution.scores, alone.scores, rtol=0, atol=1e-4 * alone.scores.max())


@pytest.mark.parametrize("family", ["bert", "modernbert", "gpt2"])
@pytest.mark.parametrize("weights", [1, 300])
def test_chunks_of_heads_change_nothing(family, weights, monkeypatch):
    model, tokenizer = FAMILIES[family]()
    expected = gaflow.Explainer(model, tokenizer)(SENTENCE, "agf").scores
    monkeypatch.setitem(streamed_attention.CHUNK_WEIGHTS, "cpu", weights)
    actual = gaflow.Explainer(model, tokenizer)(SENTENCE, "agf").scores
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * expected.max())


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in NOT_STREAMED])
@pytest.mark.parametrize("method", ["agf", "relevance_flow", "peeled_flow", "attcat"])
def test_what_long_texts_compute_again_changes_nothing(family, method, monkeypatch):
    model, tokenizer = FAMILIES[family]()
    subject = QUICK.get(method, METHODS[method])
    explainer = gaflow.Explainer(model.double() if family not in SINGLE else model, tokenizer)
    expected = explainer(TEXTS, subject, 1)
    monkeypatch.setitem(cost.LONG_TOKENS, "cpu", 1)
    monkeypatch.setitem(cost.LEAN_TOKENS, "cpu", 1)
    monkeypatch.setitem(solver_state.LEAN_MIN_TOKENS, "cpu", 1)
    monkeypatch.setattr(solver_state, "CPU_GROUP_EDGES", 1)
    monkeypatch.setattr(solver_state, "LEAN_GROUP_EDGES", 64)
    tolerance = 1e-4 if family in SINGLE else 1e-6
    for actual, attribution in zip(explainer(TEXTS, subject, 1), expected, strict=True):
        scale = np.abs(attribution.scores).max()
        np.testing.assert_allclose(actual.scores, attribution.scores, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_near_single_precision(dtype):
    model, tokenizer = bert(initializer_range=0.05)
    expected = gaflow.Explainer(model, tokenizer)(SENTENCE, "agf", 1).scores
    model.to(dtype)
    assert is_streamed(model, tokenizer)
    actual = gaflow.Explainer(model, tokenizer)(SENTENCE, "agf", 1).scores
    assert np.isfinite(actual).all()
    assert np.corrcoef(actual, expected)[0, 1] > 0.97


@pytest.mark.parametrize("family", ["bert", "modernbert", "gpt2"])
def test_the_model_is_left_as_found(family):
    model, tokenizer = FAMILIES[family]()
    model.train()
    explainer = gaflow.Explainer(model, tokenizer)
    before = state(model)
    explainer(TEXTS, "agf")
    assert state(model) == before


def test_scores_need_no_edges_and_a_flow_is_there_if_asked_for():
    explainer = gaflow.Explainer(*bert())
    for method in ("agf", "relevance_flow"):
        without = explainer(SENTENCE, method, keep_flow=False)
        with_flow = explainer(SENTENCE, method, keep_flow=True)
        assert without.flow is without.flow_against is None
        assert with_flow.flow is not None
        np.testing.assert_array_equal(without.layers, with_flow.layers)
        assert without.certificate is not None
        assert with_flow.certificate is not None
        assert without.certificate.gap == with_flow.certificate.gap


def test_a_batch_for_a_streamed_pass_is_split_by_the_budget_where_the_pass_is_eager(monkeypatch):
    """And where the model turns out to be none that can be streamed, the estimate is that of an eager pass."""
    explainer = gaflow.Explainer(*bert())
    encodings = explainer.runner.encode([SENTENCE] * 8, names=["a"] * 8)
    length = len(encodings[0])
    geometry = memory.geometry_of(explainer.model)
    assert geometry is not None
    monkeypatch.setitem(memory.BUDGET_BYTES, "cpu", cost.estimate(geometry, length, 3).peak)
    (result, *_) = explain_batch(explainer.runner, encodings, [1] * 8, [METHODS["agf"]]).by_text
    monkeypatch.setitem(sys.modules["gaflow.models.forward"]._STREAMS, explainer.model, False)
    with pytest.raises(TooLargeError, match="batch_size=3"):
        explain_batch(explainer.runner, encodings, [1] * 8, [METHODS["agf"]])
    (again, *_) = explainer([SENTENCE] * 8, "agf", 1)
    np.testing.assert_allclose(again.scores, result["agf"].scores, rtol=0, atol=1e-5)


def test_a_trial_that_runs_out_of_memory_decides_nothing(monkeypatch):
    model, tokenizer = bert()
    explainer = gaflow.Explainer(model, tokenizer)
    forward_module: Any = sys.modules["gaflow.models.forward"]  # the room exports a function of this name
    checked_logits = forward_module._checked_logits

    def full(*_arguments):
        monkeypatch.setattr(forward_module, "_checked_logits", checked_logits)
        raise OUT_OF_MEMORY

    monkeypatch.setattr(forward_module, "_checked_logits", full)
    with pytest.raises((TooLargeError, torch.OutOfMemoryError)):
        explainer(SENTENCE, "agf")
    assert forward_module.knows_stream(model) is None
    explainer(SENTENCE, "agf")
    assert forward_module.knows_stream(model)


def test_a_run_with_attention_of_all_heads_is_another_run():
    model, tokenizer = bert()
    descriptions = [describe_model(gaflow.Explainer(model, tokenizer, attention=way)) for way in ("auto", "eager")]
    assert descriptions[0]["attention"] != descriptions[1]["attention"]
