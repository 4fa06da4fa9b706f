"""Every rule against its formula, written out in loops."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from gaflow.methods.lrp.rules import Identity, Linear, Product, Sum, add, div

TINY = 1e-9


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def propagate(rule, operands, others, relevance):
    """Relevance of the operands of a rule; None for operands that are constants."""
    leaves = [o.clone().requires_grad_() for o in operands]
    result = rule(*leaves, *others)
    return [g.numpy() for g in torch.autograd.grad(result, leaves, relevance)]


def quotient(a, b):
    return 0.0 if b == 0 else a / (b + TINY)


def assert_close(actual, expected, tolerance=1e-12):
    expected = np.asarray(expected)
    assert actual.shape == expected.shape
    assert np.abs(expected).max() > 0
    assert np.abs(actual - expected).max() <= tolerance * max(1.0, np.abs(expected).max())


def linear_by_hand(x, w, relevance):
    """`R_j = Σ_k Z_kj div(R_k, Σ_j' Z_kj')` for one vector x (j), weights (k, j) and relevance (k)."""
    actual = np.zeros(len(x))
    for k in range(len(w)):
        z = [max(x[j], 0) * max(w[k, j], 0) + min(x[j], 0) * min(w[k, j], 0) for j in range(len(x))]
        for j in range(len(x)):
            actual[j] += z[j] * quotient(relevance[k], sum(z))
    return actual


def balanced_by_hand(parts, relevance):
    """The addition rule for one item: parts (p, n) that sum to y (n), and its relevance (n)."""
    count, n = parts.shape
    y = [sum(parts[p, i] for p in range(count)) for i in range(n)]
    a = np.array([[parts[p, i] * quotient(relevance[i], y[i]) for i in range(n)] for p in range(count)])
    sums, total = [sum(a[p]) for p in range(count)], sum(relevance)
    norm = sum(abs(s) for s in sums)
    return np.array([a[p] * quotient(total * abs(sums[p]) / norm, sums[p]) for p in range(count)])


def test_a_division_is_stabilised_and_zero_by_zero_is_zero():
    a, b = torch.tensor([1.0, 0.0, 3.0, 1.0], dtype=torch.float64), torch.tensor([2.0, 0.0, 0.0, -1.0]).double()
    assert div(a, b).tolist() == [1 / (2 + TINY), 0, 0, 1 / (-1 + TINY)]


def test_the_identity_passes_relevance_on_and_sums_it_where_the_operand_was_broadcast():
    relevance = rand(2, 3, 4)
    for shape in ((2, 3, 4), (3, 1), (1, 1, 4)):
        (actual,) = propagate(Identity.apply, [rand(*shape)], [lambda: rand(2, 3, 4, seed=1)], relevance)
        assert_close(actual, relevance.sum_to_size(shape).numpy())


def test_the_linear_rule_is_its_formula_and_ignores_the_bias():
    x, w, relevance = rand(2, 3, 5), rand(4, 5, seed=1), rand(2, 3, 4, seed=2)
    x[0, 0, 0] = w[1, 2] = 0
    for bias in (None, rand(4, seed=3)):
        leaf = x.clone().requires_grad_()
        result = Linear.apply(leaf, w.float(), functional.linear, bias)
        assert_close(result.detach().numpy(), functional.linear(x, w.float().double(), bias).numpy())
        (actual,) = torch.autograd.grad(result, leaf, relevance)
        for i in range(2):
            for t in range(3):
                by_hand = linear_by_hand(x[i, t].numpy(), w.float().double().numpy(), relevance[i, t].numpy())
                assert_close(actual[i, t].numpy(), by_hand)


def test_an_output_without_positive_contributions_hands_nothing_down():
    x, w = torch.tensor([[1.0, -2.0]]).double(), torch.tensor([[-1.0, 1.0], [1.0, 1.0]]).double()
    (actual,) = propagate(Linear.apply, [x], [w, functional.linear, None], torch.tensor([[5.0, 0.0]]).double())
    assert actual.tolist() == [[0, 0]]
    (actual,) = propagate(Linear.apply, [x], [w, functional.linear, None], torch.tensor([[5.0, 3.0]]).double())
    assert_close(actual, [[3 / (1 + TINY), 0]])


def test_the_linear_rule_of_a_convolution_is_that_of_the_matrix_it_stands_for():
    x, w, relevance = rand(1, 2, 6), rand(3, 2, 3, seed=1), rand(1, 3, 6, seed=2)
    (actual,) = propagate(Linear.apply, [x], [w, lambda a, b: functional.conv1d(a, b, padding=1), None], relevance)
    matrix = np.zeros((3 * 6, 2 * 6))
    for out in range(3):
        for position in range(6):
            for channel in range(2):
                for k in range(3):
                    if 0 <= position + k - 1 < 6:
                        matrix[out * 6 + position, channel * 6 + position + k - 1] = w[out, channel, k]
    by_hand = linear_by_hand(x.flatten().numpy(), matrix, relevance.flatten().numpy())
    assert_close(actual.reshape(-1), by_hand)


def test_a_read_out_and_the_layer_below_it_are_one_layer():
    x, w = rand(3, 2, 4), rand(5, 4, seed=1)
    slope = torch.zeros(3, 2, 5, dtype=torch.float64)
    slope[0, 0, 3] = 1  # a logit
    slope[1, 1, 0], slope[1, 1, 4] = 1, -1  # a difference of two
    slope[2, 0, 1] = slope[2, 1, 2] = 1  # a sum over positions
    leaf = x.clone().requires_grad_()
    result = Linear.apply(leaf, w, functional.linear, None)
    assert result.grad_fn is not None
    result.grad_fn.readout = lambda shape: shape[0]  # type: ignore[attr-defined]
    (actual,) = torch.autograd.grad(result, leaf, slope)
    for item in range(3):
        weights = np.array([sum(slope[item, t, c].item() * w[c].numpy() for c in range(5)) for t in range(2)])
        by_hand = linear_by_hand(x[item].flatten().numpy(), weights.reshape(1, -1), [1.0])
        assert_close(actual[item].flatten().numpy(), by_hand)
    (plain,) = propagate(Linear.apply, [x[:1]], [w, functional.linear, None], slope[:1])
    assert_close(actual[:1].numpy(), plain)


def product_by_hand(x, y, relevance):
    """Both parts for x (i, j), y (j, k) and relevance (i, k) of their product, not halved."""
    z = x @ y
    of_x, of_y = np.zeros(x.shape), np.zeros(y.shape)
    for i in range(x.shape[0]):
        for k in range(y.shape[1]):
            share = quotient(relevance[i, k], z[i, k])
            for j in range(x.shape[1]):
                of_x[i, j] += x[i, j] * y[j, k] * share
                of_y[j, k] += x[i, j] * y[j, k] * share
    return of_x, of_y


def test_the_product_rule_is_its_formula():
    x, y, relevance = rand(2, 3, 4), rand(2, 4, 5, seed=1), rand(2, 3, 5, seed=2)
    of_x, of_y = propagate(Product.apply, [x, y], [torch.matmul], relevance)
    for item in range(2):
        hand_x, hand_y = product_by_hand(x[item].numpy(), y[item].numpy(), relevance[item].numpy())
        assert_close(of_x[item], hand_x / 2)
        assert_close(of_y[item], hand_y / 2)
    assert of_x.sum() + of_y.sum() == pytest.approx(relevance.sum().item(), rel=1e-7)


def test_a_constant_operand_of_a_product_leaves_its_half_to_the_other():
    x, y, relevance = rand(3, 4), rand(4, 5, seed=1), rand(3, 5, seed=2)
    hand_x, hand_y = product_by_hand(x.numpy(), y.numpy(), relevance.numpy())
    (of_x,) = propagate(Product.apply, [x], [y, torch.matmul], relevance)
    assert_close(of_x, hand_x)
    leaf = y.clone().requires_grad_()
    (of_y,) = torch.autograd.grad(Product.apply(x, leaf, torch.matmul), leaf, relevance)
    assert_close(of_y.numpy(), hand_y)


def test_elements_that_are_multiplied_get_half_each_even_if_one_is_broadcast():
    x, y, relevance = rand(2, 3), rand(2, 1, seed=1), rand(2, 3, seed=2)
    of_x, of_y = propagate(Product.apply, [x, y], [torch.mul], relevance)
    assert_close(of_x, relevance.numpy() / 2, 1e-7)
    assert_close(of_y, relevance.sum(1, keepdim=True).numpy() / 2, 1e-7)


@pytest.mark.parametrize("items", [1, 2])
def test_the_addition_rule_is_its_formula_for_every_item_by_itself(items):
    x, y, relevance = rand(4, 3), rand(4, 3, seed=1), rand(4, 3, seed=2)
    x[0, 0] = -y[0, 0]
    of_x, of_y = propagate(add, [x, y], [items], relevance)
    parts = torch.stack([x, y]).reshape(2, items, -1).numpy()
    for item in range(items):
        by_hand = balanced_by_hand(parts[:, item], relevance.reshape(items, -1)[item].numpy())
        assert_close(of_x.reshape(items, -1)[item], by_hand[0])
        assert_close(of_y.reshape(items, -1)[item], by_hand[1])
        total = of_x.reshape(items, -1)[item].sum() + of_y.reshape(items, -1)[item].sum()
        assert total == pytest.approx(relevance.reshape(items, -1)[item].sum().item(), rel=1e-7)


def test_a_broadcast_summand_gets_the_sum_of_its_places():
    x, y, relevance = rand(2, 3, 4), rand(2, 1, 4, seed=1), rand(2, 3, 4, seed=2)
    expanded = propagate(add, [x, y.expand(2, 3, 4)], [2], relevance)
    of_x, of_y = propagate(add, [x, y], [2], relevance)
    assert_close(of_x, expanded[0])
    assert_close(of_y, expanded[1].sum(1, keepdims=True))


@pytest.mark.parametrize("axis", [1, 2])
def test_a_sum_is_an_addition_with_a_part_for_each_position(axis):
    x, relevance = rand(2, 3, 4), rand(2, 3, 4, seed=1).sum(axis)
    (actual,) = propagate(Sum.apply, [x], [axis, 2, lambda: x.sum(axis)], relevance)
    for item in range(2):
        parts = np.moveaxis(x[item].numpy(), axis - 1, 0)
        by_hand = balanced_by_hand(parts.reshape(len(parts), -1), relevance[item].flatten().numpy())
        assert_close(np.moveaxis(actual[item], axis - 1, 0).reshape(len(parts), -1), by_hand)
        assert actual[item].sum() == pytest.approx(relevance[item].sum().item(), rel=1e-7)


def test_a_sum_of_two_positions_is_the_addition_rule():
    x, relevance = rand(2, 4, 2), rand(2, 4, seed=1)
    (actual,) = propagate(Sum.apply, [x], [-1, 2, lambda: x.sum(-1)], relevance)
    of_x, of_y = propagate(add, [x[..., 0], x[..., 1]], [2], relevance)
    assert_close(actual, np.stack([of_x, of_y], -1))


def test_where_nothing_is_relevant_nothing_is_handed_down():
    x, y, none = rand(2, 3), rand(2, 3, seed=1), torch.zeros(2, 3, dtype=torch.float64)
    for rule, operands, others in (
        (add, [x, y], [2]),
        (Product.apply, [x, y], [torch.mul]),
        (Linear.apply, [x], [rand(3, 3), functional.linear, None]),
    ):
        for actual in propagate(rule, operands, others, none):
            assert not actual.any()
