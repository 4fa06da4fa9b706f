"""What explaining a text will cost, known before a model is loaded.

With `l` layers, `h` heads and `t` tokens, a trace holds attention and gradient, `(l, h, t, t)` each, as the model
gives them and stacked; a solve works on `(l, t, t)` arrays in float64 and factors `l` blocks of `t x t` per step.

The convention this file owns: bytes and flops are exact functions of sizes; seconds come from a small network that
is solved on the spot, since no formula knows the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from gaflow.solvers.barrier import solve

__all__ = ["Estimate", "estimate", "extrapolate", "solve_flops", "solve_seconds"]

STEPS = 15  # factorisations of a solve: 13 to 15 for most texts
_COPIES = 18  # (l, t, t) float64 arrays alive at the peak: 422 MiB measured at 12 x 512 x 512, 110 at 12 x 256 x 256
_SAMPLE = 96  # tokens of the network that is solved to take the time


@dataclass(frozen=True)
class Estimate:
    """Bytes and floating-point operations to explain a batch of texts of one length."""

    weights: int  # bytes of the model in float32
    trace: int  # bytes of attention and gradient, without what the model itself needs for its backward pass
    solve: int  # bytes of the flow solver at its peak
    flops: int  # of the flow solver's factorisations


def estimate(*, layers: int, heads: int, length: int, parameters: int = 0, batch: int = 1) -> Estimate:
    """The cost of one batch of texts with `length` tokens each."""
    sizes = {"layers": layers, "heads": heads, "length": length, "batch": batch}
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")
    square = batch * layers * length * length
    return Estimate(
        weights=4 * parameters,
        trace=4 * 4 * heads * square,  # float32: attention, gradient, and a stacked copy of both
        solve=8 * _COPIES * square,
        flops=batch * solve_flops(layers, length),
    )


def solve_flops(layers: int, length: int) -> int:
    """Operations of one solve: per step and layer a Cholesky factor, a triangular solve and a product, 3 t^3."""
    return STEPS * 3 * layers * length**3


def extrapolate(seconds: float, small: int, large: int, layers: int, rate: float) -> float:
    """Seconds at `large` tokens from those at `small`: per edge up to there, and the further flops at `rate` each.

    At small sizes nearly all time goes into passes over the edges, which grow as t^2; the t^3 shows later.
    """
    growth = (large / small) ** 2
    further = solve_flops(layers, large) - growth * solve_flops(layers, small)
    return growth * seconds + further / rate


def solve_seconds(layers: int, length: int) -> float:
    """About how long one solve takes on this machine's CPU, from a random network of at most 96 tokens."""
    small = min(length, _SAMPLE)
    information = torch.rand(layers, small, small, generator=torch.Generator().manual_seed(0))
    solve(information[:1, :2, :2])  # what is only slow once does not count
    seconds = min(_time(lambda: solve(information)) for _ in range(2))
    if small == length:
        return seconds
    square = torch.ones(256, 256, dtype=torch.float64)
    rate = 2 * 256**3 / min(_time(lambda: square @ square) for _ in range(3))
    return extrapolate(seconds, small, length, layers, rate)


def _time(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
