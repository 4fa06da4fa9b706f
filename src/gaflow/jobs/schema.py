"""The columns of stored attributions, and rows of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

from gaflow.attribution.attribution import Attribution
from gaflow.data import Row
from gaflow.data.readers import pyarrow_module
from gaflow.explainer.many import TextResults

__all__ = ["SCHEMA", "arrow_schema", "records", "shard_bytes", "text_hash"]

VERSION = 1  # counts up when an older reader would misread a newer file
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
_REPEATED = ["text", "pair", "text_hash", "method", "label", "prediction", "gold_label", "tokens.list.element"]
_GROUP = 4096  # rows of a row group: what a reader holds at least


def arrow_schema() -> Any:
    """The same as an Arrow schema."""
    pa = pyarrow_module("pyarrow")

    def kind(name: str) -> Any:
        if name.startswith("list<"):
            return pa.list_(kind(name[5:-1]))
        return {"double": pa.float64(), "bool": pa.bool_()}.get(name) or getattr(pa, name)()

    fields = [pa.field(name, kind(text)) for name, text in SCHEMA.items()]
    return pa.schema(fields, metadata={"gaflow.schema": str(VERSION)})


def text_hash(text: str, pair: str | None = None) -> str:
    """SHA-256 of a text, or of a text and its pair."""
    digest = sha256(text.encode())
    if pair is not None:
        digest.update(b"\xff" + pair.encode())  # a byte that no text has
    return digest.hexdigest()


def records(row: Row, several: TextResults, methods: Iterable[str], labels: Sequence[str]) -> list[dict[str, Any]]:
    """The stored rows of one text, one for each method."""
    common = {
        "row": row.number,
        "text": row.text,
        "pair": row.text_pair,
        "text_hash": text_hash(row.text, row.text_pair),
        "gold": row.gold,
        "gold_label": None if row.gold is None else labels[row.gold],
    }
    found, tokens = [], {}
    for method in methods:
        result = several.by_method[method]
        if isinstance(result, str):
            found.append(common | {"method": method, "error": result})
            continue
        same = id(result.tokens), id(result.offsets), id(result.segments)  # of one encoding, for all methods
        if same not in tokens:
            tokens[same] = _tokens(result)
        found.append(common | tokens[same] | _columns(result) | {"method": method, "logits": several.logits})
    return found


def _tokens(att: Attribution) -> dict[str, Any]:
    return {
        "tokens": att.tokens,
        "offsets": [list(span) for span in att.offsets],
        "segments": att.segments,
        "special_mask": att.special_mask,
    }


def _columns(att: Attribution) -> dict[str, Any]:
    target, contrast = att.target if isinstance(att.target, tuple) else (att.target, None)
    certificate = None if att.certificate is None else att.certificate.to_dict()
    if certificate is not None:
        del certificate["seconds"]  # would differ from run to run
    return {
        "scores": att.scores,
        "target": target,
        "contrast": contrast,
        "label": att.label,
        "probability": att.probability,
        "output": att.output,
        "prediction": att.prediction,
        "truncated": att.truncated,
        "facts": _json(dict(att.diagnostics)),
        "certificate": None if certificate is None else _json(certificate),
    }


def _json(values: dict[str, Any]) -> str:
    """JSON has no infinities."""
    plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
    return json.dumps(plain, sort_keys=True)


def shard_bytes(found: Sequence[dict[str, Any]]) -> bytes:
    """A Parquet file of stored rows: the same rows give the same bytes."""
    pa, pq = pyarrow_module("pyarrow"), pyarrow_module("pyarrow.parquet")
    columns = {name: [record.get(name) for record in found] for name in SCHEMA}
    table = pa.Table.from_pydict(columns, schema=arrow_schema())
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=_GROUP, compression="zstd", use_dictionary=_REPEATED)
    return sink.getvalue().to_pybytes()
