"""Positions in a flow diagram."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["MARGIN", "Layout", "row_margin"]

MARGIN = 12.0  # above the first and below the last token, at most


def row_margin(row: float) -> float:
    """The room above the first and below the last token, if rows are `row` apart."""
    return min(row / 2, MARGIN)


@dataclass(frozen=True)
class Layout:
    """Positions in points: node layers from left (input) to right (output), tokens from top to bottom."""

    left: float  # of node layer 0
    top: float  # of token 0
    column: float  # from layer to layer
    row: float  # from token to token
    layers: int  # node layers
    tokens: int
    terminal_distance: float  # from a terminal to the nodes next to it; 0 without terminals
    straight: bool  # edges

    def x(self, layer: np.ndarray | int) -> np.ndarray:
        """Of node layers; -1 is the terminal at the input, `layers` the terminal at the output."""
        layer = np.asarray(layer)
        x = self.left + np.clip(layer, 0, self.layers - 1) * self.column
        x = x + self.terminal_distance * (layer == self.layers)
        return x - self.terminal_distance * (layer < 0)

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
        return self.top + (self.tokens - 1) * self.row + self.margin

    @property
    def margin(self) -> float:
        """The room above the first and below the last token."""
        return row_margin(self.row)
