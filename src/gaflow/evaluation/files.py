"""A folder of Parquet tables that any library reads, and a JSON description of them.

The convention this file owns: the description is written last, so a folder with one is complete.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gaflow.data.readers import check_columns, open_parquet
from gaflow.extras import need
from gaflow.files import write_atomically
from gaflow.schemas.check import read_json

if TYPE_CHECKING:
    import pyarrow

DESCRIPTION = "evaluation.json"
_TIMINGS = "timings.json"
_KIND = "a file of an evaluation"

Columns = Mapping[str, np.ndarray]  # name -> (rows,)


@dataclass(frozen=True)
class StoredTables:
    """The content of a folder."""

    tables: Mapping[str, Columns]  # file name -> columns
    description: Mapping[str, Any]
    timings: Mapping[str, float]  # seconds, which differ from run to run


def write_tables(folder: Path, content: StoredTables, optional: Sequence[str] = ()) -> None:
    """Write `content` to `folder`, which is created if need be; `optional` tables of an older content are deleted."""
    need("pyarrow.parquet", "data", "Parquet files need pyarrow")
    import pyarrow

    folder.mkdir(parents=True, exist_ok=True)
    for name in (DESCRIPTION, *optional):
        (folder / name).unlink(missing_ok=True)
    for name, columns in content.tables.items():
        write_parquet(folder / name, pyarrow.table(dict(columns)))
    write_json(folder / _TIMINGS, content.timings)
    write_json(folder / DESCRIPTION, content.description)


def read_tables(folder: Path) -> StoredTables:
    """Read what `write_tables` wrote."""
    path = folder / DESCRIPTION
    if not path.is_file():
        raise FileNotFoundError(f"no evaluation in {folder}: there is no {DESCRIPTION}")
    description = read_json(path, "evaluation", _KIND)
    tables = {}
    for file in sorted(folder.glob("*.parquet")):
        with open_parquet(file) as opened:
            table = opened.read()
            check_columns(table.column_names, table.column_names, repr(str(file)))
            tables[file.name] = {name: table[name].to_numpy() for name in table.column_names}
    timings = {}
    if (folder / _TIMINGS).is_file():
        timings = read_json(folder / _TIMINGS, "timings", _KIND)
    return StoredTables(tables, description, timings)


def write_parquet(path: Path, table: pyarrow.Table) -> None:
    """Write a pyarrow.Table, whole or not at all."""
    import pyarrow.parquet

    data = io.BytesIO()
    pyarrow.parquet.write_table(table, data, compression="zstd")
    write_atomically(path, data.getvalue())


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write an indented document, whole or not at all."""
    text = json.dumps(dict(value), indent=2)  # in ASCII: names may hold half a character, which UTF-8 does not have
    write_atomically(path, f"{text}\n".encode())
