import numpy as np
import pytest
import torch

from benchmarks.passes import counting
from benchmarks.report import standard_error


class Double(torch.nn.Module):
    """The logits are twice the input; as a tuple where a model gives no object."""

    def forward(self, x):
        return (2 * x,)


def test_the_standard_error_is_that_of_the_mean_over_the_last_axis():
    values = np.array([[1.0, 2.0, 3.0, 4.0], [5.0, 5.0, 5.0, 5.0]])
    assert standard_error(values) == pytest.approx([np.sqrt(5 / 3) / 2, 0.0])


def test_texts_are_counted_forwards_and_backwards_until_the_count_begins_again():
    model = Double()
    with counting(model) as passes:
        model(torch.zeros(3, 2))
        (logits,) = model(torch.zeros(4, 2, requires_grad=True))
        logits.sum().backward()
        assert (passes.forward, passes.backward) == (7, 4)
        passes.reset()
        assert (passes.forward, passes.backward) == (0, 0)
    model(torch.zeros(3, 2))
    assert passes.forward == 0
    assert not model._forward_hooks
