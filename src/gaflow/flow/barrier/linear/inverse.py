"""Inverses of the Laplacians of layers, which is all that a chain of layers needs besides products.

Off the diagonal such a matrix has no number above 0, and its inverse has none below 0. So with halves `P` and `C` on
the diagonal and `B` beside it, each of these is a sum of numbers of one sign, but for the diagonal of `S`, where
Cholesky's method subtracts the same:

    G = P^-1 B        S = C - B^T G        X = G S^-1        [ P^-1 + X G^T    -X  ]
                                                             [     -X^T       S^-1 ]

The convention this file owns: **an item without an inverse comes back as NaN**, which spreads to all its potentials.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.linalg import cholesky_ex, solve_triangular

from gaflow.flow.barrier import gpu

LEAF_NODES = 64  # at most in a matrix that is inverted as a whole: one program of a GPU holds it in its registers


def invert(matrix: Tensor) -> Tensor:
    """The inverses (b, t, t) of positive definite matrices, which are overwritten."""
    inverse = torch.empty_like(matrix)
    _invert(matrix, inverse)
    return inverse


def _invert(matrix: Tensor, inverse: Tensor) -> None:
    """Invert matrices into a place for it, which may be part of a larger matrix, as they may."""
    if matrix.shape[-1] > LEAF_NODES:
        _invert_halves(matrix, inverse)
    elif gpu.has_kernels(matrix):
        gpu.invert(matrix, inverse)
    else:
        inverse.copy_(_invert_whole(matrix))


def _invert_halves(matrix: Tensor, inverse: Tensor) -> None:
    """The inverse from those of two halves."""
    leaves = -(-matrix.shape[-1] // LEAF_NODES)
    middle = leaves // 2 * LEAF_NODES
    beside = matrix[:, :middle, middle:]
    rest = matrix[:, middle:, middle:]
    first = inverse[:, :middle, :middle]
    across = inverse[:, :middle, middle:]
    second = inverse[:, middle:, middle:]
    _invert(matrix[:, :middle, :middle], first)
    product = first @ beside
    rest.baddbmm_(beside.mT, product, alpha=-1)
    _invert(rest, second)
    across.baddbmm_(product, second, beta=0, alpha=-1)
    first.baddbmm_(across, product.mT, alpha=-1)
    inverse[:, middle:, :middle] = across.mT


def _invert_whole(matrix: Tensor) -> Tensor:
    """The inverse by Cholesky's method."""
    factor, failed = cholesky_ex(matrix)
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    half = solve_triangular(factor, identity.expand_as(matrix), upper=False)
    inverse = half.mT @ half
    return inverse.masked_fill_(failed[:, None, None] > 0, torch.nan)
