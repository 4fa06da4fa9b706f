import ast
import importlib
import re
from collections import defaultdict

import pytest

from tests.support.rooms import (
    CONTRIBUTING,
    END,
    FACADE,
    FILES,
    MAY_IMPORT,
    PLUMBING,
    SOURCE,
    description,
    room_of,
    rooms_imported,
    written,
)

INNER = [path for path in FILES if path.parent != SOURCE or path.stem in PLUMBING or path.stem in MAY_IMPORT]


@pytest.mark.parametrize("path", INNER, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_only_what_the_table_allows(path):
    room = room_of(path)
    allowed = {*PLUMBING[room]} if room in PLUMBING else {*PLUMBING, *MAY_IMPORT[room]}
    facade = {imported for file, imported in FACADE if file == path}
    assert rooms_imported(path) <= allowed | facade


def test_the_table_has_no_cycle():
    before = set()
    for room, allowed in MAY_IMPORT.items():
        below = set(allowed) - before
        assert not below, f"{room} may import {below}, which stand below it"
        before.add(room)


def test_the_root_holds_plumbing_and_no_room():
    modules = {path.stem for path in SOURCE.glob("*.py")}
    assert modules == {"__init__", "__main__", *PLUMBING}
    assert len(modules) <= 8


def test_the_explainer_is_a_facade_that_leaves_the_work_to_its_room():
    text = (SOURCE / "explainer" / "explainer.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 250


def test_every_folder_is_in_the_table():
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert folders == set(MAY_IMPORT)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_is_described_in_one_sentence(room):
    sentence = description(room)
    assert sentence.endswith(".")
    assert ". " not in sentence.replace("e.g. ", "")


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_exports_its_public_names(room):
    module = importlib.import_module(f"gaflow.{room}")
    assert module.__all__
    for name in module.__all__:
        assert hasattr(module, name)


def test_the_map_in_contributing_is_that_of_the_code():
    assert CONTRIBUTING.read_text(encoding="utf-8") == written(), "run python -m tests.support.rooms"


def test_the_files_and_names_of_the_table_of_changes_exist():
    text = CONTRIBUTING.read_text(encoding="utf-8")
    _, _, after_rooms = text.partition(END)
    rows = [line for line in after_rooms.splitlines() if line.startswith("| ")]
    root = CONTRIBUTING.parent
    missing = []
    for row in rows:
        for path in re.findall(r"`([a-z_/]+\.(?:py|json|md|toml))`", row):
            if not (SOURCE / path).exists() and not (root / path).exists():
                missing.append(path)
        names = re.findall(r"`([a-z_/]+\.py)`: `(\w+)`", row)
        names += [(path, name) for name, path in re.findall(r"`(\w+)` in `([a-z_/]+\.py)`", row)]
        for path, name in names:
            file = SOURCE / path if (SOURCE / path).exists() else root / path
            if not re.search(rf"\b{name}\b", file.read_text(encoding="utf-8")):
                missing.append(f"{path}: {name}")
    assert rows
    assert missing == []


def test_no_two_public_classes_share_a_name():
    homes = defaultdict(list)
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


# Modules of the same name that do the same job in their rooms.
SAME_JOB = {
    "arguments.py",  # checks of the room's arguments
    "attribution.py",  # the result, and the ways of showing it
    "batch.py",  # texts that run together: as tensors, and explained
    "editing.py",  # changes of a network, and of the result that holds it
    "files.py",  # what is stored, and how
    "matches.py",  # which words of two texts match
    "media.py",  # pictures and sounds
    "progress.py",  # how far a long run is
    "report.py",  # the benchmark's report, and its command
    "result.py",  # what the room's main function returns
    "run.py",  # starts the work of the room
}


def test_modules_share_a_file_name_only_where_they_do_the_same_job():
    rooms = defaultdict(set)
    for path in FILES:
        if path.name != "__init__.py":
            rooms[path.name].add(str(path.parent.relative_to(SOURCE)))
    shared = {name for name, folders in rooms.items() if len(folders) > 1}
    assert shared <= set(SAME_JOB)
