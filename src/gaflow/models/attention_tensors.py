"""Attention of several layers, or its gradient, made alike: one device and precision, as many heads, no padding.

The convention this file owns: arguments are never written to, since they belong to a model or to autograd.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def accumulation_dtype(x: Tensor) -> torch.dtype:
    """The precision in which numbers of this dtype are added up: sums in half precision lose too many digits."""
    return torch.promote_types(x.dtype, torch.float32)


def detached_without_padding(layers: Sequence[Tensor], real: Tensor | None = None) -> tuple[Tensor, ...]:
    """Layers (b, h, t, t) outside the graph, on one device, at least float32, zero where no token is `real` (b, t)."""
    device = layers[0].device
    dtype = accumulation_dtype(layers[0])
    padding = None
    if real is not None:
        real = real.to(device)
        padding = ~(real[:, None, :, None] & real[:, None, None, :])
    detached = []
    for layer in layers:
        layer = layer.detach().to(device, dtype)
        # a piece of a larger tensor would keep all of it alive
        detached.append(layer.contiguous() if padding is None else layer.masked_fill(padding, 0))
    return tuple(detached)


def stack_layers(layers: Sequence[Tensor]) -> Tensor:
    """Layers in one tensor (b, l, h, t, t): a copy that autograd may use, whatever the caller's mode."""
    with torch.inference_mode(False):
        return torch.stack(list(layers), 1)


def equalise_heads(layers: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Layers with the same number of heads: a layer with fewer repeats each of them, which changes no mean."""
    most = math.lcm(*(layer.shape[1] for layer in layers))
    equalised = []
    for layer in layers:
        heads = layer.shape[1]
        equalised.append(layer if heads == most else layer.repeat_interleave(most // heads, 1))
    return tuple(equalised)
