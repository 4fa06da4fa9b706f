"""The faithfulness benchmark: data sets in, evaluations on disk out, resumable at any moment.

Attributions are computed once, by all methods from one trace for each text, and masked texts of all methods share
forward passes. Masking goes shard by shard: an interruption costs at most one shard, and memory holds only one shard
and the resulting numbers. The folder is described in `gaflow.benchmark.folder_layout`.

The convention this file owns: **existing results that match the settings are reused**, and others are refused. Except
for timings (`timings.json`, `timings.jsonl`) all files are byte for byte those of an uninterrupted run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from gaflow.arguments import checked, distinct, location, one_of, output_folder
from gaflow.benchmark.folder_layout import (
    ATTRIBUTIONS,
    BENCH_METHODS,
    EXAMPLE,
    PAPER_METHODS,
    PAPER_SAMPLE,
    SETTINGS,
    read_settings,
    slug,
)
from gaflow.benchmark.resumable import BenchmarkStopped, StoredEvaluations, raise_stopped
from gaflow.benchmark.settings import BenchmarkSettings
from gaflow.benchmark.stored_scores import LeftOut, StoredScores, holds_attributions, open_stored_scores
from gaflow.data.labels import Classes
from gaflow.data.rows import rows_of
from gaflow.data.sources import DataSet, check_source, open_data
from gaflow.errors import (
    Argument,
    ArgumentError,
    ArgumentTypeError,
    GaflowError,
    TextError,
    UnsupportedModelError,
)
from gaflow.evaluation.aopc_bounds import Bounds
from gaflow.evaluation.arguments import DEFAULT_LEVELS, EvaluationSettings, softmax_head
from gaflow.evaluation.files import write_json, write_parquet
from gaflow.evaluation.masking import find_replacement
from gaflow.evaluation.soft_masking import Soft
from gaflow.evaluation.units import UNITS
from gaflow.explainer.explainer import AnyMethod, Explainer
from gaflow.explainer.many import Stop
from gaflow.explainer.provenance import Description, describe_method, describe_model
from gaflow.inputs.encoding import Text
from gaflow.jobs.folder import claim, remove_temporary_files
from gaflow.jobs.identity import compare
from gaflow.jobs.local_engine import Local
from gaflow.jobs.manifest import MANIFEST
from gaflow.jobs.run import Outcome, run_job
from gaflow.methods import Method, Random
from gaflow.progress import Progress, checkpoint, interruptible

_CANDIDATES = 64  # texts among which a short one is searched to try methods on


@dataclass(frozen=True)
class Phases:
    """The progress of the two phases of a data set, each of which counts its own texts."""

    explaining: Progress
    masking: Progress  # every text once for each replacement


@dataclass(frozen=True)
class DataSetOutcome:
    """The state of one data set at the end of a run."""

    name: str
    folder: Path
    finished: bool
    texts: int  # that methods are compared on
    explained: int  # texts explained by this run
    skipped: Mapping[str, int]  # reason -> texts
    left_out: LeftOut
    masked: int = 0  # texts masked by this run, once for every replacement
    evaluations: Mapping[str, Path] = field(default_factory=dict)  # replacement -> folder of the Evaluation


@checked
def bench(
    explainer: Explainer,
    inputs: Any,
    out: str | Path,
    *,
    methods: Sequence[AnyMethod] | None = None,
    replacements: Sequence[str | int] = ("pad",),
    sample: int | None = PAPER_SAMPLE,
    limit: int | None = None,
    seed: int = 0,
    batch_size: int = 16,
    shard_size: int = 250,
    truncation: bool = False,
    levels: Sequence[int] = DEFAULT_LEVELS,
    bounds: Bounds | bool = False,
    soft: Soft | bool = False,
    unit: str = "token",
    max_share: float | None = None,
    draws: int = 10,
    tokens_per_pass: int | None = None,
    progress: Progress = None,
    stop: Stop = lambda: False,
) -> list[DataSetOutcome]:
    """Judge methods on every data set of `inputs`, into folders of `out` that `gaflow.benchmark.report` reads.

    `inputs` is anything that `gaflow.data.open_data` takes, or stored attributions (a job's folder, a folder of Parquet
    files or one file), or a list of these, or a dict with their names. If your model differs from data set to data set,
    call this for each with the same `out`. `methods` are by default the paper's fourteen and `peeled_flow`, or all that
    are stored, under whatever name; a control of random scores is always added. A method that cannot explain the model
    is left out and reported.

    `unit`, `max_share` and `draws` are those of `gaflow.evaluate`.

    Call it again with the same arguments, and it continues where it ended. `sample` draws the paper's sample by `seed`
    (None: all texts), which is the control's seed too; an interruption costs at most `shard_size` masked texts.
    `progress` counts texts, once for being explained and once for each replacement; `stop` is called often.

        bench(gaflow.Explainer(), {"reviews": "reviews.csv"}, "bench", methods=["agf", "ig"])
        report("bench")
    """
    settings = BenchmarkSettings(
        methods=None if methods is None else _as_tuple("methods", methods),
        replacements=tuple(dict.fromkeys(_as_tuple("replacements", replacements))),
        sample=sample,
        limit=limit,
        shard_size=shard_size,
        evaluation=EvaluationSettings(
            levels=tuple(levels),
            bounds=Bounds() if bounds is True else bounds or None,
            soft=Soft(seed=seed) if soft is True else soft or None,
            batch_size=batch_size,
            tokens_per_pass=tokens_per_pass,
            truncation=truncation,
            seed=seed,
            unit=one_of("unit", unit, UNITS),
            max_share=max_share,
            draws=draws,
        ),
    )
    folder = output_folder("out", out)
    phases = _one_count(progress, len(settings.replacements))
    return run_benchmark(explainer, _by_name(inputs), folder, settings, lambda name: nullcontext(phases), stop)


def run_benchmark(
    explainer: Explainer,
    sources: Mapping[str, Any],
    out: Path,
    settings: BenchmarkSettings,
    phases_of: Callable[[str], AbstractContextManager[Phases]],
    stop: Stop,
) -> list[DataSetOutcome]:
    """Benchmark data sets one after the other until `stop`; `phases_of(name)` opens the progress of each."""
    _check_sources(sources)
    softmax_head(explainer)  # refuses models that cannot be evaluated, before anything is written
    for replacement in settings.replacements:
        find_replacement(explainer.model, explainer.tokenizer, explainer.runner.padding, replacement, "replacements")
    if not all(_is_stored(source) for source in sources.values()):
        settings.job(settings.find_methods())  # checks them
    model = describe_model(explainer)
    outcomes: list[DataSetOutcome] = []
    for name, source in sources.items():
        benchmark = _DataSetBenchmark(
            explainer=explainer, name=name, folder=out / slug(name), settings=settings, model=model, stop=stop
        )
        with phases_of(name) as phases:
            if _is_stored(source):
                outcome = benchmark.of_stored_scores(Path(source), phases.masking)
            else:
                outcome = benchmark.of_texts(open_data(source), phases)
        outcomes.append(outcome)
        if not outcome.finished:
            break
    return outcomes


def name_of(source: object) -> str:
    """The default name of a data set: that of its file or folder, or its id on the hub."""
    if callable(source):
        name = source.__name__
    elif isinstance(source, DataSet):
        name = source.name
    elif isinstance(source, str | Path) and Path(source).exists():
        path = Path(source).resolve()
        name = path.parent.name if path.name == ATTRIBUTIONS else path.name
    elif isinstance(source, str | Path):
        name = str(source)
    else:
        name = "data"  # in memory
    last_part = name.rstrip("/").rpartition("/")[2]
    without_suffix = re.sub(r"(\.(parquet|csv|tsv|jsonl|ndjson))?(\.gz)?$", "", last_part, flags=re.IGNORECASE)
    return without_suffix or "data"


def _as_tuple(name: str, values: Any) -> tuple[Any, ...]:
    for value in values:
        if not isinstance(value, Hashable):
            raise ArgumentTypeError(Argument(name), f" has an entry that cannot be one, {value!r}")
    return tuple(values)


def _by_name(inputs: object) -> dict[str, Any]:
    """Data sets by name."""
    if isinstance(inputs, Mapping):
        return {str(name): source for name, source in inputs.items()}
    sources = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    names = [name_of(source) for source in sources]
    distinct("inputs", names, "give data sets names of their own")
    return dict(zip(names, sources, strict=True))


def _check_sources(sources: Mapping[str, Any]) -> None:
    if not sources:
        raise ArgumentError(Argument("inputs"), " is empty; pass at least one data set or folder of attributions")
    for source in sources.values():
        if isinstance(source, str | Path):
            location("inputs", source)
        check_source("inputs", source)
    folders = {slug(name) for name in sources}
    if len(folders) < len(sources):
        message = f": names must differ by more than signs and case, not {', '.join(sources)}"
        raise ArgumentError(Argument("inputs"), message)


def _is_stored(source: object) -> bool:
    return isinstance(source, str | Path) and Path(source).exists() and holds_attributions(Path(source))


@dataclass(frozen=True)
class _DataSetBenchmark:
    """The benchmark of one data set."""

    explainer: Explainer
    name: str
    folder: Path
    settings: BenchmarkSettings
    model: Description  # `describe_model(explainer)`
    stop: Stop

    def of_texts(self, data: DataSet, phases: Phases) -> DataSetOutcome:
        """Explain the texts of a data set, then evaluate the attributions."""
        with claim(self.folder, SETTINGS):
            methods = self.settings.find_methods(self._default_methods())
            described = [describe_method(method) for method in methods]
            try:
                left_out = self._begin(described, False, lambda: self._unsupported_methods(data, methods))
            except BenchmarkStopped:
                return self._unbegun()
            methods = tuple(method for method in methods if method.name not in left_out)
            job = self._explain(data, methods, phases.explaining)
            if not job.finished:
                return DataSetOutcome(
                    name=self.name,
                    folder=self.folder,
                    finished=False,
                    texts=job.texts,
                    explained=job.computed,
                    skipped=job.skipped,
                    left_out=left_out,
                )
            names = [method.name for method in methods]
            scores = open_stored_scores(self.folder / ATTRIBUTIONS, names, self.settings.shard_size)
            return self._evaluate(scores, left_out, job.computed, phases.masking)

    def of_stored_scores(self, path: Path, progress: Progress) -> DataSetOutcome:
        """Evaluate attributions that are stored elsewhere."""
        with claim(self.folder, SETTINGS):
            names = self.settings.stored_names()
            scores = open_stored_scores(path, names, self.settings.shard_size)
            _check_model(self.model, scores, path)
            self._begin(names, True, dict)
            return self._evaluate(scores, {}, 0, progress)

    def _unbegun(self) -> DataSetOutcome:
        """The outcome of a run that was stopped before its first text."""
        return DataSetOutcome(
            name=self.name, folder=self.folder, finished=False, texts=0, explained=0, skipped={}, left_out={}
        )

    def _default_methods(self) -> Sequence[str]:
        """The methods if none are named; a folder that was begun with the paper's alone goes on with them."""
        if not (self.folder / SETTINGS).exists():
            return BENCH_METHODS
        stored_methods = read_settings(self.folder)["asked"]["methods"] or []
        stored_names = [method["name"] for method in stored_methods if isinstance(method, Mapping)]
        return PAPER_METHODS if stored_names == list(PAPER_METHODS) else BENCH_METHODS

    def _begin(self, methods: list[Any] | None, stored: bool, find_unsupported: Callable[[], LeftOut]) -> LeftOut:
        """The methods to leave out and why: those of an earlier run with the same settings, or those found now."""
        path = self.folder / SETTINGS
        settings = {"name": self.name, "stored": stored, "methods": methods}
        if not path.exists():
            value = {"asked": settings, "left_out": find_unsupported()}
            write_json(path, value)
            return value["left_out"]
        value = read_settings(self.folder)
        compare(value["asked"], settings).refuse(self.folder)
        return value["left_out"]

    def _unsupported_methods(self, data: DataSet, methods: Sequence[Method]) -> LeftOut:
        """Methods that cannot explain the model, with the reason, tried on a short text."""
        text = self._short_text(data)
        if text is None:
            return {}
        reasons = {}
        for method in methods:
            try:
                with interruptible(partial(raise_stopped, self.stop)):
                    checkpoint()
                    self.explainer.compare(text, [method], truncation=True)
            except UnsupportedModelError as error:
                reasons[method.name] = str(error)
            except (GaflowError, ValueError, ArithmeticError, RuntimeError):
                continue  # a problem of this text
        if len(reasons) == len(methods):
            raise UnsupportedModelError(f"no method can explain this model: {next(iter(reasons.values()))}")
        return reasons

    def _short_text(self, data: DataSet) -> Text | None:
        """The shortest of the first texts that the model can read."""
        classes = Classes.of(data, softmax_head(self.explainer))
        rows = rows_of(data, classes, self.settings.limit)
        texts = islice((row.input for row in rows if not row.skipped), _CANDIDATES)
        for text in sorted(texts, key=lambda text: len("".join(text))):
            try:
                self.explainer.compare(text, [Random()], truncation=True)
            except TextError:
                continue
            return text
        return None

    def _explain(self, data: DataSet, methods: tuple[Method, ...], progress: Progress) -> Outcome:
        folder = self.folder / ATTRIBUTIONS
        folder.mkdir(exist_ok=True)
        remove_temporary_files(folder)
        job = self.settings.job(methods)
        try:
            return run_job(self.explainer, data, folder, job, self.model, Local(), progress, self.stop)
        except GaflowError:
            if not (folder / MANIFEST).exists():  # refused before it began
                folder.rmdir()
                (self.folder / SETTINGS).unlink()
            raise

    def _evaluate(self, scores: StoredScores, left_out: LeftOut, explained: int, progress: Progress) -> DataSetOutcome:
        example = self.folder / EXAMPLE
        if not example.exists():
            write_parquet(example, scores.example())
        left_out = {**left_out, **scores.left_out}
        skipped = Counter(scores.source.job.get("skipped", {})) + Counter(scores.skipped)
        facts = {"data_set": self.name, "skipped": dict(skipped), "left_out": left_out}
        evaluations = StoredEvaluations(
            explainer=self.explainer, scores=scores, folder=self.folder, settings=self.settings, stop=self.stop
        )
        evaluations.compute(self.model, facts, progress)
        return DataSetOutcome(
            name=self.name,
            folder=self.folder,
            finished=len(evaluations.finished) == len(self.settings.replacements),
            texts=len(scores.texts),
            explained=explained,
            masked=evaluations.masked,
            skipped=dict(skipped),
            left_out=left_out,
            evaluations=evaluations.finished,
        )


def _check_model(model: Description, scores: StoredScores, path: Path) -> None:
    """Refuse to judge the explanations of one model by another; it may be elsewhere, and call its classes otherwise."""
    if not scores.source.job:
        return
    may_differ = dict.fromkeys(("device", "labels", "attention"))
    explained = scores.source.job["model"] | may_differ
    compare({"model": explained}, {"model": model | may_differ}).refuse(path)


def _one_count(progress: Progress, replacements: int) -> Phases:
    """Both phases: a function counts them together, a bar is drawn for each."""
    if not callable(progress):
        return Phases(progress, progress)
    texts = 0

    def explaining(done: float, total: int) -> None:
        nonlocal texts
        texts = total
        progress(done, total * (1 + replacements))

    def masking(done: float, total: int) -> None:
        if not texts:  # the attributions were stored before: there is one phase only
            progress(done, total)
            return
        progress(texts * (1 + replacements * done / total), texts * (1 + replacements))

    return Phases(explaining, masking)
