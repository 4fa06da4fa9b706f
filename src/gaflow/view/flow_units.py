"""Flows of long texts, drawn by words or sentences: the units, the rows that matter, and the flow between rows.

A drawing of hundreds of tokens shows a small part of the flow over many screens. A long text is drawn by its words or
sentences instead. Its rows are groups of tokens, and the network is contracted to them: the capacity from row A to row
B is the sum over their tokens, and the flow is solved again (`gaflow.edit` has the mathematics).

The conventions this file owns:

* **Rows are groups of tokens in order.** A row is a unit (a word, a sentence, or a special token), or several
  neighbouring units that carry little flow, or a single token of a unit that was opened.
* **A flow without capacities is added up, not solved.** Sums of a flow over groups are a flow of the contracted
  network, with the value and the certificate of the original, but not the largest one there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gaflow.attribution.attribution import Attribution
from gaflow.attribution.words import sentences_of, words_of
from gaflow.flow.barrier.solve import solve
from gaflow.flow.editing import grouped
from gaflow.flow.network import Terminal
from gaflow.flow.result import Certificate, Flow
from gaflow.view.flow_graph import Graph

UnitKind = Literal["word", "sentence"]
Group = tuple[int, ...]  # token numbers
LONGEST_BY_TOKEN = 64  # tokens; longer texts are drawn by words or sentences
MOST_ROWS = 26
_MOST_WORDS = 40  # special tokens included; a text of more is drawn by sentences
_FEWEST_SENTENCES = 4  # a text of fewer is drawn by words
_NUMBERS_AT_ONCE = 2_000_000  # capacities of networks that are solved together


@dataclass(frozen=True)
class Units:
    """The units of a text, special tokens among them, and the rows that the drawing begins with."""

    kind: UnitKind
    members: tuple[Group, ...]  # the tokens of each unit, by first token
    rows: tuple[Group, ...]  # unit numbers of each row: one unit, or neighbours that carry little

    @classmethod
    def of(cls, att: Attribution, weights: np.ndarray, kind: UnitKind | None = None) -> Units | None:
        """Words or sentences, whichever suits the length; None for short texts, pictures and sounds.

        `weights` (t,): how much flow goes through each token; rows of light units are joined. `kind` asks for one.
        """
        if att.media is not None or (kind is None and len(att.tokens) <= LONGEST_BY_TOKEN):
            return None
        kind = kind or _suitable(att)
        find_units = words_of if kind == "word" else sentences_of
        members = tuple(grouped(len(att.tokens), [unit.tokens for unit in find_units(att)]))
        segments = [att.segments[tokens[0]] for tokens in members]
        unit_weights = np.array([weights[list(tokens)].sum() for tokens in members])
        return cls(kind=kind, members=members, rows=_rows_that_matter(unit_weights, segments))

    def tokens_of(self, units: Sequence[int]) -> Group:
        """The tokens of several units."""
        return tuple(token for unit in units for token in self.members[unit])

    @property
    def groups(self) -> list[Group]:
        """The tokens of each row."""
        return [self.tokens_of(row) for row in self.rows]

    def opened_row(self, row: int) -> list[Group]:
        """The rows with one of them opened: several units become rows of their own, a single one its tokens."""
        units = self.rows[row]
        if len(units) == 1:
            return self.opened_unit(units[0])
        groups = self.groups
        return groups[:row] + [self.members[unit] for unit in units] + groups[row + 1 :]

    def opened_unit(self, unit: int) -> list[Group]:
        """The rows with one unit opened into its tokens; units that share its row have rows of their own."""
        groups = []
        for units in self.rows:
            if unit not in units:
                groups.append(self.tokens_of(units))
                continue
            for other in units:
                tokens = self.members[other]
                groups += [(token,) for token in tokens] if other == unit else [tokens]
        return groups


@dataclass(frozen=True)
class RowFlow:
    """The flow between rows."""

    graph: Graph
    certificate: Certificate
    solved: bool  # on the contracted network; otherwise the flow between tokens, added up


def flows_between(flow: Flow, groupings: Sequence[Sequence[Group]]) -> list[RowFlow]:
    """The flow of a text between the rows of each grouping; a grouping has every token once, by first token."""
    if flow.capacity is None or flow.barrier not in ("uniform", "capacity"):
        return [_added_up(flow, groups) for groups in groupings]
    layers = flow.capacity.shape[1]
    by_size = sorted(range(len(groupings)), key=lambda index: len(groupings[index]))
    results: dict[int, RowFlow] = {}
    while by_size:
        widest = len(groupings[by_size[-1]])
        count = max(1, _NUMBERS_AT_ONCE // (layers * widest**2))
        together = by_size[-count:]
        del by_size[-count:]
        solved = _solve_together(flow, [groupings[index] for index in together])
        results.update(zip(together, solved, strict=True))
    return [results[index] for index in range(len(groupings))]


def added_up(values: np.ndarray, groups: Sequence[Group]) -> np.ndarray:
    """Numbers of tokens (..., t), added up over groups: (..., g)."""
    return np.stack([values[..., list(group)].sum(-1) for group in groups], -1)


def _suitable(att: Attribution) -> UnitKind:
    special = int(att.special_mask.sum())
    if len(words_of(att)) + special <= _MOST_WORDS or len(sentences_of(att)) < _FEWEST_SENTENCES:
        return "word"
    return "sentence"


def _rows_that_matter(weights: np.ndarray, segments: Sequence[int]) -> tuple[Group, ...]:
    """As many of the heaviest units alone as give at most MOST_ROWS rows; neighbours among the others share a row."""
    order = np.argsort(-weights, kind="stable")
    alone = len(weights)
    rows = _joined(set(order.tolist()), segments)
    while len(rows) > MOST_ROWS and alone > 1:
        alone = min(MOST_ROWS, alone - 1)
        rows = _joined(set(order[:alone].tolist()), segments)
    return rows


def _joined(alone: set[int], segments: Sequence[int]) -> tuple[Group, ...]:
    """Rows of units; neighbours that are not to be alone are joined, unless they belong to different texts."""
    rows: list[list[int]] = []
    for unit, segment in enumerate(segments):
        previous = rows[-1][-1] if rows else None
        joins = previous is not None and not {unit, previous} & alone and segments[previous] == segment
        if joins:
            rows[-1].append(unit)
        else:
            rows.append([unit])
    return tuple(tuple(row) for row in rows)


def _solve_together(flow: Flow, groupings: Sequence[Sequence[Group]]) -> list[RowFlow]:
    """Solve contracted networks as one batch; smaller ones get masked nodes."""
    assert flow.capacity is not None
    assert flow.barrier in ("uniform", "capacity")
    layers = flow.capacity.shape[1]
    widest = max(len(groups) for groups in groupings)
    capacity = flow.capacity.new_zeros(len(groupings), layers, widest, widest)
    real = torch.zeros(len(groupings), widest, dtype=torch.bool)
    for item, groups in enumerate(groupings):
        size = len(groups)
        capacity[item, :, :size, :size] = _contracted(flow.capacity[0], groups)
        real[item, :size] = True
    epsilon = torch.where(flow.certificate.dead, 1.0, flow.certificate.epsilon)
    batch = solve(
        capacity,
        epsilon=epsilon.expand(len(groupings)),
        barrier=flow.barrier,
        terminal=_terminal(flow, len(groupings)),
        mask=real,
        throw=False,
    )
    results = []
    for item, groups in enumerate(groupings):
        graph = _first_nodes(Graph.of(batch[item]), len(groups))
        results.append(RowFlow(graph=graph, certificate=batch.certificate[item], solved=True))
    return results


def _terminal(flow: Flow, count: int) -> Terminal | Tensor:
    """The capacity of terminal edges for `count` networks."""
    if isinstance(flow.terminal, Tensor):
        return flow.terminal.expand(count)
    return flow.terminal


def _first_nodes(graph: Graph, count: int) -> Graph:
    """The graph without the nodes from `count` on."""
    return Graph(
        edges=graph.edges[:, :count, :count],
        ends=graph.ends[:, :count],
        through=graph.through[:, :count],
    )


def _added_up(flow: Flow, groups: Sequence[Group]) -> RowFlow:
    graph = Graph.of(flow)
    between = Graph(
        edges=_contracted(torch.from_numpy(graph.edges), groups).numpy(),
        ends=added_up(graph.ends, groups),
        through=added_up(graph.through, groups),
    )
    return RowFlow(graph=between, certificate=flow.certificate[0], solved=False)


def _contracted(amounts: Tensor, groups: Sequence[Group]) -> Tensor:
    """Amounts between tokens (l, t, t), added up between groups: (l, g, g)."""
    layers, t, _ = amounts.shape
    group_of = torch.empty(t, dtype=torch.long, device=amounts.device)
    for index, group in enumerate(groups):
        group_of[list(group)] = index
    upper = amounts.new_zeros(layers, len(groups), t).index_add_(1, group_of, amounts)
    return amounts.new_zeros(layers, len(groups), len(groups)).index_add_(2, group_of, upper)
