"""The commands of `gaflow`, each a thin layer over the library: read, ask, print. One file each.

The convention this room owns: results go to stdout and nothing else does; with `--json` stdout is exactly one JSON
document, in ASCII, so that no text can steer a terminal. Errors are raised, and `cli` words them.
"""

from gaflow.cli import attribute, bench, compare, explain, info, methods, report
from gaflow.cli.app import app, options_of, run

__all__ = ["app", "attribute", "bench", "compare", "explain", "info", "methods", "options_of", "report", "run"]
