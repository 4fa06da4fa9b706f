"""Consoles, tables and shades for the terminal.

The convention this file owns: **what comes from outside is displayed, never obeyed**. It goes through `visible` or
`one_line` into plain `Text`, never through Rich's markup. Every shade has the colours of a light page, whatever the
terminal's own colours are: white is score 0, and letters are black or white.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from gaflow.view.shades import LEVELS, foreground, hex_code, rgb, shade

_RIGHT_ALIGNED = ("score", "share", "at")  # columns of numbers
# Exact colours of terminals that have 256, whose nearest to the shades of a page would change hue from step to step
_COARSE = {
    1: "ffffff ffd7af ffaf5f ff8700 d75f00",
    -1: "ffffff afd7ff 5fafff 0087d7 005faf",
}


def make_console(*, stderr: bool = False) -> Console:
    """A console that interprets nothing it prints: no markup, no :emoji:, no highlighting of numbers."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


def show(console: Console, content: RenderableType) -> None:
    """Print without the blanks by which tables fill their columns, unless there is a colour behind them."""
    with console.capture() as captured:
        console.print(content)
    lines = captured.get().split("\n")
    console.file.write("\n".join(line.rstrip(" ") for line in lines))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table without lines, whose last column may wrap; cells must be `visible` already."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=any(heads))
    last = len(heads) - 1
    for index, head in enumerate(heads):
        justify = "right" if head in _RIGHT_ALIGNED else "left"
        grid.add_column(head, justify=justify, overflow="fold", no_wrap=index < last)
    for row in rows:
        cells = [Text(cell, overflow="fold") for cell in row]
        grid.add_row(*cells)
    return grid


class Palette:
    """The shades that a console can show."""

    def __init__(self, console: Console):
        self.coloured = console.color_system is not None and not console.no_color
        self.coarse = console.color_system != "truecolor"

    def style(self, level: int) -> Style:
        """The style of a shade; no style on consoles without colours."""
        if not self.coloured:
            return Style.null()
        return paint(level, coarse=self.coarse)

    def underlined(self, level: int) -> Style:
        """The same with a line below negative scores: colour alone must not carry the sign."""
        if not self.coloured:
            return Style.null()
        return self.style(level) + Style(underline=level < 0)


def paint(level: int, *, coarse: bool = False) -> Style:
    """The style of a shade, -LEVELS to LEVELS; `coarse` takes the nearest of a few that all terminals have."""
    background = shade(level)
    if coarse:
        steps = _COARSE[-1 if level < 0 else 1].split()
        background = rgb(steps[round(abs(level) / LEVELS * (len(steps) - 1))])
    return Style(color=hex_code(foreground(background)), bgcolor=hex_code(background))
