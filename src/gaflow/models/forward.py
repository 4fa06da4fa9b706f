"""A forward pass of a borrowed model: attention layers, hidden states and logits, still part of autograd's graph.

Where nothing but means over heads is wanted, attention is streamed (`streamed_attention.py`) if the model lets it.
Otherwise the pass is eager. Most models return their attention weights. An adapter (`gaflow.models.adapters`) reads the
weights of the others during the pass. For models without an adapter the softmaxes of the pass are taken, one for each
layer.

The convention this file owns: **a masked edge is no edge**. Where all heads have a weight of exactly 0, as for the
future of a decoder or beyond a sliding window, `dy/dA` is 0 as well.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from gaflow.errors import GaflowWarning, UnsupportedModelError, unsupported
from gaflow.inputs.batch import Batch
from gaflow.inputs.transformers_types import ModelOutput
from gaflow.models.adapters import RETURNED, SOFTMAXES, Adapter, find_adapter
from gaflow.models.adapters.observed import AttentionLayer, ObservedPass, recorded_softmaxes
from gaflow.models.attention_interface import uses_interface
from gaflow.models.attention_tensors import detached_without_padding, equalise_heads
from gaflow.models.cost import long_tokens
from gaflow.models.differentiation import differentiate
from gaflow.models.embeddings import replaced_embeddings, roots
from gaflow.models.memory import check_fits, is_out_of_memory
from gaflow.models.randomness import draws_numbers, moved_random_state, random_state_kept
from gaflow.models.recomputed_linear import recomputed_linear
from gaflow.models.residual_stream import Additions, ResidualSum, find_residual_sums
from gaflow.models.restore import borrow, modules_of, uncompiled
from gaflow.models.streamed_attention import HeadMean, Stream, streaming
from gaflow.models.streamed_layers import StreamedLayers, find_layers, padding_edges

RANDOM_OUTPUT = "the model's output is random: it draws numbers in eval mode, and another run may give other scores"
_SAME = 1e-3  # logits that differ by less, relatively or absolutely, are the same but for rounding
_SAME_IN_HALF = 0.05  # likewise in half precision
_IS_RANDOM: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()  # what `is_random` found out
Context = Callable[[], AbstractContextManager[object]]  # made anew for every run of the model
_STREAMS: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()  # what `can_stream` found out
_CHECKED_TOKENS = 128  # of a text, when a streamed pass is compared with an eager one


@dataclass(frozen=True)
class Gradients:
    """Gradients of the explained scalar `y`; None where `y` does not depend on a tensor."""

    attention: tuple[Tensor, ...]  # l x (b, h, t, t); none of a streamed pass
    hidden: list[Tensor | None]  # l+1 x (b, t, d)
    residual_sums: list[Tensor | None]  # l x (b, t, d), or none


@dataclass
class ForwardPass:
    """A forward pass of a batch, ready to be differentiated once."""

    model: nn.Module
    batch: Batch
    layers: tuple[AttentionLayer, ...]  # l
    hidden: tuple[Tensor, ...]  # l+1 x (b, t, d), or none
    logits: Tensor  # (b, ...)
    residual_sums: tuple[ResidualSum, ...] = ()  # l, if you asked for them
    adapter: Adapter = RETURNED  # where the layers come from
    has_zero_weights: bool = True  # whether a weight may be exactly 0
    embeddings: Tensor | None = None  # (b, t, d) that replaced the model's word embeddings
    context: Context = nullcontext  # that the model ran in
    streamed: StreamedLayers | None = None  # in place of layers

    @property
    def attentions(self) -> tuple[Tensor, ...]:
        """The attention weights of each layer, l x (b, h, t, t)."""
        return equalise_heads([layer.weights() for layer in self.layers])

    def gradients(self, y: Tensor) -> Gradients:
        """Gradients of `y` (b,) by attention weights, hidden states and residual sums. They use up the graph.

        Items of a batch do not interact, so the gradient of the summed `y` contains the gradient of each item.
        """
        hidden = [state for state in self.hidden if state.requires_grad]
        totals = [residual_sum.total for residual_sum in self.residual_sums]
        if self.streamed is not None:
            gradients = iter(self.streamed.differentiate(y, [*hidden, *totals]))
            return self._gradients((), gradients)
        edges = [edge for layer in self.layers for edge in layer.edges()]
        gradients = iter(differentiate(y, [*edges, *hidden, *totals]))
        with torch.no_grad():
            attention = []
            for number, layer in enumerate(self.layers):
                of_parts = [next(gradients) for _ in layer.parts]
                if all(gradient is None for gradient in of_parts):
                    raise UnsupportedModelError(f"no gradient of the output reaches the attention of layer {number}")
                attention.append(self._without_masked_edges(layer, layer.gradient(of_parts)))
        return self._gradients(equalise_heads(attention), gradients)

    def _gradients(self, attention: tuple[Tensor, ...], others: Iterator[Tensor | None]) -> Gradients:
        """The record, from gradients by the hidden states that have one, then by residual sums."""
        return Gradients(
            attention=attention,
            hidden=[next(others) if state.requires_grad else None for state in self.hidden],
            residual_sums=list(others),
        )

    def _without_masked_edges(self, layer: AttentionLayer, gradient: Tensor) -> Tensor:
        if not self.has_zero_weights:
            return gradient
        masked = (layer.weights() == 0).all(1, keepdim=True)
        if not masked.any():  # a copy of every layer's gradient is much memory
            return gradient
        return gradient.masked_fill(masked, 0)

    def release(self) -> None:
        """Let go of the graph and of its tensors, which long texts need the memory of."""
        self.layers = ()
        self.streamed = None
        self.hidden = ()
        self.residual_sums = ()
        self.logits = self.logits.detach()


def forward(
    model: nn.Module,
    batch: Batch,
    *,
    residual: bool = False,
    embeddings: Tensor | None = None,
    verify_dependence: bool = False,
    context: Context = nullcontext,
    head_means: Sequence[HeadMean] | None = None,
) -> ForwardPass:
    """Run `model` on `batch`. The model must be borrowed until the pass has been differentiated.

    `head_means` are all that is wanted of attention: the pass is streamed if the model lets it. None wants all heads.

    `residual` also finds the residual sums. `embeddings` (b, t, d) replace the word embeddings. `verify_dependence`
    walks autograd's graph to make sure that the logits depend on all layers. Otherwise a model that returns mere copies
    of its attention weights only shows when the pass is differentiated. The model runs inside a `context`, such as a
    torch function mode.
    """
    model = uncompiled(model)
    adapter = find_adapter(model)
    if head_means is not None and can_stream(model, batch):
        streamed = _run_streamed(model, batch, residual, embeddings, context, adapter, head_means)
        if streamed is not None:
            return streamed
        _STREAMS[model] = False
        check_fits(model, len(batch.mask), max(1, batch.mask.shape[1]))
    run = partial(_run, model, batch, residual, embeddings, verify_dependence, context)
    try:
        return run(adapter)
    except UnsupportedModelError as refusal:
        if adapter is not RETURNED:
            raise
        try:
            return run(SOFTMAXES)
        except UnsupportedModelError:
            raise refusal from None


def _run(
    model: nn.Module,
    batch: Batch,
    residual: bool,
    embeddings: Tensor | None,
    verify_dependence: bool,
    context: Context,
    adapter: Adapter,
) -> ForwardPass:
    additions = Additions(*batch.mask.shape)
    addition_recording = additions if residual else nullcontext()
    softmax_recording = recorded_softmaxes(model) if adapter.needs_softmaxes else nullcontext(())
    with replaced_embeddings(model, embeddings), softmax_recording as softmaxes, context(), addition_recording:
        outputs = model(**model_arguments(model, batch.inputs))
        logits = _logits(model, outputs)
    layers = tuple(adapter.read(ObservedPass(model, outputs, batch.mask, tuple(softmaxes))))
    has_zero_weights = _check_layers(model, layers, batch)
    if verify_dependence and not _depends_on(logits, layers):
        raise unsupported(model, "the attention weights it returns are copies that its output does not depend on")
    leaves = roots(model) if embeddings is None else [embeddings]
    residual_sums = _residual_sums(model, additions, layers, leaves) if residual else ()
    return ForwardPass(
        model=model,
        batch=batch,
        layers=layers,
        hidden=adapter.hidden(outputs),
        logits=logits,
        residual_sums=residual_sums,
        adapter=adapter,
        has_zero_weights=has_zero_weights,
        embeddings=embeddings,
        context=context,
    )


def _run_streamed(
    model: nn.Module,
    batch: Batch,
    residual: bool,
    embeddings: Tensor | None,
    context: Context,
    adapter: Adapter,
    head_means: Sequence[HeadMean],
) -> ForwardPass | None:
    """A streamed pass; None if this model or this batch needs an eager one."""
    additions = Additions(*batch.mask.shape)
    addition_recording = additions if residual else nullcontext()
    stream = Stream(tuple(head_means), padding_edges(batch))
    is_long = batch.mask.shape[1] >= long_tokens(batch.mask.device.type)
    keeping_inputs = recomputed_linear() if is_long else nullcontext()
    try:
        with (
            replaced_embeddings(model, embeddings),
            keeping_inputs,
            streaming(model, stream),
            context(),
            addition_recording,  # inside, where it sees what the model adds, not what a mode does about it
        ):
            outputs = model(**model_arguments(model, batch.inputs, observe=("hidden_states",)))
            logits = _logits(model, outputs)
        hidden = adapter.hidden(outputs)
        layers = find_layers(model, adapter, stream, hidden, batch)
    except UnsupportedModelError:
        return None
    leaves = roots(model) if embeddings is None else [embeddings]
    residual_sums = ()
    if residual:
        attentions = [layer.output for layer in layers if layer.output is not None]
        residual_sums = _find_all_residual_sums(model, additions, attentions, leaves)
    for call in stream.calls:
        call.output = None
    return ForwardPass(
        model=model,
        batch=batch,
        layers=(),
        hidden=hidden,
        logits=logits,
        residual_sums=residual_sums,
        adapter=adapter,
        embeddings=embeddings,
        context=context,
        streamed=StreamedLayers(stream, tuple(layers)),
    )


def _residual_sums(
    model: nn.Module, additions: Additions, layers: Sequence[AttentionLayer], leaves: Sequence[Tensor]
) -> tuple[ResidualSum, ...]:
    if any(layer.layout for layer in layers):
        raise unsupported(model, "its attention comes in parts, which are not followed into the residual stream")
    return _find_all_residual_sums(model, additions, [layer.parts[0] for layer in layers], leaves)


def _find_all_residual_sums(
    model: nn.Module, additions: Additions, attentions: Sequence[Tensor], leaves: Sequence[Tensor]
) -> tuple[ResidualSum, ...]:
    residual_sums = []
    for number, residual_sum in enumerate(find_residual_sums(additions.recorded, attentions, leaves)):
        if residual_sum is None:
            raise unsupported(model, f"no addition of layer {number} joins its attention to a residual stream")
        residual_sums.append(residual_sum)
    return tuple(residual_sums)


def compute_logits(model: nn.Module, inputs: Mapping[str, Tensor], embeddings: Tensor | None = None) -> Tensor:
    """The logits (b, ...) of a forward pass of a model, which is borrowed meanwhile.

    `embeddings` (b, t, d) replace the word embeddings. The model keeps its attention implementation, which may be
    several times faster than eager attention for long texts. Gradients flow if they are enabled where you call this.
    """
    differentiable = torch.is_grad_enabled() and (embeddings is None or embeddings.requires_grad)
    with borrow(model, eager=False), torch.set_grad_enabled(differentiable), replaced_embeddings(model, embeddings):
        outputs = model(**model_arguments(model, inputs, observe=()))
        return _logits(model, outputs, differentiable)


def may_stream(model: nn.Module) -> bool:
    """Whether streaming is worth a try: attention goes through transformers' interface, and no adapter is needed."""
    model = uncompiled(model)
    if find_adapter(model).part is None:
        return False
    return _STREAMS.get(model, False) or uses_interface(modules_of(model))


def knows_stream(model: nn.Module) -> bool | None:
    """Whether passes of the model are streamed, if that was found out already."""
    return _STREAMS.get(uncompiled(model))


def can_stream(model: nn.Module, batch: Batch) -> bool:
    """Whether a streamed pass of a borrowed model gives what an eager one does.

    Finding out takes two short passes, once for each model.
    """
    model = uncompiled(model)
    if model not in _STREAMS:
        _STREAMS[model] = may_stream(model) and _streams_alike(model, batch)
    return _STREAMS[model]


def _streams_alike(model: nn.Module, batch: Batch) -> bool:
    """Whether both ways give the same logits for the beginning of a text, or for all of it if a part makes no sense."""
    for length in (_CHECKED_TOKENS, None):
        inputs = batch.select([0], length).inputs
        try:
            expected = _checked_logits(model, inputs)
            with streaming(model, Stream(())):
                logits = _checked_logits(model, inputs)
        except UnsupportedModelError:
            return False
        except Exception as error:  # of the model's own code: it may need the end of the text, or know no interface
            if is_out_of_memory(error):  # of this moment, and no property of the model
                raise
            if length is None:
                return False
            continue
        tolerance = _SAME if torch.finfo(logits.dtype).bits > 16 else _SAME_IN_HALF
        scale = max(1.0, float(expected.abs().max()))
        return bool((logits - expected).abs().max() <= tolerance * scale)
    return False


def _checked_logits(model: nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
    """Logits of a pass that nobody notices: models that draw numbers draw the same ones in the next pass."""
    with torch.no_grad(), random_state_kept(model):
        return _logits(model, model(**model_arguments(model, inputs, observe=())), differentiable=False)


def is_random(model: nn.Module, inputs: Mapping[str, Tensor], logits: Tensor) -> bool:
    """Whether the logits (b, ...) of a pass depend on the random state; warns when it finds out that they do.

    Finding out takes another pass, once, if the model draws random numbers.
    """
    model = uncompiled(model)
    if not draws_numbers(model):
        return False
    if model not in _IS_RANDOM:
        with borrow(model, eager=False), moved_random_state(model), torch.no_grad():
            other_logits = compute_logits(model, inputs)
        _IS_RANDOM[model] = not torch.allclose(logits, other_logits, rtol=_SAME, atol=_SAME)
        if _IS_RANDOM[model]:
            warnings.warn(RANDOM_OUTPUT, GaflowWarning, stacklevel=2)
    return _IS_RANDOM[model]


def model_arguments(
    model: nn.Module, inputs: Mapping[str, Tensor], observe: Sequence[str] = ("attentions", "hidden_states")
) -> dict[str, Any]:
    """The inputs and switches that the model's `forward` has parameters for, or takes as further keywords.

    The model returns what you `observe`.
    """
    parameters = inspect.signature(model.forward).parameters
    takes_keywords = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    arguments: dict[str, Any] = {}
    for name, value in inputs.items():
        if name in parameters or "input_ids" not in parameters:
            arguments[name] = value
    switches = {"return_dict": True}
    for name in ("attentions", "hidden_states"):
        switches[f"output_{name}"] = name in observe
    for name, value in switches.items():
        if name in parameters or takes_keywords:
            arguments[name] = value
    if "use_cache" in parameters:
        arguments["use_cache"] = False
    return arguments


def _logits(model: nn.Module, outputs: ModelOutput, differentiable: bool = True) -> Tensor:
    logits = getattr(outputs, "logits", None)
    start_logits = getattr(outputs, "start_logits", None)
    end_logits = getattr(outputs, "end_logits", None)
    if isinstance(start_logits, Tensor) and isinstance(end_logits, Tensor):
        logits = torch.stack([start_logits, end_logits], -1)  # (b, t, 2)
    if not isinstance(logits, Tensor):
        raise unsupported(model, "it returns no logits")
    if logits.is_complex():
        raise unsupported(model, "its logits are complex numbers")
    if differentiable and not logits.requires_grad:
        raise unsupported(model, "its logits are cut off from autograd")
    return logits


def _check_layers(model: nn.Module, layers: Sequence[AttentionLayer], batch: Batch) -> bool:
    """Refuse layers that no layered network can be built from. Returns whether a weight may be exactly 0."""
    if not layers:
        raise unsupported(model, "gaflow needs the attention weights of every layer, and it returns none")
    b = len(batch.mask)
    t = batch.mask.shape[1] or layers[0].weights().shape[-1]
    extremes = []
    for number, layer in enumerate(layers):
        if not all(part.requires_grad for part in layer.parts):
            raise unsupported(model, f"the attention weights of layer {number} are cut off from autograd")
        with torch.no_grad():
            weights = layer.weights()
            heads = weights.shape[1:2]
            if weights.shape != (b, *heads, t, t):
                shape = f"{tuple(weights.shape)}, not (b, h, t, t) = ({b}, h, {t}, {t})"
                raise unsupported(model, f"layer {number} has attention weights of shape {shape}")
            if batch.padded:
                (weights,) = detached_without_padding([weights], batch.mask)
            extremes += weights.aminmax()
    values = torch.stack([x.to(extremes[0]) for x in extremes]).tolist()  # one transfer from the device
    if not all(map(math.isfinite, values)):
        dtype = str(layers[0].parts[0].dtype).removeprefix("torch.")
        advice = "load the model with dtype=torch.float32, or give texts of one length"
        raise unsupported(model, f"its attention weights are not finite in {dtype}: {advice}")
    if min(values) < 0:
        raise unsupported(model, "its attention weights are negative, so they are no weights of an average")
    return batch.padded or min(values) == 0


def graph_nodes(result: Tensor, borders: tuple[type, ...] = ()) -> set[Node]:
    """The nodes of autograd's graph that lead to a result, as far as those of the classes `borders`."""
    stack = [result.grad_fn]
    nodes = set()
    while stack:
        node = stack.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            if not isinstance(node, borders):
                stack += [parent for parent, _ in node.next_functions]
    return nodes


def _depends_on(result: Tensor, layers: Sequence[AttentionLayer]) -> bool:
    """Whether autograd's graph leads from a result to some part of each layer."""
    reached = graph_nodes(result)
    for layer in layers:
        if not any(edge.node in reached for edge in layer.edges()):
            return False
    return True
