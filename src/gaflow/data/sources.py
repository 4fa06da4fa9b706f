"""Where data sets come from: a file or folder, the hub, or a Python object that can be read again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaflow.data.readers import READERS, check_columns, reader_of
from gaflow.errors import DataError, GaflowError, MissingExtraError

__all__ = ["DataSet", "LabelNames", "open_data"]

_ENDINGS = (  # of files, readable or not; names on the hub may well have a dot, but end in none of these
    *READERS, ".txt", ".json", ".xml", ".html", ".md", ".xls", ".xlsx", ".ods", ".arrow", ".feather", ".npy", ".npz",
    ".pkl", ".pickle", ".pt", ".db", ".sqlite", ".zip", ".tar", ".tgz", ".bz2", ".xz", ".zst", ".gz",
)  # fmt: skip
LabelNames = Sequence[str] | Mapping[Any, str | int]  # names of labels 0, 1, ..., or label -> the model's


@dataclass(frozen=True)
class DataSet:
    """Rows that can be read any number of times, always the same ones in the same order."""

    name: str
    read: Callable[[], Iterator[tuple[Any, Any, Any]]]  # (text, pair, label) as they are found
    text_column: str = "text"
    pair_column: str | None = None
    label_column: str | None = None
    label_names: LabelNames | None = None  # given by who opened it
    own_names: tuple[str, ...] = ()  # of labels 0, 1, ..., as the data set itself says


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
    """A data set from a path, a hub id, a `datasets.Dataset`, a list, or a function that gives an iterator.

    Files are Parquet (also a folder of them), CSV, TSV and JSON Lines. A list holds texts, (text, pair) tuples or
    mappings with the columns. `label_names` says what labels mean to the model: names of 0, 1, ..., or a mapping from
    labels to the model's; by default numbers are class indices, and strings the model's labels. `split`, `subset` and
    `revision` are for the hub.
    """
    columns = (text_column, pair_column, label_column)
    own: tuple[str, ...] = ()
    if isinstance(source, DataSet):
        return source
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        if path.exists() or isinstance(source, Path) or _must_be_path(source):
            name, read = path.name, _file_rows(path, columns)
        else:
            name = "/".join(filter(None, (source, subset, split)))
            read, own = _object_rows(_load_hub(source, subset, split, revision), columns, name)
    elif hasattr(source, "column_names") and hasattr(source, "features"):
        name = "a datasets.Dataset"
        read, own = _object_rows(source, columns, name)
    elif isinstance(source, Sequence) or callable(source):
        name = "a list" if isinstance(source, Sequence) else getattr(source, "__name__", "a function")
        read = _memory_rows(source, columns, name)
    else:
        raise TypeError(
            f"source must be a path, a hub id, a list of texts or a function that gives an iterator, not "
            f"{type(source).__name__}; what can be read only once cannot be taken up again after an interruption"
        )
    return DataSet(name, read, text_column, pair_column, label_column, label_names, own)


def _must_be_path(source: str) -> bool:
    looks = source.startswith((".", "/", "~")) or source.count("/") > 1 or "\\" in source or not source.strip()
    return looks or source.lower().endswith(_ENDINGS)


def _file_rows(path: Path, columns: tuple[str, str | None, str | None]) -> Callable[[], Iterator[tuple[Any, Any, Any]]]:
    if not path.exists():
        raise DataError(f"no such file: {str(path)!r}; give a path or the id of a data set on the hub")
    reader = reader_of(path)
    text, pair, label = columns
    wanted = [c for c in columns if c is not None]
    texts = [c for c in (text, pair) if c is not None]

    def read() -> Iterator[tuple[Any, Any, Any]]:
        for values in reader(path, wanted, texts):
            found: dict[str | None, Any] = dict(zip(wanted, values, strict=True))
            yield found[text], found.get(pair), found.get(label)

    return read


def _load_hub(name: str, subset: str | None, split: str, revision: str | None) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError(
            f"there is no file {name!r}, and data sets of the hub need the library datasets; "
            "run: pip install 'gaflow[hub]'"
        ) from error
    try:
        return datasets.load_dataset(name, subset, split=split, revision=revision)
    except GaflowError:
        raise
    except Exception as error:  # whatever the network and strangers' files cause in the library
        first = str(error).strip().split("\n")[0]
        raise DataError(f"there is no file {name!r}, and it cannot be loaded from the hub: {first}") from error


def _object_rows(
    table: Any, columns: tuple[str, str | None, str | None], name: str
) -> tuple[Callable[[], Iterator[tuple[Any, Any, Any]]], tuple[str, ...]]:
    """Rows of a `datasets.Dataset`, and the names that it gives its labels."""
    text, pair, label = columns
    wanted = [c for c in columns if c is not None]
    check_columns(wanted, list(table.column_names or ()), name)
    chosen = table.select_columns(list(dict.fromkeys(wanted)))

    def read() -> Iterator[tuple[Any, Any, Any]]:
        for row in chosen:
            yield row[text], row.get(pair), row.get(label)

    names = getattr((table.features or {}).get(label), "names", None) or ()
    return read, tuple(str(n) for n in names)


def _memory_rows(
    source: Any, columns: tuple[str, str | None, str | None], name: str
) -> Callable[[], Iterator[tuple[Any, Any, Any]]]:
    text, pair, label = columns

    def read() -> Iterator[tuple[Any, Any, Any]]:
        rows: Any = source() if callable(source) else source
        for number, row in enumerate(rows):
            if isinstance(row, Mapping):
                if number == 0:
                    check_columns([c for c in columns if c is not None], [str(c) for c in row], name)
                yield row.get(text), row.get(pair), row.get(label)
            elif isinstance(row, tuple) and len(row) == 2:
                yield row[0], row[1], None
            else:
                yield row, None, None

    return read
