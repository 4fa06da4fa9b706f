"""The frame of a flow diagram: its size, and what is written around it.

The convention this file owns: **a diagram makes its own room**. Rows and columns stand closer the more there are, and
the figure grows with them. In given axes, they share the room that there is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gaflow.errors import Argument, ArgumentError
from gaflow.plots.elements import Heading, draw_note
from gaflow.plots.figure import Picture, fit_text, styled, text_width, wrap_text
from gaflow.plots.flow.layout import MARGIN, Layout
from gaflow.plots.flow.strokes import Pen
from gaflow.view.flow_graph import EdgeSelection, Graph

__all__ = ["LABEL_WIDTH", "Diagram"]

LABEL_WIDTH = 100.0  # of the longest token
_INNER_WIDTH = 440.0  # at least, for the captions
_MOST_ARROWS = 80  # more edges have no arrow heads
_TERMINAL_COLUMNS = 0.8  # from a terminal to the layer next to it
_SMALL = 5  # tokens: so few have straight edges
_CAPTION_LINE = 12.0
_WAYS = {True: "from input to output", False: "from output to input"}  # if arrows point forward, or not


@dataclass(frozen=True)
class Diagram:
    """Everything that a flow diagram shows."""

    selection: EdgeSelection  # the drawn edges
    other: Graph  # the flow to compare with; without a comparison, the same
    names: list[str]  # of the tokens
    special: np.ndarray  # (t,) bool
    forward: bool  # arrows point from input to output
    terminals: bool
    values: bool  # amounts are written at the edges
    title: str
    caption: str
    facts: tuple[str, ...] = ()  # below the title
    returning: bool = False  # the return edge is drawn
    routes: tuple[tuple[int, ...], ...] = ()  # the nodes of each
    crossed: np.ndarray | None = None  # (m,) bool: drawn edges of the minimum cut

    @property
    def graph(self) -> Graph:
        """The whole network."""
        return self.selection.graph

    def draw(self, axes: Axes | None) -> Figure:
        """Draw it on `axes`, or on a figure that is as large as needed; returns the figure."""
        layers, t, _ = self.graph.edges.shape
        columns = layers + (2 * _TERMINAL_COLUMNS if self.terminals else 0.0)
        row, column = _spacing(layers, t, values=self.values)
        if axes is None:
            width = max(columns * column + 2 * self._side_margin(row), _INNER_WIDTH)
            height = 0.0  # follows from what is above and below the network
        else:
            width, height = _use_points(axes)
        heading = Heading.of(self.title, self.facts, width)
        caption = wrap_text(f"Edges lead {_WAYS[self.forward]}; {self.caption}.", 8, width)
        above = 34.0 if self.terminals else 20.0
        if self.title:
            above += heading.height + 4
        below = self._below(len(caption))
        with styled():
            if axes is None:
                height = (t - 1) * row + 2 * MARGIN + above + below
                axes = Picture.padded(width, height, self.title or "flow diagram").sheet()
            else:
                row = (height - above - below - 2 * MARGIN) / max(t - 1, 1)
                column = (width - 2 * self._side_margin(row)) / columns
                if row < 1 or column < 5:
                    size = f"{width:.0f} x {height:.0f} points"
                    message = f" are too small for {layers} layers of {t} tokens: {size}"
                    raise ArgumentError(Argument("axes"), message)
            layout = Layout(
                left=(width - layers * column) / 2,
                top=above + MARGIN,
                column=column,
                row=row,
                layers=layers + 1,
                tokens=t,
                terminal_distance=_TERMINAL_COLUMNS * column if self.terminals else 0.0,
                straight=t <= _SMALL,
            )
            pen = Pen(
                axes=axes,
                layout=layout,
                forward=self.forward,
                largest=self._largest_amount(),
                selection=self.selection,
                other=self.other,
            )
            if self.title:
                heading.draw(axes)
            self._draw_network(pen)
            caption_top = layout.bottom + below - _CAPTION_LINE * len(caption)
            for index, line in enumerate(caption):
                draw_note(axes, 0, caption_top + _CAPTION_LINE * index, line)
        return axes.figure.figure  # of a subfigure, the whole figure

    def _draw_network(self, pen: Pen) -> None:
        pen.edges()
        pen.nodes()
        pen.routes(self.routes)
        if self.crossed is not None:
            pen.crosses(self.crossed)
        if self.terminals:
            pen.terminals()
        if self.returning:
            pen.return_edge()
        if self.selection.amount.size <= _MOST_ARROWS:
            pen.arrows()
        if self.values:
            pen.numbers()
        size = _label_size(pen.layout.row)
        names = [fit_text(name, size, LABEL_WIDTH) for name in self.names]
        pen.labels(names, self.special, size)
        pen.layer_names()
        if not self.selection.is_complete:
            pen.layer_shares()

    def _largest_amount(self) -> float:
        """The largest amount that is drawn, 1 if there is none."""
        amounts = self.selection.amount
        if self.terminals and self.graph.is_flow:
            amounts = np.concatenate([amounts, self.graph.source, self.graph.target])
        return float(amounts.max(initial=0.0)) or 1.0

    def _side_margin(self, row: float) -> float:
        """The room left and right of the network."""
        if self.terminals:
            return 48.0
        size = _label_size(row)
        return max(text_width(fit_text(name, size, LABEL_WIDTH), size) for name in self.names) + 14

    def _below(self, caption_lines: int) -> float:
        """The room below the network."""
        room = 8 + _CAPTION_LINE * caption_lines
        if not self.selection.is_complete:
            room += 12.0
        if self.returning:
            room += 26.0
        return room


def _spacing(layers: int, t: int, *, values: bool) -> tuple[float, float]:
    """Distances of rows and columns: closer, the more there are."""
    row = min(90 / math.sqrt(t), 38.0)
    column = min(max(768 / layers, 16.0), 96.0)
    if values:
        return 1.5 * row, 1.3 * column
    return row, column


def _label_size(row: float) -> float:
    return min(8.5, max(6.0, 0.8 * row))


def _use_points(axes: Axes) -> tuple[float, float]:
    """Give `axes` coordinates in points, y downwards; returns their width and height."""
    box = axes.get_window_extent()
    width = 72 * box.width / axes.figure.dpi
    height = 72 * box.height / axes.figure.dpi
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    return width, height
