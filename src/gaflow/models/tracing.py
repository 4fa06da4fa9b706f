"""One look into a model: attention weights, hidden states, and the gradient of `y` by both.

Axes of a layer are `(batch, head, query, key)`; its gradient is `dy/dA`. One forward pass with eager attention and one
`torch.autograd.grad` give everything. Items of a batch do not interact, so the gradient of the summed `y`
holds every item's own. Rows and columns of padding are zero.

Most models hand out their weights; an adapter (`gaflow.models.adapters`) reads those of the others and lays them out;
if there is none, the softmaxes of the pass are taken, one for each layer. A model is always borrowed
(`gaflow.models.restore`): gradients and random state, too, are afterwards what they were.

The convention this file owns: **what is masked is no edge**. Where every head has a weight of exactly 0, as for the
future of a decoder or beyond a window, `dy/dA` is 0 as well.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from gaflow.errors import GaflowError, UnsupportedModelError
from gaflow.inputs.batch import Batch
from gaflow.models.adapters import OWN, SOFTMAXES, Adapter, AttentionLayer, ObservedPass, find_adapter, watch
from gaflow.models.attention_tensors import accumulation_dtype, detached_without_padding, equalise_heads, stack_layers
from gaflow.models.residual_stream import Additions, Junction, junctions
from gaflow.models.restore import borrow, replaced_embeddings, roots, unsupported, word_embedding

__all__ = ["ForwardPass", "Readout", "Trace", "TracedModel", "borrow", "forward", "roots", "trace", "word_embedding"]

Readout = Callable[[Tensor, Sequence[int]], Tensor]  # logits (n, ...) of variants of texts `items` -> y (n,)


_SCALES = (2.0**15, 2.0**10, 2.0**5, 1.0)


@dataclass(frozen=True)
class TracedModel:
    """What was asked of which model, for methods that must ask again about changed inputs."""

    model: nn.Module
    batch: Batch
    read: Readout
    report: Callable[[float], object] = lambda part: None  # told which part of the answer is there, 0 to 1

    def logits(
        self, items: Sequence[int], *, words: Tensor | None = None, eager: bool = True, **changed: Tensor
    ) -> Tensor:
        """Logits of texts `items` of the batch (any number of times each) with some inputs replaced.

        `words` (n, t, d) takes the place of what the word embedding gives. `eager=False` leaves the model's attention
        implementation as it is, which may be several times faster for long texts. Gradients flow if they are enabled
        where this is called.
        """
        chosen = torch.as_tensor(items, device=self.batch.mask.device)
        inputs = {name: value[chosen] for name, value in self.batch.inputs.items()} | changed
        wanted = torch.is_grad_enabled()
        with borrow(self.model, eager=eager), torch.set_grad_enabled(wanted), replaced_embeddings(self.model, words):
            outputs = self.model(**_arguments(self.model, inputs, observe=False))
            return _logits(self.model, outputs, wanted)

    def output(
        self, items: Sequence[int], *, words: Tensor | None = None, eager: bool = True, **changed: Tensor
    ) -> Tensor:
        """The explained scalar `y` (n,) of the same."""
        return self.read(self.logits(items, words=words, eager=eager, **changed), items)

    def alone(self, item: int) -> TracedModel:
        """The same about one text of the batch."""
        batch, chosen = self.batch, slice(item, item + 1)
        inputs = {name: value[chosen] for name, value in batch.inputs.items()}
        one = Batch(inputs, batch.mask[chosen], batch.padded, batch.encodings[chosen])
        return TracedModel(self.model, one, lambda logits, items: self.read(logits, [item for _ in items]), self.report)


@dataclass(frozen=True)
class ForwardPass:
    """What a forward pass of a borrowed model gives, still part of the graph."""

    layers: tuple[AttentionLayer, ...]  # l
    hidden: tuple[Tensor, ...]  # l+1 x (b, t, d), or none
    logits: Tensor  # (b, ...)
    sums: tuple[Junction, ...] = ()  # l x the residual sum of each layer, if asked for
    adapter: Adapter = OWN  # where the layers come from
    gaps: bool = True  # whether a weight may be exactly 0

    @property
    def attentions(self) -> tuple[Tensor, ...]:
        """The weights of every layer, l x (b, h, t, t)."""
        return equalise_heads([layer.weights() for layer in self.layers])

    def slopes(self, y: Tensor) -> tuple[list[Tensor], list[Tensor | None], list[Tensor | None]]:
        """Gradients of `y` by attention, hidden states and residual sums; None where it does not depend on them."""
        inside = [k for k, h in enumerate(self.hidden) if h.requires_grad]
        parts = [a for layer in self.layers for a in layer.handles()]
        wanted: Any = [*parts, *(self.hidden[k] for k in inside), *(s.total for s in self.sums)]
        found = _gradients(y, wanted)
        first, last = len(parts), len(wanted) - len(self.sums)
        of_hidden = dict(zip(inside, found[first:last], strict=True))
        of_parts = iter(found[:first])
        with torch.no_grad():
            laid: list[Tensor] = []
            for layer in self.layers:
                known = [next(of_parts) for _ in layer.parts]
                if all(g is None for g in known):
                    raise UnsupportedModelError(f"no gradient of the output reaches the attention of layer {len(laid)}")
                laid.append(layer.slope(known))
            for k, layer in enumerate(self.layers if self.gaps else ()):
                masked = (layer.weights() == 0).all(1, keepdim=True)
                if bool(masked.any()):
                    laid[k] = laid[k].masked_fill(masked, 0)
        return list(equalise_heads(laid)), [of_hidden.get(k) for k in range(len(self.hidden))], list(found[last:])


@dataclass(frozen=True)
class Trace:
    """What one forward and one backward pass showed of a batch."""

    attentions: tuple[Tensor, ...]  # l x (b, h, t, t) float32 or wider, zero at padding
    gradients: tuple[Tensor, ...]  # l x (b, h, t, t) dy/dA, likewise
    hidden: tuple[Tensor, ...]  # l+1 x (b, t, d): embeddings and the output of every block, in the model's dtype
    hidden_gradient: tuple[Tensor | None, ...]  # l+1 x (b, t, d) dy/dh; None where the model hands out a mere copy
    logits: Tensor  # (b, c)
    output: Tensor  # (b,) y, the explained scalar
    mask: Tensor  # (b, t) bool: real tokens
    model: TracedModel | None = None  # what this answers; None for tensors that no model gave
    stream: tuple[Tensor, ...] = ()  # l x (b, t, d) what each layer's attention is added to; () unless asked for
    stream_gradient: tuple[Tensor, ...] = ()  # l x (b, t, d) dy/ds of the residual sums, likewise
    heads: tuple[int, ...] = ()  # (l,) how many the model has; a layer with fewer than h shows each several times
    adapter: str = ""  # who read the attention weights, if the model did not hand them out

    @cached_property
    def attention(self) -> Tensor:
        """All layers of it side by side, (b, l, h, t, t): a copy, made when first asked for, and kept."""
        return stack_layers(self.attentions)

    @cached_property
    def gradient(self) -> Tensor:
        """All layers of dy/dA side by side, likewise a copy."""
        return stack_layers(self.gradients)

    def require_model(self) -> TracedModel:
        """The question, for methods that need more than the trace."""
        if self.model is None:
            raise GaflowError("this method asks the model again, but the trace was made without one")
        return self.model

    def rows(self) -> Tensor:
        """How much each output position is read by the head, (b, t), rows summing to 1: where "row 0" is decided.

        What is read shows in the gradient: past the last attention a position only speaks for itself, so that
        `dy/dA` of the top layer is zero in every row that the head does not read. [CLS] heads read one row, heads
        that pool by the mean read all of them alike. Where `y` changes with nothing, nothing is read: all zero.
        """
        top = self.gradients[-1]
        read = (top != 0).any(-1).any(1).to(top.dtype)  # (b, t)
        return read / read.sum(-1, keepdim=True).clamp_min(1)


def trace(
    model: nn.Module,
    batch: Batch,
    choose: Callable[[Tensor], Readout],
    report: Callable[[float], object] = lambda part: None,
    *,
    residual: bool = False,
) -> Trace:
    """Trace `model` on `batch`; `choose` sees its logits (b, c) and says how `y` is read from them.

    Methods that ask the model again tell `report` how far they are. `residual` looks at the residual sums, too.
    """
    model = getattr(model, "_orig_mod", model)  # a compiled model would run without the outputs asked for here
    with borrow(model):
        seen, read, y, (of_attention, of_hidden, of_sums) = _answered(model, batch, choose, residual)
    hidden, sums, logits = seen.hidden, seen.sums, seen.logits
    with torch.inference_mode(False), torch.no_grad():
        real = batch.mask if batch.padded else None
        attentions = detached_without_padding(seen.attentions, real)
        b, _, _, t = attentions[0].shape
        mask = batch.mask if batch.mask.shape[1] else batch.mask.new_ones(b, t)
        heads, adapter = tuple(layer.weights().shape[1] for layer in seen.layers), seen.adapter
        del seen  # long texts need the memory
        return Trace(
            attentions=attentions,
            gradients=detached_without_padding(of_attention, real),
            hidden=tuple(h.detach() for h in hidden),
            hidden_gradient=tuple(of_hidden),
            logits=logits.detach(),
            output=y.detach(),
            mask=mask,
            model=TracedModel(model, batch, read, report),
            stream=tuple(s.stream for s in sums),
            stream_gradient=tuple(s.stream * 0 if g is None else g for s, g in zip(sums, of_sums, strict=True)),
            heads=heads,
            adapter=adapter.name,
        )


def _answered(
    model: nn.Module, batch: Batch, choose: Callable[[Tensor], Readout], residual: bool
) -> tuple[ForwardPass, Readout, Tensor, tuple[list[Tensor], list[Tensor | None], list[Tensor | None]]]:
    """A look, how `y` is read, `y`, and its slopes. Only where they show gaps is there a need to walk the graph."""
    for proven in (False, True):
        seen = forward(model, batch, residual=residual, proven=proven)
        read = choose(seen.logits)
        y = read(seen.logits, range(len(seen.logits)))
        try:
            return seen, read, y, seen.slopes(y)
        except UnsupportedModelError:
            if proven:
                raise
    raise AssertionError("the last look is proven")


def _gradients(y: Tensor, wanted: list[Any]) -> list[Tensor | None]:
    """Gradients of `y`; those of half precision are computed of a multiple of it, the largest that does not overflow.

    What float16 cannot hold of a gradient, below 6e-8, would be zero, and edges would die. A power of two changes no
    digit, and is taken out again in float32. bfloat16 has the range of float32.
    """
    for scale in _SCALES if y.dtype == torch.float16 else (1.0,):
        found = torch.autograd.grad(
            y.to(accumulation_dtype(y)).sum() * scale, wanted, allow_unused=True, retain_graph=scale > 1
        )
        if scale == 1 or all(bool(g.isfinite().all()) for g in found if g is not None):
            return [g if g is None or scale == 1 else g.to(accumulation_dtype(g)) / scale for g in found]
    raise AssertionError("the last scale is 1")


def forward(
    model: nn.Module, batch: Batch, *, residual: bool = False, words: Tensor | None = None, proven: bool = True
) -> ForwardPass:
    """A forward pass of `model`, which is borrowed already; `words` (b, t, d) as in `Question.logits`.

    Unless it is `proven` that the logits depend on all layers, `slopes` may find out that they do not.
    """
    adapter = find_adapter(model)
    try:
        return _look(model, batch, adapter, residual, words, proven)
    except UnsupportedModelError as refused:
        if adapter is not OWN:
            raise
        try:
            return _look(model, batch, SOFTMAXES, residual, words, proven)
        except UnsupportedModelError:
            raise refused from None


def _look(
    model: nn.Module, batch: Batch, adapter: Adapter, residual: bool, words: Tensor | None, proven: bool
) -> ForwardPass:
    additions = Additions(*batch.mask.shape)
    watching = watch(model) if adapter.watches else nullcontext(())
    with replaced_embeddings(model, words), additions if residual else nullcontext(), watching as softmaxes:
        outputs = model(**_arguments(model, batch.inputs))
    logits = _logits(model, outputs)
    layers = tuple(adapter.read(ObservedPass(model, outputs, batch.mask, tuple(softmaxes))))
    gaps = _check_layers(model, layers, batch)
    if proven and not _depends(logits, layers):
        raise unsupported(model, "the attention weights it returns are copies that its output does not depend on")
    found: list[Junction | None] = []
    if residual:
        if any(layer.lay for layer in layers):
            raise unsupported(model, "its attention comes in parts, whose way into the residual stream is not followed")
        leaves = roots(model) if words is None else [words]
        found = junctions(additions.found, [layer.parts[0] for layer in layers], leaves)
        if None in found:
            where = f"layer {found.index(None)}"
            raise unsupported(model, f"no addition of {where} joins its attention to a residual stream")
    sums = tuple(each for each in found if each is not None)
    return ForwardPass(layers, adapter.hidden(outputs), logits, sums, adapter, gaps)


def _arguments(model: nn.Module, inputs: dict[str, Tensor], observe: bool = True) -> dict[str, Any]:
    """The inputs and switches that the model's forward knows by name, or takes as further keywords."""
    parameters = inspect.signature(model.forward).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    named = "input_ids" in parameters
    arguments: dict[str, Any] = {k: v for k, v in inputs.items() if k in parameters or not named}
    switches = {"output_attentions": observe, "output_hidden_states": observe, "return_dict": True}
    arguments |= {k: v for k, v in switches.items() if k in parameters or open_ended}
    if "use_cache" in parameters:
        arguments["use_cache"] = False
    return arguments


def _check_layers(model: nn.Module, layers: Sequence[AttentionLayer], batch: Batch) -> bool:
    """Refuse what a layered network cannot be built from; tells whether a weight may be exactly 0."""
    if not layers:
        raise unsupported(model, "gaflow needs the attention weights of every layer, and it returns none")
    b, t = len(batch.mask), batch.mask.shape[1] or layers[0].weights().shape[-1]
    ends: list[Tensor] = []
    for k, layer in enumerate(layers):
        if not all(a.requires_grad for a in layer.parts):
            raise unsupported(model, f"the attention weights of layer {k} are cut off from autograd")
        with torch.no_grad():
            weights = layer.weights()
            if weights.dim() != 4 or (weights.shape[0], *weights.shape[2:]) != (b, t, t):
                shape = f"{tuple(weights.shape)}, not (b, h, t, t) = ({b}, h, {t}, {t})"
                raise unsupported(model, f"layer {k} has attention weights of shape {shape}")
            known = detached_without_padding([weights], batch.mask)[0] if batch.padded else weights
            ends += (known.amin(), known.amax())
    values: list[float] = torch.stack([end.to(ends[0]) for end in ends]).tolist()  # the device is asked once
    if not all(map(math.isfinite, values)):
        dtype = f"{layers[0].parts[0].dtype}".removeprefix("torch.")
        advice = "load the model with dtype=torch.float32, or give texts of one length"
        raise unsupported(model, f"its attention weights are not finite in {dtype}: {advice}")
    if min(values) < 0:
        raise unsupported(model, "its attention weights are negative, so no weights of an average")
    return batch.padded or min(values) == 0


def _depends(result: Tensor, layers: Sequence[AttentionLayer]) -> bool:
    """Whether autograd's graph leads from a result to some part of every layer."""
    waiting: list[Any] = [get_gradient_edge(result).node]
    found: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.add(node)
            waiting += [below for below, _ in node.next_functions]
    edges = [[get_gradient_edge(a) if isinstance(a, Tensor) else a for a in layer.handles()] for layer in layers]
    return all(any(edge.node in found for edge in each) for each in edges)


def _logits(model: nn.Module, outputs: Any, differentiable: bool = True) -> Tensor:
    logits = getattr(outputs, "logits", None)
    start, end = (getattr(outputs, name, None) for name in ("start_logits", "end_logits"))
    if isinstance(start, Tensor) and isinstance(end, Tensor):
        logits = torch.stack([start, end], -1)  # (b, t, 2)
    if not isinstance(logits, Tensor):
        raise unsupported(model, "it returns no logits")
    if differentiable and not logits.requires_grad:
        raise unsupported(model, "its logits are cut off from autograd")
    return logits
