"""Sparse attention over texts: Longformer's windows with global tokens, BigBird's blocks.

Both pad a text to full windows or blocks by themselves, and the matrix is cut off after the `t` tokens. The convention
this file owns: each softmax of the pass is a part, wherever its keys lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gaflow.errors import unsupported
from gaflow.models.adapters.full_attention import one_softmax_per_layer
from gaflow.models.adapters.observed import AttentionLayer, ModuleCall, ObservedPass, Softmax, group_by_call

_IS_GLOBAL = "is_index_global_attn"  # an argument of Longformer's attention
_BIG_BIRD_SOFTMAXES = 5  # in each layer


def longformer(observed: ObservedPass) -> list[AttentionLayer]:
    """Longformer, and the encoder of LED: a softmax over window and global keys, one more for global tokens."""
    t = observed.mask.shape[1]
    groups = group_by_call(observed.softmaxes, _IS_GLOBAL)
    return [_longformer_layer(call, softmaxes, t) for call, softmaxes in groups]


def _longformer_layer(call: ModuleCall, softmaxes: Sequence[Softmax], t: int) -> AttentionLayer:
    window: Any = call.module.one_sided_attn_window_size
    is_global: Tensor = call.argument(_IS_GLOBAL)  # (b, n), n >= t a multiple of the window
    device = is_global.device
    b, n = is_global.shape
    counts = is_global.sum(1)  # (b,)
    g = int(counts.max()) if len(softmaxes) > 1 else 0
    # (b, g) the positions of the global tokens, of which a text may have fewer
    global_positions = is_global.int().argsort(dim=1, descending=True, stable=True)[:, :g]
    exists = torch.arange(g, device=device) < counts[:, None]
    first_keys = torch.arange(n, device=device)[:, None]  # in a matrix with `window` more columns on each side
    local_keys = first_keys + torch.arange(2 * window + 1, device=device)  # (n, 2w+1)

    def layout(local: Tensor, of_global: Tensor | None = None) -> Tensor:
        local = local.transpose(1, 2)  # (b, h, n, g + 2w+1)
        h = local.shape[1]
        matrix = local.new_zeros(b, h, n, n + 2 * window)
        matrix.scatter_(3, local_keys.expand(b, h, -1, -1), local[..., g:])
        matrix = matrix[..., window : window + n]
        if of_global is not None:
            columns = global_positions[:, None, None, :].expand(b, h, n, g)
            matrix.scatter_add_(3, columns, local[..., :g] * exists[:, None, None, :])
            matrix.masked_fill_(is_global[:, None, :, None], 0)  # the model overwrites what these rows gave
            rows = global_positions[:, None, :, None].expand(b, h, g, n)
            matrix.scatter_add_(2, rows, of_global.reshape(b, h, g, n) * exists[:, None, :, None])
        return matrix[:, :, :t, :t]

    return AttentionLayer(tuple(softmax.weights for softmax in softmaxes), layout)


def big_bird(observed: ObservedPass) -> list[AttentionLayer]:
    """BigBird, and the encoder of BigBird-Pegasus: five softmaxes a layer, or one for texts too short for blocks."""
    config = observed.config
    softmaxes = list(observed.softmaxes)
    if config.is_encoder_decoder:
        softmaxes = observed.softmaxes_inside(observed.model.get_encoder())
    t = observed.mask.shape[1]
    if all(softmax.weights.shape[-2:] == (t, t) for softmax in softmaxes):
        return one_softmax_per_layer(observed, softmaxes, config)
    if len(softmaxes) != _BIG_BIRD_SOFTMAXES * config.num_hidden_layers:
        count = f"{len(softmaxes)} softmaxes, not {_BIG_BIRD_SOFTMAXES} in every layer"
        raise unsupported(observed.model, f"its blocks of attention are {count}")
    layers = []
    for start in range(0, len(softmaxes), _BIG_BIRD_SOFTMAXES):
        parts = [softmax.weights for softmax in softmaxes[start : start + _BIG_BIRD_SOFTMAXES]]
        layers.append(_big_bird_layer(tuple(parts), config.block_size, t))
    return layers


def _big_bird_layer(parts: tuple[Tensor, ...], size: int, t: int) -> AttentionLayer:
    """The queries of block 0, of block 1, of those between, of the last but one, and of the last."""
    n = parts[0].shape[-1]
    last = n // size - 1
    random_blocks = [0] * (parts[1].shape[-1] // size - 4)  # in evaluation mode all of them are the first block
    key_blocks = [[0, 1, 2, last, *random_blocks]]  # of queries in block 1, 2, ..., last - 1
    for query in range(2, last - 1):
        key_blocks.append([0, query - 1, query, query + 1, *random_blocks, last])
    key_blocks.append([0, last - 2, last - 1, last, *random_blocks])

    def layout(first: Tensor, second: Tensor, middle: Tensor, second_last: Tensor, final: Tensor) -> Tensor:
        b, h = first.shape[:2]
        matrix = first.new_zeros(b, h, last + 1, size, last + 1, size)
        matrix[:, :, 0] = first.reshape(b, h, size, last + 1, size)
        matrix[:, :, last] = final.reshape(b, h, size, last + 1, size)
        rows = (second, *middle.unbind(2), second_last)
        for query, (row, keys) in enumerate(zip(rows, key_blocks, strict=True), 1):
            for key, block in zip(keys, row.split(size, -1), strict=True):
                matrix[:, :, query, :, key] += block
        return matrix.reshape(b, h, n, n)[:, :, :t, :t]

    return AttentionLayer(parts, layout)
