"""One shard, from rows to the bytes of its file, and what an engine is that computes shards.

The convention this file owns: the bytes of a shard depend on the settings, the explainer and the shard's own rows
alone. It does not matter where, when, how often or in which order shards are computed. Engines compute; only the run
itself writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256

from gaflow.arguments import optional_whole_number, whole_number
from gaflow.data.rows import Row
from gaflow.errors import Argument, JobError
from gaflow.explainer.batch import Timings
from gaflow.explainer.explainer import Explainer
from gaflow.explainer.many import PreparedText, Stop, TextResults, explain_many, prepare_each
from gaflow.explainer.provenance import Description
from gaflow.explainer.windows import Windows
from gaflow.jobs.manifest import Shard, shard_name
from gaflow.jobs.schema import Record, records, shard_bytes
from gaflow.methods import Method
from gaflow.progress import Report
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
    texts that are done, and ends early if `stop` returns True. What is done of the shards that it leaves is in `done`
    of their `ShardRows`, if they are computed on this machine.
    """

    device: str  # the kind that texts are explained on: "cpu", "cuda", ...
    threads: int  # of torch
    compute: Callable[[JobSettings, Iterator[ShardRows], Report, Stop], Iterator[ComputedShard]]


Engine = Callable[[Explainer], AbstractContextManager[RunningEngine]]


class OpenShard:
    """A shard that is being computed: its texts as the model reads them, what is done, and the time that it took."""

    def __init__(self, explainer: Explainer, settings: JobSettings, shard: ShardRows):
        self._began = datetime.now(UTC)
        self._start = time.perf_counter()
        self.shard = shard
        self.texts: list[PreparedText | str] = prepare_each(
            explainer.runner,
            [row.input for row in shard.rows],
            settings.target,
            truncation=settings.truncation,
            windows=settings.windows,
        )
        self._tokenising = time.perf_counter() - self._start
        self._writing = 0.0
        self._measured = Timings()

    @property
    def is_complete(self) -> bool:
        """Whether all texts are done."""
        return len(self.shard.done) == len(self.texts)

    def add_time(self, timings: Timings, writing: float) -> None:
        """Count the seconds of a batch, and those in which its rows were made."""
        self._measured.add(timings)
        self._writing += writing

    def finish(self, **about_workers: object) -> ComputedShard:
        """The file of a shard that is complete."""
        started = time.perf_counter()
        stored: list[Record] = []
        for _, text_records in sorted(self.shard.done.items()):
            stored += text_records
        data = shard_bytes(stored)
        self._writing += time.perf_counter() - started
        measured = self._measured
        timings = {
            "began": self._began.isoformat(timespec="seconds"),
            "seconds": round(time.perf_counter() - self._start, 3),
            "tokenise": round(self._tokenising, 4),
            "trace": round(measured.trace, 4),
            "forward": round(measured.forward, 4),
            "backward": round(measured.backward, 4),
            "methods": {name: round(seconds, 4) for name, seconds in measured.methods.items()},
            "write": round(self._writing, 4),
            "peak": measured.peak,
            **about_workers,
        }
        rows = self.shard.rows
        entry = Shard(
            file=shard_name(self.shard.number),
            sha256=sha256(data).hexdigest(),
            texts=len(rows),
            rows=len(stored),
            errors=sum(record.get("error") is not None for record in stored),
            first=rows[0].number,
            last=rows[-1].number,
        )
        return ComputedShard(self.shard.number, entry, data, timings)


class RowWriter:
    """Makes the stored rows of texts, and measures how long that takes."""

    def __init__(self, explainer: Explainer, settings: JobSettings, rows: Sequence[Row]):
        self._names = [method.name for method in settings.methods]
        self._labels = explainer.head.labels
        self._rows = rows
        self.seconds = 0.0

    def write(self, results: TextResults) -> list[Record]:
        """The rows of one text, one for each method; its index is that of its row."""
        started = time.perf_counter()
        text_records = records(self._rows[results.index], results, self._names, self._labels)
        self.seconds += time.perf_counter() - started
        return text_records


def compute_shard(
    explainer: Explainer, settings: JobSettings, shard: ShardRows, report: Report, stop: Stop = lambda: False
) -> ComputedShard | None:
    """Compute what is not done of one shard; None if `stop` ended it."""
    opened = OpenShard(explainer, settings, shard)
    writer = RowWriter(explainer, settings, shard.rows)
    measured = Timings()
    reported = 0.0

    def report_texts(texts_done: float) -> None:
        nonlocal reported
        if texts_done > reported:  # a batch that is halved begins again
            reported = texts_done
            report(texts_done)

    report_texts(len(shard.done))
    for results in explain_many(
        explainer.runner,
        opened.texts,
        settings.methods,
        batch_size=settings.batch_size,
        on_error="collect",
        report=lambda results_done: report_texts(results_done / len(settings.methods)),
        timings=measured,
        done=frozenset(shard.done),
        stop=stop,
    ):
        shard.done[results.index] = writer.write(results)
        report_texts(len(shard.done))
    opened.add_time(measured, writer.seconds)
    return opened.finish() if opened.is_complete else None


def losing_workers(problem: str, reason: str) -> JobError:
    """The error of a run that cannot go on because workers died."""
    return JobError(
        f"{problem}: {reason} If memory ran out there, use a smaller ",
        Argument("batch_size"),
        "; finished files are kept, and the same call continues",
    )
