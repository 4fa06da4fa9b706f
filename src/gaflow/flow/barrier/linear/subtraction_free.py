"""Laplacians solved without a single subtraction, for weights that differ by forty orders of magnitude.

Eliminating a node of a Laplacian adds to the weights between its neighbours, and its pivot is the sum of its weights:
nothing cancels (Grassmann, Taksar and Heyman 1985). Node by node, so slow.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.linalg import solve_triangular

from gaflow.flow.barrier.linear.system import System, layered

__all__ = ["careful"]


def careful(system: System) -> Tensor:
    """Potentials (b, n), layer by layer in shares of a pivot: exactly 1 where one weight is all that counts."""
    _, layers, t = system.shape
    weight, source = system.weight, system.source
    up, (right, right_source) = layered(system.up + system.dead, t)[0], layered(system.right, t)
    inner, side = torch.zeros_like(weight[:, 0]), torch.stack([system.target, right[:, 0]], -1)
    done, carried = [], side
    for k in range(layers + 1):
        factor, pivot = _shares(inner, side[..., 0] + up[:, k])
        above = weight[:, k].mT if k < layers else source[..., None]
        half, side = (solve_triangular(factor.mT, x, upper=False, unitriangular=True) for x in (above, side))
        share = half / pivot
        done.append((factor, share, side / pivot))
        inner, carried = share.mT @ half, share.mT @ side
        if k < layers:
            side = torch.stack([carried[..., 0], right[:, k + 1] + carried[..., 1]], -1)
    top = (right_source + carried[:, 0, 1]) / (system.returning + carried[:, 0, 0])
    node = top[:, None, None]
    nodes = [node]
    for factor, share, side in reversed(done):
        node = solve_triangular(factor, side[..., 1:] + share @ node, upper=True, unitriangular=True)
        nodes.append(node)
    return torch.cat(nodes[::-1], 1)[..., 0]


def _shares(inner: Tensor, excess: Tensor) -> tuple[Tensor, Tensor]:
    """Factors `U^T diag(pivot) U` of `diag(inner 1 + excess) - inner` without a subtraction; overwrites `inner`."""
    excess, factor, pivots = excess.clone(), torch.zeros_like(inner), torch.empty_like(excess)
    inner.diagonal(dim1=-2, dim2=-1).zero_()
    for i in range(excess.shape[-1]):
        row = inner[:, i, i + 1 :]
        pivots[:, i] = row.sum(-1) + excess[:, i]
        share = row / pivots[:, i, None]
        factor[:, i, i + 1 :] = -share
        inner[:, i + 1 :, i + 1 :] += row[:, :, None] * share[:, None, :]
        excess[:, i + 1 :] += share * excess[:, i, None]
    return factor, pivots[..., None]
