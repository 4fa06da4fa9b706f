"""Traces for relevance propagation, and models with one operation changed."""

from typing import Any

from torch import nn

from gaflow.tasks.targets import LogitTerm
from tests.support.models import SENTENCE, bert
from tests.support.tracing import SHORT, make_batch, trace


def terms(target: Any) -> tuple[LogitTerm, ...]:
    """Of a class, or of the contrast of two."""
    if isinstance(target, tuple):
        return (LogitTerm(1.0, (target[0],)), LogitTerm(-1.0, (target[1],)))
    return (LogitTerm(1.0, (target,)),)


def traced(model, tokenizer, texts=(SENTENCE, SHORT), target: Any = 1):
    targets = target if isinstance(target, list) else [target] * len(texts)
    return trace(model, make_batch(tokenizer, texts), [terms(target) for target in targets])


class Wrapped(nn.Module):
    """A module whose result goes through a function of the test's own."""

    def __init__(self, inner, change):
        super().__init__()
        self.inner, self.change = inner, change

    def forward(self, x):
        return self.change(self.inner(x))


def changed(change):
    """A BERT with `change` after its second feed-forward layer."""
    model, tokenizer = bert()
    model.bert.encoder.layer[1].output.dense = Wrapped(model.bert.encoder.layer[1].output.dense, change)
    return model, tokenizer
