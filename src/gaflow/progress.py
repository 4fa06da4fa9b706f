"""Long work: its progress, as a bar or by a function of the caller's, and what it does between its steps.

The conventions this file owns: reports count whole things (texts, methods) and fractions of the current one. They grow
from 0 to the number of things, however long each takes. **Loops that may run for seconds call `checkpoint`**, so that
whoever started them can end them (`interruptible`).
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

# None: a bar for somebody who waits; True: a bar; False: nothing; a function is called with (done, in all)
Progress = bool | Callable[[float, int], object] | None
Report = Callable[[float], object]  # called with the number of things done
Advice = Callable[[float], str]  # one line for somebody whose work will take so many seconds
SECONDS_BEFORE_BAR = 2.0
LEAST_RETURNED = 16 << 20  # bytes: less is not worth a millisecond

_check: ContextVar[Callable[[], object] | None] = ContextVar("check", default=None)  # of this thread


def silent(done: float) -> None:
    """Report to nobody."""


def within(report: Report, start: float, size: float) -> Report:
    """A report of the fraction, 0 to 1, of a piece of work that leads from `start` to `start + size`."""
    return lambda fraction: report(start + fraction * size)


@contextmanager
def interruptible(check: Callable[[], object]) -> Iterator[None]:
    """Let long work on this thread call `check` often; the work ends if `check` raises."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


def checkpoint() -> None:
    """A moment at which long work can be ended."""
    check = _check.get()
    if check is not None:
        check()


def is_watched() -> bool:
    """Whether somebody looks at what is written to stderr: in a terminal or a notebook."""
    if sys.stderr is not None and sys.stderr.isatty():
        return True
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return False
    return type(ipython.get_ipython()).__name__ == "ZMQInteractiveShell"


class Pace:
    """Things done per second, by this run. The first piece is left out: it takes longer than others of its size."""

    def __init__(self) -> None:
        self._done_before: float | None = None  # in the first report: by an earlier run
        self._done_first = 0.0  # when the clock starts
        self._started: float | None = None

    def rate(self, done: float) -> float:
        """The rate until this report; 0 while nothing can be said."""
        if self._done_before is None:
            self._done_before = done
        elif self._started is not None:
            return (done - self._done_first) / max(time.monotonic() - self._started, 1e-9)
        elif done > self._done_before:
            self._done_first = done
            self._started = time.monotonic()
        return 0.0


@contextmanager
def reporting(
    progress: Progress, total: int, unit: str, *, initial: int = 0, advice: Advice | None = None
) -> Iterator[Report]:
    """The function to call with the number of things done, of which an earlier run has done `initial`.

    A bar that nobody asked for appears after two seconds, and disappears at the end. It may begin with `advice`.
    """
    if callable(progress):
        callback = progress
        yield lambda done: callback(done, total)
    elif progress or (progress is None and is_watched()):
        from tqdm import tqdm

        is_asked_for = progress is True
        delay = 0.0 if is_asked_for else SECONDS_BEFORE_BAR
        with tqdm(total=total, unit=unit, initial=initial, delay=delay, leave=is_asked_for) as bar:
            started = time.monotonic()
            pace = Pace()
            pace.rate(initial)

            def show(done: float) -> None:
                nonlocal advice
                bar.n = round(done, 2)  # a sum of fractions would have too many digits to read
                bar.update(0)
                if advice is None:
                    return
                rate = pace.rate(done)
                seconds = time.monotonic() - started
                if rate and seconds >= delay and not bar.disable:
                    bar.write(advice(seconds + (total - done) / rate), file=sys.stderr)
                    advice = None

            yield show
    else:
        yield silent


def return_freed_memory(size: int) -> None:
    """Between steps of long work: give memory that is not in use back to the system, if steps take this many bytes.

    The allocator of Linux (glibc) keeps freed blocks of up to 32 MiB for later. The next step often needs others, so a
    process would grow with every step.
    """
    trim = _trim()
    if trim is not None and size >= LEAST_RETURNED:
        trim(0)


@cache
def _trim() -> Any:
    """The function of the C library; None where it has none."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
