"""Triton's kernels on the CPU, by its interpreter: `TRITON_INTERPRET=1 pytest tests/flow/test_kernels.py`."""

import os
from importlib.util import find_spec

import pytest
import torch

from gaflow.flow.barrier import gpu
from gaflow.flow.barrier.linear.inverse import invert
from gaflow.flow.barrier.linear.odd_even_blocks import solve_odd_even_blocks
from gaflow.flow.barrier.linear.whole_matrix import solve_dense
from gaflow.flow.barrier.solve import Barrier, LogBarrier
from gaflow.flow.network import LayeredNetwork
from tests.flow.test_linear import flat, laplacian, system_of, weights

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") != "1",
        reason="needs Triton and TRITON_INTERPRET=1",
    ),
]


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are used on the CPU."""
    monkeypatch.setattr(gpu, "available", lambda variables: True)
    monkeypatch.setattr(gpu, "has_kernels", lambda numbers: True)


@pytest.mark.parametrize("unroll", [True, False])
@pytest.mark.parametrize("size", [1, 5, 16, 40, 70])
def test_inverses_are_those_of_the_plain_passes(size, unroll, kernels, monkeypatch):
    for tile, settings in gpu.INVERT.items():
        monkeypatch.setitem(gpu.INVERT, tile, {**settings, "UNROLL": unroll})
    matrix = laplacian(2, size, spread=4)
    torch.testing.assert_close(invert(matrix.clone()), torch.linalg.inv(matrix), rtol=1e-10, atol=0)


@pytest.mark.parametrize(("layers", "t"), [(1, 1), (1, 4), (2, 3), (3, 4), (4, 3), (5, 17), (2, 70), (12, 3)])
def test_systems_are_solved_as_by_the_plain_passes(layers, t, kernels):
    right = torch.randn(2, layers + 1, t, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    system = system_of(*weights(2, layers, t, spread=2), flat(right, torch.ones(2).double()))
    torch.testing.assert_close(solve_odd_even_blocks(system), solve_dense(system), rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
@pytest.mark.parametrize("epsilon", [1e-3, 1e-15])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 2, 7), (1, 3, 5)])
def test_the_one_kernel_takes_the_steps_of_the_plain_passes(shape, epsilon, barrier: Barrier, kernels, monkeypatch):
    information = torch.rand(*shape, shape[-1], dtype=torch.float64, generator=torch.Generator().manual_seed(0)) ** 3
    information[information < 0.05] = 0
    information[:, :, 0, 0] = 0.5
    network = LayeredNetwork.build(information, "adjacent" if barrier == "capacity" else None)
    fast = LogBarrier(epsilon=epsilon, barrier=barrier, loop="one_kernel")(network)
    monkeypatch.undo()
    plain = LogBarrier(epsilon=epsilon, barrier=barrier)(network)
    assert fast.converged.all()
    assert fast.certificate.iterations.tolist() == plain.certificate.iterations.tolist()
    difference = (fast.edges - plain.edges) / plain.value[:, None, None, None]
    assert float(difference.abs().max()) < 1e-13
