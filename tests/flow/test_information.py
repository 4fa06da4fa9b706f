import pytest
import torch

from gaflow.flow.information import (
    INFORMATION,
    af,
    agf,
    agf_net,
    by_layer,
    gf,
    signed_knockout,
    split_nodes,
    token_information,
)

HEADS = torch.tensor([[[[0.25, 0.75], [1.0, 0.0]], [[0.5, 0.5], [0.0, 1.0]]]])[None]  # (1, 1, 2, 2, 2)
SLOPES = torch.tensor([[[[4.0, -8.0], [2.0, 6.0]], [[-2.0, 1.0], [3.0, -5.0]]]])[None]


def assert_equal(actual, expected):
    assert actual.shape == (1, 1, 2, 2)
    assert torch.equal(actual[0, 0], torch.tensor(expected, dtype=actual.dtype))


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
    information = INFORMATION[name](attention, gradient)
    assert torch.equal(attention, copies[0])
    assert torch.equal(gradient, copies[1])
    assert information.dtype == torch.float64
    assert bool((information >= 0).all())


def test_in_the_net_tensor_heads_cancel_before_the_positive_part_is_taken():
    assert_equal(agf_net(HEADS, SLOPES), [[0.0, 0.0], [1.0, 0.0]])
    assert_equal(agf_net(HEADS, -SLOPES), [[0.0, 2.75], [0.0, 2.5]])


def test_a_tokens_own_information_is_the_positive_product_with_its_gradient():
    states = (torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]))
    gradients = (torch.tensor([[[5.0, 6.0], [-7.0, 1.0]]]), torch.tensor([[[2.0, 9.0], [9.0, 3.0]]]))
    assert token_information(states, gradients).tolist() == [[[17.0, 0.0], [2.0, 3.0]]]


def test_half_precision_is_widened_before_it_is_added_up():
    states, gradients = (torch.full((1, 1, 3), 300.0, dtype=torch.float16),), (torch.full((1, 1, 3), 300.0),)
    assert token_information(states, gradients).tolist() == [[[270000.0]]]  # float16 ends at 65504


def test_split_nodes_are_edges_between_their_halves():
    capacity, nodes = torch.rand(1, 2, 3, 3), torch.rand(1, 2, 3)
    edges = split_nodes(capacity, nodes)
    assert torch.equal(edges[:, 1::2], capacity)
    assert torch.equal(edges[:, ::2], torch.diag_embed(nodes))


def test_the_names_of_the_paper_mean_the_papers():
    assert {"af": af, "gf": gf, "agf": agf}.items() <= INFORMATION.items()


@pytest.mark.parametrize("name", INFORMATION)
def test_layers_one_by_one_give_what_all_of_them_give(name):
    attention, gradient = (torch.randn(2, 3, 4, 5, 5, dtype=torch.float64) for _ in range(2))
    stacked = by_layer(INFORMATION[name], attention.unbind(1), gradient.unbind(1))
    torch.testing.assert_close(stacked, INFORMATION[name](attention, gradient), rtol=0, atol=0)


def test_what_a_key_less_would_lose_is_what_softmax_without_it_gives():
    """`(sum_k A_k G_k) - (the same over the other keys, whose weights grow to sum to 1)`, key by key."""
    generator = torch.Generator().manual_seed(3)
    attention = torch.rand(2, 2, 3, 4, 4, generator=generator, dtype=torch.float64).softmax(-1)
    gradient = torch.randn(attention.shape, generator=generator, dtype=torch.float64)
    expected = torch.zeros_like(attention)
    for key in range(4):
        others = [k for k in range(4) if k != key]
        weights = attention[..., others] / attention[..., others].sum(-1, keepdim=True)
        without = (weights * gradient[..., others]).sum(-1)
        expected[..., key] = (attention * gradient).sum(-1) - without
    torch.testing.assert_close(signed_knockout(attention, gradient), expected.mean(2))
