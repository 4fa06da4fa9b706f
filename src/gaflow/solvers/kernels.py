"""Triton kernels of `fused.py`; importing this needs Triton, which comes with torch's CUDA builds."""

# pyright: reportMissingImports=false

import triton
import triton.language as tl

__all__ = ["linearize", "step"]


@triton.jit
def differences(node, item, items, nodes, tail, head, parts: tl.constexpr, in_row, in_column):
    """Potential at the tails less that at the heads, (rows, columns): small parts first."""
    place = node + item * nodes
    cost = tl.load(place + tail, in_row)[:, None] - tl.load(place + head, in_column)[None, :]
    place += items * nodes
    low = tl.load(place + tail, in_row)[:, None] - tl.load(place + head, in_column)[None, :]
    if parts == 3:
        place += items * nodes
        low += tl.load(place + tail, in_row)[:, None] - tl.load(place + head, in_column)[None, :]
    return cost + low


@triton.jit
def linearize(
    book, node, capacity, goal, level, rows, columns, off,
    items, row, layers, t, nodes,
    parts: tl.constexpr, weighted: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Weights and residuals of `ROWS` tails, and their sums."""
    blocks = tl.cdiv(t, ROWS)
    program = tl.program_id(0).to(tl.int64)
    block, rest = program % blocks, program // blocks
    layer, item = rest % layers, rest // layers
    i = block * ROWS + tl.arange(0, ROWS)
    in_row = i < t
    many = program - program + items  # int64, also where there is one item, which Triton takes for a constant
    size = many * row
    mu = tl.load(level + item)
    flows = tl.zeros((ROWS,), tl.float64)
    residuals = tl.zeros((ROWS,), tl.float64)
    weights = tl.zeros((ROWS,), tl.float64)
    worst = tl.zeros((ROWS,), tl.float64)
    for start in range(0, t, COLUMNS):
        j = start + tl.arange(0, COLUMNS)
        in_column = j < t
        here = in_row[:, None] & in_column[None, :]
        at = item * row + (layer * t + i[:, None]) * t + j[None, :]
        above = tl.load(book + at, here, 1.0)
        below = tl.load(book + size + at, here, 1.0)
        slack = tl.load(book + 2 * size + at, here, 1.0)
        flow = tl.load(book + 3 * size + at, here, 0.0)
        alive = (tl.load(capacity + at, here, 0.0) > 0).to(tl.float64)
        push = tl.maximum(tl.load(goal + at, here, 1.0), mu) if weighted else tl.maximum(tl.load(goal + item), mu)
        cost = differences(node, item, items, nodes, (layer + 1) * t + i, layer * t + j, parts, in_row, in_column)
        product = flow * slack
        scale = alive / (below * slack + above * flow)
        residual = ((slack - flow) * push - product * cost) * scale
        weight = product * scale
        tl.store(book + 4 * size + at, residual, here)
        tl.store(book + 5 * size + at, weight, here)
        residual = tl.where(here, residual, 0.0)
        flows += tl.sum(flow, 1)
        residuals += tl.sum(residual, 1)
        weights += tl.sum(weight, 1)
        # NaN must not get lost in a maximum
        worst = tl.maximum(worst, tl.max(tl.where(residual == residual, tl.abs(residual), float("inf")), 1))
        under = columns + (rest * blocks + block) * t + j
        apart = many * layers * blocks * t
        tl.store(under, tl.sum(flow, 0), in_column)
        tl.store(under + apart, tl.sum(residual, 0), in_column)
        tl.store(under + 2 * apart, tl.sum(weight, 0), in_column)
    beside = rows + rest * t + i
    tl.store(beside, flows, in_row)
    tl.store(beside + many * layers * t, residuals, in_row)
    tl.store(beside + 2 * many * layers * t, weights, in_row)
    tl.store(off + program, tl.max(worst, 0))


@triton.jit
def step(
    book, change, capacity, goal, level, spread,
    items, row, layers, t, nodes,
    weighted: tl.constexpr, KEEP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """New flows, slacks and multipliers of the edges of `ROWS` tails."""
    blocks = tl.cdiv(t, ROWS)
    program = tl.program_id(0).to(tl.int64)
    block, rest = program % blocks, program // blocks
    layer, item = rest % layers, rest // layers
    i = block * ROWS + tl.arange(0, ROWS)
    in_row = i < t
    many = program - program + items  # int64, also where there is one item, which Triton takes for a constant
    size = many * row
    mu = tl.load(level + item)
    tails = tl.load(change + item * nodes + (layer + 1) * t + i, in_row)
    total = tl.zeros((ROWS,), tl.float64)
    for start in range(0, t, COLUMNS):
        j = start + tl.arange(0, COLUMNS)
        in_column = j < t
        here = in_row[:, None] & in_column[None, :]
        at = item * row + (layer * t + i[:, None]) * t + j[None, :]
        above = tl.load(book + at, here, 1.0)
        below = tl.load(book + size + at, here, 1.0)
        slack = tl.load(book + 2 * size + at, here, 1.0)
        flow = tl.load(book + 3 * size + at, here, 1.0)
        residual = tl.load(book + 4 * size + at, here, 0.0)
        weight = tl.load(book + 5 * size + at, here, 0.0)
        alive = (tl.load(capacity + at, here, 0.0) > 0).to(tl.float64)
        push = tl.maximum(tl.load(goal + at, here, 1.0), mu) if weighted else tl.maximum(tl.load(goal + item), mu)
        heads = tl.load(change + item * nodes + layer * t + j, in_column)
        moved = residual - weight * (tails[:, None] - heads[None, :])
        below = tl.maximum((push - below * moved) / flow, below * KEEP)
        above = tl.maximum((push + above * moved) / slack, above * KEEP)
        moved = tl.minimum(tl.maximum(moved, flow * (KEEP - 1)), slack * (1 - KEEP))
        flow += moved
        slack -= moved
        tl.store(book + at, above, here)
        tl.store(book + size + at, below, here)
        tl.store(book + 2 * size + at, slack, here)
        tl.store(book + 3 * size + at, flow, here)
        lower = flow * below / push
        upper = slack * above / push
        total += tl.sum((lower * lower + upper * upper) * alive, 1)
    tl.store(spread + program, tl.sum(total, 0))
