"""Arguments are checked before anything is computed, and NumPy's numbers count as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gaflow import Explainer, FlowMethod, solve
from gaflow.arguments import checked, open_fraction, positive_number, whole_number
from gaflow.errors import ArgumentError, ArgumentTypeError
from gaflow.methods import IntegratedGradients, Lime
from tests.support.models import bert


@checked
def repeat(text: str, count: int = 1, **options: object) -> tuple[str, object]:
    return text * count, options


def test_numbers_of_numpy_are_passed_on_as_python_s():
    three: Any = np.int64(3)
    assert repeat("a", three, width=np.float32(0.5)) == ("aaa", {"width": 0.5})
    assert type(whole_number("k", np.uint8(3))) is int
    assert type(positive_number("width", np.float64(0.5))) is float
    assert type(open_fraction("confidence", np.float32(0.5))) is float


@pytest.mark.parametrize("value", [np.bool_(True), np.float64(2.0), np.array([2, 3]), "2"])
def test_what_is_no_whole_number_is_refused(value):
    with pytest.raises(ArgumentError) as caught:
        repeat("a", value)
    assert caught.value.argument == "count"


def test_settings_are_stored_as_python_s_numbers():
    steps: Any = np.int64(20)
    assert IntegratedGradients(steps=steps).name == "ig(steps=20)"
    assert Lime(width=np.float64(0.5)) == Lime(width=0.5)
    assert FlowMethod("agf", layer=steps).name == FlowMethod("agf", layer=20).name


@pytest.mark.parametrize(
    "information",
    [torch.ones(2, 3, 3, device="meta"), torch.ones(2, 3, 3).to_sparse()],
    ids=["meta", "sparse"],
)
def test_tensors_without_dense_values_are_refused(information):
    with pytest.raises(ArgumentTypeError) as caught:
        solve(information)
    assert caught.value.argument == "information"


@pytest.mark.parametrize("progress", [int, dict, lambda: None, lambda done: None, lambda a, b, c: None, 1, "yes"])
def test_a_function_for_progress_takes_what_is_done_and_in_all(progress):
    explainer = Explainer(*bert())
    with pytest.raises(ArgumentTypeError, match="progress"):
        explainer(["the dog"], "rawatt", progress=progress)


def test_functions_that_can_take_the_arguments_are_called():
    calls = []
    explainer = Explainer(*bert())
    for progress in (lambda *both: calls.append(both), lambda done, in_all, more=0: calls.append((done, in_all))):
        explainer(["the dog"], "rawatt", progress=progress)
        assert calls.pop() == (1, 1)
        calls.clear()
