"""Layered Laplacian systems against dense and exact rational arithmetic."""

import sys
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from gaflow.flow.barrier.linear import block_tridiagonal as blocktri
from gaflow.flow.barrier.linear import dispatch as laplacian
from gaflow.flow.barrier.linear import whole_matrix as small
from gaflow.flow.barrier.linear.dispatch import Care
from gaflow.flow.barrier.linear.system import System
from tests.support.ways import WAYS, force

Weights = tuple[Tensor, Tensor, Tensor, Tensor]


def weights(b: int, layers: int, t: int, spread: float, seed: int = 0) -> Weights:
    """Positive edge weights over `spread` orders of magnitude."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return 10 ** (spread * (torch.rand(*shape, generator=generator, dtype=torch.float64) - 0.5))

    return draw(b, layers, t, t), draw(b, t), draw(b, t), draw(b)


def solve_laplacian(*given: Tensor, care: Care = "exact", top: int | None = None) -> Tensor:
    return laplacian.solve_laplacian(System.of(*given, top=top), care)


def matrix_of(item: int, given: Weights) -> list[list[Fraction]]:
    """The matrix itself, exactly, node by node: layers from the input up, then the super-source; target left out."""
    weight, source, target, returning = given
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


@pytest.fixture(params=[*WAYS, "careful"])
def path(request, monkeypatch):
    """Every way the system can be solved; gives the value of `care`."""
    force(request.param, monkeypatch)
    return "careful" if request.param == "careful" else "exact"


@pytest.mark.parametrize(("layers", "t"), [(1, 1), (1, 4), (2, 3), (5, 1), (3, 4), (4, 3)])
def test_every_path_solves_the_system_exactly(layers, t, path):
    given = weights(2, layers, t, spread=2)
    right = torch.randn(2, layers + 1, t, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    top = torch.tensor([0.3, -2.0], dtype=torch.float64)
    rights = flat(right, top)
    answer = solve_laplacian(*given, rights, care=path)
    for item in range(2):
        expected = exact_solution(matrix_of(item, given), [Fraction(x.item()) for x in rights[item]])
        torch.testing.assert_close(answer[item], expected, rtol=1e-12, atol=1e-14)


def test_the_careful_path_keeps_every_digit_over_forty_orders_of_magnitude():
    given = weights(1, 3, 4, spread=40, seed=3)
    right = torch.rand(1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    top = torch.tensor([0.5], dtype=torch.float64)
    rights = flat(right, top)
    answer = solve_laplacian(*given, rights, care="careful")
    expected = exact_solution(matrix_of(0, given), [Fraction(x.item()) for x in rights[0]])
    torch.testing.assert_close(answer[0], expected, rtol=1e-13, atol=0)


def test_dead_nodes_have_potential_zero(path):
    weight, source, target, returning = weights(1, 2, 3, spread=1)
    weight[:, 1, 1], weight[:, 0, :, 1], source[:, 1], target[:, 1] = 0, 0, 0, 0
    right = flat(torch.zeros(1, 3, 3, dtype=torch.float64), torch.ones(1).double())
    node = solve_laplacian(weight, source, target, returning, right, care=path)[:, :-1].view(1, 3, 3)
    assert (node[0, 0, 1], node[0, 2, 1]) == (0, 0)
    assert (node[0, :, 0] > 0).all()


def test_a_singular_item_comes_back_as_nan_and_leaves_the_others_alone(monkeypatch):
    given = weights(2, 2, 3, spread=1)
    for each in given:
        each[1] = 0
    given[0][1, 0] = -1.0  # no Laplacian at all
    right = torch.ones(2, 10, dtype=torch.float64)
    for way in WAYS:
        force(way, monkeypatch)
        node = solve_laplacian(*given, right)
        assert torch.isfinite(node[0]).all()
        assert torch.isnan(node[1]).any()


def test_known_dead_output_nodes_and_half_a_product_change_nothing(monkeypatch):
    force("blocks", monkeypatch)
    weight, source, target, returning = weights(2, 3, 6, spread=1)
    weight[:, -1, 2:], source[:, 2:] = 0, 0
    right = torch.randn(2, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    right[:, -1, 2:] = 0
    given = (weight, source, target, returning, flat(right, torch.ones(2).double()))
    expected = solve_laplacian(*given)
    for long in (4096, 3, 0):  # 3: of the highest layer's nodes fewer are alive than a long text has
        monkeypatch.setattr(blocktri, "LONG", long)
        torch.testing.assert_close(solve_laplacian(*given, top=2), expected, rtol=1e-12, atol=1e-14)
    monkeypatch.setattr(blocktri, "LARGE", 1)
    torch.testing.assert_close(solve_laplacian(*given), expected, rtol=1e-12, atol=1e-14)
    both = (weight[:, -1:], source, target, returning, flat(right[:, -2:], torch.ones(2).double()))
    torch.testing.assert_close(solve_laplacian(*both, top=2), solve_laplacian(*both), rtol=1e-12, atol=1e-14)


@pytest.fixture
def everything_rough(monkeypatch):
    force("blocks", monkeypatch)
    monkeypatch.setattr(laplacian, "ROUGH", range(1000))


def left_over(given: Weights, right: Tensor, answer: Tensor) -> float:
    """The largest entry of the right-hand side less the Laplacian of the answer, relative to the largest of it."""
    weight, source, target, returning = given
    node, above = answer[:, :-1].unflatten(1, (-1, source.shape[-1])), answer[:, -1]
    down = weight * (node[:, 1:, :, None] - node[:, :-1, None, :])
    feed = source * (above[:, None] - node[:, -1])
    found = torch.cat([(target * node[:, 0])[:, None], down.sum(-1)], 1) - torch.cat([down.sum(-2), feed[:, None]], 1)
    rest = right - flat(found, feed.sum(-1) + returning * above)
    return float((rest.abs().amax(-1) / right.abs().amax(-1)).max())


@pytest.mark.parametrize("spread", [0, 2, 6, 10])
@pytest.mark.parametrize("seed", range(3))
def test_the_rough_path_leaves_little_over(spread, seed, everything_rough):
    given = weights(2, 4, 30, spread, seed)
    right = torch.randn(2, 151, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    answer = solve_laplacian(*given, right, care="rough")
    assert 1e-13 < left_over(given, right, answer) < 2 * blocktri.ENOUGH


def test_corrections_make_the_rough_path_as_good_as_wanted(everything_rough, monkeypatch):
    monkeypatch.setattr(blocktri, "ENOUGH", 1e-12)
    given = weights(1, 3, 40, spread=4)
    right = torch.ones(1, 161, dtype=torch.float64)
    exact, rough = (solve_laplacian(*given, right, care=care) for care in ("exact", "rough"))
    assert not torch.equal(exact, rough)  # no fallback
    torch.testing.assert_close(rough, exact, rtol=1e-11, atol=0)


def test_items_where_float32_overflows_are_solved_in_float64(everything_rough):
    given = weights(2, 3, 40, spread=2)
    for each in given:
        each[1] *= 1e60
    right = torch.ones(2, 161, dtype=torch.float64)
    exact, rough = (solve_laplacian(*given, right, care=care) for care in ("exact", "rough"))
    torch.testing.assert_close(rough[1], exact[1], rtol=1e-12, atol=0)
    torch.testing.assert_close(rough[0], exact[0], rtol=1e-3, atol=0)


def test_without_scipy_short_texts_are_solved_all_the_same(monkeypatch):
    given, right = weights(2, 3, 4, spread=2), torch.ones(2, 17, dtype=torch.float64)
    banded = solve_laplacian(*given, right)
    monkeypatch.setitem(sys.modules, "scipy.linalg", None)
    small.lapack.cache_clear()
    try:
        assert small.lapack() is None
        dense = solve_laplacian(*given, right)
    finally:
        small.lapack.cache_clear()
    assert not torch.equal(banded, dense)  # another way
    torch.testing.assert_close(banded, dense, rtol=1e-12, atol=0)
