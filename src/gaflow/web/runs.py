"""Folders and files that the server was started with: data-set runs, row by row, and saved attributions.

Requests name them as `ServerSettings.runs` does. No path comes from a request.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from gaflow.attribution.export import as_json
from gaflow.errors import DataError
from gaflow.jobs.manifest import MANIFEST, Manifest
from gaflow.jobs.stored import Stored, read_attributions
from gaflow.web.problems import HttpProblem

_COLUMNS = ("row", "text", "text_pair", "method", "label", "probability", "prediction", "gold_label", "error")


def describe_run(name: str, path: Path) -> dict[str, Any]:
    """What a run holds."""
    if path.is_file():
        return {"name": name, "kind": "attribution"}
    if not (path / MANIFEST).exists():
        return {"name": name, "kind": "files"}
    try:
        manifest = Manifest.read(path)
    except DataError as error:
        return {"name": name, "kind": "unreadable", "problem": str(error)}
    return {
        "name": name,
        "kind": "run",
        "texts": manifest.texts,
        "finished": manifest.finished,
        "methods": [method["name"] for method in manifest.job["methods"]],
        "model": manifest.job["model"].get("name"),
    }


def rows_of(path: Path, method: str | None, offset: int, count: int, wrong: bool) -> dict[str, Any]:
    """Stored rows from `offset` on, at most `count`; `wrong` leaves out texts whose prediction is their label."""
    if path.is_file():
        raise HttpProblem(422, "this is a single saved attribution, not a run; open it", "name")
    stored = read_attributions(path, methods=None if method is None else [method], verify=False)
    if wrong:
        stored = (row for row in stored if row.gold_label is not None and row.gold_label != row.prediction)
    rows = list(islice(stored, offset, offset + count + 1))
    return {
        "rows": [_row(row) for row in rows[:count]],
        "offset": offset,
        "more": len(rows) > count,
    }


def _row(stored: Stored) -> Any:
    values: dict[str, Any] = {name: getattr(stored, name) for name in _COLUMNS}
    values["scores"] = stored.scores
    values["tokens"] = stored.tokens
    return as_json(values)
