"""A batch for a tokenizer, the state of a model, and traces of the logit that most tests explain."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from gaflow.explainer.explainer import Explainer
from gaflow.inputs.batch import Batch, Padding, collate
from gaflow.inputs.encoding import encode
from gaflow.methods import METHODS, Scores
from gaflow.models.forward import forward
from gaflow.models.restore import borrow
from gaflow.models.tracing import Trace, backward
from gaflow.progress import Report, silent
from gaflow.tasks.targets import LogitTerm
from tests.support.models import SENTENCE

SHORT = "a good film"


def make_batch(tokenizer, texts=(SENTENCE, SHORT)):
    return collate(encode(tokenizer, texts), Padding(tokenizer.pad_token_id))


def logit_terms(batch: Batch, index: int = 0) -> list[tuple[LogitTerm, ...]]:
    """Terms that explain the same logit of each item."""
    return [(LogitTerm(1.0, (index,)),)] * len(batch.mask)


def trace(model: nn.Module, batch: Batch, terms: Any, report: Report = silent, *, residual: bool = False) -> Trace:
    """Borrow a model and trace it, where the terms do not depend on its logits."""
    with borrow(model):
        return backward(forward(model, batch, residual=residual), terms, report)


def trace_logit(model: nn.Module, batch: Batch, index: int = 0, **options: Any) -> Trace:
    """The trace of that logit."""
    return trace(model, batch, logit_terms(batch, index), **options)


@dataclass
class KeepTrace:
    """A method that keeps the trace it is given; its scores are random."""

    name: str = "keep_trace"
    traces: list[Trace] = field(default_factory=list)

    def __call__(self, trace: Trace) -> Scores:
        self.traces.append(trace)
        return METHODS["random"](trace)


def trace_of(explainer: Explainer, item: Any, target: Any = None) -> Trace:
    """The trace of one input, as methods see it."""
    method = KeepTrace()
    explainer(item, method, target)
    return method.traces[0]


def state(model):
    """Everything about a model that a trace could disturb."""
    modules = {
        name: (
            m.training,
            list(m._forward_hooks),
            list(m._forward_pre_hooks),
            list(m._backward_hooks),
            set(vars(m)),
        )
        for name, m in model.named_modules()
    }
    weights = {name: (p.requires_grad, p.grad, p._version) for name, p in model.named_parameters()}
    configs = {id(m.config): m.config._attn_implementation for m in model.modules() if hasattr(m, "config")}
    return modules, weights, configs, torch.get_rng_state().tolist(), torch.is_grad_enabled()


def assert_close(a, b, tolerance=2e-5):
    assert a.shape == b.shape
    scale = max(1.0, b.abs().max().item())
    assert (a - b).abs().max().item() <= tolerance * scale
