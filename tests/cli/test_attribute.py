import json
import re
import signal

import pytest

import gaflow
from gaflow.benchmark.stored_scores import open_stored_scores
from gaflow.cli import main
from gaflow.data import open_data
from gaflow.errors import DataError
from gaflow.jobs import attribute, read_attributions
from tests.support.commands import gives, interrupted_at, refused
from tests.support.data_files import write
from tests.support.manifests import edit_manifest
from tests.support.runs import ROWS, files

pytestmark = pytest.mark.usefixtures("plain")


@pytest.fixture
def data(tmp_path):
    return write(tmp_path / "rows.csv", ROWS)


def test_the_command_gives_what_python_gives(capfd, folder, data, tmp_path):
    args = ["--label-column", "label", "--method", "rawatt,ATTCAT", "--method", "random", "--shard-size", "8"]
    output = gives(capfd, "attribute", data, "-o", tmp_path / "a", "--model", folder, *args)
    assert re.findall(r"\b\d+\b", output.split(":")[0]) == ["22", "3", "22"]
    assert output.endswith(f"{tmp_path / 'a'}\n")
    opened = open_data(data, label_column="label")
    attribute(gaflow.Explainer(folder), opened, tmp_path / "b", ["rawatt", "attcat", "random"], shard_size=8)
    assert files(tmp_path / "a") == files(tmp_path / "b")
    again = gives(capfd, "attribute", data, "-o", tmp_path / "a", "--model", folder, *args)
    assert "(0 new)" in again


@pytest.mark.slow
def test_workers_share_the_work(capfd, folder, data, tmp_path):
    args = ["--model", folder, "--label-column", "label", "--method", "rawatt", "--batch-size", "4"]
    output = gives(capfd, "attribute", data, "-o", tmp_path / "a", *args, "--workers", "2")
    assert "22 texts by rawatt (22 new)" in output
    timing = json.loads((tmp_path / "a" / "timings.jsonl").read_text())
    assert timing["workers"] == 2
    gives(capfd, "attribute", data, "-o", tmp_path / "b", *args)
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_json_says_what_became_of_it(capfd, folder, tmp_path):
    source = tmp_path / "a.jsonl"
    source.write_text('{"body": "a dog"}\n{"body": ""}\n{"body": "' + "dog " * 80 + '"}\n', encoding="utf-8")
    args = [
        "attribute",
        source,
        "-o",
        tmp_path / "out",
        "--model",
        folder,
        "--text-column",
        "body",
        "--method",
        "rawatt",
    ]
    document = json.loads(gives(capfd, *args, "--json"))
    assert document == {
        "folder": str(tmp_path / "out"), "finished": True, "total": 2, "texts": 2, "computed": 2, "errors": 1,
        "skipped": {"empty text": 1}, "shards": 1, "methods": ["rawatt"],
    }  # fmt: skip
    assert re.search("1 row .*1 empty text.*1 error", gives(capfd, *args))


def test_labels_sample_and_truncation(capfd, folder, data, tmp_path):
    args = ["--label-column", "label", "--label-names", "0=positive,1=negative", "--sample", "6", "--seed", "1"]
    gives(
        capfd, "attribute", data, "-o", tmp_path / "a", "--model", folder, "--method", "rawatt", *args, "--truncation"
    )
    attributions = list(read_attributions(tmp_path / "a"))
    assert len(attributions) == 6
    labels = {0: "positive", 1: "negative"}
    assert all(s.row is not None and s.gold_label == labels[s.row % 2] for s in attributions)


def test_long_texts_are_read_in_windows_and_not_measured(capfd, folder, tmp_path):
    rows = [{"text": "a good film. " * 30, "label": 0}, {"text": "a bad film", "label": 1}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    args = ["attribute", tmp_path / "a.jsonl", "-o", tmp_path / "out", "--model", folder, "--method", "rawatt"]
    gives(capfd, *args, "--windows")
    long, short = read_attributions(tmp_path / "out")
    assert float(long.diagnostics["windows"]) > 2
    assert not long.truncated
    assert "windows" not in short.diagnostics
    assert "windows" in refused(capfd, *args)  # that is another job
    with pytest.raises(DataError, match="were read in windows"):
        open_stored_scores(tmp_path / "out")
    part = next((tmp_path / "out").glob("*.parquet"))
    assert list(open_stored_scores(part).skipped.values()) == [1]


def test_nothing_but_errors_is_a_failure(capfd, folder, tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "dog " * 80}), encoding="utf-8")
    code = main(
        [
            "attribute",
            str(tmp_path / "a.jsonl"),
            "-o",
            str(tmp_path / "out"),
            "--model",
            str(folder),
            "--method",
            "rawatt",
        ]
    )
    assert code == 1
    assert "1 error" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--engine", "spark"], "engine.*'local', 'ray'.*'spark'"),
        (["--engine", "ray", "--device", "cuda:1"], "device.*'cpu'.*'cuda'"),
        (["--engine", "ray", "--workers", "0"], "workers.* 0"),
        (["--workers", "0"], "--workers must be.* 0"),
        (["--method", "agg"], "no method 'agg'"),
        (["--text-column", "txt"], "'txt'.*'text'"),
        (["--label-column", "text", "--method", "rawatt"], "class of the model"),
        (["--label-column", "text", "--method", "rawatt"], "--label-names"),
        (["--batch-size", "many"], "'many'"),
        (["--batch-size", "0"], "--batch-size must be"),
        (["--method", "agf", "--method", "agf"], "each method once"),
    ],
)
def test_bad_input_is_refused_in_one_line(capfd, data, folder, tmp_path, args, message):
    assert re.search(message, refused(capfd, "attribute", data, "-o", tmp_path / "out", "--model", folder, *args))
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_missing_input_or_output_is_refused(capfd, data, tmp_path):
    assert str(tmp_path / "no.csv") in refused(capfd, "attribute", tmp_path / "no.csv", "-o", tmp_path / "out")
    assert "Missing option" in refused(capfd, "attribute", data)


def test_another_job_in_the_folder_is_refused(capfd, data, folder, tmp_path):
    args = ["attribute", data, "-o", tmp_path / "out", "--model", folder]
    gives(capfd, *args, "--method", "rawatt")
    assert "--method: rawatt there, but random here" in refused(capfd, *args, "--method", "random")
    assert "--shard-size is 1000 there, 5 here" in refused(capfd, *args, "--method", "rawatt", "--shard-size", "5")


def test_a_run_that_goes_on_in_another_environment_says_so_on_stderr(capfd, data, folder, tmp_path, monkeypatch):
    out = tmp_path / "out"
    args = ["attribute", data, "-o", out, "--model", folder, "--method", "rawatt", "--shard-size", "8"]
    monkeypatch.setattr("gaflow.cli.attribute.progress_bar", interrupted_at(10))
    assert main([str(a) for a in args]) == 130
    monkeypatch.undo()
    edit_manifest(out, lambda job: job.update(threads=7))
    capfd.readouterr()
    assert main([str(a) for a in args]) == 0
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "threads is 7 there, 1 here" in lines[0]


def test_ctrl_c_ends_after_the_batch_and_says_how_to_go_on(capfd, data, folder, tmp_path, monkeypatch):
    args = ["attribute", data, "-o", tmp_path / "out", "--model", folder, "--method", "rawatt", "--shard-size", "4"]
    monkeypatch.setattr("gaflow.cli.attribute.progress_bar", interrupted_at(10))
    before = signal.getsignal(signal.SIGINT)
    assert main([str(a) for a in args] + ["--batch-size", "2"]) == 130
    assert signal.getsignal(signal.SIGINT) is before
    out, err = capfd.readouterr()
    assert out == ""
    assert "10 of 22 texts" in err.splitlines()[-1]
    monkeypatch.undo()
    assert "22 texts by rawatt (12 new)" in gives(capfd, *args, "--batch-size", "2")
