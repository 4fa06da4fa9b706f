"""Work that runs on a model: it waits, runs, reports how far it is, can be stopped, and ends with an answer.

The convention this file owns: **work stops where it reports**. Every explanation reports its progress often, between
methods and between parts of a method; a report of work that was stopped, or that takes too long, raises.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Literal

from gaflow.web.problems import HttpProblem, problem_of

State = Literal["waiting", "running", "done", "failed", "stopped"]
FINISHED: tuple[State, ...] = ("done", "failed", "stopped")
_REMEMBERED = 32  # finished pieces of work

Progress = Callable[[float, int], None]  # as explainers call it: things done, things in all
Answer = dict[str, Any]  # JSON values
Task = Callable[[Progress], Answer]


class Stopped(Exception):
    """Somebody stopped the work."""


class Work:
    """One request of a model."""

    def __init__(self, task: Task, seconds: float):
        self.key = secrets.token_urlsafe(12)
        self.task = task
        self.seconds = seconds  # that it may take
        self.state: State = "waiting"
        self.fraction = 0.0
        self.problem: HttpProblem | None = None
        self.answer: Answer | None = None
        self.finished: Future[None] = Future()
        self._stop = threading.Event()
        self._started = 0.0

    def stop(self) -> None:
        """Stop at the next report; work that waits never starts."""
        self._stop.set()
        if self.state == "waiting":
            self._finish("stopped", HttpProblem(409, "the work was stopped before it began"))

    def run(self) -> None:
        """Do the work on this thread."""
        if self.finished.done():
            return
        self._started = time.monotonic()
        self.state = "running"
        try:
            self.report(0.0, 1)
            self.answer = self.task(self.report)
        except Stopped:
            self._finish("stopped", HttpProblem(409, "the work was stopped"))
        except Exception as error:  # whatever a model does, the server goes on
            self._finish("failed", problem_of(error))
        else:
            self.fraction = 1.0
            self._finish("done", None)

    def report(self, done: float, total: int) -> None:
        """Note how far the work is; raises if it should not go on."""
        if self._stop.is_set():
            raise Stopped
        if time.monotonic() - self._started > self.seconds:
            raise HttpProblem(
                422, f"took longer than {self.seconds:g} s; send a shorter text, fewer methods or cheaper ones", "text"
            )
        self.fraction = min(1.0, done / total)

    def status(self) -> dict[str, Any]:
        """What a client is told."""
        status: dict[str, Any] = {"id": self.key, "state": self.state, "progress": round(self.fraction, 4)}
        if self.problem is not None:
            status["problem"] = self.problem.content()
        if self.state == "done":
            status["answer"] = self.answer
        return status

    def _finish(self, state: State, problem: HttpProblem | None) -> None:
        self.problem = problem
        self.state = state
        if not self.finished.done():
            self.finished.set_result(None)


class WorkList:
    """Work by id; finished work is forgotten when there is much of it."""

    def __init__(self) -> None:
        self._work: OrderedDict[str, Work] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, work: Work) -> None:
        """Remember new work."""
        with self._lock:
            self._work[work.key] = work
            finished = [key for key, other in self._work.items() if other.state in FINISHED]
            for key in finished[:-_REMEMBERED]:
                del self._work[key]

    def get(self, key: str) -> Work:
        """The work with this id."""
        with self._lock:
            work = self._work.get(key)
        if work is None:
            raise HttpProblem(404, f"there is no work {key!r}; finished work is forgotten after a while", "id")
        return work

    def stop_all(self) -> None:
        """Stop everything, as the server ends."""
        with self._lock:
            for work in self._work.values():
                work.stop()

    def remove(self, key: str) -> None:
        """Forget finished work."""
        with self._lock:
            self._work.pop(key, None)
