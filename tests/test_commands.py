import io
import json
import os
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import gaflow
from gaflow import commands
from gaflow.cli import main
from gaflow.estimate import solve_flops
from gaflow.methods import METHODS
from tests.models import FAMILIES, SENTENCE, bert

HOSTILE = "\x1b[31mred[/bold] \x1b]0;title\x07 [red]\u202eevil"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(bert(), tmp_path_factory.mktemp("models"))


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "GAFLOW_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")


def saved(made, place):
    model, tokenizer = made
    model.save_pretrained(place / "tiny")
    tokenizer.save_pretrained(place / "tiny")
    return place / "tiny"


def gives(capfd, *args):
    """What `gaflow *args` prints, which must be well."""
    capfd.readouterr()  # transformers draws a bar while the test saves its model
    code = main([str(a) for a in args])
    out, err = capfd.readouterr()
    assert (code, err) == (0, "")
    return out


def refused(capfd, *args):
    assert main([str(a) for a in args]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    return err


def without_seconds(document):
    return {**document, "certificate": {**document["certificate"], "seconds": None}}


def from_stdin(monkeypatch, data):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.mark.parametrize("command", ["", "explain", "methods", "info"])
def test_help_has_an_example(command):
    result = CliRunner().invoke(commands.app, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert re.search(rf"Examples?:\n +gaflow {command}", result.output)


def test_the_version_is_the_package_s(capfd):
    assert gives(capfd, "--version") == f"gaflow {gaflow.__version__}\n"


def test_gaflow_alone_shows_the_help(capfd):
    assert gives(capfd) == gives(capfd, "--help")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("target", [None, "negative", "2", "Positive minus neutral"])
def test_json_is_what_python_gives(capfd, folder, method, target):
    chosen = [] if target is None else ["--target", target]
    found = json.loads(gives(capfd, "explain", SENTENCE, "--model", folder, "--method", method, "--json", *chosen))
    expected = gaflow.Explainer(folder)(SENTENCE, method, target).to_dict()
    assert without_seconds(found) == json.loads(json.dumps(without_seconds(expected)))


def test_a_pair_and_truncation_are_passed_on(capfd, folder):
    args = ["explain", "a good film", "--pair", "bad " * 100, "--truncation", "--model", folder, "--json"]
    found = json.loads(gives(capfd, *args))
    assert found["pair"] == "bad " * 100
    assert found["truncated"]
    assert len(found["tokens"]) == 64
    shown = gives(capfd, *args[:-1])
    assert "truncated: the model read only the first 64 tokens" in shown


@pytest.mark.parametrize("data", [b"a good film", b"a good film\n", b"\xef\xbb\xbfa good film\r\n"])
def test_a_dash_reads_stdin(capfd, monkeypatch, folder, data):
    from_stdin(monkeypatch, data)
    assert json.loads(gives(capfd, "explain", "-", "--model", folder, "--json"))["text"] == "a good film"
    from_stdin(monkeypatch, data)
    args = ["explain", "bad", "--pair", "-", "--model", folder, "--json"]
    assert json.loads(gives(capfd, *args))["pair"] == "a good film"


def test_a_text_may_begin_with_a_dash(capfd, folder):
    found = gives(capfd, "explain", "--model", folder, "--json", "--", "-5 is good")
    assert json.loads(found)["text"] == "-5 is good"


def test_stdin_that_is_no_text_is_refused(capfd, monkeypatch, folder):
    from_stdin(monkeypatch, b"caf\xe9")
    assert "stdin is not UTF-8 (byte 3" in refused(capfd, "explain", "-", "--model", folder)
    from_stdin(monkeypatch, b"x" * (1 << 20) + b"x")
    assert "more than 1,048,576 bytes" in refused(capfd, "explain", "-", "--model", folder)
    from_stdin(monkeypatch, b"")
    assert "text is empty" in refused(capfd, "explain", "-", "--model", folder)
    assert "can only be read once" in refused(capfd, "explain", "-", "--pair", "-", "--model", folder)


def test_what_is_saved_can_be_loaded_and_holds_the_flow(capfd, folder, tmp_path):
    place = tmp_path / "out.safetensors"
    shown = gives(capfd, "explain", SENTENCE, "--model", folder, "--save", place)
    assert "smart" in shown
    att = gaflow.load(place)
    assert att.text == SENTENCE
    assert att.flow is not None
    assert os.listdir(tmp_path) == ["out.safetensors"]


def test_nothing_is_written_when_something_is_wrong(capfd, folder, tmp_path, monkeypatch):
    place = tmp_path / "out.safetensors"
    refused(capfd, "explain", "", "--model", folder, "--save", place)
    refused(capfd, "explain", "a", "--model", folder, "--target", "nope", "--save", place)
    assert f"no folder '{tmp_path / 'no'}'" in refused(capfd, "explain", "a", "--save", tmp_path / "no" / "x")
    assert "is a folder" in refused(capfd, "explain", "a", "--save", tmp_path)
    place.write_text("mine")
    monkeypatch.setattr(os, "replace", full)
    err = refused(capfd, "explain", "a", "--model", folder, "--save", place)
    assert err == f"gaflow: --save {str(place)!r} cannot be written: No space left on device\n"
    assert os.listdir(tmp_path) == ["out.safetensors"]
    assert place.read_text() == "mine"


def full(*args):
    raise OSError(28, "No space left on device")


def test_hostile_texts_and_labels_do_not_reach_the_terminal(capfd, tmp_path):
    names = {0: HOSTILE, 1: f"{HOSTILE}!", 2: f"{HOSTILE}?"}
    made = bert(id2label=names, label2id={v: k for k, v in names.items()})
    place = saved(made, tmp_path)
    for args in (["explain", HOSTILE], ["explain", HOSTILE, "--json"], ["info"], ["info", "--json"]):
        named = ["--model", place] if args[0] == "explain" else [place]
        out = gives(capfd, *args, *named)
        assert not set(out) & set("\x1b\x07\x9b\u202e")
        assert "[/bold]" in out
        assert "u202eevil" in out


def test_top_and_words_are_passed_on(capfd, folder):
    def listed(*args):
        shown = gives(capfd, "explain", SENTENCE, "--model", folder, *args).splitlines()
        return [line.split()[-1] for line in shown if re.match(r" *\d", line)]

    best = [w.text for w in gaflow.explain(SENTENCE, model=folder).top(20)]
    assert listed() == listed("--words") == best[:5]
    assert listed("--top", "2") == best[:2]
    assert listed("--top", "0") == []
    assert listed("--top", "100") == best


def test_every_method_is_listed_with_its_settings(capfd):
    rows = json.loads(gives(capfd, "methods", "--json"))
    assert [row["name"] for row in rows] == list(METHODS)
    for row in rows:
        assert row["family"] == "flow"
        assert row["settings"]["epsilon"] == METHODS[row["name"]].epsilon  # type: ignore[attr-defined]
        assert row["description"]
    table = gives(capfd, "methods")
    for row in rows:
        assert re.search(rf"^{row['name']} +flow +{re.escape(row['description'][:20])}", table, re.M)


def test_what_a_method_says_about_itself_is_shown(capfd, monkeypatch):
    @dataclass(frozen=True)
    class Loud:
        """Shouts.

        At length."""

        volume: int = 11
        signed = True
        class_specific = False
        passes = 1
        reference = "Tufnel 1984"

    monkeypatch.setattr(commands, "METHODS", {**METHODS, "loud": Loud()})
    row = json.loads(gives(capfd, "methods", "--json"))[-1]
    assert row.pop("family") == "test_commands"
    assert row == {
        "name": "loud",
        "description": "Shouts.",
        "settings": {"volume": 11},
        "signed": True,
        "class_specific": False,
        "passes": 1,
        "reference": "Tufnel 1984",
    }
    assert re.search(r"loud +test_commands +yes +no +1 +Tufnel 1984 +Shouts\.", gives(capfd, "methods"))


@pytest.mark.parametrize("family", FAMILIES)
def test_info_says_what_a_trace_would_find(capfd, tmp_path, family):
    model, tokenizer = FAMILIES[family]()
    place = saved((model, tokenizer), tmp_path)
    found = json.loads(gives(capfd, "info", place, "--json", "--length", "7"))
    explainer = gaflow.Explainer(place)
    layers = explainer(SENTENCE).layers
    assert layers is not None
    assert found["layers"] == len(layers) - 1
    assert found["attention"] == [found["layers"], found["heads"], 7, 7]
    assert found["parameters"] == sum(p.numel() for p in model.parameters())
    assert found["limit"] == explainer.limit
    assert found["labels"] == list(explainer.head.labels)
    assert (found["class"], found["task"], found["dtype"]) == (type(model).__name__, explainer.task, "float32")
    assert found["estimate"]["flops"] == solve_flops(found["layers"], 7)
    assert found["estimate"]["seconds"] > 0


def test_info_needs_no_weights_and_fits_the_text_to_the_model(capfd, folder, tmp_path):
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    shown = gives(capfd, "info", tmp_path)
    assert re.search(r"a text of +64 tokens: attention \(3, 4, 64, 64\)", shown)
    assert "BertForSequenceClassification (bert), text-classification" in shown
    assert "negative, positive, neutral" in shown


@pytest.mark.parametrize("length", ["0", "65"])
def test_info_refuses_lengths_that_the_model_does_not_take(capfd, folder, length):
    assert f"--length must be 1 to 64 for this model, not {length}" in refused(
        capfd, "info", folder, "--length", length
    )


def test_info_refuses_models_without_one_stack_of_layers(capfd, monkeypatch, folder):
    loaded = commands.outline(folder)
    loaded.model.config.is_encoder_decoder = True
    monkeypatch.setattr(commands, "outline", lambda name: loaded)
    assert "no single stack of attention layers" in refused(capfd, "info", folder)


def test_many_labels_are_cut_short(capfd, tmp_path):
    place = saved(bert(num_labels=23), tmp_path)
    assert "LABEL_19 and 3 more" in " ".join(gives(capfd, "info", place).split())


@pytest.mark.parametrize("args", [["methods"], ["info"], ["explain", SENTENCE, "--model"]])
def test_narrow_windows_are_respected(capfd, monkeypatch, folder, args):
    monkeypatch.setenv("COLUMNS", "40")
    out = gives(capfd, *args, *([] if args == ["methods"] else [folder]))
    assert max(len(line) for line in out.splitlines()) <= 40


def test_a_watcher_sees_that_work_is_going_on(monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(commands, "make_console", lambda stderr: SimpleNamespace(status=watch(seen)))
    with commands._waiting("explaining"):
        assert seen == ["explaining"]
    assert seen == ["explaining", "done"]


def watch(seen):
    @contextmanager
    def status(doing):
        seen.append(doing)
        yield
        seen.append("done")

    return status


def test_html_writes_the_page_that_python_writes(capfd, folder, tmp_path):
    place = tmp_path / "why.html"
    assert "smart" in gives(capfd, "explain", SENTENCE, "--model", folder, "--html", place)
    assert place.read_text(encoding="utf-8") == gaflow.Explainer(folder)(SENTENCE).to_html()
    assert "is a folder" in refused(capfd, "explain", "a", "--html", tmp_path)
