"""A folder of Parquet tables that any library reads, and a JSON description of them.

The convention this file owns: the description is written last, so a folder with one is complete.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gaflow.extras import need
from gaflow.files import write_atomically

__all__ = ["StoredTables", "read_tables", "write_tables"]

_DESCRIPTION = "evaluation.json"
_TIMINGS = "timings.json"

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
    import pyarrow.parquet

    folder.mkdir(parents=True, exist_ok=True)
    for name in (_DESCRIPTION, *optional):
        (folder / name).unlink(missing_ok=True)
    for name, columns in content.tables.items():
        data = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table(dict(columns)), data, compression="zstd")
        write_atomically(folder / name, data.getvalue())
    _write_json(folder / _TIMINGS, content.timings)
    _write_json(folder / _DESCRIPTION, content.description)


def read_tables(folder: Path) -> StoredTables:
    """Read what `write_tables` wrote."""
    need("pyarrow.parquet", "data", "Parquet files need pyarrow")
    import pyarrow.parquet

    path = folder / _DESCRIPTION
    if not path.is_file():
        raise FileNotFoundError(f"no evaluation in {folder}: there is no {_DESCRIPTION}")
    description = json.loads(path.read_text("utf-8"))
    tables = {}
    for file in sorted(folder.glob("*.parquet")):
        table = pyarrow.parquet.read_table(file)
        tables[file.name] = {name: table[name].to_numpy() for name in table.column_names}
    timings = {}
    if (folder / _TIMINGS).is_file():
        timings = json.loads((folder / _TIMINGS).read_text("utf-8"))
    return StoredTables(tables, description, timings)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    text = json.dumps(dict(value), indent=2, ensure_ascii=False)
    write_atomically(path, f"{text}\n".encode())
