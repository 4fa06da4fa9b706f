import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from gaflow.attribution.attribution import load
from gaflow.errors import GaflowError
from gaflow.flow.barrier.solve import solve
from tests.support.attributions import make
from tests.support.models import byte_bpe


@pytest.mark.parametrize(
    "att",
    [
        make(),
        make(
            "Café 👩‍💻",
            "naïve \u0301?",
            tokenizer=byte_bpe(),
            target=(2, 0),
            probability=None,
            truncated=True,
        ),
        make(flow=False, diagnostics={"convergence_delta": 1 / 3, "replacement": "pad"}),
        make("is not very cute", scores=np.array([5e-324, -0.0, 1e308, 1 / 3, 0, 0])),
        replace(make(), flow_against=make().flow, diagnostics={"value_against": 0.1}),
    ],
    ids=["flow", "pair", "no flow", "extreme scores", "signed"],
)
@pytest.mark.parametrize("name", ["a.safetensors", "a.json", "a.JSON", "a", "a.gaf"])
def test_what_is_loaded_is_what_was_saved(tmp_path, att, name):
    path = tmp_path / name
    att.save(path)
    assert load(path) == att
    assert load(str(path)) == att
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_under_a_name_of_json_there_is_json(tmp_path):
    att = make()
    att.save(tmp_path / "a.json")
    document = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert document["gaflow"]["tokens"] == list(att.tokens)
    assert document["tensors"]["scores"] == {
        "dtype": "float64",
        "shape": [len(att.tokens)],
        "values": att.scores.tolist(),
    }


@pytest.mark.parametrize("name", ["a.html", "a.svg", "a.PNG", "a.csv", "a.parquet", "a.pkl"])
def test_a_name_that_promises_something_else_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match=re.escape(name)):
        make().save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def damaged(change):
    """The JSON of a saved attribution with something changed."""

    def write(path):
        make().save(path)
        document = json.loads(path.read_text(encoding="utf-8"))
        change(document)
        path.write_text(json.dumps(document), encoding="utf-8")

    return write


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: path.write_bytes(b"\xff\xfe"), "gaflow saved"),
        (lambda path: path.write_text("{", encoding="utf-8"), "gaflow saved"),
        (lambda path: path.write_text("[1]", encoding="utf-8"), "gaflow saved"),
        (lambda path: path.write_text(json.dumps(make().to_dict()), encoding="utf-8"), "gaflow saved"),
        (damaged(lambda document: document["gaflow"].update(format=99)), "has format 99, and"),
        (damaged(lambda document: document.pop("tensors")), "damaged"),
        (damaged(lambda document: document["tensors"]["scores"].update(dtype="object")), "damaged"),
        (damaged(lambda document: document["tensors"]["scores"].update(shape=[3, 99])), "damaged"),
        (damaged(lambda document: document["tensors"]["scores"].update(values="os.system")), "damaged"),
        (damaged(lambda document: document["tensors"]["scores"].update(values=[1.0], shape=[1])), "damaged"),
    ],
)
def test_json_that_gaflow_did_not_write_is_refused(tmp_path, write, message):
    write(tmp_path / "a.json")
    with pytest.raises(GaflowError, match=message):
        load(tmp_path / "a.json")


def test_an_attribution_without_edge_flows_keeps_its_certificate(tmp_path):
    att = replace(make(), flow=None)
    att.save(tmp_path / "a")
    assert load(tmp_path / "a") == att
    assert load(tmp_path / "a").certificate is not None


def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    make().save(path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        make("other").save(path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_a_saved_file_has_the_usual_permissions(tmp_path):
    make().save(tmp_path / "a")
    (tmp_path / "b").write_bytes(b"")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere.*x\.safetensors"):
        make().save(tmp_path / "nowhere" / "x.safetensors")


def test_a_missing_file_is_a_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        load(tmp_path / "none")


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x08\x00\x00\x00\x00\x00\x00\x00{}......", b"\xff" * 64])
def test_garbage_is_refused(tmp_path, content):
    path = tmp_path / "a"
    path.write_bytes(content)
    with pytest.raises(GaflowError, match="gaflow saved"):
        load(path)


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.99])
def test_a_file_cut_short_is_refused(tmp_path, keep):
    path = tmp_path / "a"
    make().save(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(GaflowError, match="not a readable safetensors file"):
        load(path)


def test_safetensors_of_something_else_are_refused(tmp_path):
    save_file({"weight": torch.zeros(2)}, tmp_path / "a")
    with pytest.raises(GaflowError, match="gaflow saved"):
        load(tmp_path / "a")


def rewrite(path, change=None, tensors=None):
    """A file as save makes it, then altered."""
    make("the dog", "is cute").save(path)
    with safe_open(path, framework="pt") as file:
        metadata = json.loads(file.metadata()["gaflow"])
    arrays = load_file(path)
    save_file({**arrays, **(tensors or {})}, path, {"gaflow": json.dumps({**metadata, **(change or {})})})


def test_a_rewritten_file_that_was_not_altered_loads(tmp_path):
    rewrite(tmp_path / "a")
    assert load(tmp_path / "a") == make("the dog", "is cute")


def test_a_file_from_before_there_were_facts_loads(tmp_path):
    rewrite(tmp_path / "a")
    with safe_open(tmp_path / "a", framework="pt") as file:
        metadata = json.loads(file.metadata()["gaflow"])
    metadata.pop("facts")
    save_file(load_file(tmp_path / "a"), tmp_path / "a", {"gaflow": json.dumps(metadata)})
    assert load(tmp_path / "a") == make("the dog", "is cute")


@pytest.mark.parametrize("version", [2, None, "1"])
def test_a_format_of_another_version_is_refused(tmp_path, version):
    rewrite(tmp_path / "a", {"format": version})
    with pytest.raises(GaflowError, match=f"format {version!r}.* 1"):
        load(tmp_path / "a")


@pytest.mark.parametrize("text", ["{", "[1]", "null"])
def test_a_description_that_is_no_json_object_is_refused(tmp_path, text):
    save_file({"scores": torch.zeros(2)}, tmp_path / "a", {"gaflow": text})
    with pytest.raises(GaflowError, match=r"is damaged|has format None"):
        load(tmp_path / "a")


@pytest.mark.parametrize(
    "change",
    [
        {"text": 7},
        {"pair": []},
        {"tokens": ["a"]},
        {"tokens": None},
        {"segments": [0]},
        {"segments": [5] * 9},
        {"offsets": [[0, 999]] * 9},
        {"offsets": [[2, 1]] * 9},
        {"offsets": [[0]] * 9},
        {"target": {}},
        {"target": None},
        {"output": None},
        {"certificate": {"odd": 1}},
        {"certificate": 3},
        {"facts": [1]},
        {"facts": {"convergence_delta": None}},
    ],
    ids=str,
)
def test_a_damaged_description_is_refused(tmp_path, change):
    rewrite(tmp_path / "a", change)
    with pytest.raises(GaflowError, match="is damaged"):
        load(tmp_path / "a")


@pytest.mark.parametrize(
    "tensors",
    [
        {"scores": torch.zeros(2)},
        {"scores": torch.full((9,), float("nan"))},
        {"layers": torch.zeros(3)},
        {"flow.edges": torch.zeros(1, 2, 3, 3)},
    ],
    ids=["few scores", "nan scores", "flat layers", "small flow"],
)
def test_damaged_arrays_are_refused(tmp_path, tensors):
    rewrite(tmp_path / "a", tensors=tensors)
    with pytest.raises(GaflowError, match="is damaged"):
        load(tmp_path / "a")


def with_capacity(layers=2):
    att = make()
    assert att.flow is not None
    return replace(att, flow=replace(att.flow, capacity=2 * att.flow.edges[:, :layers]))


def test_capacities_are_stored_and_files_without_them_are_read(tmp_path):
    att = with_capacity()
    att.save(tmp_path / "new")
    assert load(tmp_path / "new") == att != make()
    make().save(tmp_path / "old")
    flow = load(tmp_path / "old").flow
    assert flow is not None
    assert flow.capacity is None


def test_potentials_are_not_stored_but_the_dual_value_is_still_there(tmp_path):
    att = make("the dog")
    t = len(att.tokens)
    flow = solve(torch.rand(2, t, t, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    att = replace(att, flow=flow)
    att.save(tmp_path / "att.safetensors")
    loaded = load(tmp_path / "att.safetensors").flow
    assert loaded is not None
    assert loaded.potentials is None
    assert torch.equal(loaded.dual_value, flow.dual_value)
    assert torch.equal(loaded[0].dual_value, flow.dual_value)


def test_capacities_of_another_size_are_refused(tmp_path):
    with_capacity(layers=1).save(tmp_path / "a")
    with pytest.raises(GaflowError, match=r"flow\.capacity"):
        load(tmp_path / "a")


STORED = Path(__file__).parents[1] / "data" / "stored_attributions"
EXPECTED = json.loads((STORED / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EXPECTED)
def test_files_of_earlier_versions_are_read(name):
    """The files were written before the fields had their present names; `expected.json` has the old ones."""
    expected = EXPECTED[name]
    att = load(STORED / name)
    target = expected["target"]
    assert att.method == expected["method"]
    assert att.text == expected["text"]
    assert att.text_pair == expected["pair"]
    assert att.label == expected["label"]
    assert att.target == (tuple(target) if isinstance(target, list) else target)
    assert att.output == expected["output"]
    assert list(att.tokens) == expected["tokens"]
    assert att.scores.tolist() == expected["scores"]
    assert [[word.text, word.score] for word in att.words()] == expected["words"]
    assert att.diagnostics == expected["facts"]
    assert list(att.read_positions) == expected["places"]
    assert att.output_kind == expected["measure"]
    assert att.provenance == expected.get("provenance", {})
    assert (None if att.token_matches is None else att.token_matches.tolist()) == expected.get("token_matches")
    assert (None if att.flow is None else att.flow.value.item()) == expected["value"]
    assert (None if att.flow_against is None else att.flow_against.value.item()) == expected["value_against"]
    assert (None if att.certificate is None else att.certificate.converged) == expected["converged"]


@pytest.mark.parametrize(
    ("name", "layer"),
    [("agf.json", 0), ("layer.json", "all"), ("signed_layer.json", 1), ("path_flow.safetensors", 0), ("ig.json", None)],
)
def test_the_layer_of_an_earlier_file_is_taken_from_the_name_of_its_method(name, layer):
    assert load(STORED / name).layer == layer


@pytest.mark.parametrize("name", EXPECTED)
def test_files_keep_their_keys(tmp_path, name):
    att = load(STORED / name)
    att.save(tmp_path / name)
    assert load(tmp_path / name) == att
    if name.endswith(".json"):
        before = json.loads((STORED / name).read_text(encoding="utf-8"))
        after = json.loads((tmp_path / name).read_text(encoding="utf-8"))
        for newer, default in (("layer", att.layer), ("provenance", {})):
            assert after["gaflow"].pop(newer) == before["gaflow"].pop(newer, default)
        assert after == before
    else:
        assert load_file(tmp_path / name).keys() == load_file(STORED / name).keys()


def test_keys_of_later_versions_are_ignored(tmp_path):
    rewrite(tmp_path / "a", {"a_later_field": 7})
    assert load(tmp_path / "a") == make("the dog", "is cute")
