"""The run: survey the data set, then shard after shard, each computed, written and listed before the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from gaflow.data import Classes, Row, draw_sample, open_data, rows_of, survey
from gaflow.explainer import AnyMethod, Explainer
from gaflow.jobs.folder import claim, note_time, resume, shard_name, write_shard
from gaflow.jobs.manifest import Manifest, Shard, describe_method, describe_model, versions
from gaflow.jobs.schema import VERSION, records, shard_bytes
from gaflow.methods import Method, find_method
from gaflow.progress import Progress, Report, reporting
from gaflow.several import Stopwatch, explain_each
from gaflow.targets import Target

__all__ = ["Outcome", "Plan", "attribute", "compute_shard"]


@dataclass(frozen=True)
class Plan:
    """How texts are explained: with an explainer, all that decides the numbers of a shard."""

    methods: tuple[Method, ...]
    target: Target = None
    batch_size: int = 16
    truncation: bool = False


@dataclass(frozen=True)
class Outcome:
    """What has become of a job."""

    folder: Path
    finished: bool
    total: int  # texts of the job
    texts: int  # that are stored
    computed: int  # of these, by this run
    errors: int  # rows (a text and a method) without scores
    skipped: dict[str, int]  # reason -> rows of the data set without text
    shards: int


def attribute(
    explainer: Explainer,
    source: Any,
    out_dir: str | Path,
    methods: Sequence[AnyMethod] | None = None,
    *,
    target: Target = None,
    batch_size: int = 16,
    shard_size: int = 1000,
    truncation: bool = False,
    sample: int | None = None,
    limit: int | None = None,
    seed: int = 0,
    progress: Progress = False,
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Explain every text of a data set by every method, from one trace for each text, into a folder of Parquet shards.

    `source` is a DataSet or what `gaflow.data.open_data` takes. Called again on the same folder with the same
    arguments it goes on where it was, however it ended; on a folder of another job it refuses. `sample` draws the
    paper's sample of so many texts by `seed`; `limit` reads no more than so many rows. A text that cannot be explained
    is stored with its error. `stop` is asked after every batch and ends the run; what is in finished shards is kept.
    """
    _check_counts(batch_size=batch_size, shard_size=shard_size, sample=sample, limit=limit)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be a whole number >= 0, not {seed!r}")
    plan = Plan(_methods(methods), target, batch_size, truncation)
    explainer.head.parse(target)
    data, folder = open_data(source), Path(out_dir)
    classes = Classes.of(data, explainer.head)
    with claim(folder):
        found = survey(data, classes, limit)
        chosen, about = None, None
        if sample is not None:
            drawn = draw_sample(rows_of(data, classes, limit), found, sample, seed)
            chosen = drawn.rows
            about = {"size": sample, "seed": seed, "mode": drawn.mode}
            about |= {"shorter": drawn.shorter, "longer": drawn.longer, "equal": drawn.equal}
        total = found.texts if chosen is None else len(chosen)
        job = {
            "schema": VERSION,
            "data": {"name": data.name, "rows": found.rows, "sha256": found.digest, "limit": limit},
            "columns": {"text": data.text_column, "pair": data.pair_column, "label": data.label_column},
            "texts": total,
            "skipped": found.skipped,
            "unlabelled": found.unlabelled if data.label_column is not None else None,
            "sample": about,
            "model": describe_model(explainer),
            "methods": [describe_method(m) for m in plan.methods],
            "target": target,
            "truncation": truncation,
            "batch_size": batch_size,
            "shard_size": shard_size,
            "versions": versions(),
        }
        manifest = resume(folder, job)
        rows = _selected(rows_of(data, classes, limit), chosen)
        with reporting(progress, total, "text") as report:
            return _run(explainer, plan, folder, manifest, _chunks(rows, shard_size), total, report, stop)


def _run(
    explainer: Explainer,
    plan: Plan,
    folder: Path,
    manifest: Manifest,
    chunks: Iterable[list[Row]],
    total: int,
    report: Report,
    stop: Callable[[], bool],
) -> Outcome:
    began = sum(shard.texts for shard in manifest.shards.values())
    done, stopped = began, False
    report(done)
    if not manifest.finished:
        for number, rows in enumerate(chunks):
            if number in manifest.shards:
                continue
            if stop():
                stopped = True
                break
            start, when = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
            watch = Stopwatch()
            found = compute_shard(explainer, plan, rows, lambda part, so_far=done: report(so_far + part), stop, watch)
            if found is None:
                stopped = True
                break
            checksum = write_shard(folder, number, shard_bytes(found))
            errors = sum(record.get("error") is not None for record in found)
            ends = rows[0].number, rows[-1].number
            shard = Shard(shard_name(number), checksum, len(rows), len(found), errors, *ends)
            manifest = replace(manifest, shards={**manifest.shards, number: shard})
            manifest.write(folder)
            seconds = time.perf_counter() - start
            taken = {"seconds": round(seconds, 3), "trace": round(watch.trace, 4)}
            taken |= {"methods": {name: round(value, 4) for name, value in watch.methods.items()}, "peak": watch.peak}
            note_time(folder, {"shard": number, "began": when, "texts": len(rows), **taken})
            done += len(rows)
        if not stopped:
            manifest = replace(manifest, finished=True)
            manifest.write(folder)
    errors = sum(shard.errors for shard in manifest.shards.values())
    skipped = dict(manifest.job["skipped"])
    return Outcome(folder, not stopped, total, done, done - began, errors, skipped, len(manifest.shards))


def compute_shard(
    explainer: Explainer,
    plan: Plan,
    rows: Sequence[Row],
    report: Report,
    stop: Callable[[], bool],
    watch: Stopwatch | None = None,
) -> list[dict[str, Any]] | None:
    """The stored rows of one shard; they depend on explainer, plan and rows alone. None if `stop` says so first."""
    names = [method.name for method in plan.methods]
    labels = explainer.head.labels
    found: dict[int, list[dict[str, Any]]] = {}
    texts = [row.given for row in rows]
    for batch in explain_each(
        explainer, texts, plan.methods, plan.target,
        batch_size=plan.batch_size, truncation=plan.truncation, watch=watch,
    ):  # fmt: skip
        for k, several in batch:
            found[k] = records(rows[k], several, names, labels)
        report(len(found))
        if stop() and len(found) < len(rows):
            return None
    return [record for k in range(len(rows)) for record in found[k]]


def _selected(rows: Iterable[Row], chosen: frozenset[int] | None) -> Iterator[Row]:
    return (row for row in rows if not row.skipped and (chosen is None or row.number in chosen))


def _chunks(rows: Iterator[Row], size: int) -> Iterator[list[Row]]:
    while chunk := list(islice(rows, size)):
        yield chunk


def _methods(given: Sequence[AnyMethod] | None) -> tuple[Method, ...]:
    if isinstance(given, str):
        raise TypeError(f"methods must be a list of methods, not the string {given!r}")
    chosen = tuple(find_method(m) for m in ([None] if given is None else given))
    names = [m.name for m in chosen]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice or not names:
        raise ValueError(f"methods must name each method once, and at least one; given {', '.join(names) or 'none'}")
    return chosen


def _check_counts(**given: int | None) -> None:
    for name, value in given.items():
        if value is None and name in ("sample", "limit"):
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number >= 1, not {value!r}")
