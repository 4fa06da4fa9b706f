"""Paths that are empty, disks that are full, counts without sense, and files that are not what their names say."""

import errno
import gzip
import os
import sys

import pytest

import gaflow
from gaflow.benchmark import bench, report
from gaflow.cli import main
from gaflow.corpora import corpus_page
from gaflow.data import open_data
from gaflow.errors import DataError, DiskFullError, GaflowError
from gaflow.files import write_atomically
from gaflow.html import flow_page, page
from gaflow.jobs import attribute, read_attributions
from gaflow.web import ServerSettings, create_app
from tests.support.commands import refused
from tests.support.models import bert
from tests.support.reports import evaluation

EXPLAINER = gaflow.Explainer(*bert())
TEXTS = ["a dog", "a smart dog"]
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06"


@pytest.fixture
def attribution():
    return EXPLAINER("a dog", "agf")


@pytest.fixture
def inside(tmp_path, monkeypatch):
    """A folder of Parquet files and an empty one, of which the first is the current folder."""
    current = tmp_path / "current"
    attribute(EXPLAINER, TEXTS, current, ["rawatt"])
    monkeypatch.chdir(current)
    return current


CALLS = {  # argument -> a call with an empty one
    "out_dir": lambda att: attribute(EXPLAINER, TEXTS, "", ["rawatt"]),
    "source": lambda att: attribute(EXPLAINER, "", "new", ["rawatt"]),
    "source ": lambda att: open_data(" "),
    "out": lambda att: bench(EXPLAINER, TEXTS, ""),
    "inputs": lambda att: bench(EXPLAINER, "", "new"),
    "inputs ": lambda att: bench(EXPLAINER, {"named": ""}, "new"),
    "folder": lambda att: report(""),
    "out ": lambda att: report(".", ""),
    "path": lambda att: list(read_attributions("")),
    "path ": lambda att: att.save(""),
    "path  ": lambda att: gaflow.load(""),
    "path   ": lambda att: att.to_html(""),
    "path    ": lambda att: att.to_flow_html(""),
    "path     ": lambda att: page(att, ""),
    "path      ": lambda att: flow_page(att, ""),
    "folder ": lambda att: gaflow.Evaluation.load(""),
    "model": lambda att: gaflow.Explainer(""),
    "tokenizer": lambda att: gaflow.Explainer(EXPLAINER.model, ""),
    "folder  ": lambda att: gaflow.corpus(""),
    "path       ": lambda att: corpus_page(gaflow.corpus(".", minimum=1), ""),
    "open": lambda att: create_app(ServerSettings(folders=[""])),  # type: ignore[list-item]
    "model ": lambda att: create_app(ServerSettings(models=[""])),
}


@pytest.mark.parametrize("argument", CALLS)
def test_an_empty_path_is_refused_and_not_taken_for_the_current_folder(inside, attribution, argument):
    before = sorted(inside.rglob("*"))
    with pytest.raises(GaflowError) as error:
        CALLS[argument](attribution)
    assert error.value.argument == argument.strip()
    assert sorted(inside.rglob("*")) == before


@pytest.mark.parametrize(
    ("args", "option"),
    [
        (["attribute", "texts.jsonl", "-o", ""], "--out"),
        (["attribute", "", "-o", "new"], "INPUT"),
        (["bench", "texts.jsonl", "-o", ""], "--out"),
        (["bench", "", "-o", "new"], "inputs"),
        (["bench", "name=", "-o", "new"], "inputs"),
        (["report", ""], "DIR"),
        (["report", ".", "-o", ""], "--out"),
        (["explain", "a dog", "--save", ""], "--save"),
        (["explain", "a dog", "--html", ""], "--html"),
        (["explain", "a dog", "--svg", ""], "--svg"),
        (["explain", "a dog", "--flow-html", ""], "--flow-html"),
        (["compare", "a dog", "--html", ""], "--html"),
        (["explain", "a dog", "--model", ""], "--model"),
        (["corpus", ""], "DIR"),
        (["corpus", ".", "--html", ""], "--html"),
        (["serve", "--open", ""], "--open"),
        (["serve", ""], "model"),
    ],
)
@pytest.mark.usefixtures("plain", "inside")
def test_the_command_line_refuses_an_empty_path_by_the_name_of_its_option(capfd, args, option):
    with open("texts.jsonl", "w") as file:
        file.write('{"text": "a dog"}\n')
    before = sorted(os.listdir())
    assert option in refused(capfd, *args)
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    "args",
    [
        ["explain", "a dog", "--top", "0"],
        ["explain", "a dog", "--top", "-1"],
        ["attribute", "texts.jsonl", "-o", "new", "--batch-size", "0"],
        ["attribute", "texts.jsonl", "-o", "new", "--shard-size", "0"],
        ["attribute", "texts.jsonl", "-o", "new", "--limit", "0"],
        ["attribute", "texts.jsonl", "-o", "new", "--sample", "0"],
        ["attribute", "texts.jsonl", "-o", "new", "--seed", "-1"],
        ["bench", "texts.jsonl", "-o", "new", "--sample", "-1"],
        ["bench", "texts.jsonl", "-o", "new", "--limit", "0"],
        ["bench", "texts.jsonl", "-o", "new", "--shard-size", "0"],
        ["bench", "texts.jsonl", "-o", "new", "--batch-size", "0"],
        ["info", "--batch-size", "0"],
        ["info", "--length", "0"],
        ["report", ".", "--resamples", "0"],
        ["report", ".", "--seed", "-1"],
        ["corpus", ".", "--top", "0"],
        ["corpus", ".", "--length", "0"],
        ["corpus", ".", "--minimum", "0"],
        ["serve", "--port", "-1"],
    ],
)
@pytest.mark.usefixtures("plain")
def test_counts_without_sense_are_refused_by_the_name_of_their_option(capfd, tmp_path, monkeypatch, args):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.jsonl").write_text('{"text": "a dog"}\n')
    option, value = args[-2:]
    line = refused(capfd, *args)
    assert option in line
    assert value in line
    assert not (tmp_path / "new").exists()


def test_a_rejected_run_leaves_nothing(tmp_path):
    with pytest.raises(DataError):
        attribute(EXPLAINER, [{"text": None}], tmp_path / "new" / "run", ["rawatt"])
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError):
        attribute(EXPLAINER, [{"text": None}], tmp_path / "empty", ["rawatt"])
    assert os.listdir(tmp_path / "empty") == []


def test_a_rejected_run_leaves_a_copy_of_another_run_as_it_was(tmp_path):
    attribute(EXPLAINER, TEXTS, tmp_path / "run", ["rawatt"])
    (tmp_path / "run" / ".lock").unlink()  # as copies without hidden files are
    before = sorted(os.listdir(tmp_path / "run"))
    with pytest.raises(gaflow.JobError):
        attribute(EXPLAINER, TEXTS, tmp_path / "run", ["attcat"])
    assert sorted(os.listdir(tmp_path / "run")) == before


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_told_with_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(DiskFullError, match=r"result\.json"):
        write_atomically(tmp_path / "result.json", b"data")
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("plain")
def test_a_full_disk_is_a_failure_and_not_bad_input(capfd, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", full_disk)
    assert main(["explain", "a dog", "--method", "rawatt", "--html", str(tmp_path / "page.html")]) == 1
    line = capfd.readouterr().err
    assert "page.html" in line
    assert "Errno" not in line


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.usefixtures("plain")
def test_output_that_nobody_can_take_is_a_failure(capfd, monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["methods"]) == 1
        monkeypatch.undo()
        line = capfd.readouterr().err
        assert "Errno" not in line
        assert "standard output" in line
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())  # or closing it fails, too


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("name", ["picture.csv", "picture.tsv", "picture.jsonl"])
def test_a_picture_is_no_table_and_none_of_its_bytes_are_printed(tmp_path, name, suffix):
    name += suffix
    data = PNG + bytes(range(256)) * 9  # lines with different numbers of columns
    (tmp_path / name).write_bytes(gzip.compress(data) if suffix else data)
    with pytest.raises(DataError) as error:
        list(open_data(tmp_path / name).read())
    assert name in str(error.value)
    assert "PNG" not in str(error.value)
    assert "\\x" not in str(error.value)


TABLE = gzip.compress(b"text\n" + b"a good film\n" * 9000)
DAMAGED = {
    "cut off": TABLE[:40],
    "without its checksum": TABLE[:-8],
    "not packed": b"text",
    "changed": TABLE[:12] + b"\xff" * 30 + TABLE[42:],
}


@pytest.mark.parametrize("name", ["table.csv.gz", "table.tsv.gz", "table.jsonl.gz"])
@pytest.mark.parametrize("damage", DAMAGED)
def test_a_packed_table_that_cannot_be_unpacked_is_named(tmp_path, name, damage):
    (tmp_path / name).write_bytes(DAMAGED[damage])
    with pytest.raises(DataError, match=name):
        list(open_data(tmp_path / name).read())


WRITERS = {  # argument -> a call that writes into a folder
    "out_dir": lambda folder: attribute(EXPLAINER, TEXTS, folder, ["rawatt"]),
    "out": lambda folder: bench(EXPLAINER, TEXTS, folder, methods=["rawatt"]),
    "out ": lambda folder: report("results", folder),
    "folder": lambda folder: evaluation(texts=5).save(folder),
}


@pytest.mark.parametrize("path", ["file", "file/inside", "file/far/inside"])
@pytest.mark.parametrize("argument", WRITERS)
def test_a_file_is_no_folder_to_write_into(tmp_path, monkeypatch, argument, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(GaflowError, match="'file'") as error:
        WRITERS[argument](path)
    assert str(error.value.argument) == argument.strip()
    assert (tmp_path / "file").read_text() == "mine"


HALF = "half \ud800"
HALF_PATHS = {  # argument -> a call with a path that cannot be encoded
    "out_dir": lambda att: attribute(EXPLAINER, TEXTS, HALF, ["rawatt"]),
    "path": lambda att: list(read_attributions(HALF)),
    "path ": lambda att: att.save(f"{HALF}.json"),
    "path  ": lambda att: gaflow.load(HALF),
    "path   ": lambda att: att.to_html(HALF),
    "path    ": lambda att: att.to_flow_html(HALF),
    "folder": lambda att: evaluation(texts=5).save(HALF),
    "folder ": lambda att: gaflow.Evaluation.load(HALF),
    "out": lambda att: bench(EXPLAINER, TEXTS, HALF),
    "out ": lambda att: report(".", HALF),
    "source": lambda att: open_data(HALF),
    "folder  ": lambda att: gaflow.corpus(HALF),
    "open": lambda att: create_app(ServerSettings(folders=[HALF])),  # type: ignore[list-item]
    "model ": lambda att: create_app(ServerSettings(models=[HALF])),
    "model": lambda att: gaflow.Explainer(HALF),
    "tokenizer": lambda att: gaflow.Explainer(EXPLAINER.model, HALF),
}


@pytest.mark.parametrize("argument", HALF_PATHS)
def test_a_path_with_half_a_character_is_refused(tmp_path, monkeypatch, attribution, argument):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GaflowError) as error:
        HALF_PATHS[argument](attribution)
    assert str(error.value.argument) == argument.strip()
    assert "\ud800" not in str(error.value)
    assert os.listdir(tmp_path) == []


def test_bytes_that_are_no_unicode_are_a_path_like_any_other(tmp_path, attribution):
    path = tmp_path / os.fsdecode(b"caf\xe9.json")
    attribution.save(path)
    assert gaflow.load(path) == attribution
