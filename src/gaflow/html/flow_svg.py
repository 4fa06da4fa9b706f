"""A flow as inline SVG: tokens in rows with their scores as bars, node layers in columns, the input at the left.

What the script of the page (static/flow.js) draws anew for other methods, it draws by the numbers of `Place`, which
are in the page's data.

The convention this file owns: amounts are **millionths of the flow**, those of nodes to five digits and of edges to
four; widths are proportional to them within a drawing, but for hairlines, which are less than they look.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from gaflow.html.attribution import safe, shortened
from gaflow.view.shades import visible

__all__ = ["Lines", "Place", "drawing", "label", "millionths"]

_LABEL = 16  # characters of a token beside its row


@dataclass(frozen=True)
class Place:
    """Where everything stands, in pixels."""

    left: float  # of node layer 0
    top: float  # of token 0
    row: float  # from token to token
    column: float  # from layer to layer
    bar: float  # length of the longest bar, which ends a little left of node layer 0
    names: float  # room for the longest label, at both ends
    widest: float  # edge
    thinnest: float = 0.3  # edge
    radius: float = 7.0  # of a node that all flow goes through
    smallest: float = 0.7  # radius of a node that is drawn

    @classmethod
    def of(cls, labels: Sequence[str], layers: int) -> Place:
        """Closer, the more there are."""
        row = 24.0 if len(labels) <= 24 else 19.0 if len(labels) <= 64 else 15.0
        column = 110.0 if layers <= 6 else 72.0 if layers <= 12 else 48.0
        bar, names = 84.0, max(40.0, *(_room(each) for each in labels))
        size = {"widest": 0.5 * row, "radius": min(7.0, 0.42 * row)}
        return cls(left=names + bar + 32, top=44.0, row=row, column=column, bar=bar, names=names, **size)

    def width(self, layers: int) -> float:
        """Of a drawing with `layers` layers of edges."""
        return self.left + self.column * layers + (self.names + 24 if layers else 20.0)

    def height(self, tokens: int) -> float:
        """Of a drawing of so many tokens."""
        return self.top + self.row * tokens

    def to_dict(self) -> dict[str, float]:
        """For the script."""
        return asdict(self)


@dataclass(frozen=True)
class Lines:
    """What is drawn of one method."""

    labels: tuple[str, ...]  # (t,) short and visible
    special: tuple[bool, ...]  # (t,)
    scores: tuple[float, ...]  # (t,)
    layers: tuple[tuple[float, ...], ...]  # (l+1, t) millionths through every node; empty without a flow
    edges: tuple[tuple[float, ...], ...]  # (l, 3 m) i, j, millionths, weakest first

    @property
    def strongest(self) -> float:
        """The largest amount on an edge."""
        return max((max(each[2::3]) for each in self.edges if each), default=0.0)

    def only(self, most: int) -> Lines:
        """The same with the strongest edges alone, about `most` in all; each layer has its weakest first."""
        each = 3 * max(1, most // max(len(self.edges), 1))
        return replace(self, edges=tuple(layer[-each:] for layer in self.edges))


def millionths(amounts: np.ndarray, value: float, digits: int = 5) -> list[Any]:
    """Amounts as parts of the flow, to so many digits; 0 where nothing flows."""
    parts = amounts / value * 1e6 if value > 0 else np.zeros_like(amounts)
    return [_short(x, digits) for x in parts.tolist()]


def _short(x: float, digits: int) -> float:
    rounded = float(f"{x:.{digits}g}")
    return int(rounded) if rounded == int(rounded) else rounded


def _room(line: str) -> float:
    """Pixels that a label takes at most, whatever the font: capitals and m are wide, other scripts wider still."""
    plain = (9.0 if char in _NARROW else 14.0 if unicodedata.combining(char) == 0 else 0.0 for char in line)
    return min(sum(plain), 130.0)


_NARROW = frozenset("abcdefghijklnopqrstuvxyz0123456789 .,:;!?'\"()[]{}/\\|-_*#$^`~<>=+&")


def label(token: str) -> str:
    """A token beside its row."""
    line = shortened(visible(token)) or "␣"
    return line if len(line) <= _LABEL else f"{line[: _LABEL - 1]}…"


def drawing(lines: Lines, place: Place) -> str:
    """The drawing itself, which needs no script."""
    layers, t = max(len(lines.layers) - 1, 0), len(lines.labels)
    width, height = place.width(layers), place.height(t)
    what = f"Flow through {layers + 1} layers of {t} tokens" if layers else f"Scores of {t} tokens"
    return (
        f'<svg class="drawing" role="group" aria-label="{what}" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}">\n'
        f'<g class="heads">{_heads(layers, place)}</g>\n<g class="edges">{_edges(lines, place)}</g>\n'
        f'<g class="nodes">{_nodes(lines, place)}</g>\n<g class="bars">{_bars(lines, place)}</g>\n'
        f'<g class="names">{_names(lines, place, layers)}</g>\n</svg>\n'
    )


def _heads(layers: int, place: Place) -> str:
    names = ["input", *(str(k) for k in range(1, layers)), "output"] if layers else []
    return "".join(
        f'<text x="{place.left + k * place.column:g}" y="{place.top - 24:g}">{name}</text>'
        for k, name in enumerate(names)
    )


def _edges(lines: Lines, place: Place) -> str:
    found, largest = [], lines.strongest
    for k, each in enumerate(lines.edges):
        x, half = place.left + k * place.column, place.column / 2
        for i, j, amount in zip(each[::3], each[1::3], each[2::3], strict=True):
            start, rise = place.top + j * place.row, (i - j) * place.row
            size = max(place.widest * amount / largest, place.thinnest)
            dark = 0.12 + 0.6 * math.sqrt(amount / largest)
            curve = f"M{x:g} {start:g}c{half:g} 0 {half:g} {rise:g} {2 * half:g} {rise:g}"
            found.append(f'<path d="{curve}" stroke-width="{size:.2g}" stroke-opacity="{dark:.2g}"/>')
    return "".join(found)


def _nodes(lines: Lines, place: Place) -> str:
    found = []
    for k, each in enumerate(lines.layers):
        for i, amount in enumerate(each):
            size = place.radius * math.sqrt(amount / 1e6)
            if size >= place.smallest:
                x, y = place.left + k * place.column, place.top + i * place.row
                title = f"<title>{safe(lines.labels[i])}, layer {k}: {amount / 1e4:.1f}% of the flow</title>"
                found.append(f'<circle cx="{x:g}" cy="{y:g}" r="{size:.3g}">{title}</circle>')
    return "".join(found)


def _bars(lines: Lines, place: Place) -> str:
    """Scores, to the left of the input; if there are negative ones, from the middle."""
    largest, signed = max(map(abs, lines.scores), default=0.0), min(lines.scores, default=0.0) < 0
    found = []
    for k, score in enumerate(lines.scores):
        size = place.bar * (abs(score) / largest if largest else 0.0) * (0.5 if signed else 1.0)
        zero = place.left - 14 - (place.bar / 2 if signed else place.bar)
        x, y = zero - (size if score < 0 else 0), place.top + (k - 0.3) * place.row
        kind = ' class="less"' if score < 0 else ""
        title = f"<title>{safe(lines.labels[k])}: {score:.6g}</title>"
        found.append(
            f'<rect{kind} x="{x:.4g}" y="{y:.5g}" width="{size:.3g}" height="{0.6 * place.row:.3g}">{title}</rect>'
        )
    return "".join(found)


def _names(lines: Lines, place: Place, layers: int) -> str:
    at = [place.left - 24 - place.bar, *([place.left + layers * place.column + 16] if layers else [])]
    found: list[str] = []
    for k, (name, special) in enumerate(zip(lines.labels, lines.special, strict=True)):
        y, kind = place.top + k * place.row, ' class="special"' if special else ""
        texts = "".join(f'<text x="{x:g}" y="{y:g}">{safe(name)}</text>' for x in at)
        found.append(f"<g{kind}>{texts}</g>")
    return "".join(found)
