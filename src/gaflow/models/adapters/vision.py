"""Models that look at a picture in stages of fewer and fewer patches, through windows or with fewer keys.

The `t` places are the patches of the first stage, row by row. A patch of a later stage covers a block of them; its
node sits at the first, and what the first layer of the stage takes from it comes from all of the block in equal parts.
Keys that a layer makes fewer by itself are blocks as well. The convention this file owns: a convolution that overlaps
its neighbours counts for the block of its stride.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gaflow.models.adapters.observed import AttentionLayer, ObservedPass, averages, group, place
from gaflow.models.adapters.pooled_text import placed

__all__ = ["hiera", "levit", "reduced", "swin"]

Grid = tuple[int, int]  # rows and columns of patches


@dataclass(frozen=True)
class _Stage:
    """The nodes of a stage, and what its first layer takes each of them from."""

    grid: Grid
    nodes: list[int]  # places, row by row, after those of tokens that are no patches
    origins: list[list[int]]  # places of the stage before

    @property
    def extra(self) -> int:
        """How many tokens come before the patches."""
        return len(self.nodes) - self.grid[0] * self.grid[1]


def _first(grid: Grid, extra: int = 0) -> _Stage:
    nodes = list(range(grid[0] * grid[1] + extra))
    return _Stage(grid, nodes, [[p] for p in nodes])


def _next(before: _Stage, grid: Grid, extra: int) -> _Stage:
    blocks = [[before.nodes[before.extra + p] for p in block] for block in _blocks(before.grid, grid)]
    taken = {block[0] for block in blocks}
    free = (p for p in range(len(taken) + extra) if p not in taken)
    added = [next(free) for _ in range(extra)]  # a new token comes from nowhere, and takes a place that is left
    return _Stage(grid, [*added, *(block[0] for block in blocks)], [*([] for _ in added), *blocks])


def _blocks(fine: Grid, coarse: Grid) -> list[list[int]]:
    """For every cell of a coarse grid, the cells of a fine one that it covers."""
    down, right = (_stride(f, c) for f, c in zip(fine, coarse, strict=True))
    return [
        [i * fine[1] + j for i in _span(r, down, fine[0]) for j in _span(c, right, fine[1])]
        for r in range(coarse[0])
        for c in range(coarse[1])
    ]


def _stride(fine: int, coarse: int) -> int:
    """The step by which so many cells become so few, with or without an incomplete one at the end."""
    return next(s for s in range(1, fine + 1) if coarse in (fine // s, math.ceil(fine / s)))


def _span(cell: int, step: int, size: int) -> range:
    return range(cell * step, min((cell + 1) * step, size))


def swin(seen: ObservedPass) -> list[AttentionLayer]:
    """Swin and its kin: attention within windows, shifted in every other layer; four patches merge between stages."""
    layers: list[AttentionLayer] = []
    stage: _Stage | None = None
    t = 0
    for call, (softmax, *_) in group(seen.softmaxes, "input_dimensions"):
        grid: Any = tuple(int(n) for n in call.given("input_dimensions"))
        stage, below = _enter(stage, grid, 0)
        t = t or len(stage.nodes)
        module: Any = call.module
        dense = _windows(grid, int(module.window_size), int(module.shift_size), len(seen.mask))
        layers.append(_placed(softmax.weights, stage.nodes, averages(below, t), dense))
    return layers


def _enter(stage: _Stage | None, grid: Grid, extra: int) -> tuple[_Stage, list[list[int]]]:
    """The stage that a layer with this grid belongs to, and the places that each of its nodes comes from."""
    if stage is None:
        stage = _first(grid, extra)
    elif stage.grid != grid or stage.extra != extra:
        stage = _next(stage, grid, extra)
        return stage, stage.origins
    return stage, [[p] for p in stage.nodes]


def _placed(weights: Tensor, nodes: list[int], columns: Tensor, dense: Callable[[Tensor], Tensor]) -> AttentionLayer:
    """A layer of one part that `dense` makes a matrix (b, h, q, k) of."""
    rows, columns = torch.tensor(nodes, device=weights.device), columns.to(weights.device)
    return AttentionLayer((weights,), lambda a: place(dense(a), rows, columns))


def _windows(grid: Grid, size: int, shift: int, items: int) -> Callable[[Tensor], Tensor]:
    """Attention (items * windows, h, size², size²) as a matrix (items, h, n, n) of the patches of a grid."""
    height, width = grid
    n = height * width
    down, right = (-(-length // size) * size for length in grid)
    cells = torch.full((down, right), n)  # what fills up the last windows is no patch
    cells[:height, :width] = torch.arange(n).view(height, width)
    wrapped = torch.zeros(down, right, dtype=torch.long)  # what a shift brings from one border to the other
    wrapped[:shift] += 1
    wrapped[:, :shift] += 2

    def cut(grid: Tensor) -> Tensor:
        shifted = grid.roll((-shift, -shift), (0, 1)).view(down // size, size, right // size, size)
        return shifted.transpose(1, 2).reshape(-1, size * size)  # (windows, size²)

    at, side = cut(cells), cut(wrapped)
    together = side[:, :, None] == side[:, None, :]  # the model masks the rest, but not down to 0

    def dense(weights: Tensor) -> Tensor:
        h, where = weights.shape[1], at.to(weights.device)
        laid = weights.new_zeros(items, h, n + 1, n + 1)
        parts = weights.view(items, len(at), h, size * size, size * size).transpose(1, 2)
        laid[:, :, where[:, :, None], where[:, None, :]] = parts * together.to(weights)
        return laid[:, :, :n, :n]

    return dense


def reduced(seen: ObservedPass) -> list[AttentionLayer]:
    """PVT, SegFormer, CvT: all patches are queries, blocks of them are keys; the last stage may add a [CLS] token."""
    layers: list[AttentionLayer] = []
    stage: _Stage | None = None
    t = 0
    for call, (softmax, *_) in group(seen.softmaxes, "height"):
        grid: Grid = (int(call.given("height")), int(call.given("width")))
        a = softmax.weights
        extra = a.shape[-2] - grid[0] * grid[1]
        stage, below = _enter(stage, grid, extra)
        t = t or len(stage.nodes)
        columns = averages(below, t)
        fewer = averages(_keys(grid, a.shape[-1] - extra, extra, seen.config), len(below))
        layers.append(placed(a, stage.nodes, fewer @ columns))
    return layers


def _keys(grid: Grid, count: int, extra: int, config: Any) -> list[list[int]]:
    """The nodes that each key is made of: tokens by themselves, then blocks of patches."""
    tokens = [[k] for k in range(extra)]
    if getattr(config, "linear_attention", False):  # keys are averages over a fixed number of parts of the picture
        side = math.isqrt(count)
        rows, columns = ([range(k * n // side, -(-(k + 1) * n // side)) for k in range(side)] for n in grid)
        return [*tokens, *([extra + i * grid[1] + j for i in r for j in c] for r in rows for c in columns)]
    coarse = next(
        shape
        for s in range(1, max(grid) + 1)
        for shape in ((grid[0] // s, grid[1] // s), (math.ceil(grid[0] / s), math.ceil(grid[1] / s)))
        if shape[0] * shape[1] == count
    )
    return [*tokens, *([extra + p for p in block] for block in _blocks(grid, coarse))]


def levit(seen: ObservedPass) -> list[AttentionLayer]:
    """LeViT: between stages, every other patch of every other row asks all of them."""
    layers: list[AttentionLayer] = []
    nodes = list(range(seen.softmaxes[0].weights.shape[-1]))
    t = len(nodes)
    for softmax in seen.softmaxes:
        a = softmax.weights
        below = [[p] for p in nodes]
        if a.shape[-2] < a.shape[-1]:
            side = math.isqrt(a.shape[-1])
            step = _stride(side, math.isqrt(a.shape[-2]))
            nodes = [nodes[i * side + j] for i in range(0, side, step) for j in range(0, side, step)]
        layers.append(placed(a, nodes, averages(below, t)))
    return layers


def hiera(seen: ObservedPass) -> list[AttentionLayer]:
    """Hiera: windows whose patches lie far apart in its own order; pooled queries are the first of what they pool."""
    config, pixels = seen.config, seen.softmaxes[0].given("pixel_values")
    height, width = (n // s for n, s in zip(pixels.shape[-2:], config.patch_stride, strict=True))
    order = torch.arange(height * width).view(1, height, width)
    for down, right in [config.query_stride] * (len(config.depths) - 1):
        height, width = height // down, width // right
        order = order.view(-1, height, down, width, right).permute(0, 2, 4, 1, 3).reshape(-1, height, width)
    nodes: list[int] = order.flatten().tolist()
    t = len(nodes)
    layers: list[AttentionLayer] = []
    for softmax in seen.softmaxes:
        columns = averages([[p] for p in nodes], t)
        nodes = nodes[: softmax.weights.shape[2] * softmax.weights.shape[3]]
        layers.append(_placed(softmax.weights, nodes, columns, _units))
    return layers


def _units(weights: Tensor) -> Tensor:
    """Attention (b, h, windows, q, k) as a matrix (b, h, q * windows, k * windows)."""
    b, h, n, q, k = weights.shape
    laid = weights.new_zeros(b, h, q, n, k, n)
    window = torch.arange(n, device=weights.device)
    laid[:, :, :, window, :, window] = weights.permute(2, 0, 1, 3, 4)
    return laid.reshape(b, h, q * n, k * n)
