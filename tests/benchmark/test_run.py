import copy
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import gaflow
from gaflow.benchmark import PAPER_METHODS, bench
from gaflow.benchmark.folder_layout import SETTINGS
from gaflow.benchmark.run import name_of
from gaflow.data import open_data
from gaflow.errors import DataError, JobError, UnsupportedModelError
from gaflow.evaluation.faithfulness import evaluate
from gaflow.evaluation.result import Evaluation
from gaflow.jobs import attribute
from gaflow.methods import METHODS, Scores
from tests.support.benchmarks import EXPLAINER, METHODS_USED, ROWS, files, run
from tests.support.data_files import write
from tests.support.models import bert

pytestmark = pytest.mark.slow


def test_its_numbers_are_those_of_evaluate(tmp_path):
    done = run(tmp_path, replacements=("pad", "delete"))
    assert (done.finished, done.texts, done.explained, done.masked) == (True, 14, 14, 28)
    assert (done.skipped, done.left_out) == ({}, {})
    for replacement in ("pad", "delete"):
        evaluation = Evaluation.load(done.evaluations[replacement])
        assert done.evaluations[replacement] == tmp_path / "rows" / replacement
        texts, labels = [r["text"] for r in ROWS], [r["label"] for r in ROWS]
        expected = evaluate(EXPLAINER, texts, labels, METHODS_USED, replacement)
        assert evaluation.methods == (*METHODS_USED, "random")
        np.testing.assert_allclose(evaluation.masked, expected.masked, atol=1e-6)
        np.testing.assert_array_equal(evaluation.target, expected.target)
        np.testing.assert_array_equal(evaluation.gold, labels)
        assert evaluation.classes == expected.classes
        assert evaluation.manifest["texts"] == 14
        assert evaluation.manifest["data_set"] == "rows"
        assert evaluation.manifest["model"]["weights"]
        assert 0 < evaluation.timings["forward"] <= evaluation.timings["masking"] <= evaluation.timings["total"]
    assert not list(tmp_path.rglob(".parts"))


@pytest.fixture
def unasked(monkeypatch):
    """The model must not be asked."""

    def refuse(*_inputs, **_options):
        raise AssertionError("the model was asked")

    # a hook or a function of the model would make another model of it
    monkeypatch.setattr(torch.nn.functional, "embedding", refuse)


def test_a_finished_benchmark_computes_nothing_again(tmp_path, request):
    run(tmp_path)
    before = files(tmp_path)
    request.getfixturevalue("unasked")
    done = run(tmp_path)
    assert (done.finished, done.explained, done.masked) == (True, 0, 0)
    assert files(tmp_path) == before


def test_a_replacement_can_be_added_later(tmp_path):
    run(tmp_path)
    before = files(tmp_path)
    done = run(tmp_path, replacements=("pad", "mask"))
    assert (done.explained, done.masked) == (0, 14)
    after = files(tmp_path)
    assert {name: after[name] for name in before} == before


def test_stopped_at_any_batch_it_goes_on_and_ends_with_the_same_bytes(tmp_path):
    run(tmp_path / "whole", replacements=("pad", "delete"))
    runs, done = 0, None
    for _ in range(60):
        calls = []

        def stop(calls=calls):
            calls.append(1)
            return len(calls) > 6

        runs += 1
        done = run(tmp_path / "parts", replacements=("pad", "delete"), stop=stop)
        if done.finished:
            break
    assert runs > 3
    assert done is not None
    assert done.finished
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_killed_at_any_moment_it_ends_with_the_same_bytes(folder, tmp_path):
    data = write(tmp_path / "rows.jsonl", ROWS[:6])
    command = [sys.executable, "-m", "tests.support.killed_bench", str(folder), str(data), str(tmp_path)]
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[2], check=True
    )
    attempts = [json.loads(line) for line in done.stdout.splitlines()]
    assert attempts[0] == {"out": "whole", "status": 0}
    deaths = [t for t in attempts if t["status"] == signal.SIGKILL]
    assert len(deaths) == 7
    uninterrupted = files(tmp_path / "whole")
    assert any(name.endswith("evaluation.json") for name in uninterrupted)
    for out in {t["out"] for t in attempts} - {"whole"}:
        assert attempts[[t["out"] for t in attempts].index(out) + 1]["status"] == 0
        assert files(tmp_path / out) == uninterrupted


def test_stored_attributions_are_used_as_they_are(tmp_path):
    attribute(EXPLAINER, open_data(ROWS, label_column="label"), tmp_path / "job", METHODS_USED, shard_size=4)
    done = run(tmp_path / "out", str(tmp_path / "job"), methods=None)
    direct = run(tmp_path / "direct", batch_size=16)
    assert (done.texts, done.explained, done.masked) == (14, 0, 14)
    assert not (tmp_path / "out" / "rows" / "attributions").exists()
    one, other = (Evaluation.load(d.evaluations["pad"]) for d in (done, direct))
    np.testing.assert_array_equal(one.masked, other.masked)
    assert one.table().equals(other.table())
    one_method = run(tmp_path / "some", tmp_path / "job", methods=["rawatt"])
    assert Evaluation.load(one_method.evaluations["pad"]).methods == ("rawatt", "random")
    with pytest.raises(DataError, match="no attributions by agf"):
        run(tmp_path / "none", tmp_path / "job", methods=["agf"])


def test_attributions_of_another_library_need_no_more_than_text_and_scores(tmp_path):
    rows = [
        {"text": text, "method": method, "tokens": text.split(), "scores": [float(len(w)) for w in text.split()]}
        for method in ("theirs", "ours")
        for text in [r["text"] for r in ROWS[:5]]
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "their.parquet")
    done = run(tmp_path / "out", tmp_path / "their.parquet", methods=None, shard_size=2)
    evaluation = Evaluation.load(done.evaluations["pad"])
    assert evaluation.methods == ("theirs", "ours", "random")
    assert evaluation.gold is None
    assert len(evaluation.sizes) == 5
    np.testing.assert_array_equal(evaluation.masked[0], evaluation.masked[1])


def test_attributions_of_another_model_are_refused(tmp_path):
    attribute(EXPLAINER, [r["text"] for r in ROWS], tmp_path / "job", ["rawatt"])
    model, tokenizer = bert()
    other = copy.deepcopy(model)
    next(other.parameters()).data += 1
    with pytest.raises(JobError, match="the weights of the model differ"):
        bench(gaflow.Explainer(other, tokenizer), tmp_path / "job", tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"methods": ["cat", "attcat"]}, "methods: cat, rawatt there, but cat, attcat here"),
        ({"seed": 1, "sample": None}, "sample is"),
        ({"levels": (50,)}, "levels is"),
        ({"shard_size": 5}, "shard_size is 4 there, 5 here"),
        ({"source": ROWS[:5]}, "the number of rows is 14 there, 5 here"),
    ],
)
def test_another_benchmark_in_the_folder_is_refused_and_nothing_is_touched(tmp_path, change, named):
    run(tmp_path)
    before = files(tmp_path)
    with pytest.raises(JobError, match=named):
        run(tmp_path, **change)
    assert files(tmp_path) == before


@dataclass(frozen=True)
class Fails:
    """Cannot explain texts that hold `word`, or no model at all."""

    name: str
    word: str = ""
    error: type[Exception] = UnsupportedModelError

    def __call__(self, trace):
        if any(self.word in e.text for e in trace.require_model().batch.encodings):
            raise self.error(f"not with {self.word!r}; do something else")
        return Scores(trace.mask.double())


def test_a_method_that_the_model_cannot_handle_is_left_out_and_named(tmp_path):
    done = run(tmp_path, methods=["cat", Fails("fails")])
    assert done.left_out == {"fails": "not with ''; do something else"}
    evaluation = Evaluation.load(done.evaluations["pad"])
    assert evaluation.methods == ("cat", "random")
    assert evaluation.manifest["left_out"] == done.left_out
    assert run(tmp_path, methods=["cat", Fails("fails")]).left_out == done.left_out
    with pytest.raises(UnsupportedModelError, match="no method"):
        run(tmp_path / "none", methods=[Fails("fails")])


def test_a_method_that_fails_on_most_texts_is_left_out_and_one_that_fails_on_few_costs_these(tmp_path):
    done = run(tmp_path / "most", methods=["cat", Fails("fails", "although this", ValueError)])
    assert list(done.left_out) == ["fails"]
    assert "12 of 14 texts" in done.left_out["fails"]
    assert done.texts == 14
    done = run(tmp_path / "few", methods=["cat", Fails("fails", " 13", ValueError)])
    assert done.left_out == {}
    assert done.texts == 13
    assert done.skipped == {"fails: not with ' N'": 1}


def test_skips_are_counted_with_their_reasons(tmp_path):
    rows = [*ROWS, {"text": "", "label": 0}, {"text": "\u200b", "label": 1}, {"text": "dog " * 80, "label": 1}]
    rows.append({"text": "cute " * 70, "label": 0})
    done = run(tmp_path, rows)
    assert done.texts == 14
    assert done.skipped["empty text"] == 1
    assert sorted(done.skipped.values()) == [1, 1, 2]
    assert not any(re.search(r"\d", reason) for reason in done.skipped)  # texts of all lengths are counted together
    assert Evaluation.load(done.evaluations["pad"]).manifest["skipped"] == done.skipped
    attribute(EXPLAINER, open_data(rows, label_column="label"), tmp_path / "job", ["cat"])
    assert run(tmp_path / "stored", tmp_path / "job", methods=None).skipped == done.skipped
    cut = run(tmp_path / "cut", rows, truncation=True)
    assert cut.texts == 16
    assert Evaluation.load(cut.evaluations["pad"]).manifest["truncated"] == 2


def test_without_labels_there_are_no_rates_and_with_some_neither(tmp_path):
    for name, rows in (("none", [r["text"] for r in ROWS]), ("some", [*ROWS, {"text": "a dog", "label": -1}])):
        evaluation = Evaluation.load(run(tmp_path / name, rows).evaluations["pad"])
        assert evaluation.gold is None
        assert "accuracy_top" not in evaluation.table()


def test_the_sample_is_the_paper_s(tmp_path):
    done = run(tmp_path, sample=6, seed=3)
    assert done.texts == 6
    manifest = Evaluation.load(done.evaluations["pad"]).manifest
    assert manifest["sample"]["size"] == 6
    assert manifest["sample"]["seed"] == manifest["seed"] == 3
    assert manifest["sample"]["shorter"] + manifest["sample"]["longer"] + manifest["sample"]["equal"] == 6


def test_bounds_and_soft_measures_come_with_it(tmp_path):
    evaluation = Evaluation.load(run(tmp_path, ROWS[:5], bounds=True, soft=True).evaluations["pad"])
    assert evaluation.bounds is not None
    assert {"normalized_aopc", "soft_ns", "soft_nc"} <= set(evaluation.table().columns)
    assert evaluation.bounds.shape == (5, 2)


def test_the_methods_are_the_paper_s_and_the_default_unless_told(tmp_path):
    assert len(PAPER_METHODS) == 14
    newer = {"relevance_flow", "peeled_flow", "attnlrp", "grad_x_input", "occlusion", "value_zeroing", "alti"}
    assert set(METHODS) - set(PAPER_METHODS) == {"gradsam", "attention_flow", "random", *newer}
    (done,) = bench(EXPLAINER, {"rows": open_data(ROWS[:2])}, tmp_path)
    assert Evaluation.load(done.evaluations["pad"]).methods == (*PAPER_METHODS, "peeled_flow", "random")


def test_a_benchmark_that_was_begun_with_the_paper_s_methods_alone_goes_on_with_them(tmp_path, monkeypatch):
    monkeypatch.setattr("gaflow.benchmark.run.PAPER_METHODS", ("cat", "rawatt"))
    before = run(tmp_path, ROWS[:4], methods=("cat", "rawatt"))
    done = run(tmp_path, ROWS[:4], methods=None)
    assert done.finished
    assert done.explained == 0
    assert Evaluation.load(done.evaluations["pad"]).methods == Evaluation.load(before.evaluations["pad"]).methods


def test_several_data_sets_share_a_folder_and_are_told_apart_by_name(tmp_path):
    texts = [r["text"] for r in ROWS[:2]]
    done = bench(EXPLAINER, {"A": open_data(texts), "B/b": open_data(texts)}, tmp_path, methods=["cat"])
    assert [d.folder for d in done] == [tmp_path / "a", tmp_path / "b-b"]
    with pytest.raises(ValueError, match="differ by more"):
        bench(EXPLAINER, {"A": texts, "a": texts}, tmp_path)
    path = str(write(tmp_path / "x.csv", ROWS))
    with pytest.raises(ValueError, match="inputs names x twice"):
        bench(EXPLAINER, [path, path], tmp_path)


def test_progress_goes_from_nothing_to_all(tmp_path):
    reports = []
    run(tmp_path, replacements=("pad", "delete"), progress=lambda done, total: reports.append((done, total)))
    assert reports[0][0] == 0
    assert {total for _, total in reports} == {14 * 3}
    assert reports[-1][0] == pytest.approx(14 * 3)
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)


def test_names_come_from_files_and_folders(tmp_path):
    (tmp_path / "imdb" / "attributions").mkdir(parents=True)
    assert name_of(tmp_path / "imdb" / "attributions") == "imdb"
    assert name_of(str(tmp_path / "test.JSONL.gz")) == "test"
    assert name_of("stanfordnlp/sst2") == "sst2"
    assert name_of(open_data(["a"])) == "a list"


def test_damaged_files_are_named(tmp_path):
    done = run(tmp_path)
    shard = tmp_path / "rows" / "attributions" / "part-00001.parquet"
    intact = shard.read_bytes()
    shard.write_bytes(intact[:-9])
    with pytest.raises(DataError, match=r"part-00001\.parquet' is damaged"):
        run(tmp_path)
    shard.unlink()
    assert run(tmp_path).explained == 4
    assert shard.read_bytes() == intact
    for name in ("values.parquet", "evaluation.json"):
        (done.evaluations["pad"] / name).write_text("{")
        with pytest.raises(DataError, match="damaged"):
            run(tmp_path)
    (tmp_path / "rows" / SETTINGS).write_text("[]")
    with pytest.raises(DataError, match="is damaged"):
        run(tmp_path)


def test_an_unfinished_job_is_refused(tmp_path):
    stopped = attribute(EXPLAINER, [r["text"] for r in ROWS], tmp_path / "job", ["cat"], stop=lambda: True)
    assert not stopped.finished
    with pytest.raises(DataError, match="not finished"):
        run(tmp_path / "out", tmp_path / "job", methods=None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": "agf"}, "methods must be a list"),
        ({"methods": ["nothing"]}, "no method 'nothing'"),
        ({"replacements": ()}, "replacements must be a list"),
        ({"replacements": ("blank",)}, "replacements must be"),
        ({"levels": (0,)}, "levels must be"),
        ({"seed": -1}, "seed must be"),
        ({"sample": 0}, "sample must be"),
        ({"shard_size": 0}, "shard_size must be"),
        ({"source": [""]}, "no text to explain"),
    ],
)
@pytest.mark.usefixtures("unasked")
def test_bad_settings_are_refused_before_anything_is_computed(tmp_path, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        run(tmp_path / "out", **options)
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "letter.txt").write_text("dear")
    with pytest.raises(JobError, match="not empty"):
        run(tmp_path)
