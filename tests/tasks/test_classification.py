from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gaflow.errors import GaflowError, TargetError, UnsupportedModelError
from gaflow.tasks.classification import REST, ClassificationHead
from gaflow.tasks.targets import ExplainedOutput, explained_scalar

HEAD = ClassificationHead(("negative", "Positive", "not sure"), "softmax")
NO_ENCODING: Any = None  # classes are those of the whole input


def config(**settings):
    return SimpleNamespace(**settings)


def probability(head, logits, target):
    return head.output(logits, NO_ENCODING, target).probability


def outputs(logits, *targets):
    return HEAD.outputs(logits, [NO_ENCODING] * len(targets), targets)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (None, None),
        (0, 0),
        (torch.tensor(2), 2),
        ("Positive", 1),
        (" positive ", 1),
        ("NOT SURE", 2),
        ("2", 2),
        ("Positive minus negative", (1, 0)),
        ("not sure MINUS positive", (2, 1)),
        (("negative", 2), (0, 2)),
        ((1, 0), (1, 0)),
        ("Positive minus rest", (1, REST)),
        ("not sure MINUS Rest", (2, REST)),
        (("negative", "rest"), (0, REST)),
        ((0, -1), (0, REST)),
    ],
)
def test_targets_are_read_as_meant(target, expected):
    assert HEAD.parse(target) == expected


@pytest.mark.parametrize("target", [3, -1, "angry", "positive minus angry", (0, 9), (0, 1, 2), ("a", "b"), "7"])
def test_an_unknown_target_is_refused_with_the_labels(target):
    with pytest.raises(TargetError) as caught:
        HEAD.parse(target)
    assert isinstance(caught.value, ValueError)
    if not (isinstance(target, tuple) and len(target) == 3):
        assert "'negative'" in str(caught.value)


@pytest.mark.parametrize("target", [1.0, True, torch.tensor(True), b"positive", {"a": 1}, (None, 1)])
def test_a_target_of_the_wrong_type_is_a_type_error(target):
    with pytest.raises(TypeError, match="target"):
        HEAD.parse(target)


@pytest.mark.parametrize("target", [(1, 1), "positive minus positive", ("positive", 1)])
def test_a_class_is_not_contrasted_with_itself(target):
    with pytest.raises(TargetError, match="itself"):
        HEAD.parse(target)


def test_labels_that_differ_in_case_alone_must_be_spelt_exactly():
    head = ClassificationHead(("IT", "it"), "softmax")
    assert head.parse("it") == 1
    assert head.parse("IT") == 0
    with pytest.raises(TargetError, match="exactly"):
        head.parse("It")


def test_a_label_that_contains_the_word_minus_is_a_label_first():
    head = ClassificationHead(("a", "a minus b", "b"), "softmax")
    assert head.parse("a minus b") == 1
    assert head.parse("a minus a minus b") == (0, 1)
    assert head.parse("a minus b minus b") == (1, 2)


def test_a_class_less_the_rest_is_its_logit_less_the_mean_of_the_others():
    logits = torch.tensor([[1.0, 2.5, -4.0]])
    for target in ("Positive minus rest", (1, -1)):
        (output,) = outputs(logits, HEAD.parse(target))
        assert explained_scalar(logits, [output.terms]).item() == pytest.approx(2.5 - (1.0 - 4.0) / 2)
        assert output.probability == pytest.approx(logits.softmax(-1)[0, 1].item())
        assert HEAD.parse(output) == output.target == (1, REST)
        assert output.prediction == "Positive"


def test_the_rest_of_two_classes_is_the_other_one_and_of_one_class_an_error():
    assert ClassificationHead(("no", "yes"), "softmax").parse("yes minus rest") == (1, 0)
    with pytest.raises(TargetError, match="other"):
        ClassificationHead(("yes",), "sigmoid").parse("yes minus rest")


def test_a_label_called_rest_is_a_label_first():
    head = ClassificationHead(("rest", "work", "play"), "softmax")
    assert head.parse("work minus rest") == (1, 0)
    assert head.parse("rest") == 0
    with pytest.raises(TargetError, match="rest"):
        HEAD.parse("rest")
    with pytest.raises(TargetError, match="rest"):
        HEAD.parse("rest minus Positive")


def test_of_a_contrast_the_side_that_is_no_label_is_named():
    with pytest.raises(TargetError, match=r"'neg' in 'positive minus neg'.* 0"):
        HEAD.parse("positive minus neg")
    with pytest.raises(TargetError, match="'pos minus neg'"):
        HEAD.parse("pos minus neg")


def test_a_label_that_is_a_number_is_a_label_first():
    assert ClassificationHead(("1", "0"), "softmax").parse("0") == 1


def test_long_lists_of_labels_are_cut_in_errors():
    with pytest.raises(TargetError, match="and 980 more"):
        ClassificationHead(tuple(f"L{k}" for k in range(1000)), "softmax").parse("none")


def test_none_resolves_to_the_predicted_class():
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    assert [output.target for output in outputs(logits, None, (1, 2))] == [1, (1, 2)]


@pytest.mark.parametrize("shape", [(2, 2), (1, 3), (2, 3, 1)])
def test_logits_of_another_shape_are_refused(shape):
    with pytest.raises(UnsupportedModelError, match="shape"):
        outputs(torch.zeros(shape), None, None)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_an_output_that_is_not_finite_is_an_error(bad):
    with pytest.raises(GaflowError, match="not finite"):
        outputs(torch.tensor([[0.0, bad, 1.0]]), 0)


def test_the_explained_scalar_is_a_logit_or_a_difference_with_its_gradient():
    logits = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]], requires_grad=True)
    y = explained_scalar(logits, [output.terms for output in outputs(logits, 2, (1, 0))])
    assert y.tolist() == [4.0, 8.0]
    (gradient,) = torch.autograd.grad(y.sum(), logits)
    assert gradient.tolist() == [[0, 0, 1], [-1, 1, 0]]


def test_an_output_says_all_there_is_to_show():
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    one, other = outputs(logits, None, (1, 2))
    assert (one.target, one.label, one.prediction) == (1, "Positive", "Positive")
    assert one.probability == pytest.approx(logits[0].double().softmax(0)[1].item())
    assert (other.target, other.label, other.prediction) == ((1, 2), "Positive minus not sure", "negative")
    assert other.terms == ((1.0, (1,)), (-1.0, (2,)))
    assert HEAD.parse(other) == (1, 2)
    best = HEAD.top_outputs(logits[0], NO_ENCODING, 2)
    assert [output.target for output in best] == [1, 2]
    assert all(isinstance(output, ExplainedOutput) for output in best)


def test_probabilities_follow_the_head():
    logits = torch.tensor([0.0, torch.log(torch.tensor(3.0)).item()])
    two = {0: "a", 1: "b"}
    softmax = ClassificationHead.of(config(id2label=two, num_labels=2))
    multi = ClassificationHead.of(config(id2label=two, num_labels=2, problem_type="multi_label_classification"))
    regression = ClassificationHead.of(config(id2label=two, num_labels=2, problem_type="regression"))
    assert probability(softmax, logits, 1) == pytest.approx(0.75)
    assert probability(multi, logits, 0) == pytest.approx(0.5)
    assert probability(multi, logits, 1) == pytest.approx(0.75)
    assert probability(regression, logits, 1) is None


def test_a_contrast_has_the_probability_of_the_first_among_the_two_under_softmax_only():
    logits = torch.tensor([0.0, torch.log(torch.tensor(3.0)).item(), 50.0])
    assert probability(HEAD, logits, (1, 0)) == pytest.approx(0.75)
    assert probability(ClassificationHead(HEAD.labels, "sigmoid"), logits, (1, 0)) is None


def test_a_single_logit_is_read_through_a_sigmoid_unless_it_is_regression():
    one = ClassificationHead.of(config(id2label={0: "score"}, num_labels=1, problem_type=None))
    assert probability(one, torch.tensor([0.0]), 0) == 0.5
    assert one.output(torch.tensor([-3.0]), NO_ENCODING, None).target == 0
    assert ClassificationHead.of(config(id2label={0: "s"}, num_labels=1, problem_type="regression")).link == "none"


def test_labels_missing_from_the_config_get_their_usual_names():
    assert ClassificationHead.of(config(id2label={1: "yes"}, num_labels=2)).labels == ("LABEL_0", "yes")
    assert ClassificationHead.of(config(id2label={"0": "no", "1": "yes"}, num_labels=2)).labels == ("no", "yes")


def test_targets_have_names_for_display():
    assert [output.label for output in outputs(torch.zeros(2, 3), 2, (1, 0))] == ["not sure", "Positive minus negative"]
