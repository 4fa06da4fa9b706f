"""Tags and answers are evaluated as classes are: every number again by the task's own head, text by text."""

import numpy as np
import pytest
import torch

from gaflow import Explainer
from gaflow.errors import TargetError, UnsupportedModelError
from gaflow.evaluation.faithfulness import evaluate
from gaflow.evaluation.masking import masks
from tests.support.task_models import QUESTION, filler, reader, tagger

SENTENCES = ["this dog is not bad and very cute", "a good film", "dog"]
QUESTIONS = [QUESTION, ("smart?", "this dog is very smart."), ("is it?", "dog is smart")]


@pytest.fixture(scope="module")
def tagging():
    model, tokenizer = tagger()
    return Explainer(model.double(), tokenizer, task="token-classification")


@pytest.fixture(scope="module")
def answering():
    model, tokenizer = reader()
    return Explainer(model.double(), tokenizer, task="question-answering")


def maskable(explainer, text, attribution):
    """The tokens that may be masked, from the documented rule."""
    encoding = explainer.runner.encode([text], names=["text"])[0]
    ordinary = [k for k, segment in enumerate(encoding.segments) if segment >= 0]
    if explainer.runner.task == "token-classification":
        explained = [k for k in ordinary if k in attribution.read_positions]
        return encoding, [k for k in ordinary if k not in explained]
    start, end = min(attribution.read_positions), max(attribution.read_positions)
    context = [k for k in ordinary if encoding.segments[k] == 1]
    return encoding, [k for k in context if not start <= k <= end]


@pytest.mark.parametrize("task", ["tagging", "answering"])
@pytest.mark.parametrize("replacement", ["pad", "mask"])
def test_every_number_is_the_head_s_probability_of_the_same_output(task, replacement, request):
    explainer = request.getfixturevalue(task)
    texts = SENTENCES if task == "tagging" else QUESTIONS
    evaluation = evaluate(explainer, texts, methods=["cat"], replacement=replacement)
    tokenizer = explainer.tokenizer
    token = tokenizer.pad_token_id if replacement == "pad" else tokenizer.mask_token_id
    head = explainer.runner.head
    for row, text in enumerate(texts):
        attribution = explainer(text, "cat")
        (encoding,) = explainer.runner.encode([text], names=["text"])
        with torch.no_grad():
            output = explained_output(explainer, encoding)
            attribution_positions = output.read_positions
        positions = maskable(explainer, text, output)[1]
        assert evaluation.sizes[row] == len(positions)
        assert set(attribution_positions).isdisjoint(positions)
        assert np.exp(evaluation.base[row]) == pytest.approx(attribution.probability, abs=1e-9)
        scores = attribution.scores[positions]
        for column, mask in enumerate(masks(scores, evaluation.conditions)):
            masked = [positions[k] for k in np.flatnonzero(mask)]
            with torch.no_grad():
                logits = masked_logits(explainer, encoding, masked, token)
            same = head.output(logits, encoding, head.resolve(head.parse(output), encoding, "text"))
            assert np.exp(evaluation.masked[0, row, column]) == pytest.approx(same.probability, abs=1e-9)


def explained_output(explainer, encoding):
    logits = explainer.runner.logits([encoding])
    head = explainer.runner.head
    return head.output(logits[0], encoding, head.resolve(head.parse(None), encoding, "text"))


def masked_logits(explainer, encoding, masked, token):
    batch = explainer.runner.collate([encoding])
    inputs = dict(batch.inputs)
    inputs["input_ids"] = inputs["input_ids"].clone()
    inputs["input_ids"][0, masked] = token
    outputs = explainer.model(**inputs)
    if "start_logits" in outputs:
        return torch.stack([outputs["start_logits"], outputs["end_logits"]], -1)[0]
    return outputs["logits"][0]


def test_a_requested_output_is_measured_and_all_methods_explain_it(tagging):
    evaluation = evaluate(tagging, SENTENCES[:1], methods=["cat"], target=("dog", "I-LOC"))
    attribution = tagging(SENTENCES[0], "cat", target=("dog", "I-LOC"))
    assert np.exp(evaluation.base[0]) == pytest.approx(attribution.probability, abs=1e-9)
    evaluation_of_scores = evaluate(tagging, SENTENCES[:1], scores={"given": [attribution]})
    np.testing.assert_allclose(evaluation_of_scores.masked[0], evaluation.masked[0], atol=1e-9)
    other = tagging(SENTENCES[0], "cat", target=("film" if "film" in SENTENCES[0] else "cute", "B-PER"))
    with pytest.raises(ValueError, match="same output"):
        evaluate(tagging, SENTENCES[:1], scores={"given": [attribution], "other": [other]})


def test_words_of_the_context_are_masked_whole(answering):
    by_word = evaluate(answering, QUESTIONS, methods=["cat"], unit="word", replacement=["pad", "mask"])
    by_token = evaluate(answering, QUESTIONS, methods=["cat"])
    assert (by_word["pad"].sizes <= by_token.sizes).all()
    assert by_word["mask"].classes == ("another output", "the explained output")


def test_a_text_without_anything_to_mask_loses_nothing(tagging):
    evaluation = evaluate(tagging, ["dog"], methods=["cat"], soft=True, bounds=True)
    assert evaluation.sizes.tolist() == [0]
    assert (evaluation.masked == evaluation.base[:, None]).all()
    assert evaluation.bounds is not None
    assert np.isnan(evaluation.bounds).all()


def test_what_cannot_be_measured_is_refused(tagging, answering):
    with pytest.raises(TargetError, match="contrast"):
        evaluate(tagging, SENTENCES[:1], methods=["cat"], target=("dog", "B-PER minus O"))
    with pytest.raises(ValueError, match="delete"):
        evaluate(answering, QUESTIONS, methods=["cat"], replacement=["pad", "delete"])
    with pytest.raises(ValueError, match="labels"):
        evaluate(tagging, SENTENCES, labels=[0, 0, 0], methods=["cat"])
    with pytest.raises(ValueError, match="texts"):
        evaluate(tagging, [], methods=["cat"])
    with pytest.raises(UnsupportedModelError):
        evaluate(Explainer(*filler(), task="fill-mask"), ["a [MASK] film"], methods=["cat"])
