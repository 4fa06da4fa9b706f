"""Operations under the relevance mode: which rule each gets, however it is written."""

import math
import re
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from gaflow.errors import UnsupportedModelError
from gaflow.methods.lrp import operation_table as table
from gaflow.methods.lrp.operation_table import operation
from gaflow.methods.lrp.relevance_mode import RelevanceMode
from gaflow.methods.lrp.rules import Linear, Product, Sum, add

T = torch.Tensor


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def under_mode(function, *operands, items=1, dtype=torch.float64):
    """The function's result on carriers with the operands' values, and the mode."""
    weights = [nn.Parameter(operand.clone()) for operand in operands]
    with RelevanceMode(weights, items, dtype) as mode:
        result = function(*[weight[:] for weight in weights])
    return result, mode


def propagate(function, *operands, items=1, relevance=None):
    """Result, its relevance, and the relevance of the operands."""
    result, mode = under_mode(function, *operands, items=items)
    assert mode.marks.carries(result)
    relevance = rand(*result.shape, seed=9) if relevance is None else relevance
    return result.detach(), relevance, torch.autograd.grad(result, mode.seeds, relevance, materialize_grads=True)


def assert_rule(function, rule, *operands, items=1, tolerance=1e-12):
    """`function` under the mode gives the values and relevances of `rule`, a function of leaves."""
    result, relevance, received = propagate(function, *operands, items=items)
    leaves = [operand.clone().requires_grad_() for operand in operands]
    expected = rule(*leaves)
    assert torch.allclose(result, expected, rtol=1e-12, atol=1e-12)
    gradients = torch.autograd.grad(expected, leaves, relevance)
    for ours, theirs in zip(received, gradients, strict=True):
        assert theirs.abs().max() > 0
        assert torch.allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def assert_identity(function, x, tolerance=1e-12):
    result, relevance, (received,) = propagate(function, x)
    assert torch.allclose(result, function(x.clone()), rtol=1e-12, atol=1e-12)
    assert torch.allclose(received, relevance.sum_to_size(x.shape), rtol=tolerance, atol=tolerance)


def assert_uncovered(function, *operands, name, items=1):
    with pytest.raises(UnsupportedModelError, match=name):
        under_mode(function, *operands, items=items)


ELEMENTWISE = {
    "abs": abs,
    "celu": functional.celu,
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "clamp_max": lambda x: x.clamp_max(0.1),
    "clamp_min": lambda x: x.clamp_min(0.1),
    "clip": lambda x: torch.clip(x, 0),
    "dropout": lambda x: functional.dropout(x, 0.5, training=False),
    "elu": functional.elu,
    "erf": torch.erf,
    "exp": T.exp,
    "expm1": T.expm1,
    "gelu": lambda x: functional.gelu(x, approximate="tanh"),
    "hardsigmoid": functional.hardsigmoid,
    "hardswish": functional.hardswish,
    "hardtanh": functional.hardtanh,
    "leaky_relu": functional.leaky_relu,
    "log": lambda x: (x * x).log(),
    "log1p": lambda x: (x * x).log1p(),
    "logsigmoid": functional.logsigmoid,
    "maximum": lambda x: torch.maximum(x, torch.tensor(0.3)),
    "minimum": lambda x: torch.minimum(torch.ones(3, 4), x),
    "mish": functional.mish,
    "nan_to_num": torch.nan_to_num,
    "neg": lambda x: -x,
    "negative": torch.negative,
    "positive": lambda x: +x,
    "pow": lambda x: x**3 + 2**x,
    "reciprocal": torch.reciprocal,
    "relu": lambda x: functional.relu(x, inplace=True),
    "relu6": functional.relu6,
    "rsqrt": lambda x: (x * x).rsqrt(),
    "selu": functional.selu,
    "sigmoid": T.sigmoid,
    "silu": functional.silu,
    "softplus": functional.softplus,
    "softsign": functional.softsign,
    "sqrt": lambda x: x.abs().sqrt(),
    "square": torch.square,
    "tanh": torch.tanh,
}

NORMALISING = {
    "batch_norm": lambda x: functional.batch_norm(x, torch.ones(4).double(), torch.full((4,), 2.0).double()),
    "group_norm": lambda x: functional.group_norm(x, 2),
    "layer_norm": nn.LayerNorm(4).double(),
    "log_softmax": lambda x: x.log_softmax(-1),
    "normalize": functional.normalize,
    "rms_norm": lambda x: functional.rms_norm(x, (4,)),
    "softmax": lambda x: functional.softmax(x, dim=-1),
}

ROUTING = {
    "T": lambda x: x[0].T,
    "adjoint": T.adjoint,
    "as_strided": lambda x: x.as_strided((2, 3), (1, 2)),
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, torch.zeros(5, 2, 3, 4))[0],
    "broadcast_to": lambda x: torch.broadcast_to(x, (5, 2, 3, 4)),
    "cat": lambda x: torch.cat([x, x[:1], torch.ones(1, 3, 4)]),
    "chunk": lambda x: x.chunk(2, -1)[1],
    "clone": T.clone,
    "concat": lambda x: torch.concat([x, x]),
    "concatenate": lambda x: torch.concatenate([x, x]),
    "contiguous": lambda x: x.mT.contiguous(),
    "copy": lambda x: torch.zeros(2, 3, 4, dtype=torch.float64).copy_(x),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "expand": lambda x: x[:, :1].expand(2, 3, 4),
    "expand_as": lambda x: x[:, :1].expand_as(torch.zeros(2, 3, 4)),
    "flatten": lambda x: x.flatten(1),
    "flip": lambda x: x.flip(-1),
    "gather": lambda x: x.gather(-1, torch.zeros(2, 3, 6, dtype=torch.long)),
    "getitem": lambda x: x[:, torch.tensor([0, 2, 2])][..., 1:, None],
    "hstack": lambda x: torch.hstack([x, x]),
    "index_select": lambda x: x.index_select(1, torch.tensor([2, 2])),
    "mT": lambda x: x.mT,
    "masked_fill": lambda x: x.masked_fill(torch.eye(3, 4).bool(), -9.0),
    "masked_scatter": lambda x: torch.zeros_like(x).masked_scatter(torch.eye(3, 4).bool(), x),
    "masked_select": lambda x: x.masked_select(torch.eye(3, 4).bool()),
    "moveaxis": lambda x: x.moveaxis(0, 1),
    "movedim": lambda x: x.movedim(0, -1),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "pad": lambda x: functional.pad(x, (1, 2)),
    "permute": lambda x: x.permute(0, 2, 1),
    "ravel": T.ravel,
    "repeat": lambda x: x.repeat(1, 2, 1),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "reshape": lambda x: x.reshape(6, 4),
    "reshape_as": lambda x: x.reshape_as(torch.zeros(6, 4)),
    "roll": lambda x: x.roll(1, -1),
    "select": lambda x: x.select(1, 0),
    "setitem": lambda x: _set(torch.zeros(2, 5, 4, dtype=torch.float64), x),
    "split": lambda x: x.split([1, 2], 1)[1],
    "split_with_sizes": lambda x: x.split_with_sizes([1, 2], 1)[1],
    "squeeze": lambda x: x[:, :1].squeeze(1),
    "stack": lambda x: torch.stack([x, torch.zeros(2, 3, 4), x], 1),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "swapdims": lambda x: x.swapdims(0, 1),
    "t": lambda x: x[0].t(),
    "take_along_dim": lambda x: x.take_along_dim(torch.ones(2, 3, 1, dtype=torch.long), -1),
    "tensor_split": lambda x: x.tensor_split(2, 1)[0],
    "tile": lambda x: x.tile((1, 2, 1)),
    "transpose": lambda x: x.transpose(1, 2),
    "tril": T.tril,
    "triu": T.triu,
    "unbind": lambda x: x.unbind(1)[2],
    "unflatten": lambda x: x.unflatten(-1, (2, 2)),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "view": lambda x: x.view(2, 12),
    "view_as": lambda x: x.view_as(torch.zeros(6, 4)),
    "vstack": lambda x: torch.vstack([x, x]),
    "where": lambda x: torch.where(torch.eye(3, 4).bool(), x, 0.5),
}


def _set(buffer, x):
    buffer[:, 1:4] = x
    return buffer


def test_the_tables_are_tested_whole_and_name_operations_that_there_are():
    assert set(ELEMENTWISE) == table.ELEMENTWISE
    assert set(NORMALISING) == table.NORMALISING
    assert set(ROUTING) == table.ROUTING
    tables = (table.ELEMENTWISE, table.NORMALISING, table.ROUTING, table.BINARY, table.BILINEAR, table.REDUCTION)
    all_names = [name for names in (*tables, table.CAST, table.CONSTANT) for name in names]
    assert len(all_names) == len(set(all_names))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        operations = {operation(f).name for fs in torch.overrides.get_overridable_functions().values() for f in fs}
    operations |= set(dir(torch.Tensor)) | set(dir(torch)) | set(dir(functional))
    assert set(all_names) <= operations


def test_the_documentation_names_the_operations_of_every_table():
    page = (Path(__file__).parents[2] / "docs" / "relevance.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1].split(" with ")[0] for line in page.splitlines() if line.startswith("| `")]
    documented = [frozenset(re.findall("`([^`]+)`", cell)) for cell in cells]
    assert documented == [
        table.ELEMENTWISE,
        table.NORMALISING,
        table.BINARY,
        table.BILINEAR,
        table.REDUCTION,
        {"glu"},
        table.ROUTING,
        table.CAST,
        table.CONSTANT,
        table.START,
    ]


@pytest.mark.parametrize("name", [*ELEMENTWISE, *NORMALISING])
def test_activations_and_normalisations_pass_relevance_as_it_is(name):
    assert_identity({**ELEMENTWISE, **NORMALISING}[name], rand(3, 4))


@pytest.mark.parametrize("name", ROUTING)
def test_routing_sends_relevance_to_where_the_elements_came_from(name):
    assert_rule(ROUTING[name], ROUTING[name], rand(2, 3, 4))


@pytest.mark.parametrize(
    ("function", "name", "in_place", "swapped"),
    [
        (torch.add, "add", False, False),
        (T.add, "add", False, False),
        (T.__radd__, "add", False, True),
        (T.add_, "add", True, False),
        (T.__iadd__, "add", True, False),
        (T.__rtruediv__, "div", False, True),
        (T.__itruediv__, "div", True, False),
        (torch.true_divide, "div", False, False),
        (torch.rsub, "sub", False, True),
        (T.__rsub__, "sub", False, True),
        (T.__matmul__, "matmul", False, False),
        (T.__rmatmul__, "matmul", False, True),
        (torch.bmm, "matmul", False, False),
        (T.__getitem__, "getitem", False, False),
        (vars(torch._C.TensorBase)["T"].__get__, "T", False, False),
        (functional.relu_, "relu", True, False),
        (functional.softmax, "softmax", False, False),
        (T.new_zeros, "new_zeros", False, False),
        (functional.hardswish, "hardswish", False, False),
    ],
)
def test_an_operation_has_one_name_however_it_is_called(function, name, in_place, swapped):
    op = operation(function)
    assert (op.name, op.in_place, op.swapped) == (name, in_place, swapped)
    assert op.path.startswith("torch.")


def test_what_is_not_torchs_own_is_not_taken_for_it():
    def softmax(x):
        return x

    assert operation(softmax).name not in table.NORMALISING
    assert operation(torch.ops.aten.softmax).name not in table.NORMALISING


def added(x, y):
    return add(x, y, 2)


def in_place(x, y):
    x = x.clone()
    x += y
    return x


def in_place_as_a_statement(x, y):
    x = x.clone()
    alias = x.view(-1)
    x.add_(y)
    return alias.view(4, 3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x + y,
        lambda x, y: torch.add(x, y),
        lambda x, y: torch.add(input=x, other=y),
        lambda x, y: x.add(y, alpha=1),
        lambda x, y: x - (-y),
        lambda x, y: torch.sub(x, y, alpha=-1),
        lambda x, y: torch.rsub(-x, y),
        lambda x, y: torch.zeros(4, 3).double().add_(x) + y,
        in_place,
        in_place_as_a_statement,
    ],
)
def test_every_way_to_add_gets_the_addition_rule(function):
    assert_rule(function, added, rand(4, 3), rand(4, 3, seed=1), items=2)


def test_the_sums_of_an_addition_run_over_each_item_by_itself():
    x, y = rand(4, 3), rand(4, 3, seed=1)
    _, relevance, (of_x, of_y) = propagate(torch.add, x, y, items=2)
    for item in (slice(0, 2), slice(2, 4)):
        _, _, alone = propagate(torch.add, x[item], y[item], relevance=relevance[item])
        assert torch.allclose(of_x[item], alone[0], rtol=1e-12)
        assert torch.allclose(of_y[item], alone[1], rtol=1e-12)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1,
        lambda x: 1 + x,
        lambda x: 2 - x,
        lambda x: x * 3,
        lambda x: 3 * x / 7,
        lambda x: 1 / x,
        lambda x: x + torch.ones(5, 3, 4),
        lambda x: torch.full((4,), -1e30) + x,
        lambda x: x.clone().mul_(torch.tensor(2.0)).add_(torch.ones(4), alpha=2),
        lambda x: x.clone().div_(3).tanh_(),
        lambda x: x * torch.tensor([1.0, 0.0, 2.0, -1.0]),
        lambda x: torch.ones(3, 4).double().mul_(x),
        lambda x: x.to(torch.float16).float().type(torch.float32).double(),
        lambda x: x.to(torch.ones(1)).type_as(torch.ones(1)).cpu(),
        lambda x: functional.softmax(x, dim=-1, dtype=torch.float32),
    ],
)
def test_constants_get_nothing_and_precision_is_kept(function):
    result, relevance, (received,) = propagate(function, rand(3, 4))
    assert result.dtype == torch.float64
    assert torch.allclose(result.to(function(rand(3, 4)).dtype), function(rand(3, 4)), rtol=1e-3)
    assert torch.allclose(received, relevance.sum_to_size(3, 4))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3)))),
        lambda x: x * torch.sigmoid(1.702 * x),
        lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))),
        lambda x: x + functional.relu(x),
        lambda x: x.exp() / (1 + x.exp()),
        lambda x: x - x.square() * torch.linspace(0, 1, 4),
    ],
)
def test_an_activation_written_by_hand_is_still_an_activation(function):
    assert_identity(function, rand(3, 4))


def test_a_tensor_that_is_overwritten_is_no_longer_the_same_function():
    def function(x, y):
        x = x.clone()
        before = torch.tanh(x)
        x += y
        return x + before

    def rule(x, y):
        return add(add(x, y, 1), Tanh.apply(x), 1)

    assert_rule(function, rule, rand(3, 4), rand(3, 4, seed=1))


def test_writing_into_a_view_is_writing_into_what_it_is_a_view_of():
    def function(x, y):
        changed = torch.tanh(x)
        changed[:, 0].add_(y)
        return x + changed

    def rule(x, y):
        changed = Tanh.apply(x)
        first = add(changed[:, 0], y, 1)
        return add(x, torch.cat([first[:, None], changed[:, 1:]], 1), 1)

    assert_rule(function, rule, rand(3, 4), rand(3, seed=1))

    def into_a_constant(x):
        buffer = torch.zeros(3, 5).double()
        buffer[:, 1:].copy_(x)
        return buffer * 2

    _, relevance, (received,) = propagate(into_a_constant, rand(3, 4))
    assert torch.equal(received, relevance[:, 1:])


def test_a_copy_in_another_precision_can_be_overwritten_by_itself():
    def function(x):
        copy = x.float()
        copy *= 3
        return x + copy

    result, _, _ = propagate(function, rand(3, 4))
    assert torch.allclose(result, 4 * rand(3, 4))
    _, relevance, (received,) = propagate(lambda x: x * x.float().sigmoid(), rand(3, 4))
    assert torch.equal(received, relevance)  # still an activation


class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.tanh()

    @staticmethod
    def backward(ctx, *results):
        return results[0]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
        lambda x: (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-6),
        lambda x: torch.ones(4) * (x - x.mean(dim=-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + 2,
        lambda x: x / x.norm(dim=-1, keepdim=True),
        lambda x: x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(1e-6),
        lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
        lambda x: (x - x.max(-1, keepdim=True).values).exp(),
        lambda x: (x - x.logsumexp(-1, keepdim=True).expand(3, 4)).exp(),
    ],
)
def test_a_normalisation_written_by_hand_is_still_a_normalisation(function):
    assert_identity(function, rand(3, 4))


WEIGHT = rand(5, 4, seed=7)


def as_linear(x):
    return Linear.apply(x, WEIGHT, functional.linear, None)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.linear(x, WEIGHT),
        lambda x: functional.linear(x, bias=torch.zeros(5), weight=WEIGHT),
        lambda x: x @ WEIGHT.T,
        lambda x: (WEIGHT @ x.mT).mT,
        lambda x: torch.einsum("btd,kd->btk", x, WEIGHT),
        lambda x: torch.einsum("kd,btd->btk", [WEIGHT, x]),
        lambda x: torch.addmm(torch.zeros(5), x.view(-1, 4), WEIGHT.T).view(2, 3, 5),
        lambda x: torch.addmm(torch.zeros(5), x.view(-1, 4), WEIGHT.T, alpha=3, beta=2).view(2, 3, 5) / 3,
        lambda x: functional.conv1d(x.mT, WEIGHT[..., None], torch.zeros(5)).mT,
        lambda x: functional.conv2d(x.mT[..., None], WEIGHT[..., None, None], bias=torch.zeros(5))[..., 0].mT,
        lambda x: torch.stack([torch.mv(WEIGHT, row) for row in x.flatten(0, 1)]).view(2, 3, 5),
    ],
)
def test_every_way_to_apply_a_weight_gets_the_linear_rule(function):
    assert_rule(function, as_linear, rand(2, 3, 4))


def test_biases_count_for_values_and_not_for_relevance():
    bias = rand(5, seed=8)
    for function in (
        lambda x: functional.linear(x, WEIGHT, bias),
        lambda x: torch.addmm(bias, x, WEIGHT.T),
        lambda x: functional.conv1d(x.T[None], WEIGHT[..., None], bias)[0].T,
    ):
        result, relevance, (received,) = propagate(function, rand(3, 4))
        assert torch.allclose(result, functional.linear(rand(3, 4), WEIGHT, bias))
        assert torch.allclose(received, propagate(as_linear_op, rand(3, 4), relevance=relevance)[2][0])


def as_linear_op(x):
    return functional.linear(x, WEIGHT)


def test_weights_in_lower_precision_are_widened_and_stay_as_they_are():
    weight = WEIGHT.half()
    result, _, _ = propagate(lambda x: functional.linear(x, weight, torch.ones(5).half()), rand(3, 4))
    assert weight.dtype == torch.float16
    assert torch.equal(result, functional.linear(rand(3, 4), weight.double(), torch.ones(5).double()))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x @ y.mT,
        lambda x, y: torch.bmm(x, y.transpose(1, 2)),
        lambda x, y: torch.einsum("bqd,bkd->bqk", x, y),
        lambda x, y: torch.baddbmm(torch.zeros(2, 3, 5), x, y.mT),
        lambda x, y: torch.baddbmm(torch.zeros(2, 3, 5), x, y.mT, alpha=2, beta=0) / 2,
    ],
)
def test_every_way_to_multiply_matrices_gets_the_product_rule(function):
    def rule(x, y):
        return Product.apply(x, y, lambda a, b: a @ b.mT)

    assert_rule(function, rule, rand(2, 3, 4), rand(2, 5, 4, seed=1))


def test_vectors_that_differ_between_positions_are_operands_and_no_weights():
    places = rand(2, 5, 4, seed=1)

    def rule(x):
        return Product.apply(x, places, lambda a, b: a @ b.mT)

    assert_rule(lambda x: x @ places.mT, rule, rand(2, 3, 4))
    assert_rule(lambda x: (places @ x.mT).mT, rule, rand(2, 3, 4))
    assert_rule(lambda x: torch.einsum("bqd,bkd->bqk", x, places), rule, rand(2, 3, 4))


def test_a_stack_of_one_matrix_is_treated_as_a_stack_of_many():
    """Else a text alone would get another rule than in a batch."""
    places = rand(1, 5, 4, seed=1)

    def rule(x):
        return Product.apply(x, places, lambda a, b: a @ b.mT)

    assert_rule(lambda x: x @ places.mT, rule, rand(1, 3, 4))
    assert_rule(lambda x: torch.bmm(x, places.mT), rule, rand(1, 3, 4))
    assert_rule(lambda x: torch.einsum("bqd,bkd->bqk", x, places), rule, rand(1, 3, 4))


def test_a_product_that_is_added_to_something_relevant_gets_both_rules():
    def rule(x, y, z):
        return add(z, Product.apply(x, y, torch.matmul), 2)

    operands = rand(2, 3, 4), rand(2, 4, 5, seed=1), rand(2, 3, 5, seed=2)
    assert_rule(lambda x, y, z: torch.baddbmm(z, x, y), rule, *operands, items=2)
    constant = rand(3, 5, seed=3)
    _, relevance, (received,) = propagate(lambda z: torch.addmm(z, constant, WEIGHT), rand(3, 4))
    assert torch.allclose(received, relevance)


def test_gates_share_relevance_by_halves():
    def rule(x, y):
        return Product.apply(x, Sigmoid.apply(y), torch.mul)

    x, y = rand(3, 4), rand(3, 4, seed=1)
    assert_rule(lambda x, y: x * y.sigmoid(), rule, x, y)
    assert_rule(lambda x, y: functional.glu(torch.cat([x, y], -1)), rule, x, y)
    _, relevance, (of_x, of_y) = propagate(lambda x, y: x * functional.silu(y), x, y)
    assert torch.allclose(of_x, relevance / 2, rtol=1e-6)
    assert torch.allclose(of_y, relevance / 2, rtol=1e-6)


class Sigmoid(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sigmoid()

    @staticmethod
    def backward(ctx, *results):
        return results[0]


def test_rotary_embeddings_add_a_vector_and_its_turned_self():
    angle = rand(3, 4, seed=5)
    cos, sin = angle.cos().float(), angle.sin().float()

    def turn(x):
        return torch.cat([-x[..., 2:], x[..., :2]], -1)

    def rule(x):
        turned = x.roll(2, -1)  # relevance goes where elements came from, whatever their sign
        sign = torch.tensor([-1.0, -1.0, 1.0, 1.0])
        first, second = Scaled.apply(x, cos.double()), Scaled.apply(turned, sign * sin.double())
        return add(first, second, 1)

    assert_rule(lambda x: x.float() * cos + turn(x.float()) * sin, rule, rand(3, 4))


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        return x * factor

    @staticmethod
    def backward(ctx, *results):
        return results[0], None


@pytest.mark.parametrize("function", [lambda x: x.mean(1), lambda x: x.sum(dim=1), lambda x: torch.mean(x, 1, True)])
def test_pooling_is_an_addition_of_positions(function):
    def rule(x):
        total = Sum.apply(x, 1, 2, lambda: x.sum(1))
        result = function(x)
        return Scaled.apply(total.reshape(result.shape), result.detach() / total.detach().reshape(result.shape))

    assert_rule(function, rule, rand(2, 3, 4), items=2)


def test_pooling_over_several_axes_and_extremes_conserve_relevance():
    for function in (
        lambda x: x.mean((1, 2)),
        lambda x: x.sum((-1, -2), keepdim=True),
        lambda x: x.amax(1),
        lambda x: x.max(1)[0],
    ):
        result, relevance, (received,) = propagate(function, rand(2, 3, 4), items=2)
        assert torch.allclose(result, function(rand(2, 3, 4)))
        assert torch.allclose(received.sum((1, 2)), relevance.reshape(2, -1).sum(1), rtol=1e-6)


def test_what_a_padded_mean_leaves_out_gets_nothing():
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])

    def pooled(x):
        return (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    _, relevance, (received,) = propagate(pooled, rand(2, 3, 4), items=2)
    assert received[0, 2].abs().max() == 0
    _, _, (alone,) = propagate(lambda x: x.mean(1), rand(2, 3, 4)[:1, :2], relevance=relevance[:1])
    assert torch.allclose(received[:1, :2], alone, rtol=1e-9)


def test_questions_about_a_tensor_are_no_operations():
    def function(x):
        assert x.shape == x.size() == (3, 4)
        assert x.dim() == 2
        assert len(x) == 3
        assert x.dtype == torch.float64
        assert not bool(torch.isnan(x).any())
        assert x.argmax(-1).shape == (3,)
        assert isinstance(x[0, 0].item(), float)
        assert x.new_zeros(2).requires_grad is False
        assert torch.zeros_like(x).sum() == 0
        assert "tensor" in repr(x)
        x.retain_grad()
        with torch.no_grad():
            limit = x.cumsum(0).abs().max()
        return torch.where(x > 0, x, x.detach() * 0) + limit

    result, relevance, (received,) = propagate(function, rand(3, 4))
    assert torch.allclose(received, relevance.where(rand(3, 4) > 0, 0))
    assert result.shape == (3, 4)


def test_rows_can_be_iterated_over():
    _, relevance, (received,) = propagate(lambda x: torch.stack([row.tanh() for row in x]), rand(3, 4))
    assert torch.equal(received, relevance)


def test_only_the_roots_collect_relevance():
    root, other = nn.Embedding(6, 4).double(), nn.Embedding(6, 4).double()
    ids = torch.tensor([[1, 2, 2]])
    with RelevanceMode(root.parameters(), 1, torch.float64) as mode:
        result = root(ids) + other(ids)
        tied = functional.linear(result, root.weight)
    assert [seed.shape for seed in mode.seeds] == [(1, 3, 4)]
    (received,) = torch.autograd.grad(result, mode.seeds, torch.ones(1, 3, 4).double(), retain_graph=True)
    assert torch.equal(received, torch.ones(1, 3, 4).double())
    assert mode.marks.carries(tied)
    assert root.weight.grad is None


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (torch.sin, "torch.sin"),
        (lambda x, y: torch.atan2(x, y), "torch.atan2"),
        (lambda x, y: torch.maximum(x, y), "torch.maximum"),
        (lambda x, y: x**y, "torch.Tensor.__pow__"),
        (lambda x, y: x / y, "torch.Tensor.div"),
        (lambda x: torch.div(x, 2, rounding_mode="floor"), "torch.div"),
        (lambda x: x.sum(0), "torch.Tensor.sum"),
        (lambda x: x.mean(), "torch.Tensor.mean"),
        (lambda x: x.var(1), "torch.Tensor.var"),
        (lambda x: torch.einsum("ij->i", x), "einsum"),
        (lambda x, y: torch.einsum("ij,ij,ij->i", x, y, x), "einsum"),
        (lambda x, y: torch.einsum("ij,kj", x, y), "einsum"),
        (lambda x: functional.linear(x.mean(-1, keepdim=True), torch.ones(2, 1).double()), "linear"),
        (lambda x: x.mean(-1, keepdim=True).softmax(0), "softmax"),
        (lambda x: torch.cat([x, x.amax(-1, keepdim=True)], -1), "torch.cat"),
        (lambda x: functional.linear(x, WEIGHT) @ x.var(-1, keepdim=True).expand(3, 5).T, "matmul"),
        (lambda x: x.index_add(0, torch.tensor([0]), x[:1]), "index_add"),
        (lambda x: x.clone().uniform_(), "uniform_"),
        (lambda x: functional.embedding(torch.tensor([0, 1]), x), "embedding"),
        (lambda x: vars(torch)["_foreach_add_"]([x.clone()], 1.0), "foreach"),
    ],
)
def test_an_operation_without_a_rule_is_an_error_that_names_it(function, name):
    operands = [rand(3, 4), rand(3, 4, seed=1)][: function.__code__.co_argcount if hasattr(function, "__code__") else 1]
    assert_uncovered(function, *operands, name=name)


@pytest.mark.filterwarnings("ignore:.*jit.*")
def test_functions_that_torch_does_not_show_are_an_error():
    scripted = torch.jit.script(_cubed)
    assert_uncovered(lambda x: Tanh.apply(x) + 1, rand(3), name="TanhBackward")
    assert_uncovered(lambda x: scripted(x) * 2, rand(3), name="Backward")


def _cubed(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * x * x


def test_single_precision_is_there_for_devices_without_double():
    result, mode = under_mode(lambda x: functional.linear(x.double(), WEIGHT).tanh(), rand(3, 4), dtype=torch.float32)
    assert result.dtype == torch.float32
    (received,) = torch.autograd.grad(result, mode.seeds, torch.ones(3, 5))
    assert received.dtype == torch.float32
    assert received.sum().item() == pytest.approx(15, rel=1e-4)
