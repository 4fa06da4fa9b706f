"""Models that look at a picture in stages of fewer and fewer patches, through windows or with fewer keys.

The `t` positions are the patches of the first stage, row by row. A patch of a later stage covers a block of them. Its
node sits at the first, and what the first layer of the stage takes from it comes from all of the block in equal parts.
Keys that a layer pools by itself are blocks as well. The convention this file owns: a convolution that overlaps its
neighbours counts for the block of its stride.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gaflow.inputs.transformers_types import ModelConfig
from gaflow.models.adapters.observed import AttentionLayer, ObservedPass, averages, group_by_call, positioned_layer

Grid = tuple[int, int]  # rows and columns of patches


class _Stages:
    """Follows the layers of a pass from stage to stage."""

    def __init__(self) -> None:
        self.nodes: list[int] = []  # positions of this stage's nodes: tokens that are no patches, then patches by row
        self._grid: Grid | None = None
        self._extra = 0  # tokens before the patches
        self._t = 0

    def enter(self, grid: Grid, extra: int = 0) -> Tensor:
        """Enter the stage of a layer with this grid and so many extra tokens. Returns its nodes as keys (n, t)."""
        fine = self._grid
        patches = self.nodes[self._extra :]
        unchanged = (grid, extra) == (fine, self._extra)
        self._grid = grid
        self._extra = extra
        if fine is None:
            self._t = grid[0] * grid[1] + extra
            self.nodes = list(range(self._t))
        if fine is None or unchanged:
            return torch.eye(self._t)[self.nodes]
        origins = []  # the positions of the stage before that each patch comes from
        for block in _blocks(fine, grid):
            origins.append([patches[cell] for cell in block])
        first_positions = [block[0] for block in origins]
        # a new token comes from nowhere, and takes a position that is left
        free = sorted(set(range(len(origins) + extra)).difference(first_positions))
        self.nodes = [*free[:extra], *first_positions]
        return averages([*([] for _ in range(extra)), *origins], self._t)


def _cells(grid: Grid) -> Tensor:
    """The numbers of the cells of a grid, row by row."""
    return torch.arange(grid[0] * grid[1]).view(grid)


def _strided(fine: int, coarse: int) -> list[slice]:
    """The cells of a fine axis that each cell of a coarse one covers."""
    step = _stride(fine, coarse)
    return [slice(start * step, (start + 1) * step) for start in range(coarse)]


def _pooled(fine: int, coarse: int) -> list[slice]:
    """The same in adaptive pooling, where cells may overlap."""
    slices = []
    for cell in range(coarse):
        start = cell * fine // coarse
        stop = math.ceil((cell + 1) * fine / coarse)
        slices.append(slice(start, stop))
    return slices


def _blocks(fine: Grid, coarse: Grid, slices: Callable[[int, int], list[slice]] = _strided) -> list[list[int]]:
    """The cells of a fine grid that each cell of a coarse one covers."""
    cells = _cells(fine)
    rows = slices(fine[0], coarse[0])
    columns = slices(fine[1], coarse[1])
    return [cells[row, column].flatten().tolist() for row in rows for column in columns]


def _stride(fine: int, coarse: int) -> int:
    """The step by which so many cells become so few, with or without an incomplete one at the end."""
    for step in range(1, fine + 1):
        if coarse in _cell_counts(fine, step):
            return step
    raise ValueError(f"no step makes {coarse} cells of {fine}")


def _cell_counts(fine: int, step: int) -> tuple[int, int]:
    """How many cells of `step` finer ones there are, without and with an incomplete one at the end."""
    return fine // step, math.ceil(fine / step)


def swin(observed: ObservedPass) -> list[AttentionLayer]:
    """Swin and its kin: attention within windows, shifted in every other layer; four patches merge between stages."""
    layers = []
    stages = _Stages()
    for call, softmaxes in group_by_call(observed.softmaxes, "input_dimensions"):
        height, width = call.argument("input_dimensions")
        grid = (int(height), int(width))
        keys = stages.enter(grid)
        module: Any = call.module
        expand = _window_expansion(grid, int(module.window_size), int(module.shift_size), len(observed.mask))
        layers.append(positioned_layer(softmaxes[0].weights, stages.nodes, keys, expand))
    return layers


def _window_expansion(grid: Grid, size: int, shift: int, items: int) -> Callable[[Tensor], Tensor]:
    """Maps attention (items * windows, h, size², size²) to a matrix (items, h, n, n) of the patches of a grid."""
    height, width = grid
    n = height * width
    full_height = math.ceil(height / size) * size
    full_width = math.ceil(width / size) * size
    cells = torch.full((full_height, full_width), n)  # what fills up the last windows is no patch
    cells[:height, :width] = _cells(grid)
    wrapped = torch.zeros(full_height, full_width, dtype=torch.long)  # what a shift brings from border to border
    wrapped[:shift] += 1
    wrapped[:, :shift] += 2

    def cut_windows(picture: Tensor) -> Tensor:
        shifted = picture.roll((-shift, -shift), (0, 1))
        windows = shifted.view(full_height // size, size, full_width // size, size).transpose(1, 2)
        return windows.reshape(-1, size * size)  # (windows, size²)

    window_cells = cut_windows(cells)
    side = cut_windows(wrapped)
    together = side[:, :, None] == side[:, None, :]  # the model masks the rest, but not down to 0

    def expand(weights: Tensor) -> Tensor:
        h = weights.shape[1]
        at = window_cells.to(weights.device)
        matrix = weights.new_zeros(items, h, n + 1, n + 1)
        parts = weights.view(items, len(at), h, size * size, size * size).transpose(1, 2)
        matrix[:, :, at[:, :, None], at[:, None, :]] = parts * together.to(weights)
        return matrix[:, :, :n, :n]

    return expand


def reduced_keys(observed: ObservedPass) -> list[AttentionLayer]:
    """PVT, SegFormer, CvT: all patches are queries, blocks of them are keys; the last stage may add a [CLS] token."""
    layers = []
    stages = _Stages()
    for call, softmaxes in group_by_call(observed.softmaxes, "height"):
        grid = (int(call.argument("height")), int(call.argument("width")))
        weights = softmaxes[0].weights
        extra = weights.shape[-2] - grid[0] * grid[1]
        node_keys = stages.enter(grid, extra)
        members = [[token] for token in range(extra)]
        for block in _pooled_blocks(grid, weights.shape[-1] - extra, observed.config):
            members.append([extra + cell for cell in block])
        keys = averages(members, len(stages.nodes)) @ node_keys
        layers.append(positioned_layer(weights, stages.nodes, keys))
    return layers


def _pooled_blocks(grid: Grid, count: int, config: ModelConfig) -> list[list[int]]:
    """The patches that each of `count` keys is made of."""
    if getattr(config, "linear_attention", False):
        side = math.isqrt(count)
        return _blocks(grid, (side, side), _pooled)
    height, width = grid
    for step in range(1, max(grid) + 1):
        for rows, columns in zip(_cell_counts(height, step), _cell_counts(width, step), strict=True):
            if rows * columns == count:
                return _blocks(grid, (rows, columns))
    raise ValueError(f"no stride makes {count} cells of a grid of {height} x {width}")


def levit(observed: ObservedPass) -> list[AttentionLayer]:
    """LeViT: between stages, every other patch of every other row reads all of them."""
    layers = []
    t = observed.softmaxes[0].weights.shape[-1]
    nodes = torch.arange(t)
    for softmax in observed.softmaxes:
        queries, key_count = softmax.weights.shape[-2:]
        keys = torch.eye(t)[nodes]
        if queries < key_count:
            side = math.isqrt(key_count)
            step = _stride(side, math.isqrt(queries))
            nodes = nodes.view(side, side)[::step, ::step].flatten()
        layers.append(positioned_layer(softmax.weights, nodes.tolist(), keys))
    return layers


def hiera(observed: ObservedPass) -> list[AttentionLayer]:
    """Hiera: windows whose patches lie far apart in its own order; pooled queries are the first of what they pool."""
    config = observed.config
    call = observed.softmaxes[0].call_with("pixel_values")
    assert call is not None
    pixels = call.argument("pixel_values")
    height = pixels.shape[-2] // config.patch_stride[0]
    width = pixels.shape[-1] // config.patch_stride[1]
    order = _cells((height, width))[None]
    for _ in range(len(config.depths) - 1):
        down, right = config.query_stride
        height //= down
        width //= right
        order = order.view(-1, height, down, width, right).permute(0, 2, 4, 1, 3).reshape(-1, height, width)
    nodes = order.flatten().tolist()
    positions = torch.eye(len(nodes))
    layers = []
    for softmax in observed.softmaxes:
        keys = positions[nodes]
        _, _, windows, queries, _ = softmax.weights.shape
        nodes = nodes[: windows * queries]
        layers.append(positioned_layer(softmax.weights, nodes, keys, _expand_units))
    return layers


def _expand_units(weights: Tensor) -> Tensor:
    """Attention (b, h, windows, q, k) as a matrix (b, h, q * windows, k * windows)."""
    b, h, n, q, k = weights.shape
    matrix = weights.new_zeros(b, h, q, n, k, n)
    window = torch.arange(n, device=weights.device)
    matrix[:, :, :, window, :, window] = weights.permute(2, 0, 1, 3, 4)
    return matrix.reshape(b, h, q * n, k * n)
