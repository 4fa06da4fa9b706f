"""How much of `y` each attention weight accounts for: relevance handed down from `y` to the embeddings.

Relevance 1 starts at the explained scalar `y` of every text. The model runs once more under `RelevanceMode`, and
`torch.autograd.grad` of `y` by the attention weights `A^l` gives their relevance `R^l`. If `y` is a combination of
logits, such as a difference, the layer that gives the logits and the combination are one linear layer.

The convention this file owns: the pass runs in float64 even if the model does not, since the rules divide by sums
that nearly cancel. Weights are widened as they are used; the model stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gaflow.errors import GaflowError, UnsupportedModelError
from gaflow.methods.lrp.marks import RelevanceMarks
from gaflow.methods.lrp.relevance_mode import RelevanceMode
from gaflow.methods.lrp.rules import RULES, Linear
from gaflow.models.attention_tensors import detached_without_padding, stack_layers
from gaflow.models.embeddings import roots
from gaflow.models.forward import ForwardPass, forward, graph_nodes
from gaflow.models.restore import borrow
from gaflow.models.tracing import Trace, TracedModel

_LARGEST_LOSS = 1e-4  # of relevance that is lost or won by rounding, in float64
_OUTPUT_TOLERANCE = {torch.float16: 0.25, torch.bfloat16: 0.25}  # of y; otherwise 0.01, wide enough for TF32


@dataclass(frozen=True)
class Relevance:
    """Where the relevance of `y` went."""

    attention: Tensor  # (b, l, h, t, t) R, zero at padding
    input: Tensor  # (b,) sum at the embeddings: 1, but for what the stabiliser of divisions and dead ends took
    output: Tensor  # (b,) y as this pass saw it


def propagate(trace: Trace, dtype: torch.dtype = torch.float64) -> Relevance:
    """The relevance of every attention weight of a traced batch, computed in `dtype`."""
    traced_model = trace.require_model()
    if trace.logits.device.type == "mps":
        dtype = torch.float32  # there is nothing wider there
    tolerance = _LARGEST_LOSS if dtype == torch.float64 else 100 * _LARGEST_LOSS
    with torch.inference_mode(False):
        relevance = _propagate(traced_model, dtype)
        _check_output(relevance.output, trace)
        # A model may hide along which axis the texts of a batch lie. Then sums over a text are sums over parts of
        # several, and relevance moves between them: texts that lost or won relevance are computed one by one.
        mixed = (relevance.input - 1).abs() > tolerance
        if len(mixed) > 1 and bool(mixed.any()):
            for item in mixed.nonzero()[:, 0].tolist():
                alone = _propagate(traced_model.alone(item), dtype)
                relevance.attention[item] = alone.attention[0]
                relevance.input[item] = alone.input[0]
    return relevance


def _propagate(traced_model: TracedModel, dtype: torch.dtype) -> Relevance:
    model = traced_model.model
    batch = traced_model.batch
    items = len(batch.mask)
    with borrow(model), eager_compilation():
        mode = RelevanceMode(roots(model), items, dtype)
        with mode:
            forward_pass = forward(model, batch, verify_dependence=True)
        _check_carriers(mode, forward_pass)
        y = traced_model.scalar(forward_pass.logits, range(items))
        _start(y, forward_pass.logits, mode.marks)
        attentions = forward_pass.attentions
        relevances = torch.autograd.grad(y.sum(), [*attentions, *mode.seeds], allow_unused=True, materialize_grads=True)
    layers = len(attentions)
    with torch.no_grad():
        reached_input = torch.zeros(items, dtype=dtype, device=y.device)
        for relevance in relevances[layers:]:
            if len(relevance) % items == 0:
                reached_input += relevance.reshape(items, -1).sum(1).to(y.device)
        attention = detached_without_padding(relevances[:layers], batch.mask if batch.padded else None)
        return Relevance(stack_layers(attention), reached_input, y.detach())


def _start(y: Tensor, logits: Tensor, marks: RelevanceMarks) -> None:
    """Make the layer that gives the logits and the combination of logits to `y` one linear layer."""
    rules = tuple(rule._backward_cls for rule in RULES)  # type: ignore[attr-defined]
    first_rules: list[Any] = [node for node in graph_nodes(y, borders=rules) if isinstance(node, rules)]
    if len(first_rules) == 1 and isinstance(first_rules[0], Linear._backward_cls):  # type: ignore[attr-defined]
        first_rules[0].readout = marks.items_in
        return
    (slope,) = torch.autograd.grad(y.sum(), logits, retain_graph=True)
    slope = slope.reshape(len(y), -1)
    if bool((slope < 0).any()) or bool(((slope != 0).sum(1) != 1).any()):
        raise UnsupportedModelError(
            "relevance of a combination of logits needs a model whose last layer is linear; explain a single class"
        )


def _check_carriers(mode: RelevanceMode, forward_pass: ForwardPass) -> None:
    if any(layer.layout or layer.copied_from for layer in forward_pass.layers):
        raise UnsupportedModelError(
            f"relevance propagation does not follow attention that comes in parts ({forward_pass.adapter.name}); use a "
            "method of another family, such as agf or attgrads"
        )
    if not mode.seeds:
        raise UnsupportedModelError(
            "relevance propagation did not find the operation that reads the weights of get_input_embeddings()"
        )
    outputs = {"logits": [forward_pass.logits], "attention weights": forward_pass.attentions}
    for name, tensors in outputs.items():
        if not all(mode.marks.carries(tensor) for tensor in tensors):
            raise UnsupportedModelError(
                f"relevance propagation lost track of the model's {name}: they come from an operation that torch does "
                "not show, such as a custom kernel; use a method of another family, such as agf or attcat"
            )


def _check_output(output: Tensor, trace: Trace) -> None:
    """The model must compute the same output under the relevance mode."""
    scale = max(1.0, trace.logits.abs().max().item())
    gap = (output - trace.output).abs().max().item()
    if not gap <= _OUTPUT_TOLERANCE.get(trace.logits.dtype, 0.01) * scale:
        raise GaflowError(
            f"the model's output under relevance propagation is off by {gap:.2g}; its output may be random, or it may "
            "overwrite its own values: use a method of another family, such as agf or attcat"
        )


@contextmanager
def eager_compilation() -> Iterator[None]:
    """Compiled parts of a model run as the Python they were, whose operations torch shows."""
    stance = getattr(torch.compiler, "set_stance", None)
    if stance is None:  # before torch 2.6
        yield
    else:
        with stance("force_eager"):
            yield
