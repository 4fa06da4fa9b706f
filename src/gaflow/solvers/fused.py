"""The passes of a Newton step over the edges of the layers, each as one GPU kernel.

`State.linearize` and `State.step` read and write every edge some thirty times, one torch operation after the other. On
a GPU that costs more than the factorisations; here every number is read once and written once. The arithmetic and
its order are those of `edges.py`, which is what runs wherever Triton is not (it comes with torch's CUDA builds).
A program works on `ROWS` tails of one layer; sums over heads are finished by it, sums over tails by adding up the
programs' in a fixed order, so that the same input gives the same bits.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from gaflow.solvers.edges import State

__all__ = ["available", "linearize", "step"]

ROWS, COLUMNS, WARPS = 8, 64, 4  # of the shapes tried, the fastest at 64 x 128 and 16 x 512 tokens on an H200


def available(book: Tensor) -> bool:
    """Whether these kernels can work on `book`: on a GPU, where there is Triton."""
    return book.is_cuda and book.is_contiguous() and _triton()


@cache
def _triton() -> bool:
    return find_spec("triton") is not None


def _kernels() -> Any:
    from gaflow.solvers import kernels

    return kernels


def _grid(state: State) -> tuple[int, int, int, int, int]:
    """Items, layers, tokens, blocks of tails in a layer, programs."""
    layers, t = state.shape
    items, blocks = len(state.level), -(-t // ROWS)
    return items, layers, t, blocks, items * layers * blocks


def linearize(state: State) -> tuple[Tensor, Tensor, Tensor]:
    """Set weight and residual of the edges of all layers.

    Sums of flows, residuals and weights over the heads of each tail and over the tails of each head, (3, b, l t) both,
    and the largest residual (b,).
    """
    items, layers, t, blocks, programs = _grid(state)
    edges = state.edges
    rows = edges.book.new_empty(3, items, layers * t)
    columns = edges.book.new_empty(3, items, layers, blocks, t)
    off = edges.book.new_empty(programs)
    _kernels().linearize[(programs,)](
        edges.book, state.node.contiguous(), edges.capacity, edges.goal, state.level, rows, columns, off,
        items, edges.book.shape[-1], layers, t, state.node.shape[-1],
        parts=len(state.node), weighted=edges.goal.shape[1] > 1, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS,
    )  # fmt: skip
    return rows, columns.sum(-2).flatten(-2), off.view(items, -1).amax(-1)


def step(state: State, change: Tensor, keep: float) -> Tensor:
    """Let the edges of all layers follow the `change` (b, n) of the potentials; what `Edges.step` sums up, (b,)."""
    items, layers, t, _, programs = _grid(state)
    edges = state.edges
    spread = edges.book.new_empty(programs)
    _kernels().step[(programs,)](
        edges.book, change.contiguous(), edges.capacity, edges.goal, state.level, spread,
        items, edges.book.shape[-1], layers, t, change.shape[-1],
        weighted=edges.goal.shape[1] > 1, KEEP=keep, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS,
    )  # fmt: skip
    return spread.view(items, -1).sum(-1)
