"""The columns of stored attributions, and the rows of one text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from gaflow.attribution.attribution import Attribution
from gaflow.attribution.export import as_json
from gaflow.data.readers import need_pyarrow
from gaflow.data.rows import Row
from gaflow.explainer.many import TextResults
from gaflow.schemas.check import SCHEMAS

if TYPE_CHECKING:
    import pyarrow as pa

ArrowTable = TypeVar("ArrowTable", "pa.Table", "pa.RecordBatch")

Record = dict[str, Any]  # one stored row: column -> value; a column that is missing is null

VERSION = SCHEMAS["formats"]["row"]  # counts up when an older reader would misread a newer file
FORMAT_KEY = "gaflow.schema"  # of the version in the metadata of a file
SCHEMA = {  # column -> Arrow type
    "row": "int64",
    "text": "string",
    "pair": "string",
    "text_hash": "string",
    "method": "string",
    "tokens": "list<string>",
    "offsets": "list<list<int32>>",
    "segments": "list<int8>",
    "special_mask": "list<bool>",
    "scores": "list<double>",
    "target": "int32",
    "contrast": "int32",
    "label": "string",
    "probability": "double",
    "output": "double",
    "prediction": "string",
    "logits": "list<double>",
    "gold": "int32",
    "gold_label": "string",
    "truncated": "bool",
    "facts": "string",
    "certificate": "string",
    "error": "string",
}
_DICTIONARY_ENCODED = [  # columns whose values repeat
    "text", "pair", "text_hash", "method", "label", "prediction", "gold_label", "tokens.list.element",
]  # fmt: skip
_ATTRIBUTION_FIELDS = (  # columns that are fields of an Attribution
    "tokens", "offsets", "segments", "special_mask", "scores",
    "label", "probability", "output", "prediction", "truncated",
)  # fmt: skip
_ROW_GROUP = 4096  # rows; a reader holds at least one group


def arrow_schema() -> Any:
    """SCHEMA as an Arrow schema."""
    need_pyarrow()
    import pyarrow as pa

    fields = [pa.field(name, _arrow_type(kind)) for name, kind in SCHEMA.items()]
    return pa.schema(fields, metadata={FORMAT_KEY: str(VERSION)})


def _arrow_type(name: str) -> Any:
    import pyarrow as pa

    if name.startswith("list<"):
        return pa.list_(_arrow_type(name.removeprefix("list<").removesuffix(">")))
    return pa.type_for_alias(name)


def conform(table: ArrowTable) -> ArrowTable:
    """A table or batch with the types of SCHEMA; ValueError if a column holds another kind of values."""
    import pyarrow as pa

    expected = []
    for column in table.schema:
        kind = _arrow_type(SCHEMA[column.name])
        if _family(column.type) not in (_family(kind), "null"):
            raise ValueError(f"column {column.name!r} holds {column.type}, not {kind}")
        expected.append(pa.field(column.name, kind))
    return table.cast(pa.schema(expected))


def _family(kind: pa.DataType) -> str:
    """Types whose values can stand for each other: strings, numbers, ..., and lists of such."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return _family(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return f"list of {_family(kind.value_type)}"
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    if types.is_integer(kind) or types.is_floating(kind):
        return "number"
    return str(kind)


def text_hash(text: str, pair: str | None = None) -> str:
    """SHA-256 of a text, or of a text and its pair."""
    digest = sha256(text.encode())
    if pair is not None:
        digest.update(b"\xff" + pair.encode())  # a byte that no text has
    return digest.hexdigest()


def records(row: Row, results: TextResults, methods: Iterable[str], labels: Sequence[str]) -> list[Record]:
    """The stored rows of one text, one for each method."""
    common: Record = {
        "row": row.number,
        "text": row.text,
        "pair": row.text_pair,
        "text_hash": text_hash(row.text, row.text_pair),
        "gold": row.gold,
        "gold_label": None if row.gold is None else labels[row.gold],
    }
    rows: list[Record] = []
    for method in methods:
        result = results.by_method[method]
        record = common | {"method": method}
        if isinstance(result, str):
            rows.append(record | {"error": result})
        else:
            rows.append(record | _result_columns(result) | {"logits": results.logits})
    return rows


def _result_columns(attribution: Attribution) -> Record:
    target = attribution.target
    contrast = None
    if isinstance(target, tuple):
        target, contrast = target
    certificate = None
    if attribution.certificate is not None:
        values = attribution.certificate.to_dict()
        del values["seconds"]  # would differ from run to run
        certificate = json.dumps(as_json(values), sort_keys=True)
    columns = {name: getattr(attribution, name) for name in _ATTRIBUTION_FIELDS}
    return columns | {
        "target": target,
        "contrast": contrast,
        "facts": json.dumps(as_json(attribution.diagnostics), sort_keys=True),
        "certificate": certificate,
    }


def shard_bytes(rows: Sequence[Record]) -> bytes:
    """A Parquet file of stored rows: the same rows give the same bytes."""
    schema = arrow_schema()
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {name: [row.get(name) for row in rows] for name in SCHEMA}
    table = pa.Table.from_pydict(columns, schema=schema)
    sink = pa.BufferOutputStream()
    dictionary: Any = _DICTIONARY_ENCODED  # pyarrow's types know only True and False
    pq.write_table(table, sink, row_group_size=_ROW_GROUP, compression="zstd", use_dictionary=dictionary)
    return sink.getvalue().to_pybytes()
