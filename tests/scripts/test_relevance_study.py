"""The study of relevance flow, on the embedded model and a handful of texts."""

import sys

import pyarrow
import pyarrow.parquet
import pytest

import gaflow
from benchmarks import relevance_study

TEXTS = ["a good film", "a very bad film", "a good film ", "not cute, but smart"]


def test_texts_are_different_ones_of_a_held_in_file(tmp_path):
    data = tmp_path / "dev.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS}), data)
    texts = relevance_study.read_texts(data, "text", 9, 0)
    assert sorted(texts) == sorted([TEXTS[0], TEXTS[1], TEXTS[3]])
    with pytest.raises(SystemExit, match="looks like a test split"):
        relevance_study.read_texts(tmp_path / "sst2-test.parquet", "text", 9, 0)


def test_parts_of_names_choose_variants_and_whole_names_one_each():
    grid = relevance_study.variants()
    assert list(relevance_study.choose(grid, ["ig", "lime"])) == ["ig", "lime"]
    assert list(relevance_study.choose(grid, [])) == list(grid)
    assert len(relevance_study.choose(grid, ["share="])) == 2


def test_the_study_prints_a_row_for_each_variant(tmp_path, monkeypatch, capsys):
    explainer = gaflow.Explainer()
    folder = tmp_path / "model"
    explainer.model.save_pretrained(folder)
    explainer.tokenizer.save_pretrained(folder)
    data = tmp_path / "dev.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a good film", "not cute, but very smart"]}), data)
    arguments = ["--data", data, "--model", folder, "--texts", 2, "--only", "relevance_flow", "attnlrp", "no flow"]
    arguments.append("--contrast")
    monkeypatch.setattr(sys, "argv", ["relevance_study", *map(str, arguments)])
    relevance_study.main()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| `")]
    assert len(rows) == 8
    scored = {row.split("`")[1]: row.split("|")[2:6] for row in rows}
    assert scored["no flow: input relevance, rounds=1"] == scored["attnlrp"]
    monkeypatch.setattr(sys, "argv", ["relevance_study", "--data", "test.parquet", "--model", "x"])
    with pytest.raises(SystemExit, match="test split"):
        relevance_study.main()
