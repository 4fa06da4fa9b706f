"""How many texts go through a model, forwards and backwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass
class Passes:
    """How many texts went through the model forwards and backwards."""

    forward: int = 0
    backward: int = 0

    def reset(self) -> None:
        """Begin at 0."""
        self.forward = 0
        self.backward = 0


@contextmanager
def counting(model: Any) -> Iterator[Passes]:
    """Count the passes of `model` while this lasts."""
    passes = Passes()

    def count_backward(gradient: Tensor) -> None:
        passes.backward += len(gradient)

    def count_passes(_module: Any, _inputs: Any, outputs: Any) -> None:
        logits: Tensor = outputs.logits if hasattr(outputs, "logits") else outputs[0]
        passes.forward += len(logits)
        if logits.requires_grad:
            logits.register_hook(count_backward)

    handle = model.register_forward_hook(count_passes)
    try:
        yield passes
    finally:
        handle.remove()
