"""What holds for every task: one model of each, all methods at once."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import gaflow
from gaflow.errors import UnsupportedModelError
from gaflow.explainer.many import explain_many, prepare
from gaflow.jobs import attribute
from gaflow.methods import METHODS, IntegratedGradients, KernelShap, Lime
from gaflow.tasks import TASKS, task_of
from tests.support.task_models import CASES
from tests.support.tracing import state, trace_of

pytestmark = pytest.mark.slow

QUICK = {"ig": IntegratedGradients(steps=3), "kernel_shap": KernelShap(samples=40), "lime": Lime(samples=30)}
ALL = [QUICK.get(name, method) for name, method in METHODS.items()]
LINEAR = ["grads", "attgrads", "cat", "attcat", "ig", "kernel_shap", "lime"]  # in y

EVALUATED = ("text-classification", "token-classification", "question-answering")

every_task = pytest.mark.parametrize("name", CASES)


@cache
def explainer(name):
    model, tokenizer = CASES[name].make()
    return gaflow.Explainer(model.double(), tokenizer)


def run(name, inputs, target=None, methods=ALL):
    """A dict method -> attributions, of one batch."""
    runner = explainer(name).runner
    count = len(inputs)
    texts = prepare(runner, inputs, [runner.head.parse(target)] * count, ["text"] * count, False, None)
    results = sorted(explain_many(runner, texts, methods, keep_flow=True), key=lambda result: result.index)
    return {method.name: [result.attribution(method) for result in results] for method in methods}


@cache
def together(name):
    inputs = CASES[name].inputs
    parts = [inputs] if CASES[name].task != "audio-classification" else [inputs[:2], inputs[2:]]  # of one length
    runs = [run(name, part, CASES[name].one) for part in parts]
    return {method: [att for attributions in runs for att in attributions[method]] for method in runs[0]}


def assert_close(actual, expected, tolerance=1e-8):
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= tolerance * max(np.abs(expected).max(), 1e-30)


def test_there_is_a_case_for_every_task():
    assert {case.task for case in CASES.values()} == set(TASKS)
    for case in CASES.values():
        model = case.make()[0]
        assert task_of(type(model).__name__, model.main_input_name) == case.task


@every_task
def test_every_method_gives_scores_of_every_input(name):
    for attributions in together(name).values():
        for att, item in zip(attributions, CASES[name].inputs, strict=True):
            assert np.isfinite(att.scores).all()
            if CASES[name].text:
                assert (att.text, att.text_pair) == (item if isinstance(item, tuple) else (item, None))
            else:
                assert att.media is not None
    for att in together(name)["agf"]:
        assert att.scores.sum() == pytest.approx(float(att.flow.value))  # type: ignore[union-attr]
        assert att.certificate.converged  # type: ignore[union-attr]
        assert (att.scores > 0).any()


@every_task
def test_a_batch_gives_what_each_input_alone_gives(name):
    for k, item in enumerate(CASES[name].inputs):
        for method, (alone,) in run(name, [item], CASES[name].one).items():
            beside = together(name)[method][k]
            assert_close(beside.scores, alone.scores)
            assert (beside.label, beside.target, beside.read_positions) == (
                alone.label,
                alone.target,
                alone.read_positions,
            )
            assert beside.output == pytest.approx(alone.output)
            assert beside.probability == pytest.approx(alone.probability)


@every_task
def test_a_list_comes_back_in_its_order_whatever_the_batches(name):
    case = CASES[name]
    attributions = explainer(name)(list(case.inputs[::-1]), "agf", case.one, batch_size=2)
    for att, expected in zip(attributions, together(name)["agf"][::-1], strict=True):
        assert_close(att.scores, expected.scores, 1e-6)  # all methods together hold attention, some of it in float32


@every_task
def test_another_target_has_other_scores(name):
    case = CASES[name]
    one, other = (run(name, case.inputs[:1], target)["agf"][0] for target in (case.one, case.other))
    assert one.label != other.label
    assert np.abs(one.scores - other.scores).max() > 1e-6 * np.abs(one.scores).max()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.contrast is not None])
def test_a_contrast_turned_round_has_the_opposite_sign(name):
    case = CASES[name]
    assert case.contrast is not None
    methods = [m for m in ALL if m.name.split("(")[0] in LINEAR]
    forth, back = (run(name, case.inputs[:1], target, methods) for target in case.contrast)
    assert len(forth) == len(LINEAR)
    for method in forth:
        one, other = forth[method][0], back[method][0]
        assert one.output == pytest.approx(-other.output)
        assert_close(one.scores, -other.scores, 1e-6)
    a, b = (run(name, case.inputs[:1], target, methods[:1])[methods[0].name][0] for target in (case.one, case.other))
    assert a.output != b.output


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.text and case.task != "similarity"])
def test_gradients_are_those_of_the_explained_output(name):
    """Central differences of y along the word embeddings, against what the pass gives."""
    case = CASES[name]
    traced_model = trace_of(explainer(name), case.inputs[1], case.one).require_model()
    with torch.no_grad():
        input_embeddings: Any = explainer(name).model.get_input_embeddings()
        embeddings = input_embeddings(traced_model.batch.inputs["input_ids"]).clone()
    direction = torch.randn(embeddings.shape, dtype=embeddings.dtype, generator=torch.Generator().manual_seed(0))
    leaf = embeddings.clone().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(traced_model.output([0], embeddings=leaf).sum(), leaf)
    with torch.no_grad():
        ahead = traced_model.output([0], embeddings=embeddings + 1e-4 * direction).item()
        behind = traced_model.output([0], embeddings=embeddings - 1e-4 * direction).item()
    assert (gradient * direction).sum().item() == pytest.approx((ahead - behind) / 2e-4, rel=1e-4)


@every_task
def test_the_output_is_read_where_it_is_said_to_be(name):
    for item, att in zip(CASES[name].inputs, together(name)["agf"], strict=True):
        traced = trace_of(explainer(name), item, CASES[name].one)
        rows = traced.rows()[0].nonzero().flatten().tolist()
        if att.read_positions:
            assert rows == list(att.read_positions)
        else:
            assert rows


@every_task
def test_predictions_can_be_asked_for_and_the_first_is_the_default(name):
    subject, item = explainer(name), CASES[name].inputs[0]
    predictions = subject.predictions(item, 3)
    chances = [p.probability or 0.0 for p in predictions]
    assert chances == sorted(chances, reverse=True)
    default = subject(item, "rawatt")
    for k, prediction in enumerate(predictions):
        for target in (prediction, prediction.target):
            att = subject(item, "rawatt", target)
            assert (att.label, att.target, att.read_positions) == (
                prediction.label,
                prediction.target,
                prediction.read_positions,
            )
            assert att.probability == pytest.approx(prediction.probability)
        if k == 0:
            assert (default.label, default.target, default.output) == (att.label, att.target, att.output)
            assert default.prediction == default.label


@every_task
def test_results_are_saved_whole(name, tmp_path):
    (tmp_path / "x").mkdir()
    for att in [*together(name)["agf"], *together(name)["rollout"]]:
        att.save(tmp_path / "x" / "att.safetensors")
        assert gaflow.load(tmp_path / "x" / "att.safetensors") == att


@every_task
def test_words_add_up_to_the_ordinary_tokens_and_lie_in_the_text(name):
    for att in together(name)["attcat"]:
        words = att.words()
        assert sorted(k for w in words for k in w.tokens) == np.flatnonzero(~att.special_mask).tolist()
        assert sum(w.score for w in words) == pytest.approx(att.scores[~att.special_mask].sum())
        for word in words if att.media is None else []:
            assert word.text == ((att.text_pair or "") if word.segment else att.text)[word.start : word.end]


@every_task
def test_every_way_to_look_at_a_result_works(name):
    att = together(name)["agf"][0]
    assert att.label.split(":")[0] in att.to_html()
    assert att.output_name in att.to_html().replace("&#x27;", "'")
    assert att.to_dict()["places"] == list(att.read_positions)
    assert len(att.to_pandas()) == len(att.tokens)
    att.plot()


@every_task
def test_the_model_is_left_as_found(name):
    subject = explainer(name)
    before = state(subject.model)
    subject.predictions(CASES[name].inputs[0])
    run(name, CASES[name].inputs[:1], CASES[name].other)
    assert state(subject.model) == before


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.task != "text-classification"])
def test_what_is_about_classes_of_texts_refuses_other_tasks_in_one_line(name, tmp_path):
    with pytest.raises(UnsupportedModelError, match=f"is for {CASES[name].task}; use a text classifier") as caught:
        attribute(explainer(name), [{"text": "dog"}], tmp_path / "job")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.task not in EVALUATED])
def test_what_cannot_be_evaluated_is_refused_in_one_line(name):
    with pytest.raises(UnsupportedModelError, match=f"is for {CASES[name].task}; use a model for") as caught:
        gaflow.evaluate(explainer(name), list(CASES[name].inputs), methods=["agf"])
    assert "\n" not in str(caught.value)
