"""Sparse attention over texts: Longformer's windows with global tokens, BigBird's blocks.

Both pad a text to full windows or blocks by themselves; what is beyond the `t` tokens is cut off. The convention this
file owns: a softmax of the pass is a part, wherever its keys lie.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gaflow.errors import unsupported
from gaflow.models.adapters.full_attention import stacked
from gaflow.models.adapters.observed import AttentionLayer, Call, ObservedPass, Softmax, group

__all__ = ["big_bird", "longformer"]


def longformer(seen: ObservedPass) -> list[AttentionLayer]:
    """Longformer, and the encoder of LED: a softmax over window and global keys, one more for global tokens."""
    return [_longformer_layer(call, found, seen.mask.shape[1]) for call, found in group(seen.softmaxes, _GLOBAL)]


_GLOBAL = "is_index_global_attn"


def _longformer_layer(call: Call, found: list[Softmax], t: int) -> AttentionLayer:
    w: Any = call.module.one_sided_attn_window_size
    is_global: Tensor = call.given(_GLOBAL)  # (b, n), n >= t a multiple of the window
    b, n = is_global.shape
    count = is_global.sum(1)  # (b,)
    g = int(count.max()) if len(found) > 1 else 0
    order = is_global.int().argsort(dim=1, descending=True, stable=True)[:, :g]  # (b, g) where the global tokens are
    there = torch.arange(g, device=order.device) < count[:, None]  # (b, g) texts may have fewer
    keys = torch.arange(n, device=order.device)[:, None] + torch.arange(-w, w + 1, device=order.device)  # (n, 2w+1)
    inside = (keys >= 0) & (keys < n)

    def layout(local: Tensor, full: Tensor | None = None) -> Tensor:
        local = local.transpose(1, 2)  # (b, h, n, g + 2w+1)
        h = local.shape[1]
        laid = local.new_zeros(b, h, n, n)
        laid.scatter_add_(3, keys.clamp(0, n - 1).expand(b, h, -1, -1), local[..., g:] * inside)
        if full is None:
            return laid[:, :, :t, :t]
        columns = order[:, None, None, :].expand(b, h, n, g)
        laid.scatter_add_(3, columns, local[..., :g] * there[:, None, None, :])
        laid.masked_fill_(is_global[:, None, :, None], 0)  # the model overwrites what these rows gave
        rows = order[:, None, :, None].expand(b, h, g, n)
        laid.scatter_add_(2, rows, full.reshape(b, h, g, n) * there[:, None, :, None])
        return laid[:, :, :t, :t]

    return AttentionLayer(tuple(s.weights for s in found), layout)


def big_bird(seen: ObservedPass) -> list[AttentionLayer]:
    """BigBird, and the encoder of BigBird-Pegasus: five softmaxes a layer, or one for texts too short for blocks."""
    found = list(seen.softmaxes)
    module = seen.model.get_encoder() if seen.config.is_encoder_decoder else None
    if module is not None:
        found = [s for s in found if s.inside(module)]
    t = seen.mask.shape[1]
    if all(s.weights.shape[-2:] == (t, t) for s in found):
        return stacked(seen, found)
    if len(found) != 5 * seen.config.num_hidden_layers:
        raise unsupported(seen.model, f"its blocks of attention are {len(found)} softmaxes, not five in every layer")
    fives = [found[k : k + 5] for k in range(0, len(found), 5)]
    return [_big_bird_layer(tuple(s.weights for s in five), seen.config.block_size, t) for five in fives]


def _big_bird_layer(parts: tuple[Tensor, ...], size: int, t: int) -> AttentionLayer:
    """The queries of block 0, of block 1, of those between, of the last but one, and of the last."""
    n = parts[0].shape[-1]
    last = n // size - 1
    random = parts[1].shape[-1] // size - 4
    again = [0] * random  # in evaluation mode every random block is the first one
    blocks = {1: [0, 1, 2, last, *again], last - 1: [0, last - 2, last - 1, last, *again]}
    blocks |= {q: [0, q - 1, q, q + 1, *again, last] for q in range(2, last - 1)}

    def layout(first: Tensor, second: Tensor, middle: Tensor, second_last: Tensor, final: Tensor) -> Tensor:
        b, h = first.shape[:2]
        laid = first.new_zeros(b, h, last + 1, size, last + 1, size)
        laid[:, :, 0], laid[:, :, last] = (x.reshape(b, h, size, last + 1, size) for x in (first, final))
        rows = {1: second, last - 1: second_last} | {q: middle[:, :, q - 2] for q in range(2, last - 1)}
        for q, row in rows.items():
            for k, chunk in zip(blocks[q], row.split(size, -1), strict=True):
                laid[:, :, q, :, k] += chunk
        return laid.reshape(b, h, n, n)[:, :, :t, :t]

    return AttentionLayer(parts, layout)
