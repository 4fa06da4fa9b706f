"""Theorem 3.1 on one result: are its scores the Shapley values of its flow?

The players of a game are the nodes of one layer, and a coalition earns the flow through it, `v(S) = sum_{i in S} f(i)`,
of a flow that is fixed. Blocking one node takes nothing from the others of its layer. So a node adds `f(i)` to every
coalition, and its Shapley value is `f(i)`. The game is additive: of such a game any scores are the Shapley values, and
those of any flow pass (`flow/maxflow/shapley.py` has a game that is not additive). The axioms that single out this
value can be checked one by one, on scores and flows as they were stored:

- **efficiency**: the scores of a layer sum to `v(N)`, which is the flow value and the sum over a layer of edges;
- **symmetry**: nodes that add the same to every coalition, `f(i) = f(j)`, have the same score;
- **nullity**: nodes that add nothing, `f(i) = 0`, have score 0;
- **linearity**: the game of a layer is the sum of one game per edge that enters it, in which only the node at its end
  earns anything, and likewise of one game per edge that leaves it; so scores are sums of edge flows, both ways.
  Scores of `layer="all"` belong to the sum of all layers' games and are the sum of their scores.

The convention this file owns: **the contribution of a node is read off the edges between layers**, never off the
terminal edges that hold the scores. Residuals are in units of the sum that all players earn together. Linearity is that
of games on one flow; flows are not linear in the information tensor, except for its scale. Signed scores belong to the
difference of two games, that of the flow and that of the flow against: Shapley values are linear, so the axioms hold of
it as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from gaflow.arguments import checked
from gaflow.attribution.attribution import Attribution
from gaflow.errors import Argument, ArgumentError, GaflowError
from gaflow.flow.result import VALUE_AGAINST, Flow, NodeLayer, layer_scores

_NAMES = ("efficiency", "symmetry", "nullity", "linearity")


@dataclass(frozen=True, repr=False)
class Axioms:
    """How far a result is from each axiom: the largest violation, relative to the sum that all players earn.

    >>> gaflow.axioms(explainer("a very smart dog", "agf")).ok
    True
    """

    efficiency: float
    symmetry: float
    nullity: float
    linearity: float
    games: int  # that were checked: one per node layer, and one for the scores of an attribution
    pairs: int  # of nodes that add the same (not 0) and so must score the same; without any, symmetry holds trivially
    nulls: int  # nodes that add nothing and so must score 0; without any, nullity holds trivially
    tolerance: float  # below which a residual counts as rounding

    @property
    def residuals(self) -> dict[str, float]:
        """Axiom to residual."""
        return {name: getattr(self, name) for name in _NAMES}

    @property
    def failed(self) -> tuple[str, ...]:
        """The axioms that do not hold; a residual that is NaN fails too."""
        return tuple(name for name, residual in self.residuals.items() if not residual <= self.tolerance)

    @property
    def ok(self) -> bool:
        """Whether all four hold."""
        return not self.failed

    def __repr__(self) -> str:
        cases = {
            "efficiency": f"{self.games} games",
            "symmetry": f"{self.pairs} pairs of equal nodes",
            "nullity": f"{self.nulls} null nodes",
            "linearity": f"{self.games} games",
        }
        verdict = "ok" if self.ok else f"failed: {', '.join(self.failed)}"
        lines = [f"Axioms({verdict}, tolerance {self.tolerance:g})"]
        for name, residual in self.residuals.items():
            lines.append(f"  {name:10}  {residual:7.1e}  {cases[name]}")
        return "\n".join(lines)


@dataclass(frozen=True)
class _Game:
    """Claimed scores, and the contributions of the nodes according to the edges."""

    scores: np.ndarray  # (t,)
    sides: np.ndarray  # (2, t) what each node adds to a coalition, from the edges on either side of it
    total: float  # the flow value, as often as there are layers in this game
    scale: float  # the unit of residuals: the total, or of a signed game both its sides together


@checked
def axioms(result: Attribution | Flow, *, layer: NodeLayer | None = None, tolerance: float = 1e-9) -> Axioms:
    """Check efficiency, symmetry, nullity and linearity of an attribution's scores, or of every layer of a flow.

    The `scores` of an attribution are checked against the game of `layer` ("all": the sum over layers; None: its own
    `layer`), and its `layers` row by row. The report of a batch of flows is the worst of all.

        >>> gaflow.axioms(explainer("a very smart dog", "agf"))
    """
    if not tolerance >= 0:  # NaN neither
        raise ArgumentError(Argument("tolerance"), f" must be a number >= 0, not {tolerance!r}")
    if isinstance(result, Attribution):
        games = list(_games_of_attribution(result, layer))
    else:
        if layer is not None:
            raise ArgumentError(Argument("layer"), " is for attributions; of a flow, all layers are checked")
        games = []
        for item, value in enumerate(result.value.tolist()):
            sides = _both_sides(result[item])
            games += _games_of_layers(sides[1], sides, value, value)  # the side of the terminals is the claim
    with np.errstate(invalid="ignore"):  # flows that are not finite fail, and need not warn
        residuals, counts = zip(*(_check(game, tolerance) for game in games), strict=True)
    worst = np.max(residuals, axis=0).tolist()  # NaN if there is one
    pairs, nulls = np.sum(counts, axis=0).tolist()
    return Axioms(
        **dict(zip(_NAMES, worst, strict=True)),
        games=len(games),
        pairs=pairs,
        nulls=nulls,
        tolerance=float(tolerance),
    )


def _games_of_layers(scores: np.ndarray, sides: np.ndarray, total: float, scale: float) -> Iterator[_Game]:
    """The game of every node layer, of scores (l+1, t) and sides (2, l+1, t)."""
    for layer, layer_claim in enumerate(scores):
        yield _Game(scores=layer_claim, sides=sides[:, layer], total=total, scale=scale)


def _games_of_attribution(att: Attribution, layer: NodeLayer | None) -> Iterator[_Game]:
    """The game that the scores belong to, then the game of every row of `layers`."""
    if att.flow is None:
        raise GaflowError(
            f"this attribution ({att.method}) holds no flow to check its scores against: use a flow method such as "
            "agf, and ", Argument("keep_flow", True),
        )  # fmt: skip
    if VALUE_AGAINST in att.diagnostics and att.flow_against is None:
        raise GaflowError(f"this attribution ({att.method}) is signed, but holds no flow against; explain it again")
    if layer is None:
        layer = att.layer or 0
    sides = _both_sides(att.flow)
    total = att.flow.value.item()
    scale = total
    if att.flow_against is not None:
        total_against = att.flow_against.value.item()
        sides = sides - _both_sides(att.flow_against)
        scale = total + total_against
        total = total - total_against
    other = sides[1]
    count = len(other) if layer == "all" else 1
    yield _Game(
        scores=att.scores,
        sides=layer_scores(sides, layer),
        total=count * total,
        scale=count * scale,
    )
    claimed = other if att.layers is None else att.layers
    yield from _games_of_layers(claimed, sides, total, scale)


def _both_sides(flow: Flow) -> np.ndarray:
    """Through-flow (2, l+1, t): by the edges between layers, and by the edges on the other side of each node."""
    edges = _as_array(flow.edges[0])
    source = _as_array(flow.source[0])
    target = _as_array(flow.target[0])
    entering = edges.sum(-2)
    leaving = edges.sum(-1)
    between = np.vstack([entering[:1], leaving])
    other_side = np.vstack([target, entering[1:], source])
    return np.stack([between, other_side])


def _as_array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().double().numpy()


def _check(game: _Game, tolerance: float) -> tuple[list[float], list[int]]:
    """How far one game is from each axiom, and how many pairs of equal nodes and how many null nodes it has."""
    largest = np.abs([game.scores, *game.sides]).max()  # the unit of scores that are claimed where nothing flows
    scale = abs(game.scale) or largest or 1.0
    scores = game.scores / scale
    sides = game.sides / scale
    adds = sides[0]
    difference = np.abs(adds[:, None] - adds)
    score_difference = np.abs(scores[:, None] - scores)
    null = np.abs(adds) <= tolerance
    both_null = null[:, None] & null  # a matter of nullity, not of symmetry
    equal = np.triu(difference <= tolerance, 1) & ~both_null
    sums = np.array([game.total / scale, adds.sum()])
    efficiency = np.abs(scores.sum() - sums).max()
    symmetry = (score_difference - difference).max(where=equal, initial=0.0)
    nullity = (np.abs(scores) - np.abs(adds)).max(where=null, initial=0.0)
    linearity = np.abs(scores - sides).max()
    return [efficiency, symmetry, nullity, linearity], [equal.sum(), null.sum()]
