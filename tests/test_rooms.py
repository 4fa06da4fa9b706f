import pytest

from tests.support.rooms import FACADE, FILES, MAY_IMPORT, PLUMBING, SOURCE, room_of, rooms_imported

INNER = [path for path in FILES if path.parent != SOURCE or path.stem in PLUMBING or path.stem in MAY_IMPORT]

PENDING = {
    "cli/app.py",
}


@pytest.mark.parametrize("path", INNER, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_only_what_the_table_allows(path):
    room = room_of(path)
    allowed = {*PLUMBING[room]} if room in PLUMBING else {*PLUMBING, *MAY_IMPORT[room]}
    facade = {imported for file, imported in FACADE if file == path}
    pending = str(path.relative_to(SOURCE)) in PENDING
    assert (rooms_imported(path) <= allowed | facade) is not pending


def test_the_table_has_no_cycle():
    before = set()
    for room, allowed in MAY_IMPORT.items():
        below = set(allowed) - before
        assert not below, f"{room} may import {below}, which stand below it"
        before.add(room)
