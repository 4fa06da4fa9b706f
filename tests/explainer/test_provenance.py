import copy
import json
import sys
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any

import pytest
import torch

import gaflow
from gaflow.explainer.provenance import describe_environment, describe_method, describe_model, versions
from gaflow.methods import METHODS, FlowMethod
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
    described = describe_method(METHODS[name])
    assert json.loads(json.dumps(described, allow_nan=False)) == described
    method: Any = METHODS[name]
    names = list(method.options) if isinstance(method, FlowMethod) else [f.name for f in fields(method)]
    assert list(described["settings"]) == names


def test_functions_are_told_by_name_and_positions_as_lists():
    def my_information(attention, gradient):
        return attention.mean(2)

    described = describe_method(FlowMethod(my_information, sources=[0, 2]))["settings"]
    assert described["information"].endswith("my_information")
    assert described["sources"] == [0, 2]


def test_a_method_of_no_dataclass_is_told_by_name():
    class Plain:
        name = "plain"

        def __call__(self, trace):
            raise AssertionError

    assert describe_method(Plain()) == {"name": "plain", "settings": {}}


def test_code_that_came_with_a_model_is_part_of_it(tmp_path, monkeypatch):
    model, tokenizer = bert()
    assert describe_model(gaflow.Explainer(model, tokenizer))["code"] is None
    module = ModuleType("transformers_modules.foreign")
    module.__file__ = str(tmp_path / "modeling.py")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    foreign = copy.deepcopy(model)
    foreign.__class__ = type("Foreign", (type(model),), {"__module__": module.__name__})
    hashes = set()
    for code in ("a = 1", "a = 2", "a = 1"):
        (tmp_path / "modeling.py").write_text(code)
        hashes.add(describe_model(gaflow.Explainer(foreign, tokenizer, task="text-classification"))["code"])
    assert len(hashes) == 2
    before = describe_model(gaflow.Explainer(foreign, tokenizer, task="text-classification"))["code"]
    (tmp_path / "helper.py").write_text("a = 1")  # which modeling.py may import
    assert describe_model(gaflow.Explainer(foreign, tokenizer, task="text-classification"))["code"] != before


def test_code_that_came_with_a_tokenizer_is_part_of_the_model(tmp_path, monkeypatch):
    module = ModuleType("transformers_modules.tokenization")
    module.__file__ = str(tmp_path / "tokenization.py")
    (tmp_path / "tokenization.py").write_text("a = 1")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    model, tokenizer = bert()
    foreign = copy.deepcopy(tokenizer)
    foreign.__class__ = type("Foreign", (type(tokenizer),), {"__module__": module.__name__})
    assert describe_model(gaflow.Explainer(model, foreign))["code"] is not None


def test_an_environment_names_threads_and_processor():
    environment = describe_environment("cpu")
    assert environment["threads"] == torch.get_num_threads()
    assert describe_environment("cpu", threads=3)["threads"] == 3
    assert environment["processor"]
    assert environment["versions"] == versions()


def test_a_config_is_described_by_what_changes_numbers():
    model, tokenizer = bert()
    config = describe_model(gaflow.Explainer(model, tokenizer))["config"]
    assert (config["num_attention_heads"], config["hidden_act"]) == (4, "gelu")
    assert not {"_name_or_path", "transformers_version", "id2label"} & set(config)
    assert json.loads(json.dumps(config, allow_nan=False)) == config


def test_versions_name_what_the_numbers_come_from():
    installed = versions()
    assert {"python", "gaflow", "torch", "transformers", "pyarrow"} <= set(installed)
    assert installed["torch"].split("+")[0] == torch.__version__.split("+")[0]


def test_settings_that_are_records_are_told():
    @dataclass(frozen=True)
    class Own:
        inner: dict
        name: str = "own"

        def __call__(self, trace):
            raise AssertionError

    assert describe_method(Own({"a": (1, 2)}))["settings"] == {"inner": {"a": [1, 2]}, "name": "own"}
