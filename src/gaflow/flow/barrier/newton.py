"""One Newton step of all items: the level that it aims at, and the linear system that it solves."""

from __future__ import annotations

import torch
from torch import Tensor

from gaflow.flow.barrier.edges import MIN_SHARE_LEFT, Balance
from gaflow.flow.barrier.linear.dispatch import Way, solve_laplacian
from gaflow.flow.barrier.linear.subtraction_free import solve_subtraction_free
from gaflow.flow.barrier.linear.system import System
from gaflow.flow.barrier.state import State

SHRINK = 0.1  # the next level, relative to this one where all edges can follow
SHRINK_PER_CUT_SHORT = 5  # added to it, times the share of the edges that were cut short in the last step
MAX_SHRINK = 0.5
TOLERANCE = 1e-10  # largest node imbalance and largest edge residual, relative to the flow value


def lower_level(state: State) -> None:
    """Lower the level as far as the edges that lag behind allow."""
    # below the mean only edges that hardly matter are left behind, and slacks can follow no faster than MIN_SHARE_LEFT
    fastest = torch.where(state.level > state.mean, SHRINK, MIN_SHARE_LEFT)
    factor = fastest + SHRINK_PER_CUT_SHORT * state.cut_short
    next_level = state.level * factor.clamp_max(MAX_SHRINK)
    state.level = torch.maximum(state.floor, next_level)


def change_of_potentials(state: State, balance: Balance, way: Way | None) -> Tensor:
    """The change of every potential, (floats, b, n)."""
    t = state.shape[1]
    source, target, returning = state.outer()[3].split([t, t, 1], 1)
    system = System(
        weight=state.inner(3),
        source=source,
        target=target,
        returning=returning[:, 0],
        right=balance.right,
        up=balance.up,
        down=balance.down,
        top=state.top,
    )
    if state.subtraction_free:
        return solve_subtraction_free(system, len(state.node))
    return solve_laplacian(system, way).unsqueeze(0)
