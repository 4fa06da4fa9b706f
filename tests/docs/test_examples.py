"""Every example in the documentation runs and prints what it says."""

import doctest
import re
import shlex
from pathlib import Path

import pytest

from gaflow.cli import main
from gaflow.methods import METHODS

ROOT = Path(__file__).parents[2]
GENERATED = {"project", "results"}  # folders of the site that hold copies of other pages
PAGES = [
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.parent.name not in GENERATED),
]
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
SHOWN = [
    (page, command, output)
    for page in PAGES
    for command, output in re.findall(r"```console\n\$ gaflow (.*?)\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_print_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # what an example writes, it writes there
    text = page.read_text(encoding="utf-8").replace("```", "")  # a fence would count as expected output
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=report.append)
    assert result.failed == 0, "".join(report)


@pytest.mark.parametrize(("page", "command", "output"), SHOWN, ids=[f"{p.name}: {c}" for p, c, _ in SHOWN])
def test_the_commands_of_a_page_print_what_it_shows(page, command, output, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(shlex.split(command)) == 0
    printed = capfd.readouterr().out
    assert doctest.OutputChecker().check_output(output, printed, OPTIONS), printed


def test_the_pages_do_have_examples():
    assert SHOWN
    assert sum(page.read_text(encoding="utf-8").count(">>>") for page in PAGES) > 5


def test_the_table_of_methods_says_what_the_methods_say():
    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in text.splitlines() if line[:3] == "| `"]
    expected = []
    for name, method in METHODS.items():
        info = method.info
        authors = "" if info.reference == "none" else info.reference.rpartition(",")[0]
        yes = ["yes" if fact else "no" for fact in (info.signed, info.class_specific)]
        expected.append([f"`{name}`", *yes, info.passes, authors])
    assert [[row[0], *row[2:]] for row in rows] == expected
