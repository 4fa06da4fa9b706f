"""One shard, from rows to the bytes of its file, and the engines that compute shards.

The convention this file owns: a shard's bytes depend on the plan, the explainer and the shard's own rows alone, so it
does not matter who computes it, when, how often, or in which order. Engines compute; only the run itself writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from gaflow.data import Row
from gaflow.explainer.batch import Timings
from gaflow.explainer.explainer import Explainer
from gaflow.explainer.many import explain_many, prepare_each
from gaflow.explainer.windows import Windows
from gaflow.jobs.schema import records, shard_bytes
from gaflow.methods import Method
from gaflow.progress import Report
from gaflow.tasks.targets import Target

__all__ = ["ComputedShard", "Engine", "Local", "Part", "RunningEngine", "ShardSettings", "make_shard"]

Part = tuple[int, list[Row]]  # number of a shard and its rows


@dataclass(frozen=True)
class ShardSettings:
    """How texts are explained: with an explainer, all that decides the numbers of a shard."""

    methods: tuple[Method, ...]
    target: Target = None
    batch_size: int = 16
    truncation: bool = False
    windows: Windows | None = None


@dataclass(frozen=True)
class ComputedShard:
    """A shard that is computed and not yet written."""

    number: int
    data: bytes  # of its Parquet file
    texts: int
    rows: int  # one for each text and method
    errors: int  # rows without scores
    first: int  # row numbers of the first and the last text
    last: int
    times: dict[str, Any]  # when it was begun, and how long what took


@dataclass(frozen=True)
class RunningEngine:
    """An engine at work: the kind of device it explains on, and what turns shards into finished ones, in any order.

    `compute(plan, parts, report, stop)`: `report` is told how many texts are done, `stop` is asked whether to end.
    """

    place: str  # "cpu", "cuda" ...
    compute: Callable[[ShardSettings, Iterator[Part], Report, Callable[[], bool]], Iterator[ComputedShard]]


Engine = Callable[[Explainer], AbstractContextManager[RunningEngine]]


@dataclass(frozen=True)
class Local:
    """One shard after the other, in this process."""

    @contextmanager
    def __call__(self, explainer: Explainer) -> Iterator[RunningEngine]:
        """At work where the model is."""

        def compute(
            plan: ShardSettings, parts: Iterator[Part], report: Report, stop: Callable[[], bool]
        ) -> Iterator[ComputedShard]:
            done = 0
            for part in parts:
                tell = partial(_further, report, done)
                made = None if stop() else make_shard(explainer, plan, part, tell, stop)
                if made is None:
                    return
                done += made.texts
                yield made

        weight = next(explainer.model.parameters(), None)
        yield RunningEngine("cpu" if weight is None else weight.device.type, compute)


def _further(report: Report, before: float, done: float) -> None:
    report(before + done)


def make_shard(
    explainer: Explainer, plan: ShardSettings, part: Part, report: Report, stop: Callable[[], bool] = lambda: False
) -> ComputedShard | None:
    """Compute one shard; None if `stop`, which is asked after every batch, says so first."""
    number, rows = part
    start, when, watch = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds"), Timings()
    found = _explained(explainer, plan, rows, report, stop, watch)
    if found is None:
        return None
    data = shard_bytes(found)
    errors = sum(record.get("error") is not None for record in found)
    times = {"began": when, "seconds": round(time.perf_counter() - start, 3), "trace": round(watch.trace, 4)}
    times |= {"methods": {name: round(value, 4) for name, value in watch.methods.items()}, "peak": watch.peak}
    return ComputedShard(number, data, len(rows), len(found), errors, rows[0].number, rows[-1].number, times)


def _explained(
    explainer: Explainer,
    plan: ShardSettings,
    rows: Sequence[Row],
    report: Report,
    stop: Callable[[], bool],
    watch: Timings,
) -> list[dict[str, Any]] | None:
    names = [method.name for method in plan.methods]
    labels = explainer.head.labels
    found: dict[int, list[dict[str, Any]]] = {}
    texts = [row.given for row in rows]
    target = explainer.head.parse(plan.target)
    prepared = prepare_each(explainer.runner, texts, target, truncation=plan.truncation, windows=plan.windows)
    for results in explain_many(
        explainer.runner, prepared, plan.methods, batch_size=plan.batch_size, on_error="collect", timings=watch
    ):
        found[results.index] = records(rows[results.index], results, names, labels)
        report(len(found))
        if stop() and len(found) < len(rows):
            return None
    return [record for k in range(len(rows)) for record in found[k]]
