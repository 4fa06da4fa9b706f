"""Laplacians of layered networks, eliminated layer by layer: block tridiagonal, no edges inside a layer.

Eliminating layers from the grounded target upwards, or from the super-source downwards, leaves on the next layer the
matrix `diag(N 1 + ground + onwards) - N`: `N >= 0` are the weights between its nodes through the eliminated layers,
`ground` those to the target and `onwards` those to the layer after it. The layer where the ends meet has the `N` and
`ground` of both. The convention this file owns: **nothing is ever subtracted to form a diagonal**. `N` and `ground` are
products of non-negative numbers and the diagonal is their sum, so weights that differ by thirty orders of magnitude do
not cancel between layers. Inside a layer LAPACK's Cholesky is fast and may cancel; see `subtraction_free.py`.

The ends meet in the output layer, of which often only one node is alive. A batch on a GPU, where the number of calls
counts, is eliminated from both ends at once, which are one batch of twice the size; they meet in the middle.

Cost: about `3 L t^3` flops for `L` layers of `t` nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.linalg import cholesky_ex, solve_triangular
from torch.nn.functional import pad

from gaflow.flow.barrier.edges import largest
from gaflow.flow.barrier.linear.system import System, fill_laplacian, split_layers

PANEL_MIN_NODES = 256  # from which on a CPU factorises by panels: of 512 nodes in float32 in half of LAPACK's time
PANEL_NODES = 64
SYMMETRIC_MIN_NODES = 256  # from which on blocks of a product that is symmetric are multiplied out once
SYMMETRIC_NODES = 128  # in a block
LOW_MEMORY_TOKENS = 4096  # from which on memory counts more than a few per cent of time
RESIDUAL_SHARE = 1e-2  # of the right-hand side that float32 may leave over: Newton's method corrects it
MAX_CORRECTIONS = 5  # of a solution in float32, before an item is solved in float64


def solve_blocks(system: System, low_memory_tokens: int = LOW_MEMORY_TOKENS) -> Tensor:
    """Potentials (b, n), from one end after the other."""
    factors, right = _eliminate(system, torch.float64, low_memory_tokens)
    return _substitute(factors, right)


def solve_blocks_low_memory(system: System) -> Tensor:
    """The same with half the memory, which `solve_blocks` does by itself for long texts only."""
    return solve_blocks(system, low_memory_tokens=0)


def solve_blocks_two_ended(system: System) -> Tensor:
    """The same from both ends at once, as one batch."""
    b, layers, t = system.shape
    ends = _Ends(tokens=t, top=t, middle=(layers + 1) // 2)  # a batch needs ends of one shape: no node is left out
    chain = _join(*_chains(system, torch.float64, ends, LOW_MEMORY_TOKENS))
    inner, carried = chain.eliminate()
    lower_inner, upper_inner = inner.split(b)
    lower_carried, upper_carried = carried.split(b)
    meeting_inner = lower_inner.add_(upper_inner)
    meeting_carried = lower_carried + upper_carried
    failed = []
    for flags in chain.failed:
        failed.extend(flags.split(b))
    factors, right = _meet(system, ends, meeting_inner, meeting_carried, failed)
    node = _meeting_potential(factors.factor, right)
    both = chain.substitute(torch.cat([node, node]))
    below = [layer[:b] for layer in both]
    above = [layer[b:] for layer in both]
    below = below[-ends.middle :]  # the layer that only made the ends equally long is left out
    above[0] = above[0][:, :1]  # so are the dead nodes beside the super-source
    return _assemble(factors, below, node, above)


def solve_mixed_precision(system: System, residual_share: float = RESIDUAL_SHARE) -> Tensor:
    """The same with factors in float32, corrected by what their solution leaves over; float64 where that fails."""
    links_at_hand = system.weight.dtype == torch.float32  # then halves of their size need not be stored
    factors, right = _eliminate(system, torch.float32, 0 if links_at_hand else LOW_MEMORY_TOKENS)
    potentials = torch.zeros_like(system.right)
    limit = residual_share * largest(system.right)
    failed = torch.ones_like(limit, dtype=torch.bool)
    for _ in range(MAX_CORRECTIONS + 1):
        potentials = potentials + _substitute(factors, right)
        residual = _residual(system, potentials)
        failed = ~(largest(residual) <= limit)  # so NaN has failed, too
        if not failed.any():
            return potentials
        right = _eliminate_right(factors, residual.float())
    del factors
    items = failed.nonzero().flatten()
    potentials[items] = solve_blocks(system.take(items))
    return potentials


def _residual(system: System, potentials: Tensor) -> Tensor:
    """The right-hand side less the Laplacian of potentials, (b, n) each."""
    t = system.shape[2]
    node, source_node = split_layers(potentials, t)
    residual = system.right - system.degree * potentials
    inner, outer = split_layers(residual, t)
    for layer, weight in enumerate(system.weight.unbind(1)):  # of all layers at once, torch would copy the weights
        weight = weight.to(node.dtype)
        from_below = node[:, layer, None] @ weight.mT  # (b, 1, t)
        from_above = node[:, layer + 1, None] @ weight
        inner[:, layer + 1] += from_below.squeeze(1)
        inner[:, layer] += from_above.squeeze(1)
    inner[:, -1] += system.source * source_node[:, None]
    from_outputs = system.source * node[:, -1]
    outer += from_outputs.sum(-1)
    return residual


@dataclass
class _Chain:
    """The layers of one end, the outermost first, and the factors that elimination fills in."""

    ground: Tensor  # (b, t) weights of the outermost layer to the target
    links: list[tuple[Tensor, ...]]  # (b, t, t') weights from each layer to the next one inwards; two make one batch
    onwards: list[Tensor]  # (b, t) their sums
    right: list[Tensor]  # (b, t)
    low_memory_tokens: int  # a layer with so many nodes after it keeps its link in place of its half
    factor: list[Tensor] = field(default_factory=list)  # (b, t, t) lower Cholesky factors; first (b, t, 1), a diagonal
    half: list[Tensor] = field(default_factory=list)  # (b, t, t') their inverses times the links; or the links
    side: list[Tensor] = field(default_factory=list)  # (b, t, 1) their inverses times the right-hand side
    failed: list[Tensor] = field(default_factory=list)  # (b,) above 0 where there are no such factors

    def eliminate(self) -> tuple[Tensor, Tensor]:
        """Eliminate from the outermost layer inwards, the right-hand side along with the matrix.

        Returns the weights inside the layer where the ends meet (b, t', t'), and those to the target with the
        right-hand side (b, t', 2).
        """
        degree = self.ground + self.onwards[0]  # no weights inside the outermost layer
        root = degree.rsqrt().unsqueeze(-1)
        half = root * _joined_link(self.links[0]).to(root.dtype)
        columns = torch.stack([self.ground, self.right[0]], -1)
        side = root * columns
        self.factor = [1 / root]
        self.half = [half]
        self.side = [side[..., 1:]]
        inner_layers = zip(self.links[1:], self.onwards[1:], self.right[1:], strict=True)
        for link, onwards, right in inner_layers:
            inner = _gram(half)
            carried = half.mT @ side
            fill_laplacian(inner, carried[..., 0] + onwards)
            carried[..., 1].add_(right)
            columns = _with_columns(link, carried)
            factor, columns, failed = _factorise(inner, columns)
            half = columns[..., :-2]
            side = columns[..., -2:]
            right_side = side[..., 1:]
            self.factor.append(factor)
            self.failed.append(failed)
            if half.shape[-1] < self.low_memory_tokens:
                self.half.append(half)
                self.side.append(right_side)
            else:  # half the memory is worth one more solve with a single column; a clone lets go of the rest
                self.half.append(_joined_link(link))
                self.side.append(right_side.clone())
        return _gram(half), half.mT @ side

    def eliminate_right(self, right: list[Tensor]) -> Tensor:
        """Eliminate another right-hand side with the same factors; return its part in the layer of the meeting."""
        outermost, *inner_right = right
        side = outermost.unsqueeze(-1) / self.factor[0]
        self.side = [side]
        carried = self.half[0].mT @ side
        inner_layers = zip(self.factor[1:], self.half[1:], inner_right, strict=True)
        for factor, half, layer_right in inner_layers:
            side = solve_triangular(factor, layer_right.unsqueeze(-1) + carried, upper=False)
            self.side.append(side)
            if half.shape[-1] >= self.low_memory_tokens:
                side = solve_triangular(factor.mT, side, upper=True)
            carried = half.mT.to(side.dtype) @ side
        return carried.squeeze(-1)

    def substitute(self, node: Tensor) -> list[Tensor]:
        """Potentials (b, t, 1) of every layer, outermost first, from those where the ends meet."""
        nodes = []
        outermost, *inner_layers = zip(self.factor, self.half, self.side, strict=True)
        for factor, half, side in reversed(inner_layers):
            if half.shape[-1] < self.low_memory_tokens:
                right = torch.baddbmm(side, half, node)
            else:
                right = side + solve_triangular(factor, half.to(node.dtype) @ node, upper=False)
            node = solve_triangular(factor.mT, right, upper=True)
            nodes.append(node)
        factor, half, side = outermost
        nodes.append(torch.baddbmm(side, half, node) / factor)
        return nodes[::-1]


@dataclass(frozen=True)
class _Ends:
    """Which layers belong to which end."""

    tokens: int
    top: int  # output nodes from this one on are left out: they are dead
    middle: int  # the layer where the ends meet

    def split(self, nodes: Tensor) -> tuple[list[Tensor], Tensor, list[Tensor]]:
        """Numbers (b, n) of the layers below the middle, outermost first, of the middle, and of those above."""
        inner, outer = split_layers(nodes, self.tokens)
        layers = [*inner.unbind(1), outer[:, None]]
        layers[-2] = layers[-2][:, : self.top]
        below = layers[: self.middle]
        above = layers[: self.middle : -1]
        return below, layers[self.middle], above


@dataclass(frozen=True)
class _Factors:
    """A system after elimination."""

    chains: Sequence[_Chain]  # from the target up and from the super-source down
    ends: _Ends
    factor: Tensor  # (b, t, t) of the layer where they meet
    failed: Tensor  # (b,) bool: there are no such factors


def _eliminate(system: System, dtype: torch.dtype, low_memory_tokens: int) -> tuple[_Factors, Tensor]:
    """Factors in this precision, and the right-hand side (b, t) of the layer where the ends meet."""
    _, layers, t = system.shape
    ends = _Ends(tokens=t, top=system.top, middle=layers)
    lower, upper = _chains(system, dtype, ends, low_memory_tokens)
    lower_inner, lower_carried = lower.eliminate()
    upper_inner, upper_carried = upper.eliminate()
    inner = lower_inner.add_(upper_inner)
    carried = lower_carried + upper_carried
    failed = lower.failed + upper.failed
    return _meet(system, ends, inner, carried, failed, (lower, upper))


def _meet(
    system: System,
    ends: _Ends,
    inner: Tensor,
    carried: Tensor,
    chain_failed: list[Tensor],
    chains: Sequence[_Chain] = (),
) -> tuple[_Factors, Tensor]:
    """Factorise the layer where the ends meet, from the weights inside it and those with the right-hand side."""
    dtype = inner.dtype
    _, dead, _ = ends.split(system.dead.to(dtype))
    _, right, _ = ends.split(system.right.to(dtype))
    ground, carried_right = carried.unbind(-1)
    fill_laplacian(inner, ground + dead)
    factor, _, failed = _factorise(inner, inner[..., :0])
    any_failed = torch.stack([*chain_failed, failed]).any(0)
    factors = _Factors(chains, ends, factor, any_failed)
    return factors, carried_right + right


def _chains(system: System, dtype: torch.dtype, ends: _Ends, low_memory_tokens: int) -> tuple[_Chain, _Chain]:
    """The two ends of a system: from the target up, and from the super-source down."""
    *links, output_link = system.weight.mT.unbind(1)  # columns are the nodes above
    source_link = system.source.unsqueeze(-1)
    links.append(output_link[..., : ends.top])
    links.append(source_link[:, : ends.top])
    upwards = system.up + system.dead
    downwards = system.down + system.dead
    onwards_up, _, _ = ends.split(upwards.to(dtype))
    _, _, onwards_down = ends.split(downwards.to(dtype))
    below, _, above = ends.split(system.right.to(dtype))
    links_up = [(link,) for link in links[: ends.middle]]
    links_down = [(link.mT,) for link in links[: ends.middle - 1 : -1]]
    lower = _Chain(
        ground=system.target.to(dtype),
        links=links_up,
        onwards=onwards_up,
        right=below,
        low_memory_tokens=low_memory_tokens,
    )
    upper = _Chain(
        ground=system.returning[:, None].to(dtype),
        links=links_down,
        onwards=onwards_down,
        right=above,
        low_memory_tokens=low_memory_tokens,
    )
    return lower, upper


def _join(lower: _Chain, upper: _Chain) -> _Chain:
    """Both ends as one batch: the super-source is one of a layer of nodes, the others dead."""
    added = lower.ground.shape[-1] - 1
    upper.ground = pad(upper.ground, (0, added))
    upper.right[0] = pad(upper.right[0], (0, added))
    upper.onwards[0] = pad(upper.onwards[0], (0, added), value=1.0)
    upper.links[0] = (pad(upper.links[0][0], (0, 0, 0, added)),)
    if len(lower.links) < len(upper.links):  # a node in the middle of every edge to the target evens them out
        lower.ground = 2 * lower.ground
        lower.links.insert(0, (torch.diag_embed(lower.ground),))
        lower.onwards.insert(0, lower.ground + (lower.ground == 0))
        lower.right.insert(0, torch.zeros_like(lower.ground))
    links = []
    for lower_link, upper_link in zip(lower.links, upper.links, strict=True):
        links.append(lower_link + upper_link)
    return _Chain(
        ground=torch.cat([lower.ground, upper.ground]),
        links=links,
        onwards=_join_layers(lower.onwards, upper.onwards),
        right=_join_layers(lower.right, upper.right),
        low_memory_tokens=lower.low_memory_tokens,
    )


def _join_layers(lower: list[Tensor], upper: list[Tensor]) -> list[Tensor]:
    """The layers of both ends as one batch."""
    return [torch.cat(pair) for pair in zip(lower, upper, strict=True)]


def _eliminate_right(factors: _Factors, right: Tensor) -> Tensor:
    """Eliminate another right-hand side (b, n); returns that of the layer where the ends meet, (b, t)."""
    below, middle, above = factors.ends.split(right)
    lower, upper = factors.chains
    return middle + lower.eliminate_right(below) + upper.eliminate_right(above)


def _substitute(factors: _Factors, right: Tensor) -> Tensor:
    """Potentials (b, n), from the right-hand side of the layer where the ends meet."""
    node = _meeting_potential(factors.factor, right)
    lower, upper = factors.chains
    return _assemble(factors, lower.substitute(node), node, upper.substitute(node))


def _meeting_potential(factor: Tensor, right: Tensor) -> Tensor:
    """Potentials (b, t, 1) of the layer where the ends meet."""
    half = solve_triangular(factor, right[..., None], upper=False)
    return solve_triangular(factor.mT, half, upper=True)


def _assemble(factors: _Factors, below: list[Tensor], node: Tensor, above: list[Tensor]) -> Tensor:
    """Potentials (b, n) of all layers; NaN where an item has no factors."""
    source, *upper_layers = above
    layers = [*below, node, *upper_layers[::-1]]
    ends = factors.ends
    dead_outputs = ends.tokens - ends.top
    layers[-1] = pad(layers[-1], (0, 0, 0, dead_outputs))
    potentials = torch.cat([*layers, source], 1).squeeze(-1)
    return potentials.masked_fill_(factors.failed[:, None], torch.nan)


def _joined_link(link: tuple[Tensor, ...]) -> Tensor:
    return link[0] if len(link) == 1 else torch.cat(link)


def _with_columns(link: tuple[Tensor, ...], columns: Tensor) -> Tensor:
    """A matrix (b, t, t') and two more columns in one, laid out as the matrix is."""
    b, rows, width = link[0].shape
    items = len(link) * b
    if link[0].stride(-1) == 1:
        matrix = columns.new_empty(items, rows, width + 2)
    else:
        matrix = columns.new_empty(items, width + 2, rows).mT
    for part, values in zip(matrix.split(b), link, strict=True):
        part[..., :-2] = values
    matrix[..., -2:] = columns
    return matrix


def _gram(half: Tensor) -> Tensor:
    """`half^T half`; of a large one, which is symmetric, blocks above the diagonal are copies of those below."""
    size = half.shape[-1]
    if size < SYMMETRIC_MIN_NODES:
        return half.mT @ half
    product = half.new_empty(len(half), size, size)
    for start in range(0, size, SYMMETRIC_NODES):
        stop = start + SYMMETRIC_NODES
        block = product[:, start:, start:stop]
        torch.bmm(half[..., start:].mT, half[..., start:stop], out=block)
        product[:, start:stop, stop:] = product[:, stop:, start:stop].mT
    return product


def _factorise(matrix: Tensor, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Lower factor of a matrix, its inverse times columns (b, t, c), and above 0 where there is none.

    May overwrite both arguments.
    """
    if not matrix.is_cuda and matrix.shape[-1] >= PANEL_MIN_NODES:
        failed = _factorise_panels(matrix, columns)
        return matrix, columns, failed
    factor, failed = _cholesky(matrix)
    return factor, solve_triangular(factor, columns, upper=False, out=columns), failed


def _cholesky(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Lower factor of a matrix, and above 0 where there is none."""
    if matrix.is_cuda:  # each library has a half that it factorises without turning the matrix round
        return cholesky_ex(matrix)
    factor, failed = cholesky_ex(matrix, upper=True)
    return factor.mT, failed


def _factorise_panels(matrix: Tensor, columns: Tensor) -> Tensor:
    """Factorise and solve in place, a few rows at a time: all but a small part of the work is then in products.

    Diagonal blocks are inverted. That costs no digits: their off-diagonal numbers are not above 0, so substitution adds
    numbers of one sign. The upper half of the matrix is left as it is.
    """
    size = matrix.shape[-1]
    identity = torch.eye(PANEL_NODES, dtype=matrix.dtype).expand(len(matrix), -1, -1)
    failed = []
    for start in range(0, size, PANEL_NODES):
        stop = min(start + PANEL_NODES, size)
        panel = slice(start, stop)
        beside = matrix[:, panel, :start]
        rows = columns[:, panel]
        if start:
            matrix[:, start:, panel].baddbmm_(matrix[:, start:, :start], beside.mT, alpha=-1)
            rows.baddbmm_(beside, columns[:, :start], alpha=-1)
        diagonal, diagonal_failed = cholesky_ex(matrix[:, panel, panel])
        failed.append(diagonal_failed)
        nodes = stop - start
        inverse = solve_triangular(diagonal, identity[:, :nodes, :nodes], upper=False)
        below = matrix[:, stop:, panel]
        below.copy_(below @ inverse.mT)
        rows.copy_(inverse @ rows)
        matrix[:, panel, panel] = diagonal
    return torch.stack(failed).amax(0)
