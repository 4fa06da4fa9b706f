"""The paper's comparison from a base encoder to the report, on a tiny model and a dozen texts."""

import csv
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from benchmarks.reproduce import UNFINISHED, Work, all_of, compare, costs, join, main
from gaflow import Explainer
from gaflow.benchmark.report.collect import collect
from gaflow.evaluation.result import Evaluation
from gaflow.methods import METHODS as METHODS_BY_NAME
from tests.support.models import SIZE, wordpiece

pytest.importorskip("pandas")
pytest.importorskip("matplotlib")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

METHODS = ("rawatt", "transatt", "agf")
TEXTS = [f"this {word} film is {end}" for word in ("good", "bad") for end in ("a", "very b", "c d", "it e", "f", "g h")]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A base encoder without a classifier, and texts to train on and to explain."""
    folder = tmp_path_factory.mktemp("reproduced")
    rows = pa.table({"text": TEXTS, "label": [0] * 6 + [1] * 6})
    parquet.write_table(rows, folder / "sst2-test.parquet")
    parquet.write_table(pa.concat_tables([rows, rows]), folder / "sst2-train.parquet")
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(wordpiece()), **SIZE)).save_pretrained(folder / "base")
    wordpiece().save_pretrained(folder / "base")
    return Work(str(folder / "base"), folder, folder / "out", ("pad",), None, "cpu", 3, METHODS)


@pytest.fixture(scope="module")
def first(work):
    """What has become of the data set, the first time."""
    return compare(work, "sst2")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_base_encoder_is_trained_and_all_methods_are_judged_on_all_texts(work, first):
    assert (first.texts, first.explained, first.masked, dict(first.skipped)) == (12, 12, 12, {})
    evaluation = Evaluation.load(first.evaluations["pad"])
    assert evaluation.methods == (*METHODS, "random")
    assert evaluation.classes == ("negative", "positive")
    assert evaluation.manifest["seed"] == 3
    assert not torch.are_deterministic_algorithms_enabled()
    trained = Explainer(work.model("sst2"), device="cpu", dtype=torch.float32)
    assert [evaluation.classes[k] for k in evaluation.base_prediction] == [
        a.prediction for a in trained(TEXTS, "rawatt")
    ]


def test_a_second_run_computes_nothing_anew(work, first):
    before = contents(work.out)
    again = compare(work, "sst2")
    assert (again.texts, again.explained, again.masked) == (12, 0, 0)
    assert contents(work.out) == before


def test_the_costs_of_a_method_are_the_passes_that_it_says(work, first):
    rows = costs(work, "sst2", texts=4)
    assert [row["method"] for row in rows] == list(METHODS)
    assert [(row["forward"], row["backward"]) for row in rows] == [(1, 1), (2, 2), (1, 1)]
    assert all(row["texts"] == 4 and row["seconds"] > 0 and row["data_set"] == "SST-2" for row in rows)
    assert {row["peak_mib"] for row in rows} == {""}  # no GPU, nothing to say


def test_one_command_does_all_of_it(work, first, monkeypatch, capfd):
    monkeypatch.chdir(Path(__file__).parents[2])
    before = contents(work.out / "models")
    args = ["--base", work.base, "--data", str(work.data), "--out", str(work.out), "--device", "cpu", "--seed", "3"]
    main([*args, "--sets", "sst2", "--methods", ",".join(METHODS), "--replacement", "pad", "--costs", "sst2"])
    assert "sst2: 12 texts, skipped {}" in capfd.readouterr().out
    assert contents(work.out / "models") == before  # the process of the data set found the classifier there
    with (work.out / "costs.csv").open(newline="") as file:
        assert [row["method"] for row in csv.DictReader(file)] == list(METHODS)
    with (work.out / "significance.csv").open(newline="") as file:
        tested = {row["other"]: row for row in csv.DictReader(file) if (row["metric"], row["order"]) == ("aopc", "top")}
    table = Evaluation.load(first.evaluations["pad"]).table()
    gaps = table.loc["agf", "aopc_top"] - table["aopc_top"].drop("agf")
    assert {name: float(row["difference"]) for name, row in tested.items()} == pytest.approx(gaps.to_dict(), rel=1e-5)
    with (work.out / "report" / "tables.csv").open(newline="") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert {name: float(row["aopc_top"]) for name, row in rows.items()} == table["aopc_top"].to_dict()


def test_all_methods_but_the_slowest_are_the_default(work):
    methods = Work(work.base, work.data, work.out, ("pad",), None, "cpu", 0).methods
    assert set(METHODS_BY_NAME) - set(methods) == {"attention_flow", "random"}


def test_an_unknown_data_set_is_named(capsys):
    with pytest.raises(SystemExit):
        main(["--base", "b", "--data", "d", "--out", "o", "--sets", "sst2,sst3"])
    assert re.search("sst3; .*sst2, imdb", capsys.readouterr().err)


def test_every_data_set_has_a_process_and_one_that_fails_ends_it(tmp_path):
    script = "import sys, pathlib; pathlib.Path(sys.argv[2]).touch(); sys.exit(sys.argv[2] == 'b')"
    command = [sys.executable, "-c", f"import os; os.chdir({str(tmp_path)!r}); {script}"]
    all_of(["a", "c", "d"], 2, command)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "c", "d"]
    with pytest.raises(SystemExit, match="b failed"):
        all_of(["b", "e"], 1, command)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "c", "d"]


def test_new_methods_join_those_of_an_earlier_call(work, first, tmp_path):
    later = replace(work, out=tmp_path, methods=("attgrads",), earlier=work.out)
    compare(later, "sst2")
    joined = tmp_path / "joined"
    methods = join([work.bench, later.bench], joined, ["sst2"], ("pad",))
    merged, old, new = (Evaluation.load(folder / "sst-2" / "pad") for folder in (joined, work.bench, later.bench))
    assert merged.methods == (*old.methods, "attgrads")
    assert np.array_equal(merged.masked, np.concatenate([old.masked, new.masked[:1]]))
    assert methods == merged.methods
    (data,) = collect(joined)
    assert set(data.example) == {*METHODS, "attgrads"}
    assert merged.manifest["beside"][0]["methods"][0]["name"] == "attgrads"


def test_slow_methods_in_processes_of_their_own_give_the_same_numbers(work, tmp_path, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    names = ("rawatt", "occlusion", "alti", "agf")
    together = replace(work, out=tmp_path / "together", earlier=work.out, methods=names)
    args = ["--base", work.base, "--data", str(work.data), "--device", "cpu", "--seed", "3", "--sets", "sst2"]
    args += ["--methods", ",".join(names), "--replacement", "pad"]
    expected = Evaluation.load(compare(together, "sst2").evaluations["pad"])
    shutil.copytree(work.out / "models", tmp_path / "split" / "models")
    main([*args, "--out", str(tmp_path / "split"), "--split", "--jobs", "2"])
    joined = Evaluation.load(tmp_path / "split" / "bench" / "sst-2" / "pad")
    assert sorted(joined.methods) == sorted(expected.methods)
    order = [joined.methods.index(name) for name in expected.methods]
    assert np.allclose(joined.masked[order], expected.masked, atol=1e-6)
    with (tmp_path / "split" / "flows" / "sst-2.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], row["texts"], row["converged"]) for row in rows] == [("agf", "12", "12")]
    assert (tmp_path / "split" / "report" / "tables.csv").exists()


def test_a_call_whose_seconds_are_over_is_not_done_and_the_next_one_goes_on(work, first, tmp_path, monkeypatch):
    over = replace(work, out=tmp_path / "here", earlier=work.out, until=0.0)
    assert not compare(over, "sst2").finished
    outcome = compare(replace(over, until=None), "sst2")
    assert outcome.finished
    assert outcome.texts == first.texts
    monkeypatch.chdir(Path(__file__).parents[2])
    args = ["--base", work.base, "--data", str(work.data), "--out", str(tmp_path / "new"), "--device", "cpu"]
    with pytest.raises(SystemExit) as caught:
        main([*args, "--sets", "sst2", "--methods", "rawatt", "--seconds", "0.001"])
    assert caught.value.code == UNFINISHED
    assert not (tmp_path / "new" / "report").exists()
