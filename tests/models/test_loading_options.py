"""How a model that is loaded by name is loaded: revision, dtype, placement and quantisation."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from accelerate import cpu_offload
from optimum.quanto import QTensor

import gaflow
from gaflow.errors import ArgumentError
from gaflow.models.loading import LoadOptions, load_model, outline
from tests.support.commands import gives, refused, saved
from tests.support.models import SENTENCE, bert

QUANTO = {"quant_method": "quanto", "weights": "int8"}
ON_DISK = {"bert.embeddings": "cpu", "bert.encoder": "disk", "bert.pooler": "cpu", "classifier": "cpu"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(saved(bert(), tmp_path_factory.mktemp("model")))


def scores(explainer, method="agf"):
    return explainer(SENTENCE, method).scores


def test_auto_takes_the_dtype_that_the_weights_are_stored_in(tmp_path):
    model, tokenizer = bert()
    folder = saved((model.to(torch.bfloat16), tokenizer), tmp_path)
    assert gaflow.Explainer(folder).model.dtype == torch.float32
    assert gaflow.Explainer(folder, dtype="auto").model.dtype == torch.bfloat16


def test_a_model_on_disk_is_explained_as_one_in_memory(folder):
    explainer = gaflow.Explainer(folder, device_map=ON_DISK)
    assert any(weight.is_meta for weight in explainer.model.parameters())
    plain = gaflow.Explainer(folder, device="cpu")
    for method in ("agf", "peeled_flow", "attcat"):
        assert scores(explainer, method).tolist() == scores(plain, method).tolist()
    assert explainer(SENTENCE).provenance["weights"] == plain(SENTENCE).provenance["weights"]
    assert any(weight.is_meta for weight in explainer.model.parameters())


def test_a_model_whose_weights_all_wait_in_main_memory_is_explained_where_its_hooks_run_it():
    plain = gaflow.Explainer(*bert())
    model, tokenizer = bert()
    offloaded = gaflow.Explainer(cpu_offload(model), tokenizer, device="cpu")
    assert all(weight.is_meta for weight in offloaded.model.parameters())
    assert scores(offloaded).tolist() == scores(plain).tolist()
    provenance = offloaded(SENTENCE).provenance
    assert provenance["device"] == "cpu"
    assert provenance["weights"] == plain(SENTENCE, "agf").provenance["weights"]


def test_a_quantised_model_is_explained_as_its_dequantised_weights_are(folder):
    quantised = gaflow.Explainer(folder, device="cpu", quantization_config=QUANTO)
    weights = dict(quantised.model.named_parameters())
    assert any(isinstance(weight, QTensor) for weight in weights.values())
    plain = gaflow.Explainer(folder, device="cpu")
    before = scores(plain)
    with torch.no_grad():
        for name, weight in plain.model.named_parameters():
            other = weights[name]
            weight.copy_(other.dequantize() if isinstance(other, QTensor) else other)
    assert scores(quantised).tolist() == pytest.approx(scores(plain).tolist(), rel=1e-4, abs=1e-7)
    assert scores(quantised).tolist() != pytest.approx(before.tolist(), rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("options", [{"revision": "main"}, {"device_map": "cpu"}, {"quantization_config": QUANTO}])
def test_settings_of_the_loading_are_refused_for_a_model_object(options):
    with pytest.raises(ArgumentError) as caught:
        gaflow.Explainer(*bert(), **options)
    assert caught.value.argument == next(iter(options))


@pytest.mark.parametrize("read", [lambda name: load_model(name, None, None, LoadOptions(revision="old")), None])
def test_a_folder_has_no_revisions(folder, read):
    with pytest.raises(ArgumentError) as caught:
        read(folder) if read else outline(folder, revision="old")
    assert caught.value.argument == "revision"


def test_a_device_and_a_device_map_exclude_each_other(folder):
    with pytest.raises(ArgumentError) as caught:
        gaflow.Explainer(folder, device="cpu", device_map="auto")
    assert caught.value.argument == "device"


def test_a_wrong_quantisation_is_refused_by_name(folder):
    with pytest.raises(gaflow.GaflowError) as caught:
        gaflow.Explainer(folder, quantization_config="8bit")
    assert caught.value.argument == "quantization_config"


def test_a_wrong_device_map_is_named_in_one_line(folder):
    with pytest.raises(gaflow.GaflowError) as caught:
        gaflow.Explainer(folder, device_map="nowhere")
    assert "nowhere" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("plain")
def test_the_command_line_takes_the_same_settings(capfd, folder):
    command = ("explain", SENTENCE, "--model", folder, "--method", "agf", "--json")
    settings = ("--dtype", "bfloat16", "--device-map", "cpu")
    document = json.loads(gives(capfd, *command, *settings))
    half = gaflow.Explainer(folder, dtype="bfloat16", device="cpu")(SENTENCE, "agf")
    assert document["provenance"]["dtype"] == "bfloat16"
    assert document["scores"] == half.to_dict()["scores"]
    quantised = gaflow.explain(SENTENCE, folder, "agf", quantization_config=QUANTO, device="cpu")
    document = json.loads(gives(capfd, *command, "--quantization-config", json.dumps(QUANTO), "--device", "cpu"))
    assert document["scores"] == quantised.to_dict()["scores"]
    assert "--revision" in refused(capfd, *command, "--revision", "old")
    for wrong in ("[1]", "{", "4bit"):
        assert wrong in refused(capfd, *command, "--quantization-config", wrong)


@pytest.mark.slow
def test_a_revision_of_the_hub_is_the_one_that_is_loaded(tmp_path):
    repository = tmp_path / "hub" / "models--org--tiny"
    for revision, seed in (("main", 1), ("v1", 2)):
        commit = str(seed) * 40
        model, tokenizer = bert()
        torch.nn.init.normal_(model.classifier.weight, generator=torch.Generator().manual_seed(seed))
        shutil.copytree(saved((model, tokenizer), tmp_path / revision), repository / "snapshots" / commit)
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / revision).write_text(commit)
    for options, revision, seed in (((), "main", 1), (("--revision", "v1"), "v1", 2)):
        command = (sys.executable, "-m", "gaflow", "explain", SENTENCE, "--model", "org/tiny", "--json", *options)
        environment = os.environ | {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        expected = gaflow.Explainer(tmp_path / revision / "tiny", device="cpu")(SENTENCE)
        assert document["scores"] == pytest.approx(expected.to_dict()["scores"])
        assert document["provenance"]["revision"] == str(seed) * 40
