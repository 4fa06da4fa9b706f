"""Attention of several layers, or its gradient, made alike: one device and precision, as many heads, no padding.

The convention this file owns: what is given is never written to, since it belongs to a model or to autograd.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gaflow.text import Batch

__all__ = ["beside", "clean", "even", "wide"]


def wide(x: Tensor) -> torch.dtype:
    """The precision in which numbers of such a tensor are added up."""
    return torch.promote_types(x.dtype, torch.float32)


def clean(layers: Sequence[Tensor], batch: Batch) -> tuple[Tensor, ...]:
    """Layers (b, h, t, t) outside the graph, on one device, at least float32, zero at padding."""
    device, dtype = layers[0].device, wide(layers[0])
    real = batch.mask.to(device)
    nowhere = ~(real[:, None, :, None] & real[:, None, None, :]) if batch.padded else None

    def one(layer: Tensor) -> Tensor:
        found = layer.detach().to(device, dtype)
        # a piece of a larger tensor would keep all of it
        return found.contiguous() if nowhere is None else found.masked_fill(nowhere, 0)

    return tuple(map(one, layers))


def beside(layers: Sequence[Tensor]) -> Tensor:
    """Layers side by side, (b, l, h, t, t): a copy that may be used in autograd, whatever the caller's mode."""
    with torch.inference_mode(False):
        return torch.stack(list(layers), 1)


def even(layers: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Layers with the same number of heads: those with fewer show each several times, so that means stay the same."""
    most = math.lcm(*(a.shape[1] for a in layers))
    return tuple(a if a.shape[1] == most else a.repeat_interleave(most // a.shape[1], 1) for a in layers)
