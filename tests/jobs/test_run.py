import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np
import pytest

import gaflow
from gaflow.data import open_data
from gaflow.errors import DataError, JobError, UnknownMethodError
from gaflow.explainer import many
from gaflow.jobs import attribute, read_attributions
from gaflow.methods import Random
from tests.support.data_files import write
from tests.support.models import bert, longformer
from tests.support.runs import ROWS, files

pytestmark = pytest.mark.slow

EXPLAINER = gaflow.Explainer(*bert())


def run(folder, source=ROWS, methods=("attcat", "rawatt"), **options):
    columns = {"label_column": "label"} if source is ROWS else {}
    settings: Any = {"batch_size": 2, "shard_size": 4} | options
    return attribute(
        EXPLAINER, open_data(source, **columns), folder, None if methods is None else list(methods), **settings
    )


def test_every_text_and_method_has_its_row_in_order(tmp_path):
    outcome = run(tmp_path / "job")
    assert (outcome.finished, outcome.total, outcome.texts, outcome.computed) == (True, 22, 22, 22)
    assert (outcome.errors, outcome.skipped, outcome.shards) == (0, {}, 6)
    attributions: list[Any] = list(read_attributions(tmp_path / "job"))
    assert [(s.row, s.method) for s in attributions] == [(k, m) for k in range(22) for m in ("attcat", "rawatt")]
    for stored in attributions:
        assert stored.text == ROWS[stored.row]["text"]
        assert stored.gold == ROWS[stored.row]["label"]
        expected = EXPLAINER(stored.text, stored.method)
        np.testing.assert_allclose(stored.scores, expected.scores, atol=1e-6)
        assert stored.tokens == expected.tokens
        assert (stored.target, stored.label) == (expected.target, expected.label)


def test_formats_give_the_same_files(tmp_path):
    digests = []
    for k, name in enumerate(("a.parquet", "a.csv", "a.jsonl")):
        data = open_data(write(tmp_path / name, ROWS), label_column="label")
        attribute(EXPLAINER, data, tmp_path / str(k), ["rawatt"], shard_size=10)
        digests.append({name: sha for name, sha in files(tmp_path / str(k)).items() if name != "manifest.json"})
    assert len(digests[0]) == 4
    assert digests[0] == digests[1] == digests[2]


def test_a_run_that_is_stopped_goes_on_and_ends_with_the_same_bytes(tmp_path):
    methods = ["attcat", "agf", "random"]
    run(tmp_path / "whole", methods=methods)
    computed = []
    for _ in range(50):
        batches = []

        def stop(batches=batches):
            batches.append(1)
            return len(batches) > 4  # asked before a shard, before each of its batches and within it

        outcome = run(tmp_path / "parts", methods=methods, stop=stop)
        computed.append(outcome.computed)
        if outcome.finished:
            break
        assert outcome.texts == sum(computed) < 22
    assert sum(computed) == 22
    assert len(computed) > 3
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


def unfinished(folder):
    return [path.name for path in folder.glob(".*.unfinished")]


def stopping_at(texts, error=None):
    """A progress and a stop: once so many texts are done, the run is asked to end, or it fails."""
    reports = [0.0]

    def progress(done, total):
        reports.append(done)
        if error is not None and done >= texts:
            raise error

    return {"progress": progress, "stop": lambda: error is None and reports[-1] >= texts}


@pytest.mark.parametrize("error", [None, KeyboardInterrupt(), RuntimeError("the power is gone")])
def test_texts_of_an_unfinished_shard_are_stored_and_not_explained_again(tmp_path, monkeypatch, error):
    methods = ["attcat", "agf", "random"]
    run(tmp_path / "whole", methods=methods, shard_size=22)
    with nullcontext() if error is None else pytest.raises(type(error)):
        run(tmp_path / "job", methods=methods, shard_size=22, **stopping_at(13, error))
    assert unfinished(tmp_path / "job") == [".part-00000.unfinished"]
    assert list(read_attributions(tmp_path / "job")) == []
    sizes = []
    explain_batch = many.explain_batch

    def count(runner, encodings, *args, **options):
        sizes.append(len(encodings))
        return explain_batch(runner, encodings, *args, **options)

    monkeypatch.setattr(many, "explain_batch", count)
    outcome = run(tmp_path / "job", methods=methods, shard_size=22)
    assert outcome.finished
    assert 0 < sum(sizes) == outcome.computed <= 22 - 12
    assert files(tmp_path / "job") == files(tmp_path / "whole")


def test_texts_that_cannot_be_read_or_are_read_in_windows_are_stored_with_the_others(tmp_path):
    texts = ["a dog " * 40, *(row["text"] for row in ROWS[:9]), "smart " * 60]
    for options in ({}, {"windows": True}):
        name = "-".join(["job", *options])
        run(tmp_path / f"{name}-whole", texts, shard_size=20, **options)
        outcome = run(tmp_path / name, texts, shard_size=20, **options, **stopping_at(5))
        assert 5 <= outcome.texts < 11
        assert run(tmp_path / name, texts, shard_size=20, **options).finished
        assert files(tmp_path / name) == files(tmp_path / f"{name}-whole")


@pytest.mark.parametrize("damage", ["bytes", "environment", "job"])
def test_what_is_damaged_or_of_another_run_is_not_taken_up(tmp_path, monkeypatch, damage):
    run(tmp_path / "whole", shard_size=22)
    stopped = run(tmp_path / "job", shard_size=22, **stopping_at(9))
    assert stopped.texts >= 9
    path = tmp_path / "job" / unfinished(tmp_path / "job")[0]
    if damage == "bytes":
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif damage == "environment":
        monkeypatch.setattr("gaflow.jobs.run.describe_environment", lambda *_: {"threads": 77})
    else:
        (tmp_path / "job" / "manifest.json").unlink()
    methods = ("attcat",) if damage == "job" else ("attcat", "rawatt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gaflow.GaflowWarning)
        outcome = run(tmp_path / "job", shard_size=22, methods=methods)
    assert (outcome.finished, outcome.computed) == (True, 22)
    assert unfinished(tmp_path / "job") == []
    if damage == "bytes":
        assert files(tmp_path / "job") == files(tmp_path / "whole")


@pytest.mark.parametrize("forged", ["garbage", "other texts", "a method less", "no shard"])
def test_what_a_stranger_stores_as_unfinished_is_not_taken_up(tmp_path, monkeypatch, forged):
    monkeypatch.setattr("gaflow.jobs.unfinished.UnfinishedShards._digest", lambda *_: bytes(32))  # anybody can sign
    folder = tmp_path / "job"
    run(tmp_path / "whole", shard_size=22)
    if forged == "other texts":
        run(folder, [row["text"] + " indeed" for row in ROWS], shard_size=22, **stopping_at(9))
    elif forged == "a method less":
        run(folder, methods=("attcat",), shard_size=22, **stopping_at(9))
    else:
        folder.mkdir()
        number = 0 if forged == "garbage" else 99999
        (folder / f".part-{number:05}.unfinished").write_bytes(bytes(50))
    (folder / "manifest.json").unlink(missing_ok=True)
    outcome = run(folder, shard_size=22)
    assert (outcome.finished, outcome.computed) == (True, 22)
    expected = files(tmp_path / "whole")
    assert {name: data for name, data in files(folder).items() if name in expected} == expected


def test_what_is_not_taken_up_does_not_keep_a_stopped_run_from_storing_its_texts(tmp_path, monkeypatch):
    monkeypatch.setattr("gaflow.jobs.unfinished.UnfinishedShards._digest", lambda *_: bytes(32))
    folder = tmp_path / "job"
    other = run(folder, [row["text"] + " indeed" for row in ROWS], shard_size=22, **stopping_at(9))
    (folder / "manifest.json").unlink()
    stopped = run(folder, shard_size=22, **stopping_at(other.texts + 1))
    assert stopped.texts == stopped.computed > other.texts
    assert run(folder, shard_size=22).computed == 22 - stopped.texts


def test_a_batch_that_takes_long_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(many, "PATIENCE", 0.0)
    questions = []

    def stop():
        questions.append(1)
        return len(questions) > 3  # before the shard and its first batch, then within it

    outcome = run(tmp_path / "job", methods=["attcat", "agf", "random"], shard_size=22, batch_size=22, stop=stop)
    assert (outcome.finished, outcome.texts) == (False, 0)
    assert unfinished(tmp_path / "job") == []


def test_a_finished_job_computes_nothing_again(tmp_path, monkeypatch):
    run(tmp_path / "job")
    before = files(tmp_path / "job")
    monkeypatch.setattr("gaflow.jobs.engine.explain_many", None)
    outcome = run(tmp_path / "job")
    assert (outcome.computed, outcome.texts, outcome.finished) == (0, 22, True)
    assert files(tmp_path / "job") == before


def test_a_deleted_shard_alone_is_computed_again(tmp_path):
    run(tmp_path / "job")
    before = files(tmp_path / "job")
    (tmp_path / "job" / "part-00002.parquet").unlink()
    assert run(tmp_path / "job").computed == 4
    assert files(tmp_path / "job") == before


def test_a_damaged_shard_is_named_with_what_to_do(tmp_path):
    run(tmp_path / "job")
    path = tmp_path / "job" / "part-00003.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    for use in (lambda: run(tmp_path / "job"), lambda: list(read_attributions(tmp_path / "job"))):
        with pytest.raises(DataError, match=r"part-00003\.parquet'.*damaged"):
            use()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"methods": ["attcat", "random"]}, "methods: attcat, rawatt there, but attcat, random here"),
        ({"methods": ["attcat"]}, "methods: attcat, rawatt there, but attcat here"),
        ({"shard_size": 5}, "shard_size is 4 there, 5 here"),
        ({"truncation": True}, "truncation is False there, True here"),
        ({"target": 1}, "target is None there, 1 here"),
        ({"limit": 3}, "limit is None there, 3 here; the number of rows is 22 there, 3 here"),
        ({"sample": 22}, "sample is None there, 22 here"),
        ({"source": [r["text"] for r in ROWS]}, "label_column is 'label' there, None here"),
    ],
)
def test_the_folder_of_another_job_is_refused_naming_the_difference(tmp_path, change, named):
    run(tmp_path / "job")
    before = files(tmp_path / "job")
    with pytest.raises(JobError, match=named):
        run(tmp_path / "job", **change)
    assert files(tmp_path / "job") == before


def test_a_run_of_a_removed_method_can_be_read_but_not_resumed(tmp_path):
    @dataclass(frozen=True)
    class Earlier(Random):
        base_name = "path_flow"

    run(tmp_path / "job", methods=["attcat", Earlier()])
    before = files(tmp_path / "job")
    with pytest.raises(UnknownMethodError, match=r"path_flow was removed.*peeled_flow"):
        run(tmp_path / "job", methods=["attcat", "path_flow"])
    with pytest.raises(JobError, match="methods: attcat, path_flow there, but attcat, peeled_flow here"):
        run(tmp_path / "job", methods=["attcat", "peeled_flow"])
    assert files(tmp_path / "job") == before
    assert [stored.method for stored in read_attributions(tmp_path / "job", methods=["path_flow"])] == [
        "path_flow"
    ] * 22


def test_another_model_is_refused_by_its_weights(tmp_path):
    run(tmp_path / "job")
    model, tokenizer = bert()
    import copy

    import torch

    other = copy.deepcopy(model)
    with torch.no_grad():
        next(other.parameters())[0, 0] += 1
    with pytest.raises(JobError, match="the weights of the model differ"):
        attribute(gaflow.Explainer(other, tokenizer), open_data(ROWS, label_column="label"), tmp_path / "job",
                  ["attcat", "rawatt"], batch_size=2, shard_size=4)  # fmt: skip


def test_errors_are_rows_and_skips_are_counted(tmp_path):
    source = ["a dog", "dog " * 80, None, "", "a film"]
    outcome = run(tmp_path / "job", source)
    assert (outcome.total, outcome.errors, outcome.skipped) == (3, 2, {"empty text": 1, "null text": 1})
    attributions: list[Any] = list(read_attributions(tmp_path / "job"))
    assert [s.row for s in attributions] == [0, 0, 1, 1, 4, 4]
    assert [s.error is None for s in attributions] == [True, True, False, False, True, True]
    assert "truncation" in str(attributions[2].error)
    manifest = json.loads((tmp_path / "job" / "manifest.json").read_text())
    assert (manifest["finished"], manifest["texts"], manifest["errors"]) == (True, 3, 2)
    assert manifest["job"]["skipped"] == {"empty text": 1, "null text": 1}


def manifest_of(folder):
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))


def methods_in(folder):
    return [method["name"] for method in manifest_of(folder)["job"]["methods"]]


def test_without_a_method_texts_are_explained_by_the_explainer_s_default_and_the_manifest_names_it(tmp_path):
    done = run(tmp_path / "default", methods=None)
    assert done.methods == ("peeled_flow",)
    assert methods_in(tmp_path / "default") == ["peeled_flow"]
    named = run(tmp_path / "named", methods=["peeled_flow"])
    assert manifest_of(named.folder)["shards"] == manifest_of(done.folder)["shards"]


def test_a_folder_that_was_begun_with_agf_goes_on_with_it_if_no_method_is_named(tmp_path):
    run(tmp_path, methods=["agf"], stop=lambda: True)
    done = run(tmp_path, methods=None)
    assert done.finished
    assert done.methods == ("agf",)
    assert {stored.method for stored in read_attributions(tmp_path)} == {"agf"}


def test_agf_explains_models_that_the_default_cannot_follow_and_rows_say_why(tmp_path):
    explainer = gaflow.Explainer(*longformer())
    done = attribute(explainer, open_data(["a dog", "smart"]), tmp_path)
    assert done.methods == ("agf",)
    assert methods_in(tmp_path) == ["agf"]
    for stored in read_attributions(tmp_path):
        assert "residual stream" in str(stored.diagnostics["default"])
    again = attribute(explainer, open_data(["a dog", "smart"]), tmp_path, ["agf"])
    assert again.finished
    assert again.computed == 0


def test_a_sample_is_what_is_explained(tmp_path):
    outcome = run(tmp_path / "job", sample=8, seed=3)
    assert outcome.total == 8
    manifest = json.loads((tmp_path / "job" / "manifest.json").read_text())
    sample = manifest["job"]["sample"]
    assert sample["shorter"] + sample["longer"] + sample["equal"] == 8
    rows: set[Any] = {s.row for s in read_attributions(tmp_path / "job")}
    assert len(rows) == 8
    assert sum(len(ROWS[k]["text"]) < sample["mode"] for k in rows) == sample["shorter"]


def test_progress_counts_texts_and_goes_on_from_what_is_there(tmp_path):
    reports = []
    run(tmp_path / "job", progress=lambda done, total: reports.append((done, total)), stop=lambda: len(reports) > 5)
    assert reports[0] == (0, 22)
    assert reports == sorted(reports)
    stored = max(done for done, _ in reports)  # the last batch is stored, though its shard is not finished
    assert stored % 4
    reports.clear()
    run(tmp_path / "job", progress=lambda done, total: reports.append((done, total)))
    assert reports[0] == (stored, 22)
    assert reports[-1] == (22, 22)


def test_times_are_apart(tmp_path):
    run(tmp_path / "job")
    lines = [json.loads(line) for line in (tmp_path / "job" / "timings.jsonl").read_text().splitlines()]
    assert [line["shard"] for line in lines] == list(range(6))
    assert sum(line["texts"] for line in lines) == 22
    for line in lines:
        assert min(line[step] for step in ("tokenise", "forward", "backward", "write")) > 0
        assert line["forward"] + line["backward"] <= line["trace"] + 1e-4
        steps = line["tokenise"] + line["trace"] + sum(line["methods"].values()) + line["write"]
        assert steps <= line["seconds"] + 2e-3  # but for rounding


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be"),
        ({"shard_size": 2.5}, "shard_size must be"),
        ({"sample": 0}, "sample must be"),
        ({"limit": -1}, "limit must be"),
        ({"seed": -1}, "seed must be"),
        ({"methods": []}, "at least one"),
        ({"methods": ["agf", "agf"]}, "each method once"),
        ({"methods": ["nothing"]}, "no method"),
        ({"target": "nobody"}, "no label 'nobody'"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_written(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "job", **options)
    assert not (tmp_path / "job").exists()


class Counted(str):
    """A text that counts how many of its kind are held."""

    alive = 0
    most = 0

    def __init__(self, text):
        finalize(self, Counted.gone)
        Counted.alive += 1
        Counted.most = max(Counted.most, Counted.alive)

    @staticmethod
    def gone():
        Counted.alive -= 1


def test_no_more_texts_are_held_than_a_shard_has_however_many_rows_there_are(tmp_path):
    explainer = gaflow.Explainer(*bert())

    def texts():
        return (Counted(f"a dog {k}") for k in range(2000))

    outcome = attribute(explainer, texts, tmp_path / "job", ["rawatt"], shard_size=50, batch_size=25, sample=1999)
    assert outcome.texts == 1999
    assert 50 <= Counted.most <= 2 * 50 + 5  # the shard just written, and the next one


class Runs:
    """Runs of one job in processes of their own."""

    def __init__(self, model, data):
        command = [sys.executable, "-m", "tests.support.killed", str(model), str(data)]
        environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=Path(__file__).parents[2],
        )
        assert self.hear() == {"ready": True}

    def hear(self):
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, "the process has ended"
        return json.loads(line)

    def start(self, out, die=None, kill=None, tear=None):
        """Texts told to be done and computed, and how it ended; killed after `kill` reports and some microseconds."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"out": str(out), "die": die, "tear": tear}) + "\n")
        self.process.stdin.flush()
        message, done, computed = self.hear(), [], None
        pid = message["pid"]
        while "status" not in message:
            message = self.hear()
            done += [message["done"]] if "done" in message else []
            computed = message.get("computed", computed)
            if kill is not None and len(done) == kill[0] and computed is None and "status" not in message:
                time.sleep(kill[1])
                os.kill(pid, signal.SIGKILL)
                kill = None
        return done, computed, message["status"]


@pytest.fixture(scope="module")
def runs(folder, tmp_path_factory):
    data = write(tmp_path_factory.mktemp("data") / "rows.jsonl", ROWS)
    processes = Runs(folder, data)
    yield processes
    processes.process.kill()
    processes.process.communicate()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_killed_at_any_moment_it_loses_nothing_and_repeats_one_shard_at_most(runs, tmp_path):
    done, computed, status = runs.start(tmp_path / "whole")
    assert (done[-1], computed, status) == (22, 22, 0)
    expected = files(tmp_path / "whole")

    generator = random.Random(0)
    stored = kills = 0
    for _ in range(40):
        done, computed, status = runs.start(tmp_path / "job", kill=(generator.randint(1, 12), generator.random() / 100))
        assert not done or done[0] >= stored, "a finished shard was computed again"
        if computed is not None:
            break
        kills += status == signal.SIGKILL
        # once the next shard has been begun, those before it are on the disk
        stored = max([stored, *((n - 1) // 4 * 4 for n in done)])
    assert kills >= 3
    assert files(tmp_path / "job") == expected
    timed = (tmp_path / "job" / "timings.jsonl").read_text().splitlines()
    assert len(timed) <= 6, "a shard was written twice"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_killed_while_it_writes_it_loses_nothing(runs, tmp_path):
    runs.start(tmp_path / "whole")
    expected = files(tmp_path / "whole")
    for step in (1, 2, 3, 4, 5, 6, 28):  # before or after a file is synced or renamed: manifest, shard, manifest ...
        out = tmp_path / str(step)
        _, computed, status = runs.start(out, die=step)
        assert (computed, status) == (None, signal.SIGKILL)
        _, computed, status = runs.start(out)
        assert status == 0
        assert files(out) == expected

    out = tmp_path / "torn"  # one folder, again and again: in the first manifest, a shard, a shard, a manifest ...
    for number, complete in ((1, 0), (2, 0), (3, 4), (2, 4), (4, 8), (1, 8)):
        assert runs.start(out, tear=number)[1:] == (None, signal.SIGKILL)
        left = [path.name for path in out.iterdir() if path.name.endswith(".tmp")]
        assert len(left) == 1, "what was torn is apart, and what the run before left is gone"
        manifest = out / "manifest.json"
        listed = json.loads(manifest.read_text())["texts"] if manifest.exists() else 0
        assert listed == complete
    _, computed, status = runs.start(out)
    assert (computed, status) == (14, 0)
    assert files(out) == expected
