"""A model is borrowed for a differentiable pass.

The convention this file owns: whatever a pass does to a model is undone, however it ends. Attention implementation,
train/eval flags, `requires_grad`, random state, hooks, submodules, buffers and attributes are afterwards the very
objects they were before (BigBird exchanges its own layers when a text is short, Funnel notes lengths, transformers
leaves hooks behind).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import is_, itemgetter
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from gaflow.errors import UnsupportedModelError

__all__ = ["RANDOM", "borrow", "modules_of", "replaced_embeddings", "roots", "unsupported", "word_embedding"]

RANDOM = threading.RLock()  # held by whoever exchanges torch's random state, which all threads share
_LOCKS: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()
_held = itemgetter(
    "_modules", "_buffers", "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"
)
_Noted = tuple[list[tuple[dict[Any, Any], dict[Any, Any]]], list[dict[Any, Any]]]


def unsupported(model: nn.Module, reason: str) -> UnsupportedModelError:
    """The error that says why `model` cannot be traced, and what to use."""
    return UnsupportedModelError(
        f"{type(model).__name__} cannot be traced: {reason}. Use a model with softmax self-attention, such as "
        "BERT, RoBERTa, DistilBERT, ELECTRA, ALBERT, MPNet, DeBERTa or ModernBERT"
    )


@contextmanager
def borrow(model: nn.Module, *, eager: bool = True) -> Iterator[None]:
    """Lend `model` for a differentiable pass, with eager attention unless told; all is put back however it ends."""
    mine = _LOCKS.setdefault(model, threading.RLock())
    with mine, torch.inference_mode(False), torch.enable_grad():
        modules, weights = modules_of(model), roots(model)
        _check_weights(model, modules, weights)
        with _undisturbed(model, modules), _prepared(modules, weights, eager):
            yield


@contextmanager
def _prepared(modules: Sequence[nn.Module], weights: Sequence[nn.Parameter], eager: bool) -> Iterator[None]:
    before = _noted(modules)
    frozen = [p for p in weights if not p.requires_grad]
    attention = [(c, c._attn_implementation) for c in _configs(modules)] if eager else []
    fused = [(m, type(m).__bases__[0]) for m in modules if eager and "SdpaSelfAttention" in type(m).__name__]
    kinds = [(m, type(m)) for m, _ in fused]  # models that chose an implementation when they were made
    try:
        for module in [m for m in modules if m.training]:
            module.training = False  # not .eval(), which a model may have given side effects
        for weight in frozen:
            weight.requires_grad_(True)
        for config, _ in attention:
            config._attn_implementation = "eager"
        for module, plain in fused:
            module.__class__ = plain
        yield
    finally:
        for config, implementation in attention:
            config._attn_implementation = implementation
        for module, kind in kinds:
            module.__class__ = kind
        for weight in frozen:
            weight.requires_grad_(False)
        _put_back(before)


def modules_of(model: nn.Module) -> list[nn.Module]:
    """A model and all its modules, outer ones first; `model.modules()` takes several times as long."""
    found, known = [model], {model}
    for module in found:  # which grows meanwhile
        for child in module._modules.values():
            if child is not None and child not in known:
                known.add(child)
                found.append(child)
    return found


@contextmanager
def _undisturbed(model: nn.Module, modules: Sequence[nn.Module]) -> Iterator[None]:
    """Some models draw, if only to drop it: weights of layers they exchange, chances of layers they never leave out.

    No one else may notice.
    """
    drops = any("layerdrop" in name for name in vars(getattr(model, "config", object)))  # also encoder_layerdrop
    if drops or any(hasattr(type(m), "set_attention_type") for m in modules):
        with RANDOM, torch.random.fork_rng(devices=[]):
            yield
    else:  # passes of different models need not wait for each other
        yield


def _noted(modules: Sequence[nn.Module]) -> _Noted:
    """The attributes of modules and the dictionaries among them: what is in them now, and which are empty."""
    own = [vars(module) for module in modules]
    held = [each for attributes in own for each in _held(attributes)]
    full = [*own, *(each for each in held if each)]
    return [(each, each.copy()) for each in full], [each for each in held if not each]


def _put_back(noted: _Noted) -> None:
    """In place, since a module's own objects are pointed to."""
    full, empty = noted
    for now, then in full:
        if now.keys() != then.keys() or not all(map(is_, now.values(), then.values())):
            now.clear()
            now.update(then)
    for now in filter(None, empty):
        now.clear()


def _check_weights(model: nn.Module, modules: Sequence[nn.Module], weights: Sequence[nn.Parameter]) -> None:
    if any(p.is_inference() for p in weights):
        raise unsupported(model, "it was made under torch.inference_mode(), which rules out gradients for good")
    quantised = {type(m).__name__ for m in modules if "torch.ao.nn.quantized" in type(m).__module__}
    if quantised:
        layers = ", ".join(sorted(quantised))
        raise unsupported(model, f"torch has no gradients through its quantised layers ({layers}); load it unquantised")
    if not weights:
        raise unsupported(model, "none of its weights is a floating-point number, so that nothing has a gradient")


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
def replaced_embeddings(model: nn.Module, words: Tensor | None) -> Iterator[None]:
    """While this lasts the model reads `words` (n, t, d) instead of its own word embeddings; None changes nothing.

    Replacing the module's output leaves the ids as they are, from which models derive positions and much else.
    """
    if words is None:
        yield
        return
    embedding = word_embedding(model)
    if embedding is None:
        raise unsupported(model, "its word embeddings cannot be replaced, since get_input_embeddings() gives none")
    read = 0

    def give(_module: nn.Module, _given: Any, own: Any) -> Tensor:
        nonlocal read
        read += 1
        if read > 1 or not isinstance(own, Tensor) or own.shape != words.shape:
            raise unsupported(model, "it reads its word embeddings more than once or not token by token")
        return words.to(own)

    handle = embedding.register_forward_hook(give)
    try:
        yield
        if not read:
            raise unsupported(model, "it does not read the word embeddings that get_input_embeddings() gives")
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
