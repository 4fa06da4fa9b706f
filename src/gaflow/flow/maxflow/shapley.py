"""The Shapley value of the flow game, in which a coalition of tokens earns the maximum flow into it.

    v(S) = the maximum flow when only the input tokens of S hang on the super-target

A token's value is its marginal contribution `v(S + i) - v(S)`, averaged over all orders in which tokens can arrive:

    phi_i = (1 / n) sum_S binomial(n - 1, |S|)^-1 (v(S + i) - v(S)),       S without i

(eq. 14 and 19 of the paper lack the factor `1 / n`). Unlike the paper's game, whose players earn the same in every
coalition, this one is not additive. Its marginal vectors are the vertices of the set of score vectors of maximum flows,
so the Shapley value is the score vector of a maximum flow, too: docs/maxflow.md has the proof. No barrier is needed.

The convention this file owns: **marginal contributions are differences of integers**, of the network as fine as 64 bits
allow, so those of one order sum exactly to the maximum flow.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gaflow.arguments import checked, whole_number
from gaflow.flow.arguments import ArrayLike, Mask, Nodes, only_network
from gaflow.flow.maxflow.integer_network import IntegerNetwork, Problem, maximum, new_solver
from gaflow.flow.network import Terminal
from gaflow.flow.result import Flow, capacities_of

MAX_EXACT_TOKENS = 14  # 2^14 maximum flows take about a second
DEFAULT_ORDERS = 128
MAX_ORDERS = 1_000_000  # all marginal contributions are held in memory


class ShapleyEstimate(NamedTuple):
    """Shapley values with their standard errors; unpacks as `values, error`."""

    values: Tensor  # (t,)
    error: Tensor  # (t,) standard error of the mean over drawn orders; 0 where values are exact


def shapley(information: ArrayLike | Flow, orders: int | None = None, **options: Any) -> Tensor:
    """The Shapley value (t,) of every input token of one network (l, t, t), in the game v(S) = maximum flow into S.

    It is exact for up to 14 tokens. For more, or if you pass `orders`, it is the mean over so many drawn orders (128 by
    default). Either way it is the score vector of a maximum flow: it sums to the maximum and lies in `score_ranges`.
    `options` are those of `shapley_estimate`, which gives the standard errors, too.

        values = gaflow.shapley(torch.rand(4, 6, 6))
    """
    return shapley_estimate(information, orders, **options).values


@checked
def shapley_estimate(
    information: ArrayLike | Flow,
    orders: int | None = None,
    *,
    seed: int = 0,
    terminal: Terminal = None,
    mask: Mask = None,
    sources: Nodes = None,
    targets: Nodes = None,
) -> ShapleyEstimate:
    """What `shapley` returns, with standard errors. `seed` draws the orders, and the rest is as in `solve`.

    values, error = gaflow.shapley_estimate(torch.rand(4, 30, 30), orders=500)
    """
    new_solver()  # a missing library is the first thing to report
    problem = Problem.build(capacities_of(information), terminal, mask, sources, targets)
    layers, t, _ = only_network(problem.network.capacity, "shapley").shape
    game = FlowGame(problem.integers(0), first_target=layers * t * t + t)
    whole_number("seed", seed, least=0)
    if orders is None and len(game.tokens) <= MAX_EXACT_TOKENS:
        values = _exact(game)
        error = np.zeros_like(values)
    else:
        count = DEFAULT_ORDERS if orders is None else whole_number("orders", orders, least=2, most=MAX_ORDERS)
        marginals = _sample(game, count, seed)
        values = marginals.mean(0)
        error = marginals.std(0, ddof=1) / math.sqrt(count)
    by_token = np.zeros((2, t))
    by_token[:, game.tokens] = [values, error]
    return ShapleyEstimate(*torch.as_tensor(by_token, device=problem.network.capacity.device))


class FlowGame:
    """The maximum flow into coalitions of tokens: one OR-Tools graph whose terminal edges are opened and closed."""

    def __init__(self, integers: IntegerNetwork, first_target: int):
        arcs = integers.arcs
        self.integers = integers
        self.terminals = np.flatnonzero(arcs.slot >= first_target).astype(np.int32)
        self.tokens = arcs.slot[self.terminals] - first_target  # (n,) the players: input tokens that flow can reach
        self.solver = new_solver()
        self.solver.add_arcs_with_capacity(arcs.tail, arcs.head, integers.capacity)

    def value(self, coalition: np.ndarray) -> int:
        """The maximum flow into the players whose flag (n,) is set, in integers."""
        if not coalition.any():
            return 0
        arcs = self.integers.arcs
        self.solver.set_arcs_capacity(self.terminals, self.integers.capacity[self.terminals] * coalition)
        return maximum(self.solver, arcs.source, arcs.target)


def _exact(game: FlowGame) -> np.ndarray:
    """The Shapley value (n,) by its formula, over all coalitions."""
    n = len(game.tokens)
    coalition = np.arange(1 << n)
    member = (coalition[:, None] >> np.arange(n) & 1).astype(bool)  # (2^n, n)
    earned = np.array([game.value(flags) for flags in member])
    weight = np.array([1 / (n * math.comb(n - 1, size)) for size in range(n)])
    values = np.zeros(n)
    for player in range(n):
        without = coalition[~member[:, player]]
        marginal = game.integers.to_units(earned[without | 1 << player] - earned[without])
        values[player] = weight[member[without].sum(-1)] @ marginal
    return values


def _sample(game: FlowGame, orders: int, seed: int) -> np.ndarray:
    """Marginal contributions (orders, n) in drawn orders; each row is the score vector of a maximum flow."""
    n = len(game.tokens)
    generator = np.random.default_rng(seed)
    marginals = np.zeros((orders, n), dtype=np.int64)
    value_of_all = game.value(np.ones(n, dtype=bool))
    for row in marginals:
        present = np.zeros(n, dtype=bool)
        earned = 0
        for player in generator.permutation(n):
            present[player] = True
            value = game.value(present)
            row[player] = value - earned
            earned = value
            if value == value_of_all:  # whoever comes later adds nothing
                break
    return game.integers.to_units(marginals)
