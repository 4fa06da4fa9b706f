"""Every example in the documentation runs and prints what it says."""

import doctest
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_print_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # what an example writes, it writes there
    text = page.read_text(encoding="utf-8").replace("```", "")  # a fence would count as expected output
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=options).run(test, out=report.append)
    assert result.failed == 0, "".join(report)


def test_the_pages_do_have_examples():
    assert sum(page.read_text(encoding="utf-8").count(">>>") for page in PAGES) > 5
