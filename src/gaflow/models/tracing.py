"""The trace of a batch: attention weights, hidden states, and the gradient of the explained scalar `y` by both.

A trace takes three steps: `forward` runs the model, you decide which logits are explained, `backward` differentiates
their sum `y`. Axes of an attention layer are `(batch, head, query, key)`, and its gradient is `dy/dA`. One forward pass
with eager attention and one `torch.autograd.grad` give everything.

    with borrow(model):
        forward_pass = forward(model, batch)
        outputs = head.outputs(forward_pass.logits, batch.encodings, targets)
        trace = backward(forward_pass, [output.terms for output in outputs])

Most methods need no more of attention than means over heads. The trace of a streamed pass holds these in place of all
heads, and takes far less memory (`streamed_attention.py`). Methods read them by `Trace.head_mean`, which computes them
where the trace holds all heads.

The convention this file owns: rows and columns of padding are zero, and a trace holds no part of autograd's graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from gaflow.errors import GaflowError, UnsupportedModelError
from gaflow.inputs.batch import Batch
from gaflow.models.attention_tensors import accumulation_dtype, detached_without_padding, stack_layers
from gaflow.models.forward import ForwardPass, Gradients, compute_logits, forward
from gaflow.models.streamed_attention import HeadMean
from gaflow.models.streamed_layers import LayerMeans
from gaflow.progress import Report, silent
from gaflow.tasks.targets import LogitTerm, explained_scalar

Terms = Sequence[Sequence[LogitTerm]]  # of each item of a batch: the weights and positions of its logits in `y`


@dataclass(frozen=True)
class TracedModel:
    """The model behind a trace and its explained outputs, for methods that run the model again on changed inputs."""

    model: nn.Module
    batch: Batch
    terms: Terms
    report: Report = silent  # called with the fraction of a method's work that is done

    def output(
        self,
        items: Sequence[int],
        length: int | None = None,
        *,
        embeddings: Tensor | None = None,
        **changed: Tensor,
    ) -> Tensor:
        """The explained scalar `y` (n,) of texts `items` of the batch, each any number of times, with `changed` inputs.

        The texts are cut to `length` tokens. `embeddings` (n, t, d) as in `compute_logits`.
        """
        inputs = self.batch.select(items, length).inputs | changed
        return self.scalar(compute_logits(self.model, inputs, embeddings), items)

    def scalar(self, logits: Tensor, items: Sequence[int]) -> Tensor:
        """The explained scalar `y` (n,) from the logits (n, ...) of variants of texts `items`."""
        return explained_scalar(logits, [self.terms[item] for item in items])

    def alone(self, item: int) -> TracedModel:
        """The same for one text of the batch."""
        return replace(self, batch=self.batch.select([item]), terms=[self.terms[item]])


@dataclass(frozen=True)
class Trace:
    """The result of one forward and one backward pass of a batch."""

    attentions: tuple[Tensor, ...]  # l x (b, h, t, t) float32 or wider, zero at padding; () of a streamed pass
    gradients: tuple[Tensor, ...]  # l x (b, h, t, t) dy/dA, likewise
    hidden: tuple[Tensor, ...]  # l+1 x (b, t, d): embeddings and the output of every block, in the model's dtype
    hidden_gradient: tuple[Tensor | None, ...]  # l+1 x (b, t, d) dy/dh; None where the model returns a mere copy
    logits: Tensor  # (b, c)
    output: Tensor  # (b,) y, the explained scalar
    mask: Tensor  # (b, t) bool: real tokens
    model: TracedModel | None = None  # that was traced; None for tensors that come from no model
    stream: tuple[Tensor, ...] = ()  # l x (b, t, d) what each layer's attention is added to; () unless asked for
    stream_gradient: tuple[Tensor, ...] = ()  # l x (b, t, d) dy/ds of the residual sums, likewise
    adapter: str = ""  # that read the attention weights, if the model did not return them
    gradient_kind: str = "plain"  # or a kind of balanced gradients
    layer_means: LayerMeans | None = None  # of a streamed pass, in place of attentions and gradients
    keeps_flow: bool = True  # False: flow methods may let go of the edges of a flow, of which they need its nodes

    @cached_property
    def attention(self) -> Tensor:
        """All layers in one tensor (b, l, h, t, t): a copy, made at first use and then kept."""
        self._require_heads()
        return stack_layers(self.attentions)

    @cached_property
    def gradient(self) -> Tensor:
        """All layers of dy/dA in one tensor, likewise a copy."""
        self._require_heads()
        return stack_layers(self.gradients)

    def _require_heads(self) -> None:
        if self.layer_means is not None:
            raise GaflowError(
                "this trace holds means over heads, since the method declares that it needs no more: declare all of "
                "its head_means, or none to get all heads"
            )

    @property
    def needed_means(self) -> tuple[HeadMean, ...] | None:
        """All that the methods of this trace need of attention; None if it is all heads."""
        return None if self.layer_means is None else self.layer_means.head_means

    @property
    def layers(self) -> int:
        """How many layers of attention there are."""
        return len(self.attentions) if self.layer_means is None else len(self.layer_means.heads)

    @property
    def heads(self) -> int:
        """How many heads each layer has, once layers with fewer repeat them."""
        return self.attentions[0].shape[1] if self.layer_means is None else math.lcm(*self.layer_means.heads)

    def head_mean(self, head_mean: HeadMean, layer: int) -> Tensor:
        """The mean over heads of one layer, (b, t, t)."""
        if self.layer_means is None:
            return head_mean.of(self.attentions[layer], self.gradients[layer])
        if head_mean not in self.layer_means.means:
            self._require_heads()
        return self.layer_means.means[head_mean][layer]

    def head_means(self, head_mean: HeadMean) -> Tensor:
        """The mean over heads of all layers, (b, l, t, t)."""
        return torch.stack([self.head_mean(head_mean, layer) for layer in range(self.layers)], 1)

    def require_model(self) -> TracedModel:
        """The traced model, for methods that need more than the trace."""
        if self.model is None:
            raise GaflowError("this method runs the model again, but the trace was made without one")
        return self.model

    def rows(self) -> Tensor:
        """How much the head reads each output position, (b, t), rows summing to 1: where "row 0" is decided.

        The gradient shows it: above the last attention a position only influences itself, so `dy/dA` of the top layer
        is zero in every row that the head does not read. [CLS] heads read one row, heads that pool by the mean read
        all of them alike. Where `y` depends on nothing, all rows are zero.
        """
        if self.layer_means is None:
            top = self.gradients[-1]
            is_read = (top != 0).any(-1).any(1).to(top.dtype)  # (b, t)
        else:
            is_read = self.layer_means.read.to(accumulation_dtype(self.logits))
        return is_read / is_read.sum(-1, keepdim=True).clamp_min(1)


def backward(forward_pass: ForwardPass, terms: Terms, report: Report = silent) -> Trace:
    """Differentiate a forward pass, whose model is still borrowed, by the scalar that `terms` describe.

    `terms` has one entry for each item of the batch, as in `ExplainedOutput.terms`. Methods that run the model again
    call `report` with the fraction of their work that is done. The forward pass is used up: its tensors are released.
    """
    y = explained_scalar(forward_pass.logits, terms)
    try:
        gradients = forward_pass.gradients(y)
    except UnsupportedModelError:
        gradients = None
    if gradients is None:  # outside the handler, whose traceback would hold on to the tensors of the first pass
        # Walking the graph gives a better error, or finds the softmaxes behind the copies that the model returned.
        residual = bool(forward_pass.residual_sums)
        forward_pass.release()
        forward_pass = forward(
            forward_pass.model,
            forward_pass.batch,
            residual=residual,
            embeddings=forward_pass.embeddings,
            verify_dependence=True,
            context=forward_pass.context,
        )  # of all heads, whatever the first pass was
        y = explained_scalar(forward_pass.logits, terms)
        gradients = forward_pass.gradients(y)
    traced_model = TracedModel(forward_pass.model, forward_pass.batch, terms, report)
    with torch.no_grad():
        return _build_trace(forward_pass, y.detach(), gradients, traced_model)


def _build_trace(forward_pass: ForwardPass, y: Tensor, gradients: Gradients, traced_model: TracedModel) -> Trace:
    batch = forward_pass.batch
    real_tokens = batch.mask if batch.padded else None
    attentions = ()
    layer_means = None
    if forward_pass.streamed is not None:
        layer_means = forward_pass.streamed.means()
        tokens = layer_means.read.shape[-1]
    else:
        attentions = detached_without_padding(forward_pass.attentions, real_tokens)
        tokens = attentions[0].shape[-1]
    mask = batch.mask
    if mask.shape[1] == 0:  # only the model knows how many tokens it made of pictures or sounds
        mask = mask.new_ones(len(mask), tokens)
    streams = tuple(residual_sum.stream for residual_sum in forward_pass.residual_sums)
    stream_gradients = []
    for stream, gradient in zip(streams, gradients.residual_sums, strict=True):
        stream_gradients.append(torch.zeros_like(stream) if gradient is None else gradient)
    hidden = tuple(state.detach() for state in forward_pass.hidden)
    forward_pass.release()  # long texts need the memory
    attention_gradients = ()
    if layer_means is None:
        attention_gradients = detached_without_padding(gradients.attention, real_tokens)
    return Trace(
        attentions=attentions,
        gradients=attention_gradients,
        hidden=hidden,
        hidden_gradient=tuple(gradients.hidden),
        logits=forward_pass.logits,
        output=y,
        mask=mask,
        model=traced_model,
        stream=streams,
        stream_gradient=tuple(stream_gradients),
        adapter=forward_pass.adapter.name,
        layer_means=layer_means,
    )
