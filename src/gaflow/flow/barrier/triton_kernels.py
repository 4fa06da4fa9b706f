"""Triton kernels of `gpu.py`; importing this needs Triton, which comes with torch's CUDA builds."""

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
    variables, stride, capacity, target_mu, item, level_before, level_now, first_step,
    edge, valid, cost, weighted: tl.constexpr, GROWTH: tl.constexpr,
):  # fmt: skip
    """Set weight and residual of a block of edges; returns their flows, residuals and weights, 0 where not `valid`."""
    slack_at = variables + edge
    flow_at = slack_at + stride
    residual_at = flow_at + stride
    weight_at = residual_at + stride
    slack = tl.load(slack_at, valid, 0.0)
    flow = tl.load(flow_at, valid, 0.0)
    edge_target = tl.load(target_mu + edge, valid, 1.0) if weighted else tl.load(target_mu + item)
    edge_mu = tl.maximum(edge_target, level_now)
    edge_mu_before = tl.maximum(edge_target, level_before)
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
    slack_at = variables + edge
    flow_at = slack_at + stride
    residual_at = flow_at + stride
    weight_at = residual_at + stride
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
def tails_less_heads(numbers, tail, head, in_row, in_column):
    """Numbers at the tails less those at the heads, (rows, columns)."""
    tails = tl.load(numbers + tail, in_row)
    heads = tl.load(numbers + head, in_column)
    return tails[:, None] - heads[None, :]


@triton.jit
def differences(node, item, items, nodes, tail, head, floats: tl.constexpr, in_row, in_column):
    """Potential at the tails less that at the heads, (rows, columns): small floats first."""
    base = node + item * nodes
    cost = tails_less_heads(base, tail, head, in_row, in_column)
    base += items * nodes
    low = tails_less_heads(base, tail, head, in_row, in_column)
    if floats == 3:
        base += items * nodes
        low += tails_less_heads(base, tail, head, in_row, in_column)
    return cost + low


@triton.jit
def linearize(
    variables, node, capacity, target_mu, before, level, rows, columns, max_residuals,
    items, row, layers, t, nodes, first_step,
    floats: tl.constexpr, weighted: tl.constexpr, GROWTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Weights and residuals of `ROWS` tails, and their sums."""
    blocks = tl.cdiv(t, ROWS)
    program = tl.program_id(0).to(tl.int64)
    block = program % blocks
    layer_of_item = program // blocks
    layer = layer_of_item % layers
    item = layer_of_item // layers
    i = block * ROWS + tl.arange(0, ROWS)
    in_row = i < t
    item_count = program - program + items  # int64, also where there is one item, which Triton takes for a constant
    stride = item_count * row
    tail = (layer + 1) * t + i
    level_before = tl.load(before + item)
    level_now = tl.load(level + item)
    flows = tl.zeros((ROWS,), tl.float64)
    residuals = tl.zeros((ROWS,), tl.float64)
    weights = tl.zeros((ROWS,), tl.float64)
    max_residual = tl.zeros((ROWS,), tl.float64)
    for start in range(0, t, COLUMNS):
        j = start + tl.arange(0, COLUMNS)
        in_column = j < t
        valid = in_row[:, None] & in_column[None, :]
        edge = item * row + (layer * t + i[:, None]) * t + j[None, :]
        head = layer * t + j
        cost = differences(node, item, items, nodes, tail, head, floats, in_row, in_column)
        flow, residual, weight = weigh(
            variables, stride, capacity, target_mu, item, level_before, level_now, first_step,
            edge, valid, cost, weighted, GROWTH,
        )  # fmt: skip
        flows += tl.sum(flow, 1)
        residuals += tl.sum(residual, 1)
        weights += tl.sum(weight, 1)
        max_residual = tl.maximum(max_residual, tl.max(magnitude(residual), 1))
        column = columns + (layer_of_item * blocks + block) * t + j
        column_stride = item_count * layers * blocks * t
        tl.store(column, tl.sum(flow, 0), in_column)
        tl.store(column + column_stride, tl.sum(residual, 0), in_column)
        tl.store(column + 2 * column_stride, tl.sum(weight, 0), in_column)
    row_sum = rows + layer_of_item * t + i
    row_stride = item_count * layers * t
    tl.store(row_sum, flows, in_row)
    tl.store(row_sum + row_stride, residuals, in_row)
    tl.store(row_sum + 2 * row_stride, weights, in_row)
    tl.store(max_residuals + program, tl.max(max_residual, 0))


@triton.jit
def sum_layers(rows, columns, right, up, down, item, layers, t, nodes, stride, j, valid, leaving, residual, weight):
    """Sums at nodes `j` of all layers but the output, from the target edges up.

    Returns flow, residual and weight that leave the output layer, and the largest imbalance.
    """
    max_imbalance = leaving * 0
    for k in range(layers):
        position = (item * layers + k) * t + j
        node = item * nodes + k * t + j
        imbalance = leaving - tl.load(columns + position, valid, 0.0)
        residual_excess = residual - tl.load(columns + stride + position, valid, 0.0)
        tl.store(right + node, imbalance + residual_excess, valid)
        tl.store(up + node, tl.load(columns + 2 * stride + position, valid, 0.0), valid)
        tl.store(down + node, weight, valid)
        max_imbalance = tl.maximum(max_imbalance, magnitude(imbalance))
        leaving = tl.load(rows + position, valid, 0.0)
        residual = tl.load(rows + stride + position, valid, 0.0)
        weight = tl.load(rows + 2 * stride + position, valid, 0.0)
    return leaving, residual, weight, max_imbalance


@triton.jit
def gather(
    variables, node, capacity, target_mu, before, level, rows, columns, layer_residual,
    right, up, down, max_residual, max_imbalance,
    items, row, layers, t, nodes, first_step,
    floats: tl.constexpr, weighted: tl.constexpr, GROWTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Weights and residuals of an item's outer edges, and the sums of all its edges at the nodes."""
    item = tl.program_id(0).to(tl.int64)
    item_count = item - item + items  # int64, as above
    stride = item_count * row
    layer_stride = item_count * layers * t
    float_stride = item_count * nodes
    level_before = tl.load(before + item)
    level_now = tl.load(level + item)
    outer = item * row + row - 2 * t - 1  # where source edges, target edges and the return edge begin
    lane = tl.arange(0, BLOCK)
    one_lane = lane < 1  # scalars are vectors of one here
    base = node + item * nodes
    source_node = base + nodes - 1 + lane * 0
    high_source = tl.load(source_node)
    low_source = tl.load(source_node + float_stride)
    low = -low_source
    if floats == 3:
        low -= tl.load(source_node + 2 * float_stride)
    cost = (-high_source - 1) + low
    flow, residual, weight = weigh(
        variables, stride, capacity, target_mu, item, level_before, level_now, first_step,
        outer + 2 * t + lane, one_lane, cost, weighted, GROWTH,
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
        low = tl.load(base + float_stride + j, valid, 0.0)
        low_top = low_source - tl.load(base + float_stride + top, valid, 0.0)
        if floats == 3:
            low += tl.load(base + 2 * float_stride + j, valid, 0.0)
            low_top += tl.load(source_node + 2 * float_stride) - tl.load(base + 2 * float_stride + top, valid, 0.0)
        cost = tl.load(base + j, valid, 0.0) + low
        leaving, leaving_residual, leaving_weight = weigh(
            variables, stride, capacity, target_mu, item, level_before, level_now, first_step,
            outer + t + j, valid, cost, weighted, GROWTH,
        )  # fmt: skip
        residual_so_far = tl.maximum(residual_so_far, magnitude(leaving_residual))
        cost = (high_source - tl.load(base + top, valid, 0.0)) + low_top
        flow, residual, weight = weigh(
            variables, stride, capacity, target_mu, item, level_before, level_now, first_step,
            outer + j, valid, cost, weighted, GROWTH,
        )  # fmt: skip
        residual_so_far = tl.maximum(residual_so_far, magnitude(residual))
        flows += flow
        residuals += residual
        weights += weight
        leaving, leaving_residual, leaving_weight, imbalance = sum_layers(
            rows, columns, right, up, down, item, layers, t, nodes, layer_stride, j, valid,
            leaving, leaving_residual, leaving_weight,
        )  # fmt: skip
        imbalance_so_far = tl.maximum(imbalance_so_far, imbalance)
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
    variables, change, cut_short,
    items, row, layers, t, nodes,
    LEFT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """New flows and slacks of the edges of `ROWS` tails."""
    blocks = tl.cdiv(t, ROWS)
    program = tl.program_id(0).to(tl.int64)
    block = program % blocks
    layer_of_item = program // blocks
    layer = layer_of_item % layers
    item = layer_of_item // layers
    i = block * ROWS + tl.arange(0, ROWS)
    in_row = i < t
    item_count = program - program + items  # int64, as above
    base = change + item * nodes
    tails = tl.load(base + (layer + 1) * t + i, in_row)
    total = tl.zeros((ROWS,), tl.float64)
    for start in range(0, t, COLUMNS):
        j = start + tl.arange(0, COLUMNS)
        in_column = j < t
        valid = in_row[:, None] & in_column[None, :]
        edge = item * row + (layer * t + i[:, None]) * t + j[None, :]
        heads = tl.load(base + layer * t + j, in_column)
        potential_difference = tails[:, None] - heads[None, :]
        short = follow(variables, item_count * row, edge, valid, potential_difference, LEFT)
        total += tl.sum(short, 1)
    tl.store(cut_short + program, tl.sum(total, 0))


@triton.jit
def step_outer(
    variables, change, total, cut_short,
    items, row, layers, t, nodes,
    LEFT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The same for an item's outer edges; then how many were cut short, `total` being those of the layers."""
    item = tl.program_id(0).to(tl.int64)
    item_count = item - item + items  # int64, as above
    stride = item_count * row
    outer = item * row + row - 2 * t - 1
    lane = tl.arange(0, BLOCK)
    base = change + item * nodes
    source = tl.load(base + nodes - 1 + lane * 0)
    count = follow(variables, stride, outer + 2 * t + lane, lane < 1, -source, LEFT)
    for start in range(0, t, BLOCK):
        j = start + lane
        valid = j < t
        bottom = tl.load(base + j, valid, 0.0)
        top = tl.load(base + layers * t + j, valid, 0.0)
        count += follow(variables, stride, outer + j, valid, source - top, LEFT)
        count += follow(variables, stride, outer + t + j, valid, bottom, LEFT)
    tl.store(cut_short + item, tl.load(total + item) + tl.sum(count, 0))
