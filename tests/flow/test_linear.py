"""Layered Laplacian systems against dense and exact rational arithmetic."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from gaflow.flow.barrier import gpu
from gaflow.flow.barrier.linear.block_tridiagonal import (
    PANEL_MIN_NODES,
    PANEL_NODES,
    RESIDUAL_SHARE,
    SYMMETRIC_MIN_NODES,
    solve_blocks,
    solve_mixed_precision,
)
from gaflow.flow.barrier.linear.dispatch import choose_way, solve_laplacian
from gaflow.flow.barrier.linear.inverse import LEAF_NODES, invert
from gaflow.flow.barrier.linear.odd_even_blocks import solve_odd_even_blocks
from gaflow.flow.barrier.linear.subtraction_free import solve_subtraction_free
from gaflow.flow.barrier.linear.system import System
from gaflow.flow.barrier.linear.whole_matrix import solve_dense
from gaflow.flow.barrier.multifloat import total
from gaflow.flow.barrier.solve import solve
from tests.support.ways import WAYS

Weights = tuple[Tensor, Tensor, Tensor, Tensor]


def weights(b: int, layers: int, t: int, spread: float, seed: int = 0) -> Weights:
    """Positive edge weights over `spread` orders of magnitude."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return 10 ** (spread * (torch.rand(*shape, generator=generator, dtype=torch.float64) - 0.5))

    return draw(b, layers, t, t), draw(b, t), draw(b, t), draw(b)


def system_of(
    weight: Tensor, source: Tensor, target: Tensor, returning: Tensor, right: Tensor, top: int | None = None
) -> System:
    """A system of these weights, which are summed up here."""
    return System(
        weight=weight,
        source=source,
        target=target,
        returning=returning,
        right=right,
        up=torch.cat([weight.sum(-2).flatten(1), source, returning[:, None]], 1),
        down=torch.cat([target, weight.sum(-1).flatten(1), source.sum(-1, keepdim=True)], 1),
        top=source.shape[-1] if top is None else top,
    )


def matrix_of(item: int, problem: Weights) -> list[list[Fraction]]:
    """The matrix itself, exactly, node by node: layers from the input up, then the super-source; target left out."""
    weight, source, target, returning = problem
    _, layers, t, _ = weight.shape
    n = (layers + 1) * t + 1
    matrix = [[Fraction(0)] * n for _ in range(n)]

    def connect(i: int, j: int | None, w: Tensor) -> None:
        value = Fraction(w.item())
        matrix[i][i] += value
        if j is not None:
            matrix[j][j] += value
            matrix[i][j] -= value
            matrix[j][i] -= value

    for k in range(layers):
        for i in range(t):
            for j in range(t):
                connect((k + 1) * t + i, k * t + j, weight[item, k, i, j])
    for i in range(t):
        connect(layers * t + i, n - 1, source[item, i])
        connect(i, None, target[item, i])
    connect(n - 1, None, returning[item])
    return matrix


def exact_solution(matrix: list[list[Fraction]], right: list[Fraction]) -> Tensor:
    """Gaussian elimination in rational numbers."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    n = len(rows)
    for i in range(n):
        for j in range(i + 1, n):
            factor = rows[j][i] / rows[i][i]
            rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i], strict=True)]
    answer = [Fraction(0)] * n
    for i in reversed(range(n)):
        rest = sum((rows[i][j] * answer[j] for j in range(i + 1, n)), Fraction(0))
        answer[i] = (rows[i][n] - rest) / rows[i][i]
    return torch.tensor([float(x) for x in answer], dtype=torch.float64)


def flat(layers: Tensor, top: Tensor) -> Tensor:
    """Numbers of all nodes: those of the layers (b, l+1, t), then the super-source's (b,)."""
    return torch.cat([layers.flatten(1), top[:, None]], 1)


every_way = pytest.mark.parametrize("way", [*WAYS, "subtraction_free"])


def solve_system(system: System, way: Any) -> Tensor:
    """Potentials (b, n) by any way."""
    if way == "subtraction_free":
        return total(solve_subtraction_free(system, 3))
    return solve_laplacian(system, way)


@pytest.mark.parametrize(("layers", "t"), [(1, 1), (1, 4), (2, 3), (5, 1), (3, 4), (4, 3)])
@every_way
def test_every_way_solves_the_system_exactly(layers, t, way):
    problem = weights(2, layers, t, spread=2)
    right = torch.randn(2, layers + 1, t, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    top = torch.tensor([0.3, -2.0], dtype=torch.float64)
    rights = flat(right, top)
    answer = solve_system(system_of(*problem, rights), way)
    for item in range(2):
        expected = exact_solution(matrix_of(item, problem), [Fraction(x.item()) for x in rights[item]])
        torch.testing.assert_close(answer[item], expected, rtol=1e-12, atol=1e-14)


def test_the_subtraction_free_way_keeps_every_digit_over_forty_orders_of_magnitude():
    problem = weights(1, 3, 4, spread=40, seed=3)
    right = torch.rand(1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    top = torch.tensor([0.5], dtype=torch.float64)
    rights = flat(right, top)
    answer = solve_system(system_of(*problem, rights), "subtraction_free")
    expected = exact_solution(matrix_of(0, problem), [Fraction(x.item()) for x in rights[0]])
    torch.testing.assert_close(answer[0], expected, rtol=1e-13, atol=0)


def test_the_subtraction_free_way_keeps_small_differences_of_large_potentials():
    weight = torch.full((1, 2, 1, 1), 1e40, dtype=torch.float64)
    one = torch.ones(1, 1, dtype=torch.float64)
    rights = torch.tensor([[3.0, -5.0, 7.0, 1.0]], dtype=torch.float64)
    answer = solve_subtraction_free(system_of(weight, one, one, one[0], rights), 5)
    lower, middle, upper, _ = answer[:, 0].unbind(-1)
    to_target = total(lower.clone()).item()
    from_middle = 1e40 * total(middle - lower).item()
    from_upper = 1e40 * total(upper - middle).item()
    assert from_middle == pytest.approx(to_target - 3, rel=1e-13)
    assert from_upper == pytest.approx(from_middle + 5, rel=1e-13)


@every_way
def test_dead_nodes_have_potential_zero(way):
    weight, source, target, returning = weights(1, 2, 3, spread=1)
    weight[:, 1, 1], weight[:, 0, :, 1], source[:, 1], target[:, 1] = 0, 0, 0, 0
    right = flat(torch.zeros(1, 3, 3, dtype=torch.float64), torch.ones(1).double())
    system = system_of(weight, source, target, returning, right)
    node = solve_system(system, way)[:, :-1].view(1, 3, 3)
    assert (node[0, 0, 1], node[0, 2, 1]) == (0, 0)
    assert (node[0, :, 0] > 0).all()


@every_way
def test_dead_nodes_leave_the_others_as_they_would_be_alone(way):
    problem = weights(1, 3, 3, spread=1)
    weight, source, target, _ = problem
    target[:, 0] = 0  # token 0 of the input
    weight[:, 0, :, 0] = 0
    weight[:, 0, 1] = 0  # token 1 of the layer above
    weight[:, 1, :, 1] = 0
    weight[:, 2, 2] = 0  # token 2 of the output
    source[:, 2] = 0
    dead = [0, 3 + 1, 9 + 2]
    right = torch.rand(1, 13, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    right[:, dead] = 0
    node = solve_system(system_of(*problem, right), way)[0]
    matrix = matrix_of(0, problem)
    for k in dead:
        assert not any(matrix[k])
        matrix[k][k] = Fraction(1)
    expected = exact_solution(matrix, [Fraction(x.item()) for x in right[0]])
    torch.testing.assert_close(node, expected, rtol=1e-12, atol=0)
    assert node[dead].tolist() == [0, 0, 0]


def test_the_first_float_of_a_subtraction_free_potential_is_the_potential_rounded():
    right = torch.rand(2, 13, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    floats = solve_subtraction_free(system_of(*weights(2, 3, 3, spread=8), right), 4)
    first = floats[0].clone()
    assert (first > 0).all()
    assert torch.equal(first, total(floats))


def test_a_singular_item_comes_back_as_nan_and_leaves_the_others_alone():
    problem = weights(2, 2, 3, spread=1)
    for part in problem:
        part[1] = 0
    problem[0][1, 0] = -1.0  # no Laplacian at all
    right = torch.ones(2, 10, dtype=torch.float64)
    for way in WAYS:
        node = solve_laplacian(system_of(*problem, right), way)
        assert torch.isfinite(node[0]).all()
        assert torch.isnan(node[1]).any()


def test_known_dead_output_nodes_change_nothing():
    weight, source, target, returning = weights(2, 3, 6, spread=1)
    weight[:, -1, 2:], source[:, 2:] = 0, 0
    right = torch.randn(2, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    right[:, -1, 2:] = 0
    problem = (weight, source, target, returning, flat(right, torch.ones(2).double()))
    expected = solve_blocks(system_of(*problem))
    for tokens in (4096, 3, 0):  # 3: of the highest layer's nodes fewer are alive than a long text has
        answer = solve_blocks(system_of(*problem, top=2), low_memory_tokens=tokens)
        torch.testing.assert_close(answer, expected, rtol=1e-12, atol=1e-14)
    both = (weight[:, -1:], source, target, returning, flat(right[:, -2:], torch.ones(2).double()))
    expected = solve_blocks(system_of(*both))
    torch.testing.assert_close(solve_blocks(system_of(*both, top=2)), expected, rtol=1e-12, atol=1e-14)


def test_layers_so_large_that_half_a_product_is_mirrored_are_solved_alike():
    t = SYMMETRIC_MIN_NODES + 1  # halves of different sizes
    right = torch.randn(1, 3 * t + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    system = system_of(*weights(1, 2, t, spread=1), right)
    torch.testing.assert_close(solve_blocks(system), solve_dense(system), rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("top", [None, 2])
@pytest.mark.parametrize("t", [3, LEAF_NODES, 2 * LEAF_NODES + 7])
@pytest.mark.parametrize("layers", range(1, 8))
def test_odd_layers_and_ends_are_eliminated_whatever_the_number_of_layers(layers, t, top):
    weight, source, target, returning = weights(2, layers, t, spread=2)
    right = torch.randn(2, layers + 1, t, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    if top is not None:
        weight[:, -1, top:] = 0
        source[:, top:] = 0
        right[:, -1, top:] = 0
    system = system_of(weight, source, target, returning, flat(right, torch.ones(2).double()), top=top)
    torch.testing.assert_close(solve_odd_even_blocks(system), solve_dense(system), rtol=1e-9, atol=1e-13)


def laplacian(b: int, size: int, spread: float) -> Tensor:
    """Matrices as layers have them, which do not cancel on the diagonal."""
    generator = torch.Generator().manual_seed(size)
    weight = 10 ** (spread * (torch.rand(b, size, size, generator=generator, dtype=torch.float64) - 0.5))
    weight = weight + weight.mT
    weight.diagonal(dim1=-2, dim2=-1).zero_()
    return torch.diag_embed(2 * weight.sum(-1) + 1) - weight


@pytest.mark.parametrize("size", [1, 5, LEAF_NODES, LEAF_NODES + 1, 5 * LEAF_NODES - 3])
def test_an_inverse_is_one_and_has_no_negative_number(size):
    matrix = laplacian(3, size, spread=4)
    inverse = invert(matrix.clone())
    identity = torch.eye(size, dtype=torch.float64).expand_as(matrix)
    torch.testing.assert_close(inverse @ matrix, identity, rtol=0, atol=1e-12)
    assert (inverse >= 0).all()


@pytest.mark.parametrize("row", [3, LEAF_NODES + 3])
def test_an_item_without_an_inverse_is_nan_and_leaves_the_others_alone(row):
    matrix = laplacian(2, 2 * LEAF_NODES, spread=1)
    expected = invert(matrix[:1].clone())
    matrix[1, row, row] = -1
    inverse = invert(matrix)
    torch.testing.assert_close(inverse[:1], expected, rtol=1e-12, atol=0)
    assert inverse[1].isnan().any()


def left_over(problem: Weights, right: Tensor, answer: Tensor) -> float:
    """The largest entry of the right-hand side less the Laplacian of the answer, relative to the largest of it."""
    weight, source, target, returning = problem
    node, above = answer[:, :-1].unflatten(1, (-1, source.shape[-1])), answer[:, -1]
    down = weight * (node[:, 1:, :, None] - node[:, :-1, None, :])
    feed = source * (above[:, None] - node[:, -1])
    outflow = torch.cat([(target * node[:, 0])[:, None], down.sum(-1)], 1) - torch.cat([down.sum(-2), feed[:, None]], 1)
    rest = right - flat(outflow, feed.sum(-1) + returning * above)
    return float((rest.abs().amax(-1) / right.abs().amax(-1)).max())


@pytest.mark.parametrize("spread", [0, 2, 6, 10])
@pytest.mark.parametrize("seed", range(3))
def test_mixed_precision_leaves_little_over(spread, seed):
    problem = weights(2, 4, 30, spread, seed)
    right = torch.randn(2, 151, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    answer = solve_mixed_precision(system_of(*problem, right))
    assert 1e-13 < left_over(problem, right, answer) < 2 * RESIDUAL_SHARE


def test_corrections_make_mixed_precision_as_good_as_wanted():
    system = system_of(*weights(1, 3, 40, spread=4), torch.ones(1, 161, dtype=torch.float64))
    double = solve_blocks(system)
    mixed = solve_mixed_precision(system, residual_share=1e-12)
    assert not torch.equal(double, mixed)  # no fallback
    torch.testing.assert_close(mixed, double, rtol=1e-11, atol=0)


def test_mixed_precision_starts_with_the_solution_in_float32():
    system = system_of(*weights(1, 3, 40, spread=4), torch.ones(1, 161, dtype=torch.float64))
    first = solve_mixed_precision(system, residual_share=torch.inf)
    torch.testing.assert_close(first, solve_blocks(system), rtol=1e-3, atol=0)


def test_what_mixed_precision_leaves_over_is_a_share_of_the_right_hand_side():
    problem = weights(1, 3, 40, spread=4)
    right = torch.ones(1, 161, dtype=torch.float64)
    potentials = solve_mixed_precision(system_of(*problem, right), residual_share=1e-12)
    smaller = solve_mixed_precision(system_of(*problem, right / 2**40), residual_share=1e-12)
    assert torch.equal(smaller, potentials / 2**40)


def test_items_where_float32_overflows_are_solved_in_float64():
    problem = weights(2, 3, 40, spread=2)
    for part in problem:
        part[1] *= 1e60
    system = system_of(*problem, torch.ones(2, 161, dtype=torch.float64))
    double = solve_blocks(system)
    mixed = solve_mixed_precision(system)
    torch.testing.assert_close(mixed[1], double[1], rtol=1e-12, atol=0)
    torch.testing.assert_close(mixed[0], double[0], rtol=1e-3, atol=0)


@pytest.mark.parametrize("top", [40, 3])
def test_weights_in_float32_are_solved_by_every_way_as_the_same_numbers_in_float64(top):
    weight, source, target, returning = weights(2, 3, 40, spread=4)
    weight[:, -1, top:] = 0
    source[:, top:] = 0
    rounded = weight.float()
    problem = (rounded.double(), source, target, returning)
    right = torch.randn(2, 161, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    right[:, 120 + top : 160] = 0
    system = replace(system_of(*problem, right, top=top), weight=rounded)
    expected = solve_dense(system_of(*problem, right))
    for way in WAYS:
        torch.testing.assert_close(solve_laplacian(system, way), expected, rtol=1e-10, atol=1e-13)
    mixed = solve_mixed_precision(system, residual_share=1e-12)
    torch.testing.assert_close(mixed, expected, rtol=1e-9, atol=1e-12)
    assert 1e-13 < left_over(problem, right, solve_mixed_precision(system)) < 2 * RESIDUAL_SHARE


def test_an_item_without_factors_is_told_from_the_others_when_layers_are_factorised_by_panels():
    t = PANEL_MIN_NODES + PANEL_NODES + 6  # the last panel is smaller
    problem = weights(2, 2, t, spread=1)
    for part in problem:
        part[1] = torch.nan
    system = system_of(*problem, torch.ones(2, 3 * t + 1, dtype=torch.float64))
    potentials = solve_blocks(system)
    torch.testing.assert_close(potentials[:1], solve_dense(system.take(torch.tensor([0]))), rtol=1e-11, atol=1e-14)
    assert potentials[1].isnan().all()


def way_for(device: str, b: int, layers: int, t: int, dtype: torch.dtype = torch.float64) -> str:
    """The way that is chosen for a system of this size; there is no need to have its weights, or the device."""
    tensor = SimpleNamespace(device=torch.device(device), is_cuda=device == "cuda", dtype=dtype)
    system: Any = SimpleNamespace(shape=(b, layers, t), weight=tensor)
    return choose_way(system)


@pytest.mark.parametrize(
    ("b", "layers", "t", "way"),
    [
        (1, 1, 32, "banded"),
        (1, 1, 33, "dense"),
        (10, 1, 50, "dense"),  # 10 matrices of 100 unknowns: 1e7
        (11, 1, 50, "odd_even"),
        (40, 1, 50, "odd_even"),  # 40 of 100 unknowns: 4e7
        (41, 1, 50, "blocks"),
        (11, 2, 50, "odd_even"),  # a second layer adds 50 to what is left of the unknowns
        (12, 2, 50, "blocks"),
        (1, 12, 127, "blocks"),
        (1, 12, 128, "mixed_precision"),
        (2, 12, 4095, "mixed_precision"),
        (2, 12, 4096, "blocks"),
    ],
)
def test_on_the_cpu_the_way_depends_on_the_size(b, layers, t, way):
    assert way_for("cpu", b, layers, t) == way


def test_weights_in_float32_make_factors_in_float32_of_whatever_length(monkeypatch):
    monkeypatch.setattr(gpu, "has_kernels", lambda numbers: numbers.is_cuda)
    assert way_for("cpu", 1, 12, 4096, torch.float32) == "mixed_precision"
    assert way_for("cuda", 1, 12, 4096, torch.float32) == "blocks"


@pytest.mark.parametrize(
    ("b", "layers", "t", "way"),
    [
        (1, 1, 10, "dense"),
        (1, 1, 1077, "dense"),  # 2154 unknowns: 1e10
        (1, 1, 1078, "odd_even"),
        (1, 1, 5000, "odd_even"),  # 10000 unknowns: 1e12
        (1, 1, 5001, "blocks"),
        (1, 12, 1300, "blocks"),
        (10, 1, 50, "dense"),  # batches as on the CPU
        (11, 1, 50, "odd_even"),
        (2, 12, 128, "blocks_two_ended"),
        (2, 12, 4095, "blocks_two_ended"),
        (2, 12, 4096, "blocks"),
    ],
)
def test_on_a_gpu_without_triton_single_items_go_to_fewer_calls(b, layers, t, way, monkeypatch):
    monkeypatch.setattr(gpu, "has_kernels", lambda numbers: False)
    assert way_for("cuda", b, layers, t) == way


@pytest.mark.parametrize(
    ("b", "t", "dtype", "way"),
    [
        (1, 10, torch.float64, "odd_even_blocks"),
        (64, 4095, torch.float64, "odd_even_blocks"),
        (1, 4096, torch.float64, "blocks"),
    ],
)
def test_on_a_gpu_with_triton_all_but_long_texts_are_solved_in_few_products(b, t, dtype, way, monkeypatch):
    monkeypatch.setattr(gpu, "has_kernels", lambda numbers: numbers.is_cuda)
    assert way_for("cuda", b, 12, t, dtype) == way


def test_other_devices_know_no_bands():
    assert way_for("mps", 1, 3, 4) == "dense"
    assert way_for("mps", 2, 12, 128) == "blocks"


def test_threads_that_solve_at_once_leave_the_thread_count_alone():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    information = [torch.rand(1, 6, t, t, generator=torch.Generator().manual_seed(t)) for t in (14, 40)] * 10

    def explain(_: int) -> list[float]:
        return [solve(x).value.item() for x in information]

    try:
        expected = explain(0)
        with ThreadPoolExecutor(4) as pool:
            values = list(pool.map(explain, range(4)))
            counts = list(pool.map(lambda _: torch.get_num_threads(), range(8)))
        with ThreadPoolExecutor(1) as fresh:
            counts.append(fresh.submit(torch.get_num_threads).result())
        counts.append(torch.get_num_threads())
    finally:
        torch.set_num_threads(before)
    assert set(counts) == {2}
    for value in values:
        assert value == pytest.approx(expected, rel=1e-9)
