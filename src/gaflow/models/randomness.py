"""Models that draw random numbers in a pass for inference, and the random state that everybody shares.

BigBird draws the weights of layers that it exchanges; models with layerdrop draw and then keep every layer; others add
noise to their output. They may draw from torch, NumPy or Python's `random`, in some passes and not in others.

The convention this file owns: nobody notices. The first pass of a model is watched. If it draws, the random state is
put back after it and after all further ones; all passes begin with the caller's state, so they draw the same numbers.
Draws from torch show in the functions that a thread calls, since its state may also be moved by other threads, whose
numbers must not be drawn again. Draws from NumPy and `random` show in their states. If torch's state moves during a
later pass, the next one is watched again. Whoever waits for `RANDOM` may hold the lock of a model, never the other way
round.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

RANDOM = threading.RLock()  # held during passes that draw: all threads share one random state
_DRAWS: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()  # whether a pass of the model has drawn numbers
_DRAWING = frozenset([  # functions and methods of torch that draw, unless they are given a generator
    "bernoulli", "bernoulli_", "cauchy_", "exponential_", "geometric_", "gumbel_softmax", "log_normal_", "multinomial",
    "normal", "normal_", "poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "random_",
    "randperm", "uniform_",
])  # fmt: skip


def draws_numbers(model: nn.Module) -> bool:
    """Whether a pass of the model has drawn random numbers."""
    return _DRAWS.get(model, False)


class _DrawWatcher(TorchFunctionMode):
    """Notes whether this thread calls a function that moves torch's random state."""

    drew = False

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if name in _DRAWING and kwargs.get("generator") is None:
            self.drew = True
        elif name.endswith("dropout"):
            training = args[2] if len(args) > 2 else kwargs.get("training", kwargs.get("train", True))
            self.drew |= bool(training)
        return function(*args, **kwargs)


@contextmanager
def random_state_kept(model: nn.Module) -> Iterator[None]:
    """Put the random state back after a pass. Passes of models that draw nothing need not wait for each other."""
    draws = _DRAWS.get(model)
    gpus = _gpus(model)
    if draws is False:
        before = _torch_states(gpus)
        yield
        if not _same(_torch_states(gpus), before):
            _DRAWS.pop(model, None)  # by this model or by another thread: watch the next pass
        return
    with RANDOM:
        states = _random_states(gpus)
        watcher = _DrawWatcher()
        try:
            with watcher:
                yield
        finally:
            after = _random_states(gpus)
            moved_elsewhere = not (_same(after["python"], states["python"]) and _same(after["numpy"], states["numpy"]))
            drew_inside = _DRAWS.get(model)  # a pass within this one, which put the state back
            _DRAWS[model] = bool(draws or drew_inside or watcher.drew or moved_elsewhere)
            if _DRAWS[model]:
                _set_random_states(states, gpus)


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
    if not torch.cuda.is_initialized():  # spares a walk through all weights
        return []
    return sorted({weight.device.index for weight in model.parameters() if weight.device.type == "cuda"})


def _random_states(gpus: Sequence[int]) -> dict[str, Any]:
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),  # noqa: NPY002  # models draw from the global state
        "torch": _torch_states(gpus),
    }


def _torch_states(gpus: Sequence[int]) -> list[np.ndarray]:
    """Of the CPU, then of each GPU."""
    return [torch.get_rng_state().numpy(), *(torch.cuda.get_rng_state(gpu).numpy() for gpu in gpus)]


def _set_random_states(states: dict[str, Any], gpus: Sequence[int]) -> None:
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])  # noqa: NPY002
    on_cpu, *on_gpus = map(torch.from_numpy, states["torch"])
    torch.set_rng_state(on_cpu)
    for gpu, state in zip(gpus, on_gpus, strict=True):
        torch.cuda.set_rng_state(state, gpu)


def _same(first: object, second: Any) -> bool:
    """Whether two random states are equal, with arrays in lists and dictionaries."""
    if isinstance(first, list):
        return all(map(_same, first, second))
    if isinstance(first, dict):
        return all(_same(value, second[name]) for name, value in first.items())
    if isinstance(first, np.ndarray):
        return np.array_equal(first, second)
    return first == second
