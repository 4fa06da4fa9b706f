"""A trace averaged along paths, so that gradients tell of the whole way and not of its end alone.

A path leads from a text whose ordinary tokens are absent (`presence.py`) to the text itself. On the straight path, that
of integrated gradients, all tokens come in together. With groups, a drawn order of the tokens is cut into groups of
equal size that come in one after the other, each of them straight: one group gives Aumann-Shapley values, as many
groups as tokens give Shapley values by drawn orders, and a few groups take the best of both: most tokens are there or
absent, as they are in a masked text, and few passes are needed. Each order is walked from both its ends.

With `a_k`, `w_k` the points and weights of the Gauss-Legendre rule on a leg from corner `p` to corner `q` of a path:

    gradient of attention   ->   mean over legs of  g = sum_k w_k gradient(p + a_k (q - p))
    hidden                  ->   mean over paths of  sum over legs of  <g, hidden(q) - hidden(p)>,   its gradient  ->  1

likewise for the residual stream, and attention weights stay those of the text. At the word embeddings the second line
is integrated gradients. The convention this file owns: the result **is a trace**, so that every method of a trace has a
path-averaged twin. Each text runs by itself, its points in one batch where that fits, and draws its own orders, so that
a batch gives what each text alone gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gaflow.borrowing import borrow
from gaflow.methods.draws import Draws
from gaflow.methods.presence import Presence
from gaflow.text import Batch
from gaflow.tracing import Trace, look

__all__ = ["along_path", "count_passes"]


def count_passes(steps: int, groups: int = 1, orders: int = 1) -> int:
    """Points at which the model is asked, for a text that has at least as many tokens as groups."""
    walks = 1 if groups == 1 else 2 * orders
    return walks * groups * steps + 2 + walks * (groups - 1)


def along_path(
    trace: Trace,
    steps: int,
    replacement: str | int | None = None,
    batch_size: int | None = None,
    *,
    groups: int = 1,
    orders: int = 1,
    seed: int = 0,
) -> Trace:
    """The trace of the same batch, averaged over paths with `steps` points on every leg.

    `groups` of tokens come in one after the other, in `orders` drawn by `seed`, each walked from both ends; one group
    is the straight path. `replacement` and `batch_size` as in the settings of integrated gradients.
    """
    question = trace.again()
    found = _Averages(trace)
    for item, encoding in enumerate(question.batch.encodings):
        text = Presence.of(question, item, replacement, batch_size)
        ids = [int(token) for token in encoding.inputs["input_ids"]]
        found.put(item, _walk(text, _Route.draw(len(text), groups, orders, Draws(seed, ids)), steps, trace))
        question.report((item + 1) / len(trace.mask))
    return found.trace()


@dataclass(frozen=True)
class _Route:
    """Paths as legs between corners."""

    corners: Tensor  # (c, m) how much each ordinary token is there: 0 or 1
    legs: Tensor  # (q, 2) corners where each leg begins and ends
    paths: int

    @classmethod
    def draw(cls, tokens: int, groups: int, orders: int, draws: Draws) -> _Route:
        groups = max(1, min(groups, tokens))
        with draws:
            drawn = [torch.randperm(tokens) for _ in range(orders if groups > 1 else 1)]
        walks = [walk for order in drawn for walk in ([order, order.flip(0)] if groups > 1 else [order])]
        corners = torch.zeros(len(walks), groups + 1, tokens, dtype=torch.float64)
        for corner, walk in zip(corners, walks, strict=True):
            for k, group in enumerate(walk.tensor_split(groups)):
                corner[k + 1 :, group] = 1
        different, where = corners.flatten(0, 1).unique(dim=0, return_inverse=True)
        where = where.reshape(len(walks), groups + 1)
        return cls(different, torch.stack([where[:, :-1], where[:, 1:]], -1).flatten(0, 1), len(walks))

    def points(self, steps: int) -> tuple[Tensor, Tensor, Tensor]:
        """Presence (r, m) of corners and points of the legs; of every row its leg, and its share in that leg's mean."""
        at, weights = np.polynomial.legendre.leggauss(steps)
        begin, end = self.corners[self.legs[:, 0]], self.corners[self.legs[:, 1]]
        inner = [torch.lerp(begin, end, float(x + 1) / 2) for x in at]
        corners, legs = len(self.corners), len(self.legs)
        rows = torch.cat([self.corners, *inner])
        leg = torch.cat([torch.zeros(corners, dtype=torch.long), torch.arange(legs).repeat(steps)])
        share = torch.cat([torch.zeros(corners), torch.tensor(weights / 2).repeat_interleave(legs)])
        return rows, leg, share


def _walk(text: Presence, route: _Route, steps: int, trace: Trace) -> tuple[list[Tensor], list[Tensor]]:
    """Averages of one text: gradients of attention, l x (h, n, n); contributions of hidden states and streams, (n,)."""
    rows, leg, share = route.points(steps)
    gradient: list[Tensor] = []
    slopes: list[Tensor] = []  # (q, n, d) each: hidden states, then streams
    corners: list[list[Tensor]] = []
    for start in range(0, len(rows), text.rows):
        some = slice(start, start + text.rows)
        of_attention, found, states = _pass(text, rows[some], bool(trace.stream))
        if not gradient:
            gradient = [g.new_zeros(g.shape[1:]) for g in of_attention]
            slopes = [g.new_zeros(len(route.legs), *g.shape[1:]) for g in found]
        shares, at = share[some].to(gradient[0]), leg[some].to(gradient[0].device)
        for total, each in zip(gradient, of_attention, strict=True):
            total += torch.tensordot(shares, each, 1) / len(route.legs)
        for total, each in zip(slopes, found, strict=True):
            total.index_add_(0, at, each * shares[:, None, None])
        if start < len(route.corners):
            corners.append([x[: len(route.corners) - start] for x in states])
    legs = route.legs.to(gradient[0].device)
    own = []
    for layer, slope in enumerate(slopes):
        state = torch.cat([part[layer] for part in corners])
        own.append((slope * (state[legs[:, 1]] - state[legs[:, 0]])).sum((0, -1)) / route.paths)
    return gradient, own


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
