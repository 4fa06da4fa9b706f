from typing import ClassVar

import numpy as np
import pytest

from gaflow.data import Classes, open_data
from gaflow.errors import DataError
from gaflow.tasks.classification import ClassificationHead

HEAD = ClassificationHead(("negative", "Positive"), "softmax")
NAMELESS = ClassificationHead(("LABEL_0", "LABEL_1"), "softmax")


def index(label, names=None, head=HEAD):
    return Classes(head, names).index(label, "reviews, row 7")


@pytest.mark.parametrize("label", [1, 1.0, True, "1", " 1 ", "Positive", "positive", "POSITIVE"])
def test_numbers_are_classes_and_strings_are_labels_however_they_are_written(label):
    assert index(label) == 1


@pytest.mark.parametrize("label", [None, -1, "-1", "", float("nan")])
def test_no_label_is_none(label):
    assert index(label) is None


@pytest.mark.parametrize("label", [2, "2", "neutral", 0.5, [1], "negative minus positive"])
def test_a_label_that_is_no_class_is_an_error_that_says_where_and_what_there_is(label):
    with pytest.raises(DataError, match=r"reviews, row 7: label .* label_names"):
        index(label)


def test_a_list_names_the_numbers():
    assert [index(k, ["positive", "negative"]) for k in (0, "1", 1.0, np.int64(0))] == [1, 0, 0, 1]
    assert index("negative", ["positive", "negative"]) == 0
    with pytest.raises(DataError, match="there are 2 label names"):
        index(2, ["positive", "negative"])
    with pytest.raises(DataError, match="no label 'good'"):
        index(0, ["good", "bad"])


def test_a_mapping_says_what_each_label_means():
    names = {"pos": "positive", 4: 1, 0: "negative", -1: 0}
    assert [index(label, names) for label in ("pos", 4, "4", 0, -1, None)] == [1, 1, 1, 0, 0, None]
    with pytest.raises(DataError, match=r"'neg'.*label_names.*pos, 4, 0, -1"):
        index("neg", names)


def test_names_of_the_data_set_hold_unless_the_model_has_none_or_the_caller_says_otherwise():
    class Hub:
        column_names = ("text", "label")
        features: ClassVar = {"label": type("ClassLabel", (), {"names": ["Positive", "negative"]})()}

        def select_columns(self, names):
            return []

    data = open_data(Hub(), label_column="label")
    assert Classes.of(data, HEAD).index(0, "") == 1
    assert Classes.of(data, NAMELESS).index(0, "") == 0
    source = open_data(Hub(), label_column="label", label_names=["negative", "positive"])
    assert Classes.of(source, HEAD).index(0, "") == 0


def test_a_string_of_names_is_refused():
    with pytest.raises(TypeError, match="label_names must be a list"):
        Classes.of(open_data(["a"], label_names="ab"), HEAD)
