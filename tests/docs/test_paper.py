"""The table of the paper's items: all sixty are there, and what it names exists."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "paper.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if re.match(r"\| \d", line)
]
NAMES = sorted(set(re.findall(r"`(gaflow\.[\w.]+)`", PAGE.read_text(encoding="utf-8"))))


def resolve(name: str) -> Any:
    """The module or attribute of a dotted name; a field of a dataclass counts, too."""
    module_name, *parts = name.split(".")
    value = import_module(module_name)
    for part in parts:
        fields = getattr(value, "__dataclass_fields__", {})
        if part in fields:
            return fields[part]
        if not hasattr(value, part):
            import_module(f"{value.__name__}.{part}")
        value = getattr(value, part)
    return value


def test_all_sixty_items_are_there():
    assert [int(row[0]) for row in ROWS] == list(range(1, 61))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_an_item_has_a_link_a_name_and_a_state(row):
    _, item, where, state = row
    assert item
    assert re.search(r"\]\([^)]+\)", where)
    assert re.search(r"`gaflow\.", where)
    assert re.match(r"exact|more|differs: ", state), state


@pytest.mark.parametrize("name", NAMES)
def test_a_name_exists(name):
    assert resolve(name) is not None
