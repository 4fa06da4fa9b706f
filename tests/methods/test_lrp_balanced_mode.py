"""Operations under the balanced mode: values as the model computes them, derivatives as the rules say."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from gaflow.errors import UnsupportedModelError
from gaflow.methods.lrp import BalancedMode
from tests.methods.test_lrp_relevance_mode import ELEMENTWISE, NORMALISING, ROUTING, WEIGHT, rand

NO_VALUE_AT_ZERO = ("log", "reciprocal", "rsqrt")
WITH_A_VALUE_AT_ZERO = (
    *("clamp_min", "exp", "hardsigmoid", "log1p", "logsigmoid", "maximum", "pow", "sigmoid", "softplus"),
    *("clamp", "clamp_max", "clip", "minimum"),
)
COMPLETE = [name for name in ELEMENTWISE if name not in (*NO_VALUE_AT_ZERO, *WITH_A_VALUE_AT_ZERO)]


def balanced(function, *operands, attention_rule: Any = "half", gradient=None):
    """Result, the gradient it is given, and the balanced gradients of the operands."""
    leaves = [operand.clone().requires_grad_() for operand in operands]
    with BalancedMode([], attention_rule, leaves):
        result = function(*[leaf.clone() for leaf in leaves])
    gradient = rand(*result.shape, seed=9).to(result) if gradient is None else gradient
    return result.detach(), gradient, torch.autograd.grad(result, leaves, gradient, materialize_grads=True)


def assert_derivative(function, surrogate, *operands):
    """`function` has its own values and, under the mode, the derivatives of `surrogate`."""
    result, gradient, received = balanced(function, *operands)
    assert torch.equal(result, function(*[operand.clone() for operand in operands]))
    leaves = [operand.clone().requires_grad_() for operand in operands]
    expected = torch.autograd.grad(surrogate(*leaves), leaves, gradient)
    for ours, theirs in zip(received, expected, strict=True):
        assert theirs.abs().max() > 0
        assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def line(function):
    """An activation as a line through its value at 0."""

    def surrogate(x):
        at_zero = function(torch.zeros_like(x).detach())
        return x * ((function(x.detach().clone()) - at_zero) / x.detach())

    return surrogate


@pytest.mark.parametrize("name", [name for name in ELEMENTWISE if name not in NO_VALUE_AT_ZERO])
def test_an_activation_is_a_line_through_its_value_at_zero(name):
    assert_derivative(ELEMENTWISE[name], line(ELEMENTWISE[name]), rand(3, 4))


@pytest.mark.parametrize("name", COMPLETE)
def test_activations_without_a_value_at_zero_are_complete(name):
    result, gradient, (received,) = balanced(ELEMENTWISE[name], rand(3, 4))
    assert torch.allclose((received * rand(3, 4)).sum(), (gradient * result).sum())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3)))),
        lambda x: x * torch.sigmoid(1.702 * x),
        lambda x: x / (1 + torch.exp(-x)),
        lambda x: x * (1 + x.exp()).reciprocal(),
        lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))),
        lambda x: x * x.sigmoid().to(torch.float64),
        lambda x: x.square() * torch.tensor(2.0),
        lambda x: x.clone().mul_(2).tanh_(),
        lambda x: (1.702 * x).sigmoid_() * x,
        lambda x: torch.erf(x / math.sqrt(2.0)).add_(1.0).mul_(0.5).mul_(x),
    ],
)
def test_an_activation_written_by_hand_is_one_activation(function):
    assert_derivative(function, line(function), rand(3, 4))
    _, gradient, (received,) = balanced(function, torch.zeros(3, 4).double())
    zero = torch.zeros(3, 4).double().requires_grad_()
    (slope,) = torch.autograd.grad(function(zero), zero, gradient)
    assert torch.allclose(received, slope)


def test_a_factor_may_be_overwritten_by_the_product():
    def quick_gelu(x):
        return torch.sigmoid(1.702 * x).mul_(x)  # plain autograd refuses this, since it needs the sigmoid

    assert_derivative(quick_gelu, line(quick_gelu), rand(3, 4))


def test_a_square_may_overwrite_its_operand():
    def square(x):
        y = 2 * x
        return y.mul_(y)

    assert_derivative(square, line(square), rand(3, 4))


def test_a_number_that_changes_later_counts_as_it_was():
    def function(x):
        factor = torch.tensor(0.5).double()
        gate = torch.sigmoid(x).mul_(factor)
        factor.add_(1)
        return gate * x

    assert_derivative(function, line(function), rand(3, 4))


def test_a_view_is_no_function_of_what_it_was_before_the_tensor_below_it_changed():
    shift = rand(3, 4, seed=5)

    def through_view(x):
        y = 2 * x
        view = y.view(12)
        view.relu_()
        y.add_(shift)
        return (view * view.sigmoid()).view(3, 4)

    def apart(x):
        y = line(torch.relu)(2 * x) + shift
        return y * line(torch.sigmoid)(y) * 0.5 + 0.5 * (y * line(torch.sigmoid)(y))

    def surrogate(x):
        y = line(torch.relu)(2 * x) + shift
        return line(lambda value: value * value.sigmoid())(y)

    assert_derivative(through_view, surrogate, rand(3, 4))


def test_an_overwritten_constant_without_a_rule_is_named():
    with pytest.raises(UnsupportedModelError, match="div_"):
        balanced(lambda x: torch.ones(3, 4).double().div_(x.exp()), rand(3, 4))


def test_near_zero_a_line_has_the_derivative_there_whatever_its_value():
    x = torch.tensor([0.0, 1e-12, -1e-9, 1e-7]).double()
    _, gradient, (received,) = balanced(torch.sigmoid, x)
    assert torch.allclose(received, gradient / 4, rtol=1e-6)
    _, gradient, (received,) = balanced(functional.gelu, x)
    assert torch.allclose(received, gradient / 2, rtol=1e-6)


def test_a_bias_starts_a_new_activation():
    bias = rand(4, seed=2)
    assert_derivative(lambda x: functional.silu(x + bias), lambda x: line(functional.silu)(x + bias), rand(3, 4))


def layer_norm(x, weight: Any = 1.0):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.detach().square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def rms_norm(x):
    return x / (x.detach().square().mean(-1, keepdim=True) + 1e-6).sqrt()


MODULE = nn.LayerNorm(4).double()
with torch.no_grad():
    MODULE.weight.copy_(rand(4, seed=3))
    MODULE.bias.copy_(rand(4, seed=4))


@pytest.mark.parametrize(
    ("function", "surrogate"),
    [
        (MODULE, lambda x: layer_norm(x, MODULE.weight)),
        (lambda x: functional.layer_norm(x, (4,)), layer_norm),
        (
            lambda x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt(),
            layer_norm,
        ),
        (lambda x: functional.group_norm(x, 1), layer_norm),
        (lambda x: functional.rms_norm(x, (4,), eps=1e-6), rms_norm),
        (lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6), rms_norm),
        (lambda x: x.to(torch.float64) * (x * x).mean(-1, keepdim=True).add(1e-6).rsqrt(), rms_norm),
        (functional.normalize, lambda x: x / x.detach().norm(dim=-1, keepdim=True)),
        (lambda x: x / x.norm(dim=-1, keepdim=True), lambda x: x / x.detach().norm(dim=-1, keepdim=True)),
        (NORMALISING["batch_norm"], NORMALISING["batch_norm"]),
        (NORMALISING["softmax"], NORMALISING["softmax"]),
        (NORMALISING["log_softmax"], NORMALISING["log_softmax"]),
    ],
)
def test_a_normalisation_divides_by_a_constant(function, surrogate):
    assert_derivative(function, surrogate, rand(3, 4))


@pytest.mark.parametrize("name", ROUTING)
def test_routing_has_its_own_derivative(name):
    assert_derivative(ROUTING[name], ROUTING[name], rand(2, 3, 4))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.linear(x, WEIGHT, WEIGHT[:, 0]),
        lambda x: torch.addmm(WEIGHT[:, 0], x[0], WEIGHT.T, alpha=3, beta=2),
        lambda x: torch.einsum("btd,kd->btk", x, WEIGHT),
        lambda x: functional.conv1d(x.mT, WEIGHT[..., None]),
        lambda x: (x * 3 - 1).mean(1) / 2 + x.sum(dim=1),
        lambda x: x.clone().add_(x, alpha=2).div_(4),
        lambda x: x.amax(1),
    ],
)
def test_linear_maps_have_their_own_derivative(function):
    assert_derivative(function, function, rand(2, 3, 4))


ROWS = torch.tensor([2, 0, 1])
SCATTERED = torch.tensor([[0, 3, 1, 2], [1, 1, 0, 0], [2, 0, 3, 3]])
ADDING_UP = {
    "adaptive_avg_pool1d": lambda x: functional.adaptive_avg_pool1d(x, 2),
    "avg_pool1d": lambda x: functional.avg_pool1d(x, 2),
    "avg_pool2d": lambda x: functional.avg_pool2d(x[None], (2, 1), stride=(2, 1), ceil_mode=True),
    "fold": lambda x: functional.fold(x[None], (1, 6), (1, 3)),
    "index_add": lambda x: torch.zeros(4, 4, dtype=x.dtype).index_add_(0, torch.tensor([0, 2, 2]), x),
    "index_copy": lambda x: x.index_copy(0, ROWS, 2 * x),
    "index_put": lambda x: x.clone().index_put_((ROWS,), 3 * x.clone(), accumulate=True),
    "scatter": lambda x: torch.zeros_like(x).scatter(1, SCATTERED.argsort(1), x),
    "scatter_add": lambda x: torch.zeros_like(x).scatter_add_(1, SCATTERED, x),
    "sort": lambda x: x.sort(-1).values,
    "topk": lambda x: x.topk(2, -1).values,
    "unfold": lambda x: functional.unfold(x[None, None], (1, 3), padding=(0, 1)),
    "view_as_real": lambda x: torch.view_as_real(torch.view_as_complex(x.reshape(3, 2, 2)) * 1j),
}


@pytest.mark.parametrize("name", ADDING_UP)
def test_operations_that_choose_or_add_up_elements_have_their_own_derivative(name):
    assert_derivative(ADDING_UP[name], ADDING_UP[name], rand(3, 4))


def mixture_of_experts(x, router, experts):
    """The two best of four experts, weighted by a normalised softmax."""
    weights, best_experts = torch.softmax(x @ router, -1).topk(2, -1)
    weights = weights / weights.sum(-1, keepdim=True)
    mixed = torch.zeros_like(x)
    for expert, matrix in enumerate(experts):
        token, rank = torch.where(best_experts == expert)
        mixed.index_add_(0, token, x[token] @ matrix * weights[token, rank, None])
    return mixed


def test_the_choice_of_experts_is_a_constant_and_their_weights_are_gates():
    router, experts = rand(4, 4, seed=3), rand(4, 4, 4, seed=4)

    def surrogate(x):
        scores = torch.softmax(x @ router, -1)
        best_experts = scores.detach().topk(2, -1).indices
        weights = scores.gather(-1, best_experts)
        weights = weights / weights.detach().sum(-1, keepdim=True)
        of_expert = torch.einsum("td,edf->tef", x, experts)
        outputs = of_expert.gather(1, best_experts[..., None].expand(-1, -1, 4))
        return ((weights.detach()[..., None] * outputs + weights[..., None] * outputs.detach()) / 2).sum(1)

    def values(x):
        return mixture_of_experts(x, router, experts)

    result, gradient, (received,) = balanced(values, rand(3, 4))
    assert torch.equal(result, values(rand(3, 4)))
    leaf = rand(3, 4).requires_grad_()
    (expected,) = torch.autograd.grad(surrogate(leaf), leaf, gradient)
    assert torch.allclose(received, expected, rtol=1e-9)


@pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="torch has no grouped products")
def test_a_grouped_product_with_weights_is_linear_and_of_two_carriers_has_no_rule():
    ends = torch.tensor([1, 4], dtype=torch.int32)
    weight = rand(2, 8, 4, seed=2).float()

    def grouped(x, w=weight):
        return torch._grouped_mm(x, w, ends)  # pyright: ignore[reportPrivateImportUsage]

    x = rand(4, 8).float()
    result, gradient, (received,) = balanced(grouped, x)
    by_hand = torch.cat([x[:1] @ weight[0], x[1:] @ weight[1]])
    assert torch.allclose(result, by_hand, rtol=1e-5)
    expected = torch.cat([gradient[:1] @ weight[0].T, gradient[1:] @ weight[1].T])
    assert torch.allclose(received, expected, rtol=1e-5)
    with pytest.raises(UnsupportedModelError, match="grouped_mm"):
        balanced(grouped, x, weight)


def halves(product):
    return lambda x, y: (product(x.detach(), y) + product(x, y.detach())) / 2


@pytest.mark.parametrize(
    "product",
    [
        lambda x, y: x * y,
        lambda x, y: torch.mul(x, other=y),
        lambda x, y: x @ y.mT,
        lambda x, y: torch.bmm(x, y.mT),
        lambda x, y: torch.einsum("bik,bjk->bij", x, y),
        lambda x, y: torch.baddbmm(torch.ones(3, 3).double(), x, y.mT),
        lambda x, y: x.clone().mul_(y),
    ],
)
def test_both_factors_of_a_product_get_half_of_the_gradient(product):
    assert_derivative(product, halves(product), rand(2, 3, 4), rand(2, 3, 4, seed=1))


def test_gates_are_products_of_an_activation():
    def surrogate(x, y):
        return halves(torch.mul)(x, line(torch.sigmoid)(y) + 0.5)

    assert_derivative(lambda x, y: functional.glu(torch.cat([x, y], -1)), surrogate, rand(3, 4), rand(3, 4, seed=1))
    assert_derivative(lambda x, y: x * y.sigmoid(), surrogate, rand(3, 4), rand(3, 4, seed=1))


def test_with_the_constant_rule_a_product_with_attention_is_linear_and_scores_get_nothing():
    def attend(scores, values):
        return scores.softmax(-1).masked_fill(torch.eye(3).bool(), 0)[None].expand(2, 3, 3) @ values

    scores, values = rand(3, 3), rand(2, 3, 4, seed=1)
    _, gradient, (of_scores, of_values) = balanced(attend, scores, values, attention_rule="constant")
    assert of_scores.abs().max() == 0
    leaf = values.clone().requires_grad_()
    (expected,) = torch.autograd.grad(attend(scores, leaf), leaf, gradient)
    assert torch.equal(of_values, expected)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (torch.sin, "torch.sin"),
        (lambda x, y: torch.maximum(x, y), "torch.maximum"),
        (lambda x, y: x / y, "torch.Tensor.div"),
        (lambda x: torch.div(x, 2, rounding_mode="floor"), "torch.div"),
        (lambda x: x.var(1), "torch.Tensor.var"),
        (lambda x: x.logsumexp(-1, keepdim=True), "logsumexp"),
        (lambda x: x.exp() / x.exp().sum(-1, keepdim=True) + 0 * x, "torch.Tensor.div"),
        (lambda x, y: torch.einsum("ij,ij,ij->i", x, y, x), "einsum"),
        (lambda x: functional.linear(x.mean(-1, keepdim=True), torch.ones(2, 1).double()), "linear"),
        (lambda x: x.log(), "log"),
        (lambda x: 1 / x, "div"),
    ],
)
def test_an_operation_without_a_rule_is_an_error_that_names_it(function, name):
    operands = [rand(3, 4), rand(3, 4, seed=1)][: function.__code__.co_argcount if hasattr(function, "__code__") else 1]
    with pytest.raises(UnsupportedModelError, match=name):
        balanced(function, *operands)


def test_what_does_not_depend_on_the_input_is_a_constant():
    weight = nn.Parameter(rand(4))
    x = rand(3, 4).requires_grad_()
    with BalancedMode([], "half", [x]):
        scale = torch.sigmoid(weight)
        result = x * scale * weight.to(torch.float64)
    assert not scale.requires_grad
    (received,) = torch.autograd.grad(result.sum(), x)
    assert torch.equal(received, (scale * weight).detach().expand(3, 4))
