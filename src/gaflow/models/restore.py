"""A model is borrowed for a differentiable pass and left exactly as it was.

The convention this file owns: whatever a pass does to a model is undone, however the pass ends. Attention
implementation, train/eval flags, `requires_grad`, random state, hooks, submodules, buffers and attributes are
afterwards the very objects they were before. (BigBird exchanges its own layers when a text is short, Funnel notes
lengths, transformers leaves hooks behind.)
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import is_
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from gaflow.errors import unsupported
from gaflow.inputs.transformers_types import ModelConfig
from gaflow.models.embeddings import roots

__all__ = ["RANDOM", "borrow", "modules_of", "uncompiled"]

RANDOM = threading.RLock()  # taken by whoever exchanges torch's random state, which all threads share
_LOCKS: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()
_DICTIONARIES = ("_modules", "_buffers", "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called")
Snapshot = list[tuple[dict[str, Any], dict[str, Any]]]  # dictionaries, each with a copy of it at one moment


@contextmanager
def borrow(model: nn.Module, *, eager: bool = True) -> Iterator[None]:
    """Prepare `model` for a differentiable pass, with eager attention unless you pass `eager=False`.

    One thread borrows a model at a time; the same thread may borrow it again inside.
    """
    model = uncompiled(model)
    lock = _LOCKS.setdefault(model, threading.RLock())
    with lock, torch.inference_mode(False), torch.enable_grad():
        modules = modules_of(model)
        weights = roots(model)
        _check_weights(model, modules, weights)
        with _random_state_kept(model, modules), _prepared(modules, weights, eager):
            yield


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
    snapshot = _snapshot(modules)
    frozen = [weight for weight in weights if not weight.requires_grad]
    implementations = [(config, config._attn_implementation) for config in _configs(modules)] if eager else []
    # some models choose an attention class when they are built: the class with eager attention is its base
    sdpa_modules = [module for module in modules if eager and "SdpaSelfAttention" in type(module).__name__]
    sdpa_classes = [type(module) for module in sdpa_modules]
    try:
        for module in modules:
            if module.training:
                module.training = False  # not .eval(), which a model may have given side effects
        for weight in frozen:
            weight.requires_grad_(True)
        for config, _ in implementations:
            config._attn_implementation = "eager"
        for module in sdpa_modules:
            module.__class__ = type(module).__bases__[0]
        yield
    finally:
        for config, implementation in implementations:
            config._attn_implementation = implementation
        for module, sdpa_class in zip(sdpa_modules, sdpa_classes, strict=True):
            module.__class__ = sdpa_class
        for weight in frozen:
            weight.requires_grad_(False)
        _restore(snapshot)


@contextmanager
def _random_state_kept(model: nn.Module, modules: Sequence[nn.Module]) -> Iterator[None]:
    """Some models draw random numbers even in a pass for inference. Nobody else may notice.

    BigBird draws the weights of layers that it exchanges; models with layerdrop draw and then keep every layer.
    """
    settings = vars(getattr(model, "config", object))
    has_layerdrop = any("layerdrop" in name for name in settings)  # also encoder_layerdrop
    exchanges_layers = any(hasattr(type(module), "set_attention_type") for module in modules)
    if has_layerdrop or exchanges_layers:
        with RANDOM, torch.random.fork_rng(devices=[]):
            yield
    else:  # passes of different models need not wait for each other
        yield


def _snapshot(modules: Sequence[nn.Module]) -> Snapshot:
    """The attributes of modules and the dictionaries among them."""
    snapshot = []
    for module in modules:
        attributes = vars(module)
        for dictionary in (attributes, *map(attributes.__getitem__, _DICTIONARIES)):
            snapshot.append((dictionary, dictionary.copy()))
    return snapshot


def _restore(snapshot: Snapshot) -> None:
    """In place, since others point to these dictionaries."""
    for now, before in snapshot:
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
    if not weights:
        raise unsupported(model, "none of its weights is a floating-point number, so nothing has a gradient")


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
