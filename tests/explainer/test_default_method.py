"""Which method explains when none is named."""

import copy

import numpy as np
import pytest
import torch

import gaflow
from gaflow.errors import UnsupportedModelError
from gaflow.explainer.default_method import FallbackToAgf, default_method
from tests.support.models import SENTENCE, bert, gpt2, longformer, modernbert
from tests.support.relevance import changed
from tests.support.task_models import CASES


@pytest.mark.parametrize("family", [bert, modernbert, gpt2])
def test_texts_are_explained_by_peeled_flow(family):
    explainer = gaflow.Explainer(*family())
    assert explainer.default is gaflow.METHODS["peeled_flow"]
    named = explainer(SENTENCE, "peeled_flow")
    for att in (explainer(SENTENCE), explainer([SENTENCE])[0]):
        assert att.method == "peeled_flow"
        np.testing.assert_allclose(att.scores, named.scores, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_so_is_every_other_task(name):
    model, processor = CASES[name].make()
    explainer = gaflow.Explainer(model, processor, task=CASES[name].task)
    assert explainer.default is gaflow.METHODS["peeled_flow"]
    assert explainer(CASES[name].inputs[0], target=CASES[name].one).method == "peeled_flow"


def test_a_model_without_balanced_gradients_is_explained_by_agf_and_every_result_says_why():
    explainer = gaflow.Explainer(*changed(torch.sin))
    att = explainer(SENTENCE)
    assert att.method == "agf"
    assert "torch.sin" in str(att.diagnostics["default"])
    np.testing.assert_allclose(att.scores, explainer(SENTENCE, "agf").scores, rtol=1e-4)


def test_a_model_whose_residual_stream_is_not_found_is_explained_by_agf_and_every_result_says_why():
    explainer = gaflow.Explainer(*longformer())
    with pytest.raises(UnsupportedModelError, match="residual stream"):
        explainer(SENTENCE, "peeled_flow")
    att, plain = explainer(SENTENCE), explainer(SENTENCE, "agf")
    assert isinstance(explainer.default, FallbackToAgf)
    assert att.method == "agf"
    assert "residual stream" in str(att.diagnostics["default"])
    assert str(att.diagnostics["default"]).startswith("agf instead of peeled_flow")
    np.testing.assert_allclose(att.scores, plain.scores, rtol=1e-4)


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
    assert explainer.default is gaflow.METHODS["peeled_flow"]
    assert explainer("dog").method == "peeled_flow"


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
        assert att.method == "peeled_flow"
        assert gaflow.axioms(att).ok
