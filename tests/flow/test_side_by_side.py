import pytest
import torch

import gaflow
from gaflow.flow.side_by_side import side_by_side


def test_two_flows_side_by_side_are_the_flow_of_both_networks_in_one():
    generator = torch.Generator().manual_seed(0)
    first = torch.rand(1, 3, 4, 4, generator=generator, dtype=torch.float64)
    second = torch.rand(1, 3, 2, 2, generator=generator, dtype=torch.float64)
    joined = side_by_side([gaflow.solve(first), gaflow.solve(second)], [0.5, 2.0])
    both = torch.zeros(1, 3, 6, 6, dtype=torch.float64)
    both[..., :4, :4] = first / 2
    both[..., 4:, 4:] = second * 2
    joint = gaflow.solve(both)
    assert torch.equal(joined.capacity != 0, both != 0)
    assert joined.value.item() == pytest.approx(joint.value.item(), rel=1e-5)
    assert torch.allclose(joined.through().sum(-1), joined.value[:, None].expand(1, 4))
    assert joined.certificate[0].cut == pytest.approx(joined.value.item(), rel=1e-5)
    joined.check_possible()
