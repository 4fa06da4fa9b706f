"""Where data sets come from: a file or folder, the hub, or a Python object that can be read again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaflow.arguments import checked, location
from gaflow.data.readers import (
    READERS,
    ROWS_AT_A_TIME,
    Columns,
    check_columns,
    check_text_column,
    need_pyarrow,
    reader_of,
)
from gaflow.errors import Argument, ArgumentTypeError, DataError, GaflowError
from gaflow.extras import need
from gaflow.inputs.columns import ArrowFrame, all_items, as_items, is_data_set, is_frame

_FILE_SUFFIXES = (  # readable or not; names on the hub may have a dot, but do not end in one of these
    *READERS, ".txt", ".json", ".xml", ".html", ".md", ".xls", ".xlsx", ".ods", ".arrow", ".feather", ".npy", ".npz",
    ".pkl", ".pickle", ".pt", ".db", ".sqlite", ".zip", ".tar", ".tgz", ".bz2", ".xz", ".zst", ".gz",
)  # fmt: skip
LabelNames = Sequence[str] | Mapping[Any, str | int]  # names of labels 0, 1, ..., or label -> the model's
RawRow = tuple[Any, Any, Any]  # text, pair and label as the source has them


@dataclass(frozen=True)
class DataSet:
    """Rows that can be read any number of times, always the same ones in the same order."""

    name: str
    read: Callable[[], Iterator[RawRow]]
    columns: Columns
    label_names: LabelNames | None = None  # from the caller of `open_data`
    class_names: tuple[str, ...] = ()  # of labels 0, 1, ..., as the data set itself has them


@checked
def open_data(
    source: Any,
    *,
    text_column: str = "text",
    pair_column: str | None = None,
    label_column: str | None = None,
    label_names: LabelNames | None = None,
    split: str = "test",
    subset: str | None = None,
    revision: str | None = None,
) -> DataSet:
    """A data set from a path, a hub id, a frame or Series, a `datasets.Dataset`, a list, or a function.

    Files are Parquet (also a folder of them), CSV, TSV and JSON Lines. A list holds texts, (text, pair) tuples or
    mappings with the columns. Frames are those of pandas, polars, Arrow and whatever else Arrow can read. A function
    returns an iterator over the same. `label_names` says what labels mean to the model: names of 0, 1, ..., or a
    mapping from labels to the model's. By default numbers are class indices, and strings the model's labels. `split`,
    `subset` and `revision` are for the hub.

        data = open_data("reviews.csv", text_column="body", label_column="stars")
        attribute(explainer, data, "attributions", ["agf"])
    """
    if isinstance(source, DataSet):
        return source
    columns = Columns(text_column, pair_column, label_column)
    if is_frame(source):
        return _from_frame(source, columns, label_names)
    if isinstance(source, str | Path):
        path = location("source", source).expanduser()
        if path.exists() or isinstance(source, Path) or _must_be_path(source):
            if not path.exists():
                raise DataError(f"no such file: {str(path)!r}; give a path or the id of a data set on the hub")
            read = reader_of(path)
            return DataSet(path.name, lambda: map(columns.values, read(path, columns)), columns, label_names)
        name = "/".join(part for part in (source, subset, split) if part)
        return _from_library(_load_from_hub(source, subset, split, revision), name, columns, label_names)
    if is_data_set(source):
        return _from_library(source, "a datasets.Dataset", columns, label_names)
    check_source("source", source)
    if not callable(source):
        source = all_items(source)
    name = "a list" if isinstance(source, list) else getattr(source, "__name__", "a function")
    return DataSet(name, lambda: _memory_rows(source, columns, name), columns, label_names)


def check_source(name: str, source: object) -> None:
    """Refuse an argument that `open_data` cannot read."""
    if isinstance(source, DataSet | str | Path | Sequence) or callable(source):
        return
    if is_frame(source) or is_data_set(source) or as_items(source) is not None:
        return
    advice = "a source that can be read only once cannot be resumed after an interruption"
    if isinstance(source, Mapping):
        advice = "choose one of its entries, such as a split of a DatasetDict"
    elif hasattr(source, "collect"):
        advice = "collect it into a frame first"
    raise ArgumentTypeError(
        Argument(name),
        " must be a path, a hub id, a list of texts, a frame or a function that returns an iterator, not "
        f"{type(source).__name__}; {advice}",
    )


def _must_be_path(source: str) -> bool:
    if source.startswith((".", "/", "~")) or source.count("/") > 1 or "\\" in source or not source.strip():
        return True
    return source.lower().endswith(_FILE_SUFFIXES)


def _load_from_hub(name: str, subset: str | None, split: str, revision: str | None) -> Any:
    need("datasets", "hub", f"there is no file {name!r}, and data sets of the hub need the library datasets")
    import datasets

    try:
        return datasets.load_dataset(name, subset, split=split, revision=revision)
    except GaflowError:
        raise
    except Exception as error:  # the network, and files of strangers, cause anything in the library
        first_line = str(error).strip().split("\n")[0]
        raise DataError(f"there is no file {name!r}, and it cannot be loaded from the hub: {first_line}") from error


def _from_library(table: Any, name: str, columns: Columns, label_names: LabelNames | None) -> DataSet:
    """A `datasets.Dataset`, with the names that it gives its labels."""
    check_columns(columns.names, list(table.column_names or ()), name)
    features = table.features or {}
    names = getattr(features.get(columns.label), "names", None) or ()
    class_names = tuple(str(name) for name in names)
    selected = table.select_columns(columns.names)
    return DataSet(
        name,
        lambda: map(columns.values, selected),
        columns,
        label_names=label_names,
        class_names=class_names,
    )


def _from_frame(frame: ArrowFrame, columns: Columns, label_names: LabelNames | None) -> DataSet:
    """A frame of pandas, polars or Arrow, read in blocks of rows."""
    need_pyarrow()
    import pyarrow as pa
    from pyarrow.interchange import from_dataframe

    name = f"a {type(frame).__module__.partition('.')[0]}.{type(frame).__name__}"
    check_columns(columns.names, _column_names(frame), name)
    try:
        table = pa.table(frame) if hasattr(frame, "__arrow_c_stream__") else from_dataframe(frame)
        table = table.select(columns.names)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"{name} cannot be read as an Arrow table: {error}") from error
    for column in (columns.text, columns.pair):
        if column is not None:
            check_text_column(column, table.schema, name)

    def read() -> Iterator[RawRow]:
        for batch in table.to_batches(max_chunksize=ROWS_AT_A_TIME):
            yield from map(columns.values, batch.to_pylist())

    return DataSet(name, read, columns, label_names)


def _column_names(frame: ArrowFrame) -> list[str]:
    """The names of the columns, which Arrow has under another name: its `columns` are the columns themselves."""
    names = getattr(frame, "column_names", frame.columns)
    return [str(name) for name in names]


def _memory_rows(source: Any, columns: Columns, name: str) -> Iterator[RawRow]:
    """The rows of a list, or of a function that returns an iterator."""
    rows = source if isinstance(source, Sequence) else source()
    for number, row in enumerate(rows):
        if isinstance(row, Mapping):
            if number == 0:
                check_columns(columns.names, [str(column) for column in row], name)
            yield columns.values(row)
        elif isinstance(row, tuple) and len(row) == 2:
            text, pair = row
            yield text, pair, None
        else:
            yield row, None, None
