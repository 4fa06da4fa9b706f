"""Models that read a text at several resolutions: Funnel pools, CANINE has characters and molecules, Perceiver latents.

The convention this file owns: what happens between two layers of attention belongs to the keys of the upper one. A key
that pools nodes of the layer below is their average. A key that was copied upwards comes from its origin.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gaflow.errors import unsupported
from gaflow.inputs.transformers_types import ModelConfig
from gaflow.models.adapters.observed import AttentionLayer, ObservedPass, averages, positioned_layer


def funnel(observed: ObservedPass) -> list[AttentionLayer]:
    """Blocks of layers, each with half the nodes of the one before; heads that read tokens add a decoder on top."""
    config = observed.config
    t = observed.mask.shape[1]
    positions = torch.eye(t)
    attentions = iter(observed.outputs.attentions)
    layers = []
    nodes = list(range(t))  # positions of the nodes of this block
    for block, size in enumerate(config.block_sizes):
        pools = block > 0 and len(nodes) > (2 if config.separate_cls else 1)
        for layer in range(size * config.block_repeats[block]):
            keys = positions[nodes]
            if pools and layer == 0:
                pairs = _pooled_pairs(nodes, config)
                nodes = [pair[0] for pair in pairs]
                if not config.pool_q_only:
                    keys = averages(pairs, t)
            layers.append(positioned_layer(next(attentions), nodes, keys))
    stride = 2 ** (len(config.block_sizes) - 1)
    origins = []  # the position that each token of the decoder was copied from, if there is one
    if config.separate_cls:
        origins.append(nodes[:1])
        nodes = nodes[1:]
    for token in range(t - len(origins)):
        copied = token // stride
        origins.append(nodes[copied : copied + 1])
    keys = averages(origins, t)
    for attention in attentions:  # of the decoder
        layers.append(positioned_layer(attention, range(t), keys))
        keys = positions
    return layers


def _pooled_pairs(nodes: list[int], config: ModelConfig) -> list[list[int]]:
    """Positions that are pooled together; a separate [CLS] stays by itself."""
    pairs = []
    if config.separate_cls:
        pairs.append(nodes[:1])
        nodes = nodes[1:-1] if config.truncate_seq else nodes[1:]
    pairs += [nodes[k : k + 2] for k in range(0, len(nodes), 2)]
    return pairs


def canine(observed: ObservedPass) -> list[AttentionLayer]:
    """Windows of characters, then molecules of several; heads that read characters add all characters again."""
    model = getattr(observed.model, "canine", observed.model)
    t = observed.mask.shape[1]
    rate = observed.config.downsampling_rate
    windows = [softmax.weights for softmax in observed.softmaxes_inside(model.initial_char_encoder)]
    layers = [AttentionLayer(tuple(windows), _block_diagonal)]
    molecules = [softmax.weights for softmax in observed.softmaxes_inside(model.encoder)]
    count = molecules[0].shape[-1]
    nodes = [0]  # the first characters, but for [CLS], which has position 0
    members = [[0]]
    for k in range(count - 1):
        nodes.append(k * rate + 1)
        members.append(list(range(k * rate, (k + 1) * rate)))
    keys = averages(members, t)
    for weights in molecules:
        layers.append(positioned_layer(weights, nodes, keys))
        keys = torch.eye(t)[nodes]
    logits = getattr(observed.outputs, "logits", None)
    reads_one_node = isinstance(logits, Tensor) and logits.dim() == 2  # there is no axis of tokens
    if not reads_one_node:
        copies = [nodes[min(character // rate + 1, count - 1)] for character in range(t)]
        for softmax in observed.softmaxes_inside(model.final_char_encoder):
            layers.append(positioned_layer(softmax.weights, range(t), torch.eye(t)[copies]))
    return layers


def _block_diagonal(*blocks: Tensor) -> Tensor:
    """Blocks (b, h, n, n) along the diagonal of one matrix."""
    t = sum(block.shape[-1] for block in blocks)
    matrix = blocks[0].new_zeros(*blocks[0].shape[:2], t, t)
    start = 0
    for block in blocks:
        end = start + block.shape[-1]
        matrix[:, :, start:end, start:end] = block
        start = end
    return matrix


def perceiver(observed: ObservedPass) -> list[AttentionLayer]:
    """Latents read the input, then each other, and the output reads them; latents sit at the first positions."""
    attentions = [softmax.weights for softmax in observed.softmaxes]
    t = attentions[0].shape[-1]
    shortest = int(observed.mask.sum(1).min()) if observed.mask.shape[1] else t
    latents = max(attention.shape[-2] for attention in attentions)
    if latents > shortest:
        raise unsupported(observed.model, f"its {latents} latents are more than the {shortest} tokens of the input")
    layers = []
    for attention in attentions:
        queries, keys = attention.shape[-2:]
        layers.append(positioned_layer(attention, range(queries), torch.eye(t)[:keys]))
    return layers
