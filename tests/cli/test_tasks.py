"""Commands on models of every task."""

import json

import pytest

import gaflow
from tests.support.commands import gives, refused, saved
from tests.support.task_models import CASES

pytestmark = pytest.mark.usefixtures("plain")
TARGETS = {"tagger": "dog=B-PER", "reader": "dog", "filler": "dog minus good", "writer": "."}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {name: saved(CASES[name].make(), tmp_path_factory.mktemp(name)) for name in TARGETS}


def words(item):
    return [item[0], "--pair", item[1]] if isinstance(item, tuple) else [item]


@pytest.mark.parametrize("name", TARGETS)
def test_the_command_says_what_python_says(name, folders, capfd):
    item = CASES[name].inputs[0]
    args = ["--model", folders[name], "--target", TARGETS[name], "--method", "attcat"]
    document = json.loads(gives(capfd, "explain", *words(item), *args, "--json"))
    att = gaflow.Explainer(folders[name])(item, "attcat", TARGETS[name])
    assert document == att.to_dict()
    output = gives(capfd, "explain", *words(item), *args, "--task", CASES[name].task)
    assert f"{att.label} " in output
    assert f"{att.output_name} {att.output:.4g}, explained by attcat" in " ".join(output.split())
    assert "attcat" in gives(capfd, "compare", *words(item), "--model", folders[name], "--methods", "attcat,rawatt")


@pytest.mark.parametrize("name", TARGETS)
def test_info_names_task_and_labels(name, folders, capfd):
    document = json.loads(gives(capfd, "info", folders[name], "--json"))
    assert document["task"] == CASES[name].task
    assert document["labels"] == list(gaflow.Explainer(folders[name]).head.labels)
    assert ("its vocabulary" in gives(capfd, "info", folders[name])) == (not document["labels"])


@pytest.mark.parametrize("name", ["viewer", "listener"])
def test_info_on_models_that_read_no_text(name, tmp_path, capfd):
    document = json.loads(gives(capfd, "info", saved(CASES[name].make(), tmp_path), "--json"))
    assert (document["task"], document["vocabulary"]) == (CASES[name].task, None)
    assert document["tokenizer"] == type(CASES[name].make()[1]).__name__


def test_a_picture_is_explained_by_its_path(tmp_path, capfd):
    from PIL import Image

    Image.fromarray(CASES["viewer"].inputs[0]).save(tmp_path / "dog.png")
    model = saved(CASES["viewer"].make(), tmp_path)
    output = gives(capfd, "explain", tmp_path / "dog.png", "--model", model, "--html", tmp_path / "why.html")
    assert "dog.png" in output
    assert "row 1, column" in output or "row 2, column" in output
    assert "data:image/png" in (tmp_path / "why.html").read_text(encoding="utf-8")


def test_what_is_wrong_is_said_in_one_line(folders, capfd):
    model = ["--model", folders["filler"]]
    assert "[MASK]" in refused(capfd, "explain", "a dog", *model)
    assert "masks" in refused(capfd, "explain", "a [MASK] [MASK]", *model)
    assert "--task" in refused(capfd, "explain", "a [MASK]", *model, "--task", "fill")
    assert "made as BertForMaskedLM" in refused(capfd, "explain", "a dog", *model, "--task", "text-classification")
    args = ["explain", "is it?", "--model", folders["reader"]]
    assert "(question, context)" in refused(capfd, *args)
    assert "'cat' is not in 'a dog'" in refused(capfd, *args, "--pair", "a dog", "--target", "cat")
    assert "no label 'B-DOG'" in refused(
        capfd, "explain", "a dog", "--model", folders["tagger"], "--target", "dog=B-DOG"
    )
