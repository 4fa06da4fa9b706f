"""The kernels against the plain passes that they replace; they need a GPU and Triton."""

from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

from gaflow import solve
from gaflow.flow.barrier import gpu
from gaflow.flow.barrier.linear.inverse import invert
from gaflow.flow.barrier.linear.odd_even_blocks import solve_odd_even_blocks
from gaflow.flow.barrier.linear.whole_matrix import solve_dense
from gaflow.flow.barrier.solve import Barrier, LogBarrier
from gaflow.flow.barrier.without_looking import Loop
from gaflow.flow.network import LayeredNetwork
from gaflow.flow.result import Flow
from tests.flow.test_linear import flat, laplacian, system_of, weights

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        find_spec("triton") is None or not torch.cuda.is_available(), reason="needs a CUDA device and Triton"
    ),
]


def sparse_information(b: int, layers: int, t: int, seed: int = 0) -> Tensor:
    """Capacities of which many are 0, never without a path."""
    generator = torch.Generator("cuda").manual_seed(seed)
    information = torch.rand(b, layers, t, t, dtype=torch.float64, device="cuda", generator=generator) ** 3
    information[information < 0.05] = 0
    information[:, :, 0, 0] = 0.5
    return information


def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, torch does what kernels would do."""
    monkeypatch.setattr(gpu, "available", lambda variables: False)
    monkeypatch.setattr(gpu, "has_kernels", lambda numbers: False)


def solve_with(loop: Loop, information: Tensor, barrier: Barrier = "uniform", epsilon: float = 1e-6) -> Flow:
    """A flow by one of the loops."""
    network = LayeredNetwork.build(information, "adjacent" if barrier == "capacity" else None)
    return LogBarrier(epsilon=epsilon, barrier=barrier, loop=loop)(network)


def assert_same_flow(first: Flow, second: Flow, tolerance: float = 1e-12) -> None:
    """Edges agree, in units of the flow."""
    assert first.converged.all()
    scale = second.value[:, None, None, None]
    assert float(((first.edges - second.edges) / scale).abs().max()) < tolerance


@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
@pytest.mark.parametrize("epsilon", [1e-3, 1e-6, 1e-15])
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 3, 5), (3, 4, 21), (2, 12, 130), (1, 2, 300)])
def test_kernels_take_the_steps_of_the_plain_passes(shape, epsilon, barrier, monkeypatch):
    information = sparse_information(*shape)
    fast = solve(information, epsilon=epsilon, barrier=barrier)
    without_kernels(monkeypatch)
    plain = solve(information, epsilon=epsilon, barrier=barrier)
    host = solve(information.cpu(), epsilon=epsilon, barrier=barrier)
    assert fast.certificate.iterations.tolist() == plain.certificate.iterations.tolist()
    assert_same_flow(fast, plain)
    scale = plain.value[:, None, None, None].cpu()
    assert float(((fast.edges.cpu() - host.edges) / scale).abs().max()) < 1e-8


@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
@pytest.mark.parametrize("epsilon", [1e-3, 1e-6, 1e-15])
@pytest.mark.parametrize(
    ("loop", "shape"),
    [
        ("one_kernel", (1, 1, 1)),
        ("one_kernel", (200, 2, 3)),
        ("one_kernel", (3, 5, 16)),
        ("one_kernel", (2, 12, 30)),
        ("graph", (1, 1, 1)),
        ("graph", (5, 4, 16)),
        ("graph", (2, 12, 100)),
        ("graph", (1, 3, 300)),
    ],
)
def test_steps_without_a_look_are_those_with_one(loop, shape, epsilon, barrier, monkeypatch):
    information = sparse_information(*shape)
    blind = solve_with(loop, information, barrier, epsilon)
    without_kernels(monkeypatch)
    plain = solve_with("looking", information, barrier, epsilon)
    assert blind.certificate.iterations.tolist() == plain.certificate.iterations.tolist()
    assert_same_flow(blind, plain)


def test_a_recorded_step_is_replayed_for_shorter_and_longer_texts():
    for t in (41, 48, 35, 48, 41):  # of one graph; what a longer text left behind must not count
        for seed in (0, 1):
            information = sparse_information(2, 3, t, seed)
            assert_same_flow(solve_with("graph", information), solve_with("looking", information))


def test_an_item_does_not_depend_on_how_long_others_of_its_batch_take():
    information = sparse_information(1, 4, 50)
    slow = torch.rand(1, 4, 50, 50, dtype=torch.float64, device="cuda") ** 40
    alone = solve_with("graph", information)
    both = solve_with("graph", torch.cat([information, slow]))
    steps = both.certificate.iterations.tolist()
    assert steps[0] == alone.certificate.iterations.item()
    assert steps[0] < steps[1]
    assert float((both.edges[0] - alone.edges[0]).abs().max() / alone.value) < 1e-12


@pytest.mark.parametrize("loop", ["one_kernel", "graph"])
def test_items_that_take_too_many_steps_are_solved_without_subtraction(loop):
    network = LayeredNetwork.build(sparse_information(2, 3, 20))
    flow = LogBarrier(steps=4, loop=loop)(network)
    assert flow.converged.all()
    assert (flow.certificate.iterations > 4).all()


@pytest.mark.parametrize("size", [1, 5, 16, 30, 64, 65, 200, 512])
def test_inverses_are_those_of_the_host(size):
    matrix = laplacian(3, size, spread=4)
    inverse = invert(matrix.cuda())
    torch.testing.assert_close(inverse.cpu(), torch.linalg.inv(matrix), rtol=1e-9, atol=0)


def test_a_matrix_without_an_inverse_is_nan():
    matrix = laplacian(2, 100, spread=1).cuda()
    matrix[1, 70, 70] = -1
    inverse = invert(matrix)
    assert torch.isfinite(inverse[0]).all()
    assert inverse[1].isnan().any()


@pytest.mark.parametrize("t", [1, 5, 33, 130])
@pytest.mark.parametrize("layers", range(1, 8))
def test_the_linear_systems_are_solved_as_on_the_host(layers, t):
    right = torch.randn(2, layers + 1, t, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    rights = flat(right, torch.ones(2).double())
    weight, source, target, returning = weights(2, layers, t, spread=2)
    expected = solve_dense(system_of(weight, source, target, returning, rights))
    on_gpu = system_of(weight.cuda(), source.cuda(), target.cuda(), returning.cuda(), rights.cuda())
    torch.testing.assert_close(solve_odd_even_blocks(on_gpu).cpu(), expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("t", [20, 50, 100])
def test_the_same_input_gives_the_same_bits(t):
    torch.manual_seed(1)
    information = torch.rand(4, 6, t, t, device="cuda")
    first, second = solve(information), solve(information)
    assert torch.equal(first.edges, second.edges)
