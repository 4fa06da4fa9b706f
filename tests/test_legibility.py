import ast
from pathlib import Path

import pytest

from tests.support.legibility import (
    STAND_INS,
    bound_names,
    long_positional_calls,
    measure,
    own_size,
    records,
    untyped_values,
)
from tests.support.rooms import FILES, SOURCE

TESTS = Path(__file__).parent
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


def test_a_statement_says_one_thing():
    figures = measure(FILES)
    assert figures.nodes_per_statement <= 13
    assert figures.heavy_share <= 0.09
    assert figures.comprehensions <= 65
    assert figures.ternaries <= 40
    assert figures.parallel_assignments <= 5


@pytest.mark.parametrize("folder", [SOURCE, TESTS], ids=["src", "tests"])
def test_names_say_what_they_hold(folder):
    stand_ins = []
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for name, line in bound_names(tree):
            if name in STAND_INS:
                stand_ins.append(f"{path.relative_to(folder)}:{line} {name}")
    assert stand_ins == []


def test_most_values_have_a_type():
    assert sum(untyped_values(tree) for tree in TREES.values()) < 150


def test_records_of_many_fields_are_built_by_name():
    names = {name for tree in TREES.values() for name in records(tree)}
    by_position = []
    for path, tree in TREES.items():
        for name, line in long_positional_calls(tree, names):
            by_position.append(f"{path.relative_to(SOURCE)}:{line} {name}")
    assert by_position == []


def test_the_size_of_a_statement_does_not_count_the_statements_inside_it():
    loop = ast.parse("for x in y:\n    z = f(x, y, z)").body[0]
    assert own_size(loop) == own_size(ast.parse("for x in y: pass").body[0])
