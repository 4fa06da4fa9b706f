"""The strokes of a flow diagram: edges, nodes, routes, crosses and labels, in a few collections however many there are.

The convention this file owns: **widths and areas are proportional to amounts**, the widest edge as wide as rows allow.
Only edges and nodes that would vanish are drawn as a hairline or a dot, wider than their share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.path import Path

from gaflow.plots.elements import draw_note, draw_text
from gaflow.plots.figure import GREY, INK, Colour, shade_colour
from gaflow.plots.flow.layout import Layout
from gaflow.view.flow_graph import EdgeSelection, Graph
from gaflow.view.shades import LEVELS, level_of

__all__ = ["Pen"]

_HAIRLINE = 0.35
_DASHES = [(0, (4, 2))]
_SAME = 1e-9  # two amounts are equal if they differ by less of the largest
_WHITE_BOX = {"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "none"}
_CIRCLE = {"boxstyle": "circle,pad=0.2", "facecolor": "white", "edgecolor": INK, "linewidth": 0.7}
_CURVE = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]


@dataclass(frozen=True)
class Pen:
    """Draws into `axes` at the positions of `layout`."""

    axes: Axes
    layout: Layout
    forward: bool  # arrows point from input to output
    largest: float  # the amount that is drawn with the widest stroke

    @property
    def widest(self) -> float:
        """Width of the strongest edge."""
        return min(0.45 * self.layout.row, 9.0)

    @property
    def radius(self) -> float:
        """Of the largest node."""
        return min(0.3 * self.layout.row, 6.0)

    @property
    def _full_area(self) -> float:
        """Of the largest node, in square points."""
        return (2 * self.radius) ** 2

    def edges(self, selection: EdgeSelection, other: np.ndarray | None) -> None:
        """The edges in grey; compared with an `other` flow (l, t, t), orange where they carry more, blue where less."""
        curves = self._edge_curves(selection)
        darkness = 0.3 + 0.7 * (selection.amount / self.largest) ** 0.7
        tones = 1 - darkness[:, None] * (1 - np.array(INK))  # from white to ink
        if other is not None:
            other = other[selection.layer, selection.i, selection.j]
        self._amounts(curves, selection.amount, other, tones, depth=1.0)

    def _amounts(
        self, curves: np.ndarray, amounts: np.ndarray, other: np.ndarray | None, tones: np.ndarray, depth: float
    ) -> None:
        """Curves in their `tones` (m, 3), except those that carry more or less than `other`."""
        widths = np.maximum(self.widest * amounts / self.largest, _HAIRLINE)
        difference = np.zeros_like(amounts) if other is None else amounts - other
        more = difference > _SAME * self.largest
        less = difference < -_SAME * self.largest
        same = ~more & ~less
        self._draw(curves[same], widths[same], tones[same], depth)
        widths = np.maximum(widths, 1.2)
        self._draw(curves[more], widths[more] + 1.2, INK, depth + 0.1)  # an outline: colour alone is not enough
        self._draw(curves[more], widths[more], shade_colour(LEVELS), depth + 0.1)
        self._draw(curves[less], widths[less], shade_colour(-LEVELS), depth + 0.2, _DASHES)

    def terminals(self, graph: Graph, other: Graph | None) -> None:
        """Super-source and super-target and their edges, as in `edges`; dashed where the graph has no amounts."""
        self._terminal_edges(graph.source, None if other is None else other.source, output=True)
        self._terminal_edges(graph.target, None if other is None else other.target, output=False)
        self._terminal_node("target" if self.forward else "source", output=True)
        self._terminal_node("source" if self.forward else "target", output=False)

    def _terminal_edges(self, amounts: np.ndarray | None, other: np.ndarray | None, *, output: bool) -> None:
        tokens = np.arange(self.layout.tokens)
        if amounts is None:
            self._draw(self._terminal_curves(tokens, output=output), 0.8, GREY, 0.9, _DASHES)
            return
        if other is None:
            tokens = np.flatnonzero(amounts > 0)
        else:
            tokens = np.flatnonzero(np.maximum(amounts, other) > 0)
            other = other[tokens]
        tones = np.tile(GREY, (len(tokens), 1))
        self._amounts(self._terminal_curves(tokens, output=output), amounts[tokens], other, tones, depth=0.7)

    def _terminal_node(self, name: str, *, output: bool) -> None:
        x, y = self.layout.terminal(output=output)
        self.axes.scatter(x, y, s=self._full_area, marker="s", color=[INK], zorder=4)
        look: dict[str, Any] = {"size": 8, "ha": "left" if output else "right", "zorder": 6}
        x += self.radius + 4 if output else -self.radius - 4
        draw_text(self.axes, x, y - 5, "super-", **look)  # two texts: an SVG anchors single lines only
        draw_text(self.axes, x, y + 5, name, **look)

    def return_edge(self) -> None:
        """The edge from super-target back to super-source, which makes a circulation of the flow."""
        left, middle = self.layout.terminal(output=False)
        right, _ = self.layout.terminal(output=True)
        deep = middle + (self.layout.bottom + 12 - middle) / 0.75  # a cubic curve reaches 3/4 of its control points
        curve = np.array([(left, middle), (left, deep), (right, deep), (right, middle)])
        self._draw(curve[None], 1.2, INK, 0.8)
        head = (left if self.forward else right, middle + self.radius + 1)
        self._arrow_heads(np.array([head]), np.array([[0.0, -1.0]]))
        look = {"size": 7.5, "ha": "center", "va": "top", "color": INK}
        self.axes.text((left + right) / 2, self.layout.bottom + 14, "return edge, cost -1", **look)

    def nodes(self, through: np.ndarray | None) -> None:
        """A circle for every node, as large as the flow through it; all alike if None."""
        layer, token = np.indices((self.layout.layers, self.layout.tokens)).reshape(2, -1)
        x, y = self.layout.points(layer, token).T
        areas = np.full(x.size, self._full_area)
        faces = [(1.0, 1.0, 1.0)]
        if through is not None:
            largest = float(through.max(initial=0.0))
            fractions = through.ravel() / (largest or 1.0)
            areas = np.maximum(areas * fractions, min(2.0, self.radius))
            faces = [shade_colour(level_of(fraction, 1.0)) for fraction in fractions.tolist()]
        self.axes.scatter(x, y, s=areas, facecolors=faces, edgecolors=[INK], linewidths=0.5, zorder=3)

    def arrows(self, selection: EdgeSelection, *, terminals: bool) -> None:
        """A head at the end of every edge."""
        curves = self._edge_curves(selection)
        if terminals:
            tokens = np.arange(self.layout.tokens)
            output = self._terminal_curves(tokens, output=True)
            curves = np.concatenate([curves, output, self._terminal_curves(tokens, output=False)])
        if not self.forward:
            curves = curves[:, ::-1]
        heads = curves[:, 3]
        direction = heads - curves[:, 2]
        length = np.linalg.norm(direction, axis=1, keepdims=True)
        direction = direction / np.maximum(length, 1e-9)
        self._arrow_heads(heads - direction * (self.radius + 0.5), direction)

    def numbers(self, selection: EdgeSelection) -> None:
        """The amount of every edge, written near its tail."""
        self._write_amounts(self._edge_curves(selection), selection.amount)
        if self.layout.terminal_distance:
            self._write_terminal_amounts(selection.graph.source, output=True)
            self._write_terminal_amounts(selection.graph.target, output=False)

    def _write_terminal_amounts(self, amounts: np.ndarray | None, *, output: bool) -> None:
        if amounts is not None:
            tokens = np.flatnonzero(amounts > 0)
            self._write_amounts(self._terminal_curves(tokens, output=output), amounts[tokens])

    def _write_amounts(self, curves: np.ndarray, amounts: np.ndarray) -> None:
        near_tail = 0.27 if self.forward else 0.73
        for curve, amount in zip(curves, amounts, strict=True):
            self._badge(curve, near_tail, f"{amount:.4g}", size=6.5, box=_WHITE_BOX)

    def routes(self, routes: Sequence[Sequence[int]]) -> None:
        """Double lines along the nodes of each route, and its number on it."""
        gaps = self.layout.layers - 1
        for index, route in enumerate(routes):
            nodes = np.array(route)
            points = self.layout.points(np.arange(gaps + 1), nodes)
            curves = self._curves(points[:-1], points[1:])
            self._draw(curves, 2.8, INK, 2.0)
            self._draw(curves, 1.6, shade_colour(LEVELS), 2.1)
            # one gap after the other, and then beside the first number: routes may share edges
            turn = index // gaps
            shift = 0.17 * ((turn + 1) // 2) * (-1) ** turn
            self._badge(curves[index % gaps], 0.5 + shift, str(index + 1), size=7, box=_CIRCLE)

    def crosses(self, selection: EdgeSelection, crossed: np.ndarray) -> None:
        """A cross in the middle of each of the `crossed` (m,) edges."""
        x, y = _points_on(self._edge_curves(selection)[crossed], 0.5).T
        size = min(max(self.layout.row, 9.0), 18.0)
        for tone, width in (("white", 2.8), ("black", 1.1)):  # visible on dark edges too
            self.axes.scatter(x, y, s=size, marker="x", color=[tone], linewidths=width, zorder=5)

    def labels(self, names: Sequence[str], special: np.ndarray, strength: np.ndarray, size: float) -> None:
        """The tokens at both ends, as many as fit, the strongest first; `strength` (2, t) at input and output."""
        at_input = {"ha": "right", "va": "center_baseline"}
        at_output = {"ha": "left", "va": "center_baseline"}
        shift = self.radius + 5
        lift = 0.0
        if self.layout.terminal_distance:  # above the nodes, with terminal edges passing behind
            at_input = at_output = {"ha": "center", "va": "bottom", "bbox": _WHITE_BOX}
            shift = 0.0
            lift = self.radius + 2
        ends = [(self.layout.left - shift, at_input), (self.layout.x(self.layout.layers - 1) + shift, at_output)]
        for (x, end_look), end_strength in zip(ends, strength, strict=True):
            for token in _apart(self.layout.row, end_strength, size):
                look: dict[str, Any] = dict(end_look)
                if special[token]:
                    look |= {"style": "italic", "color": GREY}
                self.axes.text(x, self.layout.y(token) - lift, names[token], size=size, zorder=6, **look)

    def layer_names(self) -> None:
        """The names of the columns, above them."""
        last = self.layout.layers - 1
        step = 1 if self.layout.column >= 20 else 2
        names = {0: "input", last: "output"}
        for layer in range(step, last - step + 1, step):
            names[layer] = str(layer)
        lift = 14 if self.layout.terminal_distance else 6
        y = self.layout.top - self.layout.margin - lift
        for layer in sorted(names):
            self.axes.text(self.layout.x(layer), y, names[layer], size=8, ha="center", va="bottom", color=GREY)

    def layer_shares(self, shares: np.ndarray) -> None:
        """How much of each layer's flow is drawn, below the columns."""
        y = self.layout.bottom + 3
        size = min(7.0, self.layout.column / 4)
        for layer, share in enumerate(shares):
            x = self.layout.x(layer) + self.layout.column / 2
            draw_note(self.axes, x, y, f"{share:.0%}", size, ha="center")
        draw_note(self.axes, self.layout.left - 4, y, "drawn", size, ha="right")

    def _edge_curves(self, selection: EdgeSelection) -> np.ndarray:
        """Control points (m, 4, 2) of edges, from the input side to the output side."""
        start = self.layout.points(selection.layer, selection.j)
        end = self.layout.points(selection.layer + 1, selection.i)
        return self._curves(start, end)

    def _terminal_curves(self, tokens: np.ndarray, *, output: bool) -> np.ndarray:
        """Control points (m, 4, 2) of a terminal's edges, likewise."""
        layer = self.layout.layers - 1 if output else 0
        nodes = self.layout.points(np.full(len(tokens), layer), tokens)
        terminal = np.broadcast_to(self.layout.terminal(output=output), nodes.shape)
        if output:
            return self._curves(nodes, terminal)
        return self._curves(terminal, nodes)

    def _curves(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Cubic curves between points (m, 2): straight in small networks, where numbers need the room."""
        tangent = (end - start) * (0.5, 0.0)
        if self.layout.straight:
            tangent = (end - start) / 3
        return np.stack([start, start + tangent, end - tangent, end], 1)

    def _draw(
        self, curves: np.ndarray, widths: Any, tones: Colour | np.ndarray, depth: float, pattern: Any = "solid"
    ) -> None:
        """Curves (m, 4, 2), all alike or each with its width (m,) and tone (m, 3)."""
        if len(curves) == 0:
            return
        paths = [Path(points, _CURVE) for points in curves]
        look = {"facecolors": "none", "edgecolors": np.atleast_2d(tones), "linewidths": widths, "linestyles": pattern}
        self.axes.add_collection(PathCollection(paths, **look, capstyle="butt", zorder=depth), autolim=False)

    def _arrow_heads(self, tips: np.ndarray, direction: np.ndarray) -> None:
        size = min(5.0, 0.3 * self.layout.row)
        base = tips - size * direction
        across = 0.45 * size * direction[:, ::-1] * (1, -1)
        corners = np.stack([tips, base + across, base - across], 1)
        look = {"facecolors": [INK], "edgecolors": "white", "linewidths": 0.4, "zorder": 2.5}
        self.axes.add_collection(PolyCollection(list(corners), **look), autolim=False)

    def _badge(self, curve: np.ndarray, position: float, text: str, size: float, box: dict[str, Any]) -> None:
        x, y = _points_on(curve, position)
        self.axes.text(x, y, text, size=size, ha="center", va="center", bbox=box, zorder=5.5)


def _points_on(curves: np.ndarray, s: float) -> np.ndarray:
    """The points (..., 2) of cubic curves (..., 4, 2) at s = 0 to 1."""
    rest = 1 - s
    weights = np.array([rest**3, 3 * s * rest**2, 3 * s**2 * rest, s**3])
    return weights @ curves


def _apart(row: float, strength: np.ndarray, size: float) -> list[int]:
    """As many tokens as can be labelled without labels touching each other, the strongest first."""
    labelled: list[int] = []
    for token in np.argsort(-strength, kind="stable").tolist():
        distances = [abs(token - other) * row for other in labelled]
        if min(distances, default=math.inf) >= 1.05 * size:
            labelled.append(token)
    return labelled
