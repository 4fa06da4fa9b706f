"""The strokes of a flow diagram: edges, nodes, routes, crosses and labels, in a few collections however many there are.

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
from gaflow.plots.figure import GREY, INK, Colour, shade_colour
from gaflow.plots.flow.layout import MARGIN, Layout
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
class _Strokes:
    """Edges as curves."""

    curves: np.ndarray  # (m, 4, 2) control points, from the input side to the output side
    amounts: np.ndarray  # (m,)
    other: np.ndarray  # (m,) amounts to compare with


@dataclass(frozen=True)
class Pen:
    """Draws into `axes` at the positions of `layout`."""

    axes: Axes
    layout: Layout
    forward: bool  # arrows point from input to output
    largest: float  # the amount that is drawn with the widest stroke
    selection: EdgeSelection  # the drawn edges
    other: Graph  # the flow to compare with; without a comparison, the same

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

    def edges(self) -> None:
        """The edges in grey; where they carry more than in the other flow orange, where less blue."""
        darkness = 0.3 + 0.7 * (self.selection.amount / self.largest) ** 0.7
        tones = 1 - darkness[:, None] * (1 - np.array(INK))  # from white to ink
        self._draw_amounts(self._inner_strokes(), tones, depth=1.0)

    def terminals(self) -> None:
        """Super-source and super-target and their edges, as in `edges`; dashed where the graph has no amounts."""
        strokes = self._terminal_strokes()
        if self.selection.graph.is_flow:
            self._draw_amounts(strokes, np.tile(GREY, (len(strokes.curves), 1)), depth=0.7)
        else:
            self._draw(strokes.curves, 0.8, GREY, 0.9, _DASHES)
        self._terminal_node("target" if self.forward else "source", output=True)
        self._terminal_node("source" if self.forward else "target", output=False)

    def _draw_amounts(self, strokes: _Strokes, tones: np.ndarray, depth: float) -> None:
        """Strokes in their `tones` (m, 3), except those that carry more or less than the other flow."""
        curves = strokes.curves
        widths = np.maximum(self.widest * strokes.amounts / self.largest, _HAIRLINE)
        difference = (strokes.amounts - strokes.other) / self.largest
        more = difference > _SAME
        less = difference < -_SAME
        same = ~more & ~less
        self._draw(curves[same], widths[same], tones[same], depth)
        widths = np.maximum(widths, 1.2)
        self._draw(curves[more], widths[more] + 1.2, INK, depth + 0.1)  # an outline: colour alone is not enough
        self._draw(curves[more], widths[more], shade_colour(LEVELS), depth + 0.1)
        self._draw(curves[less], widths[less], shade_colour(-LEVELS), depth + 0.2, _DASHES)

    def _terminal_node(self, name: str, *, output: bool) -> None:
        x, y = self.layout.terminal(output=output)
        self.axes.scatter(x, y, s=self._full_area, marker="s", color=[INK], zorder=4)
        x += self.radius + 4 if output else -self.radius - 4
        align = "left" if output else "right"
        for shift, line in ((-5, "super-"), (5, name)):  # two texts: an SVG anchors single lines only
            draw_text(self.axes, x, y + shift, line, size=8, ha=align, zorder=6)

    def return_edge(self) -> None:
        """The edge from super-target back to super-source, which makes a circulation of the flow."""
        left, middle = self.layout.terminal(output=False)
        right, _ = self.layout.terminal(output=True)
        depth = (self.layout.bottom + 8 - middle) / (right - left)
        arrow = FancyArrowPatch(
            (left, middle),
            (right, middle),
            arrowstyle="<|-" if self.forward else "-|>",
            connectionstyle=f"bar,fraction={depth}",
            mutation_scale=8,
            color=INK,
            shrinkA=self.radius,
            shrinkB=self.radius,
        )
        self.axes.add_patch(arrow)
        center = (left + right) / 2
        draw_note(self.axes, center, self.layout.bottom + 14, "return edge, cost -1", size=7.5, ha="center")

    def nodes(self) -> None:
        """A circle for every node, as large as the flow through it; all alike if nothing is known to flow."""
        layer, token = np.indices((self.layout.layers, self.layout.tokens)).reshape(2, -1)
        x, y = self.layout.points(layer, token).T
        areas = np.full(x.size, self._full_area)
        faces = [(1.0, 1.0, 1.0)]
        if self.selection.graph.is_flow:
            through = self.selection.graph.through.ravel()
            fractions = through / (through.max() or 1.0)
            areas = np.maximum(areas * fractions, min(2.0, self.radius))
            faces = [shade_colour(level_of(fraction, 1.0)) for fraction in fractions.tolist()]
        self.axes.scatter(x, y, s=areas, facecolors=faces, edgecolors=[INK], linewidths=0.5, zorder=3)

    def arrows(self) -> None:
        """A head at the end of every edge."""
        for strokes in self._all_strokes():
            curves = strokes.curves if self.forward else strokes.curves[:, ::-1]
            heads = curves[:, 3]
            direction = heads - curves[:, 2]
            direction /= np.linalg.norm(direction, axis=1, keepdims=True)
            self._arrow_heads(heads - direction * (self.radius + 0.5), direction)

    def numbers(self) -> None:
        """The amount of every edge, written near its tail."""
        near_tail = 0.27 if self.forward else 0.73
        for strokes in self._all_strokes():
            for curve, amount in zip(strokes.curves, strokes.amounts, strict=True):
                self._badge(curve, near_tail, f"{amount:.4g}", size=6.5, box=_WHITE_BOX)

    def routes(self, routes: Sequence[Sequence[int]]) -> None:
        """Double lines along the nodes of each route, and its number on it."""
        gaps = self.layout.layers - 1
        for index, route in enumerate(routes):
            points = self.layout.points(np.arange(gaps + 1), np.array(route))
            curves = self._curves(points[:-1], points[1:])
            self._draw(curves, 2.8, INK, 2.0)
            self._draw(curves, 1.6, shade_colour(LEVELS), 2.1)
            # one gap after the other, and then beside the first number: routes may share edges
            turn = index // gaps
            shift = 0.17 * ((turn + 1) // 2) * (-1) ** turn
            self._badge(curves[index % gaps], 0.5 + shift, str(index + 1), size=7, box=_CIRCLE)

    def crosses(self, crossed: np.ndarray) -> None:
        """A cross in the middle of each of the `crossed` (m,) edges."""
        curves = self._inner_strokes().curves[crossed]
        x, y = curves.mean(1).T  # curves are symmetric
        size = min(max(self.layout.row, 9.0), 18.0)
        for tone, width in (("white", 2.8), ("black", 1.1)):  # visible on dark edges too
            self.axes.scatter(x, y, s=size, marker="x", color=[tone], linewidths=width, zorder=5)

    def labels(self, names: Sequence[str], special: np.ndarray, size: float) -> None:
        """The tokens at both ends, as many as fit, those with the largest flow first."""
        through = self.selection.graph.through
        last = self.layout.layers - 1
        for layer, align, sign in ((0, "right", -1), (last, "left", 1)):
            look: dict[str, Any] = {"ha": align, "va": "center_baseline"}
            x = self.layout.x(layer) + sign * (self.radius + 5)
            lift = 0.0
            if self.layout.terminal_distance:  # above the nodes, with terminal edges passing behind
                look = {"ha": "center", "va": "bottom", "bbox": _WHITE_BOX}
                x = self.layout.x(layer)
                lift = self.radius + 2
            for token in _apart(self.layout.row, through[layer], size):
                text = self.axes.text(x, self.layout.y(token) - lift, names[token], size=size, zorder=6, **look)
                if special[token]:
                    text.set(style="italic", color=GREY)

    def layer_names(self) -> None:
        """The names of the columns, above them."""
        last = self.layout.layers - 1
        step = 1 if self.layout.column >= 20 else 2
        names = {0: "input", last: "output"}
        for layer in range(step, last - step + 1, step):
            names[layer] = str(layer)
        lift = 14 if self.layout.terminal_distance else 6
        y = self.layout.top - MARGIN - lift
        for layer in sorted(names):
            self.axes.text(self.layout.x(layer), y, names[layer], size=8, ha="center", va="bottom", color=GREY)

    def layer_shares(self) -> None:
        """How much of each layer's flow is drawn, below the columns."""
        y = self.layout.bottom + 3
        size = min(7.0, self.layout.column / 4)
        for layer, share in enumerate(self.selection.layer_shares()):
            x = self.layout.x(layer) + self.layout.column / 2
            draw_note(self.axes, x, y, f"{share:.0%}", size, ha="center")
        draw_note(self.axes, self.layout.left - 4, y, "drawn", size, ha="right")

    def _inner_strokes(self) -> _Strokes:
        """The edges between layers."""
        edges = self.selection
        start = self.layout.points(edges.layer, edges.j)
        end = self.layout.points(edges.layer + 1, edges.i)
        return _Strokes(self._curves(start, end), edges.amount, self.other.edges[edges.layer, edges.i, edges.j])

    def _terminal_strokes(self) -> _Strokes:
        """The edges of the super-source and the super-target: those of a flow that carry something, or all."""
        graph = self.selection.graph
        tokens = np.arange(self.layout.tokens)
        inputs = self.layout.points(0, tokens)
        outputs = self.layout.points(self.layout.layers - 1, tokens)
        left = self._curves(np.array(self.layout.terminal(output=False)), inputs)
        right = self._curves(outputs, np.array(self.layout.terminal(output=True)))
        curves = np.concatenate([left, right])
        amounts = np.concatenate([graph.target, graph.source])
        other = np.concatenate([self.other.target, self.other.source])
        drawn = np.maximum(amounts, other) > 0
        return _Strokes(curves[drawn], amounts[drawn], other[drawn])

    def _all_strokes(self) -> list[_Strokes]:
        strokes = [self._inner_strokes()]
        if self.layout.terminal_distance:
            strokes.append(self._terminal_strokes())
        return strokes

    def _curves(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Cubic curves between points (m, 2) or (2,): straight in small networks, where numbers need the room."""
        tangent = (end - start) * (0.5, 0.0)
        if self.layout.straight:
            tangent = (end - start) / 3
        points = np.broadcast_arrays(start, start + tangent, end - tangent, end)
        return np.stack(points, 1)

    def _draw(
        self, curves: np.ndarray, widths: Any, tones: Colour | np.ndarray, depth: float, pattern: Any = "solid"
    ) -> None:
        """Curves (m, 4, 2), all alike or each with its width (m,) and tone (m, 3)."""
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
        x, y = BezierSegment(curve)(position)
        self.axes.text(x, y, text, size=size, ha="center", va="center", bbox=box, zorder=5.5)


def _apart(row: float, strength: np.ndarray, size: float) -> list[int]:
    """As many tokens as can be labelled without labels touching each other, the strongest first."""
    labelled: list[int] = []
    for token in np.argsort(-strength, kind="stable").tolist():
        if all(abs(token - other) * row >= 1.05 * size for other in labelled):
            labelled.append(token)
    return labelled
