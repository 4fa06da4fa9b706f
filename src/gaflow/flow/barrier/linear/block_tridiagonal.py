"""Laplacians of layered networks, eliminated layer by layer: block tridiagonal, no edges inside a layer.

Eliminating layers from the grounded target upwards, or from the super-source downwards, leaves on the next layer the
matrix `diag(N 1 + ground + onwards) - N`: `N >= 0` are the weights between its nodes through the eliminated layers,
`ground` those to the target and `onwards` those to the layer after it. The layer where the ends meet has the `N` and
`ground` of both. The convention this file owns: **nothing is ever subtracted to form a diagonal**. `N` and `ground` are
products of non-negative numbers and the diagonal is their sum, so weights that differ by thirty orders of magnitude do
not cancel between layers. Inside a layer LAPACK's Cholesky is fast and may cancel; see `careful.py`.

The ends meet in the output layer, of which often only one node is alive. A batch on a GPU, where the number of calls
counts, is eliminated from both ends at once, which are one batch of twice the size; they meet in the middle.

Cost: about `3 L t^3` flops for `L` layers of `t` nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.linalg import cholesky_ex, solve_triangular
from torch.nn.functional import pad

from gaflow.flow.barrier.linear.system import System, layered

__all__ = ["blocks", "rough"]

LARGE = 256
LONG = 4096  # tokens from which on memory counts more than a few per cent of time
ENOUGH = 1e-2  # of the right-hand side may be left over: Newton's method corrects it
CORRECTIONS = 5


def blocks(system: System) -> Tensor:
    """Potentials (b, n), in float64."""
    factors, right = _eliminate(system, torch.float64)
    return _substitute(factors, right)


def rough(system: System) -> Tensor:
    """The same with factors in float32, and what their solution leaves over solved again; float64 where that fails."""
    factors, right = _eliminate(system, torch.float32)
    answer, limit = torch.zeros_like(system.right), ENOUGH * system.right.abs().amax(-1)
    failed = limit < 0
    for _ in range(CORRECTIONS + 1):
        answer = answer + _substitute(factors, right)
        rest = _left_over(system, answer)
        failed = ~(rest.abs().amax(-1) <= limit)
        if not bool(failed.any()):
            return answer
        right = _eliminate_right(factors, rest.float())
    items = failed.nonzero().flatten()
    answer[items] = blocks(system.take(items))
    return answer


def _left_over(system: System, answer: Tensor) -> Tensor:
    """The right-hand side (b, n) less the Laplacian of an answer."""
    weight, source, t = system.weight, system.source, system.shape[2]
    node, potential = layered(answer, t)
    rest = system.right - system.degree * answer
    inner, outer = layered(rest, t)
    inner[:, 1:] += (node[:, :-1, None] @ weight.mT)[:, :, 0]
    inner[:, :-1] += (node[:, 1:, None] @ weight)[:, :, 0]
    inner[:, -1] += source * potential[:, None]
    outer += (source * node[:, -1]).sum(-1)
    return rest


@dataclass
class _Chain:
    """The layers of one end, the outermost first, and what elimination leaves of each, which it fills in."""

    ground: Tensor  # (b, t) weights of the outermost layer to the target
    links: list[tuple[Tensor, ...]]  # (b, t, t') weights from each layer to the next one inwards; two make one batch
    onwards: list[Tensor]  # (b, t) their sums
    right: list[Tensor]  # (b, t)
    factor: list[Tensor] = field(default_factory=list)  # (b, t, t) lower Cholesky factors; first (b, t, 1), a diagonal
    half: list[Tensor] = field(
        default_factory=list
    )  # (b, t, t') their inverses times the links; of long texts the links
    side: list[Tensor] = field(default_factory=list)  # (b, t, 1) and times the right-hand side
    failed: list[Tensor] = field(default_factory=list)  # (b,) above 0 where there are no such factors

    def eliminate(self) -> tuple[Tensor, Tensor]:
        """From the outermost layer inwards, the right-hand side along with the matrix.

        What is left on the layer where the ends meet: the weights inside it (b, t', t'), those to the target and the
        right-hand side (b, t', 2).
        """
        root = (self.ground + self.onwards[0]).rsqrt()[..., None]  # no weights inside the outermost layer
        half = root * _whole(self.links[0]).to(root.dtype)
        side = root * torch.stack([self.ground, self.right[0]], -1)
        self.factor, self.half, self.side = [1 / root], [half], [side[..., 1:]]
        for link, onwards, right in zip(self.links[1:], self.onwards[1:], self.right[1:], strict=True):
            inner, carried = _gram(half), half.mT @ side
            factor, failed = _cholesky(inner, carried[..., 0] + onwards)
            carried[..., 1].add_(right)
            given = _beside(link, carried)
            both = solve_triangular(factor, given, upper=False, out=given)
            half, side = both[..., :-2], both[..., -2:]
            long = half.shape[-1] >= LONG  # half the memory is then worth one more solve with a single column
            self.factor.append(factor)
            self.half.append(_whole(link) if long else half)
            self.side.append(side[..., 1:].clone() if long else side[..., 1:])
            self.failed.append(failed)
        return _gram(half), half.mT @ side

    def eliminate_right(self, right: list[Tensor]) -> Tensor:
        """Another right-hand side, with the same factors; what of it arrives at the layer where the ends meet."""
        self.side = [right[0][..., None] / self.factor[0]]
        for factor, half, given in zip(self.factor[1:], self.half[:-1], right[1:], strict=True):
            arrived = given[..., None] + half.mT @ self.side[-1]
            self.side.append(solve_triangular(factor, arrived, upper=False))
        return (self.half[-1].mT @ self.side[-1])[..., 0]

    def substitute(self, node: Tensor) -> list[Tensor]:
        """Potentials (b, t, 1) of every layer, outermost first, given those where the ends meet."""
        nodes = []
        for factor, half, side in zip(self.factor[:0:-1], self.half[:0:-1], self.side[:0:-1], strict=True):
            if half.shape[-1] < LONG:
                given = torch.baddbmm(side, half, node)
            else:
                given = side + solve_triangular(factor, half @ node, upper=False)
            node = solve_triangular(factor.mT, given, upper=True)
            nodes.append(node)
        nodes.append(torch.baddbmm(self.side[0], self.half[0], node) / self.factor[0])
        return nodes[::-1]


class _Ends(NamedTuple):
    """How the nodes of a system belong to its ends."""

    t: int
    top: int  # output nodes from here on are left out: they are dead
    middle: int  # the layer where the ends meet

    def split(self, nodes: Tensor) -> tuple[list[Tensor], Tensor, list[Tensor]]:
        """Numbers (b, n) of the layers below the meeting, outermost first, of this layer, and of those above."""
        inner, outer = layered(nodes, self.t)
        each = [*inner.unbind(1), outer[:, None]]
        each[-2] = each[-2][:, : self.top]
        return each[: self.middle], each[self.middle], each[: self.middle : -1]


@dataclass(frozen=True)
class _Factors:
    """What elimination leaves of a system."""

    chains: list[_Chain]  # from the target up and from the super-source down; or both as one batch
    ends: _Ends
    factor: Tensor  # (b, t, t) of the layer where they meet
    failed: Tensor  # (b,) bool: there are no such factors


def _eliminate(system: System, dtype: torch.dtype) -> tuple[_Factors, Tensor]:
    """Factors in this precision, and what of the right-hand side arrives where the ends meet, (b, t)."""
    b, layers, t = system.shape
    together = _together(system)
    # a batch needs ends of one shape, so that there no output node is left out
    ends = _Ends(t, t, (layers + 1) // 2) if together else _Ends(t, system.top, layers)
    chains = _chains(system, dtype, ends)
    chains = [_joined(*chains)] if together else chains
    found = [chain.eliminate() for chain in chains]
    (inner, others), (carried, more) = (
        [x for each in part for x in each.split(b)] for part in zip(*found, strict=True)
    )
    carried = carried + more
    factor, failed = _cholesky(inner.add_(others), carried[..., 0] + ends.split(system.dead.to(dtype))[1])
    fails = [x for chain in chains for each in chain.failed for x in each.split(b)]
    factors = _Factors(chains, ends, factor, torch.stack([*fails, failed]).any(0))
    return factors, carried[..., 1] + ends.split(system.right.to(dtype))[1]


def _together(system: System) -> bool:
    """Whether both ends are one batch; the two of a single item, large matrices, are faster one after the other."""
    b, _, t = system.shape
    return system.weight.is_cuda and b > 1 and t < LONG  # joined links are copies, and long texts need the memory


def _chains(system: System, dtype: torch.dtype, ends: _Ends) -> list[_Chain]:
    """The two ends of a system."""
    links = [*system.weight.mT.unbind(1), system.source[..., None]]  # columns are the nodes above
    links[-2], links[-1] = links[-2][..., : ends.top], links[-1][:, : ends.top]
    up, down, right = (x.to(dtype) for x in (system.up + system.dead, system.down + system.dead, system.right))
    below, _, above = ends.split(right)
    lower = [(link,) for link in links[: ends.middle]]
    upper = [(link.mT,) for link in links[: ends.middle - 1 : -1]]
    ground, returning = system.target.to(dtype), system.returning[:, None].to(dtype)
    return [_Chain(ground, lower, ends.split(up)[0], below), _Chain(returning, upper, ends.split(down)[2], above)]


def _joined(lower: _Chain, upper: _Chain) -> _Chain:
    """Both ends as one batch: the super-source is one of a layer of nodes, the others dead."""
    rest = lower.ground.shape[-1] - 1
    upper.ground, upper.right[0] = pad(upper.ground, (0, rest)), pad(upper.right[0], (0, rest))
    upper.onwards[0] = pad(upper.onwards[0], (0, rest), value=1.0)
    upper.links[0] = (pad(upper.links[0][0], (0, 0, 0, rest)),)
    if len(lower.links) < len(upper.links):  # a node in the middle of every edge to the target evens them out
        lower.ground = 2 * lower.ground
        lower.links.insert(0, (torch.diag_embed(lower.ground),))
        lower.onwards.insert(0, lower.ground + (lower.ground == 0))
        lower.right.insert(0, torch.zeros_like(lower.ground))
    return _Chain(
        torch.cat([lower.ground, upper.ground]),
        [a + b for a, b in zip(lower.links, upper.links, strict=True)],
        [torch.cat(pair) for pair in zip(lower.onwards, upper.onwards, strict=True)],
        [torch.cat(pair) for pair in zip(lower.right, upper.right, strict=True)],
    )


def _eliminate_right(factors: _Factors, right: Tensor) -> Tensor:
    """Another right-hand side (b, n), and what of it arrives where the ends meet, (b, t); not for joined ends."""
    below, middle, above = factors.ends.split(right)
    arrived = [chain.eliminate_right(x) for chain, x in zip(factors.chains, (below, above), strict=True)]
    return middle + arrived[0] + arrived[1]


def _substitute(factors: _Factors, right: Tensor) -> Tensor:
    """Potentials (b, n), given what of a right-hand side arrives where the ends meet."""
    t, top, middle = factors.ends
    first = solve_triangular(factors.factor, right[..., None], upper=False)
    node = solve_triangular(factors.factor.mT, first, upper=True)
    if len(factors.chains) == 1:
        both = factors.chains[0].substitute(torch.cat([node, node]))
        below, above = [x[: len(node)] for x in both], [x[len(node) :] for x in both]
        below, above[0] = below[-middle:], above[0][:, :1]  # what only made them alike is left out
    else:
        below, above = (chain.substitute(node) for chain in factors.chains)
    *each, source = *below, node, *above[::-1]
    each[-1] = pad(each[-1], (0, 0, 0, t - top))
    return torch.cat([*each, source], 1)[..., 0].masked_fill_(factors.failed[:, None], torch.nan)


def _whole(link: tuple[Tensor, ...]) -> Tensor:
    return link[0] if len(link) == 1 else torch.cat(link)


def _beside(link: tuple[Tensor, ...], columns: Tensor) -> Tensor:
    """A matrix (b, t, t') and two more columns in one, laid out as the matrix is."""
    b, size, wide = link[0].shape
    shape = len(link) * b, size, wide + 2
    turned = link[0].stride(-1) != 1
    both = columns.new_empty(shape[0], shape[2], size).mT if turned else columns.new_empty(shape)
    for part, given in zip(both.split(b), link, strict=True):
        part[..., :-2] = given
    both[..., -2:] = columns
    return both


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
