"""The study of flow variants, on the embedded model and a handful of texts."""

import json
import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import gaflow
from benchmarks import study
from gaflow.methods import FlowMethod

TEXTS = ["a good film", "a very bad film", "a good film ", "not cute, but smart"]


def write_texts(path):
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS}), path)
    return path


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["study", *map(str, arguments)])
    study.main()
    return capsys.readouterr().out


def test_a_study_is_resumed_and_its_numbers_are_those_of_the_methods(tmp_path, monkeypatch, capsys):
    explainer = gaflow.Explainer()
    folder = tmp_path / "model"
    explainer.model.save_pretrained(folder)
    explainer.tokenizer.save_pretrained(folder)
    data, out, stored = write_texts(tmp_path / "dev.parquet"), tmp_path / "table.md", tmp_path / "kept"
    variants = ["--only", "random", "attgrads", "agf(heads", "steps=10)"]
    args = [
        "--data",
        data,
        "--model",
        folder,
        "--texts",
        9,
        "--batch-size",
        2,
        "--kept",
        stored,
        "--output",
        out,
        *variants,
    ]
    first = run(monkeypatch, capsys, *args, "--share", "2/2")  # one of two texts parts
    assert "on 1 texts" in first
    printed = run(monkeypatch, capsys, *args)
    assert "on 3 texts" in printed
    assert out.read_text() in printed
    parts = [json.loads(path.read_text()) for path in sorted(stored.rglob("*.json"))]
    assert [set(part) for part in parts] == [set(study.choose(study.variants(), variants[1:]))] * 2
    assert sum("steps=10)" in name for name in parts[0]) == 2
    method = study.variants()["agf(heads='sum', residual=True, layer='all')"]
    assert isinstance(method, FlowMethod)
    texts = study.read_texts(data, "text", 9, 0)
    expected = gaflow.evaluate(explainer, texts, methods=[method], eraser=False).per_text("aopc", "top")[0]
    values = [value for part in parts for value in part[method.name]["aopc_top"]]
    np.testing.assert_allclose(values, expected, atol=1e-6)
    monkeypatch.setattr(gaflow, "evaluate", lambda *_, **__: pytest.fail("what is done was done again"))
    assert run(monkeypatch, capsys, *args).split("| variant")[1] == printed.split("| variant")[1]


def test_texts_are_different_ones_of_a_held_in_file(tmp_path):
    assert sorted(study.read_texts(write_texts(tmp_path / "dev.parquet"), "text", 9, 0)) == sorted(
        set(TEXTS[:2] + TEXTS[3:])
    )
    with pytest.raises(SystemExit, match="looks like a test split"):
        study.read_texts(write_texts(tmp_path / "sst2-test.parquet"), "text", 9, 0)


def test_rows_are_sorted_and_compared_with_integrated_gradients_text_by_text():
    rows = [
        {"name": "ig", "aopc_top": [0.1, 0.3], "lodds_top": [-1.0, -1.0], "srg": [0.0, 0.0]},
        {"name": "best", "aopc_top": [0.3, 0.3], "lodds_top": [-2.0, -1.0], "srg": [0.5, 0.0]},
    ]
    rows = [{**row, "passes": "1 forward", "seconds": [0.5], "failed": [0]} for row in rows]
    best, ig = study.table(rows)[2:]
    assert best == "| `best` | 0.300 | -1.50 | 0.250 | +0.100 ± 0.100 | 1 forward | 0.250 | 0 |"
    assert ig.startswith("| `ig` | 0.200 | -1.00 | 0.000 | +0.000 ± 0.000 |")


def test_parts_of_names_choose_variants_and_whole_names_one_each():
    grid = study.variants()
    assert list(study.choose(grid, ["ig", "cat"])) == ["cat", "ig"]
    assert list(study.choose(grid, [])) == list(grid)
    assert all("groups=4" in name for name in study.choose(grid, ["groups=4"]))
