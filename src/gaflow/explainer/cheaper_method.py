"""Advice for somebody who waits for a method that runs the model often: the default method may take much less time."""

from __future__ import annotations

from collections.abc import Callable

from gaflow.methods import Method, MethodInfo
from gaflow.progress import Advice, Progress, is_watched

MUCH_CHEAPER = 10  # times fewer passes, from which on a cheaper method is worth a line


class CheaperMethod:
    """Names the default method to somebody who waits for a much more expensive one; once is enough."""

    def __init__(self):
        self._was_named = False

    def advice(self, method: Method, default: Callable[[], Method], progress: Progress) -> Advice | None:
        """One line about the default method, if somebody watches and `method` runs the model many times more often.

        `default` is called only if it matters: finding the default method may run the model.
        """
        is_shown = progress is None and is_watched()
        if not is_shown or self._was_named:
            return None
        line = cheaper_advice(method, default, "method={!r}")
        if line is None:
            return None

        def line_once(seconds: float) -> str:
            self._was_named = True
            return line(seconds)

        return line_once


def cheaper_advice(method: Method, default: Callable[[], Method], choice: str) -> Advice | None:
    """One line about the default method, if `method` runs the model many times more often.

    `choice` is how the reader chooses a method, with braces for its name.
    """
    cost = pass_cost(method)
    if cost is None or cost < MUCH_CHEAPER:
        return None
    cheaper = default()
    cheaper_cost = pass_cost(cheaper)
    if cheaper_cost is None or cost < MUCH_CHEAPER * cheaper_cost:
        return None

    def line(seconds: float) -> str:
        cheaper_seconds = max(1, round(seconds * cheaper_cost / cost))
        slow = f"{method.name} will take roughly {round(seconds):,} s, because it runs the model often"
        fast = f"{choice.format(cheaper.name)} would take roughly {cheaper_seconds:,} s"
        return f"{slow}; {fast}"

    return line


def pass_cost(method: Method) -> int | None:
    """The passes of the model that a method needs for one text; None if the method does not say."""
    info = getattr(method, "info", None)
    return info.pass_cost if isinstance(info, MethodInfo) else None
