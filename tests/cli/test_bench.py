import json
import re
import sys
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gaflow
from gaflow.benchmark import PAPER_METHODS, bench
from gaflow.cli import main
from gaflow.data import open_data
from gaflow.evaluation.result import Evaluation
from gaflow.jobs import attribute
from tests.support.benchmarks import ROWS, files
from tests.support.commands import gives, interrupted_at, refused
from tests.support.data_files import write

pytestmark = pytest.mark.usefixtures("plain")


@pytest.fixture
def data(tmp_path):
    return write(tmp_path / "rows.csv", ROWS)


def test_the_command_gives_what_python_gives(capfd, folder, data, tmp_path):
    args = ["--label-column", "label", "--methods", "cat,RAWATT", "--replacement", "pad", "--replacement", "delete"]
    output = gives(capfd, "bench", data, "-o", tmp_path / "a", "--model", folder, *args, "--shard-size", "5")
    places = [tmp_path / "a" / "rows" / r for r in ("pad", "delete")]
    first, second = output.splitlines()
    assert first.startswith("rows: 14 texts (14 explained, 28 masked")
    assert first.endswith(f"{places[0]}, {places[1]}")
    assert second.endswith(f"gaflow report {tmp_path / 'a'}")
    bench(
        gaflow.Explainer(folder), {"rows": open_data(data, label_column="label")}, tmp_path / "b",
        methods=["cat", "rawatt"], replacements=["pad", "delete"], shard_size=5,
    )  # fmt: skip
    assert files(tmp_path / "a") == files(tmp_path / "b")
    again = gives(capfd, "bench", data, "-o", tmp_path / "a", "--model", folder, *args, "--shard-size", "5")
    assert "(0 explained, 0 masked now)" in again


def test_inputs_have_names_and_may_be_attributions(capfd, folder, data, tmp_path):
    attribute(gaflow.Explainer(folder), open_data(data), tmp_path / "job", ["cat"])
    documents = json.loads(
        gives(
            capfd, "bench", f"The Rows={data}", tmp_path / "job", "-o", tmp_path / "out", "--model", folder,
            "--methods", "cat", "--json",
        )
    )  # fmt: skip
    assert [(f["name"], f["explained"], f["texts"]) for f in documents] == [("The Rows", 14, 14), ("job", 0, 14)]
    tables = [Evaluation.load(f["evaluations"]["pad"]).table() for f in documents]
    assert tables[0].equals(tables[1])
    assert "two inputs are called 'rows'" in refused(capfd, "bench", data, data, "-o", tmp_path / "twice")


def test_methods_that_are_stored_under_any_name_can_be_chosen(capfd, folder, data, tmp_path):
    attribute(gaflow.Explainer(folder), open_data(data), tmp_path / "job", ["cat", "rawatt"])
    (file,) = (tmp_path / "job").glob("*.parquet")
    table = pq.read_table(file)
    theirs = ["Their Own" if name == "cat" else "other" for name in table["method"].to_pylist()]
    scores_file = tmp_path / "theirs.parquet"
    pq.write_table(table.set_column(table.column_names.index("method"), "method", pa.array(theirs)), scores_file)
    args = ["bench", scores_file, "--model", folder]
    for methods, names in (("their own", ["Their Own"]), ("all", ["Their Own", "other"]), ("other, Their Own", None)):
        (document,) = json.loads(gives(capfd, *args, "-o", tmp_path / methods, "--methods", methods, "--json"))
        judged = Evaluation.load(document["evaluations"]["pad"]).methods
        assert list(judged) == [*(names or ["other", "Their Own"]), "random"]
    assert "no attributions by cat in" in refused(capfd, *args, "-o", tmp_path / "no", "--methods", "cat")
    both = refused(capfd, *args, data, "-o", tmp_path / "no", "--methods", "other")
    assert "no method 'other'" in both


def test_labels_sample_and_seed_are_passed_on(capfd, folder, data, tmp_path):
    args = ["--label-column", "label", "--label-names", "0=positive,1=negative", "--sample", "6", "--seed", "2"]
    gives(
        capfd,
        "bench",
        data,
        "-o",
        tmp_path / "a",
        "--model",
        folder,
        "--methods",
        "rawatt",
        *args,
        "--bounds",
        "--soft",
    )
    evaluation = Evaluation.load(tmp_path / "a" / "rows" / "pad")
    assert len(evaluation.sizes) == 6
    assert evaluation.manifest["sample"]["seed"] == 2
    assert evaluation.bounds is not None
    assert evaluation.soft is not None
    assert evaluation.gold is not None
    assert {evaluation.classes[k] for k in evaluation.gold} == {"positive", "negative"}


def test_skips_and_methods_left_out_are_said_loudly(capfd, folder, tmp_path, monkeypatch):
    from gaflow.errors import UnsupportedModelError
    from gaflow.methods import METHODS

    def unable(self, trace):
        raise UnsupportedModelError("no rule for this operation")

    monkeypatch.setattr(type(METHODS["transatt"]), "__call__", unable)
    source = tmp_path / "a.jsonl"
    source.write_text('{"text": "a dog"}\n{"text": ""}\n{"text": "a film"}\n{"text": "\\u200b"}\n', encoding="utf-8")
    code = main(["bench", str(source), "-o", str(tmp_path / "o"), "--model", str(folder), "--methods", "cat,transatt"])
    out, err = capfd.readouterr()
    assert code == 0
    assert len(err.splitlines()) == 1
    assert re.search("a: .*transatt.*no rule for this operation", err)
    assert "2 texts" in out
    assert re.search("2 skipped .*1 empty text.* 1 methods", out)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--methods", "agg"], "no method 'agg'"),
        (["--methods", "agf,,cat"], "empty name"),
        (["--methods", "agf,agf"], "names agf twice"),
        (["--text-column", "txt"], "'txt'.*'text'"),
        (["--label-column", "lable"], "no column 'lable'"),
        (["--replacement", "blank"], "replacement must be"),
        (["--batch-size", "0"], "--batch-size must be"),
        (["--sample", "-1"], "--sample must be"),
        (["--sample", "few"], "'few'"),
    ],
)
def test_bad_input_is_refused_in_one_line(capfd, data, folder, tmp_path, args, message):
    assert re.search(message, refused(capfd, "bench", data, "-o", tmp_path / "out", "--model", folder, *args))
    assert not list(tmp_path.rglob("*.parquet"))


def test_files_that_cannot_be_used_are_refused_in_one_line(capfd, folder, data, tmp_path):
    args = ["-o", tmp_path / "out", "--model", folder, "--methods", "cat"]
    assert str(tmp_path / "no.csv") in refused(capfd, "bench", tmp_path / "no.csv", *args)
    (tmp_path / "empty.jsonl").write_text("")
    assert "holds no rows" in refused(capfd, "bench", tmp_path / "empty.jsonl", *args)
    (tmp_path / "folder").mkdir()
    assert "holds no .parquet file" in refused(capfd, "bench", tmp_path / "folder", *args)
    gives(capfd, "bench", data, "-o", tmp_path / "good", "--model", folder, "--methods", "cat", "--shard-size", "5")
    shard = tmp_path / "good" / "rows" / "attributions" / "part-00001.parquet"
    shard.write_bytes(b"PAR1")
    again = refused(
        capfd, "bench", data, "-o", tmp_path / "good", "--model", folder, "--methods", "cat", "--shard-size", "5"
    )
    assert "part-00001.parquet' is damaged" in again
    assert "Missing argument" in refused(capfd, "bench", "-o", tmp_path / "out")


def test_the_default_methods_are_checked_before_a_model_is_loaded(capfd, data, tmp_path, monkeypatch):
    def missing(name, *_):
        raise gaflow.MissingExtraError(f"method {name!r} needs captum")

    monkeypatch.setattr(sys.modules["gaflow.cli.app"], "find_method", missing)
    assert f"method {PAPER_METHODS[0]!r} needs captum" in refused(capfd, "bench", data, "-o", tmp_path / "out")


def test_each_phase_has_a_bar_of_its_own_that_counts_its_own_texts(capfd, data, folder, tmp_path, monkeypatch):
    bars = {}

    @contextmanager
    def progress_bar(activity):
        assert not any(bar["open"] for bar in bars.values())  # a terminal draws one at a time
        bars[activity] = {"open": True, "last": None}
        yield lambda done, total: bars[activity].update(last=(done, total))
        bars[activity]["open"] = False

    monkeypatch.setattr("gaflow.cli.bench.progress_bar", progress_bar)
    args = ["--model", folder, "--methods", "cat", "--replacement", "pad", "--replacement", "mask"]
    gives(capfd, "bench", data, "-o", tmp_path / "out", *args)
    explaining, masking = bars
    assert "1 of 2" in explaining
    assert "2 of 2" in masking
    assert [bars[name]["last"] for name in bars] == [(14, 14), (28, 28)]


def test_ctrl_c_ends_and_says_how_to_go_on(capfd, data, folder, tmp_path, monkeypatch):
    args = ["bench", data, "-o", tmp_path / "out", "--model", folder, "--methods", "cat", "--shard-size", "5"]
    monkeypatch.setattr("gaflow.cli.bench.progress_bar", interrupted_at(6, "2 of 2"))
    assert main([str(a) for a in args]) == 130
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("gaflow: stopped")
    monkeypatch.undo()
    output = gives(capfd, *args)  # the part in work was finished, the last one not begun
    assert "(0 explained, 4 masked now)" in output
