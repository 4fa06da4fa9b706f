"""Work on a model or a network: it waits, runs, reports how far it is, can be stopped, and ends with an answer.

The convention this file owns: **work stops where it reports, or at the next checkpoint**. Every explanation reports its
progress between methods and between parts of a method, and the solvers have a checkpoint in each step
(`gaflow.progress`). A report or a checkpoint of work that was stopped, or that takes too long, raises.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Literal

from gaflow.progress import interruptible
from gaflow.web.problems import HttpProblem, problem_of

State = Literal["waiting", "running", "done", "failed", "stopped"]
FINISHED: tuple[State, ...] = ("done", "failed", "stopped")
_REMEMBERED = 32  # finished pieces of work
_REMEMBERED_BYTES = 64 << 20  # of their answers

Progress = Callable[[float, int], None]  # as explainers call it: things done, things in all
Answer = dict[str, Any]  # JSON values
Task = Callable[[Progress], Answer]


class Stopped(BaseException):
    """Somebody stopped the work; no `except Exception` on the way goes on with it."""


class Work:
    """One request of a model or the solver."""

    def __init__(self, task: Task, seconds: float):
        self.key = secrets.token_urlsafe(12)
        self.task = task
        self.seconds = seconds  # that it may take
        self.state: State = "waiting"
        self.fraction = 0.0
        self.problem: HttpProblem | None = None
        self.content: bytes | None = None  # the answer as JSON, which only this thread has to write
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
            with interruptible(self.check):
                self.report(0.0, 1)
                answer = self.task(self.report)
            self.content = json.dumps(answer, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except Stopped:
            self._finish("stopped", HttpProblem(409, "the work was stopped"))
        except Exception as error:  # whatever a model does, the server goes on
            self._finish("failed", problem_of(error))
        else:
            self.fraction = 1.0
            self._finish("done", None)

    def check(self) -> None:
        """Raise if the work should not go on."""
        if self._stop.is_set():
            raise Stopped
        if time.monotonic() - self._started > self.seconds:
            raise HttpProblem(
                422, f"took longer than {self.seconds:g} s; send a shorter text, fewer methods or cheaper ones"
            )

    def report(self, done: float, total: int) -> None:
        """Note how far the work is; raises if it should not go on."""
        self.check()
        self.fraction = min(1.0, done / total)

    @property
    def answer(self) -> Answer | None:
        """The answer, once the work is done."""
        return None if self.content is None else json.loads(self.content)

    def status(self) -> bytes:
        """What a client is told, as JSON."""
        state = self.state
        status: dict[str, Any] = {"id": self.key, "state": state, "progress": round(self.fraction, 4)}
        if self.problem is not None:
            status["problem"] = self.problem.content()
        message = json.dumps(status).encode()
        if state == "done" and self.content is not None:
            message = message[:-1] + b', "answer": ' + self.content + b"}"
        return message

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
            size = 0
            finished = [other for other in self._work.values() if other.state in FINISHED]
            for count, other in enumerate(reversed(finished)):
                size += len(other.content or b"")
                if count >= _REMEMBERED or size > _REMEMBERED_BYTES:
                    del self._work[other.key]

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
