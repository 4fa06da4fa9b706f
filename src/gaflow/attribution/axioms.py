"""Theorem 3.1 on one result: are its scores the Shapley values of its flow?

The players of a game are the nodes of one layer, and a coalition earns the flow through it, `v(S) = sum_{i in S} f(i)`,
of a flow that is fixed. Blocking one node takes nothing from the others of its layer, so that a node adds `f(i)` to
every coalition and its Shapley value is `f(i)`. The axioms that single it out can then be checked one by one, on
scores and flows as they were stored:

- **efficiency**: the scores of a layer sum to `v(N)`, which is the flow value and the sum over a layer of edges;
- **symmetry**: nodes that add the same to every coalition, `f(i) = f(j)`, have the same score;
- **nullity**: nodes that add nothing, `f(i) = 0`, have score 0;
- **linearity**: the game of a layer is the sum of one game per edge that enters it, in which only the node at its end
  earns anything, and likewise of one game per edge that leaves it; so scores are sums of edge flows, both ways.
  Scores of `layer="all"` belong to the sum of all layers' games and are the sum of their scores.

The convention this file owns: **what a node adds is read off the edges between layers**, never off the terminal edges
that hold the scores. Residuals are in units of what all players earn together. Linearity is that of games on one flow;
flows are not linear in the information tensor, except for its scale. Signed scores belong to the difference of two
games, that of the flow and that of the flow against: Shapley values are linear, so the axioms hold of it as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gaflow.attribution.attribution import Attribution
from gaflow.errors import GaflowError
from gaflow.flow.result import VALUE_AGAINST, Flow, NodeLayer, layer_scores

__all__ = ["Axioms", "axioms"]


@dataclass(frozen=True, repr=False)
class Axioms:
    """How far a result is from each axiom: the largest violation, relative to what all players earn together."""

    efficiency: float
    symmetry: float
    nullity: float
    linearity: float
    games: int  # that were checked: one per node layer, and one for the scores of an attribution
    pairs: int  # of nodes that add the same (not 0) and so must score the same; without any, symmetry asks nothing
    nulls: int  # nodes that add nothing and so must score 0; without any, nullity asks nothing
    tolerance: float  # below which a residual counts as rounding

    @property
    def residuals(self) -> dict[str, float]:
        """Axiom to residual."""
        return {name: getattr(self, name) for name in ("efficiency", "symmetry", "nullity", "linearity")}

    @property
    def failed(self) -> tuple[str, ...]:
        """The axioms that do not hold; a residual that is no number fails too."""
        return tuple(name for name, residual in self.residuals.items() if not residual <= self.tolerance)

    @property
    def ok(self) -> bool:
        """Whether all four hold."""
        return not self.failed

    def __repr__(self) -> str:
        asked = {
            "efficiency": f"{self.games} games",
            "symmetry": f"{self.pairs} pairs of equal nodes",
            "nullity": f"{self.nulls} null nodes",
            "linearity": f"{self.games} games",
        }
        lines = [f"Axioms({'ok' if self.ok else 'failed: ' + ', '.join(self.failed)}, tolerance {self.tolerance:g})"]
        lines += [f"  {name:10}  {residual:7.1e}  {asked[name]}" for name, residual in self.residuals.items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class _Game:
    """Scores that somebody claims, and what the edges say."""

    scores: np.ndarray  # (t,)
    adds: np.ndarray  # (t,) what each node adds to a coalition, from the edges on one side of it
    other: np.ndarray  # (t,) the same from the edges on its other side
    total: float  # the flow value, as often as there are layers in this game
    size: float  # what residuals are measured in: the total, or of a signed game both its sides together


def axioms(result: Attribution | Flow, *, layer: NodeLayer | None = None, tolerance: float = 1e-9) -> Axioms:
    """Check efficiency, symmetry, nullity and linearity of an attribution's scores, or of every layer of a flow.

    Of an attribution, `scores` are checked against the game of `layer` ("all": the sum over layers; None: its own
    `layer`), and `layers` row by row. Of a batch of flows, the report is the worst of all.
    """
    if not isinstance(tolerance, int | float) or not tolerance >= 0:
        raise ValueError(f"tolerance must be a number >= 0, not {tolerance!r}")
    if isinstance(result, Attribution):
        if result.flow is None:
            raise GaflowError(
                f"this attribution ({result.method}) holds no flow to check its scores against: "
                "use a flow method such as agf, and keep_flow=True"
            )
        if VALUE_AGAINST in result.diagnostics and result.flow_against is None:
            raise GaflowError(f"this attribution ({result.method}) is signed, but holds no flow against: explain anew")
        if layer is None:
            layer = 0 if result.layer is None else result.layer
        games = list(_of_attribution(result, layer))
    elif isinstance(result, Flow):
        if layer is not None:
            raise ValueError("layer is for attributions; of a flow, all layers are checked")
        games = [game for item in range(len(result.value)) for game in _of_flow(result[item])]
    else:
        raise TypeError(f"axioms takes an Attribution or a Flow, not {type(result).__name__}")
    with np.errstate(invalid="ignore"):  # flows that are no numbers fail, and need not warn
        residuals, cases = zip(*(_check(game, tolerance) for game in games), strict=True)
    efficiency, symmetry, nullity, linearity = np.max(residuals, 0).tolist()  # NaN if there is one
    pairs, nulls = np.sum(cases, 0).tolist()
    return Axioms(efficiency, symmetry, nullity, linearity, len(games), pairs, nulls, float(tolerance))


def _of_flow(flow: Flow) -> Iterator[_Game]:
    """The game of every node layer; the other side's edges (terminals at the ends) are the claim."""
    adds, other = _both_sides(flow)
    value = flow.value.item()
    for mine, theirs in zip(adds, other, strict=True):
        yield _Game(theirs, mine, theirs, value, value)


def _of_attribution(att: Attribution, layer: NodeLayer) -> Iterator[_Game]:
    """The game that the scores belong to, then that of every row of `layers`."""
    assert att.flow is not None
    adds, other = _both_sides(att.flow)
    value = earned = att.flow.value.item()
    if att.flow_against is not None:
        less, lost = _both_sides(att.flow_against), att.flow_against.value.item()
        adds, other, value, earned = adds - less[0], other - less[1], value - lost, value + lost
    count = len(adds) if layer == "all" else 1
    yield _Game(att.scores, layer_scores(adds, layer), layer_scores(other, layer), count * value, count * earned)
    for row in range(len(adds)):
        claimed = other[row] if att.layers is None else att.layers[row]
        yield _Game(claimed, adds[row], other[row], value, earned)


def _both_sides(flow: Flow) -> tuple[np.ndarray, np.ndarray]:
    """Through-flow (l+1, t) by the edges between layers, and by those on the other side of each node."""
    edges, source, target = (x[0].detach().cpu().double().numpy() for x in (flow.edges, flow.source, flow.target))
    entering, leaving = edges.sum(-2), edges.sum(-1)
    return np.vstack([entering[:1], leaving]), np.vstack([target, entering[1:], source])


def _check(game: _Game, tolerance: float) -> tuple[list[float], list[int]]:
    """Violations of the four axioms, in order; how many pairs of nodes add the same, and how many nodes nothing."""
    # Where nothing flows, what is claimed in spite of it is measured in itself.
    scale = abs(game.size) or max(np.abs(x).max() for x in (game.scores, game.adds, game.other)) or 1.0
    scores, adds, other = game.scores / scale, game.adds / scale, game.other / scale
    apart = np.abs(adds[:, None] - adds)
    null = np.abs(adds) <= tolerance
    equal = np.triu(apart <= tolerance, 1) & ~(null[:, None] & null)  # two null nodes are the next axiom's
    unequal = np.abs(scores[:, None] - scores) - apart  # what differs a little may score so
    residuals = [
        np.abs(scores.sum() - np.array([game.total / scale, adds.sum()])).max(),
        unequal.max(where=equal, initial=0.0),
        (np.abs(scores) - np.abs(adds)).max(where=null, initial=0.0),
        np.abs(scores - np.stack([adds, other])).max(),
    ]
    return [float(x) for x in residuals], [int(equal.sum()), int(null.sum())]
