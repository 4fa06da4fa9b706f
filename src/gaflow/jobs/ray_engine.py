"""Shards on a Ray cluster: actors that hold the model, and a driver that reads, writes and keeps the books.

    driver: rows of a shard -> actor: Parquet bytes -> driver: file, manifest

Workers need neither the data set nor the folder of the results nor the hub: the driver sends them the model once (it
lies in Ray's object store) and then rows, about a megabyte a shard. The convention this file owns: **a worker is
nobody in particular.** It computes whole shards; the shards of one that is lost go to others and to the one that is
started in its place, and the bytes are those of a local run on the same kind of processor.
"""

from __future__ import annotations

import copy
import logging
import os
import platform
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import torch

from gaflow.errors import JobError, MissingExtraError
from gaflow.explainer.explainer import Explainer
from gaflow.jobs.engine import ComputedShard, Part, RunningEngine, ShardSettings, make_shard
from gaflow.progress import Report

__all__ = ["Ray"]

_AHEAD = 2  # shards that a worker has: one in work and the next, so that it never waits
_STARTS = 4  # attempts, each of which Ray gives up after 30 seconds
_RETRIES = 3  # times that a shard may lose its worker
_PATIENCE = 1.0  # seconds between two looks at how far the workers are


@dataclass(frozen=True)
class Ray:
    """Settings of a run on a Ray cluster: the one that `RAY_ADDRESS` names, one on this machine, or a new local one."""

    workers: int | None = None  # None: as many as the cluster has room for
    device: str | None = None  # "cuda" or "cpu"; None: GPUs where the cluster has any, one for each worker
    threads: int | None = None  # CPU cores of a worker; None: as many threads as torch has here

    def __post_init__(self) -> None:
        for name in ("workers", "threads"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a whole number >= 1, not {value!r}")
        if self.device not in (None, "cpu", "cuda"):
            raise ValueError(
                f"device must be 'cpu' or 'cuda' with Ray, which chooses among the GPUs; not {self.device!r}"
            )

    @contextmanager
    def __call__(self, explainer: Explainer) -> Iterator[RunningEngine]:
        """At work on the cluster; a local one that was started for this run ends with it."""
        ray, own = _connect()
        try:
            place = self.device or ("cuda" if ray.cluster_resources().get("GPU", 0) >= 1 else "cpu")
            threads = self.threads or torch.get_num_threads()
            needs = {"num_gpus": 1, "num_cpus": 1} if place == "cuda" else {"num_cpus": threads}
            pool = _Pool(ray, needs, self.workers or _room(ray, needs), (_portable(explainer), place, threads))
            try:
                yield RunningEngine(place, partial(_compute, pool))
            finally:
                pool.close()
        finally:
            if own:
                ray.shutdown()


def _compute(
    pool: _Pool, plan: ShardSettings, parts: Iterator[Part], report: Report, stop: Callable[[], bool]
) -> Iterator[ComputedShard]:
    """Shards as they get done. Where `stop` says so those in work are lost; finished ones are not."""
    sent, done, told = pool.ray.put(plan), 0, 0
    pool.ahead.extend(islice(parts, pool.most))
    pool.start(len(pool.ahead))
    while (pool.ahead or pool.busy()) and not stop():
        while pool.ahead and pool.has_room():
            pool.give(sent, pool.ahead.popleft())
            pool.ahead.extend(islice(parts, 1))
        for made in pool.take():
            done += made.texts
            yield made
        told = max(told, done + pool.underway())  # a shard that has lost its worker begins anew
        report(told)


class _Pool:
    """Workers, those that are still starting, and what each of them has to do."""

    def __init__(self, ray: Any, needs: dict[str, int], most: int, recipe: tuple[Any, str, int]):
        self.ray, self.most = ray, most
        self.ahead: deque[Part] = deque()  # parts that nobody has: not yet, or those of a worker that is lost
        self._model = [ray.put(recipe[0])]  # in a list, so that a worker fetches it once and not with every shard
        groups = {"make": 1, "tell": 1}  # a worker tells how far it is while it computes
        actor = ray.remote(**needs, max_restarts=0, max_task_retries=0, concurrency_groups=groups)(_Worker)
        self._create: Callable[[], Any] = partial(actor.remote, *recipe[1:])
        self._starting: dict[Any, Any] = {}  # promise -> worker
        self._workers: list[Any] = []
        self._waiting: dict[Any, tuple[Any, Part]] = {}  # promise -> worker and part
        self._losses: Counter[int | None] = Counter()  # of shards, and of workers that never started

    def start(self, count: int) -> None:
        """Start workers; each gets shards once it is there, so that one without a place to run holds nothing up."""
        for _ in range(count):
            worker = self._create()
            self._starting[worker.load.options(concurrency_group="make").remote(self._model)] = worker

    def busy(self) -> bool:
        """Whether anything is in work."""
        return bool(self._waiting)

    def has_room(self) -> bool:
        """Whether a worker could take one more shard."""
        return len(self._waiting) < _AHEAD * len(self._workers)

    def give(self, plan: Any, part: Part) -> None:
        """Send a shard to the worker that has the fewest."""
        worker = min(self._workers, key=lambda w: sum(w is other for other, _ in self._waiting.values()))
        self._waiting[worker.make.options(concurrency_group="make").remote(plan, part)] = (worker, part)

    def take(self) -> Iterator[ComputedShard]:
        """What has got done, after a moment if nothing has."""
        ready, _ = self.ray.wait([*self._waiting, *self._starting], num_returns=1, timeout=_PATIENCE)
        for promise in ready:
            starting = self._starting.pop(promise, None)
            worker, part = (starting, None) if starting is not None else self._waiting.pop(promise)
            try:
                found = self.ray.get(promise)
            except self.ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except self.ray.exceptions.RayActorError as error:
                self._replace(worker, part, str(error))
                continue
            if part is None:
                self._workers.append(worker)
            else:
                yield found

    def _replace(self, worker: Any, part: Part | None, reason: str) -> None:
        """Start another worker for one that is lost, whose shards are to be computed again."""
        self.ray.kill(worker)  # one that cannot be reached may be alive
        number = None if part is None else part[0]
        self._losses[number] += 1
        if self._losses[number] > _RETRIES:
            what = "no worker could be started" if part is None else f"shard {number} has lost its worker"
            raise JobError(
                f"{what}, {_RETRIES + 1} times: {reason.splitlines()[0]} If memory ran out there, use a smaller "
                "batch_size; what is finished is kept, and the same call goes on"
            )
        others = [promise for promise, (owner, _) in self._waiting.items() if owner is worker]
        self.ahead.extendleft(self._waiting.pop(promise)[1] for promise in others)
        self.ahead.extendleft([] if part is None else [part])
        self._workers = [w for w in self._workers if w is not worker]
        self.start(1)

    def underway(self) -> int:
        """Texts of unfinished shards that are done, as far as the workers answer at once."""
        asked = [w.tell.options(concurrency_group="tell").remote() for w in self._workers]
        answered, _ = self.ray.wait(asked, num_returns=len(asked), timeout=_PATIENCE) if asked else ([], [])
        found = 0
        for promise in answered:
            try:
                found += self.ray.get(promise)
            except self.ray.exceptions.RayError:  # a worker that is being lost; its shard's promise says so in time
                continue
        return found

    def close(self) -> None:
        """End all workers."""
        for worker in [*self._workers, *self._starting.values()]:
            self.ray.kill(worker)


class _Worker:
    """The actor: holds a model and computes shards."""

    def __init__(self, place: str, threads: int):
        torch.set_num_threads(threads)
        self._place, self._done = place, 0
        self._explainer: Explainer | None = None

    def load(self, sent: list[Any]) -> None:
        """Fetch the model, once."""
        import ray

        model, tokenizer, task = ray.get(sent[0])
        if hasattr(model, "_can_record_outputs"):
            with torch.device("meta"):
                type(model)(model.config)  # transformers learns what a class can show when one is made, not unpickled
        self._explainer = Explainer(model.to(self._place), tokenizer, task=task)

    def make(self, plan: ShardSettings, part: Part) -> ComputedShard:
        """One shard."""

        def report(count: float) -> None:
            self._done = int(count)

        assert self._explainer is not None
        made = make_shard(self._explainer, plan, part, report)
        assert made is not None  # nobody stops it
        self._done = 0
        return replace(made, times=made.times | {"worker": f"{platform.node()}:{os.getpid()}"})

    def tell(self) -> int:
        """Texts of the shard in work that are done."""
        return self._done


def _portable(explainer: Explainer) -> tuple[Any, Any, str]:
    """Model and tokenizer as they can be sent: on the CPU, as machines differ in what else they have."""
    model = explainer.model
    if any(weight.device.type != "cpu" for weight in model.parameters()):
        model = copy.deepcopy(model).cpu()
    return model, explainer.tokenizer, explainer.task


def _room(ray: Any, needs: dict[str, int]) -> int:
    """How many workers the nodes of the cluster can hold, each of them on one node."""
    names = {"num_cpus": "CPU", "num_gpus": "GPU"}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    room = sum(min(int(node.get(names[k], 0) // n) for k, n in needs.items()) for node in nodes)
    if not room:
        wanted = " and ".join(f"{n} {names[k]}{'s' * (n > 1)}" for k, n in needs.items())
        raise JobError(
            f"no node of the Ray cluster has {wanted} for a worker; add nodes, or set OMP_NUM_THREADS to fewer threads"
        )
    return room


def _connect() -> tuple[Any, bool]:
    """Ray, connected to a cluster, and whether it was not before."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError(f"engine 'ray' needs Ray ({error}); run: pip install 'gaflow[ray]'") from error
    if ray.is_initialized():
        return ray, False
    start_ray(ray)
    return ray, True


def start_ray(ray: Any, **options: Any) -> None:
    """Connect to a cluster or start one here, with patience: Ray gives a busy machine half a minute, and no more."""
    for _ in range(_STARTS):
        try:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, **options)
            return
        except Exception as error:  # what Ray raises has no name of its own
            ray.shutdown()
            if "timed out during startup" not in str(error):
                raise
    raise JobError(
        f"Ray did not start in {_STARTS} attempts, as happens where the machine is overloaded; start a cluster by "
        "`ray start --head`, set RAY_ADDRESS, and call this again"
    )
