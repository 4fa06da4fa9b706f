"""How far a long run is, on stderr: a bar for who watches, a line now and then for a log; and how to end it.

The convention this file owns: the first Ctrl-C (or SIGTERM) asks the run to end where nothing is lost, the second one
ends it at once. Rate and remaining time count what this run does, not what earlier ones have done.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType

from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from gaflow.progress import Progress
from gaflow.terminal.console import make_console

__all__ = ["INTERRUPTED", "stoppable", "watched"]

INTERRUPTED = 130  # exit code of who was stopped by Ctrl-C
_EVERY = 10.0  # seconds between two lines


@contextmanager
def watched(doing: str) -> Iterator[Progress]:
    """What to tell how many texts are done, out of how many."""
    if not sys.stderr.isatty():
        yield _lines(doing)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    with Bar(*columns, TimeRemainingColumn(), console=make_console(stderr=True), transient=True) as bar:
        task: list[TaskID] = []
        pace = _Pace()

        def tell(done: float, total: int) -> None:
            pace.told(done)
            if not task:
                task.append(bar.add_task(doing, total=total, rate=""))
            bar.update(task[0], completed=int(done), rate=f"{pace.rate(done):.3g} texts/s")

        yield tell


def _lines(doing: str) -> Callable[[float, int], object]:
    pace = _Pace()
    last = [time.monotonic()]

    def tell(done: float, total: int) -> None:
        pace.told(done)
        now, rate = time.monotonic(), pace.rate(done)
        if now - last[0] < _EVERY or not rate:
            return
        last[0] = now
        left = timedelta(seconds=round((total - done) / rate))
        sys.stderr.write(f"{doing}: {done:,.0f} of {total:,} texts, {rate:.3g} texts/s, {left} left\n")
        sys.stderr.flush()

    return tell


class _Pace:
    """Texts per second since the first time that something was told."""

    def __init__(self) -> None:
        self._start: tuple[float, float] | None = None

    def told(self, done: float) -> None:
        if self._start is None:
            self._start = (time.monotonic(), done)

    def rate(self, done: float) -> float:
        assert self._start is not None
        began, before = self._start
        return (done - before) / max(time.monotonic() - began, 1e-9)


@contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """A question that is answered yes once the user has asked the run to end."""
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        sys.stderr.write("ending after this batch; once more to end at once\n")

    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        before = {number: signal.signal(number, ask) for number in numbers}
    except ValueError:  # not the main thread, which alone gets signals
        before = {}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
