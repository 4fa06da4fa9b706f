"""`python -m tests.support.coverage_by_room coverage.json` says how much of each room the tests ran."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path, PurePath

HEADER = f"{'room':<16}{'statements':>11}{'branches':>10}{'covered':>9}"


def coverage_by_room(files: dict[str, dict]) -> dict[str, Counter[str]]:
    """Sums of the summaries of files, as `coverage json` gives them, for each room and for all together."""
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    for path, file in files.items():
        parts = PurePath(path).parts
        room = parts[parts.index("gaflow") + 1]
        for name in (room, "all"):
            for key in ("num_statements", "covered_lines", "num_branches", "covered_branches"):
                rooms[name][key] += file["summary"][key]
    return dict(sorted(rooms.items(), key=lambda item: (item[0] == "all", item[0])))


def covered_share(counts: Counter[str]) -> float:
    """The share of statements and branches that ran, as in coverage's own reports."""
    total = counts["num_statements"] + counts["num_branches"]
    return (counts["covered_lines"] + counts["covered_branches"]) / max(1, total)


def main(path: str) -> None:
    """Print a line for every room."""
    files = json.loads(Path(path).read_text(encoding="utf-8"))["files"]
    print(HEADER)
    for room, counts in coverage_by_room(files).items():
        share = f"{100 * covered_share(counts):.1f} %"
        print(f"{room:<16}{counts['num_statements']:>11}{counts['num_branches']:>10}{share:>9}")


if __name__ == "__main__":
    main(sys.argv[1])
