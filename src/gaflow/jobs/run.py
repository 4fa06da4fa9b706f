"""The run: survey the data set, let an engine compute its shards, and write and list each as it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from gaflow.data import Classes, Row, draw_sample, open_data, rows_of, survey
from gaflow.explainer.default_method import DEFAULT
from gaflow.explainer.explainer import AnyMethod, Explainer
from gaflow.explainer.windows import Windows, find_windows
from gaflow.jobs.engine import Engine, Local, RunningEngine, ShardSettings
from gaflow.jobs.folder import claim, note_time, resume, write_shard
from gaflow.jobs.manifest import Manifest, Shard, shard_name
from gaflow.jobs.ray_engine import Ray
from gaflow.jobs.schema import VERSION
from gaflow.methods import Method, find_method
from gaflow.models.memory import budget
from gaflow.progress import Progress, Report, reporting
from gaflow.provenance import describe_method, describe_model, versions
from gaflow.tasks.targets import Target

__all__ = ["ENGINES", "Outcome", "attribute", "find_engine"]

ENGINES: dict[str, Engine] = {"local": Local(), "ray": Ray()}


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
    windows: bool | Windows = False,
    sample: int | None = None,
    limit: int | None = None,
    seed: int = 0,
    engine: str | Engine = "local",
    progress: Progress = False,
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Explain every text of a data set by every method, from one trace for each text, into a folder of Parquet shards.

    `source` is a DataSet or what `gaflow.data.open_data` takes. Called again on the same folder with the same
    arguments it goes on where it was, however it ended; on a folder of another job it refuses. `sample` draws the
    paper's sample of so many texts by `seed`; `limit` reads no more than so many rows. A text that cannot be explained
    is stored with its error; `windows` reads one that is too long in parts. `engine` is a name of ENGINES or a settings
    object such as `gaflow.jobs.Ray(workers=8)`.
    `stop` is asked after every batch and ends the run; what is in finished shards is kept.
    """
    _check_counts(batch_size=batch_size, shard_size=shard_size, sample=sample, limit=limit)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be a whole number >= 0, not {seed!r}")
    divide, start = find_windows(windows, truncation), find_engine(engine)
    plan = ShardSettings(_methods(methods), target, batch_size, truncation, divide)
    head = explainer.runner.class_head("a data-set run")
    head.parse(target)
    data, folder = open_data(source), Path(out_dir)
    classes = Classes.of(data, head)
    with claim(folder):
        found = survey(data, classes, limit)
        chosen, about = None, None
        if sample is not None:
            drawn = draw_sample(rows_of(data, classes, limit), found, sample, seed)
            chosen = drawn.rows
            about = {"size": sample, "seed": seed, "mode": drawn.mode}
            about |= {"shorter": drawn.shorter, "longer": drawn.longer, "equal": drawn.equal}
        total = found.texts if chosen is None else len(chosen)
        with start(explainer) as ready:
            job = {
                "schema": VERSION,
                "data": {"name": data.name, "rows": found.rows, "sha256": found.digest, "limit": limit},
                "columns": {"text": data.text_column, "pair": data.pair_column, "label": data.label_column},
                "texts": total,
                "skipped": found.skipped,
                "unlabelled": found.unlabelled if data.label_column is not None else None,
                "sample": about,
                "model": describe_model(explainer) | {"device": ready.place},
                "methods": [describe_method(m) for m in plan.methods],
                "target": target,
                "truncation": truncation,
                "batch_size": batch_size,
                "batch_memory": budget(ready.place),
                "shard_size": shard_size,
                "versions": versions(),
            }
            if divide:
                job["windows"] = asdict(divide)
            manifest = resume(folder, job)
            rows = _selected(rows_of(data, classes, limit), chosen)
            with reporting(progress, total, "text") as report:
                return _run(ready, plan, folder, manifest, _chunks(rows, shard_size), report, stop)


def find_engine(engine: str | Engine) -> Engine:
    """The engine meant by a name of ENGINES, or the one that is given."""
    if isinstance(engine, str):
        if engine not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {engine!r}")
        return ENGINES[engine]
    if not callable(engine):
        raise TypeError(f"engine must be a name or an engine such as gaflow.jobs.Ray(), not {type(engine).__name__}")
    return engine


def _run(
    ready: RunningEngine,
    plan: ShardSettings,
    folder: Path,
    manifest: Manifest,
    chunks: Iterable[list[Row]],
    report: Report,
    stop: Callable[[], bool],
) -> Outcome:
    """Write and list every shard that is not there yet, as it gets done."""
    there, total = frozenset(manifest.shards), manifest.job["texts"]
    began = done = sum(shard.texts for shard in manifest.shards.values())
    report(done)
    if not manifest.finished:
        missing = ((number, rows) for number, rows in enumerate(chunks) if number not in there)
        for made in ready.compute(plan, missing, lambda part: report(began + part), stop):
            checksum = write_shard(folder, made.number, made.data)
            sizes = made.texts, made.rows, made.errors, made.first, made.last
            shard = Shard(shard_name(made.number), checksum, *sizes)
            manifest = replace(manifest, shards={**manifest.shards, made.number: shard})
            manifest.write(folder)
            note_time(folder, {"shard": made.number, "texts": made.texts, **made.times})
            done += made.texts
        if done == total:
            manifest = replace(manifest, finished=True)
            manifest.write(folder)
    errors = sum(shard.errors for shard in manifest.shards.values())
    skipped = dict(manifest.job["skipped"])
    return Outcome(folder, manifest.finished, total, done, done - began, errors, skipped, len(manifest.shards))


def _selected(rows: Iterable[Row], chosen: frozenset[int] | None) -> Iterator[Row]:
    return (row for row in rows if not row.skipped and (chosen is None or row.number in chosen))


def _chunks(rows: Iterator[Row], size: int) -> Iterator[list[Row]]:
    while chunk := list(islice(rows, size)):
        yield chunk


def _methods(given: Sequence[AnyMethod] | None) -> tuple[Method, ...]:
    if isinstance(given, str):
        raise TypeError(f"methods must be a list of methods, not the string {given!r}")
    chosen = tuple(find_method(m) for m in ([DEFAULT] if given is None else given))
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
