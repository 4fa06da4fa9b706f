"""One shard, from rows to the bytes of its file, and the engines that compute shards.

The convention this file owns: the bytes of a shard depend on the settings, the explainer and the shard's own rows
alone. It does not matter where, when, how often or in which order shards are computed. Engines compute; only the run
itself writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256

import torch

from gaflow.arguments import optional_whole_number, whole_number
from gaflow.data.rows import Row
from gaflow.explainer.batch import Timings
from gaflow.explainer.explainer import Explainer
from gaflow.explainer.many import Stop, explain_many, prepare_each
from gaflow.explainer.provenance import Description
from gaflow.explainer.windows import Windows
from gaflow.jobs.manifest import Shard, shard_name
from gaflow.jobs.schema import Record, records, shard_bytes
from gaflow.methods import Method
from gaflow.models.memory import device_of
from gaflow.progress import Report, within
from gaflow.tasks.targets import Target


@dataclass(frozen=True)
class JobSettings:
    """Everything that decides the files of a job, beside explainer and data set."""

    methods: tuple[Method, ...]
    target: Target = None
    batch_size: int = 16
    truncation: bool = False
    windows: Windows | None = None
    shard_size: int = 1000  # texts
    sample: int | None = None  # texts of the paper's sample; None: all
    limit: int | None = None  # rows that are read; None: all
    seed: int = 0  # of the sample

    def __post_init__(self) -> None:
        whole_number("batch_size", self.batch_size)
        whole_number("shard_size", self.shard_size)
        optional_whole_number("sample", self.sample)
        optional_whole_number("limit", self.limit)
        whole_number("seed", self.seed, least=0)


@dataclass(frozen=True)
class ShardRows:
    """The texts of one shard."""

    number: int
    rows: list[Row]
    done: dict[int, list[Record]] = field(default_factory=dict)  # by position in `rows`; grows while it is computed


@dataclass(frozen=True)
class ComputedShard:
    """A shard that is computed and not yet written."""

    number: int
    entry: Shard  # of the manifest
    data: bytes  # of its Parquet file
    timings: Description  # when it was begun, and the seconds that each step took


@dataclass(frozen=True)
class RunningEngine:
    """An engine at work.

    `compute(settings, shards, report, stop)` gives computed shards in any order. It calls `report` with the number of
    texts that are done, and ends early if `stop` returns True. What is done of the shard that it leaves is in `done` of
    its `ShardRows`, if it is computed in this process.
    """

    device: str  # the kind that texts are explained on: "cpu", "cuda", ...
    threads: int  # of torch
    compute: Callable[[JobSettings, Iterator[ShardRows], Report, Stop], Iterator[ComputedShard]]


Engine = Callable[[Explainer], AbstractContextManager[RunningEngine]]


@dataclass(frozen=True)
class Local:
    """One shard after the other, in this process."""

    @contextmanager
    def __call__(self, explainer: Explainer) -> Iterator[RunningEngine]:
        """At work on the device of the model."""
        device = device_of(explainer.model).type
        yield RunningEngine(device, torch.get_num_threads(), partial(_compute_here, explainer))


def _compute_here(
    explainer: Explainer, settings: JobSettings, shards: Iterator[ShardRows], report: Report, stop: Stop
) -> Iterator[ComputedShard]:
    texts = 0
    for shard in shards:
        if stop():
            return
        computed = compute_shard(explainer, settings, shard, within(report, texts, 1), stop)
        if computed is None:
            return
        texts += computed.entry.texts
        yield computed


def compute_shard(
    explainer: Explainer, settings: JobSettings, shard: ShardRows, report: Report, stop: Stop = lambda: False
) -> ComputedShard | None:
    """Compute what is not done of one shard; None if `stop` ended it."""
    began = datetime.now(UTC)
    start = time.perf_counter()
    measured = Timings()
    texts = prepare_each(
        explainer.runner,
        [row.input for row in shard.rows],
        settings.target,
        truncation=settings.truncation,
        windows=settings.windows,
    )
    tokenising = time.perf_counter() - start
    writing = 0.0
    names = [method.name for method in settings.methods]
    by_text = shard.done
    reported = 0.0

    def report_texts(texts_done: float) -> None:
        nonlocal reported
        if texts_done > reported:  # a batch that is halved begins again
            reported = texts_done
            report(texts_done)

    report_texts(len(by_text))
    for results in explain_many(
        explainer.runner,
        texts,
        settings.methods,
        batch_size=settings.batch_size,
        on_error="collect",
        report=lambda results_done: report_texts(results_done / len(names)),
        timings=measured,
        done=frozenset(by_text),
        stop=stop,
    ):
        row = shard.rows[results.index]
        started = time.perf_counter()
        by_text[results.index] = records(row, results, names, explainer.head.labels)
        writing += time.perf_counter() - started
        report_texts(len(by_text))
    if len(by_text) < len(texts):
        return None
    started = time.perf_counter()
    stored: list[Record] = []
    for _, text_records in sorted(by_text.items()):
        stored += text_records
    data = shard_bytes(stored)
    writing += time.perf_counter() - started
    timings = {
        "began": began.isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - start, 3),
        "tokenise": round(tokenising, 4),
        "trace": round(measured.trace, 4),
        "forward": round(measured.forward, 4),
        "backward": round(measured.backward, 4),
        "methods": {name: round(seconds, 4) for name, seconds in measured.methods.items()},
        "write": round(writing, 4),
        "peak": measured.peak,
    }
    entry = Shard(
        file=shard_name(shard.number),
        sha256=sha256(data).hexdigest(),
        texts=len(shard.rows),
        rows=len(stored),
        errors=sum(record.get("error") is not None for record in stored),
        first=shard.rows[0].number,
        last=shard.rows[-1].number,
    )
    return ComputedShard(shard.number, entry, data, timings)
