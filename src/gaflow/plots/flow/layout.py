"""What a flow diagram shows, and the positions of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gaflow.view.flow_graph import EdgeSelection, Graph

MARGIN = 12.0  # above the first and below the last token
TERMINAL_COLUMNS = 0.8  # from a terminal to the layer next to it


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
