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
path-averaged twin. Each text runs by itself, the points of its paths in one batch where that fits, and draws its own
orders, so that a batch gives what each text alone gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gaflow.borrowing import borrow
from gaflow.errors import UnsupportedModelError
from gaflow.methods.draws import Draws
from gaflow.methods.presence import Presence
from gaflow.text import Batch
from gaflow.tracing import Trace, look

__all__ = ["Paths", "along_path"]


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

    def at_most(self, tokens: int) -> Paths:
        """The paths of a text of so few tokens."""
        if tokens >= self.groups:
            return self
        return replace(self, groups=tokens) if tokens > 1 else Paths(self.steps * self.groups)


def along_path(
    trace: Trace, paths: Paths, replacement: str | int | None = None, batch_size: int | None = None
) -> Trace:
    """The trace of the same batch, averaged along paths; `replacement` and `batch_size` as in integrated gradients."""
    question = trace.again()
    found = _Averages(trace)
    for item, encoding in enumerate(question.batch.encodings):
        text = Presence.of(question, item, replacement, batch_size)
        ids = [int(token) for token in encoding.inputs["input_ids"]]
        found.put(item, _average(text, paths.at_most(len(text)), Draws(paths.seed, ids), bool(trace.stream)))
        question.report((item + 1) / len(trace.mask))
    return found.trace()


def _average(text: Presence, paths: Paths, draws: Draws, residual: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Averages of one text: gradients of attention, l x (h, n, n); contributions of hidden states and streams, (n,)."""
    tokens, walked = len(text), _Walked(text, paths, residual)
    with draws:
        drawn = [torch.randperm(tokens) for _ in range(paths.orders)]
    walked.walk([walk for order in drawn for walk in (order, order.flip(0))] or [None])
    for _ in range(paths.ranked):
        order = walked.own[0][text.places].argsort(stable=True).cpu()
        walked.walk([order, order.flip(0)])
    return walked.gradient, walked.own


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
        rows = torch.tensor(at, device=self.states[0].device)
        numbers = [self.numbers[k] for k in at]
        return _Points(
            numbers, [x[rows.to(x.device)] for x in self.slopes], [x[rows.to(x.device)] for x in self.states]
        )


class _Walked:
    """What paths have told of one text so far."""

    def __init__(self, text: Presence, paths: Paths, residual: bool) -> None:
        self.gradient: list[Tensor] = []  # l x (h, n, n), mean over the steps of all paths, once they are walked
        self.own: list[Tensor] = []  # (n,) of every hidden state and stream, likewise
        self._text, self._paths, self._residual = text, paths, residual
        self._ends: _Points | None = None  # point 0: nothing there, 1: all of it; every path begins and ends there

    def walk(self, orders: Sequence[Tensor | None]) -> None:
        """Add the paths on which groups of the tokens come in by these orders; None is straight."""
        points, steps = self._route(orders)
        share = torch.bincount(torch.tensor(steps).flatten(), minlength=len(points)).double()  # steps with a part in it
        share[:2] = self._paths.count  # both ends are asked about once for all paths
        share /= 2 * self._paths.count * self._paths.groups * self._paths.steps
        held, left = self._ends, steps
        for start in range(2 if held else 0, len(points), self._text.rows):
            some = range(start, min(start + self._text.rows, len(points)))
            of_attention, slopes, states = _pass(self._text, points[some.start : some.stop], self._residual)
            means = [torch.tensordot(share[some.start : some.stop].to(g), g, 1) for g in of_attention]
            self.gradient = [a + b for a, b in zip(self.gradient, means, strict=True)] if self.gradient else means
            here = _Points(list(some), slopes, states)
            held = here if held is None else held.beside(here)
            ready = [step for step in left if set(step) <= set(held.numbers)]
            self._add(held, ready)
            left = [step for step in left if step not in set(ready)]
            held = held.only({0, 1}.union(*left))  # long texts need the memory
        self._ends = held

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
        """Points (r, m), how much each token is there; and the steps between them as they are walked."""
        tokens, groups, each = len(self._text), self._paths.groups, self._paths.steps
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


def _pass(text: Presence, rows: Tensor, residual: bool) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Gradients of `y` by attention, and by hidden states and streams, at some points; and these states."""
    s, question = len(rows), text.question
    inputs = {name: value.expand(s, -1) for name, value in text.inputs.items()}
    mask = torch.ones(inputs["input_ids"].shape, dtype=torch.bool, device=text.present.device)
    batch = Batch(inputs, mask, False, (question.batch.encodings[text.item],) * s)
    with borrow(question.model):
        words = text.words(rows.to(text.present)).requires_grad_()
        seen = look(question.model, batch, residual=residual, words=words)
        of_attention, *of_states = seen.slopes(question.read(seen.logits, [text.item] * s))
    with torch.no_grad():
        states = [*(h.detach() for h in seen.hidden), *(x.stream for x in seen.sums)]
        wide = [x.to(torch.promote_types(x.dtype, torch.float32)) for x in states]
        found = [g for part in of_states for g in part]
        slopes = [torch.zeros_like(x) if g is None else g.to(x) for x, g in zip(wide, found, strict=True)]
    return list(of_attention), slopes, wide


class _Averages:
    """Collects the averages of a batch, text by text."""

    def __init__(self, trace: Trace) -> None:
        self._given = trace
        b, t = trace.mask.shape
        self._gradient = torch.zeros_like(trace.gradient)
        count = len(trace.hidden) + len(trace.stream)
        self._own = trace.gradient.new_zeros(count, b, t, 1)

    def put(self, item: int, found: tuple[Sequence[Tensor], Sequence[Tensor]]) -> None:
        """Keep the averages of text `item`."""
        gradient, own = found
        n = gradient[0].shape[-1]
        self._gradient[item, ..., :n, :n] = torch.stack([g.to(self._gradient) for g in gradient])
        for total, each in zip(self._own, own, strict=True):
            if len(each) != n:
                raise UnsupportedModelError(f"a path needs one hidden state per token, not {len(each)} for {n} tokens")
            total[item, :n, 0] = each.to(total)

    def trace(self) -> Trace:
        """The whole batch."""
        given, split = self._given, len(self._given.hidden)
        hidden, stream = tuple(self._own[:split]), tuple(self._own[split:])
        ones = self._gradient.new_ones(*given.mask.shape, 1)
        return replace(
            given,
            gradient=self._gradient,
            hidden=hidden,
            hidden_gradient=tuple(None if g is None else ones for g in given.hidden_gradient),
            stream=stream,
            stream_gradient=tuple(ones for _ in stream),
        )
