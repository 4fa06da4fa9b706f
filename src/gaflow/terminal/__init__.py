"""Attributions in a terminal: shaded text, tables and comparisons."""

from gaflow.terminal.attribution import render
from gaflow.terminal.comparison import render_all
from gaflow.terminal.console import make_console, show

__all__ = ["make_console", "render", "render_all", "show"]
