"""Which method explains when none is named."""

from dataclasses import replace

import numpy as np
import pytest
from transformers import LongformerConfig, LongformerForSequenceClassification

import gaflow
from gaflow.default import Instead, default_method
from gaflow.errors import UnsupportedModelError
from tests.models import SENTENCE, bert, gpt2, modernbert, wordpiece


@pytest.mark.parametrize("family", [bert, modernbert, gpt2])
def test_classes_of_texts_are_explained_by_path_flow(family):
    explainer = gaflow.Explainer(*family())
    assert explainer.default is gaflow.METHODS["path_flow"]
    quick = replace(explainer.default, steps=1, groups=2, ranked=1)  # type: ignore[type-var]
    explainer.default = quick
    named = explainer(SENTENCE, quick)
    for found in (explainer(SENTENCE), explainer([SENTENCE])[0], next(iter(explainer.stream([SENTENCE])))):
        assert found.method == quick.name
        np.testing.assert_allclose(found.scores, named.scores, atol=1e-6)


def longformer():
    config = LongformerConfig(
        vocab_size=len(wordpiece()), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        attention_window=8, max_position_embeddings=80, pad_token_id=wordpiece().pad_token_id,
    )  # fmt: skip
    return LongformerForSequenceClassification(config).eval(), wordpiece()


def test_a_model_that_path_flow_cannot_follow_is_explained_by_agf_and_every_result_says_why():
    explainer = gaflow.Explainer(*longformer())
    with pytest.raises(UnsupportedModelError, match="residual stream"):
        explainer(SENTENCE, "path_flow")
    found, plain = explainer(SENTENCE), explainer(SENTENCE, "agf")
    assert isinstance(explainer.default, Instead)
    assert found.method == "agf"
    assert "way into the residual stream is not followed" in str(found.facts["not path_flow"])
    np.testing.assert_allclose(found.scores, plain.scores, rtol=1e-4)


def test_other_tasks_are_explained_by_agf_without_asking_the_model():
    def refuse(*_given, **_named):
        raise AssertionError("asked")

    for task in ("token-classification", "question-answering", "fill-mask", "image-classification"):
        assert default_method(task, refuse) is gaflow.METHODS["agf"]


def test_errors_that_are_not_about_the_model_are_not_hidden():
    def fail(*_given, **_named):
        raise RuntimeError("out of order")

    with pytest.raises(RuntimeError, match="out of order"):
        default_method("text-classification", fail)
