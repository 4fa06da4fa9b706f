import argparse
import os
import sys
import zipfile
from importlib import import_module

import pytest

from benchmarks import evidence
from benchmarks.evidence import TABLES, TINY, Outcome, Places, Schedule, Sizes, Step, archive, steps_of, summary

pytest.importorskip("pyarrow")
SCRIPT = "tests.support.step"


@pytest.fixture
def places(tmp_path):
    return Places(
        base="base", data=tmp_path / "data", out=tmp_path / "out", results=tmp_path / "results", device="cpu", seed=0
    )


def schedule(places, steps, **settings):
    defaults = {"jobs": 2, "seconds": None, "reserve": 0.0}
    return Schedule(steps=steps, out=places.out, results=places.results, **{**defaults, **settings})


class Parsed(Exception):
    """The command line of a script was accepted."""


@pytest.mark.parametrize("sizes", [Sizes(), TINY], ids=["full", "tiny"])
def test_every_script_takes_the_arguments_that_it_gets(places, sizes, monkeypatch):
    parse = argparse.ArgumentParser.parse_args

    def parse_and_stop(self, *arguments):
        parse(self, *arguments)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    steps = steps_of(TABLES, places, sizes)
    for step in steps:
        command = step.command(seconds=12.0)
        assert ("--seconds" in command) == step.takes_seconds
        monkeypatch.setattr(sys, "argv", command[2:])
        with pytest.raises(Parsed):
            import_module(step.script).main()
    names = [step.name for step in steps]
    assert len(names) == len(set(names))
    for number, step in enumerate(steps):
        assert set(step.needs) <= set(names[:number])


def test_classifiers_are_trained_once_for_all_tables_that_read_them(places):
    names = [step.name for step in steps_of(["stability", "normalized_aopc"], places, Sizes())]
    assert names == ["train-sst2", "stability", "normalized_aopc"]
    assert [step.name for step in steps_of(["planted_pair"], places, Sizes())] == ["planted_pair"]


def test_every_method_of_the_rationales_is_computed_by_one_process_for_each_data_set(places):
    steps = steps_of(["rationales"], places, Sizes())
    by_set = {}
    for step in steps:
        if "--sets" in step.arguments:
            data = step.arguments[step.arguments.index("--sets") + 1]
            by_set.setdefault(data, []).extend(step.arguments[step.arguments.index("--methods") + 1].split(","))
    table = steps[-1]
    methods = sorted(table.arguments[table.arguments.index("--methods") + 1].split(","))
    assert by_set.keys() == {"movie_rationales", "hatexplain"}
    assert all(sorted(computed) == methods for computed in by_set.values())


def test_steps_begin_when_what_they_need_is_done(places, tmp_path):
    first = Step("first", SCRIPT, (str(tmp_path / "a"),))
    ready = Step("made", SCRIPT, ("never run",), made=tmp_path)
    second = Step(
        "second",
        SCRIPT,
        (str(places.results / "b.md"), "--wait-for", str(tmp_path / "a")),
        needs=("first", "made"),
        results=("b.md",),
    )
    packed = []
    outcomes = schedule(places, [second, first, ready], after_each=lambda outcomes: packed.append(list(outcomes))).run()
    assert {name: outcome.status for name, outcome in outcomes.items()} == {
        "made": "was there",
        "first": "done",
        "second": "done",
    }
    assert outcomes["second"].results == [places.results / "b.md"]
    assert packed[-1] == ["made", "first", "second"]
    assert "wrote b.md" in (places.out / "logs/second.log").read_text()


def test_a_step_that_fails_costs_those_that_need_it_but_tables_are_written_of_the_rest(places, tmp_path):
    good = Step("good", SCRIPT, (str(tmp_path / "a"),))
    bad = Step("bad", SCRIPT, (str(tmp_path / "b"), "--code", "4"))
    next_one = Step("next", SCRIPT, (str(tmp_path / "c"),), needs=("bad",))
    table = Step("table", SCRIPT, (str(tmp_path / "d"),), needs=("good", "bad", "next"), collects=True)
    outcomes = schedule(places, [good, bad, next_one, table], jobs=1).run()
    assert outcomes["bad"].status == "failed (4)"
    assert not (tmp_path / "c").exists()
    assert outcomes["next"].status.startswith("left out")
    assert outcomes["table"].is_done


def test_at_the_end_of_the_time_steps_are_ended_and_tables_written(places, tmp_path):
    endless = Step("endless", SCRIPT, (str(tmp_path / "a"), "--wait-for", str(tmp_path / "never")))
    late = Step("late", SCRIPT, (str(tmp_path / "b"),), needs=("endless",))
    table = Step("table", SCRIPT, (str(tmp_path / "c"),), needs=("endless",), collects=True, takes_seconds=True)
    outcomes = schedule(places, [endless, late, table], seconds=300.0, reserve=299.0).run()
    assert outcomes["endless"].status == "ended"
    assert outcomes["late"].status.startswith("left out")
    assert outcomes["table"].is_done
    assert (tmp_path / "c").read_text() == "seconds 0"


def test_results_of_an_earlier_run_are_not_taken_for_new_ones(places, tmp_path):
    places.results.mkdir()
    old = places.results / "old.md"
    old.write_text("of another run")
    os.utime(old, (0, 0))
    step = Step("broken", SCRIPT, (str(tmp_path / "a"), "--code", "1"), results=("old.md",))
    assert schedule(places, [step]).run()["broken"].results == []


def test_the_archive_has_results_logs_and_records_but_no_weights(places):
    for name in ("logs/a.log", "models/sst2/training.json", "models/sst2/model.safetensors"):
        file = places.out / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    places.results.mkdir()
    (places.results / "a.md").write_text("a table")
    outcomes = {"a": Outcome("done", 2.0, [places.results / "a.md"]), "b": Outcome("failed (1)", 1.0)}
    path = places.out / "all.zip"
    archive(path, places.out, outcomes, "an earlier summary")
    archive(path, places.out, outcomes, summary(outcomes, {"seed": 0}))
    assert sorted(places.out.glob("*.zip*")) == [path]
    with zipfile.ZipFile(path) as package:
        assert sorted(package.namelist()) == ["logs/a.log", "models/sst2/training.json", "results/a.md", "summary.md"]
        text = package.read("summary.md").decode()
    assert "| a | 2 | done | a.md |" in text
    assert "| b | 1 | failed (1) |  |" in text


def test_an_unknown_table_is_refused_with_the_names_that_there_are(tmp_path, capsys):
    arguments = ["--base", "b", "--data", str(tmp_path), "--out", str(tmp_path / "out"), "--list"]
    with pytest.raises(SystemExit):
        evidence.main([*arguments, "--only", "stabiliti"])
    assert "stability" in capsys.readouterr().err
    evidence.main([*arguments, "--only", "answers"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines] == ["benchmarks.train_located", "benchmarks.located_tasks"]


def test_classifiers_of_another_kind_of_run_are_not_taken_for_those_of_this_one(tmp_path):
    assert evidence.begun_differently(tmp_path / "out", {"seed": 0, "tiny": True}) == ""
    assert evidence.begun_differently(tmp_path / "out", {"seed": 0, "tiny": True}) == ""
    assert evidence.begun_differently(tmp_path / "out", {"seed": 1, "tiny": True}) == "seed 0"
