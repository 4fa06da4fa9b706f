"""Results of the comparison are stored data set by data set, and say what the evaluations say."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from benchmarks import comparison
from benchmarks.reproduce import Work, collect, compare
from gaflow.evaluation import Evaluation
from tests.support.models import SIZE, wordpiece

pd = pytest.importorskip("pandas")
pytest.importorskip("matplotlib")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

METHODS = ("agf", "attnlrp", "relevance_flow")
TEXTS = [f"this {word} film is {end}" for word in ("good", "bad") for end in ("a", "very b", "c d")]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A run with one finished data set and one that was masked with [PAD] only."""
    folder = tmp_path_factory.mktemp("compared")
    for name in ("sst2", "imdb"):
        rows = pa.table({"text": TEXTS, "label": [0] * 3 + [1] * 3})
        parquet.write_table(rows, folder / f"{name}-test.parquet")
        parquet.write_table(pa.concat_tables([rows] * 4), folder / f"{name}-train.parquet")
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(wordpiece()), **SIZE)).save_pretrained(folder / "base")
    wordpiece().save_pretrained(folder / "base")
    work = Work(
        base=str(folder / "base"),
        data=folder,
        out=folder / "out",
        replacements=("pad", "mask", "delete"),
        sample=None,
        device="cpu",
        seed=0,
        methods=METHODS,
    )
    compare(work, "sst2")
    collect(work, "sst2")
    compare(replace(work, replacements=("pad",)), "imdb")
    return work


@pytest.fixture
def stored(work, tmp_path, monkeypatch):
    """What is stored of it, in a folder that has another data set."""
    pd.DataFrame({"data_set": ["Yelp", "SST-2"], "method": ["agf", "old"], "top": [0.25, 1.0]}).to_csv(
        tmp_path / "means.csv", index=False
    )
    monkeypatch.setattr(sys, "argv", ["comparison", str(work.out), "--commit", "abc", "--stored", str(tmp_path)])
    monkeypatch.setattr(comparison, "TESTED", ("relevance_flow",))
    monkeypatch.setattr(comparison, "COMPARED", (("relevance_flow", "attnlrp"),))
    comparison.main()
    return tmp_path


def evaluations(work):
    return [Evaluation.load(work.bench / "sst-2" / name) for name in work.replacements]


def test_only_finished_data_sets_are_stored(work, stored):
    assert comparison.finished_sets(work.out) == ["sst2"]
    assert list(json.loads((stored / "runs.json").read_text())) == ["SST-2"]
    assert "Not run yet: IMDB, Yelp, Amazon, AG News." in (stored / "summary.md").read_text()


def test_rows_of_other_data_sets_stay_and_old_rows_of_the_same_go(stored):
    table = pd.read_csv(stored / "means.csv")
    assert table["data_set"].tolist() == ["SST-2"] * 4 + ["Yelp"]
    assert "old" not in set(table["method"])


def test_means_and_differences_are_those_of_the_tables(work, stored):
    tables = [evaluation.table() for evaluation in evaluations(work)]
    means = pd.read_csv(stored / "means.csv").query("data_set == 'SST-2'").set_index("method")
    for method in (*METHODS, "random"):
        for order in ("top", "bottom"):
            expected = np.mean([table.loc[method, f"aopc_{order}"] for table in tables])
            assert means.loc[method, order] == pytest.approx(expected, rel=1e-5)
    (difference,) = pd.read_csv(stored / "differences.csv").to_dict("records")
    expected = means.loc["relevance_flow", "top"] - means.loc["attnlrp", "top"]
    assert difference["top"] == pytest.approx(expected, rel=1e-4, abs=1e-8)
    per_text = np.mean([evaluation.per_text("aopc") for evaluation in evaluations(work)], 0)
    rows = [METHODS.index("relevance_flow"), METHODS.index("attnlrp")]
    paired = per_text[rows[0]] - per_text[rows[1]]
    assert difference["top_error"] == pytest.approx(np.std(paired, ddof=1) / 6**0.5, rel=1e-4)


def test_every_replacement_is_tested_and_every_flow_counted(work, stored):
    tested = pd.read_csv(stored / "significance.csv")
    assert set(tested["replacement"]) == set(work.replacements)
    assert set(tested["method"]) == {"relevance_flow"}
    flows = pd.read_csv(stored / "flows.csv").set_index("method")
    assert flows["texts"].to_dict() == flows["converged"].to_dict() == {"agf": 6, "relevance_flow": 6}
    run = json.loads((stored / "runs.json").read_text())["SST-2"]
    training = json.loads((work.model("sst2") / "training.json").read_text())
    assert run["commit"] == "abc"
    assert run["training"] == training
    assert [method["name"] for method in run["methods"]] == list(METHODS)


def test_a_run_without_a_finished_data_set_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["comparison", str(Path(tmp_path)), "--commit", "abc"])
    with pytest.raises(SystemExit, match="no data set with all of pad, mask, delete"):
        comparison.main()
