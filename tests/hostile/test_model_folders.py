"""Model folders of strangers: nothing in them runs, leads elsewhere or takes hours; they are loaded or refused."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from gaflow import Explainer, GaflowError, GaflowWarning, UnsupportedModelError
from gaflow.models.loading import outline
from tests.support.commands import refused, saved
from tests.support.models import bert
from tests.support.sentence_folders import write_folder

MEAN = ("Pooling", {"pooling_mode": "mean"})
DENSE = {"in_features": 32, "out_features": 3}
WEIGHTS = {"linear.weight": torch.eye(3, 32), "linear.bias": torch.zeros(3)}
PAIR = ("a dog", "a cat")
LIBRARY = "sentence_transformers.models"


def explain(folder: Path) -> float:
    return Explainer(folder, device="cpu")(PAIR, "agf").output


def change(path: Path, changes: dict[str, Any]) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def with_modules(folder: Path, modules: Any) -> Path:
    write_folder(folder, modules=[MEAN])
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def with_dense(folder: Path, weights: dict[str, torch.Tensor] | None = None, **changes: Any) -> Path:
    write_folder(folder, modules=[MEAN, ("Dense", DENSE | changes)])
    if weights is not None:
        save_file(weights, folder / "2_Dense" / "model.safetensors")
    return folder


@pytest.mark.parametrize("path", ["../other", "a/../../other", "/etc", "..\\other", "\\\\host\\share"])
@pytest.mark.parametrize("number", [0, 1])
def test_no_module_lies_outside_of_the_folder(tmp_path, path, number):
    modules = [{"path": "", "type": f"{LIBRARY}.Transformer"}, {"path": "1_Pooling", "type": f"{LIBRARY}.Pooling"}]
    modules[number]["path"] = path
    with pytest.raises(UnsupportedModelError, match="outside"):
        explain(with_modules(tmp_path, modules))


@pytest.mark.parametrize("foreign", ["custom.Transformer", "Transformer", "not_sentence_transformers.Transformer"])
def test_a_module_with_code_of_its_own_is_not_taken_for_one_of_the_library(tmp_path, foreign):
    pooling = {"path": "1_Pooling", "type": f"{LIBRARY}.Pooling"}
    with pytest.raises(UnsupportedModelError, match="code of its own"):
        explain(with_modules(tmp_path, [{"path": "", "type": foreign}, pooling]))


@pytest.mark.parametrize(
    "modules",
    [3, [1], [{"path": 1, "type": "x"}], [{"type": f"{LIBRARY}.Transformer"}], [{"path": ""}], [None], "x"],
    ids=str,
)
def test_a_list_of_modules_that_is_none_is_refused_with_the_folder(tmp_path, modules):
    with pytest.raises(GaflowError) as caught:
        explain(with_modules(tmp_path, modules))
    assert caught.value.argument == "model"


def test_a_list_of_modules_that_is_nested_too_deeply_is_refused(tmp_path):
    folder = with_modules(tmp_path, [])
    (folder / "modules.json").write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(GaflowError):
        explain(folder)


@pytest.mark.parametrize("names", [5, [["mean"]], "x\x1b[31m\u202e", ["mean"] * 100_000, [None]], ids=repr)
def test_a_pooling_is_one_that_gaflow_knows(tmp_path, names):
    write_folder(tmp_path, modules=[("Pooling", {"pooling_mode": names})])
    with pytest.raises(GaflowError) as caught:
        explain(tmp_path)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("length", [-1, 0, 1.5, "9", True])
def test_a_length_is_a_number_of_tokens(tmp_path, length):
    write_folder(tmp_path, modules=[MEAN], encoder_settings={"max_seq_length": length})
    with pytest.raises(UnsupportedModelError, match="max_seq_length"):
        explain(tmp_path)


@pytest.mark.parametrize("settings", [[1], "x", {"prompts": ["a"]}, {"similarity_fn_name": ["cosine"]}], ids=str)
def test_settings_of_another_kind_are_refused(tmp_path, settings):
    write_folder(tmp_path, modules=[MEAN], settings=settings)
    with pytest.raises(GaflowError):
        explain(tmp_path)


def test_a_prompt_cannot_write_on_the_screen(tmp_path):
    settings = {"prompts": {"q": "\x1b[31m\u202e\U000e0041"}, "default_prompt_name": "q"}
    write_folder(tmp_path, modules=[MEAN], settings=settings)
    with pytest.warns(GaflowWarning) as caught:
        explain(tmp_path)
    assert all(str(warning.message).isprintable() for warning in caught)


@pytest.mark.parametrize("size", [-1, 0, "x", None, 1.5, 10**6, 10**12, 2**62])
@pytest.mark.parametrize("side", ["in_features", "out_features"])
def test_a_layer_of_the_size_that_a_config_names_is_made_only_for_weights_of_this_size(tmp_path, side, size):
    with pytest.raises(GaflowError, match="Dense"):
        explain(with_dense(tmp_path, WEIGHTS, **{side: size}))


@pytest.mark.parametrize(
    "weights",
    [
        {"linear.bias": torch.zeros(3)},
        WEIGHTS | {"more": torch.zeros(1)},
        WEIGHTS | {"linear.bias": torch.zeros(4)},
        WEIGHTS | {"linear.weight": torch.full((3, 32), torch.nan)},
    ],
    ids=["fewer", "more", "another shape", "nan"],
)
def test_other_weights_are_refused(tmp_path, weights):
    with pytest.raises(GaflowError):
        explain(with_dense(tmp_path, weights))


def test_pickled_weights_of_a_layer_run_nothing(tmp_path):
    class Touch:
        def __reduce__(self):
            return Path.touch, (tmp_path / "ran",)

    folder = with_dense(tmp_path)
    (folder / "2_Dense" / "pytorch_model.bin").write_bytes(pickle.dumps({"linear.weight": Touch()}, protocol=2))
    for trusted in (False, True):
        with pytest.raises(GaflowError, match="safetensors") as caught:
            Explainer(folder, trust_remote_code=trusted)
        assert caught.value.argument == "model"
    assert not (tmp_path / "ran").exists()
    torch.save(WEIGHTS, folder / "2_Dense" / "pytorch_model.bin")
    pickled = explain(folder)
    save_file(WEIGHTS, folder / "2_Dense" / "model.safetensors")
    assert pickled == explain(folder)


def test_the_code_of_an_encoder_in_a_folder_is_not_run(tmp_path, capfd):
    write_folder(tmp_path, modules=[MEAN], encoder_path="0_Transformer")
    encoder = tmp_path / "0_Transformer"
    (encoder / "foreign.py").write_text(f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n")
    change(encoder / "config.json", {"model_type": "foreign", "auto_map": {"AutoConfig": "foreign.Config"}})
    with pytest.raises(GaflowError) as caught:
        Explainer(tmp_path)
    assert caught.value.argument == "trust_remote_code"
    capfd.readouterr()  # what saving has drawn
    assert "--trust-remote-code" in refused(capfd, "info", tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("layers", [5000, 10**30, -1])
def test_a_model_has_no_more_layers_than_fit_into_a_life(tmp_path, layers):
    folder = saved(bert(), tmp_path)
    change(folder / "config.json", {"num_hidden_layers": layers})
    for load in (Explainer, outline):
        with pytest.raises(UnsupportedModelError, match="num_hidden_layers"):
            load(folder)


@pytest.mark.parametrize("layers", [5000, 10**30])
def test_the_parts_of_a_model_have_no_more_layers_either(tmp_path, layers):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bart", "decoder_layers": layers}))
    with pytest.raises(UnsupportedModelError, match="decoder_layers"):
        outline(tmp_path)
