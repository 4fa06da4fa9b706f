"""Attention of several layers, or its gradient, made alike: one device and precision, as many heads, no padding.

The convention this file owns: what is given is never written to, since it belongs to a model or to autograd.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["accumulation_dtype", "detached_without_padding", "equalise_heads", "stack_layers"]


def accumulation_dtype(x: Tensor) -> torch.dtype:
    """The precision in which such numbers are added up: sums in half precision lose what they are about."""
    return torch.promote_types(x.dtype, torch.float32)


def detached_without_padding(layers: Sequence[Tensor], real: Tensor | None = None) -> tuple[Tensor, ...]:
    """Layers (b, h, t, t) outside the graph, on one device, at least float32, zero where no token is `real` (b, t)."""
    device, dtype = layers[0].device, accumulation_dtype(layers[0])
    found = (layer.detach().to(device, dtype) for layer in layers)
    if real is None:
        return tuple(layer.contiguous() for layer in found)  # a piece of a larger tensor would keep all of it
    real = real.to(device)
    nowhere = ~(real[:, None, :, None] & real[:, None, None, :])
    return tuple(layer.masked_fill(nowhere, 0) for layer in found)


def stack_layers(layers: Sequence[Tensor]) -> Tensor:
    """Layers side by side, (b, l, h, t, t): a copy that may be used in autograd, whatever the caller's mode."""
    with torch.inference_mode(False):
        return torch.stack(list(layers), 1)


def equalise_heads(layers: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Layers with the same number of heads: those with fewer show each several times, so that means stay the same."""
    most = math.lcm(*(a.shape[1] for a in layers))
    return tuple(a if a.shape[1] == most else a.repeat_interleave(most // a.shape[1], 1) for a in layers)
