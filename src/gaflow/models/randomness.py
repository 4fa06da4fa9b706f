"""Models that draw random numbers in a pass for inference, and the random state that everybody shares.

BigBird draws the weights of layers that it exchanges; models with layerdrop draw and then keep every layer; others add
noise to their output. They may draw from torch, NumPy or Python's `random`, in some passes and not in others.

The convention this file owns: nobody notices. Every pass is watched, and the random state is put back if it moved. All
passes begin with the caller's state, so they draw the same numbers. Whoever waits for `RANDOM` may hold the lock of a
model, never the other way round.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import nn

RANDOM = threading.RLock()  # held during passes that draw: all threads share one random state
_DRAWS: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()  # whether a pass of the model has drawn numbers


def draws_numbers(model: nn.Module) -> bool:
    """Whether a pass of the model has drawn random numbers."""
    return _DRAWS.get(model, False)


@contextmanager
def random_state_kept(model: nn.Module) -> Iterator[None]:
    """Put the random state back after a pass. Passes of models that draw nothing need not wait for each other."""
    with RANDOM if _DRAWS.get(model, True) else nullcontext():
        gpus = _gpus(model)
        before = _random_states(gpus)
        try:
            yield
        finally:
            if not _same(_random_states(gpus), before):
                _set_random_states(before, gpus)
                _DRAWS[model] = True
    _DRAWS.setdefault(model, False)


@contextmanager
def moved_random_state(model: nn.Module) -> Iterator[None]:
    """Other random states, for as long as it takes to see whether they make a difference to the borrowed model."""
    with RANDOM:
        gpus = _gpus(model)
        before = _random_states(gpus)
        try:
            random.random()
            np.random.random_sample()  # noqa: NPY002  # the global state is the one to move
            for device in ["cpu", *gpus]:
                torch.rand(1, device=device)
            yield
        finally:
            _set_random_states(before, gpus)


def _gpus(model: nn.Module) -> list[int]:
    """The numbers of the CUDA devices that the model is on."""
    return sorted({weight.device.index for weight in model.parameters() if weight.device.type == "cuda"})


def _random_states(gpus: Sequence[int]) -> dict[str, Any]:
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),  # noqa: NPY002  # models draw from the global state
        "torch": [torch.get_rng_state().numpy(), *(torch.cuda.get_rng_state(gpu).numpy() for gpu in gpus)],
    }


def _set_random_states(states: dict[str, Any], gpus: Sequence[int]) -> None:
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])  # noqa: NPY002
    on_cpu, *on_gpus = map(torch.from_numpy, states["torch"])
    torch.set_rng_state(on_cpu)
    for gpu, state in zip(gpus, on_gpus, strict=True):
        torch.cuda.set_rng_state(state, gpu)


def _same(first: Any, second: Any) -> bool:
    """Whether two random states are equal; arrays lie at any depth in dictionaries and lists."""
    if isinstance(first, np.ndarray):
        return np.array_equal(first, second)
    if isinstance(first, dict):
        return all(_same(value, second[name]) for name, value in first.items())
    if isinstance(first, list):
        return all(map(_same, first, second))
    return first == second
