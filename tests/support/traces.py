"""Traces of given attention, and of tiny models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from gaflow.inputs.batch import Padding, collate
from gaflow.inputs.encoding import encode
from gaflow.methods import Scores
from gaflow.models.tracing import Trace
from tests.support.models import SENTENCE
from tests.support.tracing import trace_logit


def make_trace(attention, gradient=None, mask=None):
    """A trace that shows the given attention (b, l, h, t, t) and nothing else."""
    attention = torch.as_tensor(attention, dtype=torch.float64)
    gradient = torch.ones_like(attention) if gradient is None else torch.as_tensor(gradient, dtype=torch.float64)
    b, t = attention.shape[0], attention.shape[-1]
    mask = torch.ones(b, t, dtype=torch.bool) if mask is None else mask
    return Trace(attention.unbind(1), gradient.unbind(1), (), (), torch.zeros(b, 2), torch.zeros(b), mask)


def random_trace(seed=0, shape=(2, 3, 2, 5, 5)):
    generator = torch.Generator().manual_seed(seed)
    attention = torch.rand(shape, generator=generator, dtype=torch.float64).softmax(-1)
    return make_trace(attention, torch.randn(shape, generator=generator, dtype=torch.float64))


POOLS = ("first", "last", "mean")


def assert_scores(scores, expected):
    """Scores (b, t) are `expected` on each text's own tokens, and 0 at padding."""
    for item, row in enumerate(expected):
        n = len(row)
        assert scores.values[item, :n].tolist() == pytest.approx(list(row), rel=1e-9, abs=1e-12)
        assert scores.values[item, n:].tolist() == [0.0] * (scores.values.shape[1] - n)


def bert_trace(model_and_tokenizer, texts=(SENTENCE, "a good film")):
    model, tokenizer = model_and_tokenizer
    batch = collate(encode(tokenizer, texts), Padding(tokenizer.pad_token_id))
    return trace_logit(model, batch)


@dataclass(frozen=True)
class TraceRecorder:
    """A method that keeps the traces it is given."""

    traces: list = field(default_factory=list)
    name = "recorder"
    needs = ("residual",)

    def __call__(self, trace):
        self.traces.append(trace)
        return Scores(trace.mask.double())


def count_backward_passes(monkeypatch: pytest.MonkeyPatch, count: Callable[[int], object]) -> None:
    """Call `count` with the number of outputs for each pass of autograd's engine, which is below all function modes."""
    run_backward = torch.autograd.graph._engine_run_backward

    def counted(outputs: Sequence[torch.Tensor], *args: Any, **options: Any) -> Any:
        count(len(outputs))
        return run_backward(outputs, *args, **options)

    monkeypatch.setattr(torch.autograd, "_engine_run_backward", counted)
