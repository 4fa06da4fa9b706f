"""Triton kernels of `linear/odd_even_blocks.py`: all of it that is no matrix product or inverse.

Each kernel stands for a handful of torch's, which on a small text take as long as there are of them. A program has
`ROWS` nodes of a layer of an item. Numbers of nodes are (layers, b, t) here; the super-source is the first node of a
layer above the others, whose other nodes are dead.
"""

# pyright: reportMissingImports=false

import triton
import triton.language as tl


@triton.jit
def nodes_of_program(b, t, ROWS: tl.constexpr):
    """Layer and item of a program, as one number and apart, and its nodes."""
    blocks = tl.cdiv(t, ROWS)
    program = tl.program_id(0).to(tl.int64)
    position = program // blocks
    i = program % blocks * ROWS + tl.arange(0, ROWS)
    return position, position // b, position % b, i


@triton.jit
def scale_nodes(
    up, down, right, target, target_stride, returning, returning_stride, root, dead, side,
    b, layers, t, nodes, ROWS: tl.constexpr,
):  # fmt: skip
    """One over the root of each degree, which nodes are dead, weights to the target and right-hand sides.

    Sides of odd layers are divided by the root.
    """
    position, layer, item, i = nodes_of_program(b, t, ROWS)
    inside = i < t
    count = tl.where(layer <= layers, t, 1)
    exists = i < count
    node = item * nodes + layer * t + i
    degree = tl.load(up + node, exists, 0.0) + tl.load(down + node, exists, 0.0)
    is_dead = tl.where(degree == 0, 1.0, 0.0).to(tl.float64)
    node_root = 1.0 / tl.sqrt(degree + is_dead)
    ground = tl.load(target + item * target_stride + i, inside & (layer == 0), 0.0)
    to_source = exists & (layer == layers + 1)
    ground += tl.load(returning + item * returning_stride + i * 0, to_source, 0.0)
    node_right = tl.load(right + node, exists, 0.0)
    factor = tl.where(layer % 2 == 1, node_root, 1.0)
    offset = position * t + i
    tl.store(root + offset, node_root, inside)
    tl.store(dead + offset, is_dead, inside)
    tl.store(side + 2 * offset, factor * ground, inside)
    tl.store(side + 2 * offset + 1, factor * node_right, inside)


@triton.jit
def scale_links(
    weight, weight_stride, source, source_stride, root, below, above,
    b, layers, t, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Weights between odd and even layers, the odd node first, over the root of its degree."""
    position, layer, item, i = nodes_of_program(b, t, ROWS)
    i = i[:, None]
    tail_roots_at = root + (position + b) * t  # of the tails
    head_roots_at = root + position * t
    to_odd = position % b + layer // 2 * b  # where links of this layer belong
    is_below = layer % 2 == 0
    for start in range(0, t, COLUMNS):
        j = start + tl.arange(0, COLUMNS)[None, :]
        inside = (i < t) & (j < t)
        inner = tl.load(weight + item * weight_stride + (layer * t + i) * t + j, inside & (layer < layers), 0.0)
        outer = tl.load(source + item * source_stride + i * 0 + j, inside & (layer == layers) & (i == 0), 0.0)
        link = inner + outer
        tail_root = tl.load(tail_roots_at + i, i < t, 0.0)
        tl.store(below + (to_odd * t + i) * t + j, link * tail_root, inside & is_below)
        head_roots = tl.load(head_roots_at + j, j < t, 0.0)
        turned = tl.trans(link * head_roots)
        tails = tl.trans(i + j * 0)
        heads = tl.trans(j + i * 0)
        valid = (tails < t) & (heads < t) & (is_below == 0)
        tl.store(above + (to_odd * t + heads) * t + tails, turned, valid)


@triton.jit(do_not_specialize=["lower", "upper"])
def fill_ends(
    inner, links, side, dead, first, second, matrix, columns,
    b, t, lower, upper,
    linked: tl.constexpr, carried: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The Laplacian of the layers at the ends, and their links and sides, which come out as columns.

    `carried` of them (0 to 2) bring more weights and sides: `first` and `second`. Without links, an end is the last.
    """
    position, end, item, i = nodes_of_program(b, t, ROWS)
    layer = tl.where(end == 0, lower, upper)
    wide = t + 2
    i = i[:, None]
    inner += (layer * b + item) * t * t
    matrix += position * t * t
    columns += position * t * wide
    first += position * t * wide
    second += position * t * wide
    link_layer = tl.where(end == 0, layer, layer - 1)
    link_row = tl.where(end == 0, t, 1)  # the link of the upper end is turned
    link_column = tl.where(end == 0, 1, t)
    links += (link_layer * b + item) * t * t
    total = tl.zeros((ROWS, 1), tl.float64)
    for start in range(0, t, COLUMNS):
        j = start + tl.arange(0, COLUMNS)[None, :]
        inside = (i < t) & (j < t)
        beside = inside & (i != j)
        weights = tl.load(inner + i * t + j, beside, 0.0)
        if carried > 0:
            weights += tl.load(first + i * wide + j, beside, 0.0)
        if carried > 1:
            weights += tl.load(second + i * wide + j, beside, 0.0)
        tl.store(matrix + i * t + j, -weights, beside)
        total += tl.sum(weights, 1)[:, None]
        if linked:
            link = tl.load(links + i * link_row + j * link_column, inside, 0.0)
            tl.store(columns + i * wide + j, link, inside)
            total += tl.sum(link, 1)[:, None]
    node = (layer * b + item) * t + i
    valid = i < t
    ground = tl.load(side + 2 * node, valid, 0.0)
    right = tl.load(side + 2 * node + 1, valid, 0.0)
    if carried > 0:
        ground += tl.load(first + i * wide + t, valid, 0.0)
        right += tl.load(first + i * wide + t + 1, valid, 0.0)
    if carried > 1:
        ground += tl.load(second + i * wide + t, valid, 0.0)
        right += tl.load(second + i * wide + t + 1, valid, 0.0)
    degree = total + ground + tl.load(dead + node, valid, 0.0)
    tl.store(matrix + i * t + i, degree, valid)
    tl.store(columns + i * wide + t, ground, valid)
    tl.store(columns + i * wide + t + 1, right, valid)


@triton.jit(do_not_specialize=["lower", "upper"])
def even_potentials(
    half, potentials, b, layers, t, nodes, lower, upper, linked: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Potentials of the layers at the ends, from those of the layers next to them."""
    position, end, item, i = nodes_of_program(b, t, ROWS)
    layer = tl.where(end == 0, lower, upper)
    neighbour = tl.where(end == 0, layer + 1, layer - 1)
    count = tl.where(2 * layer <= layers, t, 1)
    neighbours = tl.where(2 * neighbour <= layers, t, 1)
    wide = t + 2
    half += position * t * wide
    potentials += item * nodes
    i = i[:, None]
    total = tl.load(half + i * wide + t + 1, i < t, 0.0)
    if linked:
        for start in range(0, t, COLUMNS):
            j = start + tl.arange(0, COLUMNS)[None, :]
            share = tl.load(half + i * wide + j, (i < t) & (j < neighbours), 0.0)
            potential = tl.load(potentials + 2 * neighbour * t + j, j < neighbours, 0.0)
            total += tl.sum(share * potential, 1)[:, None]
    tl.store(potentials + 2 * layer * t + i, total, i < count)


@triton.jit
def odd_potentials(
    below, above, root, side, potentials,
    b, layers, t, nodes, with_above, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Potentials of odd layers, from those of even ones."""
    position, odd, item, i = nodes_of_program(b, t, ROWS)
    layer = 2 * odd + 1
    count = tl.where(layer <= layers, t, 1)
    above_count = tl.where(layer + 1 <= layers, t, 1)
    above_count = tl.where(odd < with_above, above_count, 0)
    potentials += item * nodes
    i = i[:, None]
    node = (layer * b + item) * t + i
    valid = i < count
    total = tl.load(side + 2 * node + 1, valid, 0.0)
    for start in range(0, t, COLUMNS):
        j = start + tl.arange(0, COLUMNS)[None, :]
        offset = (position * t + i) * t + j
        share = tl.load(below + offset, valid & (j < t), 0.0)
        potential = tl.load(potentials + (layer - 1) * t + j, j < t, 0.0)
        total += tl.sum(share * potential, 1)[:, None]
        share = tl.load(above + offset, valid & (j < above_count), 0.0)
        potential = tl.load(potentials + (layer + 1) * t + j, j < above_count, 0.0)
        total += tl.sum(share * potential, 1)[:, None]
    tl.store(potentials + layer * t + i, total * tl.load(root + node, valid, 0.0), valid)
