import pytest
import torch

from gaflow.information import INFORMATION, af, agf, gf

HEADS = torch.tensor([[[[0.25, 0.75], [1.0, 0.0]], [[0.5, 0.5], [0.0, 1.0]]]])[None]  # (1, 1, 2, 2, 2)
SLOPES = torch.tensor([[[[4.0, -8.0], [2.0, 6.0]], [[-2.0, 1.0], [3.0, -5.0]]]])[None]


def assert_equal(found, expected):
    assert found.shape == (1, 1, 2, 2)
    assert torch.equal(found[0, 0], torch.tensor(expected, dtype=found.dtype))


def test_af_is_the_mean_attention_over_heads():
    assert_equal(af(HEADS, SLOPES), [[0.375, 0.625], [0.5, 0.5]])


def test_gf_is_the_mean_positive_gradient_over_heads():
    assert_equal(gf(HEADS, SLOPES), [[2.0, 0.5], [2.5, 3.0]])


def test_agf_is_the_mean_positive_product_over_heads():
    assert_equal(agf(HEADS, SLOPES), [[0.5, 0.25], [1.0, 0.0]])


def test_a_head_that_speaks_against_does_not_cancel_one_that_speaks_for():
    attention = torch.ones(1, 1, 2, 1, 1)
    gradient = torch.tensor([3.0, -3.0]).view(1, 1, 2, 1, 1)
    assert gf(attention, gradient).item() == agf(attention, gradient).item() == 1.5


@pytest.mark.parametrize("name", INFORMATION)
def test_arguments_are_left_alone_and_dtype_is_kept(name):
    attention, gradient = HEADS.double(), SLOPES.double()
    copies = attention.clone(), gradient.clone()
    found = INFORMATION[name](attention, gradient)
    assert torch.equal(attention, copies[0])
    assert torch.equal(gradient, copies[1])
    assert found.dtype == torch.float64
    assert bool((found >= 0).all())


def test_the_names_are_the_papers():
    assert {"af": af, "gf": gf, "agf": agf} == INFORMATION
