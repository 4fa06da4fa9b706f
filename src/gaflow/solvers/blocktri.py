"""Factorisation of the Laplacian of a layered network: block tridiagonal, with no edges inside a layer.

Eliminating node layer after node layer from the grounded target upwards leaves on layer `k` the matrix
`diag(N 1 + ground + up) - N`: `N >= 0` are the weights between its nodes through the eliminated layers, `ground` those
to the target and `up` those to the layer above. The convention this file owns: **nothing is ever subtracted to form
a diagonal**. `N` and `ground` are products of non-negative numbers and the diagonal is their sum, so weights that
differ by thirty orders of magnitude do not cancel between layers. Inside a layer LAPACK's Cholesky is fast and may
cancel; `careful` eliminates its nodes in the same subtraction-free way (Grassmann, Taksar and Heyman 1985).

Cost: about `3 L t^3` flops for `L` layers of `t` nodes, then `O(L t^2)` per solve.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import cholesky_ex, solve_triangular

__all__ = ["BlockCholesky", "factorize"]


@dataclass(frozen=True)
class BlockCholesky:
    """Factors of a batch of layered Laplacians, the target grounded."""

    weight: Tensor  # (b, l, t, t)
    source: Tensor  # (b, t)
    bottom: Tensor  # (b, t) the diagonal of the input layer, which has no inner weights
    lower: list[Tensor]  # l times (b, t, t): Cholesky factors of node layers 1..l
    pivot: Tensor  # (b,) what is left for the super-source
    ok: Tensor  # (b,) bool: every factorisation succeeded

    def solve(self, right: Tensor, right_source: Tensor) -> tuple[Tensor, Tensor]:
        """Potentials (b, l+1, t) and (b,) whose Laplacian is the right-hand side."""
        layers = self.weight.shape[1]
        up = [right[:, 0] / self.bottom]
        for k in range(layers):
            carried = right[:, k + 1] + _times(self.weight[:, k], up[k])
            up.append(self._inverse(k + 1, carried))
        source = (right_source + (self.source * up[layers]).sum(-1)) / self.pivot
        node = up[layers] + self._inverse(layers, self.source * source[:, None])
        down = [node]
        for k in reversed(range(layers)):
            node = up[k] + self._inverse(k, _times(self.weight[:, k].mT, node))
            down.append(node)
        return torch.stack(down[::-1], 1), source

    def _inverse(self, layer: int, right: Tensor) -> Tensor:
        if layer == 0:
            return right / self.bottom
        return torch.cholesky_solve(right[..., None], self.lower[layer - 1])[..., 0]


def factorize(
    weight: Tensor, source: Tensor, target: Tensor, returning: Tensor, careful: bool = False
) -> BlockCholesky:
    """Factorise the Laplacian with edge weights `weight` (b, l, t, t), `source`, `target` (b, t), `returning` (b,)."""
    layers = weight.shape[1]
    up = torch.cat([weight.sum(-2), source[:, None]], 1)  # (b, l+1, t) weights to the layer above
    bottom = _positive(target + up[:, 0])
    half = weight[:, 0] * bottom.rsqrt()[:, None, :]
    inner, ground = half @ half.mT, _times(weight[:, 0], target / bottom)
    ok = torch.ones_like(returning, dtype=torch.bool)
    lower: list[Tensor] = []
    for k in range(1, layers + 1):
        if careful:
            factor = _careful_cholesky(inner, ground + up[:, k])
        else:
            factor, failed = _cholesky(inner, ground + up[:, k])
            ok &= failed == 0
        lower.append(factor)
        above = weight[:, k].mT if k < layers else source[..., None]
        half = solve_triangular(factor, torch.cat([above, ground[..., None]], -1), upper=False)
        above, carried = half[..., :-1], half[..., -1:]
        ground = (above.mT @ carried)[..., 0]
        if k < layers:
            inner = above.mT @ above
    return BlockCholesky(weight, source, bottom, lower, returning + ground[:, 0], ok)


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector[..., None])[..., 0]


def _positive(diagonal: Tensor) -> Tensor:
    """Dead nodes have weight 0 everywhere; a 1 on the diagonal gives them potential 0."""
    return torch.where(diagonal > 0, diagonal, 1.0)


def _cholesky(inner: Tensor, excess: Tensor) -> tuple[Tensor, Tensor]:
    """Cholesky factor of `diag(inner 1 + excess) - inner` and LAPACK's info; overwrites `inner`."""
    inner.diagonal(dim1=-2, dim2=-1).zero_()
    diagonal = _positive(inner.sum(-1) + excess)
    matrix = inner.neg_()
    matrix.diagonal(dim1=-2, dim2=-1).copy_(diagonal)
    return cholesky_ex(matrix)


def _careful_cholesky(inner: Tensor, excess: Tensor) -> Tensor:
    """The same factor by positive arithmetic only, one node at a time; overwrites `inner`."""
    size = excess.shape[-1]
    excess, factor = excess.clone(), torch.zeros_like(inner)
    inner.diagonal(dim1=-2, dim2=-1).zero_()
    for i in range(size):
        row = inner[:, i, i + 1 :]
        pivot = _positive(row.sum(-1) + excess[:, i])
        share = row / pivot[:, None]
        factor[:, i, i] = pivot.sqrt()
        factor[:, i + 1 :, i] = -row / factor[:, i, i, None]
        inner[:, i + 1 :, i + 1 :] += row[:, :, None] * share[:, None, :]
        excess[:, i + 1 :] += share * excess[:, i, None]
    return factor
