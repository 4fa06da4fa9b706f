import copy
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from transformers import pipeline

from gaflow.attribution.attribution import Attribution, load
from gaflow.errors import (
    GaflowError,
    SolveError,
    TargetError,
    TextError,
    UnknownMethodError,
    UnsupportedModelError,
)
from gaflow.explainer.explainer import Explainer
from gaflow.explainer.one_call import explain
from gaflow.methods import METHODS, FlowMethod, IntegratedGradients, Scores
from tests.support.models import FAMILIES, SENTENCE, TEXTS, bert, byte_bpe, distilbert, gpt2, roberta
from tests.support.traces import count_backward_passes
from tests.support.tracing import state

SHORT = "a good film"


def make(build=bert, dtype=torch.float64, **changes):
    """An explainer in double precision, so that laws can be checked tightly."""
    model, tokenizer = build(**changes)
    return Explainer(model.to(dtype), tokenizer)


def assert_same(a, b, tolerance=1e-6):
    """The same explanation up to rounding."""
    assert a.tokens == b.tokens
    assert a.offsets == b.offsets
    assert (a.text, a.text_pair, a.method, a.target, a.label) == (b.text, b.text_pair, b.method, b.target, b.label)
    scale = max(float(np.abs(b.scores).sum()), 1e-300)
    assert np.abs(a.scores - b.scores).max() <= tolerance * scale
    assert a.layers.shape == b.layers.shape
    assert np.abs(a.layers - b.layers).max() <= tolerance * scale
    assert a.flow.edges.shape == b.flow.edges.shape
    assert a.probability == pytest.approx(b.probability, abs=tolerance + 1e-12)


class Counter:
    """Counts the passes through a model."""

    def __init__(self, model, monkeypatch):
        self.forward = self.backward = 0
        model.register_forward_hook(self._forward)
        count_backward_passes(monkeypatch, self._backward)

    def _forward(self, *_):
        self.forward += 1

    def _backward(self, *_):
        self.backward += 1


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", ["af", "gf", "agf"])
def test_an_explanation_holds_together(family, method):
    ex = make(FAMILIES[family])
    att = ex(SENTENCE, method)
    t = len(att.tokens)
    assert isinstance(att, Attribution)
    assert att.method == method
    assert att.text == SENTENCE
    assert att.scores.shape == (t,)
    assert bool((att.scores >= 0).all())
    assert att.scores.sum() > 0
    layers = ex.model.config.num_hidden_layers
    assert att.layers is not None
    assert att.layers.shape == (layers + 1, t)
    assert att.flow is not None
    assert att.flow.edges.shape == (1, layers, t, t)
    assert att.layers[0].tolist() == att.scores.tolist()
    assert np.allclose(att.layers.sum(1), float(att.flow.value[0]), rtol=1e-8, atol=0)
    assert att.certificate is not None
    assert att.certificate.converged is True
    assert att.certificate.dead is False
    with torch.no_grad():
        inputs = ex.tokenizer(SENTENCE, return_tensors="pt")
        if family == "distilbert":
            inputs.pop("token_type_ids")
        logits = ex.model(**inputs).logits[0]
    best = int(logits.argmax())
    assert att.target == best
    assert att.label == att.prediction == ex.model.config.id2label[best]
    assert att.probability == pytest.approx(logits.softmax(-1)[best].item(), abs=1e-6)
    assert att.output == pytest.approx(logits[best].item(), abs=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_list_gives_what_its_texts_give_alone_in_order(family):
    single = family == "modernbert"  # in double precision its own padding makes it return NaN
    ex = make(FAMILIES[family], torch.float32 if single else torch.float64)
    texts = [SENTENCE, "x", (SHORT, "the dog"), "the best dog", SHORT, SENTENCE]
    together = ex(texts, batch_size=4)
    assert len(together) == len(texts)
    for text, att in zip(texts, together, strict=True):
        assert_same(att, ex(text), 1e-3 if single else 1e-6)


def test_the_batch_size_changes_nothing():
    ex = make()
    one, many = ex(TEXTS, batch_size=1), ex(TEXTS, batch_size=100)
    for a, b in zip(one, many, strict=True):
        assert_same(a, b)


def test_a_tokenizer_that_pads_on_the_left_changes_nothing():
    right = make(roberta)([SENTENCE, SHORT, "x"])
    tokenizer = byte_bpe()
    side = tokenizer.padding_side
    try:
        tokenizer.padding_side = "left"
        left = make(roberta)([SENTENCE, SHORT, "x"])
    finally:
        tokenizer.padding_side = side
    for a, b in zip(left, right, strict=True):
        assert_same(a, b)


def test_a_model_without_a_padding_token_explains_lists_one_by_one():
    ex = make(gpt2, pad_token_id=None)
    attributions = ex([SENTENCE, SHORT])
    assert_same(attributions[1], ex(SHORT))


def test_an_explainer_says_what_it_explains():
    assert repr(make()) == (
        "Explainer(BertForSequenceClassification, text-classification, labels negative, positive, neutral)"
    )


def test_an_empty_list_gives_an_empty_list():
    assert make()([]) == []


def test_a_pair_is_one_text():
    att = make()(("this dog", "is cute"))
    assert (att.text, att.text_pair) == ("this dog", "is cute")
    assert [(w.text, w.segment) for w in att.words()] == [("this", 0), ("dog", 0), ("is", 1), ("cute", 1)]


def test_explaining_needs_one_forward_and_one_backward_pass_for_all_methods(monkeypatch):
    ex = make()
    alone = {name: ex(SENTENCE, name) for name in ("af", "gf", "agf")}
    count = Counter(ex.model, monkeypatch)
    attributions = ex.compare(SENTENCE, methods=["af", "gf", "agf", FlowMethod("agf", epsilon=1e-3)])
    assert (count.forward, count.backward) == (1, 1)
    assert list(attributions) == ["af", "gf", "agf", "agf(epsilon=0.001)"]
    for name, att in alone.items():
        assert_same(attributions[name], att)
    assert not np.allclose(attributions["agf"].scores, attributions["agf(epsilon=0.001)"].scores, rtol=1e-4)


def test_compare_runs_every_method_unless_told():
    assert set(make().compare(SHORT)) == set(METHODS)


def test_compare_refuses_what_it_could_not_tell_apart():
    with pytest.raises(ValueError, match="methods names agf twice"):
        make().compare(SHORT, ["agf", "AGF"])
    with pytest.raises(TypeError, match=r"methods.*'agf'"):
        make().compare(SHORT, "agf")
    for wrong in (3, METHODS["rollout"]):
        with pytest.raises(TypeError, match="methods"):
            make().compare(SHORT, wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="methods"):
        make().compare(SHORT, [])
    assert list(make().compare(SHORT, (name for name in ("rawatt", "cat")))) == ["rawatt", "cat"]  # type: ignore[arg-type]


def test_a_callable_is_a_method():
    ex = make()

    def mean_attention(attention, gradient):
        return attention.mean(2)

    att = ex(SENTENCE, mean_attention)
    assert att.method == "mean_attention"
    np.testing.assert_allclose(att.scores, ex(SENTENCE, "af").scores, rtol=1e-5)


def test_a_method_without_a_flow_gives_scores_alone():
    @dataclass(frozen=True)
    class Received:
        name: str = "received"

        def __call__(self, trace):
            return Scores(trace.attention.mean((1, 2, 3)))

    att = make()([SENTENCE, SHORT], Received())[1]
    assert att.method == "received"
    assert att.scores.shape == (len(att.tokens),)
    assert att.flow is att.layers is att.certificate is None


def test_scores_that_are_not_finite_are_an_error():
    @dataclass(frozen=True)
    class Broken:
        name: str = "broken"

        def __call__(self, trace):
            return Scores(trace.attention.mean((1, 2, 3)) / 0)

    with pytest.raises(GaflowError, match=r"'broken'.*finite"):
        make()(SHORT, Broken())


@pytest.mark.parametrize("weight", [float("nan"), float("inf")])
def test_a_model_whose_output_is_not_finite_is_an_error(weight):
    ex = make()
    ex.model.classifier.bias.data.fill_(weight)
    with pytest.raises(GaflowError, match="not finite"):
        ex(SHORT)


def test_a_text_in_which_nothing_flows_has_scores_of_zero():
    ex = make()

    def nothing(attention, gradient):
        return attention.mean(2) * 0

    att = ex(SENTENCE, nothing)
    assert not att.scores.any()
    assert not att.normalized().any()
    assert att.certificate is not None
    assert att.certificate.dead is True


def test_targets_by_index_label_and_contrast():
    ex = make()
    a, b = ex(SENTENCE, target="positive"), ex(SENTENCE, target=1)
    assert a == replace(b, flow=a.flow, flow_against=a.flow_against, certificate=a.certificate)
    assert (a.target, a.label) == (1, "positive")
    contrast = ex(SENTENCE, target="positive minus neutral")
    assert (contrast.target, contrast.label) == ((1, 2), "positive minus neutral")
    assert contrast.output == pytest.approx(a.output - ex(SENTENCE, target=2).output, abs=1e-9)
    assert contrast.probability == pytest.approx(1 / (1 + np.exp(-contrast.output)), abs=1e-9)
    assert_same(ex(SENTENCE, target=(1, "neutral")), contrast)
    assert not np.allclose(contrast.scores, a.scores, rtol=1e-3)


def test_every_text_of_a_list_may_have_its_own_target():
    ex = make()
    attributions = ex([SHORT, SENTENCE, SENTENCE], target=["neutral", None, (0, 1)])
    assert attributions[0].target == 2
    assert attributions[2].target == (0, 1)
    assert_same(attributions[1], ex(SENTENCE))
    assert_same(attributions[0], ex(SHORT, target=2))
    with pytest.raises(TargetError, match=r"1.*2 texts"):
        ex([SHORT, SENTENCE], target=[0])


@pytest.mark.parametrize("target", ["angry", 3, -1, (0, 0)])
def test_a_target_the_model_does_not_have_is_refused_before_it_runs(target, monkeypatch):
    ex = make()
    count = Counter(ex.model, monkeypatch)
    for texts in (SHORT, [SHORT, SENTENCE]):
        with pytest.raises(TargetError):
            ex(texts, target=target)
    assert count.forward == 0


def test_a_list_of_targets_is_for_a_list_of_texts():
    with pytest.raises(TypeError, match="not list"):
        make()(SHORT, target=[0])  # type: ignore[call-overload]


def test_regression_and_multi_label_models():
    regression = make(num_labels=1, problem_type="regression")(SHORT)
    assert (regression.target, regression.probability) == (0, None)
    single = make(num_labels=1)(SHORT)
    assert single.probability == pytest.approx(1 / (1 + np.exp(-single.output)))
    multi = make(problem_type="multi_label_classification")(SHORT, target="neutral")
    assert multi.probability == pytest.approx(1 / (1 + np.exp(-multi.output)))
    assert make(problem_type="multi_label_classification")(SHORT, target=(0, 1)).probability is None


def test_a_head_that_does_not_match_its_labels_is_refused():
    model, tokenizer = bert()
    model.config.id2label = {0: "a", 1: "b"}
    ex = Explainer(model, tokenizer)
    with pytest.raises(UnsupportedModelError, match=r"2.*config\.id2label"):
        ex(SHORT)


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        ("", TextError, "text is empty"),
        (" \n", TextError, "text is only whitespace"),
        (["ok", " "], TextError, r"texts\[1\] is only whitespace"),
        (("ok", ""), TextError, r"text\[1\] is empty"),
        (None, TypeError, "text .*NoneType"),
        (7, TypeError, "not int"),
        (["ok", 7], TypeError, r"texts\[1\].*int"),
        ([["ok", "ok"]], TypeError, r"texts\[0\].*list"),
        ([("a", "b", "c")], TypeError, "tuple of 3"),
        ({"text": "a"}, TypeError, "not dict"),
        ("dog " * 63, TextError, "text.*65.*64.*truncation=True"),
        (["ok", "dog " * 80], TextError, r"texts\[1\] has 82 tokens"),
    ],
)
def test_bad_texts_are_named_before_the_model_runs(texts, error, message, monkeypatch):
    ex = make()
    count = Counter(ex.model, monkeypatch)
    with pytest.raises(error, match=message):
        ex(texts)
    assert count.forward == 0


def test_a_token_that_the_model_has_no_embedding_for_is_named():
    model, tokenizer = bert()
    larger = copy.deepcopy(tokenizer)
    larger.add_tokens(["unheard"])
    assert Explainer(model, larger)("a dog", "attcat").tokens[1:-1] == ("a", "dog")
    with pytest.raises(TextError, match="'unheard'") as error:
        Explainer(model, larger)("a dog unheard of", "attcat")
    assert error.value.argument == "tokenizer"


def test_a_long_text_is_truncated_when_asked_and_flagged():
    ex = make()
    long, short = ex(["dog " * 80, "dog"], truncation=True)
    assert len(long.tokens) == 64
    assert long.truncated
    assert not short.truncated
    assert long.text == "dog " * 80
    assert ex("dog " * 80, truncation=True).truncated


def test_an_unknown_method_is_refused_with_the_nearest():
    with pytest.raises(UnknownMethodError, match=r"'agff'.*agf"):
        make()(SHORT, "agff")


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "4", None])
def test_a_batch_size_that_is_no_count_is_refused(size):
    with pytest.raises(ValueError, match="batch_size"):
        make()([SHORT], batch_size=size)


def test_progress_is_told_texts_done_and_in_all():
    reports = []
    make()([SHORT, SENTENCE, "x", "dog", "dog"], "agf", batch_size=2, progress=lambda *n: reports.append(n))
    assert reports == [(1, 5), (3, 5), (5, 5)]  # batches of similar lengths, the longest first


def test_progress_of_a_comparison_is_told_in_methods():
    reports = []
    make().compare(SHORT, ["af", "agf"], progress=lambda *n: reports.append(n))
    assert reports == [(1, 2), (2, 2)]


def test_who_waits_for_many_passes_is_told_of_a_cheaper_method_once(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr("gaflow.progress.SECONDS_BEFORE_BAR", 0.0)
    ex = make()
    ex(SHORT, "agf")
    assert ex.default.name not in capsys.readouterr().err
    ex([SHORT] * 3, IntegratedGradients(steps=200))
    assert capsys.readouterr().err.count(f"method={ex.default.name!r}") == 1
    ex([SHORT] * 3, IntegratedGradients(steps=200))
    assert f"method={ex.default.name!r}" not in capsys.readouterr().err


def test_progress_draws_a_bar_only_when_asked(capsys):
    ex = make()
    ex([SHORT])
    assert capsys.readouterr() == ("", "")
    ex([SHORT, SHORT], progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "2/2" in err


def test_a_flow_that_did_not_converge_names_the_texts_of_the_list():
    ex = make()
    original = METHODS["agf"]

    @dataclass(frozen=True)
    class Failing:
        name: str = "failing"

        def __call__(self, trace):
            flow = original(trace).flow
            assert flow is not None
            raise SolveError("item 0 did not converge", flow, [0])

    texts = ["dog", SENTENCE, SENTENCE + " it is", "dog dog"]
    with pytest.raises(SolveError, match=r"texts\[2\]: item 0") as caught:
        ex(texts, Failing(), batch_size=2)
    assert caught.value.items == [2]


def test_edge_flows_can_be_left_out():
    att = make()([SENTENCE, SHORT], keep_flow=False)[1]
    assert att.flow is None
    assert att.layers is not None
    assert att.certificate is not None


def test_edge_flows_do_not_keep_the_whole_batch_in_memory():
    att = make()([SENTENCE, SHORT])[1]
    assert att.flow is not None
    t = len(att.tokens)
    assert att.flow.edges.untyped_storage().nbytes() == 8 * 3 * t * t


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_works_inside_no_grad_and_inference_mode(mode):
    ex = make()
    outside = ex([SENTENCE, SHORT])
    with mode():
        inside = ex([SENTENCE, SHORT])
    for a, b in zip(inside, outside, strict=True):
        assert_same(a, b, 0)
    assert inside[0].flow is not None
    assert not inside[0].flow.edges.is_inference()


def test_the_model_is_left_exactly_as_found():
    ex = make()
    ex.model.train().requires_grad_(False)
    before = state(ex.model)
    ex([SENTENCE, SHORT])
    ex.compare(SENTENCE)
    with pytest.raises(TextError):
        ex("")
    assert state(ex.model) == before


def test_a_model_in_half_precision_is_explained():
    ex = make(dtype=torch.bfloat16)
    att = ex(SENTENCE)
    assert att.scores.dtype == np.float64
    assert att.scores.sum() > 0


def test_a_pipeline_is_explained():
    model, tokenizer = distilbert()
    pipe = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    att = Explainer(pipe)(SENTENCE)
    prediction = pipe(SENTENCE)[0]
    assert att.label == prediction["label"]
    assert att.probability == pytest.approx(prediction["score"], abs=1e-6)


def test_explain_is_the_explainer_in_one_call(tmp_path):
    model, tokenizer = bert()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    ex = Explainer(tmp_path)
    assert_same(explain(SENTENCE, tmp_path), ex(SENTENCE), 0)
    assert_same(explain([SENTENCE], tmp_path, "gf", "neutral")[0], ex(SENTENCE, "gf", "neutral"), 0)
    assert_same(explain(SENTENCE, model, tokenizer=tokenizer), ex(SENTENCE), 1e-4)


def test_an_explanation_survives_saving(tmp_path):
    att = make(roberta)(("Café 👩‍💻", "don't!"), target=(0, 1))
    att.save(tmp_path / "a.safetensors")
    assert load(tmp_path / "a.safetensors") == att
    assert att.to_pandas()["score"].tolist() == att.scores.tolist()


def test_a_class_less_the_rest_is_explained_stored_and_explained_again(tmp_path):
    explainer = Explainer(*bert())
    att = explainer("a good film", "agf", "neutral minus rest")
    assert att.label == "neutral minus rest"
    logits = explainer(["a good film"] * 3, "random", [0, 1, 2])
    negative, positive, neutral = (one.output for one in logits)
    assert att.output == pytest.approx(neutral - (negative + positive) / 2, rel=1e-5)
    att.save(tmp_path / "att.safetensors")
    loaded = load(tmp_path / "att.safetensors")
    assert loaded.target == att.target
    again = explainer("a good film", "agf", loaded.target)
    assert again.scores.tolist() == att.scores.tolist()
    assert "first of the two" not in att.to_html()
