"""Numbers as sums of several floats, against rational arithmetic."""

from fractions import Fraction

import pytest
import torch

from gaflow.flow.barrier.multifloat import accumulate, total


def exact(parts: torch.Tensor) -> Fraction:
    return sum((Fraction(part) for part in parts.tolist()), Fraction(0))


@pytest.mark.parametrize("floats", [2, 3, 5, 9])
def test_a_sum_keeps_as_many_digits_as_its_floats_hold(floats):
    generator = torch.Generator().manual_seed(floats)
    number = torch.zeros(floats, dtype=torch.float64)
    expected = Fraction(0)
    for k in range(40):
        decades = 10.0 ** -(k % (15 * floats))
        change = torch.rand((), generator=generator, dtype=torch.float64) * decades
        number = accumulate(number, change)
        expected += Fraction(change.item())
    assert abs(exact(number) - expected) <= expected * Fraction(1, 10 ** (15 * floats))


def test_what_cancels_leaves_the_small_floats():
    number = torch.zeros(4, dtype=torch.float64)
    for change in (1.0, 1e-20, 1e-45, -1.0):
        number = accumulate(number, torch.tensor(change, dtype=torch.float64))
    assert exact(number) == Fraction(1e-20) + Fraction(1e-45)


def test_the_total_adds_small_floats_first():
    parts = torch.tensor([1.0, 2.0**-53, 2.0**-60], dtype=torch.float64)
    assert total(parts).item() == 1 + 2.0**-52
