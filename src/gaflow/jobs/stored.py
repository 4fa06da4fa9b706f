"""Stored attributions, read back one at a time: ours, and those that other libraries wrote with the same columns.

A file from elsewhere needs `text`, `scores`, `method` and one of `tokens` and `offsets`. Other columns are used if they
are present and of the right type.

The convention this file owns: a stored attribution that is read is consistent (one score, offset and flag for each
token, all scores finite, offsets inside the text). One that is not is an error that names file and row.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gaflow.arguments import checked, location
from gaflow.attribution.attribution import Attribution
from gaflow.attribution.files import check_offsets
from gaflow.attribution.layer_names import layer_in_name
from gaflow.data.readers import check_columns, open_parquet, parquet_files
from gaflow.errors import DataError, GaflowError
from gaflow.flow.result import Certificate
from gaflow.inputs.encoding import Text, locate
from gaflow.inputs.segmentation import Span
from gaflow.jobs.folder import check_shard
from gaflow.jobs.manifest import MANIFEST, Manifest
from gaflow.jobs.schema import FORMAT_KEY, SCHEMA, VERSION, Record, conform, text_hash
from gaflow.methods.base import Diagnostics
from gaflow.schemas.check import SCHEMAS, check, check_arrays, check_format, parse_json
from gaflow.tasks.targets import ResolvedTarget

REQUIRED_COLUMNS = ("text", "scores", "method")
_UNCHANGED = ("row", "method", "label", "probability", "output", "prediction", "gold", "gold_label", "error")
_ROWS = 256  # held at a time
_FIELDS = SCHEMAS["attribution"]["properties"]
_DTYPES = {"scores": np.float64, "offsets": np.int64, "segments": np.int64, "special_mask": np.bool_}


@dataclass(frozen=True, eq=False)
class Stored:
    """One stored row: a text under a method. Fields that a file from elsewhere lacks are None."""

    text: str
    method: str
    scores: np.ndarray | None  # (t,) float64; None where there is an error
    row: int | None = None
    text_pair: str | None = None
    text_hash: str = ""
    tokens: tuple[str, ...] | None = None  # (t,)
    offsets: tuple[Span, ...] | None = None  # (t,)
    segments: tuple[int, ...] | None = None  # (t,) 0: text, 1: pair, -1: special
    target: ResolvedTarget | None = None
    label: str | None = None
    probability: float | None = None
    output: float | None = None
    prediction: str | None = None
    logits: tuple[float, ...] | None = None  # (c,)
    gold: int | None = None
    gold_label: str | None = None
    truncated: bool = False
    diagnostics: Diagnostics = field(default_factory=dict)
    certificate: Mapping[str, Any] | None = None
    error: str | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)  # from the manifest; empty for files without one

    @property
    def input(self) -> Text:
        """The text, or the text and its pair, as the explainer takes them."""
        return self.text if self.text_pair is None else (self.text, self.text_pair)

    @property
    def special_mask(self) -> np.ndarray | None:
        """(t,) bool: tokens that the tokenizer added; None where the segments are not stored."""
        if self.segments is None:
            return None
        return np.array(self.segments) < 0

    def attribution(self) -> Attribution:
        """The same as an Attribution, without flow and layers, which are not stored."""
        required = ("scores", "tokens", "offsets", "segments", "target", "label", "output", "prediction")
        missing = [name for name in required if getattr(self, name) is None]
        if missing:
            raise GaflowError(f"{self.error or 'the stored row'}: no {', '.join(missing)}, so no Attribution")
        optional = ("text", "text_pair", "method", "probability", "truncated", "diagnostics")
        values: Record = {name: getattr(self, name) for name in (*required, *optional)}
        values["origin"] = self.provenance
        if self.certificate is not None:
            values["layer"] = layer_in_name(self.method)
            values["certificate"] = Certificate(**self.certificate)
        return Attribution(**values)


@checked
def read_attributions(
    path: str | Path, *, methods: Sequence[str] | None = None, verify: bool = True
) -> Iterator[Stored]:
    """All stored attributions of a job's folder, a folder of Parquet files or one file, in their order.

    `methods` selects by name. `verify` compares the shards of a job with their checksums first.

        for stored in read_attributions("attributions", methods=["agf"]):
            print(stored.row, stored.scores)
    """
    path = location("path", path)
    if not path.exists():
        raise DataError(f"no such file or folder: {str(path)!r}")
    return _read(path, None if methods is None else tuple(methods), verify)


def _read(path: Path, methods: Sequence[str] | None, verify: bool) -> Iterator[Stored]:
    if not (path / MANIFEST).exists():
        for file in parquet_files(path):
            yield from read_file(file, methods)
        return
    manifest = Manifest.read(path)
    for shard in manifest.in_order():
        if verify:
            check_shard(path, shard)
        for stored in read_file(path / shard.file, methods):
            yield replace(stored, provenance=manifest.provenance(stored.method))


def read_file(
    file: Path, methods: Sequence[str] | None = None, columns: Collection[str] = tuple(SCHEMA)
) -> Iterator[Stored]:
    """The stored attributions of one file; fields of other `columns` are None, and scores may be without tokens."""
    for number, row in enumerate(_records(file, columns)):
        if methods is not None and row["method"] not in methods:
            continue
        try:
            stored = _parse(row)
        except ValueError as error:
            raise DataError(f"{str(file)!r}, row {number}: {error}") from error
        yield stored


def _records(file: Path, columns: Collection[str]) -> Iterator[Record]:
    with open_parquet(file) as opened:
        _check_written_by(file, opened.schema_arrow.metadata or {})
        present = opened.schema_arrow.names
        used = [name for name in columns if name in present]
        check_columns((*REQUIRED_COLUMNS, *used), present, repr(str(file)))
        if "tokens" not in present and "offsets" not in present:
            raise DataError(f"{str(file)!r} has neither 'tokens' nor 'offsets', so scores belong to nothing")
        for batch in opened.iter_batches(batch_size=_ROWS, columns=used):
            yield from conform(batch).to_pylist()


def _check_written_by(file: Path, metadata: Mapping[bytes, bytes]) -> None:
    """Refuse a file of a newer gaflow; files of other libraries do not say a format."""
    written = metadata.get(FORMAT_KEY.encode(), str(VERSION).encode())
    version = int(written) if written.isdigit() and len(written) < 10 else written
    check_format(file, version, "row")


def _parse(row: Record) -> Stored:
    check(row, SCHEMAS["row"])
    text = row["text"]
    pair = row.get("pair")
    target: Any = row.get("target")
    contrast = row.get("contrast")
    if contrast is not None and target is None:
        raise ValueError("there is a contrast, but no target")
    logits = row.get("logits")
    diagnostics = _with_nan(parse_json(row.get("facts") or "{}"))
    check(diagnostics, _FIELDS["facts"], "facts")
    values: Record = {name: row.get(name) for name in _UNCHANGED}
    if values["error"] is None and row["scores"] is not None:
        values |= _parse_scores(row)
    else:
        values |= {"scores": None, "error": values["error"] or "there are no scores"}
    return Stored(
        text=text,
        text_pair=pair,
        text_hash=text_hash(text, pair),
        target=target if contrast is None else (target, contrast),
        logits=None if logits is None else tuple(logits),
        truncated=bool(row.get("truncated")),
        diagnostics=diagnostics,
        certificate=_parse_certificate(row.get("certificate")),
        **values,
    )


def _parse_certificate(stored: str | None) -> Mapping[str, Any] | None:
    """The fields of a Certificate; the time is not stored, since it would differ from run to run."""
    if not stored or stored == "null":
        return None
    certificate = _with_nan(parse_json(stored))
    if isinstance(certificate, dict):
        certificate = {"seconds": 0.0, **certificate}
    schema = _FIELDS["certificate"]
    check(certificate, schema, "certificate")
    numbers = {name: certificate[name] for name in schema["required"]}
    Certificate(**numbers).check_possible()
    return numbers


def _with_nan(values: object) -> Any:
    """Null stands for numbers that are not finite, which JSON lacks."""
    if not isinstance(values, dict):
        return values
    return {name: math.nan if value is None else value for name, value in values.items()}


def _parse_scores(row: Record) -> Record:
    """Scores, tokens, offsets and segments; tokens or offsets that are missing are derived from the text."""
    arrays = {}
    for name, dtype in _DTYPES.items():
        if row.get(name) is not None:
            arrays[name] = _array(row[name], dtype, name)
    check_arrays(arrays, "row", {})
    scores = arrays["scores"]
    if "tokens" not in row and "offsets" not in row:  # columns that were not read
        return {"scores": scores}
    tokens = row.get("tokens")
    if tokens is not None and len(tokens) != len(scores):
        raise ValueError(f"{len(scores)} scores but {len(tokens)} tokens")
    pair = row.get("pair")
    segments = arrays.get("segments")
    if segments is None and "special_mask" in arrays and pair is None:
        segments = np.where(arrays["special_mask"], -1, 0)
    token_segments = [0] * len(scores) if segments is None else segments.tolist()
    text = row["text"]
    if "offsets" in arrays:
        offsets = check_offsets(arrays["offsets"].tolist(), token_segments, len(text), len(pair or ""))
    elif tokens is not None:
        offsets = locate((text, pair), tokens, token_segments)
    else:
        raise ValueError("there are neither tokens nor offsets")
    if tokens is None:
        sources = {0: text, 1: pair or "", -1: ""}  # by segment
        tokens = []
        for (start, end), segment in zip(offsets, token_segments, strict=True):
            tokens.append(sources[segment][start:end])
    return {
        "scores": scores,
        "tokens": tuple(tokens),
        "offsets": offsets,
        "segments": None if segments is None else tuple(segments.tolist()),
    }


def _array(values: list[Any], dtype: type[np.generic], name: str) -> np.ndarray:
    try:
        return np.array(values, dtype=dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} has values that are missing, or lists of different lengths") from error
