"""The strokes of a flow diagram: edges, nodes, routes, crosses and labels, in a few collections however many there are.

The convention this file owns: **widths and areas are proportional to amounts**, the widest edge as wide as rows allow;
only what would vanish is drawn as a hairline or a dot, wider than its share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.path import Path

from gaflow.plots.elements import level_of, word
from gaflow.plots.figure import GREY, INK, colour
from gaflow.plots.flow.layout import Layout
from gaflow.view.flow_graph import EdgeSelection, Graph
from gaflow.view.shades import LEVELS

__all__ = ["Pen"]

_HAIR = 0.35
_DASHES = [(0, (4, 2))]
_FULL = {"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "none"}


@dataclass(frozen=True)
class Pen:
    """Draws into `axes` at the places of `layout`."""

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

    def edges(self, shown: EdgeSelection, other: np.ndarray | None = None) -> None:
        """The edges, in grey; beside an `other` flow (l, t, t) orange where there is more here and blue where less."""
        ends = self._ends(shown.layer, shown.i, shown.j)
        tones = [_grey(0.3 + 0.7 * part) for part in (shown.amount / self.largest) ** 0.7]
        self._compared(ends, shown.amount, None if other is None else other[shown.layer, shown.i, shown.j], tones, 1.0)

    def _compared(
        self, ends: list[np.ndarray], amounts: np.ndarray, there: np.ndarray | None, tones: Any, depth: float
    ) -> None:
        """Edges in their `tones`, but for those that carry more or less than `there`."""
        widths = self._widths(amounts)
        more, less = np.zeros_like(widths, dtype=bool), np.zeros_like(widths, dtype=bool)
        if there is not None:
            more, less = (sign * (amounts - there) > 1e-9 * self.largest for sign in (1, -1))
        groups = ((~more & ~less, None, "solid"), (more, colour(LEVELS), "solid"), (less, colour(-LEVELS), _DASHES))
        for order, (mine, tone, pattern) in enumerate(groups):
            chosen = np.flatnonzero(mine)
            colours = [tones[k] for k in chosen] if tone is None else [tone]
            wide = widths[chosen] if tone is None else np.maximum(widths[chosen], 1.2)
            if mine is more:  # outlined, to be told from the others without colour
                self._draw([ends[k] for k in chosen], wide + 1.2, [INK], depth + order / 10)
            self._draw([ends[k] for k in chosen], wide, colours, depth + order / 10, pattern)

    def terminals(self, graph: Graph, other: Graph | None = None) -> None:
        """Super-source and super-target and their edges, as in `edges`; dashed where no amounts are given."""
        t, last = self.layout.tokens, self.layout.layers
        theirs = (None, None) if other is None else (other.source, other.target)
        rows = ((last, graph.source, theirs[0], "left", 1), (-1, graph.target, theirs[1], "right", -1))
        for at, amounts, there, side, out in rows:
            ends = self._terminal_ends(at, np.arange(t))
            if amounts is None:
                self._draw(ends, np.full(t, 0.8), [GREY], 0.9, _DASHES)
            else:
                mine = np.flatnonzero(amounts > 0 if there is None else np.maximum(amounts, there) > 0)
                beside = None if there is None else there[mine]
                self._compared([ends[k] for k in mine], amounts[mine], beside, [GREY] * len(mine), 0.7)
            place = (float(self.layout.x(at)), self.layout.middle)
            self.axes.scatter(*place, s=(2 * self.radius) ** 2, marker="s", color=[INK], zorder=4)
            name = "source" if (at == last) != self.forward else "target"
            for line, shift in (("super-", -5), (name, 5)):  # two texts: an SVG anchors single lines only
                word(self.axes, place[0] + out * (self.radius + 4), place[1] + shift, line, size=8, ha=side, zorder=6)

    def returning(self) -> None:
        """The edge from super-target back to super-source, which makes a circulation of the flow."""
        a, b = (float(self.layout.x(k)) for k in (-1, self.layout.layers))
        middle = self.layout.middle
        deep = middle + (self.layout.bottom + 12 - middle) / 0.75  # a cubic curve reaches 3/4 of its control points
        ends = np.array([(a, middle), (a, deep), (b, deep), (b, middle)])
        self._draw([ends], np.array([1.2]), [INK], 0.8)
        x = a if self.forward else b
        self._tips(np.array([[x, middle + self.radius + 1]]), np.array([[0.0, -1.0]]))
        where = ((a + b) / 2, self.layout.bottom + 14)
        self.axes.text(*where, "return edge, cost -1", size=7.5, ha="center", va="top", color=INK)

    def nodes(self, through: np.ndarray | None) -> None:
        """A circle for every node, as large as the flow through it; all alike if None."""
        layers, t = self.layout.layers, self.layout.tokens
        x, y = np.repeat(self.layout.x(np.arange(layers)), t), np.tile(self.layout.y(np.arange(t)), layers)
        if through is None:
            size, faces = np.full(x.size, (2 * self.radius) ** 2), [(1.0, 1.0, 1.0)]
        else:
            amounts = through.ravel()
            largest = float(amounts.max(initial=0.0))
            size = np.maximum((2 * self.radius) ** 2 * amounts / (largest or 1.0), min(2.0, self.radius))
            faces = [colour(level_of(amount, largest)) for amount in amounts.tolist()]
        self.axes.scatter(x, y, s=size, facecolors=faces, edgecolors=[INK], linewidths=0.5, zorder=3)

    def arrows(self, shown: EdgeSelection, terminals: bool) -> None:
        """A tip at the head of every edge."""
        ends = self._ends(shown.layer, shown.i, shown.j)
        every = np.arange(self.layout.tokens)
        if terminals:
            ends = ends + self._terminal_ends(self.layout.layers, every) + self._terminal_ends(-1, every)
        points = np.array(ends).reshape(-1, 4, 2)
        heads, before = (points[:, -1], points[:, -2]) if self.forward else (points[:, 0], points[:, 1])
        along = heads - before
        along = along / np.maximum(np.hypot(*along.T), 1e-9)[:, None]
        self._tips(heads - along * (self.radius + 0.5), along)

    def numbers(self, shown: EdgeSelection, source: np.ndarray | None, target: np.ndarray | None) -> None:
        """The amount of every edge, written near its tail."""
        near = 0.27 if self.forward else 0.73
        every = [*zip(self._ends(shown.layer, shown.i, shown.j), shown.amount.tolist(), strict=True)]
        for at, amounts in ((self.layout.layers, source), (-1, target)):
            if self.layout.end and amounts is not None:
                mine = np.flatnonzero(amounts > 0)
                every += zip(self._terminal_ends(at, mine), amounts[mine].tolist(), strict=True)
        for points, amount in every:
            self._badge(points, near, f"{amount:.4g}", size=6.5, box=_FULL)

    def routes(self, ways: Sequence[Sequence[int]]) -> None:
        """Double lines along the nodes of each route, and its number on it."""
        every, last = [], self.layout.layers - 1
        for k, nodes in enumerate(ways):
            ends = self._ends(np.arange(last), np.array(nodes[1:]), np.array(nodes[:-1]))
            every += ends
            # one gap after the other, so that routes over the same edges do not hide each other's number
            shift = 0.5 + 0.17 * ((k // last + 1) // 2) * (-1) ** (k // last)
            number = {"boxstyle": "circle,pad=0.2", "facecolor": "white", "edgecolor": INK, "linewidth": 0.7}
            self._badge(ends[k % last], shift, str(k + 1), size=7, box=number)
        self._draw(every, np.full(len(every), 2.8), [INK], 2.0)
        self._draw(every, np.full(len(every), 1.6), [colour(LEVELS)], 2.1)

    def crosses(self, layer: np.ndarray, i: np.ndarray, j: np.ndarray) -> None:
        """A cross in the middle of each of these edges."""
        places = np.array([_along(points, 0.5) for points in self._ends(layer, i, j)]).reshape(-1, 2)
        size = min(max(self.layout.row, 9.0), 18.0)
        for tone, width in (("white", 2.8), ("black", 1.1)):  # to be seen on dark edges too
            self.axes.scatter(*places.T, s=size, marker="x", color=[tone], linewidths=width, zorder=5)

    def labels(self, names: Sequence[str], special: np.ndarray, strength: np.ndarray, size: float) -> None:
        """The tokens at both ends, as many as fit, the strongest first; `strength` (2, t) at input and output."""
        places = self.layout.y(np.arange(len(names)))
        if self.layout.end:
            ends = ((0, "center", 0.0), (self.layout.layers - 1, "center", 0.0))
        else:
            ends = ((0, "right", -self.radius - 5), (self.layout.layers - 1, "left", self.radius + 5))
        for (at, side, shift), strong in zip(ends, strength, strict=True):
            for k in _apart(places, strong, size):
                look: dict[str, Any] = {"style": "italic", "color": GREY} if special[k] else {}
                look |= {"bbox": _FULL} if self.layout.end else {}  # terminal edges pass behind
                y, anchor = (places[k], "center_baseline") if shift else (places[k] - self.radius - 2, "bottom")
                x = float(self.layout.x(at)) + shift
                self.axes.text(x, y, names[k], size=size, ha=side, va=anchor, zorder=6, **look)

    def heads(self, shares: np.ndarray | None) -> None:
        """What the columns are called; and below, how much of each layer's flow is drawn, if not all."""
        last = self.layout.layers - 1
        step = 1 if self.layout.column >= 20 else 2
        for k in range(last + 1):
            name = "input" if k == 0 else "output" if k == last else str(k)
            if k in (0, last) or (k % step == 0 and last - k >= step):
                top = self.layout.top - self.layout.edge - (14 if self.layout.end else 6)
                self.axes.text(float(self.layout.x(k)), top, name, size=8, ha="center", va="bottom", color=GREY)
        if shares is not None:
            small = min(7.0, self.layout.column / 4)
            for k, share in enumerate(shares):
                x = float(self.layout.x(k)) + self.layout.column / 2
                self.axes.text(x, self.layout.bottom + 3, f"{share:.0%}", size=small, ha="center", va="top", color=GREY)
            left = float(self.layout.x(0)) - 4
            self.axes.text(left, self.layout.bottom + 3, "drawn", size=small, ha="right", va="top", color=GREY)

    def _widths(self, amounts: np.ndarray) -> np.ndarray:
        return np.maximum(self.widest * amounts / self.largest, _HAIR)

    def _ends(self, layer: np.ndarray, i: np.ndarray, j: np.ndarray) -> list[np.ndarray]:
        """Control points (4, 2) of each edge, from the input side to the output side."""
        left, right = self.layout.x(layer), self.layout.x(np.asarray(layer) + 1)
        return self._curves(left, self.layout.y(j), right, self.layout.y(i))

    def _terminal_ends(self, at: int, tokens: np.ndarray) -> list[np.ndarray]:
        middle, y = np.full(len(tokens), self.layout.middle), self.layout.y(tokens)
        end, near = (np.full(len(tokens), float(self.layout.x(k))) for k in (at, 0 if at < 0 else at - 1))
        return self._curves(end, middle, near, y) if at < 0 else self._curves(near, y, end, middle)

    def _curves(self, a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> list[np.ndarray]:
        """Cubic curves from (a, b) to (c, d): straight in small networks, where numbers need the room."""
        third = 1 / 3 if self.layout.straight else 0.5
        rise = third if self.layout.straight else 0.0
        first = np.stack([a + third * (c - a), b + rise * (d - b)], -1)
        second = np.stack([c - third * (c - a), d - rise * (d - b)], -1)
        return list(np.stack([np.stack([a, b], -1), first, second, np.stack([c, d], -1)], 1))

    def _draw(
        self, ends: Sequence[np.ndarray], widths: np.ndarray, tones: Any, depth: float, pattern: Any = "solid"
    ) -> None:
        codes = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
        paths = [Path(points, codes) for points in ends]
        look = {"facecolors": "none", "edgecolors": tones, "linewidths": widths, "linestyles": pattern}
        if paths:
            self.axes.add_collection(PathCollection(paths, **look, capstyle="butt", zorder=depth), autolim=False)

    def _tips(self, tips: np.ndarray, along: np.ndarray) -> None:
        across = along[:, ::-1] * (1, -1)
        size = min(5.0, 0.3 * self.layout.row)
        corners = [tips, tips - size * along + 0.45 * size * across, tips - size * along - 0.45 * size * across]
        heads = PolyCollection(
            list(np.stack(corners, 1)), facecolors=[INK], edgecolors="white", linewidths=0.4, zorder=2.5
        )
        self.axes.add_collection(heads, autolim=False)

    def _badge(self, points: np.ndarray, at: float, text: str, size: float, box: dict[str, Any]) -> None:
        x, y = _along(points, at)
        self.axes.text(x, y, text, size=size, ha="center", va="center", bbox=box, zorder=5.5)


def _along(points: np.ndarray, s: float) -> tuple[float, float]:
    """A point of a cubic curve, s = 0 to 1."""
    weights = np.array([(1 - s) ** 3, 3 * s * (1 - s) ** 2, 3 * s * s * (1 - s), s**3])
    x, y = weights @ points
    return float(x), float(y)


def _apart(places: np.ndarray, strength: np.ndarray, size: float) -> list[int]:
    """As many labels as fit without touching each other, the strongest first."""
    kept: list[int] = []
    for k in np.argsort(-strength, kind="stable").tolist():
        if all(abs(places[k] - places[other]) >= 1.05 * size for other in kept):
            kept.append(k)
    return kept


def _grey(part: float) -> tuple[float, float, float]:
    """From white to ink."""
    red, green, blue = (1 - part * (1 - x) for x in INK)
    return red, green, blue
