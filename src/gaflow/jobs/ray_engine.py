"""Shards on a Ray cluster: actors that hold the model, and a driver that reads the data and writes the files.

    driver: rows of a shard -> actor: Parquet bytes -> driver: file, manifest

Workers need neither the data set nor the folder of the results nor the hub: the driver sends them the model once, by
way of Ray's object store, and then rows, about a megabyte a shard.

The convention this file owns: **it does not matter which worker computes a shard.** Ray restarts a worker that is lost,
on another machine if need be, and meanwhile its shard goes to any worker that is free. The bytes are those of a local
run on the same kind of processor.
"""

from __future__ import annotations

import copy
import logging
import os
import platform
import sys
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any

import torch

from gaflow.arguments import optional_whole_number
from gaflow.errors import Argument, ArgumentError, JobError
from gaflow.explainer.explainer import Explainer
from gaflow.explainer.many import Stop
from gaflow.explainer.provenance import versions
from gaflow.extras import need
from gaflow.jobs.engine import (
    ComputedShard,
    JobSettings,
    RunningEngine,
    ShardRows,
    compute_shard,
    losing_workers,
)
from gaflow.jobs.sent_explainer import SentExplainer
from gaflow.progress import Report

_STARTS = 4  # attempts to start Ray, each of which it gives up after 30 seconds
_RESTARTS = 20  # of one worker; Ray does not count those whose machine was taken away
_LOSSES = 4  # workers that one shard may lose
_SECONDS = 1.0  # between two questions how far the workers are

Promise = Any  # a ray.ObjectRef
Actor = Any  # a Ray handle of a `_Worker`
Resources = Mapping[str, int]  # of one worker, by Ray's names
Versions = Mapping[str, str]  # library -> version


def ray_module() -> Any:
    """Ray, which is optional and without types."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    need("ray", "ray", "engine 'ray' needs Ray")
    return import_module("ray")


@dataclass(frozen=True)
class Ray:
    """Settings of a run on a Ray cluster: the one at `RAY_ADDRESS`, one on this machine, or a new local one."""

    workers: int | None = None  # None: as many as the cluster has room for
    device: str | None = None  # "cuda" or "cpu"; None: GPUs where the cluster has any, one for each worker
    threads: int | None = None  # CPU cores of a worker; None: as many threads as torch has in this process

    def __post_init__(self) -> None:
        optional_whole_number("workers", self.workers)
        optional_whole_number("threads", self.threads)
        if self.device not in (None, "cpu", "cuda"):
            message = f" must be 'cpu' or 'cuda' with Ray, which chooses among the GPUs; not {self.device!r}"
            raise ArgumentError(Argument("device"), message)

    @contextmanager
    def __call__(self, explainer: Explainer) -> Iterator[RunningEngine]:
        """At work on the cluster; a local one that was started for this run ends with it."""
        ray = ray_module()
        connected_before = ray.is_initialized()
        if not connected_before:
            start_ray()
        try:
            device = self.device or best_device(ray.cluster_resources())
            threads = self.threads or torch.get_num_threads()
            resources = worker_resources(device, threads)
            size = self.workers or room(ray.nodes(), resources)
            with closing(_Pool(explainer, device, threads, resources, size)) as pool:
                yield RunningEngine(device, threads, pool.compute)
        finally:
            if not connected_before:
                ray.shutdown()


def best_device(cluster_resources: Mapping[str, float]) -> str:
    """The kind of device to use if the user names none."""
    return "cuda" if cluster_resources.get("GPU", 0) >= 1 else "cpu"


def worker_resources(device: str, threads: int) -> Resources:
    """The resources of one worker, by Ray's names."""
    if device == "cuda":
        return {"GPU": 1, "CPU": 1}
    return {"CPU": threads}


def room(nodes: Sequence[Mapping[str, Any]], resources: Resources) -> int:
    """The number of workers that fit into a cluster, each of them on one node."""
    workers = 0
    for node in nodes:
        if node["Alive"]:
            available = node["Resources"]
            workers += min(int(available.get(name, 0) // amount) for name, amount in resources.items())
    if workers == 0:
        listed = " and ".join(f"{amount} {name}" for name, amount in resources.items())
        raise JobError(
            f"no node of the Ray cluster has {listed} for a worker; add nodes, or set OMP_NUM_THREADS to fewer threads"
        )
    return workers


def start_ray(**options: Any) -> None:
    """Connect to a cluster or start one on this machine, again and again if the machine is busy."""
    ray = ray_module()
    for _ in range(_STARTS):
        try:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, **options)
            return
        except Exception as error:  # Ray raises plain exceptions
            ray.shutdown()
            if "timed out during startup" not in str(error):
                raise
    raise JobError(
        f"Ray did not start in {_STARTS} attempts, as happens where the machine is overloaded; start a cluster by "
        "`ray start --head`, set RAY_ADDRESS, and call this again"
    )


class _Pool:
    """The workers of one run. Each is loading the model, computing a shard, or idle."""

    def __init__(self, explainer: Explainer, device: str, threads: int, resources: Resources, size: int):
        self._size = size
        self._ray = ray_module()
        send_foreign_code()
        self._model = self._ray.put(_portable(explainer))
        worker_class = self._ray.remote(
            num_cpus=resources["CPU"],
            num_gpus=resources.get("GPU", 0),
            max_restarts=_RESTARTS,
            max_task_retries=0,  # a shard goes to another worker instead of waiting for the restart
            max_concurrency=2,  # a worker answers how far it is while it computes
        )(_Worker)
        self._start = partial(worker_class.remote, device, threads)
        self._workers: list[Actor] = []
        self._calls: dict[Promise, tuple[Actor, ShardRows | None]] = {}  # None: the worker loads the model
        self._idle: list[Actor] = []
        self._queue: deque[ShardRows] = deque()  # shards that no worker has
        self._losses: Counter[int] = Counter()  # shard -> workers lost

    def compute(
        self, settings: JobSettings, shards: Iterator[ShardRows], report: Report, stop: Stop
    ) -> Iterator[ComputedShard]:
        """Shards in the order in which they are finished; `stop` gives up those that are not."""
        sent_settings = self._ray.put(settings)
        self._queue.extend(islice(shards, self._size))
        for _ in range(len(self._queue)):
            worker = self._start()
            self._workers.append(worker)
            self._load(worker)
        texts = 0  # in finished shards
        reported = 0
        while self._queue or self._busy_workers():
            finished = self._wait()
            while self._queue and self._idle:
                worker = self._idle.pop()
                shard = self._queue.popleft()
                self._calls[worker.compute.remote(sent_settings, shard)] = (worker, shard)
                self._queue.extend(islice(shards, 1))
            if finished is None:
                reported = max(reported, texts + self._texts_underway())  # a shard that lost its worker begins again
            else:  # written while the workers compute the next ones
                texts += finished.entry.texts
                reported = max(reported, texts)
                yield finished
            report(reported)
            if stop():
                return

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            self._ray.kill(worker)

    def _load(self, worker: Actor) -> None:
        """Send the model to a worker, as soon as Ray has started or restarted it."""
        promise = worker.load.options(max_task_retries=-1).remote(self._model, versions())
        self._calls[promise] = (worker, None)

    def _busy_workers(self) -> list[Actor]:
        """The workers that compute a shard."""
        return [worker for worker, shard in self._calls.values() if shard is not None]

    def _wait(self) -> ComputedShard | None:
        """A shard that got finished; None if there was none within a second."""
        ready, _ = self._ray.wait(list(self._calls), num_returns=1, timeout=_SECONDS)
        if not ready:
            return None
        worker, shard = self._calls.pop(ready[0])
        try:
            computed = self._ray.get(ready[0])
        except self._ray.exceptions.RayTaskError as error:  # of our own code
            raise error.cause from None
        except self._ray.exceptions.RayActorError as error:
            self._replace(worker, shard, error)
            return None
        self._idle.append(worker)
        return computed

    def _replace(self, worker: Actor, shard: ShardRows | None, error: Any) -> None:
        """Continue without a worker that is lost, until Ray has restarted it."""
        if shard is None:  # restarted too often
            self._workers.remove(worker)
            if self._workers:
                return
            problem = "no worker could be started"
        else:
            self._losses[shard.number] += 1
            if self._losses[shard.number] < _LOSSES:
                self._queue.appendleft(shard)
                self._load(worker)
                return
            problem = f"shard {shard.number} has lost its worker, {_LOSSES} times"
        lines = str(error).splitlines()
        reason = lines[-1] if error.actor_init_failed else lines[0]  # the end of a traceback, or Ray's own summary
        raise losing_workers(problem, reason) from None

    def _texts_underway(self) -> int:
        """Texts that are done in unfinished shards, according to the workers that answer within a second."""
        promises = [worker.texts_done.remote() for worker in self._busy_workers()]
        if not promises:
            return 0
        texts = 0
        answered, _ = self._ray.wait(promises, num_returns=len(promises), timeout=_SECONDS)
        for promise in answered:
            try:
                texts += self._ray.get(promise)
            except self._ray.exceptions.RayError:  # the worker is being lost; the promise of its shard says so too
                continue
        return texts


class _Worker:
    """The actor: holds a model and computes shards."""

    def __init__(self, device: str, threads: int):
        torch.set_num_threads(threads)
        self._device = device
        self._explainer: Explainer | None = None
        self._texts_done = 0  # in the shard that is being computed

    def load(self, sent: SentExplainer, driver_versions: Versions) -> None:
        """Take the model, tokenizer and task; the libraries here must be those of the driver."""
        check_versions(driver_versions, versions())
        self._explainer = sent.unpack(self._device)

    def compute(self, settings: JobSettings, shard: ShardRows) -> ComputedShard:
        """One shard."""
        assert self._explainer is not None
        computed = compute_shard(self._explainer, settings, shard, self._report)
        assert computed is not None  # it is not stopped
        self._texts_done = 0
        worker = f"{platform.node()}:{os.getpid()}"
        return replace(computed, timings=computed.timings | {"worker": worker})

    def _report(self, count: float) -> None:
        self._texts_done = int(count)

    def texts_done(self) -> int:
        """Texts of the current shard that are done."""
        return self._texts_done


def send_foreign_code() -> None:
    """Let models whose code came with them, which workers do not have, travel together with that code."""
    for name, module in list(sys.modules.items()):
        if name.startswith("transformers_modules."):
            ray_module().cloudpickle.register_pickle_by_value(module)


def check_versions(driver: Versions, worker: Versions) -> None:
    """Refuse libraries of other versions on a worker; their builds, as for CPUs and GPUs, may differ."""
    for name, version in driver.items():
        version_here = worker.get(name, "none")
        if name != "python" and version.partition("+")[0] != version_here.partition("+")[0]:
            raise JobError(
                f"the worker on {platform.node()!r} has {name} {version_here}, but this process has {version}; "
                "install the same versions on all machines"
            )


def _portable(explainer: Explainer) -> SentExplainer:
    """The explainer as it is sent: on the CPU, because machines differ in their other devices."""
    sent = SentExplainer.of(explainer)
    if any(weight.device.type != "cpu" for weight in sent.model.parameters()):
        return replace(sent, model=copy.deepcopy(sent.model).cpu())
    return sent
