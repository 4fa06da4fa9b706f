"""A trace averaged along paths, so that gradients tell of the whole way and not of its end alone.

A path leads from a text whose ordinary tokens are absent (`presence.py`) to the text itself. On the straight path, that
of integrated gradients, all tokens come in together. With groups, a drawn order of the tokens is cut into groups of
equal size that come in one after the other, each of them straight: one group gives Aumann-Shapley values, as many
groups as tokens give Shapley values by drawn orders, and a few groups take the best of both: most tokens are there or
absent, as they are in a masked text, and few passes are needed. Each order is walked from both its ends.

Every leg is cut into equal steps. From point `p` to the next point `q`, with `g` half the sum of the gradients at both:

    gradient of attention  ->  mean over all steps of g
    hidden                 ->  mean over paths of the sum over steps of <g, hidden(q) - hidden(p)>, its gradient -> 1

likewise for the residual stream, and attention weights stay those of the text. This is the trapezoidal rule for the
line integral of the gradient along the way that hidden states really take, which no norm lets be straight. So the
contributions of every layer sum to what `y` gains, but for the error of the rule; those of word embeddings are
integrated gradients. The convention this file owns: the result **is a trace**, so that every method of a trace has a
path-averaged twin. Each text runs by itself, its points in one batch where that fits, and draws its own orders, so that
a batch gives what each text alone gives.
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

__all__ = ["along_path", "count_passes"]


def count_passes(steps: int, groups: int = 1, orders: int = 1) -> int:
    """Points at which the model is asked, for a text that has at least as many tokens as groups."""
    walks = 1 if groups == 1 else 2 * orders
    return walks * (groups * steps - 1) + 2


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
    """The trace of the same batch, averaged over paths with `steps` on every leg.

    `groups` of tokens come in one after the other, in `orders` drawn by `seed`, each walked from both ends; one group
    is the straight path. `replacement` and `batch_size` as in the settings of integrated gradients.
    """
    question = trace.again()
    found = _Averages(trace)
    for item, encoding in enumerate(question.batch.encodings):
        text = Presence.of(question, item, replacement, batch_size)
        ids = [int(token) for token in encoding.inputs["input_ids"]]
        found.put(
            item, _walk(text, _Route.draw(len(text), steps, groups, orders, Draws(seed, ids)), bool(trace.stream))
        )
        question.report((item + 1) / len(trace.mask))
    return found.trace()


@dataclass(frozen=True)
class _Route:
    """Paths as steps between points, in the order in which they are walked."""

    points: Tensor  # (r, m) how much each ordinary token is there
    steps: tuple[tuple[int, int], ...]  # points where each step begins and ends
    paths: int

    @classmethod
    def draw(cls, tokens: int, steps: int, groups: int, orders: int, draws: Draws) -> _Route:
        groups = max(1, min(groups, tokens))
        with draws:
            drawn = [torch.randperm(tokens) for _ in range(orders if groups > 1 else 1)]
        walks = [walk for order in drawn for walk in ([order, order.flip(0)] if groups > 1 else [order])]
        known: dict[tuple[float, ...], int] = {}  # paths meet at both their ends, and may elsewhere
        found: list[tuple[int, int]] = []
        for walk in walks:
            there = torch.zeros(tokens, dtype=torch.float64)
            last = known.setdefault(tuple(there.tolist()), len(known))
            for group in walk.tensor_split(groups):
                for k in range(1, steps + 1):
                    there[group] = k / steps
                    here = known.setdefault(tuple(there.tolist()), len(known))
                    found.append((last, here))
                    last = here
        return cls(torch.tensor(list(known), dtype=torch.float64).reshape(len(known), tokens), tuple(found), len(walks))


def _walk(text: Presence, route: _Route, residual: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Averages of one text: gradients of attention, l x (h, n, n); contributions of hidden states and streams, (n,)."""
    share = torch.zeros(len(route.points), dtype=torch.float64)  # of each point in the mean gradient
    until = {}  # the last step that each point has a part in
    for k, step in enumerate(route.steps):
        share[list(step)] += 0.5 / len(route.steps)
        until |= dict.fromkeys(step, k)
    gradient: list[Tensor] = []
    own: list[Tensor] = []
    kept: dict[int, tuple[list[Tensor], list[Tensor]]] = {}  # point -> slopes and states
    done = 0
    for start in range(0, len(route.points), text.rows):
        some = slice(start, start + text.rows)
        of_attention, slopes, states = _pass(text, route.points[some], residual)
        means = [torch.tensordot(share[some].to(g), g, 1) for g in of_attention]
        gradient = [a + b for a, b in zip(gradient, means, strict=True)] if gradient else means
        own = own or [x.new_zeros(x.shape[1]) for x in states]
        rows = range(start, start + len(states[0]))
        kept |= {start + k: ([g[k] for g in slopes], [x[k] for x in states]) for k in range(len(rows))}
        while done < len(route.steps) and max(route.steps[done]) < rows.stop:
            before, after = (kept[point] for point in route.steps[done])
            for total, g, slope, x, state in zip(own, before[0], after[0], before[1], after[1], strict=True):
                total += ((g + slope) * (state - x)).sum(-1) / (2 * route.paths)
            for point in route.steps[done]:
                if until[point] == done:  # long texts need the memory
                    kept.pop(point, None)
            done += 1
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
