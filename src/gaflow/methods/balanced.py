"""Balanced gradients: the trace of a model that is differentiated as if it were linear around the text.

    balanced = with_gradients(trace, "balanced")

A pass under `BalancedMode` gives the same values as a plain one, and gradients that are complete up to biases: the
products `<dy/dh, h>` sum to `y` in every layer. A method that needs them has an attribute `gradients` with the kind it
needs. If all methods of a batch need the same kind, the only trace is of this kind. Otherwise one trace of each kind
serves all its methods.

The convention this file owns: a balanced trace is stored as long as the traced model of the plain trace lives, and no
longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from gaflow.arguments import one_of
from gaflow.errors import UnsupportedModelError
from gaflow.inputs.batch import Batch
from gaflow.methods.lrp import AttentionRule, BalancedMode, eager_compilation
from gaflow.models.embeddings import roots
from gaflow.models.forward import ForwardPass, forward
from gaflow.models.restore import borrow, uncompiled
from gaflow.models.streamed_attention import HeadMean
from gaflow.models.tracing import Trace, backward

GradientKind = Literal["plain", "balanced", "balanced_cp"]

_ATTENTION_RULES: dict[str, AttentionRule] = {"balanced": "half", "balanced_cp": "constant"}
_STORED: Any = WeakIdKeyDictionary()  # TracedModel -> {kind: Trace}


def check_gradients(kind: str) -> None:
    """Refuse unknown kinds of gradients."""
    one_of("gradients", kind, ("plain", *_ATTENTION_RULES))


def common_kind(methods: Iterable[object]) -> str:
    """The kind of gradients that all methods need; plain if they need different ones."""
    kinds = {getattr(method, "gradients", "plain") for method in methods}
    return kinds.pop() if len(kinds) == 1 else "plain"


def forward_with(
    kind: str,
    model: nn.Module,
    batch: Batch,
    *,
    residual: bool = False,
    embeddings: Tensor | None = None,
    head_means: Sequence[HeadMean] | None = None,
) -> ForwardPass:
    """A forward pass, as `gaflow.models.forward.forward` gives it, whose gradients are of this kind."""
    run = partial(forward, model, batch, residual=residual, embeddings=embeddings, head_means=head_means)
    if kind == "plain":
        return run()
    inputs = [] if embeddings is None else [embeddings]
    mode = None

    @contextmanager
    def balanced() -> Iterator[None]:
        nonlocal mode
        mode = BalancedMode(roots(uncompiled(model)), _ATTENTION_RULES[kind], inputs)
        with eager_compilation(), mode:
            yield

    forward_pass = run(context=balanced)
    if mode is not None and not mode.marks.carries(forward_pass.logits):
        raise UnsupportedModelError(
            "balanced gradients lost track of the model's logits: they come from an operation that torch does not "
            "show, such as a custom kernel; use a method with plain gradients, such as agf or attcat"
        )
    return forward_pass


def with_gradients(trace: Trace, kind: str) -> Trace:
    """The trace of the same batch with gradients of this kind; the trace itself if they are."""
    if trace.gradient_kind == kind:
        return trace
    traced_model = trace.require_model()
    stored: dict[str, Trace] = _STORED.setdefault(traced_model, {})
    residual = bool(trace.stream)
    if kind not in stored or (residual and not stored[kind].stream):
        with borrow(traced_model.model):
            forward_pass = forward_with(
                kind, traced_model.model, traced_model.batch, residual=residual, head_means=trace.needed_means
            )
            balanced = backward(forward_pass, traced_model.terms)
        # without the traced model, which would keep the trace alive and be kept alive by it
        stored[kind] = replace(balanced, gradient_kind=kind, model=None)
    return replace(stored[kind], model=traced_model, keeps_flow=trace.keeps_flow)
