"""The run: survey the data set, let an engine compute its shards, and write and list each of them."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

from gaflow.arguments import checked, distinct, one_of, output_folder
from gaflow.data.labels import Classes
from gaflow.data.rows import Row, Survey, rows_of, survey
from gaflow.data.sampling import Sample, draw_sample
from gaflow.data.sources import DataSet, open_data
from gaflow.errors import Argument, ArgumentError, GaflowError
from gaflow.explainer.default_method import DEFAULT, FallbackToAgf
from gaflow.explainer.explainer import AnyMethod, Explainer
from gaflow.explainer.many import Stop
from gaflow.explainer.provenance import Description, describe_environment, describe_method, describe_model
from gaflow.explainer.windows import Windows, find_windows
from gaflow.files import write_atomically
from gaflow.jobs.engine import Engine, JobSettings, ShardRows
from gaflow.jobs.folder import append_timing, claim, resume
from gaflow.jobs.local_engine import Local
from gaflow.jobs.manifest import MANIFEST, Manifest, shard_name
from gaflow.jobs.ray_engine import Ray
from gaflow.jobs.schema import VERSION
from gaflow.jobs.unfinished import UnfinishedShards
from gaflow.methods import METHODS, Method, find_method
from gaflow.models.memory import budget
from gaflow.progress import Progress, reporting
from gaflow.tasks.targets import Target

ENGINES: dict[str, Engine] = {"local": Local(), "ray": Ray()}


@dataclass(frozen=True)
class Outcome:
    """The state of a job at the end of a run."""

    folder: Path
    finished: bool
    total: int  # texts of the job
    texts: int  # that are stored, those of an unfinished shard included
    computed: int  # of these, by this run
    errors: int  # rows (a text and a method) without scores
    skipped: dict[str, int]  # reason -> rows of the data set without text
    shards: int
    methods: tuple[str, ...]  # by name


@checked
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
    progress: Progress = None,
    stop: Stop = lambda: False,
) -> Outcome:
    """Explain every text of a data set by every method, from one trace for each text, into a folder of Parquet shards.

    Without `methods`, the explainer's default explains them, and the manifest names it.
    `source` is a DataSet or anything that `gaflow.data.open_data` takes. Call it again on the same folder with the same
    arguments, and it continues where it ended; it refuses the folder of another job. `sample` draws the paper's sample
    of so many texts by `seed`; `limit` reads only so many rows. A text that cannot be explained is stored with its
    error; `windows` reads one that is too long in parts. `engine` is a name of ENGINES or a settings object:
    `gaflow.jobs.Local(workers=4)` shares the texts among processes on this machine, and `gaflow.jobs.Ray(workers=8)`
    among machines. `stop` is called often; True ends the run after the batch, or inside one that
    takes long. Texts that are done are stored (with Ray: those of finished shards), and the next call goes on there.

        attribute(gaflow.Explainer(), "reviews.csv", "attributions", ["agf", "attcat"])
        stored = list(read_attributions("attributions"))
    """
    settings = JobSettings(
        methods=find_methods([DEFAULT] if methods is None else methods),
        target=target,
        batch_size=batch_size,
        truncation=truncation,
        windows=find_windows(windows, truncation),
        shard_size=shard_size,
        sample=sample,
        limit=limit,
        seed=seed,
    )
    folder = output_folder("out_dir", out_dir)
    start_engine = find_engine(engine)
    explainer.runner.class_head("a data-set run").parse(target)
    data = open_data(source)
    with claim(folder):
        if methods is None:
            settings = replace(settings, methods=(_default_method(explainer, folder),))
        return run_job(explainer, data, folder, settings, describe_model(explainer), start_engine, progress, stop)


def find_engine(engine: str | Engine) -> Engine:
    """The engine of a name, or the engine itself."""
    if isinstance(engine, str):
        return ENGINES[one_of("engine", engine, ENGINES)]
    return engine


def find_methods(methods: Sequence[AnyMethod]) -> tuple[Method, ...]:
    """The methods of a job by name or settings."""
    if not methods:
        raise ArgumentError(Argument("methods"), " must name at least one method")
    settings = [find_method(method, "methods") for method in methods]
    distinct("methods", [method.name for method in settings], "name each method once")
    return tuple(settings)


def _default_method(explainer: Explainer, folder: Path) -> Method:
    """The explainer's default; a folder that was begun when `agf` was the default of data sets goes on with it."""
    default = explainer.default
    if isinstance(default, FallbackToAgf) or not (folder / MANIFEST).exists():
        return default
    stored_names = [method["name"] for method in Manifest.read(folder).job["methods"]]
    return METHODS[DEFAULT] if stored_names == [DEFAULT] else default


def run_job(
    explainer: Explainer,
    data: DataSet,
    folder: Path,
    settings: JobSettings,
    model: Description,
    engine: Engine,
    progress: Progress,
    stop: Stop,
) -> Outcome:
    """Compute a job in a folder that the caller has claimed; `model` is `describe_model(explainer)`."""
    classes = Classes.of(data, explainer.runner.class_head("a data-set run"))
    surveyed = survey(data, classes, settings.limit)
    sample = None
    if settings.sample is not None:
        sample = draw_sample(rows_of(data, classes, settings.limit), surveyed, settings.sample, settings.seed)
    with engine(explainer) as running:
        environment = describe_environment(running.device, running.threads)
        job = _describe_job(data, surveyed, sample, settings, model, running.device) | environment
        manifest = resume(folder, job)
        unfinished = UnfinishedShards(folder, job, manifest, [method.name for method in settings.methods])
        texts_before = manifest.texts
        stored_before = texts_before + unfinished.texts
        rows = rows_of(data, classes, settings.limit)
        missing = _missing_shards(rows, sample, settings.shard_size, frozenset(manifest.shards))
        with reporting(progress, job["texts"], "text", initial=stored_before) as report, _storing(unfinished):
            report(stored_before)

            def report_texts(done: float) -> None:
                report(max(stored_before, texts_before + done))

            if not manifest.finished:
                for shard in running.compute(settings, unfinished.resume(missing), report_texts, stop):
                    write_atomically(folder / shard.entry.file, shard.data)
                    manifest = manifest.add(shard.entry, environment)
                    manifest.write(folder)
                    unfinished.finish(shard.number)
                    append_timing(folder, {"shard": shard.number, "texts": shard.entry.texts, **shard.timings})
    texts = manifest.texts + unfinished.texts
    if not manifest.finished and manifest.texts == job["texts"]:
        manifest = replace(manifest, finished=True)
        manifest.write(folder)
    return Outcome(
        folder=folder,
        finished=manifest.finished,
        total=job["texts"],
        texts=texts,
        computed=texts - (stored_before - unfinished.rejected),
        errors=manifest.errors,
        skipped=dict(manifest.job["skipped"]),
        shards=len(manifest.shards),
        methods=tuple(method.name for method in settings.methods),
    )


@contextmanager
def _storing(unfinished: UnfinishedShards) -> Iterator[None]:
    """Store what is done of unfinished shards, however the run ends; a reason why it failed comes first."""
    try:
        yield
    except BaseException:
        with suppress(OSError, GaflowError):
            unfinished.store()
        raise
    unfinished.store()


def _describe_job(
    data: DataSet,
    surveyed: Survey,
    sample: Sample | None,
    settings: JobSettings,
    model: Description,
    device: str,
) -> Description:
    """Everything that decides the numbers, in JSON."""
    drawn = None
    if sample is not None:
        drawn = {"size": settings.sample, "seed": settings.seed} | asdict(sample)
        del drawn["rows"]
    job = {
        "schema": VERSION,
        "data": {
            "name": data.name,
            "rows": surveyed.rows,
            "sha256": surveyed.digest,
            "limit": settings.limit,
        },
        "columns": asdict(data.columns),
        "texts": surveyed.texts if sample is None else len(sample.rows),
        "skipped": surveyed.skipped,
        "unlabelled": None if data.columns.label is None else surveyed.unlabelled,
        "sample": drawn,
        "model": model | {"device": device},
        "methods": [describe_method(method) for method in settings.methods],
        "target": settings.target,
        "truncation": settings.truncation,
        "batch_size": settings.batch_size,
        "batch_memory": budget(device),
        "shard_size": settings.shard_size,
    }
    if settings.windows:
        job["windows"] = asdict(settings.windows)
    return job


def _missing_shards(
    rows: Iterator[Row], sample: Sample | None, size: int, present: Container[str]
) -> Iterator[ShardRows]:
    """The shards of all rows with a text, or those in the sample, without shards whose files are `present`."""
    texts = (row for row in rows if not row.skipped and (sample is None or row.number in sample.rows))
    for number in count():
        shard = list(islice(texts, size))
        if not shard:
            return
        if shard_name(number) not in present:
            yield ShardRows(number, shard)
