"""A trace averaged along a path, so that gradients tell of the whole way and not of its end alone.

The path is that of integrated gradients: word embeddings go straight from those of a text whose ordinary tokens are
absent (`presence.py`) to the text's own. With `a_k`, `w_k` the points and weights of the Gauss-Legendre rule on [0, 1],

    gradient  ->  sum_k w_k gradient(a_k)             of attention weights, hidden states and residual sums
    hidden    ->  hidden(1) - hidden(0)               likewise for the residual stream

and attention weights stay those of the text. Where `hidden` goes straight, as word embeddings do, `<gradient, hidden>`
becomes integrated gradients. The convention this file owns: the result **is a trace**, so that every method of a trace
has a path-averaged twin. Each text runs by itself, its points in one batch where that fits, so that a batch gives what
each text alone gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gaflow.borrowing import borrow
from gaflow.methods.presence import Presence
from gaflow.text import Batch
from gaflow.tracing import Look, Trace, look

__all__ = ["along_path"]


def along_path(trace: Trace, steps: int, replacement: str | int | None = None, batch_size: int | None = None) -> Trace:
    """The trace of the same batch with gradients averaged over `steps` points, and hidden states less the baseline's.

    `replacement` and `batch_size` as in the settings of integrated gradients. Costs a pass for each point and one for
    the baseline.
    """
    question = trace.again()
    points, weights = np.polynomial.legendre.leggauss(steps)
    # the baseline comes first, and has no part in the average
    parts = torch.tensor([0.0, *(points + 1) / 2], dtype=torch.float64)
    shares = torch.tensor([0.0, *weights / 2], dtype=torch.float64)
    found = _Averages(trace)
    for item in range(len(trace.mask)):
        text = Presence.of(question, item, replacement, batch_size)
        for start in range(0, len(parts), text.rows):
            some = slice(start, start + text.rows)
            seen, slopes = _pass(text, parts[some], residual=bool(trace.stream))
            found.add(item, shares[some], slopes)
            if start == 0:
                found.subtract(item, seen)
        question.report((item + 1) / len(trace.mask))
    return found.trace()


Slopes = tuple[Sequence[Tensor | None], Sequence[Tensor | None], Sequence[Tensor | None]]


def _pass(text: Presence, parts: Tensor, residual: bool) -> tuple[Look, Slopes]:
    """A pass over points of the path, and the gradients of `y` at each."""
    s, question = len(parts), text.question
    inputs = {name: value.expand(s, -1) for name, value in text.inputs.items()}
    mask = torch.ones(inputs["input_ids"].shape, dtype=torch.bool, device=text.present.device)
    batch = Batch(inputs, mask, False, (question.batch.encodings[text.item],) * s)
    with borrow(question.model):
        words = text.words(parts.to(text.present)[:, None].expand(-1, len(text))).requires_grad_()
        seen = look(question.model, batch, residual=residual, words=words)
        return seen, seen.slopes(question.read(seen.logits, [text.item] * s))


class _Averages:
    """Collects the averages of a batch, text by text."""

    def __init__(self, trace: Trace) -> None:
        self._given = trace
        self.gradient = torch.zeros_like(trace.gradient)
        self.hidden, self.stream = _wide_zeros(trace.hidden), _wide_zeros(trace.stream)
        self.hidden_gradient, self.stream_gradient = _wide_zeros(trace.hidden), _wide_zeros(trace.stream)

    def add(self, item: int, shares: Tensor, slopes: Slopes) -> None:
        """Add the gradients at some points of text `item`, each with its share."""
        of_attention, of_hidden, of_stream = slopes
        sums = [*self.gradient[item], *(x[item] for x in (*self.hidden_gradient, *self.stream_gradient))]
        for total, slope in zip(sums, (*of_attention, *of_hidden, *of_stream), strict=True):
            if slope is not None:
                mean = torch.tensordot(shares.to(slope), slope, 1).to(total)
                total[tuple(slice(n) for n in mean.shape)] += mean

    def subtract(self, item: int, seen: Look) -> None:
        """Keep by how much text `item` differs from its baseline, the first point seen."""
        before = [*(h.detach() for h in seen.hidden), *(s.stream for s in seen.sums)]
        given = (*self._given.hidden, *self._given.stream)
        for total, value, base in zip((*self.hidden, *self.stream), given, before, strict=True):
            n = base.shape[1]
            total[item, :n] = value[item, :n].to(total) - base[0].to(total)

    def trace(self) -> Trace:
        """The whole batch."""
        known = [g is not None for g in self._given.hidden_gradient]
        return replace(
            self._given,
            gradient=self.gradient,
            hidden=tuple(self.hidden),
            hidden_gradient=tuple(g if k else None for g, k in zip(self.hidden_gradient, known, strict=True)),
            stream=tuple(self.stream),
            stream_gradient=tuple(self.stream_gradient),
        )


def _wide_zeros(given: Sequence[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(x, dtype=torch.promote_types(x.dtype, torch.float32)) for x in given]
