import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from jsonschema import Draft202012Validator, ValidationError
from safetensors.torch import save_file

import gaflow
from gaflow.errors import DataError
from gaflow.jobs import attribute, read_attributions
from gaflow.schemas.published import PUBLISHED
from tests.support.attributions import make
from tests.support.hostile import attributions
from tests.support.models import bert
from tests.support.reports import evaluation
from tests.support.task_models import CASES

STORED = Path(__file__).parents[1] / "data" / "stored_attributions"
MANIFESTS = sorted(STORED.parent.glob("stored_runs/*/manifest.json"))
FILES = sorted(path.name for path in STORED.glob("*.*") if path.name != "expected.json")


def validate(value, name):
    Draft202012Validator(gaflow.schema(name)).validate(json.loads(json.dumps(value, allow_nan=False)))


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_schemas_are_json_schemas_that_say_their_version(name):
    published = gaflow.schema(name)
    Draft202012Validator.check_schema(published)
    assert published["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    assert published["version"] == 1
    assert published["$id"].endswith(":1")
    assert json.loads(json.dumps(published)) == published


def test_a_schema_that_is_changed_stays_the_same_for_others():
    gaflow.schema("attribution")["properties"].clear()
    assert "tokens" in gaflow.schema("attribution")["properties"]


def test_other_names_are_refused():
    with pytest.raises(ValueError, match="manifest"):
        gaflow.schema("attributions")


@pytest.mark.parametrize("name", CASES)
def test_results_of_every_task_are_as_the_schema_says(name, tmp_path):
    case = CASES[name]
    explainer = gaflow.Explainer(*case.make(), task=case.task)
    for method in ("agf", "attcat"):
        att = explainer(case.inputs[0], method)
        validate(att.to_dict(flow=True), "attribution")
        att.save(tmp_path / "a.json")
        validate(json.loads((tmp_path / "a.json").read_text(encoding="utf-8")), "attribution file")


@pytest.mark.parametrize("name", FILES)
def test_results_of_earlier_versions_are_as_the_schema_says(name):
    validate(gaflow.load(STORED / name).to_dict(flow=True), "attribution")
    if name.endswith(".json"):
        validate(json.loads((STORED / name).read_text(encoding="utf-8")), "attribution file")


@pytest.mark.parametrize("name", attributions())
def test_odd_results_are_as_the_schema_says(name):
    att = attributions()[name]
    validate(att.to_dict(flow=True), "attribution")
    validate(replace(att, diagnostics={"delta": float("nan")}).to_dict(), "attribution")


def test_a_dict_with_flow_holds_the_numbers_of_the_flow():
    att = gaflow.Explainer(*bert())("a smart dog", "agf")
    assert "flow" not in att.to_dict()
    values = att.to_dict(flow=True)["flow"]
    assert att.flow is not None
    validate(values, "flow")
    assert np.array_equal(values["edges"], att.flow.edges[0].numpy())
    assert np.array_equal(values["target"], att.scores)
    assert values["value"] == att.flow.value.item()
    assert values["converged"] is True


@pytest.mark.parametrize("entry", ["scores", "tokens", "provenance", "format", "words"])
def test_a_result_that_lacks_something_is_not_as_the_schema_says(entry):
    values = make().to_dict()
    del values[entry]
    with pytest.raises(ValidationError):
        validate(values, "attribution")


def test_manifests_are_as_the_schema_says(tmp_path):
    explainer = gaflow.Explainer(*bert())
    attribute(explainer, ["a smart dog", "not cute", "x " * 2000], tmp_path, ["agf", "ig"], shard_size=2)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    validate(manifest, "manifest")
    del manifest["job"]["model"]["weights"]
    with pytest.raises(ValidationError):
        validate(manifest, "manifest")


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.parent.name)
def test_manifests_of_earlier_versions_are_as_the_schema_says(path):
    validate(json.loads(path.read_text(encoding="utf-8")), "manifest")


def newer_json(folder):
    (folder / "a.json").write_text(json.dumps({"gaflow": {"format": 2, "everything": "else"}}))
    gaflow.load(folder / "a.json")


def newer_safetensors(folder):
    save_file({"unheard": torch.zeros(1)}, folder / "a", {"gaflow": json.dumps({"format": 2})})
    gaflow.load(folder / "a")


def newer_manifest(folder):
    (folder / "manifest.json").write_text(json.dumps({"format": 2, "runs": []}))
    list(read_attributions(folder))


def newer_shard(folder):
    attribute(gaflow.Explainer(*bert()), ["a smart dog"], folder / "job", ["attcat"])
    table = pq.read_table(folder / "job" / "part-00000.parquet")
    pq.write_table(table.replace_schema_metadata({"gaflow.schema": "2"}), folder / "a.parquet")
    list(read_attributions(folder / "a.parquet"))


def newer_evaluation(folder):
    evaluation().save(folder)
    (folder / "evaluation.json").write_text(json.dumps({"format": 2}))
    gaflow.Evaluation.load(folder)


@pytest.mark.parametrize("read", [newer_json, newer_safetensors, newer_manifest, newer_shard, newer_evaluation])
def test_files_of_a_newer_version_say_so(tmp_path, read):
    with pytest.raises(DataError, match=r"newer gaflow.* format 2.*upgrade"):
        read(tmp_path)


@pytest.mark.parametrize("version", [0, -1, None, "2", 1.5, [2], "\x1b[31m"])
def test_a_format_that_nobody_wrote_is_no_newer_one(tmp_path, version):
    (tmp_path / "a.json").write_text(json.dumps({"gaflow": {"format": version}, "tensors": {}}))
    with pytest.raises(DataError, match="no version of gaflow") as raised:
        gaflow.load(tmp_path / "a.json")
    assert "\x1b" not in str(raised.value)
