"""The commands of `gaflow`, each a thin layer over the library: read, explain, print. One file each.

The convention this file owns: results go to stdout and nothing else does; with `--json` stdout is exactly one JSON
document, in ASCII, so no text can send codes to a terminal. Commands raise errors, and `gaflow.cli.main` prints them.
"""

from gaflow.cli import (
    attribute,
    bench,
    compare,
    corpus,
    explain,
    info,
    methods,
    report,
    serve,
)  # each adds itself to the app
from gaflow.cli.app import app, options_of, run

__all__ = [
    "app",
    "attribute",
    "bench",
    "compare",
    "corpus",
    "explain",
    "info",
    "methods",
    "options_of",
    "report",
    "run",
    "serve",
]
