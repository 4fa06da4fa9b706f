"""Shards on this machine: in this process, or in worker processes that share the texts of a shard.

    this process: rows of a shard -> texts as the model reads them -> batches
    workers:      batch -> rows of the file
    this process: rows of the file -> Parquet bytes -> file, manifest

The convention this file owns: **it does not matter which worker explains a batch.** This process makes the batches, as
if it explained them itself, and a worker explains a batch as it is. So the bytes are those of a run without workers in
which torch has as many threads as one of them has here.

Workers are started by multiprocessing's "spawn". They end by themselves once their pipe to this process is closed,
also if this process is killed. A batch whose worker dies goes to another one.
"""

from __future__ import annotations

import pickle
import signal
import time
import warnings
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait

import torch

from gaflow.arguments import optional_whole_number
from gaflow.data.rows import Row
from gaflow.errors import Argument, ArgumentError, JobError
from gaflow.explainer.batch import Timings
from gaflow.explainer.explainer import Explainer
from gaflow.explainer.many import PATIENCE, PreparedText, Stop, explain_many, plan_batches
from gaflow.explainer.provenance import describe_autocast
from gaflow.jobs.engine import (
    ComputedShard,
    JobSettings,
    OpenShard,
    RowWriter,
    RunningEngine,
    ShardRows,
    compute_shard,
    losing_workers,
)
from gaflow.jobs.schema import Record
from gaflow.jobs.sent_explainer import SentExplainer
from gaflow.models.memory import device_of
from gaflow.progress import Report, within

_LOSSES = 4  # workers that one batch may lose
_SECONDS = 0.2  # between two questions whether to stop
_SECONDS_BETWEEN_REPORTS = 1.0  # of one worker, while it explains a batch
_SECONDS_TO_EXIT = 5.0  # of a process whose pipe is closed
_SECONDS_TO_STOP = 2 * PATIENCE  # then workers that are still at a batch are killed


@dataclass(frozen=True)
class Local:
    """Settings of a run on this machine: in this process, or in `workers` processes that share the texts.

    Each worker has its own copy of the model, on the device of the model. It imports the main script again, which must
    have what it runs under `if __name__ == "__main__":`.

        attribute(explainer, "reviews.csv", "attributions", engine=Local(workers=4))
    """

    workers: int | None = None  # None: this process alone
    threads: int | None = None  # of torch in each worker; None: those of this process, divided among the workers

    def __post_init__(self) -> None:
        optional_whole_number("workers", self.workers)
        optional_whole_number("threads", self.threads)
        if self.threads is not None and self.workers is None:
            message = " are those of a worker process; pass workers too, or call torch.set_num_threads"
            raise ArgumentError(Argument("threads", self.threads), message)

    @contextmanager
    def __call__(self, explainer: Explainer) -> Iterator[RunningEngine]:
        """At work on the device of the model; the workers end with the run."""
        device = device_of(explainer.model).type
        if self.workers is None:
            yield RunningEngine(device, torch.get_num_threads(), partial(_compute_here, explainer))
            return
        threads = self.threads or max(1, torch.get_num_threads() // self.workers)
        with closing(_Pool(explainer, self.workers, threads)) as pool:
            yield RunningEngine(device, threads, pool.compute)


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


@dataclass(frozen=True)
class _Batch:
    """Texts of a shard that a worker explains together."""

    shard: int
    positions: list[int]  # in the shard
    rows: list[Row]
    texts: list[PreparedText | str]
    done: frozenset[int]  # indices of texts that need no results, but belong to the batch


@dataclass(frozen=True)
class _BatchResult:
    """What a worker gives for a batch; without some of its texts if it was asked to stop."""

    by_index: dict[int, list[Record]]
    timings: Timings
    writing: float  # seconds in which the rows were made
    warnings: list[Warning]


class _Pool:
    """The workers of one run, and the shards that they are at."""

    def __init__(self, explainer: Explainer, size: int, threads: int):
        self._explainer = explainer
        self._size = size
        self._threads = threads
        self._sent = b""  # explainer and settings, pickled
        self._workers: list[_Worker] = []
        self._shards: dict[int, OpenShard] = {}  # by number
        self._queue: deque[_Batch] = deque()  # that no worker has
        self._losses: Counter[tuple[int, int]] = Counter()  # shard and first position of a batch -> workers lost
        self._stopped = False
        self._was_ready = False  # whether any worker ever was
        self._failed_starts = 0

    def compute(
        self, settings: JobSettings, shards: Iterator[ShardRows], report: Report, stop: Stop
    ) -> Iterator[ComputedShard]:
        """Shards in the order in which they are finished; texts that are done of the others are in their `done`."""
        self._sent = self._pickle(settings)
        texts = 0  # in finished shards
        reported = 0.0
        while not stop():
            self._open_shards(settings, shards)
            self._hand_out_batches()
            if self._workers_at_a_batch() or self._queue:
                self._listen()
            texts_done = texts + self._texts_underway()
            if texts_done > reported:  # a batch that lost its worker begins again
                reported = texts_done
                report(reported)
            for computed in self._finish_shards():  # written while the workers explain the next batches
                texts += computed.entry.texts
                yield computed
            if not self._shards:
                return
        self._end_batches()
        yield from self._finish_shards()

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.end()
        self._workers.clear()

    def _pickle(self, settings: JobSettings) -> bytes:
        autocast = describe_autocast(device_of(self._explainer.model).type)
        try:
            return pickle.dumps((SentExplainer.of(self._explainer), settings, autocast))
        except Exception as error:  # of any class: objects decide how they are pickled
            raise _unsendable(error) from error

    def _open_shards(self, settings: JobSettings, shards: Iterator[ShardRows]) -> None:
        """Open the next shards until there is a batch for every worker."""
        while len(self._queue) < self._size:
            shard = next(shards, None)
            if shard is None:
                return
            opened = OpenShard(self._explainer, settings, shard)
            self._shards[shard.number] = opened
            for positions in plan_batches(self._explainer.runner, opened.texts, settings.methods, settings.batch_size):
                done = frozenset(index for index, position in enumerate(positions) if position in shard.done)
                if len(done) == len(positions):
                    continue
                batch = _Batch(
                    shard=shard.number,
                    positions=positions,
                    rows=[shard.rows[position] for position in positions],
                    texts=[opened.texts[position] for position in positions],
                    done=done,
                )
                self._queue.append(batch)

    def _hand_out_batches(self) -> None:
        """Give a batch to every idle worker, and start workers if there are more batches."""
        for worker in self._workers:
            if worker.is_ready and worker.batch is None:
                self._give_batch(worker)
        batches = len(self._queue) + len(self._workers_at_a_batch())
        while len(self._workers) < min(self._size, batches):
            self._workers.append(_Worker(self._threads))

    def _give_batch(self, worker: _Worker) -> None:
        """Give the next batch to a worker, if there is one and the run is not ending."""
        if self._queue and not self._stopped:
            worker.explain(self._queue.popleft())

    def _workers_at_a_batch(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.batch is not None]

    def _texts_underway(self) -> float:
        """Texts that are done in unfinished shards."""
        done = sum(len(opened.shard.done) for opened in self._shards.values())
        return done + sum(worker.texts_done for worker in self._workers)

    def _listen(self) -> None:
        """Take what the workers have sent; wait for it for a moment."""
        ready = wait([worker.connection for worker in self._workers], timeout=_SECONDS)
        for worker in list(self._workers):
            if worker.connection not in ready:
                continue
            data = worker.receive()
            if data is None:
                self._lose(worker)
            else:
                self._take(worker, pickle.loads(data))

    def _take(self, worker: _Worker, message: object) -> None:
        """Take a message of a worker."""
        if isinstance(message, Exception):
            raise message
        if isinstance(message, float):
            worker.report_texts(message)
        elif isinstance(message, _BatchResult):
            batch = worker.finish_batch()
            opened = self._shards[batch.shard]
            for index, text_records in message.by_index.items():
                opened.shard.done[batch.positions[index]] = text_records
            opened.add_time(message.timings, message.writing)
            self._give_batch(worker)
            for warning in message.warnings:
                warnings.warn(warning, stacklevel=2)
        elif worker.has_explainer:
            worker.is_ready = True
            self._was_ready = True
            self._give_batch(worker)
        else:
            worker.load(self._sent)

    def _lose(self, worker: _Worker) -> None:
        """Go on without a worker that died."""
        self._workers.remove(worker)
        reason = worker.reason_of_end()
        batch = worker.batch
        if not worker.is_ready:
            self._failed_starts += 1
            if self._was_ready and self._failed_starts < _LOSSES:  # workers can start here: another one will
                return
            raise JobError(
                f"a worker process ended while it started: {reason}. Each worker imports your script again: put what "
                'it runs under `if __name__ == "__main__":`. Each needs memory for a copy of the model, too: if that '
                "is the reason, use fewer ",
                Argument("workers"),
            )
        if batch is None:
            return
        key = (batch.shard, batch.positions[0])
        self._losses[key] += 1
        if self._losses[key] >= _LOSSES:
            raise losing_workers(f"a batch of shard {batch.shard} has lost its worker, {_LOSSES} times", f"{reason}.")
        self._queue.appendleft(batch)

    def _finish_shards(self) -> Iterator[ComputedShard]:
        complete = [number for number, opened in self._shards.items() if opened.is_complete]
        for number in complete:
            yield self._shards.pop(number).finish(workers=self._size)

    def _end_batches(self) -> None:
        """Ask the workers to stop, and take what they have done until then."""
        self._stopped = True
        for worker in list(self._workers):
            if worker.batch is None:
                worker.end()
                self._workers.remove(worker)
            else:
                worker.stop()
        deadline = time.monotonic() + _SECONDS_TO_STOP
        while self._workers_at_a_batch() and time.monotonic() < deadline:
            self._listen()


class _Worker:
    """A worker process: it starts, loads the explainer, and then is idle or at a batch."""

    def __init__(self, threads: int):
        context = get_context("spawn")
        self.connection, connection_of_worker = context.Pipe()
        self._process = context.Process(target=_work, args=(connection_of_worker, threads), daemon=True)
        with _without_interrupts():
            self._process.start()
        connection_of_worker.close()  # or nobody would notice that the worker died
        self.has_explainer = False
        self.is_ready = False
        self.batch: _Batch | None = None
        self.texts_done = 0.0  # of the batch

    def load(self, explainer_and_settings: bytes) -> None:
        """Send the explainer and the settings, which are pickled already."""
        self.has_explainer = True
        with suppress(OSError):  # it died, which `_listen` notices
            self.connection.send_bytes(explainer_and_settings)

    def receive(self) -> bytes | None:
        """What the process has sent, pickled; None if it has ended."""
        try:
            return self.connection.recv_bytes()
        except (EOFError, OSError):
            return None

    def explain(self, batch: _Batch) -> None:
        """Send a batch."""
        self.batch = batch
        with suppress(OSError):
            _send(self.connection, batch)

    def report_texts(self, count: float) -> None:
        """Note how many texts of the batch are done, without those that were done before."""
        if self.batch is not None:
            self.texts_done = min(count, len(self.batch.texts) - len(self.batch.done))

    def finish_batch(self) -> _Batch:
        """The batch, which is no longer the worker's."""
        batch = self.batch
        assert batch is not None
        self.batch = None
        self.texts_done = 0.0
        return batch

    def stop(self) -> None:
        """Ask for what is done of the batch."""
        with suppress(OSError):
            _send(self.connection, None)

    def end(self) -> None:
        """End the process, if it has not ended."""
        self._process.kill()
        self._process.join()
        self.connection.close()

    def reason_of_end(self) -> str:
        """Why a process that closed its pipe has ended, in words."""
        self._process.join(_SECONDS_TO_EXIT)
        self.end()
        code = self._process.exitcode or 0
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start a process that gets no Ctrl-C, which a terminal sends to all: this process ends it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # the first process would start it, which lets interrupts through
    mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask_before)


def _unsendable(error: Exception) -> JobError:
    return JobError(
        f"the explainer cannot be sent to worker processes ({type(error).__name__}: {error}); define classes and "
        "functions of models and methods in a module that workers can import, or run without ",
        Argument("workers"),
    )


def _send(connection: Connection, message: object) -> None:
    """Send by plain pickle: multiprocessing's own would move the tensors of this process into shared memory."""
    connection.send_bytes(pickle.dumps(message))


def _work(connection: Connection, threads: int) -> None:
    """The life of a worker: it takes the explainer, then batches until the other process ends."""
    torch.set_num_threads(threads)
    with suppress(EOFError, OSError):  # the other process has ended
        _send(connection, None)
        explainer_and_settings = connection.recv_bytes()
        try:
            explainer, settings = _load(explainer_and_settings)
        except Exception as error:
            _send(connection, error if isinstance(error, JobError) else _unsendable(error))
            return
        _send(connection, None)
        while True:
            batch = pickle.loads(connection.recv_bytes())
            if batch is None:
                return
            _send(connection, _explain_batch(explainer, settings, batch, connection))


def _load(explainer_and_settings: bytes) -> tuple[Explainer, JobSettings]:
    sent, settings, autocast = pickle.loads(explainer_and_settings)
    explainer = sent.unpack()
    autocast_here = describe_autocast(device_of(explainer.model).type)
    if autocast_here != autocast:
        raise JobError(
            f"torch computes in {autocast or 'full precision'} in this process, and in "
            f"{autocast_here or 'full precision'} in worker processes, where your settings of torch are unknown; "
            "run without ",
            Argument("workers"),
        )
    return explainer, settings


def _explain_batch(
    explainer: Explainer, settings: JobSettings, batch: _Batch, connection: Connection
) -> _BatchResult | Exception:
    """The rows of a batch, or the error that ends the run."""
    timings = Timings()
    writer = RowWriter(explainer, settings, batch.rows)
    by_index: dict[int, list[Record]] = {}
    last_report = time.monotonic()

    def report(results_done: float) -> None:
        nonlocal last_report
        now = time.monotonic()
        if now - last_report >= _SECONDS_BETWEEN_REPORTS:
            last_report = now
            _send(connection, results_done / len(settings.methods))

    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")  # the other process decides which are shown
            for results in explain_many(
                explainer.runner,
                batch.texts,
                settings.methods,
                batch_size=settings.batch_size,
                on_error="collect",
                report=report,
                timings=timings,
                done=batch.done,
                stop=connection.poll,  # nothing comes during a batch but the end of the run
                one_batch=True,
            ):
                by_index[results.index] = writer.write(results)
    except Exception as error:
        return _sendable(error)
    raised = [_sendable_warning(warning.message) for warning in caught if isinstance(warning.message, Warning)]
    return _BatchResult(by_index, timings, writer.seconds, raised)


def _sendable_warning(warning: Warning) -> Warning:
    """The warning, or one that says the same if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(warning))
    except Exception:  # of any class: objects decide how they are pickled
        return UserWarning(str(warning))
    return warning


def _sendable(error: Exception) -> Exception:
    """The error, or one that says the same if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return JobError(f"a worker process failed: {type(error).__name__}: {error}")
    return error
