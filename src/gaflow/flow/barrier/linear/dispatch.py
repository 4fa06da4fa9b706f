"""How the linear system of a Newton step is solved: every way of doing it, and the fastest for a size and device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from gaflow.flow.barrier import gpu
from gaflow.flow.barrier.linear.block_tridiagonal import (
    LOW_MEMORY_TOKENS,
    solve_blocks,
    solve_blocks_low_memory,
    solve_blocks_two_ended,
    solve_mixed_precision,
)
from gaflow.flow.barrier.linear.odd_even_blocks import solve_odd_even_blocks
from gaflow.flow.barrier.linear.system import System
from gaflow.flow.barrier.linear.whole_matrix import solve_banded, solve_dense, solve_odd_even

Way = Literal[
    "banded",
    "dense",
    "odd_even",
    "odd_even_blocks",
    "blocks",
    "blocks_low_memory",
    "blocks_two_ended",
    "mixed_precision",
]

WAYS: dict[Way, Callable[[System], Tensor]] = {
    "banded": solve_banded,
    "dense": solve_dense,
    "odd_even": solve_odd_even,
    "odd_even_blocks": solve_odd_even_blocks,
    "blocks": solve_blocks,
    "blocks_low_memory": solve_blocks_low_memory,
    "blocks_two_ended": solve_blocks_two_ended,
    "mixed_precision": solve_mixed_precision,
}

READS_FLOAT32 = ("blocks", "blocks_low_memory", "mixed_precision")  # weights, as long texts store them

# Times are of a whole solve of 12 layers on an idle CPU, in milliseconds; n is the number of unknowns.
BANDED_MAX_TOKENS = 32  # 14 tokens: banded 7, dense 10, odd-even 13, blocks 22. From 33 on LAPACK wakes threads: 36
# tokens took 23 with two threads and 568 with sixteen
DENSE_MAX_CUBE = 1e7  # b n^3 up to which one factorisation beats a dozen small calls. 14 tokens: dense 10, blocks 22
ODD_EVEN_MAX_CUBE = 4e7  # likewise with half the unknowns. 36 tokens: odd-even 31, dense 41, blocks 41; 40: 39, 48, 37
GPU_DENSE_MAX_CUBE = 1e10  # for one item on a GPU, where a call costs as much as a million flops
GPU_ODD_EVEN_MAX_CUBE = 1e12
MIXED_PRECISION_MIN_TOKENS = (
    128  # below, calls and conversion cost more than float32 saves; GPUs are as fast in float64
)


def solve_laplacian(system: System, way: Way | None = None) -> Tensor:
    """The potentials (b, n); NaN for an item whose matrix is singular in floating point.

    `way` None takes the fastest for the size and device of the system.
    """
    way = way or choose_way(system)
    if way not in READS_FLOAT32 and system.weight.dtype == torch.float32:
        system = replace(system, weight=system.weight.double())
    return WAYS[way](system)


def choose_way(system: System) -> Way:
    """The fastest way for the size and device of a system."""
    b, layers, t = system.shape
    on_cpu = system.weight.device.type == "cpu"
    on_gpu = system.weight.is_cuda
    links_at_hand = system.weight.dtype == torch.float32
    if gpu.has_kernels(system.weight) and t < LOW_MEMORY_TOKENS and not links_at_hand:
        return "odd_even_blocks"
    if on_cpu and t <= BANDED_MAX_TOKENS:
        return "banded"
    dense_max = DENSE_MAX_CUBE
    odd_even_max = ODD_EVEN_MAX_CUBE
    if on_gpu and b == 1:
        dense_max = GPU_DENSE_MAX_CUBE
        odd_even_max = GPU_ODD_EVEN_MAX_CUBE
    if b * ((layers + 1) * t) ** 3 <= dense_max:
        return "dense"
    if b * ((layers // 2 + 2) * t) ** 3 <= odd_even_max:
        return "odd_even"
    # factors of long texts need the memory of one end at a time, and links that are at hand in their precision
    if on_cpu and t >= MIXED_PRECISION_MIN_TOKENS and (t < LOW_MEMORY_TOKENS or links_at_hand):
        return "mixed_precision"
    if on_gpu and b > 1 and t < LOW_MEMORY_TOKENS:  # the large matrices of one item are faster one end after the other
        return "blocks_two_ended"
    return "blocks"
