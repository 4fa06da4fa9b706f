"""Flows of several networks as one flow of the network that they make side by side, without edges between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import torch
from torch import Tensor

from gaflow.flow.result import BatchCertificate, Certificate, Flow


def side_by_side(flows: Sequence[Flow], weights: Sequence[float]) -> Flow:
    """One flow of a batch of one, from flows of a batch of one with the same number of layers.

    The capacities and flows of each are multiplied by its weight. A flow solves the multiple of its problem if it
    solves the problem itself, with the same multiple of `mu`.
    """
    certificates = [flow.certificate[0] for flow in flows]
    certificate = Certificate.worst(certificates, weights)
    tensors = {}
    for field in fields(BatchCertificate):
        dtype = getattr(flows[0].certificate, field.name).dtype
        tensors[field.name] = torch.tensor([getattr(certificate, field.name)], dtype=dtype)
    scaled = list(map(_scaled, flows, weights))
    capacities = [flow.capacity for flow in scaled if flow.capacity is not None]
    return Flow(
        edges=_block_diagonal([flow.edges for flow in scaled]),
        source=torch.cat([flow.source for flow in scaled], 1),
        target=torch.cat([flow.target for flow in scaled], 1),
        value=torch.stack([flow.value for flow in scaled]).sum(0),
        mu=torch.stack([flow.mu for flow in scaled]).amax(0),
        converged=torch.stack([flow.converged for flow in flows]).all(0),
        certificate=BatchCertificate(**tensors),
        capacity=_block_diagonal(capacities) if len(capacities) == len(flows) else None,
        potentials=None,  # each network has its own source, and one dual solution for both would need a common one
    )


def _scaled(flow: Flow, weight: float) -> Flow:
    """The multiple of a flow, which solves the multiple of its problem."""
    return replace(
        flow,
        edges=flow.edges * weight,
        source=flow.source * weight,
        target=flow.target * weight,
        value=flow.value * weight,
        mu=flow.mu * weight,
        capacity=None if flow.capacity is None else flow.capacity * weight,
    )


def _block_diagonal(blocks: Sequence[Tensor]) -> Tensor:
    """Tensors (1, l, t, t) of any t along the diagonal of one."""
    layers = []
    for matrices in zip(*(block[0] for block in blocks), strict=True):
        layers.append(torch.block_diag(*matrices))
    return torch.stack(layers)[None]
