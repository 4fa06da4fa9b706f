from types import SimpleNamespace

import numpy as np
import pytest

from gaflow import Explainer
from gaflow.errors import TargetError, TextError, UnknownMethodError, UnsupportedModelError
from gaflow.evaluation.faithfulness import evaluate
from tests.support.evaluated import TEXTS
from tests.support.models import bert


def test_scores_from_elsewhere_are_judged_alike(explainer, evaluated):
    attributions = explainer(TEXTS, "cat")
    arrays = [a.scores for a in attributions]
    ordinary = [a.scores[~a.special_mask].tolist() for a in attributions]
    evaluation = evaluate(explainer, TEXTS, scores={"ours": attributions, "all": arrays, "some": ordinary})
    assert evaluation.methods == ("ours", "all", "some", "random")
    for row in range(3):
        np.testing.assert_array_equal(evaluation.masked[row], evaluated.masked[1])
    np.testing.assert_array_equal(evaluation.masked[3], evaluated.masked[3])


def test_scores_of_words_are_spread_over_tokens(explainer):
    text = "stop film"
    att = explainer(text, "cat")
    words = SimpleNamespace(scores=[4.0, 1.0], offsets=[(0, 4), (5, 9)])
    spread = [4.0 * (b - a) / 4 if b <= 4 else (b - a) / 4 for a, b in np.array(att.offsets)[~att.special_mask]]
    assert len(spread) > 2
    evaluation = evaluate(explainer, [text], scores={"words": [words], "tokens": [spread]})
    np.testing.assert_array_equal(evaluation.masked[0], evaluation.masked[1])


@pytest.mark.parametrize(
    ("changed", "error", "match"),
    [
        ({"texts": "one"}, TypeError, "list"),
        ({"texts": []}, ValueError, "empty"),
        ({"texts": ["good", " "]}, TextError, r"texts\[1\]"),
        ({"labels": [0]}, ValueError, "labels"),
        ({"labels": [0, 7]}, ValueError, r"labels\[1\] is 7"),
        ({"labels": [0, None]}, ValueError, r"labels\[1\]"),
        ({"labels": [0, float("nan")]}, ValueError, r"labels\[1\]"),
        ({"labels": [0, "happy"]}, ValueError, "'positive'"),
        ({"methods": "cat"}, TypeError, "methods"),
        ({"methods": ["kat"]}, UnknownMethodError, "cat"),
        ({"methods": ["cat", "cat"]}, ValueError, "twice"),
        ({"replacement": "blank"}, ValueError, "replacement"),
        ({"order": "up"}, ValueError, "order"),
        ({"levels": []}, ValueError, "levels"),
        ({"levels": [10, 10]}, ValueError, "levels"),
        ({"levels": [0.5]}, ValueError, "levels"),
        ({"levels": [None, 10]}, ValueError, "levels"),
        ({"scores": [1, 2]}, TypeError, "dict"),
        ({"scores": {"a": [[1.0]]}}, ValueError, "entries"),
        ({"scores": {"a": [[1.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]}}, ValueError, "tokens"),
        ({"scores": {"a": [[float("nan")], [1.0]]}}, ValueError, "finite"),
        ({"scores": {"cat": [[1.0], [1.0]]}, "methods": ["cat"]}, ValueError, "twice"),
        ({"target": 9}, TargetError, "range"),
    ],
)
def test_bad_input_is_refused_before_anything_is_computed(explainer, changed, error, match):
    arguments = {"texts": ["good", "bad"], "methods": [], **changed}
    with pytest.raises(error, match=match):
        evaluate(explainer, **arguments)


def test_levels_may_be_an_array(explainer):
    assert evaluate(explainer, ["good"], methods=["cat"], levels=np.arange(10, 31, 10)).levels == (10, 20, 30)


def test_scores_of_another_text_are_refused(explainer):
    with pytest.raises(ValueError, match="another text"):
        evaluate(explainer, ["good"], scores={"a": [explainer("bad", "cat")]})


@pytest.mark.parametrize(
    "settings",
    [
        {"problem_type": "multi_label_classification"},
        {"num_labels": 1},
        {"num_labels": 1, "problem_type": "regression"},
    ],
)
def test_heads_without_one_class_among_several_are_refused(settings):
    with pytest.raises(UnsupportedModelError, match="one class among several"):
        evaluate(Explainer(*bert(**settings)), ["good"], methods=[])


def test_the_class_that_was_explained_is_measured(explainer, evaluated):
    other = [(int(t) + 1) % 3 for t in evaluated.target]
    directly = evaluate(explainer, TEXTS, methods=["cat"], target=other)
    assert directly.target.tolist() == other
    attributions = explainer(TEXTS, "cat", target=other)
    evaluation = evaluate(explainer, TEXTS, scores={"cat": attributions})
    np.testing.assert_array_equal(evaluation.masked[0], directly.masked[0])
    with pytest.raises(ValueError, match="same class"):
        evaluate(explainer, TEXTS, scores={"cat": attributions}, target=evaluated.target.tolist())
    with pytest.raises(TargetError, match="contrast"):
        evaluate(explainer, TEXTS, methods=["cat"], target=(0, 1))
