import copy
import json
from dataclasses import dataclass, fields
from typing import Any

import pytest
import torch

import gaflow
from gaflow.methods import METHODS, FlowMethod
from gaflow.provenance import describe_method, describe_model, differences, versions
from tests.support.models import bert, byte_bpe, wordpiece


def test_the_hash_of_weights_changes_with_any_weight_and_with_nothing_else():
    model, tokenizer = bert()
    before = describe_model(gaflow.Explainer(model, tokenizer))
    other = copy.deepcopy(model)
    assert describe_model(gaflow.Explainer(other, tokenizer)) == before
    with torch.no_grad():
        list(other.parameters())[-1][0] += 1e-3
    after = describe_model(gaflow.Explainer(other, tokenizer))
    assert [name for name in before if before[name] != after[name]] == ["weights"]


def test_the_hash_of_a_tokenizer_does_not_remember_its_last_call():
    model, _ = bert()
    tokenizer = copy.deepcopy(wordpiece())
    explainer = gaflow.Explainer(model, tokenizer)
    before = describe_model(explainer)
    tokenizer(["a dog"], truncation=True, max_length=3, padding=True)
    assert describe_model(explainer) == before
    assert describe_model(gaflow.Explainer(model, byte_bpe()))["tokenizer"] != before["tokenizer"]


def test_the_name_of_a_folder_is_not_its_path(folder):
    assert describe_model(gaflow.Explainer(folder))["name"] == "tiny"
    assert describe_model(gaflow.Explainer())["name"] == "embedded"


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_of_a_method_is_told_in_json(name):
    found = describe_method(METHODS[name])
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    method: Any = METHODS[name]
    names = list(method.options) if isinstance(method, FlowMethod) else [f.name for f in fields(method)]
    assert list(found["settings"]) == names


def test_functions_are_told_by_name_and_positions_as_lists():
    def own(attention, gradient):
        return attention.mean(2)

    found = describe_method(FlowMethod(own, sources=[0, 2]))["settings"]
    assert found["information"].endswith("own")
    assert found["sources"] == [0, 2]


def test_a_method_of_no_dataclass_is_told_by_name():
    class Plain:
        name = "plain"

        def __call__(self, trace):
            raise AssertionError

    assert describe_method(Plain()) == {"name": "plain", "settings": {}}


def test_differences_are_named_by_their_place():
    there = {"a": 1, "model": {"name": "x", "weights": "p"}, "methods": [{"name": "agf", "settings": {"mu": None}}]}
    here = {"a": 1, "model": {"name": "y", "weights": "q"}, "methods": [{"name": "agf", "settings": {"mu": 2}}], "b": 0}
    assert differences(there, here) == [
        'model.weights is "p" there, "q" here',
        "methods[0].settings.mu is null there, 2 here",
        "b is null there, 0 here",
    ]
    assert differences(there, there) == []


def test_versions_name_what_the_numbers_come_from():
    found = versions()
    assert {"python", "gaflow", "torch", "transformers", "pyarrow"} <= set(found)
    assert found["torch"].split("+")[0] == torch.__version__.split("+")[0]


def test_settings_that_are_records_are_told():
    @dataclass(frozen=True)
    class Own:
        inner: dict
        name: str = "own"

        def __call__(self, trace):
            raise AssertionError

    assert describe_method(Own({"a": (1, 2)}))["settings"] == {"inner": {"a": [1, 2]}, "name": "own"}
