"""Laplacians of networks so small that calls cost more than arithmetic: factorised whole, in a call or two.

`banded` and `dense` may cancel between layers, which `blocktri.py` does not; what fails here is solved again by
`careful.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.linalg import cholesky_ex, solve_triangular

from gaflow.flow.barrier.linear.system import System

__all__ = ["banded", "dense", "halved", "lapack"]


@cache
def lapack() -> Any:
    """SciPy's LAPACK, which has the banded factorisation that torch lacks; None where SciPy is not installed."""
    try:
        from scipy.linalg import lapack as found
    except ImportError:
        return None
    return found


def banded(system: System) -> Tensor:
    """Potentials (b, n) by a banded Cholesky factorisation, item by item on the CPU.

    Edges lead from a layer to the next one, so that no two of their nodes are further than `2 t - 1` apart. LAPACK
    wants column `j` of the lower half, from the diagonal on, as row `j` here: the weight from the node `i` of a layer
    to the node `h` of the one below is at `h (2 t - 1) + t + i` from the beginning of the lower layer.
    """
    (b, layers, t), width = system.shape, 2 * system.shape[2]
    n = (layers + 1) * t + 1
    band, each = system.weight.new_zeros(b, n, width), n * width
    band.as_strided(system.weight.shape, (each, t * width, 1, width - 1), t).copy_(system.weight)
    band.as_strided((b, t), (each, width - 1), layers * t * width + t).copy_(system.source)
    band.neg_()[..., 0] = system.degree + system.dead
    answer = torch.empty_like(system.right)
    for item, right, found in zip(band.mT.numpy(), system.right.numpy(), answer.numpy(), strict=True):
        _, found[:], failed = lapack().dpbsv(item, right, lower=1, overwrite_ab=1)
        if failed:
            found[:] = torch.nan
    return answer


@contextmanager
def _alone() -> Iterator[None]:
    """One thread: to wake others takes longer than such small factorisations do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@_alone()
def dense(system: System) -> Tensor:
    """Potentials (b, n), with the whole Laplacian as one matrix."""
    (b, layers, t), weight = system.shape, system.weight
    n = (layers + 1) * t + 1
    matrix = weight.new_zeros(b, n, n)
    torch.neg(weight, out=matrix.as_strided(weight.shape, (n * n, t * n + t, n, 1), t * n))  # below the diagonal
    torch.neg(system.source, out=matrix[:, -1, -1 - t : -1])
    torch.add(system.degree, system.dead, out=matrix.diagonal(dim1=-2, dim2=-1))
    factor, failed = cholesky_ex(matrix)
    answer = solve_triangular(factor.mT, solve_triangular(factor, system.right[..., None], upper=False), upper=True)
    return answer[..., 0].masked_fill_(failed[:, None] > 0, torch.nan)


@_alone()
def halved(system: System) -> Tensor:
    """Potentials (b, n): every other layer eliminated in one go, what is left as one matrix.

    The super-source is node 0 of a layer above the others; where that leaves the last layer odd, one of dead nodes is
    added. Nodes of odd layers have no edges among themselves, so that none of them waits for another.
    """
    (b, layers, t), weight = system.shape, system.weight
    odd, n = layers // 2 + 1, system.right.shape[1]
    weights = weight.new_zeros(b, 2 * odd, t, t)
    weights[:, :layers], weights[:, layers, 0] = weight, system.source
    degrees = weight.new_ones(b, 2 * odd + 1, t)
    degrees.flatten(1)[:, :n] = system.degree + system.dead
    sides = weight.new_zeros(b, 2 * odd + 1, t, 2)  # weights to the ground, right-hand side
    ground, given = sides.flatten(1, 2).unbind(-1)
    ground[:, :t], ground[:, n - 1], given[:, :n] = system.target, system.returning, system.right
    root = degrees[:, 1::2, :, None].rsqrt()
    half = torch.cat([weights[:, ::2], weights[:, 1::2].mT], -1).mul_(root)  # (b, odd, t, 2 t): to below and above
    side = sides[:, 1::2] * root
    inner, carried = half.mT @ half, (half.mT @ side).unflatten(-2, (2, t))
    kept = sides[:, ::2].clone()
    kept[:, :-1] += carried[:, :, 0]
    kept[:, 1:] += carried[:, :, 1]
    factor, failed = cholesky_ex(_overlay(inner, kept[..., 0].flatten(1)))
    even = torch.cholesky_solve(kept[..., 1].reshape(b, -1, 1), factor).masked_fill_(
        failed[:, None, None] > 0, torch.nan
    )
    even = even.unflatten(1, (odd + 1, t))
    nodes = torch.empty_like(degrees)
    nodes[:, ::2] = even[..., 0]
    nodes[:, 1::2] = (root * (side[..., 1:] + half @ torch.cat([even[:, :-1], even[:, 1:]], 2)))[..., 0]
    return nodes.flatten(1)[:, :n]


def _overlay(inner: Tensor, ground: Tensor) -> Tensor:
    """The Laplacian (b, n, n) of weights `inner` (b, k, 2 t, 2 t), each between neighbours, and `ground` (b, n)."""
    b, double = len(inner), inner.shape[-1]
    t, n = double // 2, ground.shape[-1]
    matrix = inner.new_zeros(b, n, n)
    for first in (0, 1):  # neighbours overlap in a layer
        blocks = inner[:, first::2]
        if blocks.shape[1]:
            shape, steps = (b, blocks.shape[1], double, double), (n * n, double * (n + 1), n, 1)
            matrix.as_strided(shape, steps, first * t * (n + 1)).add_(blocks)
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    diagonal.zero_()
    total = matrix.sum(-1).add_(ground)
    matrix.neg_()
    diagonal.copy_(total + (total == 0))
    return matrix
