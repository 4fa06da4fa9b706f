import json
import re
import sys
from contextlib import contextmanager

import pytest

import gaflow
from gaflow import plots
from gaflow.cli import main
from gaflow.html import flow_page, page
from gaflow.methods import METHODS
from tests.support.commands import from_stdin, gives, refused, saved
from tests.support.models import SENTENCE, longformer

pytestmark = pytest.mark.usefixtures("plain")

QUICK = [
    "af", "gf", "agf", "relevance_flow", "peeled_flow", "rawatt", "rollout", "grads", "attgrads",
    "gradsam", "cat", "attcat", "attnlrp", "grad_x_input", "random",
]  # fmt: skip


def heads(output):
    return output.split("\n\n")[1].splitlines()[0].split()


def test_by_default_it_shows_the_default_and_methods_of_one_trace_and_nothing_else_need_be_installed(
    capfd, monkeypatch, folder
):
    for name in ("ortools", "captum"):
        monkeypatch.setitem(sys.modules, name, None)
    output = gives(capfd, "compare", SENTENCE, "--model", folder)
    blocks = output.split("\n\n")[1:-1]  # as many columns as fit side by side
    assert [name for block in blocks for name in block.splitlines()[0].split()] == QUICK
    numbers = [re.search(r"^(( +-?\d+)+) smart$", block, re.M) for block in blocks]
    assert sum(len(match[1].split()) for match in numbers if match) == len(QUICK)


def test_methods_that_cannot_follow_the_model_are_left_out_by_default(capfd, tmp_path):
    folder = saved(longformer(), tmp_path)
    capfd.readouterr()
    assert main(["compare", SENTENCE, "--model", str(folder), "--json"]) == 0
    out, err = capfd.readouterr()
    compared = json.loads(out)
    assert {"agf", "attgrads"} <= compared.keys()
    left_out = {"relevance_flow", "attnlrp"}
    assert not left_out & compared.keys()
    assert all(name in err for name in left_out)


def test_json_is_what_python_gives(capfd, folder):
    args = ["compare", SENTENCE, "--model", folder, "--methods", "agf, ATTCAT,ig", "--target", "negative", "--json"]
    document = json.loads(gives(capfd, *args))
    expected = gaflow.Explainer(folder).compare(SENTENCE, ["agf", "attcat", "ig"], "negative")
    assert list(document) == ["agf", "attcat", "ig"]
    for name, att in expected.items():
        assert document[name]["scores"] == att.scores.tolist()
        assert document[name]["label"] == "negative"
        assert document[name]["method"] == name


def test_all_methods_can_be_had(capfd, folder):
    document = json.loads(gives(capfd, "compare", "a film", "--model", folder, "--methods", "all", "--json"))
    assert list(document) == list(METHODS)


def test_html_writes_the_page_that_python_writes(capfd, folder, tmp_path):
    path = tmp_path / "why.html"
    args = ["compare", SENTENCE, "--model", folder, "--methods", "gf,rollout", "--html", path]
    assert heads(gives(capfd, *args)) == ["gf", "rollout"]
    attributions = gaflow.Explainer(folder).compare(SENTENCE, ["gf", "rollout"])
    assert path.read_text(encoding="utf-8") == page(attributions, words=True)
    gives(capfd, *args, "--tokens")
    assert path.read_text(encoding="utf-8") == page(attributions)


def test_pictures_and_flow_pages_are_those_that_python_makes(capfd, folder, tmp_path):
    args = ["compare", SENTENCE, "--model", folder, "--methods", "gf,rollout"]
    gives(capfd, *args, "--svg", tmp_path / "a.svg", "--flow-html", tmp_path / "a.html")
    attributions = gaflow.Explainer(folder).compare(SENTENCE, ["gf", "rollout"])
    plots.compare(attributions).savefig(tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == flow_page(attributions)
    for option, name in (("--svg", "a.txt"), ("--svg", "no/a.svg"), ("--flow-html", "no/a.html")):
        assert option in refused(capfd, *args, option, tmp_path / name)
    assert "needs a method with a flow" in refused(
        capfd, "compare", "a", "--methods", "rollout,grads", "--flow-html", tmp_path / "a.html"
    )


def test_a_long_text_is_compared_in_windows(capfd, folder):
    text = "a good film and a bad one. " * 12
    args = ["compare", text, "--windows", "--model", folder, "--methods", "grads,rollout", "--json"]
    document = json.loads(gives(capfd, *args))
    assert {name: att["facts"]["windows"] > 2 for name, att in document.items()} == {"grads": True, "rollout": True}


def test_stdin_pairs_tokens_and_truncation_are_passed_on(capfd, monkeypatch, folder):
    from_stdin(monkeypatch, b"a good film\n")
    args = ["compare", "-", "--pair", "bad " * 100, "--model", folder, "--methods", "agf", "--tokens", "--truncation"]
    output = gives(capfd, *args)
    assert output.count("[SEP]") == 2
    assert len(output.split("\n\n")[1].splitlines()) == 65
    assert re.search("truncated: .* 64 tokens", output.splitlines()[-1])


def test_bad_input_is_one_line_before_a_model_is_loaded(capfd, monkeypatch, tmp_path):
    monkeypatch.setattr("gaflow.cli.compare.Explainer", None)  # which must not be called
    assert re.search("'agff'.* agf", refused(capfd, "compare", "a", "--methods", "af,agff"))
    for empty in ("", "af,,gf", "af,"):
        assert "has an empty name" in refused(capfd, "compare", "a", "--methods", empty)
    assert "names gf twice" in refused(capfd, "compare", "a", "--methods", "gf,af,GF")
    assert "is a folder" in refused(capfd, "compare", "a", "--html", tmp_path)
    assert "TEXT" in refused(capfd, "compare")
    assert "goes after '--'" in refused(capfd, "compare", "-5 degrees")
    monkeypatch.setitem(sys.modules, "captum", None)
    error = refused(capfd, "compare", "a", "--methods", "all")
    assert re.search(r"'ig'.*captum.*pip install 'gaflow\[baselines\]'", error)


def test_bad_texts_and_targets_are_one_line(capfd, folder):
    assert "text is empty" in refused(capfd, "compare", "", "--model", folder)
    assert "no label 'nice'" in refused(capfd, "compare", "a", "--model", folder, "--target", "nice")
    assert "--truncation" in refused(capfd, "compare", "good " * 100, "--model", folder)


def test_a_watcher_sees_how_far_it_is(capfd, monkeypatch, folder):
    reports = []

    @contextmanager
    def watching(doing):
        yield lambda done, total: reports.append((doing, done, total))

    monkeypatch.setattr("gaflow.cli.compare.spinner", watching)
    gives(capfd, "compare", SENTENCE, "--model", folder, "--methods", "agf,lime")
    assert (reports[0], reports[-1]) == (("comparing", 1, 2), ("comparing", 2, 2))
    assert any(1 < done < 2 for _, done, _ in reports)


@pytest.mark.parametrize("names", [["--methods", "af,GF"], ["--method", "af", "--method", "gf"], ["--method", "af,gf"]])
def test_methods_are_a_list_or_repeated(capfd, folder, names):
    document = json.loads(gives(capfd, "compare", "a dog", "--model", folder, "--json", *names))
    assert list(document) == ["af", "gf"]
