"""Linear systems with the Laplacian of a layered network: block tridiagonal, with no edges inside a layer.

Eliminating node layer after node layer from the grounded target upwards leaves on layer `k` the matrix
`diag(N 1 + ground + up) - N`: `N >= 0` are the weights between its nodes through the eliminated layers, `ground` those
to the target and `up` those to the layer above. The convention this file owns: **nothing is ever subtracted to form
a diagonal**. `N` and `ground` are products of non-negative numbers and the diagonal is their sum, so weights that
differ by thirty orders of magnitude do not cancel between layers. Inside a layer LAPACK's Cholesky is fast and may
cancel; `careful` eliminates its nodes in the same subtraction-free way (Grassmann, Taksar and Heyman 1985).

Cost: about `3 L t^3` flops for `L` layers of `t` nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.linalg import cholesky_ex, solve_triangular

__all__ = ["Care", "solve_laplacian"]

Care = Literal["rough", "exact", "careful"]

LARGE = 256
LONG = 4096  # tokens from which on memory counts more than a few per cent of time
ROUGH = range(128, LONG)  # tokens; below, calls and conversion cost more than float32 saves
ENOUGH = 1e-3  # of the right-hand side may be left over: Newton's method corrects it
CORRECTIONS = 3
SMALL = 1e7  # up to this cube of the unknowns one dense factorisation is cheaper than a dozen small calls
MEDIUM = 4e7  # and up to this one, one of half the unknowns
ONE_SMALL, ONE_MEDIUM = 1e10, 1e12  # the same for one item on a GPU, where a call costs as much as a million flops


def solve_laplacian(
    weight: Tensor,
    source: Tensor,
    target: Tensor,
    returning: Tensor,
    right: Tensor,
    care: Care = "exact",
    top: int | None = None,
    sums: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Potentials (b, n) whose Laplacian is the right-hand side (b, n); target at 0.

    Nodes are those of the layers from the input up, then the super-source: `n = (l + 1) t + 1`. Edge weights: `weight`
    (b, l, t, t), `source` and `target` (b, t), `returning` (b,). Output nodes from `top` on are known to be dead: with
    a head that reads one token that is nearly all of a layer. `sums` are the weights of the edges that enter each node
    and of those that leave it, (b, n) each, if they are known. A batch item whose matrix is singular in floating point
    comes back NaN. `care`: "rough" factorises large systems in float32, twice as fast, and solves to at least three
    digits; "exact" is float64, "careful" without cancellation.
    """
    b, layers, t, _ = weight.shape
    if sums is None:
        sums = (
            torch.cat([weight.sum(-2).flatten(1), source, returning[:, None]], 1),
            torch.cat([target, weight.sum(-1).flatten(1), source.sum(-1, keepdim=True)], 1),
        )
    up, down = sums
    degree = up + down
    dead = degree == 0  # no weight at all: a 1 on the diagonal gives such a node potential 0
    small, medium = (ONE_SMALL, ONE_MEDIUM) if weight.is_cuda and b == 1 else (SMALL, MEDIUM)
    if care != "careful" and b * ((layers + 1) * t) ** 3 <= small:
        return _dense(weight, source, degree.add_(dead), right)
    if care != "careful" and b * ((layers // 2 + 2) * t) ** 3 <= medium:
        return _halved(weight, source, target, returning, degree.add_(dead), right)
    given = (weight, source, target, returning, up + dead, right)
    if care == "careful":
        return _careful(*given)
    if care == "rough" and t in ROUGH:
        return _rough(*given, down, top or t)
    return _descend(*_eliminate(*given, top or t))


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
def _dense(weight: Tensor, source: Tensor, degree: Tensor, right: Tensor) -> Tensor:
    """The whole Laplacian as one matrix, for networks so small that calls cost more than arithmetic."""
    b, layers, t, _ = weight.shape
    n = (layers + 1) * t + 1
    matrix = weight.new_zeros(b, n, n)
    torch.neg(weight, out=matrix.as_strided(weight.shape, (n * n, t * n + t, n, 1), t * n))  # below the diagonal
    torch.neg(source, out=matrix[:, -1, -1 - t : -1])
    matrix.diagonal(dim1=-2, dim2=-1).copy_(degree)
    factor, failed = cholesky_ex(matrix)
    answer = solve_triangular(factor.mT, solve_triangular(factor, right[..., None], upper=False), upper=True)
    return answer[..., 0].masked_fill_(failed[:, None] > 0, torch.nan)


@_alone()
def _halved(weight: Tensor, source: Tensor, target: Tensor, returning: Tensor, degree: Tensor, right: Tensor) -> Tensor:
    """Every other layer eliminated in one go, what is left as one matrix: where calls cost more than arithmetic.

    The super-source is node 0 of a layer above the others; where that leaves the last layer odd, one of dead nodes is
    added. Nodes of odd layers have no edges among themselves, so that none of them waits for another.
    """
    b, layers, t, _ = weight.shape
    odd, n = layers // 2 + 1, right.shape[1]
    weights = weight.new_zeros(b, 2 * odd, t, t)
    weights[:, :layers], weights[:, layers, 0] = weight, source
    degrees = weight.new_ones(b, 2 * odd + 1, t)
    degrees.flatten(1)[:, :n] = degree
    sides = weight.new_zeros(b, 2 * odd + 1, t, 2)  # weights to the ground, right-hand side
    ground, given = sides.flatten(1, 2).unbind(-1)
    ground[:, :t], ground[:, n - 1], given[:, :n] = target, returning, right
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


@dataclass(frozen=True)
class _Factors:
    """What elimination leaves of every layer, from the lowest up; of dead output nodes nothing is kept."""

    factor: list[Tensor]  # (b, t, t) lower Cholesky factors
    half: list[Tensor]  # (b, t, t) their inverses times the weights to the layer above; to the source (b, t, 1)
    pivot: Tensor  # (b,) what is left on the diagonal of the source
    failed: Tensor  # (b,) bool: there are no such factors


def _eliminate(
    weight: Tensor,
    source: Tensor,
    target: Tensor,
    returning: Tensor,
    up: Tensor,
    right: Tensor,
    top: int,
) -> tuple[_Factors, list[Tensor], Tensor]:
    """Layer by layer, LAPACK inside a layer; the right-hand side (b, t, 1) is eliminated along with the matrix."""
    layers, t = weight.shape[1], weight.shape[-1]
    up, (right, right_source) = _layered(up, t)[0], _layered(right, t)
    above = [weight[:, k].mT for k in range(layers)] + [source[:, :top, None]]  # columns are the nodes above
    above[layers - 1] = above[layers - 1][..., :top]
    root = (target + up[:, 0]).rsqrt()[..., None]
    half = root * above[0]
    side = root * torch.stack([target, right[:, 0]], -1)  # (b, t, 2): weights to the ground, right-hand side
    factors, halves, sides, failed = [torch.diag_embed(1 / root[..., 0])], [half], [side[..., 1:]], []
    for k in range(1, layers + 1):
        size = half.shape[-1]
        inner, carried = _gram(half), half.mT @ side
        ground = carried[..., 0]
        factor, info = _cholesky(inner, ground + up[:, k, :size])
        rest = (ground, right[:, k, :size] + carried[..., 1])
        given = torch.cat([above[k].mT, *(x[:, None] for x in rest)], -2).mT  # column by column, as LAPACK has it
        both = solve_triangular(factor, given, upper=False, out=given)
        half, side = both[..., :-2], both[..., -2:]
        factors.append(factor)
        # of long texts half the memory is worth one more solve with a single column on the way down
        halves.append(half if t < LONG else above[k])
        sides.append(side[..., 1:] if t < LONG else side[..., 1:].clone())
        failed.append(info)
    carried = (half.mT @ side)[:, 0]
    pivot = returning + carried[:, 0]
    factors = _Factors(factors, halves, pivot, torch.stack(failed).any(0))
    return factors, sides, (right_source + carried[:, 1]) / pivot


def _layered(nodes: Tensor, t: int) -> tuple[Tensor, Tensor]:
    """Numbers of the nodes, (b, n), as those of the layers (b, l+1, t) and of the super-source (b,)."""
    return nodes[:, :-1].unflatten(1, (-1, t)), nodes[:, -1]


def _descend(factors: _Factors, sides: list[Tensor], highest: Tensor) -> Tensor:
    """Potentials from the source down, given the eliminated right-hand side and the potential of the source (b,)."""
    t = len(factors.factor[0][0])
    node = highest[:, None, None]
    nodes = [node]
    for k in reversed(range(len(sides))):
        if k and t >= LONG:
            given = sides[k] + solve_triangular(factors.factor[k], factors.half[k] @ node, upper=False)
        else:
            given = torch.baddbmm(sides[k], factors.half[k], node)
        node = solve_triangular(factors.factor[k].mT, given, upper=True)
        nodes.append(node)
    nodes[1] = torch.nn.functional.pad(nodes[1], (0, 0, 0, t - nodes[1].shape[1]))
    return torch.cat(nodes[::-1], 1)[..., 0].masked_fill_(factors.failed[:, None], torch.nan)


def _ascend(factors: _Factors, right: Tensor) -> tuple[list[Tensor], Tensor]:
    """Another right-hand side eliminated, for `_descend`."""
    right, right_source = _layered(right, len(factors.factor[0][0]))
    sides = [solve_triangular(factors.factor[0], right[:, 0, :, None], upper=False)]
    for k in range(1, right.shape[1]):
        half, factor = factors.half[k - 1], factors.factor[k]
        given = right[:, k, : factor.shape[-1], None] + half.mT @ sides[-1]
        sides.append(solve_triangular(factor, given, upper=False))
    carried = (factors.half[-1].mT @ sides[-1])[:, 0, 0]
    return sides, (right_source + carried) / factors.pivot


def _rough(
    weight: Tensor,
    source: Tensor,
    target: Tensor,
    returning: Tensor,
    up: Tensor,
    right: Tensor,
    down: Tensor,
    top: int,
) -> Tensor:
    """Factors in float32, and what their solution leaves over solved again; items where that fails in float64."""
    given = (weight, source, target, returning, up, right)
    factors, sides, highest = _eliminate(*(x.float() for x in given), top=top)
    answer, limit = torch.zeros_like(right), ENOUGH * right.abs().amax(-1)
    failed = limit < 0
    for _ in range(CORRECTIONS + 1):
        answer = answer + _descend(factors, sides, highest)
        node, potential = _layered(answer, weight.shape[-1])
        rest = right - (up + down) * answer
        inner, outer = _layered(rest, weight.shape[-1])
        inner[:, 1:] += (node[:, :-1, None] @ weight.mT)[:, :, 0]
        inner[:, :-1] += (node[:, 1:, None] @ weight)[:, :, 0]
        inner[:, -1] += source * potential[:, None]
        outer += (source * node[:, -1]).sum(-1)
        failed = ~(rest.abs().amax(-1) <= limit)
        if not bool(failed.any()):
            return answer
        sides, highest = _ascend(factors, rest.float())
    items = failed.nonzero().flatten()
    answer[items] = _descend(*_eliminate(*(x[items] for x in given), top=top))
    return answer


def _gram(half: Tensor) -> Tensor:
    """`half^T half`; of a large one, which is symmetric, only three quarters are multiplied out."""
    size = half.shape[-1]
    if size < LARGE:
        return half.mT @ half
    left, right = half[..., : size // 2], half[..., size // 2 :]
    cross = left.mT @ right
    upper = torch.cat([left.mT @ left, cross], -1)
    return torch.cat([upper, torch.cat([cross.mT, right.mT @ right], -1)], -2)


def _cholesky(inner: Tensor, excess: Tensor) -> tuple[Tensor, Tensor]:
    """Lower factor of `diag(inner 1 + excess) - inner`, and above 0 where there is none; overwrites `inner`."""
    diagonal = inner.diagonal(dim1=-2, dim2=-1)
    diagonal.zero_()
    total = inner.sum(-1).add_(excess)
    inner.neg_()
    diagonal.copy_(total)
    upper = not inner.is_cuda  # what each library does without turning the matrix round
    factor, failed = cholesky_ex(inner, upper=upper)
    return (factor.mT if upper else factor), failed


def _careful(
    weight: Tensor,
    source: Tensor,
    target: Tensor,
    returning: Tensor,
    up: Tensor,
    right: Tensor,
) -> Tensor:
    """The same elimination in shares of a pivot, which are exactly 1 where one weight is all that counts."""
    layers, t = weight.shape[1], weight.shape[-1]
    up, (right, right_source) = _layered(up, t)[0], _layered(right, t)
    inner, side = torch.zeros_like(weight[:, 0]), torch.stack([target, right[:, 0]], -1)
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
    top = (right_source + carried[:, 0, 1]) / (returning + carried[:, 0, 0])
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
