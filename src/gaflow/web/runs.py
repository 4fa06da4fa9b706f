"""Folders and files that the server was started with: data-set runs, row by row, and saved attributions.

Requests name them as `ServerSettings.runs` does. No path comes from a request.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gaflow.attribution.attribution import Attribution
from gaflow.attribution.export import as_json
from gaflow.corpora.importances import corpus
from gaflow.errors import DataError
from gaflow.jobs.manifest import MANIFEST, Manifest
from gaflow.jobs.stored import Stored, read_attributions
from gaflow.web.problems import HttpProblem

if TYPE_CHECKING:
    from pandas import DataFrame

_COLUMNS = (
    "row", "text", "text_pair", "method", "label", "probability", "prediction", "gold_label", "error", "tokens",
    "scores", "offsets", "segments",
)  # fmt: skip


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


@dataclass(frozen=True)
class Filters:
    """Which rows of a run are wanted."""

    wrong: bool = False  # the prediction is not the label
    least_error: float | None = None  # of the certificate
    least_special: float | None = None  # share of the scores that special tokens have
    contains: str = ""  # in the text, in any case

    def accept(self, stored: Stored) -> bool:
        """Whether a row passes all of them; one that does not know a number does not pass its filter."""
        if self.wrong and (stored.gold_label is None or stored.gold_label == stored.prediction):
            return False
        if self.least_error is not None:
            error = certificate_error(stored)
            if error is None or error < self.least_error:
                return False
        if self.least_special is not None:
            share = special_share(stored)
            if share is None or share < self.least_special:
                return False
        words = self.contains.casefold()
        return words in stored.text.casefold() or words in (stored.text_pair or "").casefold()


def rows_of(path: Path, method: str | None, offset: int, count: int, filters: Filters) -> dict[str, Any]:
    """Stored rows that pass the filters, from `offset` on, at most `count`."""
    accepted = filter(filters.accept, _stored(path, method))
    rows = list(islice(accepted, offset, offset + count + 1))
    return {
        "rows": [_row(row) for row in rows[:count]],
        "offset": offset,
        "more": len(rows) > count,
    }


def attribution_of_row(path: Path, row: int, method: str | None) -> Attribution:
    """The stored attribution of a row."""
    for stored in _stored(path, method):
        if stored.row == row:
            return stored.attribution()
    by = "" if method is None else f" by {method!r}"
    raise HttpProblem(404, f"this run has no row {row}{by}", "row")


def words_of(path: Path, method: str | None, length: int, minimum: int, top: int) -> dict[str, Any]:
    """Importances of words by class: for each class the `top` words for it and against it."""
    if path.is_file():
        raise HttpProblem(422, "this is a single file, not a run", "name")
    table = corpus(path, method=method, length=length, minimum=minimum)
    classes = {}
    for name, rows in table.groupby("class", sort=True):
        highest = rows.loc[rows["share"] >= 0]
        lowest = rows.loc[rows["share"] < 0].iloc[::-1]
        classes[str(name)] = {"for": _words(highest.head(top)), "against": _words(lowest.head(top))}
    attributes = {name: table.attrs[name] for name in ("method", "texts", "left_out")}
    return as_json({"classes": classes, **attributes})


def _words(table: DataFrame) -> list[dict[Hashable, Any]]:
    records = table.to_dict("records")
    for record in records:
        record["examples"] = [asdict(example) for example in record["examples"]]
    return records


def special_share(stored: Stored) -> float | None:
    """The share of the absolute scores that special tokens have."""
    special = stored.special_mask
    if stored.scores is None or special is None:
        return None
    sizes = np.abs(stored.scores)
    total = float(sizes.sum())
    return float(sizes[special].sum()) / total if total > 0 else 0.0


def certificate_error(stored: Stored) -> float | None:
    """The largest relative error that the certificate admits; None without a certificate."""
    certificate = stored.certificate
    if certificate is None:
        return None
    return max(float(certificate[name]) for name in ("conservation", "dual", "centrality"))


def _stored(path: Path, method: str | None) -> Iterator[Stored]:
    if path.is_file():
        raise HttpProblem(422, "this is a single saved attribution, not a run; open it", "name")
    return read_attributions(path, methods=None if method is None else [method], verify=False)


def _row(stored: Stored) -> Any:
    values: dict[str, Any] = {name: getattr(stored, name) for name in _COLUMNS}
    values["special_share"] = special_share(stored)
    values["certificate_error"] = certificate_error(stored)
    return as_json(values)
