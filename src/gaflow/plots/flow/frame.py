"""The frame of a flow diagram: how large everything is, and what is written around it.

The convention this file owns: **a diagram makes its own room**. Rows and columns stand closer the more there are, and
the picture grows with them; given axes instead, they share the room that there is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from gaflow.plots.elements import head, head_height
from gaflow.plots.figure import GREY, PAD, Picture, fitted, styled, width_of, wrapped
from gaflow.plots.flow.layout import EDGE, Layout, edge_of
from gaflow.plots.flow.strokes import Pen
from gaflow.view.flow_graph import EdgeSelection, Graph

__all__ = ["LABEL", "Drawing"]

LABEL = 100.0  # width of the longest token
_NARROWEST = 440.0  # for the captions
_ARROWS = 80  # more edges have no arrows
_TALLEST = 1500.0  # more tokens stand closer
_TERMINAL = 0.8  # columns from a terminal to the layer next to it
_SMALL = 5  # tokens: so few have straight edges, far apart


@dataclass(frozen=True)
class Drawing:
    """A graph and all that is written around it, on its way to the paper."""

    graph: Graph
    shown: EdgeSelection
    names: list[str]
    special: np.ndarray  # (t,) bool
    direction: str
    terminals: bool
    values: bool
    returning: bool
    title: str
    below: str
    said: str  # the caption
    beside: Graph | None = None  # another flow of the same network

    def on(self, axes: Axes | None, strokes: Callable[[Pen], None]) -> Any:
        """Draw it on `axes`, or on a picture that is as large as needed; gives the figure."""
        layers, t, _ = self.graph.edges.shape
        row, column = _spacing(layers, t, self.values)
        ends = 2 * _TERMINAL if self.terminals else 0.0  # in columns
        with styled():
            if axes is None:
                inner = max((layers + ends) * column + 2 * self._margin(row), _NARROWEST)
                height = (t - 1) * row + 2 * edge_of(row) + self._above(inner) + self._foot(inner)
                axes = Picture.sized(inner + 2 * PAD, height + 2 * PAD, self.title or "flow diagram").sheet()
            else:
                inner, height = _clear(axes)
                room = height - self._above(inner) - self._foot(inner)
                row = max(room / t, (room - 2 * EDGE) / max(t - 1, 1))
                column = (inner - 2 * self._margin(row)) / (layers + ends)
                if row < 1 or column < 5:
                    size = f"{inner:.0f} x {height:.0f} points"
                    raise ValueError(f"axes are too small for {layers} layers of {t} tokens: {size}")
            place = Layout(
                left=(inner - layers * column) / 2,
                top=self._above(inner) + edge_of(row),
                column=column,
                row=row,
                layers=layers + 1,
                tokens=t,
                end=_TERMINAL * column if self.terminals else 0.0,
                straight=t <= _SMALL,
            )
            self._draw(Pen(axes, place, self.direction == "forward", self._largest()), inner, strokes)
        return axes.figure

    def _draw(self, pen: Pen, inner: float, strokes: Callable[[Pen], None]) -> None:
        axes, place = pen.axes, pen.layout
        if self.title:
            head(axes, self.title, wrapped(self.below, 8.5, inner), inner)
        strokes(pen)
        if self.terminals:
            pen.terminals(self.graph, self.beside)
        if self.returning:
            pen.returning()
        if self.shown.amount.size <= _ARROWS:
            pen.arrows(self.shown, self.terminals)
        if self.values:
            pen.numbers(self.shown, self.graph.source, self.graph.target)
        size = _label_size(place.row)
        names = [fitted(name, size, LABEL) for name in self.names]
        pen.labels(names, self.special, self.graph.through[[0, -1]], size)
        pen.heads(None if self.shown.is_complete else self.shown.layer_shares())
        at = place.bottom + self._foot(inner) - 12 * len(self._caption(inner))
        for k, line in enumerate(self._caption(inner)):
            axes.text(0, at + 12 * k, line, size=8, color=GREY, va="top")

    def _largest(self) -> float:
        """The largest amount on the paper, 1 if there is none."""
        ends = [x for x in (self.graph.source, self.graph.target) if self.terminals and x is not None]
        return max(float(x.max(initial=0.0)) for x in (self.shown.amount, *ends)) or 1.0

    def _margin(self, row: float) -> float:
        """What is written left and right of everything."""
        size = _label_size(row)
        longest = max(width_of(fitted(name, size, LABEL), size) for name in self.names)
        return 48.0 if self.terminals else longest + 14

    def _above(self, inner: float) -> float:
        top = head_height(wrapped(self.below, 8.5, inner)) + 4 if self.title else 0.0
        return top + (34.0 if self.terminals else 20.0)

    def _foot(self, inner: float) -> float:
        return (
            (0.0 if self.shown.is_complete else 12.0)
            + (26.0 if self.returning else 0.0)
            + 8
            + 12 * len(self._caption(inner))
        )

    def _caption(self, inner: float) -> list[str]:
        towards = "from input to output" if self.direction == "forward" else "from output to input"
        return wrapped(f"Edges lead {towards}; {self.said}.", 8, inner)


def _spacing(layers: int, t: int, values: bool) -> tuple[float, float]:
    """Distances of rows and columns: closer, the more there are."""
    if t <= _SMALL:
        return (58.0, 120.0) if values else (38.0, 90.0)
    row = 20.0 if t <= 16 else 14.0 if t <= 48 else max(min(8.5, _TALLEST / t), 2.2)
    return row, 96.0 if layers <= 6 else 64.0 if layers <= 12 else max(864.0 / layers, 16.0)


def _label_size(row: float) -> float:
    return min(8.5, max(6.0, 0.8 * row))


def _clear(axes: Axes) -> tuple[float, float]:
    """Make `axes` a sheet in points, y downwards, and give its width and height."""
    box = axes.get_window_extent()
    width, height = (72 * x / axes.figure.dpi for x in (box.width, box.height))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    return width, height
