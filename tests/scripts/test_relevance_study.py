"""The study of relevance flow, on the embedded model and a handful of texts."""

import sys

import pyarrow
import pyarrow.parquet
import pytest

import gaflow
from benchmarks import relevance_study


def test_the_study_prints_a_row_for_each_variant(tmp_path, monkeypatch, capsys):
    explainer = gaflow.Explainer()
    folder = tmp_path / "model"
    explainer.model.save_pretrained(folder)
    explainer.tokenizer.save_pretrained(folder)
    data = tmp_path / "dev.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a good film", "not cute, but very smart"]}), data)
    arguments = ["--data", data, "--model", folder, "--texts", 2, "--only", "relevance_flow", "attnlrp", "no flow"]
    monkeypatch.setattr(sys, "argv", ["relevance_study", *map(str, arguments)])
    relevance_study.main()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| `")]
    assert len(rows) == 8
    scored = {row.split("`")[1]: row.split("|")[2:6] for row in rows}
    assert scored["no flow: input relevance, rounds=1"] == scored["attnlrp"]
    monkeypatch.setattr(sys, "argv", ["relevance_study", "--data", "test.parquet", "--model", "x"])
    with pytest.raises(SystemExit, match="test split"):
        relevance_study.main()
