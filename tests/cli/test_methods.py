import json
import re
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import pytest

from gaflow.methods import METHODS, FlowMethod, MethodInfo, Scores
from tests.support.commands import gives


@pytest.fixture(autouse=True)
def window(plain, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_every_method_is_listed_with_what_it_is_and_takes(capfd):
    rows = json.loads(gives(capfd, "methods", "--json"))
    assert [row["name"] for row in rows] == list(METHODS)
    for row, method in zip(rows, METHODS.values(), strict=True):
        info = method.info
        assert row["description"].endswith(".")
        expected = {f.name: getattr(info, f.name) for f in fields(MethodInfo)}
        assert {f.name: row[f.name] for f in fields(MethodInfo)} == {**expected, "libraries": list(info.libraries)}
        settings: Any = method
        names = settings.options if isinstance(method, FlowMethod) else [f.name for f in fields(settings)]
        assert list(row["settings"]) == list(names)
    assert {row["name"]: row["settings"] for row in rows}["rollout"] == {"residual": 0.5}


def test_the_table_fits_eighty_columns_and_has_a_line_to_search_for(capfd):
    table = gives(capfd, "methods")
    assert max(len(line) for line in table.splitlines()) <= 80
    assert table.splitlines()[0].split() == ["name", "family", "signed", "class-specific", "passes"]
    for row in json.loads(gives(capfd, "methods", "--json")):
        yes = {True: "yes", False: "no"}
        facts = [row["name"], row["family"], yes[row["signed"]], yes[row["class_specific"]], row["passes"]]
        assert re.search("^" + " +".join(re.escape(fact) for fact in facts), table, re.M)
        if row["reference"] != "none":
            assert row["reference"] in " ".join(table.split())
        if row["extra"]:
            assert f"Extra: {row['extra']}." in " ".join(table.split())


@dataclass(frozen=True)
class Loud:
    """Shouts.

    At length."""

    volume: int = 11
    name = "loud"
    info: ClassVar[MethodInfo] = MethodInfo(
        "noise", True, False, "1 forward", "Tufnel 1984\x1b[31m", ("marshall",), "amps"
    )

    def __call__(self, trace):
        return Scores(trace.mask.double() * self.volume)


class Silent:
    name = "silent"

    def __call__(self, trace):
        return Scores(trace.mask.double())


def test_what_a_method_says_about_itself_is_shown_and_never_obeyed(capfd, monkeypatch):
    monkeypatch.setattr("gaflow.cli.methods.METHODS", {**METHODS, "loud": Loud(), "silent": Silent()})
    loud, silent = json.loads(gives(capfd, "methods", "--json"))[-2:]
    assert loud == {
        "name": "loud",
        "description": "Shouts.",
        "family": "noise",
        "signed": True,
        "class_specific": False,
        "passes": "1 forward",
        "reference": "Tufnel 1984\x1b[31m",
        "libraries": ["marshall"],
        "extra": "amps",
        "settings": {"volume": 11},
    }
    assert silent["settings"] == {}
    assert silent["passes"] is None
    output = gives(capfd, "methods")
    assert re.search(
        r"^loud +noise +yes +no +1 forward\n +Shouts\. Tufnel 1984\\x1b\[31m\. Extra: amps\.$", output, re.M
    )
    assert re.search(r"^silent +- +- +- +-$", output, re.M)
