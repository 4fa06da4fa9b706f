"""Random networks, as tensors of capacities."""

import torch
from torch import Tensor


def random_information(seed: int, *shape: int, density: float = 1.0) -> Tensor:
    """Capacities from 0 to 1, a share `density` of which are not 0."""
    generator = torch.Generator().manual_seed(seed)
    capacity = torch.rand(shape, generator=generator, dtype=torch.float64)
    return capacity * (torch.rand(shape, generator=generator) < density)


def random_attention(seed: int, layers: int, t: int) -> Tensor:
    """Capacities of which those of a node sum to 1, as the attention of one head."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(layers, t, t, generator=generator, dtype=torch.float64).mul(2).softmax(-1)
