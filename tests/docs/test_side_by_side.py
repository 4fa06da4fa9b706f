from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOWN = 7  # columns


def table_rows(text):
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| method")]
    return [[cell.strip() for cell in line.strip("|").split("|")][:SHOWN] for line in lines]


@pytest.mark.parametrize(
    ("result", "heading"), [("side_by_side_sst2.md", "## A MiniLM"), ("side_by_side.md", "## The embedded")]
)
def test_tables_of_the_page_are_those_of_the_committed_results(result, heading):
    page = (ROOT / "docs" / "side_by_side.md").read_text()
    section = page.partition(heading)[2].partition("\n## ")[0]
    expected = table_rows((ROOT / "benchmarks" / "results" / result).read_text())
    assert len(expected) == 8
    assert table_rows(section) == expected
