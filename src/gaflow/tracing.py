"""One look into a model: attention weights, hidden states, and the gradient of `y` by both.

Axes are `(batch, layer, head, query, key)`; `gradient = dy/dA`. One forward pass with eager attention and one
`torch.autograd.grad` give everything. Items of a batch do not interact, so the gradient of the summed `y`
holds every item's own. Rows and columns of padding are zero.

The convention this file owns: a model is **borrowed**. Attention implementation, train/eval flags,
`requires_grad`, forward hooks, gradients and random state are afterwards what they were before, also when
something fails.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from gaflow.errors import GaflowError, UnsupportedModelError
from gaflow.residual import Additions, Junction, junctions
from gaflow.text import Batch

__all__ = ["Look", "Question", "Readout", "Trace", "borrow", "look", "roots", "stack", "trace", "word_embedding"]

Readout = Callable[[Tensor, Sequence[int]], Tensor]  # logits (n, ...) of variants of texts `items` -> y (n,)

_LOCKS: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()


@dataclass(frozen=True)
class Question:
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
        with borrow(self.model, eager=eager), torch.set_grad_enabled(wanted), _spoken(self.model, words):
            outputs = self.model(**_arguments(self.model, inputs, observe=False))
            return _logits(self.model, outputs, wanted)

    def output(
        self, items: Sequence[int], *, words: Tensor | None = None, eager: bool = True, **changed: Tensor
    ) -> Tensor:
        """The explained scalar `y` (n,) of the same."""
        return self.read(self.logits(items, words=words, eager=eager, **changed), items)

    def alone(self, item: int) -> Question:
        """The same about one text of the batch."""
        batch, chosen = self.batch, slice(item, item + 1)
        inputs = {name: value[chosen] for name, value in batch.inputs.items()}
        one = Batch(inputs, batch.mask[chosen], batch.padded, batch.encodings[chosen])
        return Question(self.model, one, lambda logits, items: self.read(logits, [item for _ in items]), self.report)


@dataclass(frozen=True)
class Look:
    """What a forward pass of a borrowed model gives, still part of the graph."""

    attentions: tuple[Tensor, ...]  # l x (b, h, t, t)
    hidden: tuple[Tensor, ...]  # l+1 x (b, t, d), or none
    logits: Tensor  # (b, c)
    sums: tuple[Junction, ...] = ()  # l x the residual sum of each layer, if asked for

    def slopes(self, y: Tensor) -> tuple[list[Tensor | None], list[Tensor | None], list[Tensor | None]]:
        """Gradients of `y` by attention, hidden states and residual sums; None where it does not depend on them."""
        inside = [k for k, h in enumerate(self.hidden) if h.requires_grad]
        wanted: Any = [*self.attentions, *(self.hidden[k] for k in inside), *(s.total for s in self.sums)]
        found = torch.autograd.grad(y.sum(), wanted, allow_unused=True)
        first, last = len(self.attentions), len(wanted) - len(self.sums)
        of_hidden = dict(zip(inside, found[first:last], strict=True))
        return list(found[:first]), [of_hidden.get(k) for k in range(len(self.hidden))], list(found[last:])


@dataclass(frozen=True)
class Trace:
    """What one forward and one backward pass showed of a batch."""

    attention: Tensor  # (b, l, h, t, t) float32 or wider, zero at padding
    gradient: Tensor  # (b, l, h, t, t) dy/dA, likewise
    hidden: tuple[Tensor, ...]  # l+1 x (b, t, d): embeddings and the output of every block, in the model's dtype
    hidden_gradient: tuple[Tensor | None, ...]  # l+1 x (b, t, d) dy/dh; None where the model hands out a mere copy
    logits: Tensor  # (b, c)
    output: Tensor  # (b,) y, the explained scalar
    mask: Tensor  # (b, t) bool: real tokens
    question: Question | None = None  # what this answers; None for tensors that no model gave
    stream: tuple[Tensor, ...] = ()  # l x (b, t, d) what each layer's attention is added to; () unless asked for
    stream_gradient: tuple[Tensor, ...] = ()  # l x (b, t, d) dy/ds of the residual sums, likewise

    def again(self) -> Question:
        """The question, for methods that need more than the trace."""
        if self.question is None:
            raise GaflowError("this method asks the model again, but the trace was made without one")
        return self.question

    def rows(self) -> Tensor:
        """How much each output position is read by the head, (b, t), rows summing to 1: where "row 0" is decided.

        What is read shows in the gradient: past the last attention a position only speaks for itself, so that
        `dy/dA` of the top layer is zero in every row that the head does not read. [CLS] heads read one row, heads
        that pool by the mean read all of them alike. Where `y` changes with nothing, nothing is read: all zero.
        """
        read = (self.gradient[:, -1] != 0).any(-1).any(1).to(self.gradient.dtype)  # (b, t)
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
        seen = look(model, batch, residual=residual)
        hidden, sums, logits = seen.hidden, seen.sums, seen.logits
        read = choose(logits)
        y = read(logits, range(len(logits)))
        of_attention, of_hidden, of_sums = seen.slopes(y)
    gradients = [g for g in of_attention if g is not None]
    if len(gradients) < len(of_attention):
        raise _unsupported(model, "the attention weights it returns are copies that its output does not depend on")
    with torch.inference_mode(False), torch.no_grad():
        attention = stack(seen.attentions, batch)
        del seen, of_attention  # long texts need the memory
        if not bool(attention.amin() >= 0):
            raise _unsupported(model, "its attention weights are negative or not finite, so no weights of an average")
        return Trace(
            attention=attention,
            gradient=stack(gradients, batch),
            hidden=tuple(h.detach() for h in hidden),
            hidden_gradient=tuple(of_hidden),
            logits=logits.detach(),
            output=y.detach(),
            mask=batch.mask,
            question=Question(model, batch, read, report),
            stream=tuple(s.stream for s in sums),
            stream_gradient=tuple(s.stream * 0 if g is None else g for s, g in zip(sums, of_sums, strict=True)),
        )


def look(model: nn.Module, batch: Batch, *, residual: bool = False, words: Tensor | None = None) -> Look:
    """A forward pass of `model`, which is borrowed already; `words` (b, t, d) as in `Question.logits`."""
    additions = Additions(*batch.mask.shape)
    with _spoken(model, words), additions if residual else nullcontext():
        outputs = model(**_arguments(model, batch.inputs))
    attentions = tuple(_attentions(model, outputs, batch))
    hidden = tuple(getattr(outputs, "hidden_states", None) or ())
    sums: list[Junction] = []
    if residual:
        leaves = roots(model) if words is None else [words]
        for layer, found in enumerate(junctions(additions.found, attentions, leaves)):
            if found is None:
                raise _unsupported(model, f"no addition of layer {layer} joins its attention to a residual stream")
            sums.append(found)
    return Look(attentions, hidden, _logits(model, outputs), tuple(sums))


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


def _attentions(model: nn.Module, outputs: Any, batch: Batch) -> Sequence[Tensor]:
    """The attention weights of every layer, checked to be what a layered network can be built from."""
    attentions = getattr(outputs, "attentions", None)
    if not attentions or any(a is None for a in attentions):
        encoder = "it is an encoder-decoder" if hasattr(outputs, "encoder_attentions") else "it returns none"
        raise _unsupported(model, f"gaflow needs the attention weights of every layer, and {encoder}")
    blocks = len(getattr(outputs, "hidden_states", None) or ()) - 1
    if 0 <= blocks != len(attentions):
        raise _unsupported(model, f"it returns attention weights for {len(attentions)} of its {blocks} layers")
    b, t = batch.mask.shape
    first = attentions[0]
    for k, a in enumerate(attentions):
        if not isinstance(a, Tensor) or a.dim() != 4 or a.shape != (b, first.shape[1], t, t):
            shape = tuple(a.shape) if isinstance(a, Tensor) else type(a).__name__
            raise _unsupported(
                model,
                f"layer {k} has attention weights of shape {shape}, not (b, h, t, t) = ({b}, h, {t}, {t})",
            )
        if not a.requires_grad:
            raise _unsupported(model, f"the attention weights of layer {k} are cut off from autograd")
    return attentions


def _logits(model: nn.Module, outputs: Any, differentiable: bool = True) -> Tensor:
    logits = getattr(outputs, "logits", None)
    if not isinstance(logits, Tensor):
        raise _unsupported(model, "it returns no logits")
    if differentiable and not logits.requires_grad:
        raise _unsupported(model, "its logits are cut off from autograd")
    return logits


def stack(layers: Sequence[Tensor], batch: Batch) -> Tensor:
    """Layers side by side (b, l, h, t, t), at least float32, zero at padding."""
    device = layers[0].device
    dtype = torch.promote_types(layers[0].dtype, torch.float32)
    stacked = torch.stack([a.to(device, dtype) for a in layers], 1)
    if batch.padded:
        real = batch.mask.to(device)
        stacked.masked_fill_(~(real[:, None, None, :, None] & real[:, None, None, None, :]), 0)
    return stacked


def _unsupported(model: nn.Module, reason: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{type(model).__name__} cannot be traced: {reason}. Use a model with full self-attention, such as "
        "BERT, RoBERTa, DistilBERT, ELECTRA, ALBERT, MPNet, DeBERTa or ModernBERT"
    )


@contextmanager
def borrow(model: nn.Module, *, eager: bool = True) -> Iterator[None]:
    """Lend `model` for a differentiable pass, with eager attention unless told; all is put back however it ends."""
    with _LOCKS.setdefault(model, threading.RLock()), torch.inference_mode(False), torch.enable_grad():
        modules = list(model.modules())
        if any(p.is_inference() for p in roots(model)):
            raise _unsupported(model, "it was made under torch.inference_mode(), which rules out gradients for good")
        training = [m for m in modules if m.training]
        hooks = [(m, set(m._forward_hooks), "_output_capturing_hooks_installed" in m.__dict__) for m in modules]
        frozen = [p for p in roots(model) if not p.requires_grad]
        attention = [(c, c._attn_implementation) for c in _configs(modules)] if eager else []
        try:
            for module in training:
                module.training = False  # not .eval(), which a model may have given side effects
            for weight in frozen:
                weight.requires_grad_(True)
            for config, _ in attention:
                config._attn_implementation = "eager"
            yield
        finally:
            for config, implementation in attention:
                config._attn_implementation = implementation
            for weight in frozen:
                weight.requires_grad_(False)
            for module in training:
                module.training = True
            for module, known, marked in hooks:
                _remove_hooks(module, known, marked)


def _remove_hooks(module: nn.Module, known: set[int], marked: bool) -> None:
    """Transformers leaves the hooks by which it collects attentions; they would forbid pickling the model."""
    if len(module._forward_hooks) > len(known):
        for key in [k for k in module._forward_hooks if k not in known]:
            del module._forward_hooks[key]
    if not marked:
        module.__dict__.pop("_output_capturing_hooks_installed", None)


def roots(model: nn.Module) -> list[nn.Parameter]:
    """Parameters that every attention weight depends on; if they need gradients, so does the whole pass.

    Their own gradient is never computed: autograd only walks to what it is asked for.
    """
    embedding = word_embedding(model)
    found = [] if embedding is None else list(embedding.parameters())
    return [p for p in found or model.parameters() if p.is_floating_point()]


def word_embedding(model: nn.Module) -> nn.Module | None:
    """The module that turns input ids into vectors, before positions and token types are added; None if unknown."""
    find: Any = getattr(model, "get_input_embeddings", None)
    try:
        found = find() if find else None
    except (NotImplementedError, AttributeError):
        return None
    return found if isinstance(found, nn.Module) else None


@contextmanager
def _spoken(model: nn.Module, words: Tensor | None) -> Iterator[None]:
    """While this lasts the model reads `words` (n, t, d) instead of its own word embeddings; None changes nothing.

    Replacing the module's output leaves the ids as they are, from which models derive positions and much else.
    """
    if words is None:
        yield
        return
    embedding = word_embedding(model)
    if embedding is None:
        raise _unsupported(model, "its word embeddings cannot be replaced, since get_input_embeddings() gives none")
    read = 0

    def give(_module: nn.Module, _given: Any, own: Any) -> Tensor:
        nonlocal read
        read += 1
        if read > 1 or not isinstance(own, Tensor) or own.shape != words.shape:
            raise _unsupported(model, "it reads its word embeddings more than once or not token by token")
        return words.to(own)

    handle = embedding.register_forward_hook(give)
    try:
        yield
        if not read:
            raise _unsupported(model, "it does not read the word embeddings that get_input_embeddings() gives")
    finally:
        handle.remove()


def _configs(modules: Sequence[nn.Module]) -> list[Any]:
    """Every config in the model that chooses an attention implementation, outer ones first."""
    found: dict[int, Any] = {}

    def add(config: Any) -> None:
        if id(config) not in found and hasattr(config, "_attn_implementation"):
            found[id(config)] = config
            for name in getattr(config, "sub_configs", None) or ():
                add(getattr(config, name, None))

    for module in modules:
        if "config" in module.__dict__:
            add(module.__dict__["config"])
    return list(found.values())
