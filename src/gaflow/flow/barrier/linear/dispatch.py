"""How the linear system of a Newton step is solved, by its size and by where it is."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from gaflow.flow.barrier.linear.block_tridiagonal import LONG, blocks, rough
from gaflow.flow.barrier.linear.subtraction_free import careful
from gaflow.flow.barrier.linear.system import System
from gaflow.flow.barrier.linear.whole_matrix import banded, dense, halved, lapack

__all__ = ["Care", "solve_laplacian"]

Care = Literal["rough", "exact", "careful"]

BANDED = 32  # tokens up to which LAPACK's banded factorisation does not reach for threads, and beats all others
SMALL = 1e7  # up to this cube of the unknowns one dense factorisation is cheaper than a dozen small calls
MEDIUM = 4e7  # and up to this one, one of half the unknowns
ONE_SMALL, ONE_MEDIUM = 1e10, 1e12  # the same for one item on a GPU, where a call costs as much as a million flops
ROUGH = range(128, LONG)  # tokens; below, calls and conversion cost more than float32 saves; above, halves are not kept


def solve_laplacian(system: System, care: Care = "exact") -> Tensor:
    """The potentials (b, n); NaN for an item whose matrix is singular in floating point.

    `care`: "rough" factorises large systems in float32, twice as fast, and solves to at least two digits; "exact" is
    float64, "careful" without cancellation.
    """
    (b, layers, t), device = system.shape, system.weight.device.type
    if care == "careful":
        return careful(system)
    if t <= BANDED and device == "cpu" and lapack():
        return banded(system)
    small, medium = (ONE_SMALL, ONE_MEDIUM) if device == "cuda" and b == 1 else (SMALL, MEDIUM)
    if b * ((layers + 1) * t) ** 3 <= small:
        return dense(system)
    if b * ((layers // 2 + 2) * t) ** 3 <= medium:
        return halved(system)
    return rough(system) if care == "rough" and device == "cpu" and t in ROUGH else blocks(system)
