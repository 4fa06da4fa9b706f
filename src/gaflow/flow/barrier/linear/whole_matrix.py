"""Laplacians of networks so small that calls cost more than arithmetic: factorised whole, in a call or two.

`solve_banded` and `solve_dense` may cancel between layers, which `block_tridiagonal.py` does not. Items that fail here
are solved again by `subtraction_free.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.linalg import cholesky_ex, solve_triangular

from gaflow.flow.barrier.linear.system import System, fill_laplacian
from gaflow.flow.threads import one_core


def solve_banded(system: System) -> Tensor:
    """Potentials (b, n) by a banded Cholesky factorisation, item by item on the CPU.

    Edges lead from a layer to the next one, so no two of their nodes are further than `2 t - 1` apart. LAPACK
    wants column `j` of the lower half, from the diagonal on, as row `j` here: the weight from the node `i` of a layer
    to the node `h` of the one below is at `h (2 t - 1) + t + i` from the beginning of the lower layer.
    """
    from scipy.linalg import get_lapack_funcs  # torch has no banded factorisation; SciPy is slow to import

    b, layers, t = system.shape
    n = system.right.shape[1]
    width = 2 * t
    band = system.weight.new_zeros(b, n, width)
    item_stride = n * width
    layer_stride = t * width
    layer_edges = band.as_strided(system.weight.shape, (item_stride, layer_stride, 1, width - 1), t)
    layer_edges.copy_(system.weight)
    source_edges = band.as_strided((b, t), (item_stride, width - 1), layers * layer_stride + t)
    source_edges.copy_(system.source)
    band.neg_()
    band[..., 0] = system.degree + system.dead
    potentials = torch.empty_like(system.right)
    (solve,) = get_lapack_funcs(["pbsv"], dtype="float64")
    systems = zip(band.mT.numpy(), system.right.numpy(), potentials.numpy(), strict=True)
    for matrix, right, potential in systems:
        _, potential[:], failed = solve(matrix, right, lower=1, overwrite_ab=1)
        if failed:
            potential[:] = torch.nan
    return potentials


@one_core()
def solve_dense(system: System) -> Tensor:
    """Potentials (b, n), with the whole Laplacian as one matrix."""
    b, _, t = system.shape
    n = system.right.shape[1]
    matrix = system.weight.new_zeros(b, n, n)
    strides = (n * n, t * n + t, n, 1)
    layer_edges = matrix.as_strided(system.weight.shape, strides, t * n)
    source_edges = matrix[:, -1, -1 - t : -1]
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    torch.neg(system.weight, out=layer_edges)
    torch.neg(system.source, out=source_edges)
    torch.add(system.degree, system.dead, out=diagonal)
    factor, failed = cholesky_ex(matrix)
    half = solve_triangular(factor, system.right.unsqueeze(-1), upper=False)
    potentials = solve_triangular(factor.mT, half, upper=True).squeeze(-1)
    return potentials.masked_fill_(failed[:, None] > 0, torch.nan)


@one_core()
def solve_odd_even(system: System) -> Tensor:
    """Potentials (b, n): every other layer eliminated at once, the rest as one matrix.

    The super-source is node 0 of a layer above the others; where that leaves the last layer odd, one of dead nodes is
    added. Nodes of odd layers have no edges among themselves, so none of them waits for another.
    """
    b, layers, t = system.shape
    n = system.right.shape[1]
    odd = layers // 2 + 1  # layers that are eliminated
    weight = system.weight.new_zeros(b, 2 * odd, t, t)
    weight[:, :layers] = system.weight
    weight[:, layers, 0] = system.source
    degree = weight.new_ones(b, 2 * odd + 1, t)
    degree.flatten(1)[:, :n] = system.degree + system.dead
    sides = weight.new_zeros(b, 2 * odd + 1, t, 2)  # weights to the ground, right-hand side
    ground, right = sides.flatten(1, 2).unbind(-1)
    ground[:, :t] = system.target
    ground[:, n - 1] = system.returning
    right[:, :n] = system.right

    root = degree[:, 1::2, :, None].rsqrt()
    to_below = weight[:, ::2]
    to_above = weight[:, 1::2].mT
    half = torch.cat([to_below, to_above], -1).mul_(root)  # (b, odd, t, 2 t)
    odd_side = sides[:, 1::2] * root
    inner = half.mT @ half
    carried = half.mT @ odd_side
    carried_below, carried_above = carried.unflatten(-2, (2, t)).unbind(2)
    even_side = sides[:, ::2].clone()
    even_side[:, :-1] += carried_below
    even_side[:, 1:] += carried_above

    even_ground, even_right = even_side.flatten(1, 2).unbind(-1)
    factor, failed = cholesky_ex(_overlay(inner, even_ground))
    even = torch.cholesky_solve(even_right.unsqueeze(-1), factor)
    even.masked_fill_(failed[:, None, None] > 0, torch.nan)
    even = even.unflatten(1, (odd + 1, t))
    neighbours = torch.cat([even[:, :-1], even[:, 1:]], 2)
    odd_potentials = root * (odd_side[..., 1:] + half @ neighbours)
    potentials = torch.empty_like(degree)
    potentials[:, ::2] = even.squeeze(-1)
    potentials[:, 1::2] = odd_potentials.squeeze(-1)
    return potentials.flatten(1)[:, :n]


def _overlay(inner: Tensor, ground: Tensor) -> Tensor:
    """The Laplacian (b, n, n) of weights `inner` (b, k, 2 t, 2 t), each between neighbours, and `ground` (b, n)."""
    b, _, double, _ = inner.shape
    t = double // 2
    n = ground.shape[-1]
    matrix = inner.new_zeros(b, n, n)
    strides = (n * n, double * (n + 1), n, 1)
    for first in (0, 1):  # neighbours overlap in a layer
        blocks = inner[:, first::2]
        if blocks.shape[1]:
            on_diagonal = matrix.as_strided(blocks.shape, strides, first * t * (n + 1))
            on_diagonal.add_(blocks)
    diagonal = fill_laplacian(matrix, ground)
    diagonal.add_(diagonal == 0)
    return matrix
