"""The passes of a Newton step over the edges, each as two GPU kernels.

`State.linearize` and `State.step` read and write every edge some thirty times, one torch operation after the other. On
a GPU that costs more than the factorisations; here every number is read once and written once. The mathematics is
that of `edges.py`, which is what runs wherever Triton is not (it comes with torch's CUDA builds).
A program works on `ROWS` tails of one layer; sums over heads are finished by it, sums over tails by adding up the
programs' in a fixed order, so that the same input gives the same bits. Then one program for each item works on its
outer edges and draws up the sums at its nodes: small texts cost as much as there are kernels to start.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from gaflow.flow.barrier.state import State

__all__ = ["available", "linearize", "step"]

ROWS, COLUMNS, WARPS = 8, 64, 4  # of the shapes tried, the fastest at 64 x 128 and 16 x 512 tokens on an H200
BLOCK = 256  # outer edges at a time


def available(book: Tensor) -> bool:
    """Whether these kernels can work on `book`: on a GPU, where there is Triton."""
    return book.is_cuda and book.is_contiguous() and _triton()


@cache
def _triton() -> bool:
    return find_spec("triton") is not None


def _kernels() -> Any:
    from gaflow.flow.barrier import triton_kernels as kernels

    return kernels


def _grid(state: State) -> tuple[int, int, int, int, int]:
    """Items, layers, tokens, blocks of tails in a layer, programs."""
    layers, t = state.shape
    items, blocks = len(state.level), -(-t // ROWS)
    return items, layers, t, blocks, items * layers * blocks


def linearize(state: State, grow: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Set weight and residual of all edges; the fields of a `Balance`."""
    items, layers, t, blocks, programs = _grid(state)
    edges, node = state.edges, state.node.contiguous()
    rows = edges.book.new_empty(3, items, layers * t)
    columns = edges.book.new_empty(3, items, layers, blocks, t)
    off = edges.book.new_empty(programs)
    kinds = {"parts": len(node), "weighted": edges.goal.shape[1] > 1, "GROW": grow, "num_warps": WARPS}
    sizes = (items, edges.book.shape[-1], layers, t, node.shape[-1], state.first)
    _kernels().linearize[(programs,)](
        edges.book, node, edges.capacity, edges.goal, state.before, state.level, rows, columns, off,
        *sizes, ROWS=ROWS, COLUMNS=COLUMNS, **kinds,
    )  # fmt: skip
    right, up, down = edges.book.new_empty(3, items, node.shape[-1])
    worst, lost = edges.book.new_empty(2, items)
    _kernels().gather[(items,)](
        edges.book, node, edges.capacity, edges.goal, state.before, state.level, rows, columns.sum(-2),
        off.view(items, -1).amax(-1), right, up, down, worst, lost,
        *sizes, BLOCK=BLOCK, **kinds,
    )  # fmt: skip
    return right, up, down, worst, lost


def step(state: State, change: Tensor, keep: float) -> Tensor:
    """Let all edges follow the `change` (b, n) of the potentials; how many were cut short, (b,)."""
    items, layers, t, _, programs = _grid(state)
    book, change = state.edges.book, change.contiguous()
    found, short = book.new_empty(programs), torch.empty_like(state.level)
    sizes = (items, book.shape[-1], layers, t, change.shape[-1])
    _kernels().step[(programs,)](
        book, change, found, *sizes, KEEP=keep, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS
    )  # fmt: skip
    _kernels().step_outer[(items,)](
        book, change, found.view(items, -1).sum(-1), short, *sizes, KEEP=keep, BLOCK=BLOCK, num_warps=WARPS
    )  # fmt: skip
    return short
