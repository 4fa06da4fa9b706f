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
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.path import Path

from gaflow.plots.elements import draw_text
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

    def edges(self, selection: EdgeSelection, other: np.ndarray | None) -> None:
        """The edges in grey; compared with an `other` flow (l, t, t), orange where they carry more, blue where less."""
        curves = self._edge_curves(selection.layer, selection.i, selection.j)
        tones = [_grey(0.3 + 0.7 * part) for part in (selection.amount / self.largest) ** 0.7]
        compared = None if other is None else other[selection.layer, selection.i, selection.j]
        self._amounts(curves, selection.amount, compared, tones, depth=1.0)

    def _amounts(
        self, curves: np.ndarray, amounts: np.ndarray, other: np.ndarray | None, tones: Sequence[Colour], depth: float
    ) -> None:
        """Curves in their `tones`, except those that carry more or less than `other`."""
        widths = np.maximum(self.widest * amounts / self.largest, _HAIRLINE)
        difference = np.zeros_like(amounts) if other is None else amounts - other
        more = np.flatnonzero(difference > _SAME * self.largest)
        less = np.flatnonzero(difference < -_SAME * self.largest)
        same = np.flatnonzero(abs(difference) <= _SAME * self.largest)
        self._draw(curves[same], widths[same], [tones[index] for index in same], depth)
        wide = np.maximum(widths, 1.2)
        self._draw(curves[more], wide[more] + 1.2, [INK], depth + 0.1)  # an outline: colour must not be the only sign
        self._draw(curves[more], wide[more], [shade_colour(LEVELS)], depth + 0.1)
        self._draw(curves[less], wide[less], [shade_colour(-LEVELS)], depth + 0.2, _DASHES)

    def terminals(self, graph: Graph, other: Graph | None) -> None:
        """Super-source and super-target and their edges, as in `edges`; dashed where the graph has no amounts."""
        output = self.layout.layers
        source, target = ("target", "source") if self.forward else ("source", "target")
        self._terminal(output, graph.source, None if other is None else other.source)
        self._terminal_label(output, source)
        self._terminal(-1, graph.target, None if other is None else other.target)
        self._terminal_label(-1, target)

    def _terminal(self, end: int, amounts: np.ndarray | None, other: np.ndarray | None) -> None:
        """The edges of the terminal at `end`, -1 or the number of node layers."""
        tokens = np.arange(self.layout.tokens)
        if amounts is None:
            self._draw(self._terminal_curves(end, tokens), np.full(len(tokens), 0.8), [GREY], 0.9, _DASHES)
            return
        drawn = amounts if other is None else np.maximum(amounts, other)
        tokens = np.flatnonzero(drawn > 0)
        compared = None if other is None else other[tokens]
        tones = [GREY] * len(tokens)
        self._amounts(self._terminal_curves(end, tokens), amounts[tokens], compared, tones, depth=0.7)

    def _terminal_label(self, end: int, name: str) -> None:
        x = float(self.layout.x(end))
        y = self.layout.middle
        self.axes.scatter(x, y, s=(2 * self.radius) ** 2, marker="s", color=[INK], zorder=4)
        x += (self.radius + 4) * (-1 if end < 0 else 1)
        side = "right" if end < 0 else "left"
        for line, shift in (("super-", -5), (name, 5)):  # two texts: an SVG anchors single lines only
            draw_text(self.axes, x, y + shift, line, size=8, ha=side, zorder=6)

    def return_edge(self) -> None:
        """The edge from super-target back to super-source, which makes a circulation of the flow."""
        left = float(self.layout.x(-1))
        right = float(self.layout.x(self.layout.layers))
        middle = self.layout.middle
        deep = middle + (self.layout.bottom + 12 - middle) / 0.75  # a cubic curve reaches 3/4 of its control points
        curve = np.array([(left, middle), (left, deep), (right, deep), (right, middle)])
        self._draw(curve[None], np.array([1.2]), [INK], 0.8)
        head = left if self.forward else right
        self._arrow_heads(np.array([[head, middle + self.radius + 1]]), np.array([[0.0, -1.0]]))
        look = {"size": 7.5, "ha": "center", "va": "top", "color": INK}
        self.axes.text((left + right) / 2, self.layout.bottom + 14, "return edge, cost -1", **look)

    def nodes(self, through: np.ndarray | None) -> None:
        """A circle for every node, as large as the flow through it; all alike if None."""
        x = np.repeat(self.layout.x(np.arange(self.layout.layers)), self.layout.tokens)
        y = np.tile(self.layout.y(np.arange(self.layout.tokens)), self.layout.layers)
        full_size = (2 * self.radius) ** 2
        if through is None:
            sizes = np.full(x.size, full_size)
            faces = [(1.0, 1.0, 1.0)]
        else:
            amounts = through.ravel()
            largest = float(amounts.max(initial=0.0))
            sizes = np.maximum(full_size * amounts / (largest or 1.0), min(2.0, self.radius))
            faces = [shade_colour(level_of(amount, largest)) for amount in amounts.tolist()]
        self.axes.scatter(x, y, s=sizes, facecolors=faces, edgecolors=[INK], linewidths=0.5, zorder=3)

    def arrows(self, selection: EdgeSelection, *, terminals: bool) -> None:
        """A head at the end of every edge."""
        curves = self._edge_curves(selection.layer, selection.i, selection.j)
        if terminals:
            tokens = np.arange(self.layout.tokens)
            output = self._terminal_curves(self.layout.layers, tokens)
            curves = np.concatenate([curves, output, self._terminal_curves(-1, tokens)])
        if not self.forward:
            curves = curves[:, ::-1]
        heads = curves[:, 3]
        direction = heads - curves[:, 2]
        direction = direction / np.maximum(np.hypot(*direction.T), 1e-9)[:, None]
        self._arrow_heads(heads - direction * (self.radius + 0.5), direction)

    def numbers(self, selection: EdgeSelection) -> None:
        """The amount of every edge, written near its tail."""
        near_tail = 0.27 if self.forward else 0.73
        curves = [self._edge_curves(selection.layer, selection.i, selection.j)]
        amounts = [selection.amount]
        for end, at_end in ((self.layout.layers, selection.graph.source), (-1, selection.graph.target)):
            if self.layout.terminal_distance and at_end is not None:
                tokens = np.flatnonzero(at_end > 0)
                curves.append(self._terminal_curves(end, tokens))
                amounts.append(at_end[tokens])
        for curve, amount in zip(np.concatenate(curves), np.concatenate(amounts), strict=True):
            self._badge(curve, near_tail, f"{amount:.4g}", size=6.5, box=_WHITE_BOX)

    def routes(self, routes: Sequence[Sequence[int]]) -> None:
        """Double lines along the nodes of each route, and its number on it."""
        gaps = self.layout.layers - 1
        curves = [np.empty((0, 4, 2))]
        for index, nodes in enumerate(routes):
            curve = self._edge_curves(np.arange(gaps), np.array(nodes[1:]), np.array(nodes[:-1]))
            curves.append(curve)
            # one gap after the other, and then beside the first number: routes may share edges
            turn = index // gaps
            shift = 0.17 * ((turn + 1) // 2) * (-1) ** turn
            self._badge(curve[index % gaps], 0.5 + shift, str(index + 1), size=7, box=_CIRCLE)
        lines = np.concatenate(curves)
        self._draw(lines, np.full(len(lines), 2.8), [INK], 2.0)
        self._draw(lines, np.full(len(lines), 1.6), [shade_colour(LEVELS)], 2.1)

    def crosses(self, layer: np.ndarray, i: np.ndarray, j: np.ndarray) -> None:
        """A cross in the middle of each of these edges."""
        middles = [_point_on(curve, 0.5) for curve in self._edge_curves(layer, i, j)]
        x, y = np.array(middles).reshape(-1, 2).T
        size = min(max(self.layout.row, 9.0), 18.0)
        for tone, width in (("white", 2.8), ("black", 1.1)):  # visible on dark edges too
            self.axes.scatter(x, y, s=size, marker="x", color=[tone], linewidths=width, zorder=5)

    def labels(self, names: Sequence[str], special: np.ndarray, strength: np.ndarray, size: float) -> None:
        """The tokens at both ends, as many as fit, the strongest first; `strength` (2, t) at input and output."""
        rows = self.layout.y(np.arange(len(names)))
        ends = ((0, "right", -self.radius - 5), (self.layout.layers - 1, "left", self.radius + 5))
        for (layer, side, shift), end_strength in zip(ends, strength, strict=True):
            for token in _apart(rows, end_strength, size):
                look: dict[str, Any] = {"style": "italic", "color": GREY} if special[token] else {}
                x = float(self.layout.x(layer))
                y = rows[token]
                if self.layout.terminal_distance:  # above the node, with terminal edges passing behind
                    y -= self.radius + 2
                    look |= {"ha": "center", "va": "bottom", "bbox": _WHITE_BOX}
                else:
                    x += shift
                    look |= {"ha": side, "va": "center_baseline"}
                self.axes.text(x, y, names[token], size=size, zorder=6, **look)

    def layer_names(self) -> None:
        """The names of the columns, above them."""
        last = self.layout.layers - 1
        step = 1 if self.layout.column >= 20 else 2
        y = self.layout.top - self.layout.margin - (14 if self.layout.terminal_distance else 6)
        names = {0: "input", last: "output"}
        for layer in range(step, last - step + 1, step):
            names[layer] = str(layer)
        for layer in sorted(names):
            x = float(self.layout.x(layer))
            self.axes.text(x, y, names[layer], size=8, ha="center", va="bottom", color=GREY)

    def layer_shares(self, shares: np.ndarray) -> None:
        """How much of each layer's flow is drawn, below the columns."""
        y = self.layout.bottom + 3
        look: dict[str, Any] = {"size": min(7.0, self.layout.column / 4), "va": "top", "color": GREY}
        for layer, share in enumerate(shares):
            x = float(self.layout.x(layer)) + self.layout.column / 2
            self.axes.text(x, y, f"{share:.0%}", ha="center", **look)
        self.axes.text(float(self.layout.x(0)) - 4, y, "drawn", ha="right", **look)

    def _edge_curves(self, layer: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Control points (m, 4, 2) of edges, from the input side to the output side."""
        start = np.stack([self.layout.x(layer), self.layout.y(j)], -1)
        end = np.stack([self.layout.x(layer + 1), self.layout.y(i)], -1)
        return self._curves(start, end)

    def _terminal_curves(self, end: int, tokens: np.ndarray) -> np.ndarray:
        """Control points (m, 4, 2) of the edges of the terminal at `end`, likewise."""
        output = end >= 0
        nodes = np.empty((len(tokens), 2))
        nodes[:, 0] = self.layout.x(end - 1 if output else 0)
        nodes[:, 1] = self.layout.y(tokens)
        terminal = np.empty((len(tokens), 2))
        terminal[:, 0] = self.layout.x(end)
        terminal[:, 1] = self.layout.middle
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
        self, curves: np.ndarray, widths: np.ndarray, tones: Sequence[Colour], depth: float, pattern: Any = "solid"
    ) -> None:
        if len(curves) == 0:
            return
        paths = [Path(points, _CURVE) for points in curves]
        look = {"facecolors": "none", "edgecolors": tones, "linewidths": widths, "linestyles": pattern}
        self.axes.add_collection(PathCollection(paths, **look, capstyle="butt", zorder=depth), autolim=False)

    def _arrow_heads(self, tips: np.ndarray, direction: np.ndarray) -> None:
        across = direction[:, ::-1] * (1, -1)
        size = min(5.0, 0.3 * self.layout.row)
        base = tips - size * direction
        corners = np.stack([tips, base + 0.45 * size * across, base - 0.45 * size * across], 1)
        look = {"facecolors": [INK], "edgecolors": "white", "linewidths": 0.4, "zorder": 2.5}
        self.axes.add_collection(PolyCollection(list(corners), **look), autolim=False)

    def _badge(self, curve: np.ndarray, position: float, text: str, size: float, box: dict[str, Any]) -> None:
        x, y = _point_on(curve, position)
        self.axes.text(x, y, text, size=size, ha="center", va="center", bbox=box, zorder=5.5)


def _point_on(curve: np.ndarray, s: float) -> tuple[float, float]:
    """A point of a cubic curve, s = 0 to 1."""
    weights = np.array([(1 - s) ** 3, 3 * s * (1 - s) ** 2, 3 * s * s * (1 - s), s**3])
    x, y = weights @ curve
    return float(x), float(y)


def _apart(rows: np.ndarray, strength: np.ndarray, size: float) -> list[int]:
    """As many labels as fit without touching each other, the strongest first."""
    labelled: list[int] = []
    for token in np.argsort(-strength, kind="stable").tolist():
        if all(abs(rows[token] - rows[other]) >= 1.05 * size for other in labelled):
            labelled.append(token)
    return labelled


def _grey(part: float) -> Colour:
    """From white to ink."""
    red, green, blue = (1 - part * (1 - channel) for channel in INK)
    return red, green, blue
