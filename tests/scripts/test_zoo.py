"""The table of models says what a run of it would say."""

import json
import re

import pytest

from benchmarks.zoo import ROOT, Finding, check, inspect, limited, page, row
from benchmarks.zoo_models import TASKS, build, classes, trace_output

PAGE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
STORED = json.loads((ROOT / "benchmarks" / "results" / "zoo.json").read_text(encoding="utf-8"))
TEXT, PICTURE = "text-classification", "image-classification"


def stored():
    records = [{**f, "shape": None if f["shape"] is None else tuple(f["shape"])} for f in STORED["findings"]]
    return [Finding(**f) for f in records]


def section(task):
    """Rows of one task, by type."""
    title = f"## {task[0].upper()}{task[1:].replace('-', ' ')}\n"
    lines = PAGE.split(title)[1].split("\n## ")[0].splitlines()
    return {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")}


@pytest.mark.parametrize("task", TASKS)
def test_every_type_of_a_task_has_its_row(task):
    assert list(section(task))[1:] == list(classes(task))


def test_the_page_is_made_of_the_stored_findings():
    assert page(stored(), STORED["transformers"]) == PAGE


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        (TEXT, "bart"),
        (TEXT, "bert"),
        (TEXT, "big_bird"),
        (TEXT, "canine"),
        (TEXT, "convbert"),
        (TEXT, "funnel"),
        (TEXT, "gpt2"),
        (TEXT, "jamba"),
        (TEXT, "longformer"),
        (TEXT, "xlnet"),
        ("token-classification", "funnel"),
        ("question-answering", "led"),
        ("fill-mask", "esm"),
        ("fill-mask", "fnet"),
        (PICTURE, "resnet"),
        (PICTURE, "swin"),
        (PICTURE, "vit"),
        ("audio-classification", "hubert"),
    ],
)
def test_a_type_is_still_what_its_row_says(task, kind):
    assert row(inspect(task, kind)) == section(task)[kind]


def test_nothing_failed_and_every_traced_model_passed_every_check_or_says_why():
    findings = stored()
    assert [f.type for f in findings if f.outcome == "failed"] == []
    assert [f.type for f in findings if f.outcome == "traced" and not f.sound] == ["cvt"]
    assert "wrong for a single picture" in section(PICTURE)["cvt"]


def test_the_readme_counts_right():
    findings = stored()
    count, traced = len(findings), sum(f.outcome == "traced" for f in findings)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"\b{traced} of the {count}\b", readme)


def test_a_model_that_is_not_left_as_found_is_caught(monkeypatch):
    model = build("bert", TEXT)
    blank = Finding(TEXT, "bert", "BertForSequenceClassification", "not built")
    assert check(model, blank).sound
    original = trace_output

    def careless(model, *args):
        model.bert.encoder.training = True
        return original(model, *args)

    monkeypatch.setattr("benchmarks.zoo.trace_output", careless)
    finding = check(model, blank)
    assert not finding.sound
    assert "not left as found" in row(finding)


def forever():
    while True:
        pass


def test_what_takes_too_long_is_given_up():
    with pytest.raises(TimeoutError, match="more than 1 s"), limited(1):
        forever()
