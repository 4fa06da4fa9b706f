"""The command `gaflow`: one file per command, and errors as one line with an exit code.

The convention this room owns: 0 done; 2 bad input (an unknown option, text, model, target, file ...); 1 anything else;
130 interrupted. One line on stderr gives the reason. Set GAFLOW_DEBUG=1 to see the traceback.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn

from gaflow.errors import Argument, DiskFullError, GaflowError, GaflowWarning
from gaflow.files import is_disk_full

__all__ = ["main", "program"]

# The libraries read these when they are imported, which is later.
_QUIET_ENVIRONMENT = {
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
# Arguments of Python that the command line has under another name.
_OTHER_NAMES = {
    "text[0]": "TEXT",
    "text[1]": "--pair",
    "source": "INPUT",
    "replacements": "--replacement",
    "methods": "--method",
}


def main(args: Sequence[str] | None = None) -> int:
    """Run `gaflow` with `args` (None: those of the process) and return its exit code."""
    debug = os.environ.get("GAFLOW_DEBUG", "") not in ("", "0")
    for name, value in _QUIET_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8 is no reason to fail
    try:
        with warnings.catch_warnings():
            if not sys.warnoptions and not debug:
                warnings.simplefilter("ignore")
                warnings.simplefilter("default", GaflowWarning)
                warnings.showwarning = _show_warning
            from gaflow.cli.commands import run

            code = run(args)
            sys.stdout.flush()
            return code
    except KeyboardInterrupt as interrupt:
        next_step = str(interrupt) or "nothing is kept; run the same command again to start over"
        return _fail(f"stopped: {next_step}", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter fails once more at exit
        return 1
    except (GaflowError, ValueError, TypeError, OSError) as error:
        if debug:
            raise
        if isinstance(error, OSError) and is_disk_full(error):
            return _fail(f"{error.filename or 'standard output'} cannot be written: {error.strerror}", 1)
        message = _message(error, sys.argv[1:] if args is None else args)
        return _fail(message or type(error).__name__, 1 if isinstance(error, DiskFullError) else 2)
    except Exception as error:
        if debug:
            raise
        return _fail(f"{type(error).__name__}: {error} (GAFLOW_DEBUG=1 shows where)", 1)


def program() -> NoReturn:
    """The installed command: `main`, then straight out, since tearing torch down takes as long as an explanation."""
    code = main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _message(error: Exception, args: Sequence[str]) -> str:
    """The error's message, with the options of the command in place of Python's arguments."""
    if not isinstance(error, GaflowError) or error.argument is None:
        return str(error)
    from gaflow.cli.commands import options_of

    names = {**_OTHER_NAMES, **options_of(args)}

    def as_option(argument: Argument) -> str:
        if argument.name not in names:
            return str(argument)
        option = names[argument.name]
        if argument.value is None or argument.value is True:
            return option
        return f"{option} {argument.value}"

    return error.worded(as_option)


def _fail(message: str, code: int) -> int:
    _say(message)
    return code


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    _say(f"warning: {message}")


def _say(message: str) -> None:
    from gaflow.view.text import one_line

    sys.stderr.write(f"gaflow: {one_line(message)}\n")
