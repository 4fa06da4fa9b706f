"""Laplacians solved without a single subtraction, for weights that differ by forty orders of magnitude.

Eliminating a node of a Laplacian adds to the weights between its neighbours, and its pivot is the sum of its weights:
nothing cancels (Grassmann, Taksar and Heyman 1985). Node by node, so slow. Nodes between which weights are large move
together, and by how much they do not decides the flow between them. So the convention this file owns: **a potential is
its nearest neighbour's plus a difference**, in several floats that hold both.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.linalg import solve_triangular

from gaflow.flow.barrier.linear.system import System, split_layers
from gaflow.flow.barrier.multifloat import accumulate, total


def solve_subtraction_free(system: System, floats: int) -> Tensor:
    """Potentials (floats, b, n), layer by layer in shares of a pivot: exactly 1 where one weight is all that counts."""
    _, layers, t = system.shape
    up, _ = split_layers(system.up, t)
    dead, _ = split_layers(system.dead, t)  # such a node hangs on the target
    right, right_source = split_layers(system.right, t)
    inner = torch.zeros_like(system.weight[:, 0])
    side = torch.stack([system.target + dead[:, 0], right[:, 0]], -1)  # weights to the ground, right-hand side
    carried = side
    eliminated = []
    for k in range(layers + 1):
        ground = side[..., 0]
        factor, pivot = _factorise(inner, ground + up[:, k])
        link = system.weight[:, k].mT if k < layers else system.source.unsqueeze(-1)
        half = solve_triangular(factor.mT, link, upper=False, unitriangular=True)
        side = solve_triangular(factor.mT, side, upper=False, unitriangular=True)
        share = half / pivot
        eliminated.append((factor, share, side / pivot))
        inner = share.mT @ half
        carried = share.mT @ side
        if k < layers:
            ground, carried_right = carried.unbind(-1)
            side = torch.stack([ground + dead[:, k + 1], right[:, k + 1] + carried_right], -1)
    ground, carried_right = carried[:, 0].unbind(-1)
    source_potential = (right_source + carried_right) / (system.returning + ground)
    node = source_potential.new_zeros(floats, len(source_potential), 1)
    node[0, :, 0] = source_potential
    nodes = [node]
    for factor, share, side in reversed(eliminated):
        node = _substitute(factor, share, side, node)
        nodes.append(node)
    nodes.reverse()
    return torch.cat(nodes, -1)


def _substitute(factor: Tensor, share: Tensor, side: Tensor, above: Tensor) -> Tensor:
    """Potentials (floats, b, t) of a layer from those `above`: means of their neighbours', in shares of the pivot."""
    ground_share, right = side.unbind(-1)
    neighbours = torch.cat([above, torch.zeros_like(above[..., :1])], -1)  # the target, at 0, is one of them
    shares = torch.cat([-factor, share, ground_share.unsqueeze(-1)], -1)
    t = share.shape[1]
    for i in reversed(range(t)):
        node_shares = shares[:, i, i + 1 :]
        nearest = node_shares.argmax(-1, keepdim=True)
        base = neighbours.gather(-1, nearest.expand(len(above), -1, 1))
        difference = total(neighbours - base)
        change = (node_shares * difference).sum(-1) + right[:, i]
        potential = accumulate(base, change.unsqueeze(-1))
        neighbours = torch.cat([potential, neighbours], -1)
    return neighbours[..., :t]


def _factorise(inner: Tensor, excess: Tensor) -> tuple[Tensor, Tensor]:
    """Factors `U^T diag(pivot) U` of `diag(inner 1 + excess) - inner` without a subtraction; overwrites `inner`."""
    excess = excess.clone()
    factor = torch.zeros_like(inner)
    pivots = torch.empty_like(excess)
    inner.diagonal(dim1=-2, dim2=-1).zero_()
    for i in range(excess.shape[-1]):
        after = slice(i + 1, None)
        row = inner[:, i, after]
        pivot = row.sum(-1) + excess[:, i]
        share = row / pivot[:, None]
        pivots[:, i] = pivot
        factor[:, i, after] = -share
        inner[:, after, after] += row.unsqueeze(2) * share.unsqueeze(1)
        excess[:, after] += share * excess[:, i, None]
    return factor, pivots[..., None]
