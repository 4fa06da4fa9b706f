"""Models and the work that waits for them: one thread and one queue for each model.

A model is loaded by the first work for it, and unloaded after some time without any. Models are not made for several
threads at once, and one explanation already uses all cores, so each model does one thing at a time.
"""

from __future__ import annotations

import gc
import queue
import threading
from collections.abc import Callable
from typing import Any

from gaflow.explainer.explainer import Explainer
from gaflow.web.problems import busy
from gaflow.web.server_settings import Limits
from gaflow.web.work import Answer, Progress, Work

SECONDS_TO_END = 5.0  # a thread that reports no progress for longer ends with the process

ModelTask = Callable[[Explainer, Progress], Answer]


class ModelQueue:
    """One model, and the thread that works with it."""

    def __init__(self, name: str, load: Callable[[], Explainer], limits: Limits):
        self.name = name
        self.limits = limits
        self._load = load
        self._explainer: Explainer | None = None
        self._waiting: queue.Queue[Work | None] = queue.Queue(limits.queue)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def loaded(self) -> bool:
        """Whether the model is in memory."""
        return self._explainer is not None

    def describe(self) -> dict[str, Any]:
        """The model as lists show it; its task and labels are known while it is loaded."""
        facts: dict[str, Any] = {"name": self.name, "loaded": self.loaded, "waiting": self._waiting.qsize()}
        explainer = self._explainer
        if explainer is not None:
            facts["class"] = type(explainer.model).__name__
            facts["task"] = explainer.task
            facts["labels"] = list(explainer.head.labels)
            facts["tokens"] = explainer.runner.limit
        return facts

    def submit(self, task: ModelTask) -> Work:
        """Queue a task; 429 where too many wait."""
        work = Work(lambda progress: task(self._get_explainer(), progress), self.limits.seconds)
        try:
            self._waiting.put_nowait(work)
        except queue.Full:
            raise busy(f"the model {self.name}") from None
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._serve, name=f"gaflow {self.name}", daemon=True)
                self._thread.start()
        return work

    def close(self) -> None:
        """End the thread once it has nothing more to do."""
        with self._lock:
            thread = self._thread
        if thread is not None and thread.is_alive():
            self._waiting.put(None)
            thread.join(SECONDS_TO_END)

    def _get_explainer(self) -> Explainer:
        if self._explainer is None:
            self._explainer = self._load()
        return self._explainer

    def _serve(self) -> None:
        """Work until the server ends."""
        while True:
            try:
                work = self._waiting.get(timeout=self.limits.idle_seconds)
            except queue.Empty:
                self._unload()
                work = self._waiting.get()
            if work is None:
                return
            work.run()
            del work  # its answer is not for this thread to keep

    def _unload(self) -> None:
        self._explainer = None
        gc.collect()  # modules of models refer to each other
