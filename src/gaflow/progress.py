"""How far a long run is, told to whoever wants to know: a bar, a function, or nobody.

The convention this file owns: what is told counts whole things (texts, methods) and parts of the one in work, so that
it grows from 0 to the number of things whatever a thing takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Progress", "Report", "reporting", "silent", "within"]

Progress = bool | Callable[[float, int], object]  # True: a bar; a function is called with (done, in all)
Report = Callable[[float], object]  # called with what is done


def silent(done: float) -> None:
    """Tell nobody."""


def within(report: Report, start: float, size: float) -> Report:
    """A report of parts, 0 to 1, of a piece of work that goes from `start` to `start + size`."""
    return lambda part: report(start + part * size)


@contextmanager
def reporting(progress: Progress, total: int, unit: str) -> Iterator[Report]:
    """What to call with the number of things done."""
    if callable(progress):
        tell = progress
        yield lambda done: tell(done, total)
    elif progress:
        from tqdm import tqdm

        with tqdm(total=total, unit=unit) as bar:

            def show(done: float) -> None:
                bar.n = round(done, 2)  # a sum of parts would have too many digits to read
                bar.update(0)

            yield show
    else:
        yield silent
