"""Stored attributions, read back one at a time: ours, and those that other libraries wrote with the same columns.

A file from elsewhere needs `text`, `scores`, `method` and one of `tokens` and `offsets`; everything else is used
where it is there and of the right type. The convention this file owns: a stored attribution that is given out fits
together (one score, offset, flag for each token, all scores finite, offsets inside the text), and one that does not
is an error naming file and row.
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
from gaflow.data.readers import check_columns, parquet_files, pyarrow_module
from gaflow.errors import DataError, GaflowError
from gaflow.flow.result import Certificate
from gaflow.inputs.offsets import search_spans
from gaflow.inputs.segmentation import Span
from gaflow.jobs.folder import check_shard
from gaflow.jobs.manifest import MANIFEST, Manifest
from gaflow.jobs.schema import SCHEMA, text_hash
from gaflow.tasks.targets import ResolvedTarget

__all__ = ["Stored", "read_attributions"]

_NEEDED = ("text", "scores", "method")
_ROWS = 256  # held at a time


@dataclass(frozen=True, eq=False)
class Stored:
    """One stored row: a text under a method. What a file from elsewhere does not say is None."""

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
    def special_mask(self) -> np.ndarray | None:
        """(t,) bool: tokens that the tokenizer added; None where nothing says so."""
        return None if self.segments is None else np.array([s < 0 for s in self.segments], dtype=bool)

    def attribution(self) -> Attribution:
        """The same as an Attribution, without flow and layers, which are not stored."""
        needed = ("scores", "tokens", "offsets", "segments", "target", "label", "output", "prediction")
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise GaflowError(f"{self.error or 'the stored row'}: no {', '.join(missing)}, so no Attribution")
        given: Any = {name: getattr(self, name) for name in (*needed, "text", "text_pair", "method", "probability")}
        certificate = None if self.certificate is None else Certificate(**{"seconds": 0.0, **self.certificate})
        return Attribution(
            **given,
            truncated=self.truncated,
            diagnostics=self.diagnostics,
            certificate=certificate,
            layer=None if certificate is None else layer_in_name(self.method),
        )


def read_attributions(
    place: str | Path, *, methods: Sequence[str] | None = None, verify: bool = True
) -> Iterator[Stored]:
    """All stored attributions of a job's folder, a folder of Parquet files or one file, in their order.

    `methods` keeps those of these names. `verify` compares the shards of a job with their checksums first.
    """
    place = Path(place)
    if isinstance(methods, str):
        raise TypeError(f"methods must be a list of names, not the string {methods!r}")
    if not place.exists():
        raise DataError(f"no such file or folder: {str(place)!r}")
    return _read(place, None if methods is None else set(methods), verify)


def _read(place: Path, methods: set[str] | None, verify: bool) -> Iterator[Stored]:
    if (place / MANIFEST).exists():
        shards = [shard for _, shard in sorted(Manifest.read(place).shards.items())]
        for shard in shards:
            if verify:
                check_shard(place, shard)
            yield from _read_file(place / shard.file, methods)
        return
    for file in parquet_files(place) if place.is_dir() else [place]:
        yield from _read_file(file, methods)


def _read_file(file: Path, methods: set[str] | None) -> Iterator[Stored]:
    pa, pq = pyarrow_module("pyarrow"), pyarrow_module("pyarrow.parquet")
    number = 0
    try:
        with pq.ParquetFile(file) as opened:
            there = opened.schema_arrow.names
            check_columns(_NEEDED, there, repr(file.name))
            if not {"tokens", "offsets"} & set(there):
                raise DataError(f"{file.name!r} has neither 'tokens' nor 'offsets', so scores belong to nothing")
            known = [name for name in SCHEMA if name in there]
            for batch in opened.iter_batches(batch_size=_ROWS, columns=known):
                for values in batch.to_pylist():
                    if methods is None or values["method"] in methods:
                        yield _stored(values)
                    number += 1
    except pa.ArrowException as error:
        raise DataError(f"{str(file)!r} cannot be read as Parquet: {str(error).splitlines()[0]}") from error
    except (TypeError, KeyError, ValueError) as error:
        if isinstance(error, GaflowError):
            raise
        raise DataError(f"{str(file)!r}, row {number}: {error}") from error


def _stored(values: dict[str, Any]) -> Stored:
    text, pair, method = values["text"], values.get("pair"), values["method"]
    for name, value in (("text", text), ("method", method), ("pair", "" if pair is None else pair)):
        if not isinstance(value, str):
            raise TypeError(f"{name} is {type(value).__name__}, not text")
    plain = {name: values.get(name) for name in ("row", "label", "probability", "output", "prediction", "gold")}
    plain |= {"gold_label": values.get("gold_label"), "truncated": bool(values.get("truncated"))}
    target, contrast = values.get("target"), values.get("contrast")
    known = {
        "text_hash": text_hash(text, pair),
        "target": target if contrast is None else (target, contrast),
        "logits": None if values.get("logits") is None else tuple(values["logits"]),
        "diagnostics": json.loads(values.get("facts") or "{}"),
        "certificate": json.loads(values.get("certificate") or "null"),
    }
    if values.get("error") is not None or values["scores"] is None:
        error = values.get("error") or "there are no scores"
        return Stored(text=text, text_pair=pair, method=method, scores=None, error=error, **plain, **known)
    scores = np.array(values["scores"], dtype=np.float64)
    for name in ("tokens", "offsets", "segments", "special_mask"):
        if values.get(name) is not None and len(values[name]) != len(scores):
            raise ValueError(f"{len(scores)} scores but {len(values[name])} {name}")
    tokens, offsets, segments = _tokens(text, pair, values)
    if not np.isfinite(scores).all():
        raise ValueError("scores are not all finite numbers")
    return Stored(
        text=text, text_pair=pair, method=method, scores=scores, tokens=tokens, offsets=offsets, segments=segments,
        **plain, **known,
    )  # fmt: skip


def _tokens(
    text: str, pair: str | None, values: dict[str, Any]
) -> tuple[tuple[str, ...], tuple[Span, ...], tuple[int, ...] | None]:
    """Tokens, offsets and segments; what is missing of the first two is found in the text."""
    tokens: Any = values.get("tokens")
    offsets, segments = values.get("offsets"), values.get("segments")
    if segments is None and values.get("special_mask") is not None and pair is None:
        segments = [-1 if special else 0 for special in values["special_mask"]]
    if offsets is None and tokens is None:
        raise ValueError("there are neither tokens nor offsets")
    sources = {0: text, 1: pair or "", -1: ""}
    if offsets is None:
        offsets = _search(sources, tokens, segments)
    spans = tuple((int(a), int(b)) for a, b in offsets)
    for (a, b), segment in zip(spans, segments or [0] * len(spans), strict=True):
        if segment not in sources or not 0 <= a <= b or (segment >= 0 and b > len(sources[segment])):
            raise ValueError(f"offset {(a, b)} lies outside the text")
    if tokens is None:
        tokens = [sources[s][a:b] for (a, b), s in zip(spans, segments or [0] * len(spans), strict=True)]
    return tuple(tokens), spans, None if segments is None else tuple(segments)


def _search(sources: Mapping[int, str], tokens: Sequence[str], segments: Sequence[int] | None) -> list[Span]:
    spans: list[Span] = [(0, 0)] * len(tokens)
    for segment in (0, 1):
        chosen = [k for k in range(len(tokens)) if (0 if segments is None else segments[k]) == segment]
        for k, span in zip(chosen, search_spans(sources[segment], [tokens[k] for k in chosen]), strict=True):
            spans[k] = span
    return spans
