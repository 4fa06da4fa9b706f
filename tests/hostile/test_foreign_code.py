"""Code that comes with a model runs only where you trust it, whatever stdin says."""

from typing import Any

import pytest
import torch
from transformers import Gemma3Config

from gaflow import Explainer, GaflowError, explain
from gaflow.models.loading import outline
from tests.support.commands import from_stdin, gives, refused, saved
from tests.support.foreign import tokenizer_with_code, with_code, with_config, with_pickle
from tests.support.models import bert
from tests.support.servers import client_of, post

COMMANDS = (["explain", "a dog", "--model"], ["compare", "a dog", "--methods", "agf", "--model"], ["info"])


@pytest.fixture(autouse=True)
def modules(tmp_path, monkeypatch):
    """Copies of foreign code go to a folder of this test."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))


def test_foreign_code_is_refused_and_does_not_run_even_if_stdin_agrees(tmp_path, monkeypatch):
    folder = with_code(tmp_path, tmp_path / "ran")
    for load in (Explainer, outline, lambda model: explain("a dog", model)):
        from_stdin(monkeypatch, b"y\ny\ny\n")
        with pytest.raises(GaflowError) as caught:
            load(folder)
        assert caught.value.argument == "trust_remote_code"
        assert str(folder) in str(caught.value)
    assert not (tmp_path / "ran").exists()


def test_the_tokenizer_of_a_model_object_is_loaded_with_the_same_care(tmp_path, monkeypatch):
    folder = tokenizer_with_code(tmp_path, tmp_path / "ran")
    from_stdin(monkeypatch, b"y\n")
    with pytest.raises(GaflowError) as caught:
        Explainer(bert()[0], folder)
    assert caught.value.argument == "trust_remote_code"
    assert not (tmp_path / "ran").exists()
    assert Explainer(bert()[0], folder, trust_remote_code=True)("a dog").tokens


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_commands_refuse_foreign_code_even_if_stdin_agrees(command, tmp_path, monkeypatch, capfd):
    folder = with_code(tmp_path, tmp_path / "ran")
    from_stdin(monkeypatch, b"y\ny\n")
    capfd.readouterr()
    assert "--trust-remote-code" in refused(capfd, *command, folder)
    assert not (tmp_path / "ran").exists()


def test_a_data_set_run_refuses_foreign_code_even_if_stdin_agrees(tmp_path, monkeypatch, capfd):
    folder = with_code(tmp_path, tmp_path / "ran")
    (tmp_path / "texts.csv").write_text("text\na dog\n")
    for command in ("attribute", "bench"):
        from_stdin(monkeypatch, b"y\ny\n")
        capfd.readouterr()
        args = (command, tmp_path / "texts.csv", "-o", tmp_path / "out", "--model", folder)
        assert "--trust-remote-code" in refused(capfd, *args)
    assert not (tmp_path / "ran").exists()


def test_a_server_refuses_foreign_code_even_if_stdin_agrees(tmp_path, monkeypatch):
    folder = with_code(tmp_path, tmp_path / "ran")
    from_stdin(monkeypatch, b"y\ny\n")
    with client_of(models=[str(folder)]) as client:
        for path in ("explain", "predictions"):
            assert post(client, path, {"text": "a dog"}, 422)["argument"] == "trust_remote_code"
    assert not (tmp_path / "ran").exists()
    with client_of(models=[str(folder)], trust_remote_code=True) as client:
        post(client, "predictions", {"text": "a dog"})
    assert (tmp_path / "ran").exists()


def test_foreign_code_runs_where_it_is_trusted(tmp_path, capfd):
    folder = with_code(tmp_path, tmp_path / "ran")
    trusting = Explainer(folder, device="cpu", trust_remote_code=True)
    assert (tmp_path / "ran").exists()
    plain = Explainer(*bert())("a dog", "agf")
    assert trusting("a dog", "agf").scores == pytest.approx(plain.scores, abs=1e-6)
    assert explain("a dog", folder, "agf", trust_remote_code=True).tokens == plain.tokens
    for command in COMMANDS:
        assert gives(capfd, *command, folder, "--trust-remote-code")


def test_trust_is_yes_or_no(tmp_path):
    values: list[Any] = ["yes", 1, None]
    for value in values:
        with pytest.raises(TypeError, match="trust_remote_code"):
            Explainer(trust_remote_code=value)


def test_pickled_weights_are_read_without_running_anything(tmp_path):
    folder = with_pickle(tmp_path, tmp_path / "ran")
    for trusted in (False, True):
        with pytest.raises(GaflowError, match="safetensors") as caught:
            Explainer(folder, trust_remote_code=trusted)
        assert caught.value.argument == "model"
        assert "weights_only" not in str(caught.value)  # torch's advice is to switch it off
    assert not (tmp_path / "ran").exists()


def test_pickled_tensors_are_weights_like_others(tmp_path):
    folder = with_pickle(tmp_path, tmp_path / "ran")
    model, tokenizer = bert()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    plain = Explainer(model, tokenizer)("a dog", "agf")
    assert Explainer(folder, device="cpu")("a dog", "agf").scores == pytest.approx(plain.scores, abs=1e-6)


@pytest.mark.parametrize("name", ["attn_implementation", "_attn_implementation"])
@pytest.mark.parametrize(
    "kernel", ["kernels-community/flash-attn", "org/name@main:f", "flash_attention_2", {"": "a/b"}]
)
def test_kernels_that_a_config_names_are_not_fetched_from_the_hub(tmp_path, name, kernel):
    folder = with_config(saved(bert(), tmp_path), {name: kernel})
    plain = Explainer(*bert())("a dog", "agf")
    assert Explainer(folder, device="cpu")("a dog", "agf").scores == pytest.approx(plain.scores, abs=1e-6)
    assert outline(folder).model.config._attn_implementation in ("eager", "sdpa")


def test_kernels_that_a_part_of_a_config_names_are_not_fetched_either(tmp_path):
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1, "num_hidden_layers": 1}
    text_config = {**sizes, "num_key_value_heads": 1, "head_dim": 8, "vocab_size": 99}
    vision_config = {**sizes, "image_size": 32, "patch_size": 16}
    config = Gemma3Config(text_config=text_config, vision_config=vision_config).to_dict()  # type: ignore[arg-type]
    config["text_config"]["attn_implementation"] = "org/name"
    config["architectures"] = ["Gemma3ForSequenceClassification"]
    folder = with_config(saved(bert(), tmp_path), config)
    model = outline(folder).model
    assert model.config.text_config._attn_implementation in ("eager", "sdpa")
