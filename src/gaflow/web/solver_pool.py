"""Work on networks, which runs no model: a few threads, and a bounded number of requests that wait for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from gaflow.flow.threads import one_core
from gaflow.web.problems import busy
from gaflow.web.server_settings import Limits
from gaflow.web.work import Answer, Progress, Work


class SolverPool:
    """Threads that solve networks, each on one core."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self._threads = ThreadPoolExecutor(limits.solves, thread_name_prefix="gaflow solver")
        self._places = threading.BoundedSemaphore(limits.solves + limits.queue)

    def submit(self, task: Callable[[], Answer]) -> Work:
        """Queue a task; 429 where too many wait."""

        def run(progress: Progress) -> Answer:
            with one_core():
                return task()

        work = Work(run, self.limits.seconds)
        self._enter()
        work.finished.add_done_callback(lambda _: self._places.release())
        self._threads.submit(work.run)
        return work

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A place among the requests, for work on the caller's own thread."""
        self._enter()
        try:
            with one_core():
                yield
        finally:
            self._places.release()

    def close(self) -> None:
        """End the threads once they have nothing more to do."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _enter(self) -> None:
        if not self._places.acquire(blocking=False):
            raise busy("the solver")
