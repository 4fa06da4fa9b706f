"""The frame of a flow diagram: its size, and what is written around it.

The convention this file owns: **a diagram makes its own room**. Rows and columns stand closer the more there are, and
the figure grows with them. In given axes, they share the room that there is.
"""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gaflow.errors import Argument, ArgumentError
from gaflow.plots.elements import LINE, draw_heading, draw_lines
from gaflow.plots.figure import Picture, styled, widest, wrap_text
from gaflow.plots.flow.strokes import MARGIN, TERMINAL_COLUMNS, Diagram, Pen, fit_names

_INNER_WIDTH = 440.0  # at least, for the captions
_WAYS = {True: "from input to output", False: "from output to input"}  # if arrows point forward, or not


def draw_diagram(diagram: Diagram, axes: Axes | None) -> Figure:
    """Draw it on `axes`, or on a figure that is as large as needed; returns the figure."""
    layers, t, _ = diagram.graph.edges.shape
    columns = layers
    if diagram.terminals:
        columns += 2 * TERMINAL_COLUMNS
    row = min(90 / math.sqrt(t), 38.0)  # rows and columns stand closer, the more there are
    column = min(max(768 / layers, 16.0), 96.0)
    if diagram.values:
        row *= 1.5
        column *= 1.3
    width = max(columns * column + 2 * _side_margin(diagram, row), _INNER_WIDTH)
    height = None  # follows from what is above and below the network
    if axes is not None:
        width, height = _use_points(axes)
    caption = wrap_text(f"Edges lead {_WAYS[diagram.forward]}; {diagram.caption}.", 8, width)
    below = 8 + LINE * len(caption)
    if not diagram.selection.is_complete:
        below += 12.0
    if diagram.returning:
        below += 26.0
    with styled():
        if axes is None:
            axes = Picture.padded(width, diagram.title or "flow diagram").sheet()
        above = 34.0 if diagram.terminals else 20.0
        if diagram.title:
            above += draw_heading(axes, diagram.title, diagram.facts, width) + 4
        if height is not None:
            row = (height - above - below - 2 * MARGIN) / max(t - 1, 1)
            column = (width - 2 * _side_margin(diagram, row)) / columns
            if row < 1 or column < 5:
                size = f"{width:.0f} x {height:.0f} points"
                message = f" are too small for {layers} layers of {t} tokens: {size}"
                raise ArgumentError(Argument("axes"), message)
        pen = Pen(
            left=(width - layers * column) / 2,
            top=above + MARGIN,
            column=column,
            row=row,
            last=layers,
            tokens=t,
            axes=axes,
            diagram=diagram,
        )
        pen.draw()
        bottom = pen.bottom + below
        draw_lines(axes, 0, bottom - LINE * len(caption), caption)
        figure = axes.figure.figure  # of a subfigure, the whole figure
        if height is None and isinstance(figure, Picture):
            figure.end_at(bottom)
    return figure


def _side_margin(diagram: Diagram, row: float) -> float:
    """The room left and right of the network."""
    if diagram.terminals:
        return 48.0
    return widest(*fit_names(diagram.names, row)) + 14


def _use_points(axes: Axes) -> tuple[float, float]:
    """Give `axes` coordinates in points, y downwards; returns their width and height."""
    box = axes.get_window_extent()
    width = 72 * box.width / axes.figure.dpi
    height = 72 * box.height / axes.figure.dpi
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    return width, height
