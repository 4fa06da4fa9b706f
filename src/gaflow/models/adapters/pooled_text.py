"""Models that read a text at several resolutions: Funnel pools, CANINE has characters and molecules, Perceiver latents.

The convention this file owns: what happens between two layers of attention belongs to the keys of the upper one. A key
that pools nodes of the layer below is their average; one that was copied upwards comes from its origin.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gaflow.errors import unsupported
from gaflow.models.adapters.observed import AttentionLayer, ObservedPass, averages, place

__all__ = ["canine", "funnel", "perceiver", "placed"]


def placed(weights: Tensor, rows: list[int], columns: Tensor) -> AttentionLayer:
    """A layer of one part (b, h, q, k)."""
    at = torch.tensor(rows, device=weights.device)
    columns = columns.to(weights.device)
    return AttentionLayer((weights,), lambda a: place(a, at, columns))


def funnel(seen: ObservedPass) -> list[AttentionLayer]:
    """Blocks of layers, each with half the nodes of the one before; for heads that read tokens, all of them on top."""
    config, t = seen.config, seen.mask.shape[1]
    weights = iter(seen.outputs.attentions)
    layers: list[AttentionLayer] = []
    nodes = list(range(t))  # places of the nodes of this block
    for block, size in enumerate(config.block_sizes):
        pools = block > 0 and len(nodes) > (2 if config.separate_cls else 1)
        for k in range(size * config.block_repeats[block]):
            below = [[p] for p in nodes]
            if pools and k == 0:
                pairs = _pairs(nodes, config)
                nodes = [pair[0] for pair in pairs]
                below = below if config.pool_q_only else pairs
            layers.append(placed(next(weights), nodes, averages(below, t)))
    for k, a in enumerate(weights):
        below = [[p] for p in range(t)] if k else _unpooled(nodes, t, config)
        layers.append(placed(a, list(range(t)), averages(below, t)))
    return layers


def _pairs(nodes: list[int], config: Any) -> list[list[int]]:
    """Places that are pooled together; [CLS] stays by itself if it is kept separate."""
    if not config.separate_cls:
        return [nodes[k : k + 2] for k in range(0, len(nodes), 2)]
    rest = nodes[1:-1] if config.truncate_seq else nodes[1:]
    return [nodes[:1], *(rest[k : k + 2] for k in range(0, len(rest), 2))]


def _unpooled(nodes: list[int], t: int, config: Any) -> list[list[int]]:
    """Where each token of the decoder was copied from."""
    stride = 2 ** (len(config.block_sizes) - 1)
    if not config.separate_cls:
        return [[nodes[p // stride]] for p in range(t)]
    copies = [p for p in nodes[1:] for _ in range(stride)]
    return [[nodes[0]], *([copies[k]] if k < len(copies) else [] for k in range(t - 1))]


def canine(seen: ObservedPass) -> list[AttentionLayer]:
    """Windows of characters; molecules of several; then, for heads that read characters, all characters again."""
    model = getattr(seen.model, "canine", seen.model)
    t, rate = seen.mask.shape[1], seen.config.downsampling_rate
    found = [
        [s.weights for s in seen.softmaxes if s.inside(part)]
        for part in (model.initial_char_encoder, model.encoder, model.final_char_encoder)
    ]
    layers = [AttentionLayer(tuple(found[0]), lambda *chunks: _diagonal(chunks))]
    count = found[1][0].shape[-1]
    molecules = [[0], *([*range(k * rate, (k + 1) * rate)] for k in range(count - 1))]
    nodes = [0, *(k * rate + 1 for k in range(count - 1))]  # the first characters, but for [CLS], which has place 0
    for k, a in enumerate(found[1]):
        layers.append(placed(a, nodes, averages([[p] for p in nodes] if k else molecules, t)))
    if not _pooled(seen.outputs):
        copies = [[nodes[min(p // rate + 1, count - 1)]] for p in range(t)]
        layers += [placed(a, list(range(t)), averages(copies, t)) for a in found[2]]
    return layers


def _diagonal(chunks: tuple[Tensor, ...]) -> Tensor:
    """Chunks (b, h, n, n) along the diagonal of one matrix."""
    t = sum(a.shape[-1] for a in chunks)
    laid = chunks[0].new_zeros(*chunks[0].shape[:2], t, t)
    start = 0
    for a in chunks:
        end = start + a.shape[-1]
        laid[:, :, start:end, start:end] = a
        start = end
    return laid


def _pooled(outputs: Any) -> bool:
    """Whether one node speaks for the whole text."""
    logits = getattr(outputs, "logits", None)
    return isinstance(logits, Tensor) and logits.dim() == 2


def perceiver(seen: ObservedPass) -> list[AttentionLayer]:
    """Latents read the input, then each other, and the output reads them; latents sit at the first places."""
    found = [s.weights for s in seen.softmaxes]
    t, real = found[0].shape[-1], int(seen.mask.sum(1).min()) if seen.mask.shape[1] else found[0].shape[-1]
    most = max(a.shape[-2] for a in found)
    if most > real:
        raise unsupported(seen.model, f"its {most} latents are more than the {real} places of the input")
    identity = torch.eye(t)
    return [
        placed(a, list(range(a.shape[-2])), identity if k == 0 else identity[: a.shape[-1]])
        for k, a in enumerate(found)
    ]
