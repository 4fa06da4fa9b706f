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

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.linalg import cholesky_ex, solve_triangular

__all__ = ["Care", "solve_laplacian"]

Care = Literal["rough", "exact", "careful"]

LARGE = 256
LONG = 4096  # tokens from which on memory counts more than a few per cent of time
ROUGH = range(192, LONG)  # tokens; below, calls and conversion cost more than float32 saves
ENOUGH = 1e-3  # of the right-hand side may be left over: Newton's method corrects it
CORRECTIONS = 3
SMALL = 1e7  # up to this cube of the unknowns one dense factorisation is cheaper than a dozen small calls
MEDIUM = 4e7  # and up to this one, one of half the unknowns


def solve_laplacian(
    weight: Tensor,
    source: Tensor,
    target: Tensor,
    returning: Tensor,
    right: Tensor,
    right_source: Tensor,
    care: Care = "exact",
    top: int | None = None,
    sums: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Potentials (b, l+1, t) and, of the super-source, (b,) whose Laplacian is the right-hand side; target at 0.

    Edge weights: `weight` (b, l, t, t), `source` and `target` (b, t), `returning` (b,). Output nodes from `top` on are
    known to be dead: with a head that reads one token that is nearly all of a layer. `sums` are the weights of each
    node to the layer above and to the one below, (b, l+1, t) each, if they are known. A batch item whose matrix is
    singular in floating point comes back NaN. `care`: "rough" factorises large systems in float32, twice as fast, and
    solves to at least three digits; "exact" is float64, "careful" without cancellation.
    """
    b, layers, t, _ = weight.shape
    if sums is None:
        sums = (
            torch.cat([weight.sum(-2), source[:, None]], 1),
            torch.cat([target[:, None], weight.sum(-1)], 1),
        )
    up, down = sums
    # a dead node has no weight at all: a 1 on the diagonal gives it potential 0
    up = up + ((up == 0) & (down == 0))
    if care == "careful":
        return _careful(weight, source, target, returning, up, right, right_source)
    if b * ((layers + 1) * t) ** 3 <= SMALL:
        return _dense(weight, source, up + down, source.sum(-1) + returning, right, right_source)
    if b * ((layers // 2 + 2) * t) ** 3 <= MEDIUM:
        return _halved(weight, source, target, returning, up + down, right, right_source)
    given = (weight, source, target, returning, up, right, right_source)
    if care == "rough" and t in ROUGH:
        return _rough(*given, down, top or t)
    return _descend(*_eliminate(*given, top or t))


def _dense(
    weight: Tensor, source: Tensor, degree: Tensor, degree_source: Tensor, right: Tensor, right_source: Tensor
) -> tuple[Tensor, Tensor]:
    """The whole Laplacian as one matrix, for networks so small that calls cost more than arithmetic."""
    b, layers, t, _ = weight.shape
    n = (layers + 1) * t + 1
    matrix = weight.new_zeros(b, n, n)
    matrix.as_strided((b, layers, t, t), (n * n, t * n + t, n, 1), t * n).copy_(weight).neg_()  # below the diagonal
    matrix[:, -1, -1 - t : -1] = -source
    matrix.diagonal(dim1=-2, dim2=-1).copy_(torch.cat([degree.flatten(1), degree_source[:, None]], 1))
    factor, failed = cholesky_ex(matrix)
    rights = torch.cat([right.flatten(1), right_source[:, None]], 1)[..., None]
    answer = torch.cholesky_solve(rights, factor)[..., 0] + torch.where(failed > 0, torch.nan, 0.0)[:, None]
    return answer[:, :-1].reshape(b, layers + 1, t), answer[:, -1]


def _halved(
    weight: Tensor,
    source: Tensor,
    target: Tensor,
    returning: Tensor,
    degree: Tensor,
    right: Tensor,
    right_source: Tensor,
) -> tuple[Tensor, Tensor]:
    """Every other layer eliminated in one go, what is left as one matrix: where calls cost more than arithmetic.

    The super-source is node 0 of a layer above the others; where that leaves the last layer odd, one of dead nodes is
    added. Nodes of odd layers have no edges among themselves, so that none of them waits for another.
    """
    b, layers, t, _ = weight.shape
    odd = layers // 2 + 1
    weights = weight.new_zeros(b, 2 * odd, t, t)
    weights[:, :layers], weights[:, layers, 0] = weight, source
    degrees = weight.new_ones(b, 2 * odd + 1, t)
    degrees[:, : layers + 1], degrees[:, layers + 1, 0] = degree, source.sum(-1) + returning
    sides = weight.new_zeros(2, b, 2 * odd + 1, t)  # weights to the ground, right-hand side
    sides[0, :, 0], sides[1, :, : layers + 1] = target, right
    sides[:, :, layers + 1, 0] = torch.stack([returning, right_source])
    sides = sides.movedim(0, -1)
    root = degrees[:, 1::2, :, None].rsqrt()
    half = torch.cat([weights[:, ::2], weights[:, 1::2].mT], -1).mul_(root)  # (b, odd, t, 2 t): to below and above
    side = sides[:, 1::2] * root
    inner, carried = half.mT @ half, (half.mT @ side).unflatten(-2, (2, t))
    kept = sides[:, ::2].clone()
    kept[:, :-1] += carried[:, :, 0]
    kept[:, 1:] += carried[:, :, 1]
    factor, failed = cholesky_ex(_overlay(inner, kept[..., 0].flatten(1)))
    even = (
        torch.cholesky_solve(kept[..., 1].reshape(b, -1, 1), factor)
        + torch.where(failed > 0, torch.nan, 0.0)[:, None, None]
    )
    even = even.unflatten(1, (odd + 1, t))
    nodes = torch.empty_like(degrees)
    nodes[:, ::2] = even[..., 0]
    nodes[:, 1::2] = (root * (side[..., 1:] + half @ torch.cat([even[:, :-1], even[:, 1:]], 2)))[..., 0]
    return nodes[:, : layers + 1], nodes[:, layers + 1, 0]


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


def _eliminate(
    weight: Tensor,
    source: Tensor,
    target: Tensor,
    returning: Tensor,
    up: Tensor,
    right: Tensor,
    right_source: Tensor,
    top: int,
) -> tuple[_Factors, list[Tensor], Tensor]:
    """Layer by layer, LAPACK inside a layer; the right-hand side (b, t, 1) is eliminated along with the matrix."""
    layers, t = weight.shape[1], weight.shape[-1]
    above = [weight[:, k].mT for k in range(layers)] + [source[:, :top, None]]  # columns are the nodes above
    above[layers - 1] = above[layers - 1][..., :top]
    root = (target + up[:, 0]).rsqrt()[..., None]
    half = root * above[0]
    side = root * torch.stack([target, right[:, 0]], -1)  # (b, t, 2): weights to the ground, right-hand side
    factors, halves, sides = [torch.diag_embed(1 / root[..., 0])], [half], [side[..., 1:]]
    for k in range(1, layers + 1):
        size = half.shape[-1]
        inner, carried = _gram(half), half.mT @ side
        ground = carried[..., 0]
        factor = _cholesky(inner, ground + up[:, k, :size])
        rest = torch.stack([ground, right[:, k, :size] + carried[..., 1]], -1)
        given = torch.cat([above[k].mT, rest.mT], -2).mT  # column by column, as LAPACK has it
        both = solve_triangular(factor, given, upper=False)
        half, side = both[..., :-2], both[..., -2:]
        factors.append(factor)
        # of long texts half the memory is worth one more solve with a single column on the way down
        halves.append(half if t < LONG else above[k])
        sides.append(side[..., 1:].clone())
    carried = (half.mT @ side)[:, 0]
    pivot = returning + carried[:, 0]
    return _Factors(factors, halves, pivot), sides, (right_source + carried[:, 1]) / pivot


def _descend(factors: _Factors, sides: list[Tensor], highest: Tensor) -> tuple[Tensor, Tensor]:
    """Potentials from the source down, given the eliminated right-hand side and the potential of the source (b,)."""
    t = len(factors.factor[0][0])
    node, nodes = highest[:, None, None], []
    for k in reversed(range(len(sides))):
        pushed = factors.half[k] @ node
        if k and t >= LONG:
            pushed = solve_triangular(factors.factor[k], pushed, upper=False)
        node = solve_triangular(factors.factor[k].mT, sides[k] + pushed, upper=True)
        nodes.append(node)
    nodes[0] = torch.nn.functional.pad(nodes[0], (0, 0, 0, t - nodes[0].shape[1]))
    return torch.cat(nodes[::-1], -1).mT, highest


def _ascend(factors: _Factors, right: Tensor, right_source: Tensor) -> tuple[list[Tensor], Tensor]:
    """Another right-hand side eliminated, for `_descend`."""
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
    right_source: Tensor,
    down: Tensor,
    top: int,
) -> tuple[Tensor, Tensor]:
    """Factors in float32, and what their solution leaves over solved again; items where that fails in float64."""
    given = (weight, source, target, returning, up, right, right_source)
    factors, sides, highest = _eliminate(*(x.float() for x in given), top=top)
    node, potential = torch.zeros_like(right), torch.zeros_like(right_source)
    limit = ENOUGH * torch.maximum(right.abs().amax((-2, -1)), right_source.abs())
    rest, rest_source, fine = right, right_source, limit < 0
    for _ in range(CORRECTIONS + 1):
        change, change_source = _descend(factors, sides, highest)
        node, potential = node + change, potential + change_source
        rest = right - (up + down) * node
        rest[:, 1:] += (node[:, :-1, None] @ weight.mT)[:, :, 0]
        rest[:, :-1] += (node[:, 1:, None] @ weight)[:, :, 0]
        rest[:, -1] += source * potential[:, None]
        rest_source = right_source - returning * potential + (source * (node[:, -1] - potential[:, None])).sum(-1)
        fine = torch.maximum(rest.abs().amax((-2, -1)), rest_source.abs()) <= limit
        if bool(fine.all()):
            return node, potential
        sides, highest = _ascend(factors, rest.float(), rest_source.float())
    failed = (~fine).nonzero().flatten()
    node[failed], potential[failed] = _descend(*_eliminate(*(x[failed] for x in given), top=top))
    return node, potential


def _gram(half: Tensor) -> Tensor:
    """`half^T half`; of a large one, which is symmetric, only three quarters are multiplied out."""
    size = half.shape[-1]
    if size < LARGE:
        return half.mT @ half
    left, right = half[..., : size // 2], half[..., size // 2 :]
    cross = left.mT @ right
    upper = torch.cat([left.mT @ left, cross], -1)
    return torch.cat([upper, torch.cat([cross.mT, right.mT @ right], -1)], -2)


def _cholesky(inner: Tensor, excess: Tensor) -> Tensor:
    """Lower factor of `diag(inner 1 + excess) - inner`, NaN where there is none; overwrites `inner`."""
    diagonal = inner.diagonal(dim1=-2, dim2=-1)
    diagonal.zero_()
    total = inner.sum(-1).add_(excess)
    inner.neg_()
    diagonal.copy_(total)
    upper = not inner.is_cuda  # what each library does without turning the matrix round
    factor, failed = cholesky_ex(inner, upper=upper)
    factor.add_(torch.where(failed > 0, torch.nan, 0.0)[:, None, None])
    return factor.mT if upper else factor


def _careful(
    weight: Tensor,
    source: Tensor,
    target: Tensor,
    returning: Tensor,
    up: Tensor,
    right: Tensor,
    right_source: Tensor,
) -> tuple[Tensor, Tensor]:
    """The same elimination in shares of a pivot, which are exactly 1 where one weight is all that counts."""
    layers = weight.shape[1]
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
    node, nodes = top[:, None, None], []
    for factor, share, side in reversed(done):
        node = solve_triangular(factor, side[..., 1:] + share @ node, upper=True, unitriangular=True)
        nodes.append(node)
    return torch.cat(nodes[::-1], -1).mT, top


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
