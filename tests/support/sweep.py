"""Networks that are hard on a solver: many sizes, sparsity, one live top node, thirty orders of magnitude.

`benchmarks/sweep.py` solves 3,000 of them, the tests a few dozen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

KINDS = ("attention", "gradient", "top", "mild", "sparse", "wild")


@dataclass(frozen=True)
class Hard:
    """One network and how to solve it."""

    index: int
    kind: str
    information: Tensor  # (l, t, t)
    epsilon: float  # log-uniform from 1e-9 to 1e3
    barrier: Literal["uniform", "capacity"]


def networks(count: int, seed: int = 0, layers: int = 24, tokens: int = 48) -> Iterator[Hard]:
    """`count` networks of up to `layers` layers and `tokens` tokens, the kinds taking turns, both barriers."""
    generator = torch.Generator().manual_seed(seed)
    for index in range(count):
        kind = KINDS[index % len(KINDS)]
        size = int(torch.randint(1, layers + 1, (), generator=generator))
        width = int(torch.randint(1, tokens + 1, (), generator=generator))
        information = make(kind, size, width, generator)
        epsilon = float(10 ** (-9 + 12 * _uniform(generator)))
        yield Hard(index, kind, information, epsilon, "capacity" if index // len(KINDS) % 2 else "uniform")


def _uniform(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(shape, generator=generator, dtype=torch.float64)


def make(kind: str, layers: int, tokens: int, generator: torch.Generator) -> Tensor:
    """One network of that kind."""
    shape = (layers, tokens, tokens)
    logits = torch.randn(layers, 4, tokens, tokens, generator=generator, dtype=torch.float64)
    attention = torch.softmax(2 * logits, -1)
    gradient = torch.randn(attention.shape, generator=generator, dtype=torch.float64)
    if kind == "attention":
        return attention.mean(1)
    if kind == "sparse":  # up to 95 % of the edges are missing, often all paths
        return attention.mean(1) * (_uniform(generator, *shape) > 0.95 * _uniform(generator))
    if kind == "wild":
        return 10 ** (-30 * _uniform(generator, *shape))
    information = (attention * gradient).relu().mean(1)
    if kind == "mild":
        information *= 10 ** (-8 * _uniform(generator, *shape))
    if kind == "top":
        information[-1, 1:] = 0
    return information
