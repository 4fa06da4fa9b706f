import errno
import json
import os
import re

import pytest
from typer.testing import CliRunner

import gaflow
from gaflow.cli import commands, input_output, main
from gaflow.methods import METHODS
from tests.support.commands import HOSTILE, from_stdin, gives, refused, saved
from tests.support.models import SENTENCE, bert

pytestmark = pytest.mark.usefixtures("plain")


def same_but_for_seconds(a, b):
    """Whether two documents agree, since no two solves take the same time."""
    certificates = [document.get("certificate") or {} for document in (a, b)]
    return all(a[key] == b[key] for key in {*a, *b} - {"certificate"}) and all(
        certificates[0][key] == certificates[1][key] for key in {*certificates[0], *certificates[1]} - {"seconds"}
    )


@pytest.mark.parametrize("command", ["", "attribute", "bench", "compare", "explain", "info", "methods", "report"])
def test_help_has_an_example(command):
    result = CliRunner().invoke(commands.app, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert re.search(rf"Examples?:\n +gaflow {command}", result.output)


def test_the_version_is_the_package_s(capfd):
    assert gives(capfd, "--version") == f"gaflow {gaflow.__version__}\n"


def test_gaflow_alone_shows_the_help(capfd):
    assert gives(capfd) == gives(capfd, "--help")


@pytest.mark.parametrize(
    ("method", "target"),
    [*((name, None) for name in METHODS), ("agf", "negative"), ("agf", "2"), ("agf", "Positive minus neutral")],
)
def test_json_is_what_python_gives(capfd, folder, method, target):
    target_option = [] if target is None else ["--target", target]
    document = json.loads(
        gives(capfd, "explain", SENTENCE, "--model", folder, "--method", method, "--json", *target_option)
    )
    expected = gaflow.Explainer(folder)(SENTENCE, method, target).to_dict()
    assert same_but_for_seconds(document, json.loads(json.dumps(expected)))


def test_a_pair_and_truncation_are_passed_on(capfd, folder):
    args = ["explain", "a good film", "--pair", "bad " * 100, "--truncation", "--model", folder, "--json"]
    document = json.loads(gives(capfd, *args))
    assert document["pair"] == "bad " * 100
    assert document["truncated"]
    assert len(document["tokens"]) == 64
    output = gives(capfd, *args[:-1])
    assert re.search("truncated: .* 64 tokens", output)


def test_a_long_text_is_read_in_windows(capfd, folder):
    text = "a good film and a bad one. " * 12
    args = ["explain", text, "--windows", "--model", folder, "--method", "grads"]
    document = json.loads(gives(capfd, *args, "--json"))
    expected = gaflow.Explainer(folder)(text, "grads", windows=True).to_dict()
    assert document == json.loads(json.dumps(expected))
    assert document["facts"]["windows"] > 2
    assert "windows" in gives(capfd, *args)
    assert "--windows" in refused(capfd, "explain", text, "--model", folder)
    assert re.search("--truncation.*--windows", refused(capfd, "explain", "a", "--windows", "--truncation"))


@pytest.mark.parametrize("data", [b"a good film", b"a good film\n", b"\xef\xbb\xbfa good film\r\n"])
def test_a_dash_reads_stdin(capfd, monkeypatch, folder, data):
    from_stdin(monkeypatch, data)
    assert json.loads(gives(capfd, "explain", "-", "--model", folder, "--json"))["text"] == "a good film"
    from_stdin(monkeypatch, data)
    args = ["explain", "bad", "--pair", "-", "--model", folder, "--json"]
    assert json.loads(gives(capfd, *args))["pair"] == "a good film"


def test_a_text_may_begin_with_a_dash(capfd, folder):
    output = gives(capfd, "explain", "--model", folder, "--json", "--", "-5 is good")
    assert json.loads(output)["text"] == "-5 is good"


def test_stdin_that_is_no_text_is_refused(capfd, monkeypatch, folder):
    from_stdin(monkeypatch, b"caf\xe9")
    assert "UTF-8 (byte 3" in refused(capfd, "explain", "-", "--model", folder)
    from_stdin(monkeypatch, b"x" * (1 << 20) + b"x")
    assert "more than 1,048,576 bytes" in refused(capfd, "explain", "-", "--model", folder)
    from_stdin(monkeypatch, b"")
    assert "text is empty" in refused(capfd, "explain", "-", "--model", folder)
    assert "once" in refused(capfd, "explain", "-", "--pair", "-", "--model", folder)


def test_what_is_saved_can_be_loaded_and_holds_the_flow(capfd, folder, tmp_path):
    path = tmp_path / "out.safetensors"
    output = gives(capfd, "explain", SENTENCE, "--model", folder, "--save", path)
    assert "smart" in output
    att = gaflow.load(path)
    assert att.text == SENTENCE
    assert att.flow is not None
    assert os.listdir(tmp_path) == ["out.safetensors"]


def test_nothing_is_written_when_something_is_wrong(capfd, folder, tmp_path, monkeypatch):
    path = tmp_path / "out.safetensors"
    refused(capfd, "explain", "", "--model", folder, "--save", path)
    refused(capfd, "explain", "a", "--model", folder, "--target", "nope", "--save", path)
    assert f"no folder '{tmp_path / 'no'}'" in refused(capfd, "explain", "a", "--save", tmp_path / "no" / "x")
    assert "is a folder" in refused(capfd, "explain", "a", "--save", tmp_path)
    for name in ("x.csv", "x.pkl", "x.unknown"):
        err = refused(capfd, "explain", "a", "--model", "not/there", "--save", tmp_path / name)
        assert re.search(rf"{name}'.*\.safetensors or \.json", err)
    path.write_text("mine")
    monkeypatch.setattr(os, "replace", full)
    assert main(["explain", "a", "--model", str(folder), "--save", str(path)]) == 1
    assert repr(str(path)) in capfd.readouterr().err
    assert os.listdir(tmp_path) == ["out.safetensors"]
    assert path.read_text() == "mine"


def full(*args):
    raise OSError(28, "No space left on device")


def test_hostile_texts_and_labels_do_not_reach_the_terminal(capfd, tmp_path):
    names = {0: HOSTILE, 1: f"{HOSTILE}!", 2: f"{HOSTILE}?"}
    model_and_tokenizer = bert(id2label=names, label2id={v: k for k, v in names.items()})
    folder = saved(model_and_tokenizer, tmp_path)
    for args in (
        ["explain", HOSTILE],
        ["explain", HOSTILE, "--json"],
        ["compare", HOSTILE],
        ["compare", HOSTILE, "--tokens"],
        ["compare", HOSTILE, "--json"],
        ["info"],
        ["info", "--json"],
    ):
        named = [folder] if args[0] == "info" else ["--model", folder]
        out = gives(capfd, *args, *named)
        assert not set(out) & set("\x1b\x07\x9b\u202e")
        assert "[/bold]" in out
        assert "u202eevil" in out


def test_top_and_words_are_passed_on(capfd, folder):
    def listed(*args):
        lines = gives(capfd, "explain", SENTENCE, "--model", folder, "--method", "agf", *args).splitlines()
        return [line.split()[-1] for line in lines if re.match(r" *\d", line)]

    best = [w.text for w in gaflow.explain(SENTENCE, model=folder, method="agf").top(20)]
    assert listed() == listed("--words") == best[:5]
    assert listed("--top", "2") == best[:2]
    assert listed("--top", "100") == best


@pytest.mark.parametrize(
    "args", [["methods"], ["info"], ["explain", SENTENCE, "--model"], ["compare", SENTENCE, "--model"]]
)
def test_narrow_windows_are_respected(capfd, monkeypatch, folder, args):
    monkeypatch.setenv("COLUMNS", "40")
    out = gives(capfd, *args, *([] if args == ["methods"] else [folder]))
    assert max(len(line) for line in out.splitlines()) <= 40


def test_html_writes_the_page_that_python_writes(capfd, folder, tmp_path):
    path = tmp_path / "why.html"
    assert "smart" in gives(capfd, "explain", SENTENCE, "--model", folder, "--html", path)
    assert path.read_text(encoding="utf-8") == gaflow.Explainer(folder)(SENTENCE).to_html()
    assert "is a folder" in refused(capfd, "explain", "a", "--html", tmp_path)


def test_flow_html_writes_the_page_that_python_writes(capfd, folder, tmp_path):
    path = tmp_path / "flow.html"
    assert "smart" in gives(capfd, "explain", SENTENCE, "--model", folder, "--flow-html", path)
    assert path.read_text(encoding="utf-8") == gaflow.Explainer(folder)(SENTENCE).to_flow_html()
    error = refused(capfd, "explain", "a", "--model", "not/there", "--method", "rollout", "--flow-html", path)
    assert re.search("--flow-html.*rollout", error)


def test_sentences_are_shaded_and_listed(capfd, folder, tmp_path):
    text, path = "The dog is good. The film is bad!", tmp_path / "why.html"
    out = gives(capfd, "explain", text, "--model", folder, "--sentences", "--html", path)
    att = gaflow.Explainer(folder)(text)
    assert path.read_text(encoding="utf-8") == att.to_html(sentences=True)
    table = out[out.index("sentence") :]
    assert all(w.text in table for w in att.sentences())
    assert "are both set" in refused(capfd, "explain", text, "--model", "not/there", "--words", "--sentences")


@pytest.mark.parametrize(
    ("suffix", "begins", "unit"),
    [
        (".svg", b"<?xml", "words"),
        (".PDF", b"%PDF", "words"),
        (".png", b"\x89PNG", "words"),
        (".svg", b"<?xml", "sentences"),
    ],
)
def test_svg_draws_the_figure_that_python_draws(capfd, folder, tmp_path, suffix, begins, unit):
    path, other = tmp_path / f"why{suffix}", tmp_path / f"other{suffix.lower()}"
    assert "smart" in gives(capfd, "explain", SENTENCE, f"--{unit}", "--model", folder, "--svg", path)
    gaflow.Explainer(folder)(SENTENCE).plot(**{unit: True}).savefig(other)
    assert path.read_bytes() == other.read_bytes()
    assert path.read_bytes().startswith(begins)


def test_a_picture_that_cannot_be_drawn_is_refused_before_a_model_is_loaded(capfd, tmp_path):
    for name in ("why", "why.html"):
        error = refused(capfd, "explain", "a", "--model", "not/there", "--svg", tmp_path / name)
        assert "--svg" in error
        assert ".svg or .pdf or .png" in error
    assert "no folder" in refused(capfd, "explain", "a", "--svg", tmp_path / "no" / "why.svg")


@pytest.mark.parametrize(
    ("args", "option"),
    [
        (["explain", "a", "--save"], "--save"),
        (["explain", "a", "--html"], "--html"),
        (["compare", "a", "--svg"], "--svg"),
        (["attribute", "a.csv", "-o"], "--out"),
        (["bench", "a.csv", "-o"], "--out"),
        (["report", "a", "-o"], "--out"),
    ],
)
def test_a_place_that_cannot_be_written_is_named_before_a_model_is_loaded(capfd, tmp_path, monkeypatch, args, option):
    def refuse(*args, **settings):
        raise PermissionError(errno.EACCES, "Permission denied", "a temporary name")

    monkeypatch.setattr(input_output, "TemporaryDirectory", refuse)  # root may write anywhere
    deep = tmp_path / "new" / "deeper" if option == "--out" else tmp_path / "x.json"
    path = deep.with_suffix(".svg") if option == "--svg" else deep
    err = refused(capfd, *args, path, *([] if args[0] == "report" else ["--model", "not/there"]))
    assert err.startswith(f"gaflow: {option} {str(path)!r} ")
    assert err.endswith(f"{str(tmp_path)!r} (Permission denied)\n")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("command", ["attribute", "bench"])
def test_results_do_not_go_into_a_file(capfd, tmp_path, command):
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "deeper"):
        err = refused(capfd, command, tmp_path / "no.csv", "-o", path)
        assert f"{str(tmp_path / 'file')!r} is a file; give a folder" in err


def test_files_that_were_written_are_named_unless_json_is_printed(capfd, folder, tmp_path):
    html, svg = tmp_path / "why.html", tmp_path / "why.svg"
    args = ["explain", SENTENCE, "--model", folder, "--method", "rawatt", "--html", html, "--svg", svg]
    last_line = gives(capfd, *args).splitlines()[-1]
    assert str(html) in last_line
    assert str(svg) in last_line
    json.loads(gives(capfd, *args, "--json"))
    assert str(html) not in gives(capfd, *args[:-4])


def test_a_text_that_is_the_name_of_a_file_is_explained_with_a_hint(capfd, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dog.csv").write_text("text\na dog\n")
    assert main(["explain", "dog.csv", "--model", str(folder), "--methods", "rawatt", "--json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["text"] == "dog.csv"
    assert len(err.splitlines()) == 1
    assert "gaflow attribute" in err


def test_a_label_with_a_typing_error_is_hinted_at(capfd, folder):
    error = refused(capfd, "explain", "a dog", "--model", folder, "--target", "Positiv minus negative")
    assert re.search("no label 'Positiv'.*did you mean 'positive'", error)
    assert "mean" not in refused(capfd, "explain", "a dog", "--model", folder, "--target", "xyz")
