"""A trace averaged along paths, so that gradients tell of the whole way and not of its end alone.

A path leads from a text whose ordinary tokens are absent (`presence.py`) to the text itself. On the straight path, that
of integrated gradients, all tokens come in together. With groups, an order of the tokens is cut into groups of equal
size that come in one after the other, each of them straight: most tokens are there or absent then, as they are in a
masked text. One group gives Aumann-Shapley values, as many groups as tokens give Shapley values by drawn orders.
Orders are

- drawn, or
- ranked: by what the paths so far say of the tokens, which is where it matters most what comes in before what,

and each order is walked from both its ends. Without drawn orders the first path is the straight one.

Every path is cut into the same number of steps, those of a leg times groups. From point `p` to the next point `q`, with
`g` half the sum of the gradients at both:

    gradient of attention  ->  mean over all steps of g
    hidden                 ->  mean over paths of the sum over steps of <g, hidden(q) - hidden(p)>, its gradient -> 1

likewise for the residual stream, and attention weights stay those of the text. This is the trapezoidal rule for the
line integral of the gradient along the way that hidden states really take, which no norm lets be straight. So the
contributions of every layer sum to what `y` gains, but for the error of the rule; those of word embeddings are
integrated gradients. The convention this file owns: the result **is a trace**, so that every method of a trace has a
path-averaged twin. Each text draws its own orders, so that a batch gives what each text alone gives; points of as many
texts as fit run together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from gaflow.errors import UnsupportedModelError
from gaflow.inputs.batch import Batch
from gaflow.methods.media_removal import MediaRemoval, removal_for
from gaflow.methods.text_random import TextGenerator
from gaflow.methods.token_removal import TokenRemoval
from gaflow.models.attention_tensors import accumulation_dtype
from gaflow.models.cost import Geometry, points_in_a_pass
from gaflow.models.forward import forward
from gaflow.models.memory import geometry_of
from gaflow.models.restore import borrow
from gaflow.models.tracing import Trace

__all__ = ["Paths", "along_path"]

_ALIKE = 0.8  # texts share a pass if the shortest is at least this long beside the longest


@dataclass(frozen=True)
class Paths:
    """Which paths are walked."""

    steps: int  # of each leg
    groups: int = 1  # of tokens that come in one after the other; 1: straight
    orders: int = 0  # drawn for the groups
    ranked: int = 0  # times that the groups come in by rank
    seed: int = 0  # other seeds draw others

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("groups", 1), ("orders", 0), ("ranked", 0), ("seed", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ValueError(f"{name} must be a whole number >= {least}, not {value!r}")
        walked = self.orders + self.ranked
        if (self.groups > 1) != (walked > 0):
            raise ValueError(
                f"groups={self.groups}, orders={self.orders}, ranked={self.ranked}: groups of tokens come in by drawn "
                "or ranked orders, so give both more than one group and at least one order, or neither"
            )

    @property
    def count(self) -> int:
        """How many paths there are."""
        return (self.orders == 0) + 2 * (self.orders + self.ranked)

    @property
    def passes(self) -> int:
        """Points at which the model is asked, for a text that has at least as many tokens as groups."""
        return self.count * (self.groups * self.steps - 1) + 2

    @property
    def together(self) -> int:
        """The most points that are asked about before it is known which come next."""
        return max((self.orders == 0) + 2 * self.orders, 2 * (self.ranked > 0)) * (self.groups * self.steps - 1) + 2

    def at_most(self, tokens: int) -> Paths:
        """The paths of a text of so few tokens."""
        if tokens >= self.groups:
            return self
        return replace(self, groups=tokens) if tokens > 1 else Paths(self.steps * self.groups)


def along_path(
    trace: Trace, paths: Paths, replacement: str | int | None = None, batch_size: int | None = None
) -> Trace:
    """The trace of the same batch, averaged along paths; `replacement` and `batch_size` as in integrated gradients."""
    traced_model, walkers, gradients = trace.require_model(), [], tuple(torch.zeros_like(g) for g in trace.gradients)
    geometry = geometry_of(traced_model.model) or Geometry(len(gradients), gradients[0].shape[1])
    for item, encoding in enumerate(traced_model.batch.encodings):
        text = removal_for(traced_model, item, replacement, batch_size)
        draws = TextGenerator(paths.seed, [int(token) for token in encoding.inputs.get("input_ids", ())])
        n = text.length
        rows = batch_size or min(text.rows, points_in_a_pass(geometry, n, gradients[0].device))
        walkers.append(_Walker(text, paths.at_most(len(text)), draws, rows, [g[item, :, :n, :n] for g in gradients]))
    stages = 1 + paths.ranked
    for stage in range(stages):
        waiting, done = [(walker, point) for walker in walkers for point in walker.set_out(stage)], 0
        for some in _passes(waiting):
            _ask(some, bool(trace.stream))
            done += len(some)
            traced_model.report((stage + done / len(waiting)) / stages)
    return _averaged(replace(trace, gradients=gradients), walkers)


def _passes(waiting: Sequence[tuple[_Walker, int]]) -> Iterator[list[tuple[_Walker, int]]]:
    """Points that run together: as many as fit, of texts of much the same length, so that little is padding."""
    some: list[tuple[_Walker, int]] = []
    lengths: set[int] = set()
    fit = math.inf
    for walker, point in waiting:
        lengths.add(walker.text.length)
        fit = min(fit, walker.rows)
        if some and (len(some) >= fit or min(lengths) < _ALIKE * max(lengths)):
            yield some
            some, lengths, fit = [], {walker.text.length}, walker.rows
        some.append((walker, point))
    if some:
        yield some


def _ask(some: Sequence[tuple[_Walker, int]], residual: bool) -> None:
    """Ask the model about points of one or more texts in one pass, and tell their walkers."""
    asked: dict[_Walker, list[int]] = {}
    for walker, point in some:
        asked.setdefault(walker, []).append(point)
    points = [(walker.text, walker.points[numbers]) for walker, numbers in asked.items()]
    of_attention, slopes, states = _pass(points, residual)
    start = 0
    for walker, numbers in asked.items():
        rows, n = slice(start, start + len(numbers)), walker.text.length
        walker.hear(
            [g[rows, :, :n, :n] for g in of_attention],
            _Points(numbers, [g[rows, :n] for g in slopes], [x[rows, :n] for x in states]),
        )
        start += len(numbers)


@dataclass(frozen=True)
class _Points:
    """What is known at some points: gradients by hidden states and streams, and these states, (r, n, d) each."""

    numbers: list[int]  # (r,)
    slopes: list[Tensor]
    states: list[Tensor]

    def beside(self, other: _Points) -> _Points:
        """These points and others."""
        slopes, states = zip(self.slopes, other.slopes, strict=True), zip(self.states, other.states, strict=True)
        return _Points(self.numbers + other.numbers, [torch.cat(x) for x in slopes], [torch.cat(x) for x in states])

    def only(self, wanted: set[int]) -> _Points:
        """Those that are still wanted."""
        at = [k for k, number in enumerate(self.numbers) if number in wanted]
        return _Points([self.numbers[k] for k in at], [x[at] for x in self.slopes], [x[at] for x in self.states])


class _Walker:
    """Walks the paths of one text and adds up what it hears on the way."""

    def __init__(
        self, text: TokenRemoval | MediaRemoval, paths: Paths, draws: TextGenerator, rows: int, gradients: list[Tensor]
    ) -> None:
        self.text = text
        self.rows = rows  # points in one pass
        self.gradients = gradients  # l x (h, n, n) to add to: in the end the mean over the steps of all paths
        self.own: list[Tensor] = []  # (n,) of every hidden state and stream, likewise
        self.points = torch.empty(0)  # (r, m) of this stage: how much each token is there
        self._paths, self._draws = paths, draws
        self._share = torch.empty(0)  # (r,) of each point in the mean
        self._left: list[tuple[int, int]] = []  # steps of this stage that are still to be added
        self._held: _Points | None = None
        self._ends = {0, 1}  # 0: nothing there, 1: all of it. Every path has them, so they are held for the next stage

    def set_out(self, stage: int) -> range:
        """Choose the paths of a stage, drawn or straight first, then ranked; gives the points to ask about."""
        if stage > self._paths.ranked:  # a text of one token
            return range(0)
        self.points, self._left = self._route(self._ranked() if stage else self._first())
        self._ends = {0, 1} if stage < self._paths.ranked else set()
        share = torch.bincount(torch.tensor(self._left).flatten(), minlength=len(self.points)).double()
        share[:2] = self._paths.count  # both ends are asked about once for all paths
        self._share = share / (2 * self._paths.count * self._paths.groups * self._paths.steps)
        return range(2 if stage else 0, len(self.points))

    def hear(self, of_attention: Sequence[Tensor], here: _Points) -> None:
        """Add what is known at some points of this stage."""
        for total, g in zip(self.gradients, of_attention, strict=True):
            total += torch.tensordot(self._share[here.numbers].to(g), g, 1).to(total)
        held = here if self._held is None else self._held.beside(here)
        known = set(held.numbers)
        self._add(held, [step for step in self._left if known.issuperset(step)])
        self._left = [step for step in self._left if not known.issuperset(step)]
        self._held = held.only(self._ends.union(*self._left))  # long texts need the memory

    def _first(self) -> list[Tensor | None]:
        with self._draws:
            drawn = [torch.randperm(len(self.text)) for _ in range(self._paths.orders)]
        return [walk for order in drawn for walk in (order, order.flip(0))] or [None]

    def _ranked(self) -> list[Tensor | None]:
        if not self.own:
            raise UnsupportedModelError("ranked paths need hidden states, which this model does not hand out")
        order = self.own[0][self.text.places].argsort(stable=True).cpu()
        return [order, order.flip(0)]

    def _add(self, held: _Points, steps: Sequence[tuple[int, int]]) -> None:
        """Some steps of the trapezoidal rule."""
        self.own = self.own or [x.new_zeros(x.shape[1]) for x in held.states]
        if not steps:
            return
        before, after = torch.tensor([[held.numbers.index(point) for point in step] for step in steps]).T
        for total, g, x in zip(self.own, held.slopes, held.states, strict=True):
            i, j = before.to(x.device), after.to(x.device)
            total += ((g[i] + g[j]) * (x[j] - x[i])).sum((0, -1)) / (2 * self._paths.count)

    def _route(self, orders: Sequence[Tensor | None]) -> tuple[Tensor, list[tuple[int, int]]]:
        """Points (r, m) of the paths on which groups come in by these orders, None being straight; and their steps."""
        tokens, groups, each = len(self.text), self._paths.groups, self._paths.steps
        known = {(0.0,) * tokens: 0, (1.0,) * tokens: 1}  # paths meet at both their ends, and may elsewhere
        steps: list[tuple[int, int]] = []
        for order in orders:
            legs = [slice(None)] if order is None else order.tensor_split(groups)
            there, last = torch.zeros(tokens, dtype=torch.float64), 0
            for leg in legs:
                of_leg = each if order is not None else each * groups
                for k in range(1, of_leg + 1):
                    there[leg] = k / of_leg
                    here = known.setdefault(tuple(there.tolist()), len(known))
                    steps.append((last, here))
                    last = here
        return torch.tensor(list(known), dtype=torch.float64).reshape(len(known), tokens), steps


def _pass(
    asked: Sequence[tuple[TokenRemoval | MediaRemoval, Tensor]], residual: bool
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Gradients of `y` by attention, and by hidden states and streams, at points of some texts; and these states."""
    traced_model, n = asked[0][0].traced_model, max(text.length for text, _ in asked)
    items = [text.item for text, points in asked for _ in points]
    at = torch.tensor(items, device=traced_model.batch.mask.device)
    inputs = {
        name: value[at, :n] if value.dim() == 2 else value[at] for name, value in traced_model.batch.inputs.items()
    }
    parts = [text.words(points) for text, points in asked if isinstance(text, TokenRemoval)]
    words = torch.cat([pad(x, (0, 0, 0, n - x.shape[1])) for x in parts]).requires_grad_() if parts else None
    for name in {text.name for text, _ in asked if isinstance(text, MediaRemoval)}:
        inputs[name] = torch.cat([text.dimmed(points) for text, points in asked if isinstance(text, MediaRemoval)])
    padded = any(text.length < n for text, _ in asked)
    batch = Batch(
        inputs, traced_model.batch.mask[at, :n], padded, tuple(traced_model.batch.encodings[k] for k in items)
    )
    with borrow(traced_model.model):
        forward_pass = forward(traced_model.model, batch, residual=residual, embeddings=words)
        gradients = forward_pass.gradients(traced_model.scalar(forward_pass.logits, items))
    with torch.no_grad():
        states = [*(h.detach() for h in forward_pass.hidden), *(x.stream for x in forward_pass.residual_sums)]
        for x in states:
            if x.shape[1] != n:
                raise UnsupportedModelError(f"a path needs one hidden state per token, not {x.shape[1]} for {n} tokens")
        states = [x.to(accumulation_dtype(x)) for x in states]
        of_states = [*gradients.hidden, *gradients.residual_sums]
        slopes = [torch.zeros_like(x) if g is None else g.to(x) for x, g in zip(states, of_states, strict=True)]
        of_attention = [g.to(accumulation_dtype(g)) for g in gradients.attention]
    return of_attention, slopes, states


def _averaged(given: Trace, walkers: Sequence[_Walker]) -> Trace:
    """The trace of the whole batch, of what was heard of each text; its gradient is what they added up."""
    b, t = given.mask.shape
    split = len(given.hidden)
    own = given.gradients[0].new_zeros(split + len(given.stream), b, t, 1)
    for item, walker in enumerate(walkers):
        n = walker.text.length
        for total, each in zip(own, walker.own, strict=True):
            total[item, :n, 0] = each.to(total)
    ones = own.new_ones(b, t, 1)
    return replace(
        given,
        hidden=tuple(own[:split]),
        hidden_gradient=tuple(None if g is None else ones for g in given.hidden_gradient),
        stream=tuple(own[split:]),
        stream_gradient=tuple(ones for _ in given.stream),
    )
