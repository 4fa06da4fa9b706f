import copy
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForNextSentencePrediction

import gaflow
from gaflow.benchmark import bench
from gaflow.data import open_data
from gaflow.errors import GaflowWarning, UnknownMethodError
from gaflow.methods import METHODS, find_method
from gaflow.models.adapters import ADAPTERS, SOFTMAXES, find_adapter
from gaflow.plugins import Registry
from gaflow.tasks import TASKS
from tests.support.models import SIZE, bert, wordpiece
from tests.support.plugin_package import install, install_example

REGISTRIES = (METHODS, TASKS, ADAPTERS)


@pytest.fixture
def fresh(monkeypatch):
    """Registries that look for plug-ins again, and forget what they found after the test."""
    yield [monkeypatch.setattr(registry, "_loaded", False) for registry in REGISTRIES]
    for registry in REGISTRIES:
        for name in [name for name in dict.keys(registry) if name not in registry.built_in]:
            del registry[name]
        registry.broken.clear()
    sys.modules.pop("gaflow_example", None)


@pytest.fixture
def example(tmp_path, monkeypatch, fresh):
    """The example package, installed."""
    install_example(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")


def test_a_method_of_another_package_is_one_of_the_methods(example, explainer):
    assert list(METHODS)[-1] == "last_attention"
    att = explainer("a smart dog", "last_attention")
    model = copy.deepcopy(explainer.model)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        inputs = explainer.tokenizer("a smart dog", return_tensors="pt")
        attention = model(**inputs, output_attentions=True).attentions[-1]
    assert np.allclose(att.scores, attention[0].double().mean(0).mean(0))
    assert att.provenance["method"] == "last_attention"
    assert "last_attention" in explainer.compare("a smart dog")


def test_a_method_of_another_package_is_evaluated_and_benchmarked(example, explainer, tmp_path):
    rows = [{"text": "a smart dog", "label": 0}, {"text": "it is not cute", "label": 1}] * 3
    evaluation = gaflow.evaluate(explainer, ["a smart dog", "not cute"], methods=["last_attention"])
    assert "last_attention" in evaluation.methods
    data = open_data(rows, label_column="label")
    (outcome,) = bench(explainer, {"rows": data}, tmp_path, methods=["last_attention", "attcat"], sample=None)
    assert "last_attention" in gaflow.Evaluation.load(outcome.evaluations["pad"]).methods


def test_a_task_of_another_package_is_taken_from_the_class_of_the_model(example):
    torch.manual_seed(0)
    model = BertForNextSentencePrediction(BertConfig(**SIZE)).eval()
    explainer = gaflow.Explainer(model, wordpiece())
    assert explainer.task == "next-sentence-prediction"
    att = explainer(("a smart dog", "it is not cute"), "agf", target="random")
    with torch.no_grad():
        logits = model(**wordpiece()("a smart dog", "it is not cute", return_tensors="pt")).logits
    assert att.output == pytest.approx(logits[0, 1].item())
    assert explainer.task in TASKS


def test_the_default_method_explains_a_task_of_another_package(example):
    torch.manual_seed(0)
    explainer = gaflow.Explainer(BertForNextSentencePrediction(BertConfig(**SIZE)).eval(), wordpiece())
    assert explainer(("a smart dog", "it is not cute")).method == "peeled_flow"


def test_an_adapter_of_another_package_serves_its_type_of_models(example):
    model, _ = bert()
    config = type("Config", (), {"model_type": "example_model"})()
    assert find_adapter(type("Model", (), {"config": config})()) is SOFTMAXES
    assert find_adapter(model) is not SOFTMAXES


def test_own_names_are_found_without_importing_plug_ins(tmp_path, monkeypatch, fresh):
    (tmp_path / "slow_plugin.py").write_text("raise SystemExit('imported')")
    install(
        tmp_path, "slow-plugin", {"gaflow.methods": {"slow": "slow_plugin:X"}, "gaflow.tasks": {"s": "slow_plugin:X"}}
    )
    monkeypatch.syspath_prepend(tmp_path)
    explainer = gaflow.Explainer(*bert(), task="text-classification")
    assert explainer("a smart dog", "agf").method == "agf"
    assert gaflow.Explainer().task == "text-classification"


@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        ("agf", "X = None", "gaflow itself uses this name"),
        ("mine", "raise ValueError('no such library\\nmore')", "ValueError: no such library"),
        ("mine", "Y = 1", "AttributeError"),
        ("mine", "X = 1", "no method"),
        ("mine", "from gaflow.methods import Random as X", "no method"),
        ("mine", "from gaflow.methods import Random\nX = Random()", "calls itself 'random'"),
        ("mine", "class M:\n    name = 'mine'\n    def __call__(self, trace): ...\nX = M()", "no info"),
        ("mine", "raise ValueError('\\x1b[31m')", "x1b"),
        ("mine", "raise SystemExit('not on this machine')", "SystemExit: not on this machine"),
    ],
)
def test_a_broken_plug_in_names_itself_and_breaks_nothing_else(tmp_path, monkeypatch, fresh, name, code, reason):
    (tmp_path / "odd_plugin.py").write_text(code)
    install(tmp_path, "odd-plugin", {"gaflow.methods": {name: "odd_plugin:X"}})
    install_example(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = METHODS.get("agf")
    with pytest.warns(GaflowWarning, match=f"'{name}' of the package 'odd-plugin'.*{reason}") as caught:
        names = list(METHODS)
    assert len(caught) == 1
    assert "\x1b" not in str(caught[0].message)
    assert names[-1] == "last_attention"
    assert METHODS["agf"] is before
    sys.modules.pop("odd_plugin", None)
    if name == "mine":
        with pytest.raises(UnknownMethodError, match="plug-in 'mine'"):
            find_method("mine")


def test_where_warnings_are_errors_a_broken_plug_in_hides_no_other(tmp_path, monkeypatch, fresh):
    install(tmp_path, "a-broken-plugin", {"gaflow.methods": {"broken": "nowhere:X"}})
    install_example(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(GaflowWarning, match="broken"):
        list(METHODS)
    assert list(METHODS)[-1] == "last_attention"


def test_of_two_packages_with_one_name_the_first_counts(tmp_path, monkeypatch):
    (tmp_path / "twins.py").write_text("A = 1\nB = 2")
    install(tmp_path, "a-twin", {"test.group": {"one": "twins:A"}})
    install(tmp_path, "b-twin", {"test.group": {"one": "twins:B"}})
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry({"zero": 0}, "test.group", lambda name, item: None)
    assert registry["zero"] == 0
    with pytest.warns(GaflowWarning, match="b-twin"):
        assert registry["one"] == 1
    assert dict(registry) == {**registry} == {"zero": 0, "one": 1}
    assert (len(registry), registry.get("two", 7), list(registry.values())) == (2, 7, [0, 1])


@pytest.mark.slow
def test_the_command_lists_and_compares_methods_of_other_packages(tmp_path):
    install_example(tmp_path)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}

    def run(*arguments):
        command = [sys.executable, "-m", "gaflow", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert "last_attention" in {entry["name"] for entry in json.loads(run("methods", "--json"))}
    compared = json.loads(run("compare", "a smart dog", "--methods", "agf,last_attention", "--json"))
    assert set(compared) == {"agf", "last_attention"}
