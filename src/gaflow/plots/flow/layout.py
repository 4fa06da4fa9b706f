"""Where everything in a flow diagram stands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["EDGE", "Layout", "edge_of"]

EDGE = 12.0


def edge_of(row: float) -> float:
    """What belongs to the first and last token, above and below, if rows are `row` apart."""
    return min(row / 2, EDGE)


@dataclass(frozen=True)
class Layout:
    """Places in points: node layers from left (input) to right (output), tokens from top to bottom."""

    left: float  # of node layer 0
    top: float  # of token 0
    column: float  # from layer to layer
    row: float  # from token to token
    layers: int  # node layers
    tokens: int
    end: float  # from a terminal to the nodes next to it; 0 without terminals
    straight: bool  # edges

    def x(self, layer: np.ndarray | int) -> np.ndarray:
        """Of node layers; -1 is the terminal at the input, `layers` that at the output."""
        inside = np.clip(layer, 0, self.layers - 1) * self.column
        return self.left + inside + self.end * (np.asarray(layer) == self.layers) - self.end * (np.asarray(layer) < 0)

    def y(self, token: np.ndarray) -> np.ndarray:
        """Of tokens."""
        return self.top + np.asarray(token, dtype=float) * self.row

    @property
    def middle(self) -> float:
        """The height of the terminals."""
        return self.top + (self.tokens - 1) / 2 * self.row

    @property
    def bottom(self) -> float:
        """Below the last token."""
        return self.top + (self.tokens - 1) * self.row + self.edge

    @property
    def edge(self) -> float:
        """What belongs to the first and last token, above and below."""
        return edge_of(self.row)

    @property
    def right(self) -> float:
        """Of the output layer."""
        return self.left + (self.layers - 1) * self.column
