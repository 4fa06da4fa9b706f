"""What a flow diagram shows, where it stands, and its strokes: edges, nodes, routes, crosses and labels.

The convention this file owns: **widths and areas are proportional to amounts**, the widest edge as wide as rows allow.
Only edges and nodes that would vanish are drawn as a hairline or a dot, wider than their share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.bezier import BezierSegment
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path

from gaflow.plots.elements import draw_note, draw_text
from gaflow.plots.figure import GREY, INK, Colour, Look, fit_text, shade_colour
from gaflow.view.flow_graph import EdgeSelection, Graph
from gaflow.view.shades import LEVELS, level_of

MARGIN = 12.0  # above the first and below the last token
TERMINAL_COLUMNS = 0.8  # from a terminal to the layer next to it
LABEL_WIDTH = 100.0  # of the longest token
_MOST_ARROWS = 80  # more edges have no arrow heads
_SMALL = 5  # tokens: so few have straight edges

_HAIRLINE = 0.35
_DASHES = [(0, (4, 2))]
_SAME = 1e-9  # two amounts are equal if they differ by less of the largest
_WHITE_BOX = {"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "none"}
_CIRCLE = {"boxstyle": "circle,pad=0.2", "facecolor": "white", "edgecolor": INK, "linewidth": 0.7}
_CURVE = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]


@dataclass(frozen=True)
class Diagram:
    """Everything that a flow diagram shows."""

    selection: EdgeSelection  # the drawn edges
    other: Graph  # the flow to compare with; without a comparison, the same
    names: list[str]  # of the tokens
    forward: bool  # arrows point from input to output
    terminals: bool
    values: bool  # amounts are written at the edges
    title: str
    caption: str
    facts: Sequence[str] = ()  # below the title
    special: frozenset[int] = frozenset()  # tokens
    returning: bool = False  # the return edge is drawn
    routes: Sequence[tuple[int, ...]] = ()  # the nodes of each
    crossed: np.ndarray | None = None  # (m,) bool: drawn edges of the minimum cut

    @property
    def graph(self) -> Graph:
        """The whole network."""
        return self.selection.graph

    @property
    def largest(self) -> float:
        """The largest amount that is drawn, 1 if there is none."""
        amounts = self.selection.amount
        if self.terminals and self.graph.is_flow:
            amounts = np.append(amounts, self.graph.ends)
        return float(amounts.max(initial=0.0)) or 1.0


@dataclass(frozen=True)
class Layout:
    """Positions in points: node layers from left (input) to right (output), tokens from top to bottom."""

    left: float  # of node layer 0
    top: float  # of token 0
    column: float  # from layer to layer
    row: float  # from token to token
    last: int  # node layer, that of the output
    tokens: int

    def points(self, layer: np.ndarray | float, token: np.ndarray | float) -> np.ndarray:
        """Of nodes, (m, 2); of one, (2,)."""
        x = self.left + layer * self.column
        y = self.top + token * self.row
        return np.stack(np.broadcast_arrays(x, y), -1)

    def terminal(self, *, output: bool) -> np.ndarray:
        """Of the terminal next to the output or to the input, (2,)."""
        layer = self.last + TERMINAL_COLUMNS if output else -TERMINAL_COLUMNS
        return self.points(layer, (self.tokens - 1) / 2)

    @property
    def bottom(self) -> float:
        """Below the last token."""
        return self.top + (self.tokens - 1) * self.row + MARGIN


@dataclass(frozen=True)
class _Strokes:
    """Edges as curves."""

    curves: np.ndarray  # (m, 4, 2) control points, from the input side to the output side
    amounts: np.ndarray  # (m,)
    other: np.ndarray  # (m,) amounts to compare with


@dataclass(frozen=True)
class Pen(Layout):
    """Draws a diagram into `axes` at the positions of its layout."""

    axes: Axes
    diagram: Diagram

    def draw(self) -> None:
        """The network, without title and caption."""
        diagram = self.diagram
        inner = self._inner_strokes()
        strokes = [inner]
        self.edges(inner)
        self.nodes()
        self.routes()
        if diagram.crossed is not None:
            self.crosses(inner.curves[diagram.crossed])
        if diagram.terminals:
            strokes.append(self._terminal_strokes())
            self.terminals(strokes[-1])
        if diagram.returning:
            self.return_edge()
        if diagram.selection.amount.size <= _MOST_ARROWS:
            self.arrows(strokes)
        if diagram.values:
            self.numbers(strokes)
        self.labels()
        self.layer_names()
        if not diagram.selection.is_complete:
            self.layer_shares()

    @property
    def radius(self) -> float:
        """Of the largest node."""
        return min(0.3 * self.row, 6.0)

    @property
    def _full_area(self) -> float:
        """Of the largest node, in square points."""
        return (2 * self.radius) ** 2

    def edges(self, strokes: _Strokes) -> None:
        """The edges in grey; where they carry more than in the other flow orange, where less blue."""
        darkness = 0.3 + 0.7 * (strokes.amounts / self.diagram.largest) ** 0.7
        tones = 1 - darkness[:, None] * (1 - np.array(INK))  # from white to ink
        self._draw_amounts(strokes, tones, depth=1.0)

    def terminals(self, strokes: _Strokes) -> None:
        """Super-source and super-target and their edges, as in `edges`; dashed where the graph has no amounts."""
        if self.diagram.graph.is_flow:
            self._draw_amounts(strokes, np.tile(GREY, (len(strokes.curves), 1)), depth=0.7)
        else:
            self._draw(strokes.curves, 0.8, GREY, 0.9, _DASHES)
        self._terminal_node(output=True)
        self._terminal_node(output=False)

    def _draw_amounts(self, strokes: _Strokes, tones: np.ndarray, depth: float) -> None:
        """Strokes in their `tones` (m, 3), except those that carry more or less than the other flow."""
        curves = strokes.curves
        largest = self.diagram.largest
        widest = min(0.45 * self.row, 9.0)
        widths = np.maximum(widest * strokes.amounts / largest, _HAIRLINE)
        difference = (strokes.amounts - strokes.other) / largest
        more = difference > _SAME
        less = difference < -_SAME
        same = ~more & ~less
        self._draw(curves[same], widths[same], tones[same], depth)
        widths = np.maximum(widths, 1.2)
        self._draw(curves[more], widths[more] + 1.2, INK, depth + 0.1)  # an outline: colour alone is not enough
        self._draw(curves[more], widths[more], shade_colour(LEVELS), depth + 0.1)
        self._draw(curves[less], widths[less], shade_colour(-LEVELS), depth + 0.2, _DASHES)

    def _terminal_node(self, *, output: bool) -> None:
        name = "target" if output == self.diagram.forward else "source"
        x, y = self.terminal(output=output)
        self.axes.scatter(x, y, s=self._full_area, marker="s", color=[INK], zorder=4)
        x += self.radius + 4 if output else -self.radius - 4
        align = "left" if output else "right"
        for shift, line in ((-5, "super-"), (5, name)):  # two texts: an SVG anchors single lines only
            draw_text(self.axes, x, y + shift, line, ha=align, zorder=6)

    def return_edge(self) -> None:
        """The edge from super-target back to super-source, which makes a circulation of the flow."""
        left, middle = self.terminal(output=False)
        right, _ = self.terminal(output=True)
        depth = (self.bottom + 8 - middle) / (right - left)
        arrow = FancyArrowPatch(
            (left, middle),
            (right, middle),
            arrowstyle="<|-" if self.diagram.forward else "-|>",
            connectionstyle=f"bar,fraction={depth}",
            mutation_scale=8,
            color=INK,
            shrinkA=self.radius,
            shrinkB=self.radius,
        )
        self.axes.add_patch(arrow)
        center = (left + right) / 2
        draw_note(self.axes, center, self.bottom + 14, "return edge, cost -1", size=7.5, ha="center")

    def nodes(self) -> None:
        """A circle for every node, as large as the flow through it; all alike if nothing is known to flow."""
        layer, token = np.indices((self.last + 1, self.tokens)).reshape(2, -1)
        x, y = self.points(layer, token).T
        areas = np.full(x.size, self._full_area)
        faces = [(1.0, 1.0, 1.0)]
        if self.diagram.graph.is_flow:
            through = self.diagram.graph.through.ravel()
            fractions = through / (through.max() or 1.0)
            areas = np.maximum(areas * fractions, min(2.0, self.radius))
            faces = [shade_colour(level_of(fraction, 1.0)) for fraction in fractions.tolist()]
        self.axes.scatter(x, y, s=areas, facecolors=faces, edgecolors=[INK], linewidths=0.5, zorder=3)

    def arrows(self, all_strokes: Sequence[_Strokes]) -> None:
        """A head at the end of every edge."""
        size = min(5.0, 0.3 * self.row)
        look = {"facecolors": [INK], "edgecolors": "white", "linewidths": 0.4, "zorder": 2.5}
        for strokes in all_strokes:
            curves = strokes.curves if self.diagram.forward else strokes.curves[:, ::-1]
            direction = curves[:, 3] - curves[:, 2]
            direction /= np.linalg.norm(direction, axis=1, keepdims=True)
            tips = curves[:, 3] - direction * (self.radius + 0.5)
            base = tips - size * direction
            across = 0.45 * size * direction[:, ::-1] * (1, -1)
            corners = np.stack([tips, base + across, base - across], 1)
            self.axes.add_collection(PolyCollection(list(corners), **look), autolim=False)

    def numbers(self, all_strokes: Sequence[_Strokes]) -> None:
        """The amount of every edge, written near its tail."""
        near_tail = 0.27 if self.diagram.forward else 0.73
        for strokes in all_strokes:
            for curve, amount in zip(strokes.curves, strokes.amounts, strict=True):
                self._badge(curve, near_tail, f"{amount:.4g}", size=6.5, box=_WHITE_BOX)

    def routes(self) -> None:
        """Double lines along the nodes of each route, and its number on it."""
        for index, route in enumerate(self.diagram.routes):
            points = self.points(np.arange(self.last + 1), np.array(route))
            curves = self._curves(points[:-1], points[1:])
            self._draw(curves, 2.8, INK, 2.0)
            self._draw(curves, 1.6, shade_colour(LEVELS), 2.1)
            # one gap after the other, and then beside the first number: routes may share edges
            turn = index // self.last
            shift = 0.17 * ((turn + 1) // 2) * (-1) ** turn
            self._badge(curves[index % self.last], 0.5 + shift, str(index + 1), size=7, box=_CIRCLE)

    def crosses(self, curves: np.ndarray) -> None:
        """A cross in the middle of each of the `curves` (m, 4, 2)."""
        x, y = curves.mean(1).T  # curves are symmetric
        size = min(max(self.row, 9.0), 18.0)
        for tone, width in (("white", 2.8), ("black", 1.1)):  # visible on dark edges too
            self.axes.scatter(x, y, s=size, marker="x", color=[tone], linewidths=width, zorder=5)

    def labels(self) -> None:
        """The tokens at both ends, as many as fit, those with the largest flow first."""
        names, size = fit_names(self.diagram.names, self.row)
        through = self.diagram.graph.through
        for layer, align, sign in ((0, "right", -1), (self.last, "left", 1)):
            look: Look = {"ha": align, "va": "center_baseline"}
            aside = sign * (self.radius + 5)
            lift = 0.0
            if self.diagram.terminals:  # above the nodes, with terminal edges passing behind
                look = {"ha": "center", "va": "bottom", "bbox": _WHITE_BOX}
                aside = 0.0
                lift = self.radius + 2
            for token in _apart(self.row, through[layer], size):
                x, y = self.points(layer, token)
                text = self.axes.text(x + aside, y - lift, names[token], size=size, zorder=6, **look)
                if token in self.diagram.special:
                    text.set(style="italic", color=GREY)

    def layer_names(self) -> None:
        """The names of the columns, above them."""
        step = 1 if self.column >= 20 else 2
        names = {0: "input", self.last: "output"}
        lift = MARGIN + (14 if self.diagram.terminals else 6)
        for layer in (0, *range(step, self.last - step + 1, step), self.last):
            x, y = self.points(layer, 0)
            name = names.get(layer, str(layer))
            self.axes.text(x, y - lift, name, size=8, ha="center", va="bottom", color=GREY)

    def layer_shares(self) -> None:
        """How much of each layer's flow is drawn, below the columns."""
        y = self.bottom + 3
        size = min(7.0, self.column / 4)
        for layer, share in enumerate(self.diagram.selection.layer_shares()):
            x = self.left + (layer + 0.5) * self.column
            draw_note(self.axes, x, y, f"{share:.0%}", size, ha="center")
        draw_note(self.axes, self.left - 4, y, "drawn", size, ha="right")

    def _inner_strokes(self) -> _Strokes:
        """The edges between layers."""
        edges = self.diagram.selection
        start = self.points(edges.layer, edges.j)
        end = self.points(edges.layer + 1, edges.i)
        return _Strokes(self._curves(start, end), edges.amount, self.diagram.other.edges[edges.layer, edges.i, edges.j])

    def _terminal_strokes(self) -> _Strokes:
        """The edges of the super-source and the super-target: those of a flow that carry something, or all."""
        graph = self.diagram.graph
        tokens = np.arange(self.tokens)
        left = self._curves(self.terminal(output=False), self.points(0, tokens))
        right = self._curves(self.points(self.last, tokens), self.terminal(output=True))
        curves = np.concatenate([left, right])
        amounts = graph.ends.ravel()
        other = self.diagram.other.ends.ravel()
        drawn = np.maximum(amounts, other) > 0
        return _Strokes(curves[drawn], amounts[drawn], other[drawn])

    def _curves(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Cubic curves between points (m, 2) or (2,): straight in small networks, where numbers need the room."""
        tangent = (end - start) * (0.5, 0.0)
        if self.tokens <= _SMALL:
            tangent = (end - start) / 3
        points = np.broadcast_arrays(start, start + tangent, end - tangent, end)
        return np.stack(points, 1)

    def _draw(
        self, curves: np.ndarray, widths: Any, tones: Colour | np.ndarray, depth: float, pattern: Any = "solid"
    ) -> None:
        """Curves (m, 4, 2), all alike or each with its width (m,) and tone (m, 3)."""
        paths = [Path(points, _CURVE) for points in curves]
        colours = np.atleast_2d(tones)
        look = {"facecolors": "none", "edgecolors": colours, "linewidths": widths, "linestyles": pattern}
        collection = PathCollection(paths, **look, capstyle="butt", zorder=depth)
        self.axes.add_collection(collection, autolim=False)

    def _badge(self, curve: np.ndarray, position: float, text: str, size: float, box: Look) -> None:
        x, y = BezierSegment(curve)(position)
        self.axes.text(x, y, text, size=size, ha="center", va="center", bbox=box, zorder=5.5)


def fit_names(names: Sequence[str], row: float) -> tuple[list[str], float]:
    """The names of tokens as they are written, and the size of their letters, where rows are so far apart."""
    size = min(8.5, max(6.0, 0.8 * row))
    return [fit_text(name, size, LABEL_WIDTH) for name in names], size


def _apart(row: float, strength: np.ndarray, size: float) -> list[int]:
    """As many tokens as can be labelled without labels touching each other, the strongest first."""
    labelled: list[int] = []
    for token in np.argsort(-strength, kind="stable").tolist():
        if all(abs(token - other) * row >= 1.05 * size for other in labelled):
            labelled.append(token)
    return labelled
