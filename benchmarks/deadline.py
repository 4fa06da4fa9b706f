"""A time after which a script begins nothing new, and writes what it has."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping, Sequence

HELP = "begin nothing new after so many; what is missing then is named in the result"


class Deadline:
    """`seconds` from now (None: never); `left_out` are the names of what was not begun any more."""

    def __init__(self, seconds: float | None = None):
        self.end = math.inf if seconds is None else time.monotonic() + seconds
        self.left_out: list[str] = []

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self.end

    def allows(self, name: str) -> bool:
        """Whether work of this name may begin; if not, it is noted."""
        if self.is_over:
            self.left_out.append(name)
            return False
        return True


def add_option(parser: argparse.ArgumentParser) -> None:
    """The option `--seconds`."""
    parser.add_argument("--seconds", type=float, help=HELP)


def missing_lines(left_out: Sequence[str], failed: Mapping[str, str] | None = None) -> list[str]:
    """Paragraphs about what there was no time for, and what failed and why; nothing if all was done."""
    lines = []
    if left_out:
        lines += [f"Left out, since the time was over: {', '.join(dict.fromkeys(left_out))}.", ""]
    for name, reason in (failed or {}).items():
        lines += [f"`{name}` failed, and is left out: {reason}", ""]
    return lines
