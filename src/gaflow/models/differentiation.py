"""Gradients of the explained scalar by tensors of a pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gaflow.models.attention_tensors import accumulation_dtype

_FLOAT16_SCALES = (2.0**15, 2.0**10, 2.0**5)  # tried in this order, before 1


def differentiate(
    y: Tensor, inputs: Any, announce: Callable[[float], object] = lambda scale: None
) -> list[Tensor | None]:
    """Gradients of `y` by tensors and gradient edges; in half precision, of a multiple that does not overflow.

    float16 rounds gradients below 6e-8 to zero, and edges would die. Scaling by a power of two changes no digit, and is
    undone in float32. bfloat16 has the range of float32. `announce` is called with the multiple before each attempt.
    """
    total = y.to(accumulation_dtype(y)).sum()
    for scale in _FLOAT16_SCALES if y.dtype == torch.float16 else ():
        announce(scale)
        scaled = torch.autograd.grad(total * scale, inputs, allow_unused=True, retain_graph=True)
        if all(bool(g.isfinite().all()) for g in scaled if g is not None):
            return [None if g is None else g.to(accumulation_dtype(g)) / scale for g in scaled]
    announce(1.0)
    return list(torch.autograd.grad(total, inputs, allow_unused=True))
