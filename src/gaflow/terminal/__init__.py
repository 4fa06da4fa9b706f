"""Attributions in a terminal: shaded text, tables and comparisons (extra `cli`)."""

from gaflow.terminal.attribution import one_line

__all__ = ["one_line"]
