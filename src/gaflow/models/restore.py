"""A model is borrowed for a differentiable pass and left exactly as it was.

The convention this file owns: whatever a pass does to a model is undone, however the pass ends. Attention
implementation, train/eval flags, `requires_grad`, random state, hooks, submodules, buffers and attributes are
afterwards the very objects they were before. (BigBird exchanges its own layers when a text is short, Funnel notes
lengths, transformers leaves hooks behind.)
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from operator import is_
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from gaflow.errors import unsupported
from gaflow.inputs.transformers_types import ModelConfig
from gaflow.models.embeddings import roots
from gaflow.models.randomness import random_state_kept

_LOCKS: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()
_DICTIONARIES = ("_modules", "_buffers", "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called")
_EMPTY: dict[str, Any] = {}  # the copy of all empty dictionaries, such as most of those of hooks
Snapshot = list[tuple[dict[str, Any], dict[str, Any]]]  # dictionaries, each with a copy of it at one moment


@contextmanager
def borrow(model: nn.Module, *, eager: bool = True) -> Iterator[None]:
    """Prepare `model` for a differentiable pass, with eager attention unless you pass `eager=False`.

    One thread borrows a model at a time; the same thread may borrow it again inside. Ctrl-C takes effect when the model
    is back, or at once if pressed twice: an interrupt inside torch's own bookkeeping could leave it broken.
    """
    model = uncompiled(model)
    lock = _LOCKS.setdefault(model, threading.RLock())
    with _interrupts_deferred(), lock, torch.inference_mode(False), torch.enable_grad():
        modules = modules_of(model)
        weights = roots(model)
        _check_weights(model, modules, weights)
        with random_state_kept(model), _prepared(modules, weights, eager):
            yield


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Handle the first SIGINT at the end of this block; another one inside it is handled at once."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    interrupted = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        if interrupted:
            handler(number, frame)
        interrupted = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if interrupted:
            signal.raise_signal(signal.SIGINT)


def uncompiled(model: nn.Module) -> nn.Module:
    """The model that torch.compile was given: compiled code would run without the outputs that a trace needs."""
    return getattr(model, "_orig_mod", model)


def modules_of(model: nn.Module) -> list[nn.Module]:
    """A model and all its modules, outer ones first; `model.modules()` takes several times as long."""
    modules = [model]
    visited = {model}
    for module in modules:  # the list grows meanwhile
        for child in module._modules.values():
            if child is not None and child not in visited:
                visited.add(child)
                modules.append(child)
    return modules


@contextmanager
def _prepared(modules: Sequence[nn.Module], weights: Sequence[nn.Parameter], eager: bool) -> Iterator[None]:
    with ExitStack() as undo:
        undo.callback(_restore, _snapshot(modules))
        for module in modules:
            if module.training:
                module.training = False  # not .eval(), which a model may have given side effects
        _differentiate_by(weights, modules, undo)
        if eager:
            _use_eager_attention(modules, undo)
        yield


def _differentiate_by(weights: Sequence[nn.Parameter], modules: Sequence[nn.Module], undo: ExitStack) -> None:
    """Let these weights require gradients, and those of no other layer: layers would keep their input for them.

    Parameters that a module of several layers holds itself stay as they are: attention may depend on nothing else.
    """
    flags: list[tuple[nn.Parameter, bool]] = []  # what is changed, and how it was before
    undo.callback(_set_flags, flags)
    for module in modules:
        if module._modules:
            continue
        for parameter in module._parameters.values():
            if parameter is not None and parameter.requires_grad:
                flags.append((parameter, True))
                parameter.requires_grad_(False)
    for weight in weights:
        if not weight.requires_grad:
            flags.append((weight, False))
            weight.requires_grad_(True)


def _set_flags(flags: Sequence[tuple[nn.Parameter, bool]]) -> None:
    """Put back whether parameters require gradients, the last change first."""
    for parameter, before in reversed(flags):
        parameter.requires_grad_(before)


def _use_eager_attention(modules: Sequence[nn.Module], undo: ExitStack) -> None:
    _choose_attention(modules, "eager", undo)
    for module in modules:
        kind = type(module)
        # some models choose an attention class when they are built: the class with eager attention is its base
        if "SdpaSelfAttention" in kind.__name__:
            undo.callback(setattr, module, "__class__", kind)
            module.__class__ = kind.__bases__[0]


def _choose_attention(modules: Sequence[nn.Module], implementation: str, undo: ExitStack) -> None:
    for config in _configs(modules):
        undo.callback(setattr, config, "_attn_implementation", config._attn_implementation)
        config._attn_implementation = implementation


@contextmanager
def attention_implementation(model: nn.Module, name: str) -> Iterator[None]:
    """Let a borrowed model compute attention by the function that transformers knows by this `name`."""
    with ExitStack() as undo:
        _choose_attention(modules_of(model), name, undo)
        yield


def _snapshot(modules: Sequence[nn.Module]) -> Snapshot:
    """The attributes of modules and the dictionaries among them."""
    snapshot = []
    for module in modules:
        attributes = vars(module)
        snapshot.append((attributes, attributes.copy()))
        for name in _DICTIONARIES:
            dictionary = attributes[name]
            snapshot.append((dictionary, dictionary.copy() if dictionary else _EMPTY))
    return snapshot


def _restore(snapshot: Snapshot) -> None:
    """In place, since others point to these dictionaries."""
    for now, before in snapshot:
        if not now and not before:
            continue
        if now.keys() != before.keys() or not all(map(is_, now.values(), before.values())):
            now.clear()
            now.update(before)


def _check_weights(model: nn.Module, modules: Sequence[nn.Module], weights: Sequence[nn.Parameter]) -> None:
    if any(weight.is_inference() for weight in weights):
        raise unsupported(model, "it was created under torch.inference_mode(), which rules out gradients for good")
    quantised = {type(m).__name__ for m in modules if "torch.ao.nn.quantized" in type(m).__module__}
    if quantised:
        layers = ", ".join(sorted(quantised))
        raise unsupported(model, f"torch has no gradients through its quantised layers ({layers}); load it unquantised")
    if any(_is_packed(module) for module in modules):
        raise unsupported(
            model,
            "a pass without gradients has packed its 4-bit weights for this CPU, and they have no gradients; "
            "load it again, or use a GPU, where nothing is packed",
        )
    if not weights:
        raise unsupported(model, "none of its weights is a floating-point number, so nothing has a gradient")


def _is_packed(module: nn.Module) -> bool:
    """Whether bitsandbytes has laid out the weight of a 4-bit layer for fast passes on this CPU."""
    state = getattr(module._parameters.get("weight"), "quant_state", None)
    return getattr(state, "packing_format_for_cpu", False)


def _configs(modules: Sequence[nn.Module]) -> list[Any]:
    """The configs in the model that choose an attention implementation, outer ones first."""
    configs: dict[int, Any] = {}

    def add(config: ModelConfig) -> None:
        if id(config) not in configs and hasattr(config, "_attn_implementation"):
            configs[id(config)] = config
            for name in getattr(config, "sub_configs", None) or ():
                add(getattr(config, name, None))

    for module in modules:
        if "config" in module.__dict__:
            add(module.__dict__["config"])
    return list(configs.values())
