"""Positions in a flow diagram."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["MARGIN", "Layout"]

MARGIN = 12.0  # above the first and below the last token


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

    def x(self, layer: int) -> float:
        """Of a node layer."""
        return self.left + layer * self.column

    def y(self, token: float) -> float:
        """Of a token."""
        return self.top + token * self.row

    def points(self, layer: np.ndarray | int, token: np.ndarray) -> np.ndarray:
        """Of nodes, (m, 2)."""
        x = self.left + layer * self.column
        y = self.top + token * self.row
        return np.stack(np.broadcast_arrays(x, y), -1)

    def terminal(self, *, output: bool) -> tuple[float, float]:
        """Of the terminal next to the output or to the input."""
        middle = self.y((self.tokens - 1) / 2)
        if output:
            return self.x(self.layers - 1) + self.terminal_distance, middle
        return self.left - self.terminal_distance, middle

    @property
    def bottom(self) -> float:
        """Below the last token."""
        return self.y(self.tokens - 1) + MARGIN
