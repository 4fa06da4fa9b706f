import json

from tests.support.coverage_by_room import HEADER, coverage_by_room, covered_share, main


def file(statements, lines, branches, covered_branches):
    summary = {
        "num_statements": statements,
        "covered_lines": lines,
        "num_branches": branches,
        "covered_branches": covered_branches,
    }
    return {"summary": summary}


FILES = {
    "src/gaflow/flow/solve.py": file(10, 9, 4, 1),
    "/somewhere/gaflow/flow/linear/system.py": file(5, 5, 0, 0),
    "src/gaflow/errors.py": file(1, 0, 0, 0),
    "src/gaflow/data/__init__.py": file(0, 0, 0, 0),
}


def test_rooms_sum_up_their_files_and_all_comes_last(tmp_path, capsys):
    rooms = coverage_by_room(FILES)
    assert list(rooms) == ["data", "errors.py", "flow", "all"]
    assert {name: covered_share(counts) for name, counts in rooms.items()} == {
        "data": 0,
        "errors.py": 0,
        "flow": 15 / 19,
        "all": 15 / 20,
    }
    path = tmp_path / "coverage.json"
    path.write_text(json.dumps({"files": FILES}))
    main(str(path))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == HEADER
    assert lines[-1].split() == ["all", "16", "4", "75.0", "%"]
