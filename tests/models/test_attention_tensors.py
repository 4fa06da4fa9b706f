"""Layers made alike: what is shared, what is copied, and that nothing given is written to."""

from dataclasses import replace

import pytest
import torch

from gaflow.methods import FlowMethod
from gaflow.models.attention_tensors import detached_without_padding, equalise_heads, stack_layers
from tests.support.traces import random_trace


def some_layers(**settings) -> list[torch.Tensor]:
    return [torch.rand(2, 3, 4, 4, **settings) for _ in range(2)]


def test_without_padding_no_number_is_copied():
    layers = some_layers(requires_grad=True)
    detached = detached_without_padding(layers)
    assert [x.data_ptr() for x in detached] == [x.data_ptr() for x in layers]
    assert not any(x.requires_grad for x in detached)


def test_padding_is_cleared_in_a_copy():
    layers = some_layers()
    before = [x.clone() for x in layers]
    detached = detached_without_padding(layers, torch.tensor([[1, 1, 1, 1], [0, 1, 1, 0]]).bool())
    for layer, old, new in zip(layers, before, detached, strict=True):
        assert torch.equal(layer, old)
        assert torch.equal(new[0], old[0])
        assert torch.equal(new[1, :, 1:3, 1:3], old[1, :, 1:3, 1:3])
        assert torch.count_nonzero(new[1]) == 3 * 2 * 2


def test_layers_get_one_precision_no_less_than_single():
    layers = [torch.rand(1, 2, 3, 3).half(), torch.rand(1, 2, 3, 3)]
    assert [x.dtype for x in detached_without_padding(layers)] == [torch.float32] * 2
    assert detached_without_padding([layers[1].double()])[0].dtype == torch.float64


def test_a_piece_of_a_larger_tensor_does_not_keep_it():
    layer = torch.rand(1, 2, 512, 512)[:, :, :3, :3]
    (detached,) = detached_without_padding([layer])
    assert torch.equal(detached, layer)
    assert detached.untyped_storage().nbytes() == detached.nbytes


def test_a_layer_with_fewer_heads_shows_each_several_times():
    two, three = torch.rand(1, 2, 4, 4), torch.rand(1, 3, 4, 4)
    equalised = equalise_heads([two, three])
    assert [x.shape[1] for x in equalised] == [6, 6]
    for layer, all_of_them in zip((two, three), equalised, strict=True):
        torch.testing.assert_close(all_of_them.mean(1), layer.mean(1))
    assert equalise_heads([two, two])[0] is two


def test_a_trace_with_other_layers_forgets_what_was_side_by_side():
    trace = random_trace()
    assert torch.equal(trace.gradient, stack_layers(trace.gradients))
    turned = replace(trace, gradients=tuple(-g for g in trace.gradients))
    assert torch.equal(turned.gradient, -trace.gradient)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_a_callable_gets_tensors_that_are_watched_in_any_mode(mode):
    def spoilt(attention, gradient):
        return attention.mul_(0).mean(2)

    with mode():
        scores = FlowMethod(lambda attention, gradient: attention.mean(2))(random_trace()).values
        with pytest.raises(ValueError, match="in place"):
            FlowMethod(spoilt)(random_trace())
    torch.testing.assert_close(scores, FlowMethod("af")(random_trace()).values)
