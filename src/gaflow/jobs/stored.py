"""Stored attributions, read back one at a time: ours, and those that other libraries wrote with the same columns.

A file from elsewhere needs `text`, `scores`, `method` and one of `tokens` and `offsets`. Other columns are used if they
are present and of the right type.

The convention this file owns: a stored attribution that is read is consistent (one score, offset and flag for each
token, all scores finite, offsets inside the text). One that is not is an error that names file and row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gaflow.attribution.attribution import Attribution
from gaflow.attribution.layer_names import layer_in_name
from gaflow.data.readers import check_columns, parquet_files, reading
from gaflow.errors import Argument, ArgumentTypeError, DataError, GaflowError
from gaflow.flow.result import Certificate
from gaflow.inputs.encoding import Text
from gaflow.inputs.offsets import search_spans
from gaflow.inputs.segmentation import Span
from gaflow.jobs.folder import check_shard
from gaflow.jobs.manifest import MANIFEST, Manifest
from gaflow.jobs.schema import SCHEMA, Record, text_hash
from gaflow.tasks.targets import ResolvedTarget

__all__ = ["REQUIRED_COLUMNS", "Stored", "read_attributions"]

REQUIRED_COLUMNS = ("text", "scores", "method")
_UNCHANGED = ("row", "method", "label", "probability", "output", "prediction", "gold", "gold_label", "error")
_ROWS = 256  # held at a time
_TEXT = 0  # segments
_PAIR = 1
_SPECIAL = -1


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
    diagnostics: Mapping[str, float | str] = field(default_factory=dict)
    certificate: Mapping[str, Any] | None = None
    error: str | None = None

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
        values: dict[str, Any] = {name: getattr(self, name) for name in (*required, *optional)}
        if self.certificate is not None:
            values["layer"] = layer_in_name(self.method)
            values["certificate"] = Certificate(**{"seconds": 0.0, **self.certificate})
        return Attribution(**values)


def read_attributions(
    path: str | Path, *, methods: Sequence[str] | None = None, verify: bool = True
) -> Iterator[Stored]:
    """All stored attributions of a job's folder, a folder of Parquet files or one file, in their order.

    `methods` selects by name. `verify` compares the shards of a job with their checksums first.

        for stored in read_attributions("attributions", methods=["agf"]):
            print(stored.row, stored.scores)
    """
    path = Path(path)
    if isinstance(methods, str):
        raise ArgumentTypeError(Argument("methods"), f" must be a list of names, not the string {methods!r}")
    if not path.exists():
        raise DataError(f"no such file or folder: {str(path)!r}")
    return _read(path, None if methods is None else tuple(methods), verify)


def _read(path: Path, methods: Sequence[str] | None, verify: bool) -> Iterator[Stored]:
    if not (path / MANIFEST).exists():
        for file in parquet_files(path):
            yield from _read_file(file, methods)
        return
    for shard in Manifest.read(path).in_order():
        if verify:
            check_shard(path, shard)
        yield from _read_file(path / shard.file, methods)


def _read_file(file: Path, methods: Sequence[str] | None) -> Iterator[Stored]:
    for number, record in enumerate(_records(file)):
        if methods is not None and record["method"] not in methods:
            continue
        try:
            stored = _parse(record)
        except (TypeError, ValueError) as error:
            raise DataError(f"{str(file)!r}, row {number}: {error}") from error
        yield stored


def _records(file: Path) -> Iterator[Record]:
    with reading(file):
        import pyarrow.parquet as pq

        with pq.ParquetFile(file) as opened:
            present = opened.schema_arrow.names
            check_columns(REQUIRED_COLUMNS, present, repr(file.name))
            if "tokens" not in present and "offsets" not in present:
                raise DataError(f"{file.name!r} has neither 'tokens' nor 'offsets', so scores belong to nothing")
            columns = [name for name in SCHEMA if name in present]
            for batch in opened.iter_batches(batch_size=_ROWS, columns=columns):
                yield from batch.to_pylist()


def _parse(record: Record) -> Stored:
    text = record["text"]
    pair = record.get("pair")
    strings = {"text": text, "method": record["method"], "pair": "" if pair is None else pair}
    for name, value in strings.items():
        if not isinstance(value, str):
            raise TypeError(f"{name} is {type(value).__name__}, not text")
    target: Any = record.get("target")
    contrast = record.get("contrast")
    logits = record.get("logits")
    values: dict[str, Any] = {name: record.get(name) for name in _UNCHANGED}
    if values["error"] is None and record["scores"] is not None:
        values |= _parse_scores(record)
    else:
        values |= {"scores": None, "error": values["error"] or "there are no scores"}
    return Stored(
        text=text,
        text_pair=pair,
        text_hash=text_hash(text, pair),
        target=target if contrast is None else (target, contrast),
        logits=None if logits is None else tuple(logits),
        truncated=bool(record.get("truncated")),
        diagnostics=json.loads(record.get("facts") or "{}"),
        certificate=json.loads(record.get("certificate") or "null"),
        **values,
    )


def _parse_scores(record: Record) -> dict[str, Any]:
    """Scores, tokens, offsets and segments; tokens or offsets that are missing are derived from the text."""
    scores = np.array(record["scores"], dtype=np.float64)
    if not np.isfinite(scores).all():
        raise ValueError("scores are not all finite numbers")
    for name in ("tokens", "offsets", "segments", "special_mask"):
        values = record.get(name)
        if values is not None and len(values) != len(scores):
            raise ValueError(f"{len(scores)} scores but {len(values)} {name}")
    tokens = record.get("tokens")
    offsets = record.get("offsets")
    segments = record.get("segments")
    special_mask = record.get("special_mask")
    pair = record.get("pair")
    if segments is None and special_mask is not None and pair is None:
        segments = [_SPECIAL if special else _TEXT for special in special_mask]
    sources = {_TEXT: record["text"], _PAIR: pair or "", _SPECIAL: ""}
    token_segments = [_TEXT] * len(scores) if segments is None else segments
    if offsets is None:
        if tokens is None:
            raise ValueError("there are neither tokens nor offsets")
        offsets = _search_offsets(sources, tokens, token_segments)
    derived_tokens = []
    for (start, end), segment in zip(offsets, token_segments, strict=True):
        inside = segment in sources and 0 <= start <= end
        if not inside or (segment != _SPECIAL and end > len(sources[segment])):
            raise ValueError(f"offset {(start, end)} lies outside the text")
        derived_tokens.append(sources[segment][start:end])
    return {
        "scores": scores,
        "tokens": tuple(derived_tokens if tokens is None else tokens),
        "offsets": tuple((int(start), int(end)) for start, end in offsets),
        "segments": None if segments is None else tuple(segments),
    }


def _search_offsets(sources: Mapping[int, str], tokens: Sequence[str], segments: Sequence[int]) -> list[Span]:
    spans: list[Span] = [(0, 0)] * len(tokens)
    for segment in (_TEXT, _PAIR):
        positions = [k for k in range(len(tokens)) if segments[k] == segment]
        segment_spans = search_spans(sources[segment], [tokens[k] for k in positions])
        for k, span in zip(positions, segment_spans, strict=True):
            spans[k] = span
    return spans
