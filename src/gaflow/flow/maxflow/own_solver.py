"""Maximum flows of small networks in plain Python, where OR-Tools is not installed (Dinic 1970).

A phase measures how far every node is from the source, in residual edges, and fills up the shortest paths. There are
fewer phases than nodes. The methods have the names that they have in OR-Tools.

The convention this file owns: edge `2k` is the `k`-th that was added, edge `2k + 1` its way back, and `residual` says
how much more each can take.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from gaflow.progress import checkpoint

MOST_ARCS = 20_000  # about ten seconds


class PlainMaxFlow:
    """A solver with the methods of OR-Tools' SimpleMaxFlow, as far as gaflow uses them."""

    OPTIMAL = 0

    def __init__(self) -> None:
        self._head: list[int] = []
        self._capacity: list[int] = []
        self._residual: list[int] = []
        self._edges_of: list[list[int]] = []
        self._source = 0
        self._target = 0
        self._value = 0

    def add_arcs_with_capacity(self, tail: np.ndarray, head: np.ndarray, capacity: np.ndarray) -> np.ndarray:
        """Add edges; their numbers."""
        first = len(self._capacity)
        nodes = 1 + int(max(tail.max(), head.max()))
        while len(self._edges_of) < nodes:
            self._edges_of.append([])
        for start, end, limit in zip(tail.tolist(), head.tolist(), capacity.tolist(), strict=True):
            self._edges_of[start].append(len(self._head))
            self._head.append(end)
            self._edges_of[end].append(len(self._head))
            self._head.append(start)
            self._capacity.append(limit)
        return np.arange(first, len(self._capacity))

    def num_arcs(self) -> int:
        """How many edges there are."""
        return len(self._capacity)

    def solve(self, source: int, target: int) -> int:
        """Find a maximum flow from nothing."""
        self._source = source
        self._target = target
        self._value = 0
        self._residual = []
        for limit in self._capacity:
            self._residual += [limit, 0]
        while True:
            checkpoint()
            distance = self._distances(source, backwards=False)
            if distance[target] < 0:
                return self.OPTIMAL
            self._fill_shortest_paths(distance)

    def optimal_flow(self) -> int:
        """The value of the flow."""
        return self._value

    def flows(self, numbers: Iterable[int]) -> list[int]:
        """The flow on edges."""
        return [self._capacity[number] - self._residual[2 * number] for number in numbers]

    def get_source_side_min_cut(self) -> list[int]:
        """The nodes that the source can still send to."""
        return _reached(self._distances(self._source, backwards=False))

    def get_sink_side_min_cut(self) -> list[int]:
        """The nodes that can still send to the target."""
        return _reached(self._distances(self._target, backwards=True))

    def _distances(self, start: int, *, backwards: bool) -> list[int]:
        """The least number of residual edges from `start` to every node, or the other way; -1 where there is none."""
        distance = [-1] * len(self._edges_of)
        distance[start] = 0
        waiting = deque([start])
        while waiting:
            node = waiting.popleft()
            for edge in self._edges_of[node]:
                end = self._head[edge]
                passable = self._residual[edge ^ 1] if backwards else self._residual[edge]
                if passable and distance[end] < 0:
                    distance[end] = distance[node] + 1
                    waiting.append(end)
        return distance

    def _fill_shortest_paths(self, distance: list[int]) -> None:
        """Send flow along paths on which the distance grows by 1, until each has a full edge."""
        residual = self._residual
        head = self._head
        next_edge = [0] * len(self._edges_of)  # of each node: all before it lead nowhere
        path: list[int] = []
        node = self._source
        while True:
            if node == self._target:
                amount = min(residual[edge] for edge in path)
                self._value += amount
                for edge in path:
                    residual[edge] -= amount
                    residual[edge ^ 1] += amount
                full = next(k for k, edge in enumerate(path) if not residual[edge])
                node = head[path[full] ^ 1]
                del path[full:]
            edges = self._edges_of[node]
            position = next_edge[node]
            while position < len(edges) and not self._leads_on(edges[position], node, distance):
                position += 1
            next_edge[node] = position
            if position < len(edges):
                path.append(edges[position])
                node = head[edges[position]]
            elif path:
                node = head[path.pop() ^ 1]
                next_edge[node] += 1
            else:
                return

    def _leads_on(self, edge: int, node: int, distance: list[int]) -> bool:
        return self._residual[edge] > 0 and distance[self._head[edge]] == distance[node] + 1


def _reached(distance: list[int]) -> list[int]:
    return [node for node, steps in enumerate(distance) if steps >= 0]
