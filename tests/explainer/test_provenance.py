import copy
import gc
import json
import pickle
import subprocess
import sys
import threading
import weakref
from dataclasses import dataclass, field, fields
from functools import partial
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

import gaflow
from gaflow.explainer import provenance
from gaflow.explainer.provenance import describe_environment, describe_method, describe_model, versions
from gaflow.methods import METHODS, FlowMethod
from tests.support.models import bert, byte_bpe, wordpiece
from tests.support.task_models import CASES


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
    name, digest = described["information"].split()
    assert name.endswith("my_information")
    assert int(digest, 16)
    assert described["sources"] == [0, 2]


def test_a_method_of_no_dataclass_is_told_by_name():
    class Plain:
        name = "plain"

        def __call__(self, trace):
            raise AssertionError

    described = describe_method(Plain())
    assert int(described.pop("code"), 16)
    assert described == {"name": "plain", "settings": {}}


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


@dataclass(frozen=True)
class Baseline:
    """A setting that is a record and a function."""

    share: float

    def __call__(self, trace):
        raise AssertionError


@pytest.mark.parametrize(
    ("setting", "other"),
    [
        (np.arange(5000.0), np.where(np.arange(5000) == 2500, -1.0, np.arange(5000))),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (np.array(["a", "b"]), np.array(["a", "c"])),
        (torch.tensor(0.123450), torch.tensor(0.123451)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
        (partial(max, 1), partial(max, 2)),
        (partial(max), partial(min)),
        (Baseline(0.1), Baseline(0.2)),
        ({"a", "b"}, {"a", "c"}),
    ],
    ids=lambda setting: type(setting).__name__,
)
def test_two_settings_of_different_numbers_are_never_told_alike(setting, other):
    @dataclass(frozen=True)
    class Own:
        setting: Any
        name: str = "own"

        def __call__(self, trace):
            raise AssertionError

    described = describe_method(Own(setting))
    assert json.loads(json.dumps(described)) == described
    assert describe_method(Own(copy.deepcopy(setting))) == described
    assert describe_method(Own(other)) != described


def test_settings_are_told_alike_in_every_process():
    class Bare:
        pass

    @dataclass(frozen=True)
    class Own:
        names: Any = frozenset("abcdef")
        bare: Any = field(default_factory=Bare)
        name: str = "own"

        def __call__(self, trace):
            raise AssertionError

    settings = describe_method(Own())["settings"]
    assert settings["names"] == sorted(settings["names"])
    assert settings["bare"] == describe_method(Own())["settings"]["bare"]


def test_an_attribution_says_which_model_and_settings_it_comes_from():
    model, tokenizer = bert()
    explainer = gaflow.Explainer(model, tokenizer)
    described = describe_model(explainer)
    stated = explainer("a smart dog", FlowMethod("agf", epsilon=1e-4)).provenance
    assert stated["model"] == described["name"]
    for entry in ("revision", "class", "dtype", "device", "weights", "modules", "code", "attention"):
        assert stated[entry] == described[entry]
    assert stated["tokenizer"] == described["tokenizer"]["sha256"]
    assert stated["versions"] == versions()
    assert stated["settings"] == describe_method(FlowMethod("agf", epsilon=1e-4))["settings"]
    assert "note" not in stated


def test_nothing_is_hashed_before_somebody_asks_and_then_once_for_each_model():
    model, tokenizer = bert()
    explainer = gaflow.Explainer(copy.deepcopy(model), tokenizer)
    with patch.object(provenance, "_hash_weights", wraps=provenance._hash_weights) as hashing:
        attributions = explainer(["a dog", "a smart dog", "not cute"], "agf", batch_size=1)
        attributions += explainer.compare("a dog", ["agf", "attcat"]).values()
        for attribution in attributions:
            attribution._repr_html_()
        assert hashing.call_count == 0
        hashes = {attribution.provenance["weights"] for attribution in attributions}
        assert hashing.call_count == 1
    assert hashes == {describe_model(explainer)["weights"]}


def change_in_place(model):
    with torch.no_grad():
        model.classifier.weight.add_(1.0)


def train_one_step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.classifier.weight.grad = torch.ones_like(model.classifier.weight)
    optimizer.step()
    model.zero_grad()


def replace_a_weight(model):
    model.classifier.weight = torch.nn.Parameter(model.classifier.weight.detach() + 1)


def load_other_weights(model):
    model.load_state_dict({name: value + 1 for name, value in model.state_dict().items()})


@pytest.mark.parametrize("change", [change_in_place, train_one_step, replace_a_weight, load_other_weights])
def test_a_model_that_changed_since_the_explanation_is_not_taken_for_the_explained_one(change):
    model, tokenizer = bert()
    model = copy.deepcopy(model)
    explainer = gaflow.Explainer(model, tokenizer)
    asked_before = explainer("a smart dog", "agf")
    weights = asked_before.provenance["weights"]
    same_batch_state = explainer("not cute", "agf")
    change(model)
    asked_after = explainer("a smart dog", "agf")
    assert asked_before.provenance["weights"] == same_batch_state.provenance["weights"] == weights
    assert asked_after.provenance["weights"] not in (weights, None)
    change(model)
    never_asked = explainer("cute", "agf")
    change(model)
    unknown = never_asked.provenance
    assert unknown["weights"] is None
    assert unknown["note"] == provenance._CHANGED
    assert unknown["model"] == "BertForSequenceClassification"


def test_an_attribution_outlives_its_model_and_still_names_it():
    model, tokenizer = bert()
    explainer = gaflow.Explainer(copy.deepcopy(model), tokenizer)
    weights = describe_model(explainer)["weights"]
    attributions = [explainer("a smart dog", "agf"), *explainer(["not cute", "a dog"], "attcat", batch_size=1)]
    alive = weakref.ref(explainer.model)
    del explainer
    assert alive() is None
    assert [attribution.provenance["weights"] for attribution in attributions] == [weights] * 3


def test_garbage_collection_does_not_change_what_an_attribution_knows():
    model, tokenizer = bert()
    explainer = gaflow.Explainer(copy.deepcopy(model), tokenizer)
    explainer.cycle = explainer  # type: ignore[attr-defined]
    weights = describe_model(explainer)["weights"]
    early, late = explainer(["a smart dog", "not cute"], "agf", batch_size=1)
    alive = weakref.ref(explainer.model)
    gc.disable()
    try:
        del explainer
        assert early.provenance["weights"] == weights
    finally:
        gc.enable()
    gc.collect()
    assert alive() is None
    assert late.provenance["weights"] == weights


def test_a_state_that_ends_with_its_explainer_is_known_although_the_model_is_trained_on():
    model, tokenizer = bert()
    model = copy.deepcopy(model)
    by_step = []
    for _ in range(3):
        by_step.append(gaflow.Explainer(model, tokenizer)("a smart dog", "agf"))
        train_one_step(model)
    hashes = {attribution.provenance["weights"] for attribution in by_step}
    assert len(hashes) == 3
    assert None not in hashes


def test_attributions_of_one_state_share_its_snapshot_and_those_of_another_do_not():
    explainer = gaflow.Explainer(copy.deepcopy(bert()[0]), wordpiece())
    before = [explainer("a smart dog", "attcat") for _ in range(3)]
    change_in_place(explainer.model)
    after = explainer("a smart dog", "attcat")
    with torch.autocast("cpu", torch.bfloat16):
        reduced = explainer("a smart dog", "attcat")
    snapshots = [attribution.origin._snapshot for attribution in [*before, after, reduced]]  # type: ignore[union-attr]
    assert len({id(snapshot) for snapshot in snapshots[:3]}) == 1
    assert len({id(snapshot) for snapshot in snapshots}) == 3
    assert reduced.provenance["autocast"] == "bfloat16"


def test_two_threads_that_ask_at_once_hash_once():
    model, tokenizer = bert()
    explainer = gaflow.Explainer(copy.deepcopy(model), tokenizer)
    attributions = explainer(["a smart dog", "not cute"], "agf", batch_size=1)
    second_asks = threading.Event()
    hash_weights = provenance._hash_weights

    def hash_slowly(model):
        assert second_asks.wait(60)
        return hash_weights(model)

    answers = []

    def ask_first():
        answers.append(attributions[0].provenance["weights"])

    def ask_second():
        second_asks.set()
        answers.append(attributions[1].provenance["weights"])

    with patch.object(provenance, "_hash_weights", side_effect=hash_slowly) as hashing:
        threads = [threading.Thread(target=ask) for ask in (ask_first, ask_second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert hashing.call_count == 1
    assert answers == [describe_model(explainer)["weights"]] * 2


def test_an_explainer_that_ends_leaves_its_tokenizer_to_those_who_ask():
    explainer = gaflow.Explainer(copy.deepcopy(bert()[0]), wordpiece())
    expected = describe_model(explainer)["tokenizer"]["sha256"]
    attribution = explainer("a smart dog", "agf")
    with patch.object(provenance, "_hash_tokenizer", wraps=provenance._hash_tokenizer) as hashing:
        del explainer
        assert hashing.call_count == 0
        assert attribution.provenance["tokenizer"] == expected


def test_an_explainer_that_leaves_no_attributions_behind_hashes_nothing():
    explainer = gaflow.Explainer(copy.deepcopy(bert()[0]), wordpiece())
    with patch.object(provenance, "_hash_weights", wraps=provenance._hash_weights) as hashing:
        explainer("a smart dog", "agf")
        del explainer
        assert hashing.call_count == 0


@pytest.mark.slow
def test_nothing_is_hashed_when_the_program_ends():
    program = """
import gaflow
from gaflow.explainer import provenance

provenance._hash_weights = print
explainer = gaflow.Explainer()
attribution = explainer("a smart dog", "attcat")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("", "")


def test_the_copy_of_an_explainer_names_its_own_model():
    explainer = gaflow.Explainer(*bert())
    copied = copy.deepcopy(explainer)
    change_in_place(copied.model)
    attributions = [explainer("a smart dog", "agf"), copied("a smart dog", "agf")]
    expected = [describe_model(explainer)["weights"], describe_model(copied)["weights"]]
    del explainer, copied
    assert [attribution.provenance["weights"] for attribution in attributions] == expected
    assert expected[0] != expected[1]


def test_the_one_liner_knows_a_model_that_only_it_had(folder):
    expected = describe_model(gaflow.Explainer(folder))["weights"]
    first, second = gaflow.explain(["a smart dog", "not cute"], str(folder), "agf", batch_size=1)
    assert first.provenance["weights"] == second.provenance["weights"] == expected


def test_two_tokenizers_of_one_model_are_told_apart():
    model, tokenizer = bert()
    other = copy.deepcopy(tokenizer)
    other.add_tokens(["smart dog"])
    explainers = [gaflow.Explainer(model, tokenizer), gaflow.Explainer(model, other)]
    hashes = [explainer("not cute", "agf").provenance["tokenizer"] for explainer in explainers]
    assert hashes == [describe_model(explainer)["tokenizer"]["sha256"] for explainer in explainers]
    assert hashes[0] != hashes[1]


def test_copies_and_other_processes_have_the_provenance():
    explainer = gaflow.Explainer(*bert())
    attribution = explainer("a smart dog", "agf")
    for copied in (pickle.loads(pickle.dumps(attribution)), copy.deepcopy(attribution)):
        assert copied.provenance == attribution.provenance
        assert copied == attribution


def test_the_provenance_follows_the_scored_layer():
    attribution = gaflow.Explainer(*bert())("a smart dog", "agf")
    moved = attribution.at_layer(1)
    assert attribution.provenance["settings"]["layer"] == 0
    assert moved.provenance["settings"]["layer"] == 1
    assert moved.provenance["method"] == moved.method


def test_provenance_cannot_be_changed_from_outside():
    attribution = gaflow.Explainer(*bert())("a smart dog", "agf")
    attribution.provenance["settings"]["epsilon"] = 7
    assert attribution.provenance["settings"]["epsilon"] == 1e-6


def test_weights_that_cannot_be_read_are_a_note_and_no_error():
    explainer = gaflow.Explainer(*bert())
    attribution = explainer("a smart dog", "agf")
    provenance._HASHES.pop(explainer.model, None)
    with patch.object(provenance, "_hash_weights", side_effect=NotImplementedError("no data of a meta tensor")):
        assert attribution.provenance["weights"] is None
        assert "no data of a meta tensor" in attribution.provenance["note"]


@pytest.mark.parametrize("name", CASES)
def test_files_of_every_task_have_the_provenance(name, tmp_path):
    case = CASES[name]
    explainer = gaflow.Explainer(*case.make(), task=case.task)
    attribution = explainer(case.inputs[0], "attcat")
    assert attribution.provenance["weights"] is not None
    assert attribution.to_dict()["provenance"] == attribution.provenance
    for file in ("a.json", "a.safetensors"):
        attribution.save(tmp_path / file)
        assert gaflow.load(tmp_path / file).provenance == attribution.provenance
