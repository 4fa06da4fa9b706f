"""Numbers as sums of several floats, the largest first: (floats, ...) in place of (...)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def accumulate(parts: Tensor, change: Tensor) -> Tensor:
    """A number in several floats plus a plain one, in as many floats again."""
    if len(parts) == 2:  # each rounding error goes to the low float; one of `change` itself is corrected like any other
        high = parts[0] + change
        low = (change - (high - parts[0])).add_(parts[1])
        rounded = high + low
        error = low.sub_(rounded - high)
        return torch.stack([rounded, error])
    *leading, lowest = parts.unbind()
    sums = []
    error = change
    for part in leading:
        rounded, error = _two_sum(part, error)
        sums.append(rounded)
    sums.append(lowest + error)
    for k in range(len(leading)):
        sums[k], sums[k + 1] = _two_sum(sums[k], sums[k + 1])
    return torch.stack(sums)


def total(parts: Iterable[Tensor]) -> Tensor:
    """The number as one float, small floats first: the others may cancel. Overwrites the parts."""
    *larger, rounded = parts
    for part in reversed(larger):
        rounded = part.add_(rounded)
    return rounded


def _two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The rounded sum and its rounding error, exactly (Knuth)."""
    rounded = a + b
    rounded_b = rounded - a
    rounded_a = rounded - rounded_b
    error = (a - rounded_a) + (b - rounded_b)
    return rounded, error
