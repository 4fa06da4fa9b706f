"""Attention of several layers, or its gradient, made alike: one device and precision, as many heads."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gaflow.text import Batch

__all__ = ["clean", "even", "wide"]


def wide(x: Tensor) -> torch.dtype:
    """The precision in which numbers of such a tensor are added up."""
    return torch.promote_types(x.dtype, torch.float32)


def clean(layers: Sequence[Tensor], batch: Batch) -> tuple[Tensor, ...]:
    """Layers (b, h, t, t) outside the graph, on one device, at least float32, zero at padding."""
    device, dtype = layers[0].device, wide(layers[0])
    found = [a.detach().to(device, dtype) for a in layers]
    if batch.padded:
        real = batch.mask.to(device)
        nowhere = ~(real[:, None, :, None] & real[:, None, None, :])
        found = [a.masked_fill(nowhere, 0) for a in found]
    return tuple(found)


def even(layers: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Layers with the same number of heads: those with fewer show each several times, so that means stay the same."""
    most = math.lcm(*(a.shape[1] for a in layers))
    return tuple(a if a.shape[1] == most else a.repeat_interleave(most // a.shape[1], 1) for a in layers)
