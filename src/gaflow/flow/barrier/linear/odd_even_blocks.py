"""Laplacians of layered networks in few large products: every other layer at once, the rest from both ends at once.

Nodes of an odd layer have no edges among themselves, so all odd layers are eliminated together: of their weights to
the layers below and above, divided by roots of degrees, products are the weights inside and between the even layers.
The super-source is the first node of a layer above the others. The chain of even layers is then eliminated from both
ends, which are one batch of twice the size. Of twelve layers of unknowns, four are then left to wait for one another.

As in `block_tridiagonal.py`, **nothing is ever subtracted to form a diagonal**. Layers are not factorised but inverted
(`inverse.py`): all that is left is products, and the inverse of such a matrix has no negative number, nor have the
weights that it is multiplied with.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from gaflow.flow.barrier import gpu
from gaflow.flow.barrier.linear.inverse import invert
from gaflow.flow.barrier.linear.system import System, fill_laplacian


def solve_odd_even_blocks(system: System) -> Tensor:
    """Potentials (b, n); NaN for an item without an inverse."""
    if gpu.has_kernels(system.right):
        return _solve_with_kernels(system)
    _, _, t = system.shape
    added = t - 1  # dead nodes beside the super-source
    degree = pad(system.degree + system.dead, (0, added), value=1.0)
    right = pad(system.right, (0, added))
    degree = _by_layer(degree, t)
    right = _by_layer(right, t)
    ground = torch.zeros_like(right)  # weights to the target
    ground[0] = system.target
    ground[-1, :, 0] = system.returning
    sides = torch.stack([ground, right], -1)  # (l+2, b, t, 2)

    root = degree[1::2].rsqrt().unsqueeze(-1)
    odd = _OddLayers(
        root=root,
        below=_weights_to_below(system, root),
        above=_weights_to_above(system, root),
        side=root * sides[1::2],
    )
    dead = _by_layer(pad(system.dead, (0, added), value=1.0), t)
    chain = odd.eliminate(sides[::2].clone(), dead[::2])
    even_potentials = chain.solve()
    potentials = torch.empty_like(right)
    potentials[::2] = even_potentials.squeeze(-1)
    potentials[1::2] = odd.substitute(even_potentials).squeeze(-1)
    return potentials.transpose(0, 1).flatten(1)[:, : system.right.shape[1]]


def _by_layer(nodes: Tensor, t: int) -> Tensor:
    """Numbers of nodes (b, layers t), the layers first: (layers, b, t)."""
    return nodes.unflatten(1, (-1, t)).transpose(0, 1)


def _weights_to_below(system: System, root: Tensor) -> Tensor:
    """From the nodes of odd layers to those of the layers below, scaled: (odd, b, t, t)."""
    b, layers, t = system.shape
    weight = system.weight.transpose(0, 1)
    scaled = root.new_empty(len(root), b, t, t)
    inner = (layers + 1) // 2
    torch.mul(weight[::2], root[:inner], out=scaled[:inner])
    if inner < len(root):  # the highest odd layer is that of the super-source
        scaled[inner].zero_()
        torch.mul(system.source, root[inner, :, 0], out=scaled[inner, :, 0])
    return scaled


def _weights_to_above(system: System, root: Tensor) -> Tensor:
    """From the nodes of odd layers to those of the layers above, scaled: (odd, b, t, t), or one layer less."""
    b, layers, t = system.shape
    weight = system.weight.transpose(0, 1)
    scaled = root.new_empty((layers + 1) // 2, b, t, t)
    inner = layers // 2
    torch.mul(weight[1::2].mT, root[:inner], out=scaled[:inner])
    if inner < len(scaled):  # the highest even layer is that of the super-source
        scaled[inner].zero_()
        torch.mul(system.source, root[inner].squeeze(-1), out=scaled[inner, :, :, 0])
    return scaled


@dataclass(frozen=True)
class _OddLayers:
    """The layers that are eliminated at once, from the lowest up; all numbers divided by roots of degrees."""

    root: Tensor  # (odd, b, t, 1) one over the roots
    below: Tensor  # (odd, b, t, t) weights to the even layer below
    above: Tensor  # (odd, b, t, t) to the one above; there may be none above the last
    side: Tensor  # (odd, b, t, 2) weights to the target, right-hand side

    def eliminate(self, side: Tensor, dead: Tensor) -> _Chain:
        """What is left: even layers with their own sides (even, b, t, 2), and which of their nodes are `dead`."""
        even, b, t, _ = side.shape
        odd = len(self.below)
        with_above = len(self.above)
        below = self.below.flatten(0, 1)
        above = self.above.flatten(0, 1)
        odd_side = self.side.flatten(0, 1)
        inner = below.new_empty(even, b, t, t)
        torch.bmm(below.mT, below, out=inner[:odd].flatten(0, 1))
        inner[odd:].zero_()
        inner[1:].flatten(0, 1).baddbmm_(above.mT, above)
        side[:odd].flatten(0, 1).baddbmm_(below.mT, odd_side)
        side[1:].flatten(0, 1).baddbmm_(above.mT, odd_side[: with_above * b])
        links = torch.bmm(below[: with_above * b].mT, above).unflatten(0, (with_above, b))
        return _Chain(inner=inner, links=links, side=side, dead=dead)

    def substitute(self, even: Tensor) -> Tensor:
        """Potentials (odd, b, t, 1) from those of the even layers."""
        odd = len(self.below)
        with_above = len(self.above)
        from_below = self.below @ even[:odd]
        scaled = from_below.add_(self.side[..., 1:])
        scaled[:with_above] += self.above @ even[1:]
        return scaled.mul_(self.root)


@dataclass(frozen=True)
class _End:
    """A layer of a chain that is eliminated, and the one that this leaves something on."""

    layer: int
    neighbour: int
    link: Tensor  # (b, t, t) weights from the layer to its neighbour
    onwards: Tensor  # (b, t) their sums


@dataclass(frozen=True)
class _Chain:
    """Layers with weights inside them and to the next one, eliminated from both ends. Overwritten by that."""

    inner: Tensor  # (k, b, t, t) weights between the nodes of a layer
    links: Tensor  # (k-1, b, t, t) from each layer to the next
    side: Tensor  # (k, b, t, 2) weights to the target, right-hand side
    dead: Tensor  # (k, b, t) 1.0 for nodes without weights

    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All of it."""
        return self.inner, self.links, self.side, self.dead

    def solve(self) -> Tensor:
        """Potentials (k, b, t, 1)."""
        potentials = torch.empty_like(self.side[..., 1:])
        onwards_up = self.links.sum(-1)
        onwards_down = self.links.sum(-2)
        eliminated = []
        lower = 0
        upper = len(self.inner) - 1
        while lower < upper:
            ends = [_End(layer=lower, neighbour=lower + 1, link=self.links[lower], onwards=onwards_up[lower])]
            lower += 1
            if lower < upper:
                link = self.links[upper - 1].mT
                ends.append(_End(layer=upper, neighbour=upper - 1, link=link, onwards=onwards_down[upper - 1]))
                upper -= 1
            half, side = self._eliminate(ends)
            eliminated.append((ends, half, side))
        meeting_side = self.side[lower]
        meeting = self.inner[lower]
        fill_laplacian(meeting, meeting_side[..., 0] + self.dead[lower])
        inverse = invert(meeting)
        torch.bmm(inverse, meeting_side[..., 1:], out=potentials[lower])
        for ends, half, side in reversed(eliminated):
            neighbours = _join([potentials[end.neighbour] for end in ends])
            ends_potentials = torch.baddbmm(side, half, neighbours)
            for end, end_potentials in zip(ends, ends_potentials.chunk(len(ends)), strict=True):
                potentials[end.layer] = end_potentials
        return potentials

    def _eliminate(self, ends: list[_End]) -> tuple[Tensor, Tensor]:
        """The inverses of these layers times their links (.., t, t) and times right-hand sides (.., t, 1)."""
        inner = _join([self.inner[end.layer] for end in ends])
        side = _join([self.side[end.layer] for end in ends])
        ground = side[..., 0] + _join([end.onwards + self.dead[end.layer] for end in ends])
        fill_laplacian(inner, ground)
        inverse = invert(inner)
        half = inverse @ _join([end.link for end in ends])
        inverse_side = inverse @ side
        parts = zip(ends, half.chunk(len(ends)), inverse_side.chunk(len(ends)), strict=True)
        for end, end_half, end_side in parts:
            self.inner[end.neighbour].baddbmm_(end.link.mT, end_half)
            self.side[end.neighbour].baddbmm_(end.link.mT, end_side)
        return half, inverse_side[..., 1:]


def _join(parts: list[Tensor]) -> Tensor:
    """One batch of what belongs to one or two ends."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _solve_with_kernels(system: System) -> Tensor:
    """The same in fewer calls, on a GPU: links and sides of a layer are columns of one matrix."""
    b, layers, t = system.shape
    root, dead, side, below, above = gpu.scale_odd_layers(system)
    odd = _OddLayers(root=root[1::2].unsqueeze(-1), below=below, above=above, side=side[1::2])
    even_side = side[::2].contiguous()
    chain = odd.eliminate(even_side, dead[::2].contiguous())
    eliminated = []
    lower = 0
    upper = len(chain.inner) - 1
    carried: list[Tensor] = []
    while upper - lower > 1:
        ends = (lower, upper)
        half, left = _eliminate_ends(chain, ends, carried)
        eliminated.append((ends, half))
        carried = [left]
        lower += 1
        upper -= 1
    if carried:
        carried = list(carried[0].split(b))
    if lower < upper:
        half, left = _eliminate_ends(chain, (lower,), carried[:1])
        eliminated.append(((lower,), half))
        carried = [left, *carried[1:]]
        lower += 1
    matrix, columns = gpu.fill_ends(*chain.parts(), (lower,), carried, linked=False)
    half = torch.empty_like(columns)
    half[..., t:].baddbmm_(invert(matrix), columns[..., t:], beta=0)
    potentials = torch.empty_like(system.right)
    gpu.even_potentials(half, potentials, layers, (lower,), linked=False)
    for ends, half in reversed(eliminated):
        gpu.even_potentials(half, potentials, layers, ends, linked=True)
    gpu.odd_potentials(below, above, root, side, potentials, layers)
    return potentials


def _eliminate_ends(chain: _Chain, ends: tuple[int, ...], carried: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The inverses of these layers times links and sides, and what is left on their neighbours, (.., t, t + 2)."""
    matrix, columns = gpu.fill_ends(*chain.parts(), ends, carried, linked=True)
    half = invert(matrix) @ columns
    left = columns[..., :-2].mT @ half
    return half, left
