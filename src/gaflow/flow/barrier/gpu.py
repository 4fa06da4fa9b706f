"""GPU kernels: the passes of a Newton step over the edges, two kernels each; inverses; all steps of a short text.

`State.linearize` and `State.step` read and write every edge some thirty times, one torch operation after the other. On
a GPU that costs more than the factorisations; here every number is read once and written once. The mathematics is
that of `edges.py`, which is what runs wherever Triton is not (it comes with torch's CUDA builds).
A program works on `ROWS` tails of one layer; sums over heads are finished by it, sums over tails by adding up the
programs' in a fixed order, so that the same input gives the same bits. Then one program for each item works on its
outer edges and draws up the sums at its nodes: small texts cost as much as there are kernels to start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gaflow.flow.barrier.edges import MAX_WEIGHT_GROWTH, MIN_SHARE_LEFT, Balance, Edges

if TYPE_CHECKING:
    from gaflow.flow.barrier.linear.system import System

# Of the shapes tried, the fastest at 64 x 128 and 16 x 512 tokens on an H200.
TILE: dict[str, Any] = {"ROWS": 8, "COLUMNS": 64, "num_warps": 4}
OUTER: dict[str, Any] = {"BLOCK": 256, "num_warps": 4}  # outer edges at a time

SETTLE: dict[str, Any] = {"BLOCK": 512, "num_warps": 4}

# By tile: the rows and columns of what one program holds.
# A loop over pivots that is not unrolled looks for each of them in every row, but compiles in 4 seconds instead of 9 to
# 20. No loop may be pipelined (`num_stages`): they read what they have written.
INVERT: dict[int, dict[str, Any]] = {
    16: {"UNROLL": True, "num_warps": 1, "num_stages": 1},
    32: {"UNROLL": True, "num_warps": 4, "num_stages": 1},
    64: {"UNROLL": True, "num_warps": 8, "num_stages": 1},
}
NODES: dict[str, Any] = {"ROWS": 128, "num_warps": 4}
LINKS: dict[str, Any] = {"ROWS": 16, "COLUMNS": 64, "num_warps": 4}
PRODUCTS: dict[str, Any] = {"ROWS": 8, "COLUMNS": 128, "num_warps": 4}
SHORT: dict[int, dict[str, Any]] = {
    16: {"UNROLL": False, "num_warps": 4, "num_stages": 1},
    32: {"UNROLL": False, "num_warps": 4, "num_stages": 1},
}


def available(variables: Tensor) -> bool:
    """Whether these kernels can work on the variables of edges: on a GPU, where there is Triton."""
    return variables.is_contiguous() and has_kernels(variables)


def has_kernels(numbers: Tensor) -> bool:
    """Whether there are kernels for numbers on this device."""
    return numbers.is_cuda and _has_triton()


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def _kernels() -> Any:
    """The module of kernels, which can be imported only where there is Triton."""
    from gaflow.flow.barrier import triton_kernels

    return triton_kernels


def _solving_kernels() -> Any:
    from gaflow.flow.barrier import triton_solve

    return triton_solve


def _block_kernels() -> Any:
    from gaflow.flow.barrier import triton_blocks

    return triton_blocks


def _blocks(tokens: int) -> int:
    """Blocks of tails in a layer."""
    return -(-tokens // TILE["ROWS"])


def linearize(
    edges: Edges, node: Tensor, shape: tuple[int, int], before: Tensor, level: Tensor, taken: Tensor
) -> Balance:
    """Set weight and residual of all edges, and sum them up at the nodes; `taken` (b,) are the steps so far."""
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
    sizes = (taken, items, m, layers, t, n)
    constants = {"floats": len(node), "weighted": weighted, "GROWTH": MAX_WEIGHT_GROWTH}
    kernels.linearize[(programs,)](*inputs, rows, columns, residuals, *sizes, **constants, **TILE)
    layer_residual = residuals.view(items, -1).amax(-1)
    sums = (rows, columns.sum(-2), layer_residual)
    right, up, down = new(3, items, n)
    max_residual, max_imbalance = new(2, items)
    outputs = (right, up, down, max_residual, max_imbalance)
    kernels.gather[(items,)](*inputs, *sums, *outputs, *sizes, **constants, **OUTER)
    return Balance(right=right, up=up, down=down, max_residual=max_residual, max_imbalance=max_imbalance)


def step(edges: Edges, shape: tuple[int, int], change: Tensor, frozen: Tensor | None = None) -> Tensor:
    """Let all edges follow the `change` (b, n) of the potentials; how many were cut short, (b,).

    Those of `frozen` items (b,) stay where they are.
    """
    kernels = _kernels()
    layers, t = shape
    _, items, m = edges.variables.shape
    programs = items * layers * _blocks(t)
    change = change.contiguous()
    inner_short = change.new_empty(programs)
    cut_short = change.new_empty(items)
    sizes = (items, m, layers, t, change.shape[-1])
    constants = {"LEFT": MIN_SHARE_LEFT, "freezes": frozen is not None}
    inputs = (edges.variables, change, change if frozen is None else frozen)
    kernels.step[(programs,)](*inputs, inner_short, *sizes, **constants, **TILE)
    totals = inner_short.view(items, -1).sum(-1)
    kernels.step_outer[(items,)](*inputs, totals, cut_short, *sizes, **constants, **OUTER)
    return cut_short


def judge(edges: Edges, balance: Balance, level: Tensor, floor: Tensor, frozen: Tensor, tolerance: float) -> None:
    """Set `frozen` (b,) to 1 where an item has converged or is beyond hope."""
    _, items, m = edges.variables.shape
    _kernels().judge[(items,)](
        edges.variables,
        balance.max_residual,
        balance.max_imbalance,
        level,
        floor,
        frozen,
        items,
        m,
        TOLERANCE=tolerance,
        num_warps=1,
    )


def settle(
    node: Tensor,
    change: Tensor,
    level: Tensor,
    before: Tensor,
    floor: Tensor,
    mean: Tensor,
    count: Tensor,
    cut_short: Tensor,
    taken: Tensor,
    frozen: Tensor,
    constants: dict[str, float],
) -> None:
    """Add the change (b, n) to the potentials, and lower the level for the next step, but for `frozen` items."""
    floats, items, n = node.shape
    blocks = -(-n // SETTLE["BLOCK"])
    _kernels().settle[(items * blocks,)](
        node,
        change.contiguous(),
        level,
        before,
        floor,
        mean,
        count,
        cut_short,
        taken,
        frozen,
        items,
        n,
        floats=floats,
        LEFT=MIN_SHARE_LEFT,
        **constants,
        **SETTLE,
    )


def invert(matrix: Tensor, inverse: Tensor) -> None:
    """The inverses of symmetric matrices (b, t, t) of at most 64 rows, into `inverse`; NaN where there is none."""
    b, size, _ = matrix.shape
    tile = _tile(size, INVERT)
    strides = (matrix.stride(0), matrix.stride(1), inverse.stride(0), inverse.stride(1))
    _solving_kernels().invert[(b,)](matrix, inverse, size, *strides, TILE=tile, **INVERT[tile])


def _tile(tokens: int, tiles: Iterable[int]) -> int:
    """The smallest tile that holds so many tails and heads."""
    for tile in tiles:
        if tokens <= tile:
            return tile
    raise ValueError(f"no tile holds {tokens} tokens")


def solve_short(
    edges: Edges,
    node: Tensor,
    shape: tuple[int, int],
    level: Tensor,
    before: Tensor,
    floor: Tensor,
    mean: Tensor,
    count: Tensor,
    steps: int,
    constants: dict[str, float],
) -> Tensor:
    """Newton steps in place until each item seems to have converged, at most `steps`; how many it took, (b,).

    Items have the levels of the last step in `before`, and those of the next one in `level`, (b,) each. `node` has to
    be contiguous; see `newton.py` for the rest.
    """
    layers, t = shape
    floats, items, n = node.shape
    _, _, m = edges.variables.shape
    tile = _tile(t, SHORT)
    evens = (layers + 1) // 2 + 1
    new = node.new_empty
    right, share, change = new(3, items, n)
    half = new(items, evens, tile, tile)
    side = new(items, evens, tile)
    taken = torch.zeros(items, dtype=torch.int64, device=node.device)
    _solving_kernels().solve_short[(items,)](
        edges.variables,
        node,
        edges.capacity,
        edges.target_mu,
        level,
        before,
        floor,
        mean,
        count,
        taken,
        right,
        share,
        change,
        half,
        side,
        items,
        m,
        layers,
        t,
        n,
        steps,
        floats=floats,
        weighted=edges.target_mu.shape[1] > 1,
        GROWTH=MAX_WEIGHT_GROWTH,
        LEFT=MIN_SHARE_LEFT,
        TILE=tile,
        **constants,
        **SHORT[tile],
    )
    return taken


def scale_odd_layers(system: System) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """What `odd_even_blocks.py` starts with: roots, dead, sides, links to below and to above, the layer first."""
    kernels = _block_kernels()
    b, layers, t = system.shape
    new = system.right.new_empty
    root, dead = new(2, layers + 2, b, t)
    side = new(layers + 2, b, t, 2)
    below = new(layers // 2 + 1, b, t, t)
    above = new((layers + 1) // 2, b, t, t)
    weight = system.weight
    if weight.stride()[1:] != (t * t, t, 1):
        weight = weight.contiguous()
    target = system.target
    source = system.source
    returning = system.returning
    right, up, down = (numbers.contiguous() for numbers in (system.right, system.up, system.down))
    blocks = -(-t // NODES["ROWS"])
    kernels.scale_nodes[((layers + 2) * b * blocks,)](
        up,
        down,
        right,
        target,
        target.stride(0),
        returning,
        returning.stride(0),
        root,
        dead,
        side,
        b,
        layers,
        t,
        right.shape[1],
        **NODES,
    )
    blocks = -(-t // LINKS["ROWS"])
    kernels.scale_links[((layers + 1) * b * blocks,)](
        weight, weight.stride(0), source, source.stride(0), root, below, above, b, layers, t, **LINKS
    )
    return root, dead, side, below, above


def fill_ends(
    inner: Tensor,
    links: Tensor,
    side: Tensor,
    dead: Tensor,
    ends: Sequence[int],
    carried: Sequence[Tensor],
    *,
    linked: bool,
) -> tuple[Tensor, Tensor]:
    """Laplacians (.., t, t) of the layers at one or two `ends`, and their links and sides as columns (.., t, t + 2).

    Without links an end is the last of all layers. `carried` (.., t, t + 2), up to two, is what was left on the ends.
    """
    _, b, t, _ = inner.shape
    matrix = inner.new_empty(len(ends) * b, t, t)
    columns = inner.new_empty(len(ends) * b, t, t + 2)
    nothing = matrix  # not read
    first, second, *_ = (*carried, nothing, nothing)
    blocks = -(-t // LINKS["ROWS"])
    _block_kernels().fill_ends[(len(matrix) * blocks,)](
        inner,
        links,
        side,
        dead,
        first,
        second,
        matrix,
        columns,
        b,
        t,
        ends[0],
        ends[-1],
        linked=linked,
        carried=len(carried),
        **LINKS,
    )
    return matrix, columns


def even_potentials(half: Tensor, potentials: Tensor, layers: int, ends: Sequence[int], *, linked: bool) -> None:
    """Set potentials (b, n) of the even layers at the `ends` from those next to them and `half` (.., t, t + 2)."""
    b, nodes = potentials.shape
    t = half.shape[1]
    blocks = -(-t // PRODUCTS["ROWS"])
    _block_kernels().even_potentials[(len(half) * blocks,)](
        half, potentials, b, layers, t, nodes, ends[0], ends[-1], linked=linked, **PRODUCTS
    )


def odd_potentials(below: Tensor, above: Tensor, root: Tensor, side: Tensor, potentials: Tensor, layers: int) -> None:
    """Set potentials (b, n) of the odd layers from those of the even ones."""
    odd, b, t, _ = below.shape
    blocks = -(-t // PRODUCTS["ROWS"])
    _block_kernels().odd_potentials[(odd * b * blocks,)](
        below, above, root, side, potentials, b, layers, t, potentials.shape[1], len(above), **PRODUCTS
    )
