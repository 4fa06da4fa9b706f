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
from typing import Any

from torch import Tensor

from gaflow.flow.barrier.edges import MAX_WEIGHT_GROWTH, MIN_SHARE_LEFT, Balance, Edges

# Of the shapes tried, the fastest at 64 x 128 and 16 x 512 tokens on an H200.
TILE: dict[str, Any] = {"ROWS": 8, "COLUMNS": 64, "num_warps": 4}
OUTER: dict[str, Any] = {"BLOCK": 256, "num_warps": 4}  # outer edges at a time


def available(variables: Tensor) -> bool:
    """Whether these kernels can work on the variables of edges: on a GPU, where there is Triton."""
    return variables.is_cuda and variables.is_contiguous() and _has_triton()


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def _kernels() -> Any:
    """The module of kernels, which can be imported only where there is Triton."""
    from gaflow.flow.barrier import triton_kernels

    return triton_kernels


def _blocks(tokens: int) -> int:
    """Blocks of tails in a layer."""
    return -(-tokens // TILE["ROWS"])


def linearize(
    edges: Edges, node: Tensor, shape: tuple[int, int], before: Tensor, level: Tensor, *, first: bool
) -> Balance:
    """Set weight and residual of all edges, and sum them up at the nodes."""
    kernels = _kernels()
    layers, t = shape
    _, items, m = edges.variables.shape
    programs = items * layers * _blocks(t)
    node = node.contiguous()
    n = node.shape[-1]
    weighted = edges.target_mu.shape[1] > 1
    new = edges.variables.new_empty
    rows = new(3, items, layers * t)
    columns = new(3, items, layers, _blocks(t), t)
    residuals = new(programs)
    inputs = (edges.variables, node, edges.capacity, edges.target_mu, before, level)
    sizes = (items, m, layers, t, n, first)
    constants = {"floats": len(node), "weighted": weighted, "GROWTH": MAX_WEIGHT_GROWTH}
    kernels.linearize[(programs,)](*inputs, rows, columns, residuals, *sizes, **constants, **TILE)
    layer_residual = residuals.view(items, -1).amax(-1)
    sums = (rows, columns.sum(-2), layer_residual)
    right, up, down = new(3, items, n)
    max_residual, max_imbalance = new(2, items)
    outputs = (right, up, down, max_residual, max_imbalance)
    kernels.gather[(items,)](*inputs, *sums, *outputs, *sizes, **constants, **OUTER)
    return Balance(right=right, up=up, down=down, max_residual=max_residual, max_imbalance=max_imbalance)


def step(edges: Edges, shape: tuple[int, int], change: Tensor) -> Tensor:
    """Let all edges follow the `change` (b, n) of the potentials; how many were cut short, (b,)."""
    kernels = _kernels()
    layers, t = shape
    _, items, m = edges.variables.shape
    programs = items * layers * _blocks(t)
    change = change.contiguous()
    inner_short = change.new_empty(programs)
    cut_short = change.new_empty(items)
    sizes = (items, m, layers, t, change.shape[-1])
    kernels.step[(programs,)](edges.variables, change, inner_short, *sizes, LEFT=MIN_SHARE_LEFT, **TILE)
    totals = inner_short.view(items, -1).sum(-1)
    kernels.step_outer[(items,)](edges.variables, change, totals, cut_short, *sizes, LEFT=MIN_SHARE_LEFT, **OUTER)
    return cut_short
