"""The kernels against the plain passes that they replace; they need a GPU and Triton."""

from importlib.util import find_spec

import pytest
import torch

from gaflow import solve
from gaflow.flow.barrier import gpu

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        find_spec("triton") is None or not torch.cuda.is_available(), reason="needs a CUDA device and Triton"
    ),
]


@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
@pytest.mark.parametrize("epsilon", [1e-3, 1e-6, 1e-15])
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 3, 5), (3, 4, 21), (2, 12, 130), (1, 2, 300)])
def test_kernels_take_the_steps_of_the_plain_passes(shape, epsilon, barrier, monkeypatch):
    torch.manual_seed(0)
    b, layers, t = shape
    information = torch.rand(b, layers, t, t, dtype=torch.float64, device="cuda") ** 3
    information[information < 0.05] = 0
    information[:, :, 0, 0] = 0.5  # never without a path
    fast = solve(information, epsilon=epsilon, barrier=barrier)
    monkeypatch.setattr(gpu, "available", lambda variables: False)
    plain = solve(information, epsilon=epsilon, barrier=barrier)
    host = solve(information.cpu(), epsilon=epsilon, barrier=barrier)
    assert fast.certificate.iterations.tolist() == plain.certificate.iterations.tolist()
    scale = plain.value[:, None, None, None]
    assert float(((fast.edges - plain.edges) / scale).abs().max()) < 1e-12
    assert float(((fast.edges.cpu() - host.edges) / scale.cpu()).abs().max()) < 1e-8


def test_the_same_input_gives_the_same_bits():
    torch.manual_seed(1)
    information = torch.rand(4, 6, 100, 100, device="cuda")
    first, second = solve(information), solve(information)
    assert torch.equal(first.edges, second.edges)
