"""Models that draw random numbers in a pass for inference, and the random state that everybody shares.

BigBird draws the weights of layers that it exchanges; models with layerdrop draw and then keep every layer; others add
noise to their output.

The convention this file owns: nobody notices. The random state is put back after every pass of a model that draws, and
the first pass shows whether a model does. All passes begin with the caller's state, so they draw the same numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
from torch import nn

RANDOM = threading.RLock()  # taken by whoever exchanges torch's random state, which all threads share
_DRAWS: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()  # what the first pass of a model showed


def draws_numbers(model: nn.Module) -> bool:
    """Whether a pass of the model has drawn random numbers."""
    return _DRAWS.get(model, False)


@contextmanager
def random_state_kept(model: nn.Module, modules: Sequence[nn.Module]) -> Iterator[None]:
    """Put the random state back after a pass. Passes of models that draw nothing need not wait for each other."""
    if not (_DRAWS.get(model, True) or _draws_at_times(model, modules)):
        yield
        return
    devices = _gpus(model)
    with RANDOM, torch.random.fork_rng(devices):
        before = _states(devices)
        yield
        moved = _states(devices) != before
    if moved or model not in _DRAWS:
        _DRAWS[model] = moved


@contextmanager
def moved_random_state(model: nn.Module) -> Iterator[None]:
    """Another random state, for as long as it takes to see whether it makes a difference to the model."""
    devices = _gpus(model)
    with RANDOM, torch.random.fork_rng(devices):
        for device in ["cpu", *devices]:
            torch.rand(1, device=device)
        yield


def _draws_at_times(model: nn.Module, modules: Sequence[nn.Module]) -> bool:
    settings = vars(getattr(model, "config", object))
    has_layerdrop = any("layerdrop" in name for name in settings)  # also encoder_layerdrop
    return has_layerdrop or any(hasattr(type(module), "set_attention_type") for module in modules)


def _gpus(model: nn.Module) -> list[int]:
    """The numbers of the CUDA devices that the model is on."""
    return sorted({weight.device.index for weight in model.parameters() if weight.device.type == "cuda"})


def _states(devices: Sequence[int]) -> list[bytes]:
    states = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, devices)]
    return [state.numpy().tobytes() for state in states]
