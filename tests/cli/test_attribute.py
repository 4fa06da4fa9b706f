import json
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
from tests.support.runs import ROWS, files

pytestmark = pytest.mark.usefixtures("plain")


@pytest.fixture
def data(tmp_path):
    return write(tmp_path / "rows.csv", ROWS)


def test_the_command_gives_what_python_gives(capfd, folder, data, tmp_path):
    args = ["--label-column", "label", "--method", "rawatt,ATTCAT", "--method", "random", "--shard-size", "8"]
    shown = gives(capfd, "attribute", data, "-o", tmp_path / "a", "--model", folder, *args)
    assert shown == f"22 texts by 3 methods (22 new): 3 files in {tmp_path / 'a'}\n"
    opened = open_data(data, label_column="label")
    attribute(gaflow.Explainer(folder), opened, tmp_path / "b", ["rawatt", "attcat", "random"], shard_size=8)
    assert files(tmp_path / "a") == files(tmp_path / "b")
    again = gives(capfd, "attribute", data, "-o", tmp_path / "a", "--model", folder, *args)
    assert "(0 new)" in again


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
    found = json.loads(gives(capfd, *args, "--json"))
    assert found == {
        "folder": str(tmp_path / "out"), "finished": True, "total": 2, "texts": 2, "computed": 2, "errors": 1,
        "skipped": {"empty text": 1}, "shards": 1,
    }  # fmt: skip
    assert "1 row skipped (1 empty text), 1 error (column 'error')" in gives(capfd, *args)


def test_labels_sample_and_truncation(capfd, folder, data, tmp_path):
    args = ["--label-column", "label", "--label-names", "0=positive,1=negative", "--sample", "6", "--seed", "1"]
    gives(
        capfd, "attribute", data, "-o", tmp_path / "a", "--model", folder, "--method", "rawatt", *args, "--truncation"
    )
    found = list(read_attributions(tmp_path / "a"))
    assert len(found) == 6
    labels = {0: "positive", 1: "negative"}
    assert all(s.row is not None and s.gold_label == labels[s.row % 2] for s in found)


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
    assert open_stored_scores(part).skipped == {"read in windows, not at once": 1}


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
        (["--engine", "spark"], "engine must be one of 'local', 'ray', not 'spark'"),
        (["--engine", "ray", "--device", "cuda:1"], "device must be 'cpu' or 'cuda' with Ray"),
        (["--engine", "ray", "--workers", "0"], "workers must be a whole number >= 1, not 0"),
        (["--workers", "2"], "--workers 2 is for --engine ray"),
        (["--method", "agg"], "no method 'agg'"),
        (["--text-column", "txt"], "no column 'txt'; did you mean 'text'?"),
        (["--label-column", "text", "--method", "rawatt"], "is no class of the model"),
        (["--label-column", "text", "--method", "rawatt"], "Say what labels mean by --label-names"),
        (["--batch-size", "many"], "'many' is no whole number"),
        (["--batch-size", "0"], "--batch-size must be"),
        (["--method", "agf", "--method", "agf"], "each method once"),
    ],
)
def test_bad_input_is_refused_in_one_line(capfd, data, folder, tmp_path, args, message):
    assert message in refused(capfd, "attribute", data, "-o", tmp_path / "out", "--model", folder, *args)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_missing_input_or_output_is_refused(capfd, data, tmp_path):
    assert "no such file" in refused(capfd, "attribute", tmp_path / "no.csv", "-o", tmp_path / "out")
    assert "Missing option" in refused(capfd, "attribute", data)


def test_another_job_in_the_folder_is_refused(capfd, data, folder, tmp_path):
    args = ["attribute", data, "-o", tmp_path / "out", "--model", folder]
    gives(capfd, *args, "--method", "rawatt")
    assert 'methods[0].name is "rawatt" there, "random" here' in refused(capfd, *args, "--method", "random")


def test_ctrl_c_ends_after_the_batch_and_says_how_to_go_on(capfd, data, folder, tmp_path, monkeypatch):
    args = ["attribute", data, "-o", tmp_path / "out", "--model", folder, "--method", "rawatt", "--shard-size", "4"]
    monkeypatch.setattr("gaflow.cli.attribute.progress_bar", interrupted_at(10))
    before = signal.getsignal(signal.SIGINT)
    assert main([str(a) for a in args] + ["--batch-size", "2"]) == 130
    assert signal.getsignal(signal.SIGINT) is before
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "ending after this batch; once more to end at once"
    assert "stopped: 8 of 22 texts are stored; run the same command again to go on" in err
    monkeypatch.undo()
    assert "22 texts by 1 method (14 new)" in gives(capfd, *args, "--batch-size", "2")
