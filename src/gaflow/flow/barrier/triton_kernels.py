"""Triton kernels of `fused.py`; importing this needs Triton, which comes with torch's CUDA builds."""

# pyright: reportMissingImports=false

import triton
import triton.language as tl

__all__ = ["gather", "linearize", "step", "step_outer"]


@triton.jit
def magnitude(values):
    """Absolute values; infinite for NaN, which must not get lost in a maximum."""
    return tl.where(values == values, tl.abs(values), float("inf"))


@triton.jit
def weigh(
    book, size, capacity, goal, item, past, mu, beginning, at, here, cost, weighted: tl.constexpr, GROW: tl.constexpr
):
    """Set weight and residual of some edges; gives their flows, residuals and weights, 0 where there is no edge."""
    slack = tl.load(book + at, here, 0.0)
    flow = tl.load(book + size + at, here, 0.0)
    aim = tl.load(goal + at, here, 1.0) if weighted else tl.load(goal + item)
    push = tl.maximum(aim, mu)
    old = tl.maximum(aim, past)
    most = tl.load(capacity + at, here, 0.0)
    half = most * cost * 0.5
    product = flow * slack
    apart = slack - flow
    later = old + tl.maximum(tl.sqrt(half * half + old * old) + apart * cost * 0.5, 0.0)
    later = tl.maximum(later, product / tl.maximum(tl.load(book + 3 * size + at, here, 1.0), 1e-300) / GROW)
    start = old * tl.maximum(most * most / tl.maximum(product, 1e-300) - 2, 1.0)
    scale = tl.where(beginning, start, later)
    residual = (apart * push - product * cost) / scale
    weight = product / scale
    tl.store(book + 2 * size + at, residual, here)
    tl.store(book + 3 * size + at, weight, here)
    return flow, tl.where(here, residual, 0.0), tl.where(here, weight, 0.0)


@triton.jit
def follow(book, size, at, here, drop, KEEP: tl.constexpr):
    """New flows and slacks of some edges; gives 1 for each that was cut short."""
    slack = tl.load(book + at, here, 0.0)
    flow = tl.load(book + size + at, here, 0.0)
    wanted = tl.load(book + 2 * size + at, here, 0.0) - tl.load(book + 3 * size + at, here, 0.0) * drop
    moved = tl.minimum(tl.maximum(wanted, flow * (KEEP - 1)), slack * (1 - KEEP))
    tl.store(book + at, slack - moved, here)
    tl.store(book + size + at, flow + moved, here)
    return tl.where(here & (moved != wanted), 1.0, 0.0)


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
    book, node, capacity, goal, before, level, rows, columns, off,
    items, row, layers, t, nodes, beginning,
    parts: tl.constexpr, weighted: tl.constexpr, GROW: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
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
    past, mu = tl.load(before + item), tl.load(level + item)
    flows = tl.zeros((ROWS,), tl.float64)
    residuals = tl.zeros((ROWS,), tl.float64)
    weights = tl.zeros((ROWS,), tl.float64)
    worst = tl.zeros((ROWS,), tl.float64)
    for start in range(0, t, COLUMNS):
        j = start + tl.arange(0, COLUMNS)
        in_column = j < t
        here = in_row[:, None] & in_column[None, :]
        at = item * row + (layer * t + i[:, None]) * t + j[None, :]
        cost = differences(node, item, items, nodes, (layer + 1) * t + i, layer * t + j, parts, in_row, in_column)
        flow, residual, weight = weigh(
            book, size, capacity, goal, item, past, mu, beginning, at, here, cost, weighted, GROW
        )
        flows += tl.sum(flow, 1)
        residuals += tl.sum(residual, 1)
        weights += tl.sum(weight, 1)
        worst = tl.maximum(worst, tl.max(magnitude(residual), 1))
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
def climb(rows, columns, right, up, down, item, layers, t, nodes, apart, j, here, leaving, residual, weight):
    """Sums at nodes `j` of all layers but the output, from the target edges up; what leaves the output, the worst."""
    furthest = leaving * 0
    for k in range(layers):
        under = (item * layers + k) * t + j
        to = item * nodes + k * t + j
        excess = leaving - tl.load(columns + under, here, 0.0)
        pushed = residual - tl.load(columns + apart + under, here, 0.0)
        tl.store(right + to, excess + pushed, here)
        tl.store(up + to, tl.load(columns + 2 * apart + under, here, 0.0), here)
        tl.store(down + to, weight, here)
        furthest = tl.maximum(furthest, magnitude(excess))
        leaving = tl.load(rows + under, here, 0.0)
        residual = tl.load(rows + apart + under, here, 0.0)
        weight = tl.load(rows + 2 * apart + under, here, 0.0)
    return leaving, residual, weight, furthest


@triton.jit
def gather(
    book, node, capacity, goal, before, level, rows, columns, off, right, up, down, worst, lost,
    items, row, layers, t, nodes, beginning,
    parts: tl.constexpr, weighted: tl.constexpr, GROW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Weights and residuals of an item's outer edges, and the sums of all its edges at the nodes."""
    item = tl.program_id(0).to(tl.int64)
    many = item - item + items  # int64, as above
    size, apart, below = many * row, many * layers * t, many * nodes
    past, mu = tl.load(before + item), tl.load(level + item)
    outer = item * row + row - 2 * t - 1  # where source edges, target edges and the return edge begin
    lane = tl.arange(0, BLOCK)
    first = lane < 1  # scalars are vectors of one here
    base = node + item * nodes
    crest = base + nodes - 1 + lane * 0
    high_source = tl.load(crest)
    low_source = tl.load(crest + below)
    low = -low_source
    if parts == 3:
        low -= tl.load(crest + 2 * below)
    cost = (-high_source - 1) + low
    flow, residual, weight = weigh(
        book, size, capacity, goal, item, past, mu, beginning, outer + 2 * t + lane, first, cost, weighted, GROW
    )
    flows = -flow
    residuals = -residual
    weights = tl.zeros((BLOCK,), tl.float64)
    entering = tl.sum(weight, 0)
    largest = magnitude(residual)
    furthest = tl.zeros((BLOCK,), tl.float64)
    for start in range(0, t, BLOCK):
        j = start + lane
        here = j < t
        top = layers * t + j
        low = tl.load(base + below + j, here, 0.0)
        low_top = low_source - tl.load(base + below + top, here, 0.0)
        if parts == 3:
            low += tl.load(base + 2 * below + j, here, 0.0)
            low_top += tl.load(crest + 2 * below) - tl.load(base + 2 * below + top, here, 0.0)
        cost = tl.load(base + j, here, 0.0) + low
        leaving, leaving_residual, leaving_weight = weigh(
            book, size, capacity, goal, item, past, mu, beginning, outer + t + j, here, cost, weighted, GROW
        )
        largest = tl.maximum(largest, magnitude(leaving_residual))
        cost = (high_source - tl.load(base + top, here, 0.0)) + low_top
        flow, residual, weight = weigh(
            book, size, capacity, goal, item, past, mu, beginning, outer + j, here, cost, weighted, GROW
        )
        largest = tl.maximum(largest, magnitude(residual))
        flows += flow
        residuals += residual
        weights += weight
        leaving, leaving_residual, leaving_weight, excess = climb(
            rows, columns, right, up, down, item, layers, t, nodes, apart, j, here,
            leaving, leaving_residual, leaving_weight,
        )  # fmt: skip
        furthest = tl.maximum(furthest, excess)
        excess = leaving - flow
        tl.store(right + item * nodes + top, excess + (leaving_residual - residual), here)
        tl.store(up + item * nodes + top, weight, here)
        tl.store(down + item * nodes + top, leaving_weight, here)
        furthest = tl.maximum(furthest, magnitude(excess))
    total = tl.sum(flows, 0)
    last = item * nodes + nodes - 1
    tl.store(right + last, total + tl.sum(residuals, 0))
    tl.store(up + last, entering)
    tl.store(down + last, tl.sum(weights, 0))
    tl.store(worst + item, tl.maximum(tl.max(largest, 0), tl.load(off + item)))
    furthest = tl.maximum(furthest, magnitude(tl.zeros((BLOCK,), tl.float64) + total))
    tl.store(lost + item, tl.max(furthest, 0))


@triton.jit
def step(
    book, change, short,
    items, row, layers, t, nodes,
    KEEP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """New flows and slacks of the edges of `ROWS` tails."""
    blocks = tl.cdiv(t, ROWS)
    program = tl.program_id(0).to(tl.int64)
    block, rest = program % blocks, program // blocks
    layer, item = rest % layers, rest // layers
    i = block * ROWS + tl.arange(0, ROWS)
    in_row = i < t
    many = program - program + items  # int64, as above
    tails = tl.load(change + item * nodes + (layer + 1) * t + i, in_row)
    total = tl.zeros((ROWS,), tl.float64)
    for start in range(0, t, COLUMNS):
        j = start + tl.arange(0, COLUMNS)
        in_column = j < t
        here = in_row[:, None] & in_column[None, :]
        at = item * row + (layer * t + i[:, None]) * t + j[None, :]
        heads = tl.load(change + item * nodes + layer * t + j, in_column)
        total += tl.sum(follow(book, many * row, at, here, tails[:, None] - heads[None, :], KEEP), 1)
    tl.store(short + program, tl.sum(total, 0))


@triton.jit
def step_outer(
    book, change, total, short,
    items, row, layers, t, nodes,
    KEEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The same for an item's outer edges; then how many were cut short, `total` being those of the layers."""
    item = tl.program_id(0).to(tl.int64)
    many = item - item + items  # int64, as above
    size = many * row
    outer = item * row + row - 2 * t - 1
    lane = tl.arange(0, BLOCK)
    source = tl.load(change + item * nodes + nodes - 1 + lane * 0)
    found = follow(book, size, outer + 2 * t + lane, lane < 1, -source, KEEP)
    for start in range(0, t, BLOCK):
        j = start + lane
        here = j < t
        bottom = tl.load(change + item * nodes + j, here, 0.0)
        top = tl.load(change + item * nodes + layers * t + j, here, 0.0)
        found += follow(book, size, outer + j, here, source - top, KEEP)
        found += follow(book, size, outer + t + j, here, bottom, KEEP)
    tl.store(short + item, tl.load(total + item) + tl.sum(found, 0))
