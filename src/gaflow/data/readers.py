"""Parquet, CSV and JSON Lines files as streams of tuples, one value for each column that is asked for.

The convention this file owns: text is never guessed at. Columns of CSV are read as the characters they are, JSON
strings as strings; "NA", "null" and "2024-01-01" are texts like any other.
"""

from __future__ import annotations

import difflib
import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gaflow.errors import DataError, MissingExtraError

__all__ = ["READERS", "Reader", "check_columns", "parquet_files", "pyarrow_module", "reader_of"]

Reader = Callable[[Path, Sequence[str], Sequence[str]], Iterator[tuple[Any, ...]]]  # (path, columns, those of text)

_ROWS = 512  # held at a time as Python objects
_BLOCK = 16 << 20  # bytes of CSV held at a time; no row may be longer


def pyarrow_module(name: str) -> Any:
    """A module of pyarrow, or what to install."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"Parquet and CSV need pyarrow ({error}); run: pip install 'gaflow[data]'") from error


def reader_of(path: Path) -> Reader:
    """How to read a file, by the end of its name."""
    name = path.name.lower().removesuffix(".gz")
    for suffix, reader in READERS.items():
        if name.endswith(suffix):
            return reader
    if path.is_dir():
        return _read_parquet
    raise DataError(f"cannot tell what {str(path)!r} holds; its name should end in {', '.join(READERS)} (.gz or not)")


def check_columns(wanted: Iterable[str], there: Sequence[str], name: str) -> None:
    """Refuse a column that is not there, naming those that are, and one that is there more than once."""
    for column in wanted:
        if column not in there:
            near = difflib.get_close_matches(column, there, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise DataError(f"{name} has no column {column!r}{hint} Its columns are {', '.join(map(repr, there))}")
        if there.count(column) > 1:
            raise DataError(f"{name} has {there.count(column)} columns {column!r}; give each a name of its own")


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder, in the order of their names."""
    found = sorted(p for p in folder.glob("*.parquet") if not p.name.startswith("."))
    if not found:
        raise DataError(f"the folder {str(folder)!r} holds no .parquet file")
    return found


@contextmanager
def _spoken(path: Path, kind: str) -> Iterator[None]:
    """What pyarrow cannot read, said in one line."""
    pa = pyarrow_module("pyarrow")
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError) as error:
        reason = str(error).strip().split("\n")[0][:300]
        raise DataError(f"{str(path)!r} cannot be read as {kind}: {reason}") from error


def _read_parquet(path: Path, columns: Sequence[str], texts: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    pq = pyarrow_module("pyarrow.parquet")
    for file in parquet_files(path) if path.is_dir() else [path]:
        with _spoken(file, "Parquet"), pq.ParquetFile(file) as opened:
            schema = opened.schema_arrow
            check_columns(columns, schema.names, repr(file.name))
            for column in texts:
                _check_text_type(schema.field(column).type, column, schema, file.name)
            for batch in opened.iter_batches(batch_size=_ROWS, columns=list(dict.fromkeys(columns))):
                yield from zip(*(batch.column(c).to_pylist() for c in columns), strict=True)


def _check_text_type(found: Any, column: str, schema: Any, name: str) -> None:
    def is_text(kind: Any) -> bool:
        return "string" in str(kind.value_type if hasattr(kind, "indices") or "dictionary" in str(kind) else kind)

    if not is_text(found):
        others = [repr(f.name) for f in schema if is_text(f.type)]
        listed = f"columns of text are {', '.join(others)}" if others else "there is no column of text"
        raise DataError(f"{name!r}: column {column!r} holds {found}, not text; {listed}")


def _read_csv(path: Path, columns: Sequence[str], texts: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    csv, pa = pyarrow_module("pyarrow.csv"), pyarrow_module("pyarrow")
    tab = path.name.lower().removesuffix(".gz").endswith(".tsv")
    parse = csv.ParseOptions(delimiter="\t" if tab else ",", newlines_in_values=True)
    unique = list(dict.fromkeys(columns))

    def opened(**options: Any) -> Any:
        read = csv.ReadOptions(block_size=_BLOCK, use_threads=False)
        return csv.open_csv(path, read, parse, csv.ConvertOptions(**options))

    if path.stat().st_size == 0:
        return
    with _spoken(path, "CSV"):
        with opened() as reader:
            check_columns(columns, reader.schema.names, repr(path.name))
        with opened(include_columns=unique, column_types=dict.fromkeys(unique, pa.string())) as reader:
            for block in reader:
                for start in range(0, block.num_rows, _ROWS):
                    batch = block.slice(start, _ROWS)
                    yield from zip(*(batch.column(c).to_pylist() for c in columns), strict=True)


def _read_jsonl(path: Path, columns: Sequence[str], texts: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    start = gzip.open if path.name.lower().endswith(".gz") else open
    checked = False
    with start(path, "rt", encoding="utf-8-sig", errors="strict", newline="\n") as lines:
        for number, line in _numbered(lines, path):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{path.name!r}, line {number}, is no JSON: {error}") from error
            if not isinstance(row, dict):
                raise DataError(f'{path.name!r}, line {number}, is no JSON object such as {{"text": "..."}}')
            if not checked:
                check_columns(columns, list(row), repr(path.name))
                checked = True
            yield tuple(row.get(column) for column in columns)


def _numbered(lines: Iterable[str], path: Path) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        for number, line in enumerate(lines, 1):
            yield number, line
    except UnicodeDecodeError as error:
        raise DataError(f"{path.name!r}, after line {number}, is not UTF-8 ({error.reason}); convert it") from error
    except (EOFError, gzip.BadGzipFile) as error:
        raise DataError(f"{path.name!r}, after line {number}, cannot be unpacked: {error}") from error


READERS: dict[str, Reader] = {
    ".parquet": _read_parquet,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
}
