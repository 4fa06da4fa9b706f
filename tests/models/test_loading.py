import json
import os
import re
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import torch
from huggingface_hub import constants
from torch import nn
from transformers import BertModel, pipeline
from transformers.utils import logging

from gaflow.errors import ArgumentError, GaflowError, UnsupportedModelError
from gaflow.models import hub_connection, loading
from gaflow.models.loading import LoadOptions, load_model, outline
from gaflow.tasks import TASKS
from tests.support.models import bert, wordpiece
from tests.support.task_models import CASES, tagger


def load(model=None, tokenizer=None, task=None, device=None, dtype=None):
    return load_model(model, tokenizer, task, LoadOptions(device=device, dtype=dtype))


@pytest.fixture
def folder(tmp_path):
    """A saved classifier in half precision."""
    model, tokenizer = bert()
    model.half().save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_folder_is_loaded_in_float32_in_eval_mode_without_drawing_progress_bars(folder, capfd):
    assert logging.is_progress_bar_enabled()
    for path in (folder, str(folder)):
        loaded = load(path)
        assert loaded.task == "text-classification"
        assert loaded.model.dtype == torch.float32
        assert not any(m.training for m in loaded.model.modules())
        assert loaded.tokenizer("dog")["input_ids"] == wordpiece()("dog")["input_ids"]
    assert logging.is_progress_bar_enabled()
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


@pytest.mark.parametrize("dtype", [torch.float64, "float64", "torch.float64"])
def test_dtype_and_device_are_those_asked_for(folder, dtype):
    loaded = load(folder, dtype=dtype, device="cpu")
    assert loaded.model.dtype == torch.float64
    assert loaded.model.device.type == "cpu"


@pytest.mark.parametrize("dtype", ["floaty", torch.int64, 3])
def test_what_is_no_floating_point_dtype_is_refused(folder, dtype):
    with pytest.raises(ValueError, match="dtype must be"):
        load(folder, dtype=dtype)


def test_a_tokenizer_may_come_from_elsewhere(folder):
    other = wordpiece()
    assert load(folder, other).tokenizer is other
    model, _ = bert()
    assert load(model, folder).tokenizer("dog")["input_ids"] == wordpiece()("dog")["input_ids"]


def test_a_model_object_is_taken_as_it_is():
    model, tokenizer = bert()
    model.half().train()
    loaded = load(model, tokenizer)
    assert loaded.model is model
    assert loaded.tokenizer is tokenizer
    assert model.training
    assert model.dtype == torch.float16


def test_a_pipeline_brings_model_and_tokenizer():
    model, tokenizer = bert()
    pipe = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    loaded = load(pipe)
    assert loaded.model is pipe.model
    assert loaded.tokenizer is pipe.tokenizer


def test_a_model_object_is_neither_moved_nor_converted():
    model, tokenizer = bert()
    with pytest.raises(ValueError, match=r"cpu.*device='meta'.*model\.to\('meta'\)"):
        load(model, tokenizer, device="meta")
    with pytest.raises(ValueError, match=r"torch.float32.*dtype=torch.float16"):
        load(model, tokenizer, dtype="float16")
    assert load(model, tokenizer, device="cpu", dtype=torch.float32).model is model


@pytest.mark.parametrize("part", ["", "classifier"])
def test_a_model_without_values_is_refused(part):
    model, tokenizer = bert()
    model.get_submodule(part).to("meta")
    with pytest.raises(ArgumentError, match="meta") as caught:
        load(model, tokenizer)
    assert caught.value.argument == "model"


def test_a_model_object_needs_its_tokenizer():
    with pytest.raises(ValueError, match=r"Explainer\(model, tokenizer\)"):
        load(bert()[0])


@pytest.mark.parametrize("model", [3, nn.Linear(2, 2), ["bert"], object()])
def test_what_is_no_model_is_a_type_error(model):
    with pytest.raises(TypeError, match=type(model).__name__):
        load(model, wordpiece())


def test_an_unknown_task_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"task.*'text-classification'.*'sentiment'"):
        load(*bert(), task="sentiment")


@pytest.mark.parametrize("task", [name for name in TASKS if name != "text-classification"])
def test_a_model_for_another_task_than_asked_is_refused(task):
    with pytest.raises(UnsupportedModelError, match=f"BertForSequenceClassification.*text-.* {task}"):
        load(*bert(), task=task)


def test_the_task_is_seen_from_the_models_class():
    for case in CASES.values():
        model, tokenizer = case.make()
        assert load(model, tokenizer).task == load(model, tokenizer, task=case.task).task == case.task
    model, tokenizer = bert()
    with pytest.raises(UnsupportedModelError, match="pass task='text-classification'"):
        load(BertModel(model.config), tokenizer)


@pytest.mark.parametrize("name", [name for name in CASES if name != "sentences"])  # see test_sentence_encoder.py
def test_a_model_of_any_task_is_loaded_from_a_folder(name, tmp_path):
    case = CASES[name]
    model, tokenizer = case.make()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = load(tmp_path)
    assert (loaded.task, type(loaded.model)) == (case.task, type(model))
    assert all(torch.equal(a, b) for a, b in zip(loaded.model.parameters(), model.parameters(), strict=True))
    empty = outline(tmp_path)
    assert (empty.task, type(empty.model)) == (case.task, type(model))


def test_a_class_of_ones_own_works_when_the_task_is_said():
    class Mine(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner, self.config = inner, inner.config

    model, tokenizer = bert()
    custom = Mine(model)
    assert load(custom, tokenizer, task="text-classification").model is custom


def test_a_checkpoint_without_a_classifier_is_refused_rather_than_given_a_random_one(tmp_path):
    model, tokenizer = bert()
    model.bert.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    for task in (None, "text-classification"):
        with pytest.raises(UnsupportedModelError, match=r"classifier.bias.*BertModel.*fine-tuned for text-"):
            load(tmp_path, task=task)


@pytest.mark.parametrize("task", ["text-classification", "fill-mask"])
def test_a_checkpoint_for_another_task_is_refused(task, tmp_path):
    model, tokenizer = tagger()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModelError, match=f"made as BertForTokenClassification.*fine-tuned for {task}"):
        load(tmp_path, task=task)


def test_a_folder_that_is_not_there_is_named_without_asking_the_hub(tmp_path):
    for path in (tmp_path / "none", str(tmp_path / "none"), "./none", "~/none/none", "a/b/c", ""):
        with pytest.raises(ArgumentError, match=re.escape(repr(str(path)))) as caught:
            load(path)
        assert caught.value.argument == "model"


def test_a_folder_without_a_model_is_named_in_one_line(tmp_path):
    with pytest.raises(GaflowError, match="cannot load") as caught:
        load(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_damaged_model_is_named_in_one_line(folder):
    (folder / "model.safetensors").write_bytes(b"garbage")
    with pytest.raises(GaflowError, match="cannot load") as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_without_a_model_the_embedded_one_is_loaded_if_there_is_one(tmp_path, monkeypatch):
    assert load().model.dtype == torch.float32
    # Only a package that was built without its assets lacks the model: nothing that a caller could choose.
    monkeypatch.setattr(loading, "_ASSETS", tmp_path / "none")
    with pytest.raises(GaflowError, match="embedded"):
        load()


def test_an_outline_has_everything_but_the_weights(folder):
    full, loaded = load(folder), outline(folder)
    assert all(p.is_meta for p in loaded.model.parameters())
    assert [p.shape for p in loaded.model.parameters()] == [p.shape for p in full.model.parameters()]
    assert (type(loaded.model), loaded.model.dtype, loaded.task) == (type(full.model), full.model.dtype, full.task)
    assert loaded.tokenizer("dog")["input_ids"] == full.tokenizer("dog")["input_ids"]


def test_an_outline_needs_no_file_of_weights(folder):
    (folder / "model.safetensors").unlink()
    assert outline(str(folder)).model.config.num_hidden_layers == 3
    with pytest.raises(GaflowError, match="nowhere"):
        outline(folder / "nowhere")


@pytest.mark.parametrize("device", ["meta", "cuda:99", "nowhere"])
def test_a_device_that_is_not_there_is_refused_before_anything_is_loaded(folder, device):
    with pytest.raises(ValueError, match=f"device '{device}'.*'cpu'"):
        load(folder, device=device)


@pytest.mark.parametrize("name", ["num_attention_heads", "num_hidden_layers", "hidden_size"])
@pytest.mark.parametrize("read", [load, outline])
def test_a_config_with_sizes_below_zero_is_refused(folder, name, read):
    path = folder / "config.json"
    config = json.loads(path.read_text()) | {name: -2}
    path.write_text(json.dumps(config))
    with pytest.raises(GaflowError, match=f"{name}.*-2"):
        read(folder)


WITHOUT_NETWORK = """
import json, sys, time
import gaflow
results = []
for name in ("org/tiny", "org/unknown", "unknown"):
    began = time.monotonic()
    try:
        result = gaflow.Explainer(name, tokenizer=name if name == "org/tiny" else None).model.config.model_type
    except gaflow.GaflowError as error:
        result = str(error)
    results.append([result, time.monotonic() - began])
print(json.dumps(results))
"""


@pytest.mark.slow
def test_without_a_connection_the_cache_is_used_and_an_unknown_name_is_refused_at_once(folder, tmp_path):
    model = tmp_path / "hub" / "models--org--tiny"
    commit = "0123456789abcdef0123456789abcdef01234567"
    shutil.copytree(folder, model / "snapshots" / commit)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(commit)
    nobody_listens = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_NETWORK],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=os.environ | nobody_listens,
    )
    cached, *unknown = json.loads(result.stdout)
    assert cached[0] == "bert"
    for message, seconds in unknown:
        assert re.search("no folder '.*unknown'.*cannot be reached", message)
        assert seconds < 10
    assert "Retrying" not in result.stderr


def test_threads_that_load_offline_leave_the_switch_as_it_was():
    entered = threading.Barrier(2, timeout=0.2)  # both inside at once would break their records of the switch

    def load(_number):
        with hub_connection._offline(), suppress(threading.BrokenBarrierError):
            entered.wait()

    before = constants.HF_HUB_OFFLINE
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(load, range(2)))
    assert entered.broken
    assert before == constants.HF_HUB_OFFLINE
