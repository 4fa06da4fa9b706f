"""Parquet, CSV and JSON Lines files as streams of rows.

The convention this file owns: text is never converted. Columns of CSV are read as the characters they are, JSON strings
as strings; "NA", "null" and "2024-01-01" are texts like any other. This is why JSON is not read by pyarrow, which would
turn dates into timestamps and needs one type for each column.
"""

from __future__ import annotations

import difflib
import gzip
import zlib
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from gaflow.errors import DataError
from gaflow.extras import need
from gaflow.schemas.check import parse_json
from gaflow.schemas.check import reading as reading_file

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_A_TIME = 512  # held at a time as Python objects
_HEAD = 1 << 16  # bytes that show whether a file is text
_BLOCK = 16 << 20  # bytes of CSV held at a time; no row may be longer, nor a line of JSON
_ROWS_IN_GROUP = 1 << 24  # that a row group of Parquet may always have, however small the file is
_ROWS_PER_BYTE = 64  # of the file, and more than that it may not have: a few bytes can stand for billions of rows
_BYTES_PER_ROW = 16  # likewise, unpacked


@dataclass(frozen=True)
class Columns:
    """The columns to read."""

    text: str = "text"
    pair: str | None = None
    label: str | None = None

    @property
    def names(self) -> list[str]:
        """All of them, each once."""
        names = [name for name in (self.text, self.pair, self.label) if name is not None]
        return list(dict.fromkeys(names))

    def values(self, row: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """Text, pair and label of a row."""
        pair = None if self.pair is None else row.get(self.pair)
        label = None if self.label is None else row.get(self.label)
        return row.get(self.text), pair, label


Rows = Iterator[Mapping[str, Any]]  # column -> value
Reader = Callable[[Path, Columns], Rows]


def need_pyarrow() -> None:
    """Raise an error that says what to install if pyarrow is missing."""
    need("pyarrow.parquet", "data", "Parquet and CSV need pyarrow")


def reader_of(path: Path) -> Reader:
    """The reader for a file, by its suffix, or for a folder of Parquet files."""
    name = _uncompressed_name(path)
    for suffix, reader in READERS.items():
        if name.endswith(suffix):
            return reader
    if path.is_dir():
        return _read_parquet
    raise DataError(f"cannot tell what {str(path)!r} holds; its name should end in {', '.join(READERS)} (.gz or not)")


def _uncompressed_name(path: Path) -> str:
    return path.name.lower().removesuffix(".gz")


def check_columns(required: Iterable[str], present: Sequence[str], source: str) -> None:
    """Refuse a column that `source` does not have, naming those it has, and one that it has more than once."""
    for column in required:
        count = present.count(column)
        if count > 1:
            raise DataError(f"{source} has {count} columns {column!r}; give each a name of its own")
        if count == 0:
            near = difflib.get_close_matches(column, present, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            listed = ", ".join(repr(name) for name in present)
            raise DataError(f"{source} has no column {column!r}{hint} Its columns are {listed}")


def parquet_files(path: Path) -> list[Path]:
    """A file itself, or the Parquet files of a folder in the order of their names."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.glob("*.parquet") if not file.name.startswith("."))
    if not files:
        raise DataError(f"the folder {str(path)!r} holds no .parquet file")
    return files


@contextmanager
def reading(path: Path, file_format: str = "Parquet") -> Iterator[None]:
    """Turn what pyarrow says of an unreadable file into a DataError of one line."""
    need_pyarrow()
    import pyarrow as pa

    with reading_file(path, file_format):
        try:
            yield
        except (pa.ArrowException, LookupError, OverflowError, EOFError, zlib.error) as error:
            raise ValueError(error) from error


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """A `pyarrow.parquet.ParquetFile`, unless it declares far more rows or bytes than its size can hold."""
    with reading(path):
        import pyarrow.parquet as pq

        most = max(_ROWS_IN_GROUP, _ROWS_PER_BYTE * path.stat().st_size)
        with pq.ParquetFile(path) as opened:
            for number in range(opened.metadata.num_row_groups):
                group = opened.metadata.row_group(number)  # of whose columns damaged metadata would end the process
                if group.num_rows > most or group.total_byte_size > _BYTES_PER_ROW * most:
                    raise ValueError(
                        f"row group {number} declares {group.num_rows:,} rows, too many for so small a file"
                    )
            yield opened


def _read_parquet(path: Path, columns: Columns) -> Rows:
    for file in parquet_files(path):
        with open_parquet(file) as opened:
            schema = opened.schema_arrow
            check_columns(columns.names, schema.names, repr(file.name))
            for column in (columns.text, columns.pair):
                if column is not None:
                    check_text_column(column, schema, file.name)
            for batch in opened.iter_batches(batch_size=ROWS_AT_A_TIME, columns=columns.names):
                yield from batch.to_pylist()


def check_text_column(column: str, schema: pa.Schema, name: str) -> None:
    """Refuse a column of an Arrow schema that holds no strings, naming those that do."""
    column_type = schema.field(column).type
    if _is_text(column_type):
        return
    text_columns = ", ".join(repr(field.name) for field in schema if _is_text(field.type))
    hint = f"columns of text are {text_columns}" if text_columns else "there is no column of text"
    raise DataError(f"{name!r}: column {column!r} holds {column_type}, not text; {hint}")


def _is_text(column_type: object) -> bool:
    """Whether a column holds strings, dictionary-encoded ones included."""
    return "string" in str(column_type)


def _read_csv(path: Path, columns: Columns) -> Rows:
    need_pyarrow()
    import pyarrow as pa
    from pyarrow import csv

    delimiter = "\t" if _uncompressed_name(path).endswith(".tsv") else ","
    read = csv.ReadOptions(block_size=_BLOCK, use_threads=False)
    parse = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    as_text = csv.ConvertOptions(include_columns=columns.names, column_types=dict.fromkeys(columns.names, pa.string()))
    if path.stat().st_size == 0:
        return
    with reading(path, "CSV"):
        _check_utf8(path)
        with csv.open_csv(path, read, parse) as opened:
            check_columns(columns.names, opened.schema.names, repr(path.name))
        with csv.open_csv(path, read, parse, as_text) as opened:
            for block in opened:
                for start in range(0, block.num_rows, ROWS_AT_A_TIME):
                    yield from block.slice(start, ROWS_AT_A_TIME).to_pylist()


def _check_utf8(path: Path) -> None:
    """Refuse a picture or an office document under the name of a table, whose bytes pyarrow would take for columns."""
    open_file = gzip.open if path.name.lower().endswith(".gz") else open
    with open_file(path, "rb") as file:
        beginning = file.read(_HEAD)
    try:
        text = getincrementaldecoder("utf-8")().decode(beginning)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise DataError(f"{path.name!r} is not a text file in UTF-8; give a CSV file, or convert it")


def _read_jsonl(path: Path, columns: Columns) -> Rows:
    open_file = gzip.open if path.name.lower().endswith(".gz") else open
    checked = False
    with open_file(path, "rt", encoding="utf-8-sig", errors="strict", newline="\n") as lines:
        for number, line in _numbered(lines, path):
            if not line.strip():
                continue
            try:
                row = parse_json(line)
            except ValueError as error:
                raise DataError(f"{path.name!r}, line {number}, is no JSON: {error}") from error
            if not isinstance(row, dict):
                raise DataError(f'{path.name!r}, line {number}, is no JSON object such as {{"text": "..."}}')
            if not checked:
                check_columns(columns.names, list(row), repr(path.name))
                checked = True
            yield row


def _numbered(lines: TextIO, path: Path) -> Iterator[tuple[int, str]]:
    """Lines with their numbers from 1; what cannot be decoded is an error with the number of the line before."""
    number = 0
    try:
        while line := lines.readline(_BLOCK):
            if len(line) == _BLOCK:
                raise DataError(f"{path.name!r}, line {number + 1}, is longer than {_BLOCK:,} characters; shorten it")
            number += 1
            yield number, line
    except UnicodeDecodeError as error:
        raise DataError(f"{path.name!r}, after line {number}, is not UTF-8 ({error.reason}); convert it") from error
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path.name!r}, after line {number}, cannot be unpacked: {error}") from error


READERS: dict[str, Reader] = {
    ".parquet": _read_parquet,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
}
