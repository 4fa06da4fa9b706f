"""The command `gaflow`: starts the program and turns whatever goes wrong into one line and an exit code.

The convention this file owns: 0 done; 2 bad input (an unknown option, text, model, target, file ...); 1 anything
else; 130 interrupted. One line on stderr says why, and a traceback is only shown with GAFLOW_DEBUG=1.
"""

from __future__ import annotations

import io
import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn

from gaflow.errors import GaflowError, MissingExtraError

__all__ = ["main", "program"]

_QUIET = {  # read by the libraries when they are imported, which is later
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
_SPOKEN = {  # what Python's users read, and those of the command line; names of arguments are read as options, too
    "pass model=,": "give --model,",
    ", or a transformers model with its tokenizer": "",
    "text[0] ": "TEXT ",
    "text[1] ": "--pair ",
    "batch must be": "--batch-size must be",
}


def main(args: Sequence[str] | None = None) -> int:
    """Run `gaflow` with `args` (None: the process's own) and give its exit code."""
    debug = os.environ.get("GAFLOW_DEBUG", "") not in ("", "0")
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8 is no reason to fail
    try:
        with warnings.catch_warnings():
            if not sys.warnoptions and not debug:
                warnings.simplefilter("ignore")
            return _run(args)
    except KeyboardInterrupt:
        return _fail("stopped", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter fails once more at exit
        return 1
    except (GaflowError, ValueError, TypeError, OSError) as error:
        if debug:
            raise
        return _fail(_translate(str(error), args) or type(error).__name__, 2)
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


def _run(args: Sequence[str] | None) -> int:
    try:
        from gaflow.cli.commands import run
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("typer", "click", "rich"):
            raise
        raise MissingExtraError(f"the command line needs {missing}; run: pip install 'gaflow[cli]'") from error
    code = run(args)
    sys.stdout.flush()
    return code


def _translate(message: str, args: Sequence[str] | None) -> str:
    """The message with options of the command in place of Python's arguments, except in quotes."""
    for python, command in _SPOKEN.items():
        message = message.replace(python, command)
    try:
        from gaflow.cli.commands import options_of
    except ModuleNotFoundError:  # one of their libraries is the very thing that is missing
        return message
    for name, option in options_of(sys.argv[1:] if args is None else args).items():
        word = rf"(?<![\w'\"./-]){name}(?![\w'\"/-])"
        message = re.sub(rf"{word}=(True\b)?", lambda found, o=option: o if found[1] else f"{o} ", message)
        if "_" in name:  # no word of any other sentence
            message = re.sub(word, option, message)
        else:
            message = re.sub(rf"^{word}(?= (must|is|has|and)\b)|(?<= and ){word}(?= are both\b)", option, message)
    return message


def _fail(message: str, code: int) -> int:
    try:
        from gaflow.view.text import one_line
    except ModuleNotFoundError:  # Rich is the very thing that is missing
        one_line = str
    sys.stderr.write(f"gaflow: {one_line(message)}\n")
    return code
