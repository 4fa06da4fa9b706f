"""Triton kernels that solve: inverses of small matrices, and all Newton steps of a short text in one launch.

A program of `solve_short` has an item to itself, so nothing but the program waits. What its threads tell one another
goes through memory, with a barrier between. The mathematics is that of `edges.py`, of `linear/odd_even_blocks.py` from
one end only, and of `linear/inverse.py`. A layer is a tile of `TILE` tails and as many heads. The source edges are the
layer above the others: they follow the other edges in memory as if the super-source was its first tail.
"""

# pyright: reportMissingImports=false

import triton
import triton.language as tl

from gaflow.flow.barrier.triton_kernels import (
    accumulate,
    differences,
    follow,
    magnitude,
    next_level,
    tails_less_heads,
    weigh,
)


@triton.jit
def either(a, b):
    """Bits of either number, to pick the only one that is not 0."""
    return a | b


@triton.jit
def sweep(tile, k, i, j, lane):
    """The Gauss-Jordan step of a pivot at most 1.

    Only the row is looked up: up to the sign of what was swept before, the column is the same. Row and column of the
    pivot are what they should be because of 1 less and 1 more in place of one more case.
    """
    bits = tile.to(tl.int64, bitcast=True)
    row_bits = tl.reduce(tl.where(i == k, bits, 0), 0, either)
    pivot_bits = tl.reduce(tl.where(lane == k, row_bits, 0), 0, either)
    row = row_bits.to(tl.float64, bitcast=True)
    pivot = pivot_bits.to(tl.float64, bitcast=True)
    inverse = tl.where(pivot > 0, 1.0 / pivot, float("nan"))
    scaled = tl.where(lane == k, inverse + 1.0, row * inverse)
    column = tl.where(lane < k, -row, row)
    column = tl.where(lane == k, row - 1.0, column)
    return tile - column[:, None] * scaled[None, :]


@triton.jit
def inverse_of(tile, size, TILE: tl.constexpr, UNROLL: tl.constexpr):
    """The inverse of a symmetric matrix, whose rows from `size` on are those of the identity; NaN if there is none."""
    lane = tl.arange(0, TILE)
    i = lane[:, None]
    j = lane[None, :]
    diagonal = tl.sum(tl.where(i == j, tile, 0.0), 0)
    root = tl.where(diagonal > 0, 1.0 / tl.sqrt(diagonal), float("nan"))
    tile = tile * root[:, None] * root[None, :]
    if UNROLL:
        for k in tl.static_range(TILE):
            tile = sweep(tile, k, i, j, lane)
    else:
        for k in range(size):
            tile = sweep(tile, k, i, j, lane)
    return tile * root[:, None] * root[None, :]


@triton.jit(do_not_specialize=["size", "matrix_stride", "matrix_row", "inverse_stride", "inverse_row"])
def invert(
    matrix, inverse, size, matrix_stride, matrix_row, inverse_stride, inverse_row,
    TILE: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """The inverse of a matrix of the batch."""
    item = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, TILE)
    i = lane[:, None]
    j = lane[None, :]
    inside = (i < size) & (j < size)
    identity = tl.where(i == j, 1.0, 0.0).to(tl.float64)
    tile = tl.load(matrix + item * matrix_stride + i * matrix_row + j, inside, 0.0)
    tile = inverse_of(tl.where(inside, tile, identity), size, TILE, UNROLL)
    tl.store(inverse + item * inverse_stride + i * inverse_row + j, tile, inside)


@triton.jit
def link_of(weight, layer, layers, t, i, j):
    """Weights from the tails `i` to the heads `j` of a layer; 0 where there is no such layer."""
    tails = tl.where(layer < layers, t, 1)
    valid = (layer >= 0) & (layer <= layers) & (i < tails) & (j < t)
    return tl.load(weight + (layer * t + i) * t + j, valid, 0.0)


@triton.jit
def numbers_of(numbers, layer, layers, t, lane):
    """Numbers at the nodes of a layer; 0 where there is no such node."""
    count = tl.where(layer <= layers, t, 1)
    valid = (layer >= 0) & (layer <= layers + 1) & (lane < count)
    return tl.load(numbers + layer * t + lane, valid, 0.0)


@triton.jit
def store_numbers(numbers, layer, layers, t, lane, values):
    """Set numbers at the nodes of a layer, which exists."""
    count = tl.where(layer <= layers, t, 1)
    tl.store(numbers + layer * t + lane, values, lane < count)


@triton.jit
def product(a, b):
    """A matrix product in float64."""
    return tl.dot(a, b, out_dtype=tl.float64)


@triton.jit
def change_of_potentials(
    weight, returning, right, share, change, half, side, layers, t, TILE: tl.constexpr, UNROLL: tl.constexpr
):
    """Solve an item's linear system: `change` from `right` and `share`, which is one over the degrees, or 0.

    Odd layers are eliminated as they are needed, even ones from the target up.
    """
    lane = tl.arange(0, TILE)
    i = lane[:, None]
    j = lane[None, :]
    evens = (layers + 1) // 2 + 1
    source = layers + 1  # the layer of the super-source
    inner = tl.zeros((TILE, TILE), tl.float64)  # left by the layers below
    ground = tl.load(weight + layers * t * t + t + lane, lane < t, 0.0)  # of the target edges
    carried = tl.zeros((TILE,), tl.float64)
    for k in range(evens):
        layer = 2 * k
        odd = layer + 1
        to_source = (lane == 0) & (layer == source)
        ground += tl.where(to_source, returning, 0.0)
        carried += numbers_of(right, layer, layers, t, lane)
        # the odd layer above
        above = link_of(weight, layer, layers, t, i, j)
        scaled = above * numbers_of(share, odd, layers, t, lane)[:, None]
        inner += product(tl.trans(above), scaled)
        odd_ground = tl.where((lane == 0) & (odd == source), returning, 0.0)
        odd_right = numbers_of(right, odd, layers, t, lane)
        ground += tl.sum(scaled * odd_ground[:, None], 0)
        carried += tl.sum(scaled * odd_right[:, None], 0)
        next_link = link_of(weight, odd, layers, t, i, j)
        link = product(tl.trans(scaled), tl.trans(next_link))
        # the odd layer below
        below = link_of(weight, layer - 1, layers, t, i, j)
        scaled = below * numbers_of(share, layer - 1, layers, t, lane)[None, :]
        inner += product(scaled, tl.trans(below))
        odd_right = numbers_of(right, layer - 1, layers, t, lane)
        carried += tl.sum(scaled * odd_right[None, :], 1)

        inner = tl.where(i == j, 0.0, inner)
        dead = tl.where(numbers_of(share, layer, layers, t, lane) > 0, 0.0, 1.0)
        degree = tl.sum(inner, 1) + tl.sum(link, 1) + ground + dead
        # through memory, which gives threads whole rows: as products leave it, pivots are looked up in half the speed
        matrix_at = half + (k * TILE + i) * TILE + j
        tl.store(matrix_at, tl.where(i == j, degree[:, None], -inner))
        tl.debug_barrier()
        inverse = inverse_of(tl.load(matrix_at), t, TILE, UNROLL)
        tl.debug_barrier()
        onwards = product(inverse, link)
        solved = tl.sum(inverse * carried[None, :], 1)
        solved_ground = tl.sum(inverse * ground[None, :], 1)
        tl.store(matrix_at, onwards)
        tl.store(side + k * TILE + lane, solved)
        inner = product(tl.trans(link), onwards)
        ground = tl.sum(link * solved_ground[:, None], 0)
        carried = tl.sum(link * solved[:, None], 0)
    tl.debug_barrier()
    potential = tl.zeros((TILE,), tl.float64)
    for below_top in range(evens):
        k = evens - 1 - below_top
        onwards = tl.load(half + (k * TILE + i) * TILE + j)
        solved = tl.load(side + k * TILE + lane)
        potential = solved + tl.sum(onwards * potential[None, :], 1)
        store_numbers(change, 2 * k, layers, t, lane, potential)
    tl.debug_barrier()
    for k in range(layers // 2 + 1):
        odd = 2 * k + 1
        lower = numbers_of(change, odd - 1, layers, t, lane)
        upper = numbers_of(change, odd + 1, layers, t, lane)
        below = link_of(weight, odd - 1, layers, t, i, j)
        above = link_of(weight, odd, layers, t, i, j)
        total = numbers_of(right, odd, layers, t, lane)
        total += tl.sum(below * lower[None, :], 1)
        total += tl.sum(above * upper[:, None], 0)
        store_numbers(change, odd, layers, t, lane, total * numbers_of(share, odd, layers, t, lane))


@triton.jit(do_not_specialize=["items", "row", "layers", "t", "nodes", "steps"])
def solve_short(
    variables, node, capacity, target_mu, level, before, floor, mean, count, taken,
    right, share, change, half, side,
    items, row, layers, t, nodes, steps,
    floats: tl.constexpr, weighted: tl.constexpr, GROWTH: tl.constexpr, LEFT: tl.constexpr,
    SHRINK: tl.constexpr, SHRINK_PER_CUT_SHORT: tl.constexpr, MAX_SHRINK: tl.constexpr, TOLERANCE: tl.constexpr,
    TILE: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Newton steps of an item until it has converged, is beyond hope, or has `taken` as many as it may.

    Sets level, before, taken, and all of the state that a step changes, as it is before the next step's level.
    """
    item = tl.program_id(0).to(tl.int64)
    item_count = item - item + items  # int64, as in the other kernels
    stride = item_count * row
    float_stride = item_count * nodes
    lane = tl.arange(0, TILE)
    i = lane[:, None]
    j = lane[None, :]
    one_lane = lane < 1
    nowhere = lane < 0
    base = node + item * nodes
    right += item * nodes
    share += item * nodes
    change += item * nodes
    evens = (layers + 1) // 2 + 1
    half += item * evens * TILE * TILE
    side += item * evens * TILE
    weight = variables + 3 * stride + item * row
    outer = item * row + row - 2 * t - 1
    item_floor = tl.load(floor + item)
    item_mean = tl.load(mean + item)
    item_count_of_edges = tl.load(count + item)
    cut_short = tl.zeros((TILE,), tl.float64)
    step = 0
    running = 1
    while running == 1:
        item_level = tl.load(level + item)
        share_cut_short = tl.sum(cut_short, 0) / item_count_of_edges
        item_level = next_level(
            item_level, item_floor, item_mean, share_cut_short, LEFT, SHRINK, SHRINK_PER_CUT_SHORT, MAX_SHRINK
        )
        tl.debug_barrier()
        tl.store(level + item, item_level)
        tl.debug_barrier()

        # weights and residuals, and their sums at the nodes, from the target edges up
        first_step = step == 0
        high, low = differences(base, float_stride, lane, lane, lane < t, nowhere, floats)
        leaving, leaving_residual, leaving_weight = weigh(
            variables, stride, capacity, target_mu, item, before, level, first_step,
            outer + t + lane, lane < t, high + low, weighted, GROWTH,
        )  # fmt: skip
        max_residual = tl.max(magnitude(leaving_residual), 0)
        max_imbalance = max_residual * 0.0
        for layer in range(layers + 1):
            tails = tl.where(layer < layers, t, 1)
            valid = (i < tails) & (j < t)
            edge = item * row + (layer * t + i) * t + j
            tile_high, tile_low = differences(
                base, float_stride, (layer + 1) * t + i, layer * t + j, i < tails, j < t, floats
            )
            tile_flow, tile_residual, tile_weight = weigh(
                variables, stride, capacity, target_mu, item, before, level, first_step,
                edge, valid, tile_high + tile_low, weighted, GROWTH,
            )  # fmt: skip
            imbalance = leaving - tl.sum(tile_flow, 0)
            residual_excess = leaving_residual - tl.sum(tile_residual, 0)
            degree = leaving_weight + tl.sum(tile_weight, 0)
            store_numbers(right, layer, layers, t, lane, imbalance + residual_excess)
            store_numbers(share, layer, layers, t, lane, tl.where(degree > 0, 1.0 / degree, 0.0))
            max_imbalance = tl.maximum(max_imbalance, tl.max(magnitude(imbalance), 0))
            max_residual = tl.maximum(max_residual, tl.max(tl.max(magnitude(tile_residual), 1), 0))
            leaving = tl.sum(tile_flow, 1)
            leaving_residual = tl.sum(tile_residual, 1)
            leaving_weight = tl.sum(tile_weight, 1)
        last = lane * 0 + nodes - 1
        high, low = differences(base, float_stride, last, last, nowhere, one_lane, floats)
        flow, residual, edge_weight = weigh(
            variables, stride, capacity, target_mu, item, before, level, first_step,
            outer + 2 * t + lane, one_lane, (high - 1) + low, weighted, GROWTH,
        )  # fmt: skip
        value = tl.sum(tl.where(one_lane, flow, 0.0), 0)
        returning = tl.sum(edge_weight, 0)
        imbalance = leaving - flow
        degree = leaving_weight + edge_weight
        store_numbers(right, layers + 1, layers, t, lane, imbalance + (leaving_residual - residual))
        store_numbers(share, layers + 1, layers, t, lane, tl.where(degree > 0, 1.0 / degree, 0.0))
        max_imbalance = tl.maximum(max_imbalance, tl.max(tl.where(one_lane, magnitude(imbalance), 0.0), 0))
        max_residual = tl.maximum(max_residual, tl.max(magnitude(residual), 0))
        error = tl.maximum(max_residual, max_imbalance)
        done = (item_level <= item_floor) & (error < TOLERANCE * value)
        hopeless = (error < float("inf")) == 0
        running = tl.where(done | hopeless | (step >= steps), 0, 1)
        tl.debug_barrier()

        if running == 1:
            change_of_potentials(
                weight, returning, right, share, change, half, side, layers, t, TILE, UNROLL
            )  # fmt: skip
            tl.debug_barrier()
            bottom = numbers_of(change, 0, layers, t, lane)
            cut_short = tl.zeros((TILE,), tl.float64)
            cut_short += follow(variables, stride, outer + t + lane, lane < t, bottom, LEFT)
            source = tl.load(change + last)
            cut_short += follow(variables, stride, outer + 2 * t + lane, one_lane, -source, LEFT)
            for layer in range(layers + 1):
                tails = tl.where(layer < layers, t, 1)
                edge = item * row + (layer * t + i) * t + j
                difference = tails_less_heads(change, (layer + 1) * t + i, layer * t + j, i < tails, j < t)
                short = follow(variables, stride, edge, (i < tails) & (j < t), difference, LEFT)
                cut_short += tl.sum(short, 1)
            for layer in range(layers + 2):
                valid = (layer * t + lane < nodes) & (lane < t)
                nodes_change = numbers_of(change, layer, layers, t, lane)
                accumulate(base + layer * t + lane, float_stride, nodes_change, valid, floats)
            tl.store(before + item, item_level)
            step += 1
            tl.debug_barrier()
    tl.store(taken + item, step)
