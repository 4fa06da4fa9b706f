"""Which method explains when none is named."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from transformers import LongformerConfig, LongformerForSequenceClassification

import gaflow
from gaflow.errors import UnsupportedModelError
from gaflow.explainer.default_method import FallbackToAgf, default_method
from gaflow.explainer.runner import Runner
from gaflow.inputs.batch import Padding
from gaflow.tasks.classification import ClassificationHead
from tests.support.models import SENTENCE, bert, gpt2, modernbert, wordpiece


@pytest.mark.parametrize("family", [bert, modernbert, gpt2])
def test_classes_of_texts_are_explained_by_path_flow(family):
    explainer = gaflow.Explainer(*family())
    assert explainer.default is gaflow.METHODS["path_flow"]
    quick = replace(explainer.default, steps=1, groups=2, ranked=1)  # type: ignore[type-var]
    explainer.default = quick
    named = explainer(SENTENCE, quick)
    for att in (explainer(SENTENCE), explainer([SENTENCE])[0]):
        assert att.method == quick.name
        np.testing.assert_allclose(att.scores, named.scores, atol=1e-6)


def longformer():
    config = LongformerConfig(
        vocab_size=len(wordpiece()), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        attention_window=8, max_position_embeddings=80, pad_token_id=0,
    )  # fmt: skip
    return LongformerForSequenceClassification(config).eval(), wordpiece()


def test_a_model_that_path_flow_cannot_follow_is_explained_by_agf_and_every_result_says_why():
    explainer = gaflow.Explainer(*longformer())
    with pytest.raises(UnsupportedModelError, match="residual stream"):
        explainer(SENTENCE, "path_flow")
    att, plain = explainer(SENTENCE), explainer(SENTENCE, "agf")
    assert isinstance(explainer.default, FallbackToAgf)
    assert att.method == "agf"
    assert "residual stream" in str(att.diagnostics["default"])
    assert str(att.diagnostics["default"]).startswith("agf instead of path_flow")
    np.testing.assert_allclose(att.scores, plain.scores, rtol=1e-4)


def runner_without_model(task, head) -> Runner:
    """A runner that fails as soon as the model is used."""
    return Runner(model=None, tokenizer=None, task=task, head=head, padding=Padding(None), limit=None)


def test_other_tasks_are_explained_by_agf_without_asking_the_model():
    for task in ("token-classification", "question-answering", "fill-mask", "image-classification"):
        runner = runner_without_model(task, None)
        assert default_method(runner) is gaflow.METHODS["agf"]
    regression = runner_without_model("text-classification", ClassificationHead(("score",), "none"))
    assert default_method(regression) is gaflow.METHODS["agf"]


def test_errors_that_are_not_about_the_model_are_not_hidden(monkeypatch):
    explainer = gaflow.Explainer(*bert())

    def fail(*_args, **_inputs):
        raise RuntimeError("out of order")

    monkeypatch.setattr(explainer.model, "forward", fail)
    with pytest.raises(RuntimeError, match="out of order"):
        default_method(explainer.runner)


@pytest.mark.parametrize("changes", [{"max_position_embeddings": 4}, {"problem_type": "multi_label_classification"}])
def test_short_models_and_several_labels_at_once_are_no_obstacle(changes):
    explainer = gaflow.Explainer(*bert(**changes))
    assert explainer.default is gaflow.METHODS["path_flow"]
    assert explainer("dog").method == "path_flow"


def test_a_tokenizer_without_a_token_for_absent_ones_is_no_obstacle_either():
    model, tokenizer = gpt2()
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.pad_token = tokenizer.unk_token = tokenizer.mask_token = None
    att = gaflow.Explainer(model, tokenizer)("dog")
    assert att.method == "agf"
    assert "pad token" in str(att.diagnostics["default"])


def test_a_pair_and_a_single_token_are_explained():
    explainer = gaflow.Explainer(*bert())
    for att in (explainer(("a good film", "a bad one")), explainer("dog")):
        assert att.method == "path_flow"
        assert gaflow.axioms(att).ok
