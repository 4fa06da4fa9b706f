"""Progress of long work on stderr, and how to end it: a spinner, a bar, or lines for a log.

The convention this file owns: the first Ctrl-C (or SIGTERM) asks a run to end where little is lost, the second one
ends it at once. Rate and remaining time count the texts of this run, not those of earlier ones, and leave out the
first piece of work, which takes longer.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from gaflow.progress import SECONDS_BEFORE_BAR, Advice, Pace, Progress
from gaflow.terminal.console import make_console

_INTERRUPTED = 130  # exit code after Ctrl-C
_SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def spinner(activity: str) -> Iterator[Progress]:
    """A spinner while a model is loaded or works, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield False
        return
    pace = Pace()
    pace.rate(0)
    with make_console(stderr=True).status(activity) as status:

        def report(done: float, total: int) -> None:
            text = f"{activity}, {done / total:.0%}"
            rate = pace.rate(done)
            if rate and done < total:
                seconds_left = round((total - done) / rate)
                text += f", roughly {seconds_left:,} s left"
            status.update(text)

        yield report


@contextmanager
def progress_bar(activity: str) -> Iterator[Progress]:
    """A function to call with the number of texts done and the number in all: a bar, or lines if nobody watches."""
    if not sys.stderr.isatty():
        yield _log_lines(activity)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    with Bar(*columns, TimeRemainingColumn(), console=make_console(stderr=True), transient=True) as bar:
        task = bar.add_task(activity, total=None, rate="")
        pace = Pace()

        def report(done: float, total: int) -> None:
            rate = pace.rate(done)
            bar.update(task, total=total, completed=int(done), rate=f"{rate:.3g} texts/s" if rate else "")

        yield report


def _log_lines(activity: str) -> Callable[[float, int], object]:
    pace = Pace()
    last_line = time.monotonic()

    def report(done: float, total: int) -> None:
        nonlocal last_line
        rate = pace.rate(done)
        now = time.monotonic()
        if now - last_line < _SECONDS_BETWEEN_LINES or not rate:
            return
        last_line = now
        remaining = timedelta(seconds=round((total - done) / rate))
        sys.stderr.write(f"{activity}: {done:,.0f} of {total:,} texts, {rate:.3g} texts/s, roughly {remaining} left\n")
        sys.stderr.flush()

    return report


@contextmanager
def until_interrupted(what_stays: str) -> Iterator[Callable[[], bool]]:
    """A function that returns True once the user has asked the run to end, who is told what is stored then."""
    interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt(f"{what_stays}; run the same command again to go on")
        interrupted = True
        sys.stderr.write(f"ending within seconds: {what_stays}; press Ctrl-C again to end at once\n")

    handlers_before = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            handlers_before[number] = signal.signal(number, interrupt)
    except ValueError:  # not the main thread, which alone gets signals
        pass
    try:
        yield lambda: interrupted
    finally:
        for number, handler in handlers_before.items():
            signal.signal(number, handler)


def advising(progress: Progress, advice: Advice | None) -> Progress:
    """The same progress, with one line of advice as soon as the time that the work takes can be told."""
    if advice is None or not callable(progress):
        return progress
    report = progress
    pace = Pace()
    started = time.monotonic()

    def report_and_advise(done: float, total: int) -> None:
        nonlocal advice
        report(done, total)
        rate = pace.rate(done)
        seconds = time.monotonic() - started
        if advice is not None and rate and seconds >= SECONDS_BEFORE_BAR:
            sys.stderr.write(advice(seconds + (total - done) / rate) + "\n")
            advice = None

    return report_and_advise


def report_stopped(stored: str) -> int:
    """Say on stderr what an interrupted run has stored, and return the exit code."""
    sys.stderr.write(f"gaflow: stopped: {stored}; run the same command again to go on\n")
    return _INTERRUPTED
