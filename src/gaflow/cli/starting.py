"""Ctrl-C while the command `gaflow` imports its libraries, which takes seconds: one line and exit code 130.

Only the command itself gets this; a program that imports gaflow keeps its own handling of errors.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType

_INTERRUPTED = 130


def starts_command(argv: list[str], original_argv: list[str]) -> bool:
    """Whether this process was started as `gaflow` or `python -m gaflow`."""
    program = Path(argv[0]).stem if argv else ""
    if program == "-m":  # Python does not know the path of the module before the package is imported
        return "-m" in original_argv and original_argv[original_argv.index("-m") + 1 :][:1] == ["gaflow"]
    return program == "gaflow"


def _end(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
        return
    sys.stderr.write("gaflow: stopped: it had not begun; run the same command again\n")
    sys.stderr.flush()
    os._exit(_INTERRUPTED)


if starts_command(sys.argv, sys.orig_argv):
    sys.excepthook = _end
