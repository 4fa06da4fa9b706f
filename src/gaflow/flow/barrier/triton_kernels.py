"""Triton kernels of `gpu.py`; importing this needs Triton, which comes with torch's CUDA builds."""

# pyright: reportMissingImports=false

import triton
import triton.language as tl


@triton.jit
def magnitude(values):
    """Absolute values; infinite for NaN, which must not get lost in a maximum."""
    return tl.where(values == values, tl.abs(values), float("inf"))


@triton.jit
def addresses(variables, stride, edge):
    """Where slack, flow, residual and weight of edges are."""
    flow_at = variables + edge + stride
    residual_at = flow_at + stride
    return variables + edge, flow_at, residual_at, residual_at + stride


@triton.jit
def weigh(
    variables, stride, capacity, target_mu, item, before, level, first_step,
    edge, valid, cost, weighted: tl.constexpr, GROWTH: tl.constexpr,
):  # fmt: skip
    """Set weight and residual of a block of edges; returns their flows, residuals and weights, 0 where not `valid`."""
    slack_at, flow_at, residual_at, weight_at = addresses(variables, stride, edge)
    slack = tl.load(slack_at, valid, 0.0)
    flow = tl.load(flow_at, valid, 0.0)
    edge_target = tl.load(target_mu + edge, valid, 1.0) if weighted else tl.load(target_mu + item)
    edge_mu = tl.maximum(edge_target, tl.load(level + item))
    edge_mu_before = tl.maximum(edge_target, tl.load(before + item))
    upper = tl.load(capacity + edge, valid, 0.0)
    half = upper * cost * 0.5
    product = flow * slack
    difference = slack - flow
    root = tl.sqrt(half * half + edge_mu_before * edge_mu_before)
    scale_later = edge_mu_before + tl.maximum(root + difference * cost * 0.5, 0.0)
    last_weight = tl.load(weight_at, valid, 1.0)
    least_scale = product / tl.maximum(last_weight, 1e-300) / GROWTH
    scale_later = tl.maximum(scale_later, least_scale)
    scale_first = edge_mu_before * tl.maximum(upper * upper / tl.maximum(product, 1e-300) - 2, 1.0)
    scale = tl.where(first_step, scale_first, scale_later)
    residual = (difference * edge_mu - product * cost) / scale
    weight = product / scale
    tl.store(residual_at, residual, valid)
    tl.store(weight_at, weight, valid)
    return flow, tl.where(valid, residual, 0.0), tl.where(valid, weight, 0.0)


@triton.jit
def follow(variables, stride, edge, valid, potential_difference, LEFT: tl.constexpr):
    """Set flows and slacks of a block of edges; returns 1 for each that was cut short."""
    slack_at, flow_at, residual_at, weight_at = addresses(variables, stride, edge)
    slack = tl.load(slack_at, valid, 0.0)
    flow = tl.load(flow_at, valid, 0.0)
    residual = tl.load(residual_at, valid, 0.0)
    weight = tl.load(weight_at, valid, 0.0)
    full_step = residual - weight * potential_difference
    not_below = tl.maximum(full_step, flow * (LEFT - 1))
    change = tl.minimum(not_below, slack * (1 - LEFT))
    tl.store(slack_at, slack - change, valid)
    tl.store(flow_at, flow + change, valid)
    return tl.where(valid & (change != full_step), 1.0, 0.0)


@triton.jit
def tails_less_heads(numbers, tail, head, has_tail, has_head):
    """Numbers at the tails less those at the heads; the super-target, which is no node, has 0."""
    return tl.load(numbers + tail, has_tail, 0.0) - tl.load(numbers + head, has_head, 0.0)


@triton.jit
def differences(numbers, stride, tail, head, has_tail, has_head, floats: tl.constexpr):
    """Potentials at the tails less those at the heads: their large float, and the sum of their small ones."""
    high = tails_less_heads(numbers, tail, head, has_tail, has_head)
    low = tails_less_heads(numbers + stride, tail, head, has_tail, has_head)
    if floats == 3:
        low += tails_less_heads(numbers + 2 * stride, tail, head, has_tail, has_head)
    return high, low


@triton.jit
def tails_of_program(layers, t, ROWS: tl.constexpr):
    """The number of this program, the layer among those of all items, the layer, the item, and the tails."""
    blocks = tl.cdiv(t, ROWS)
    program = tl.program_id(0).to(tl.int64)
    layer_of_item = program // blocks
    i = program % blocks * ROWS + tl.arange(0, ROWS)
    return program, layer_of_item, layer_of_item % layers, layer_of_item // layers, i[:, None]


@triton.jit
def edges_to(first_head, item, row, layer, i, t, COLUMNS: tl.constexpr):
    """The heads of a block of columns, which of them exist, the edges from tails `i` to them, and which of these do."""
    j = first_head + tl.arange(0, COLUMNS)[None, :]
    in_column = j < t
    edge = item * row + (layer * t + i) * t + j
    return j, in_column, edge, (i < t) & in_column


@triton.jit
def linearize(
    variables, node, capacity, target_mu, before, level, rows, columns, max_residuals,
    taken, items, row, layers, t, nodes,
    floats: tl.constexpr, weighted: tl.constexpr, GROWTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Weights and residuals of `ROWS` tails, and their sums."""
    program, layer_of_item, layer, item, i = tails_of_program(layers, t, ROWS)
    first_step = tl.load(taken + item) == 0
    item_count = program - program + items  # int64, also where there is one item, which Triton takes for a constant
    flows = tl.zeros((ROWS,), tl.float64)
    residuals = tl.zeros((ROWS,), tl.float64)
    weights = tl.zeros((ROWS,), tl.float64)
    max_residual = tl.zeros((ROWS,), tl.float64)
    for start in range(0, t, COLUMNS):
        j, in_column, edge, valid = edges_to(start, item, row, layer, i, t, COLUMNS)
        high, low = differences(
            node + item * nodes, item_count * nodes, (layer + 1) * t + i, layer * t + j, i < t, in_column, floats
        )
        flow, residual, weight = weigh(
            variables, item_count * row, capacity, target_mu, item, before, level, first_step,
            edge, valid, high + low, weighted, GROWTH,
        )  # fmt: skip
        flows += tl.sum(flow, 1)
        residuals += tl.sum(residual, 1)
        weights += tl.sum(weight, 1)
        max_residual = tl.maximum(max_residual, tl.max(magnitude(residual), 1))
        column = columns + program * t + j
        column_stride = item_count * layers * tl.cdiv(t, ROWS) * t
        tl.store(column, tl.sum(flow, 0)[None, :], in_column)
        tl.store(column + column_stride, tl.sum(residual, 0)[None, :], in_column)
        tl.store(column + 2 * column_stride, tl.sum(weight, 0)[None, :], in_column)
    row_sum = rows + layer_of_item * t + i
    row_stride = item_count * layers * t
    tl.store(row_sum, flows[:, None], i < t)
    tl.store(row_sum + row_stride, residuals[:, None], i < t)
    tl.store(row_sum + 2 * row_stride, weights[:, None], i < t)
    tl.store(max_residuals + program, tl.max(max_residual, 0))


@triton.jit
def gather(
    variables, node, capacity, target_mu, before, level, rows, columns, layer_residual,
    right, up, down, max_residual, max_imbalance,
    taken, items, row, layers, t, nodes,
    floats: tl.constexpr, weighted: tl.constexpr, GROWTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Weights and residuals of an item's outer edges, and the sums of all its edges at the nodes."""
    item = tl.program_id(0).to(tl.int64)
    first_step = tl.load(taken + item) == 0
    item_count = item - item + items  # int64, as above
    stride = item_count * row
    layer_stride = item_count * layers * t
    float_stride = item_count * nodes
    outer = item * row + row - 2 * t - 1  # where source edges, target edges and the return edge begin
    lane = tl.arange(0, BLOCK)
    one_lane = lane < 1  # scalars are vectors of one here
    nowhere = lane < 0
    base = node + item * nodes
    source = nodes - 1 + lane * 0
    high, low = differences(base, float_stride, source, source, nowhere, one_lane, floats)
    flow, residual, weight = weigh(
        variables, stride, capacity, target_mu, item, before, level, first_step,
        outer + 2 * t + lane, one_lane, (high - 1) + low, weighted, GROWTH,
    )  # fmt: skip
    flows = -flow
    residuals = -residual
    weights = tl.zeros((BLOCK,), tl.float64)
    entering = tl.sum(weight, 0)
    residual_so_far = magnitude(residual)
    imbalance_so_far = tl.zeros((BLOCK,), tl.float64)
    for start in range(0, t, BLOCK):
        j = start + lane
        valid = j < t
        top = layers * t + j
        high, low = differences(base, float_stride, j, j, valid, nowhere, floats)
        leaving, leaving_residual, leaving_weight = weigh(
            variables, stride, capacity, target_mu, item, before, level, first_step,
            outer + t + j, valid, high + low, weighted, GROWTH,
        )  # fmt: skip
        residual_so_far = tl.maximum(residual_so_far, magnitude(leaving_residual))
        high, low = differences(base, float_stride, source, top, valid, valid, floats)
        flow, residual, weight = weigh(
            variables, stride, capacity, target_mu, item, before, level, first_step,
            outer + j, valid, high + low, weighted, GROWTH,
        )  # fmt: skip
        residual_so_far = tl.maximum(residual_so_far, magnitude(residual))
        flows += flow
        residuals += residual
        weights += weight
        for k in range(layers):  # from the target edges up
            position = (item * layers + k) * t + j
            below = item * nodes + k * t + j
            imbalance = leaving - tl.load(columns + position, valid, 0.0)
            residual_excess = leaving_residual - tl.load(columns + layer_stride + position, valid, 0.0)
            tl.store(right + below, imbalance + residual_excess, valid)
            tl.store(up + below, tl.load(columns + 2 * layer_stride + position, valid, 0.0), valid)
            tl.store(down + below, leaving_weight, valid)
            imbalance_so_far = tl.maximum(imbalance_so_far, magnitude(imbalance))
            leaving = tl.load(rows + position, valid, 0.0)
            leaving_residual = tl.load(rows + layer_stride + position, valid, 0.0)
            leaving_weight = tl.load(rows + 2 * layer_stride + position, valid, 0.0)
        imbalance = leaving - flow
        residual_excess = leaving_residual - residual
        output = item * nodes + top
        tl.store(right + output, imbalance + residual_excess, valid)
        tl.store(up + output, weight, valid)
        tl.store(down + output, leaving_weight, valid)
        imbalance_so_far = tl.maximum(imbalance_so_far, magnitude(imbalance))
    total = tl.sum(flows, 0)
    last = item * nodes + nodes - 1
    tl.store(right + last, total + tl.sum(residuals, 0))
    tl.store(up + last, entering)
    tl.store(down + last, tl.sum(weights, 0))
    outer_residual = tl.max(residual_so_far, 0)
    inner_residual = tl.load(layer_residual + item)
    tl.store(max_residual + item, tl.maximum(outer_residual, inner_residual))
    imbalance_so_far = tl.maximum(imbalance_so_far, magnitude(tl.zeros((BLOCK,), tl.float64) + total))
    tl.store(max_imbalance + item, tl.max(imbalance_so_far, 0))


@triton.jit
def step(
    variables, change, frozen, cut_short,
    items, row, layers, t, nodes,
    LEFT: tl.constexpr, freezes: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """New flows and slacks of the edges of `ROWS` tails, unless their item is frozen."""
    program, _, layer, item, i = tails_of_program(layers, t, ROWS)
    item_count = program - program + items  # int64, as above
    total = tl.zeros((ROWS,), tl.float64)
    for start in range(0, t, COLUMNS):
        j, in_column, edge, valid = edges_to(start, item, row, layer, i, t, COLUMNS)
        if freezes:
            valid = valid & (tl.load(frozen + item) == 0)
        difference = tails_less_heads(change + item * nodes, (layer + 1) * t + i, layer * t + j, i < t, in_column)
        short = follow(variables, item_count * row, edge, valid, difference, LEFT)
        total += tl.sum(short, 1)
    tl.store(cut_short + program, tl.sum(total, 0))


@triton.jit
def step_outer(
    variables, change, frozen, total, cut_short,
    items, row, layers, t, nodes,
    LEFT: tl.constexpr, freezes: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The same for an item's outer edges; then how many were cut short, `total` being those of the layers."""
    item = tl.program_id(0).to(tl.int64)
    item_count = item - item + items  # int64, as above
    stride = item_count * row
    outer = item * row + row - 2 * t - 1
    lane = tl.arange(0, BLOCK)
    base = change + item * nodes
    source = tl.load(base + nodes - 1 + lane * 0)
    end = t
    if freezes:
        end = tl.where(tl.load(frozen + item) == 0, t, 0)
    count = follow(variables, stride, outer + 2 * t + lane, lane < tl.minimum(end, 1), -source, LEFT)
    for start in range(0, t, BLOCK):
        j = start + lane
        valid = j < end
        bottom = tl.load(base + j, valid, 0.0)
        top = tl.load(base + layers * t + j, valid, 0.0)
        count += follow(variables, stride, outer + j, valid, source - top, LEFT)
        count += follow(variables, stride, outer + t + j, valid, bottom, LEFT)
    tl.store(cut_short + item, tl.load(total + item) + tl.sum(count, 0))


@triton.jit
def judge(
    variables, max_residual, max_imbalance, level, floor, frozen,
    items, row, TOLERANCE: tl.constexpr,
):  # fmt: skip
    """Freeze an item that has converged or is beyond hope."""
    item = tl.program_id(0).to(tl.int64)
    item_count = item - item + items  # int64, as above
    value = tl.load(variables + item_count * row + item * row + row - 1)
    error = tl.maximum(tl.load(max_residual + item), tl.load(max_imbalance + item))
    done = (tl.load(level + item) <= tl.load(floor + item)) & (error < TOLERANCE * value)
    goes_on = (error < float("inf")) & (done == 0)
    tl.store(frozen + item, 1, goes_on == 0)


@triton.jit
def add_exactly(a, b):
    """The rounded sum and its rounding error (Knuth)."""
    rounded = a + b
    rounded_b = rounded - a
    rounded_a = rounded - rounded_b
    return rounded, (a - rounded_a) + (b - rounded_b)


@triton.jit
def accumulate(node, stride, change, valid, floats: tl.constexpr):
    """Add a change to numbers in two or three floats, as `multifloat.accumulate` does."""
    first = tl.load(node, valid, 0.0)
    second = tl.load(node + stride, valid, 0.0)
    if floats == 2:
        high = first + change
        low = (change - (high - first)) + second
        rounded = high + low
        tl.store(node, rounded, valid)
        tl.store(node + stride, low - (rounded - high), valid)
    else:
        third = tl.load(node + 2 * stride, valid, 0.0)
        first, error = add_exactly(first, change)
        second, error = add_exactly(second, error)
        third += error
        first, second = add_exactly(first, second)
        second, third = add_exactly(second, third)
        tl.store(node, first, valid)
        tl.store(node + stride, second, valid)
        tl.store(node + 2 * stride, third, valid)


@triton.jit
def next_level(
    level, floor, mean, share_cut_short,
    LEFT: tl.constexpr, SHRINK: tl.constexpr, SHRINK_PER_CUT_SHORT: tl.constexpr, MAX_SHRINK: tl.constexpr,
):  # fmt: skip
    """The level to aim at, as `newton.lower_level` has it."""
    fastest = tl.where(level > mean, SHRINK, LEFT)
    factor = tl.minimum(fastest + SHRINK_PER_CUT_SHORT * share_cut_short, MAX_SHRINK)
    return tl.maximum(floor, level * factor)


@triton.jit
def settle(
    node, change, level, before, floor, mean, count, cut_short, taken, frozen,
    items, nodes,
    floats: tl.constexpr, LEFT: tl.constexpr, SHRINK: tl.constexpr, SHRINK_PER_CUT_SHORT: tl.constexpr,
    MAX_SHRINK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add the change to the potentials of an item that is not frozen, and lower its level for the next step."""
    blocks = tl.cdiv(nodes, BLOCK)
    program = tl.program_id(0).to(tl.int64)
    item = program // blocks
    item_count = item - item + items  # int64, as above
    moves = tl.load(frozen + item) == 0
    position = program % blocks * BLOCK + tl.arange(0, BLOCK)
    valid = (position < nodes) & moves
    offset = item * nodes + position
    accumulate(node + offset, item_count * nodes, tl.load(change + offset, valid, 0.0), valid, floats)
    is_first = moves & (program % blocks == 0)
    item_level = tl.load(level + item)
    share_cut_short = tl.load(cut_short + item) / tl.load(count + item)
    lower = next_level(
        item_level, tl.load(floor + item), tl.load(mean + item), share_cut_short,
        LEFT, SHRINK, SHRINK_PER_CUT_SHORT, MAX_SHRINK,
    )  # fmt: skip
    steps = tl.load(taken + item) + 1
    tl.debug_barrier()
    tl.store(before + item, item_level, is_first)
    tl.store(level + item, lower, is_first)
    tl.store(taken + item, steps, is_first)
