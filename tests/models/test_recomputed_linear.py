import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from gaflow.errors import UnsupportedModelError
from gaflow.models.recomputed_linear import recomputed_linear


def layers():
    torch.manual_seed(0)
    wide, narrow = nn.Linear(4, 16), nn.Linear(16, 4)
    for layer in (wide, narrow):
        layer.requires_grad_(False)
    return wide, narrow, torch.randn(2, 3, 4, requires_grad=True)


def assert_unchanged(gradient):
    """Computing outputs again changes no digit of what `gradient` returns."""
    expected = gradient()
    with recomputed_linear():
        assert torch.equal(gradient(), expected)


def test_gradients_are_the_same_bit_by_bit():
    wide, narrow, x = layers()

    def gradient():
        first, second = wide(2 * x).chunk(2, -1)
        mixed = torch.cat([first.exp() * second, second.sigmoid()], -1)
        (result,) = torch.autograd.grad(narrow(mixed).square().sum(), x)
        return result

    assert_unchanged(gradient)


def test_a_wide_output_is_let_go_of_and_a_narrow_one_is_kept():
    wide, narrow, x = layers()
    with recomputed_linear():
        inner = wide(2 * x)
        wide_storage = StorageWeakRef(inner.untyped_storage())
        activated = nn.functional.gelu(inner)
        del inner
        assert wide_storage.expired()
        inner = narrow(activated)
        narrow_storage = StorageWeakRef(inner.untyped_storage())
        activated = nn.functional.gelu(inner)
        del inner
        assert not narrow_storage.expired()


def test_an_output_that_was_changed_is_kept_as_it_is():
    wide, _, x = layers()

    def gradient():
        (result,) = torch.autograd.grad(wide(2 * x).mul_(3).square().sum(), x)
        return result

    assert_unchanged(gradient)


def test_an_input_that_was_overwritten_is_refused():
    wide, _, x = layers()
    with recomputed_linear():
        state = 2 * x
        y = wide(state).square().sum()
        with torch.no_grad():
            state.zero_()
        with pytest.raises(UnsupportedModelError, match="overwritten"):
            torch.autograd.grad(y, x)


def test_a_tensor_that_was_overwritten_is_refused_as_without_recomputing():
    x = torch.randn(3, requires_grad=True)

    def gradient():
        base = (2 * x).exp()
        square = base * base
        with torch.no_grad():
            base.mul_(3)
        return torch.autograd.grad(square.sum(), x)

    with pytest.raises(RuntimeError):
        gradient()
    with recomputed_linear(), pytest.raises(UnsupportedModelError, match="overwritten"):
        gradient()


def test_calls_in_a_precision_of_their_own_are_left_alone():
    wide, _, x = layers()

    def gradient():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = wide(2 * x)
        return torch.autograd.grad(outputs.float().exp().sum(), x)[0]

    assert_unchanged(gradient)
