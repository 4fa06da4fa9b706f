"""Progress of long work: a bar, a function of the caller's, or nothing.

The convention this file owns: reports count whole things (texts, methods) and fractions of the current one. They grow
from 0 to the number of things, however long each takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = bool | Callable[[float, int], object]  # True: a bar; a function is called with (done, in all)
Report = Callable[[float], object]  # called with the number of things done


def silent(done: float) -> None:
    """Report to nobody."""


def within(report: Report, start: float, size: float) -> Report:
    """A report of the fraction, 0 to 1, of a piece of work that leads from `start` to `start + size`."""
    return lambda fraction: report(start + fraction * size)


@contextmanager
def reporting(progress: Progress, total: int, unit: str) -> Iterator[Report]:
    """The function to call with the number of things done."""
    if callable(progress):
        callback = progress
        yield lambda done: callback(done, total)
    elif progress:
        from tqdm import tqdm

        with tqdm(total=total, unit=unit) as bar:

            def show(done: float) -> None:
                bar.n = round(done, 2)  # a sum of fractions would have too many digits to read
                bar.update(0)

            yield show
    else:
        yield silent
