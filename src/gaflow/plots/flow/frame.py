"""The frame of a flow diagram: its size, and what is written around it.

The convention this file owns: **a diagram makes its own room**. Rows and columns stand closer the more there are, and
the figure grows with them. In given axes, they share the room that there is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gaflow.errors import Argument, ArgumentError
from gaflow.plots.elements import Heading, draw_note
from gaflow.plots.figure import Picture, fit_text, styled, text_width, wrap_text
from gaflow.plots.flow.layout import MARGIN, Layout, row_margin
from gaflow.plots.flow.strokes import Pen
from gaflow.view.flow_graph import EdgeSelection, Graph

__all__ = ["LABEL_WIDTH", "Diagram"]

LABEL_WIDTH = 100.0  # of the longest token
_INNER_WIDTH = 440.0  # at least, for the captions
_MOST_ARROWS = 80  # more edges have no arrow heads
_TALLEST = 1500.0  # more tokens stand closer
_TERMINAL_COLUMNS = 0.8  # from a terminal to the layer next to it
_SMALL = 5  # tokens: so few have straight edges, far apart
_CAPTION_LINE = 12.0


@dataclass(frozen=True)
class Diagram:
    """Everything that a flow diagram shows."""

    selection: EdgeSelection  # the drawn edges
    names: list[str]  # of the tokens
    special: np.ndarray  # (t,) bool
    direction: str  # "forward": arrows point from input to output
    terminals: bool
    values: bool  # amounts are written at the edges
    title: str
    facts: tuple[str, ...]  # below the title
    caption: str
    uniform_nodes: bool = False  # nodes are not drawn in proportion
    returning: bool = False  # the return edge is drawn
    other: Graph | None = None  # another flow of the same network, to compare with
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
        with styled():
            if axes is None:
                width = max(columns * column + 2 * self._side_margin(row), _INNER_WIDTH)
                height = (t - 1) * row + 2 * row_margin(row) + self._above(width) + self._below(width)
                axes = Picture.padded(width, height, self.title or "flow diagram").sheet()
            else:
                width, height = _use_points(axes)
                room = height - self._above(width) - self._below(width)
                row = max(room / t, (room - 2 * MARGIN) / max(t - 1, 1))
                column = (width - 2 * self._side_margin(row)) / columns
                if row < 1 or column < 5:
                    size = f"{width:.0f} x {height:.0f} points"
                    message = f" are too small for {layers} layers of {t} tokens: {size}"
                    raise ArgumentError(Argument("axes"), message)
            layout = Layout(
                left=(width - layers * column) / 2,
                top=self._above(width) + row_margin(row),
                column=column,
                row=row,
                layers=layers + 1,
                tokens=t,
                terminal_distance=_TERMINAL_COLUMNS * column if self.terminals else 0.0,
                straight=t <= _SMALL,
            )
            pen = Pen(axes, layout, forward=self.direction == "forward", largest=self._largest_amount())
            self._draw_network(pen)
            self._draw_words(pen, width)
        return axes.figure.figure  # of a subfigure, the whole figure

    def _draw_network(self, pen: Pen) -> None:
        pen.edges(self.selection, None if self.other is None else self.other.edges)
        pen.nodes(None if self.uniform_nodes else self.graph.through)
        pen.routes(self.routes)
        if self.crossed is not None:
            pen.crosses(self.selection, self.crossed)
        if self.terminals:
            pen.terminals(self.graph, self.other)
        if self.returning:
            pen.return_edge()
        if self.selection.amount.size <= _MOST_ARROWS:
            pen.arrows(self.selection, terminals=self.terminals)
        if self.values:
            pen.numbers(self.selection)

    def _draw_words(self, pen: Pen, width: float) -> None:
        if self.title:
            self._heading(width).draw(pen.axes)
        size = _label_size(pen.layout.row)
        names = [fit_text(name, size, LABEL_WIDTH) for name in self.names]
        pen.labels(names, self.special, self.graph.through[[0, -1]], size)
        pen.layer_names()
        if not self.selection.is_complete:
            pen.layer_shares(self.selection.layer_shares())
        lines = self._caption_lines(width)
        y = pen.layout.bottom + self._below(width) - _CAPTION_LINE * len(lines)
        for line in lines:
            draw_note(pen.axes, 0, y, line)
            y += _CAPTION_LINE

    def _largest_amount(self) -> float:
        """The largest amount that is drawn, 1 if there is none."""
        largest = self.selection.amount.max(initial=0.0)
        if self.terminals:
            for amounts in (self.graph.source, self.graph.target):
                if amounts is not None:
                    largest = max(largest, amounts.max(initial=0.0))
        return float(largest) or 1.0

    def _side_margin(self, row: float) -> float:
        """The room left and right of the network."""
        if self.terminals:
            return 48.0
        size = _label_size(row)
        return max(text_width(fit_text(name, size, LABEL_WIDTH), size) for name in self.names) + 14

    def _above(self, width: float) -> float:
        """The room above the network."""
        heading = self._heading(width).height + 4 if self.title else 0.0
        return heading + (34.0 if self.terminals else 20.0)

    def _below(self, width: float) -> float:
        """The room below the network."""
        room = 8 + _CAPTION_LINE * len(self._caption_lines(width))
        if not self.selection.is_complete:
            room += 12.0
        if self.returning:
            room += 26.0
        return room

    def _heading(self, width: float) -> Heading:
        return Heading.of(self.title, self.facts, width)

    def _caption_lines(self, width: float) -> list[str]:
        way = "from input to output" if self.direction == "forward" else "from output to input"
        return wrap_text(f"Edges lead {way}; {self.caption}.", 8, width)


def _spacing(layers: int, t: int, *, values: bool) -> tuple[float, float]:
    """Distances of rows and columns: closer, the more there are."""
    if t <= _SMALL:
        return (58.0, 120.0) if values else (38.0, 90.0)
    if t <= 16:
        row = 20.0
    elif t <= 48:
        row = 14.0
    else:
        row = max(min(8.5, _TALLEST / t), 2.2)
    if layers <= 6:
        column = 96.0
    elif layers <= 12:
        column = 64.0
    else:
        column = max(864.0 / layers, 16.0)
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
