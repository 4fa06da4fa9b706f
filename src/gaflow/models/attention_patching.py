"""Runs of a model in which chosen attention edges are removed.

The edge from query `i` to key `j` of a layer carries `A_ij v_j` in every head. A removed edge carries something else:

    baseline     A_ij v'_j, with the value v'_j that the token has in a baseline text of the same length
    zero         nothing
    renormalise  nothing, and the other weights of the row grow until they sum to 1 again

Weights are computed anew in every layer from the states below, which removed edges have changed. The model computes
attention by a function of ours, through the interface of transformers; nothing else in it changes.

The convention this file owns: **only models whose attention goes through transformers' interface can be patched**, and
a run without removed edges must give what the model gives by itself. Whatever fails this test is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gaflow.errors import unsupported
from gaflow.models.attention_interface import register_attention
from gaflow.models.forward import compute_logits
from gaflow.models.restore import attention_implementation, borrow, uncompiled

Removal = Literal["baseline", "zero", "renormalise"]
_NAME = "gaflow_patched"  # of our function in transformers' registry
_LOCAL = threading.local()  # the patch of this thread's run
_SAME = 1e-3  # logits that differ by less, relatively or absolutely, are the same but for rounding


@dataclass
class _Patch:
    """Which edges of a run are removed, and what the run shows."""

    removed: Tensor  # (r, l, t, t) bool: layer, query, key
    removal: Removal
    live: list[Tensor] = field(default_factory=list)  # per layer (t, t) bool: edges with weight in the first row


@dataclass(frozen=True)
class PatchedModel:
    """One text of a model, ready to be run with removed edges."""

    model: nn.Module
    inputs: Mapping[str, Tensor]  # (1, t) each
    embeddings: Tensor  # (1, t, d) word embeddings of the text
    baseline: Tensor | None  # (1, t, d) word embeddings of the baseline text; None: no baseline is needed
    removal: Removal

    def live_edges(self) -> Tensor:
        """The edges that have a weight at all, (l, t, t) bool; refuses models that cannot be patched."""
        expected = compute_logits(self.model, self.inputs, self.embeddings)
        empty = torch.zeros(1, 0, 1, 1, dtype=torch.bool, device=expected.device)
        logits, patch = self._run(empty)
        if not patch.live:
            raise unsupported(self.model, "its attention does not go through the interface of transformers")
        if not torch.allclose(logits, expected, rtol=_SAME, atol=_SAME):
            raise unsupported(self.model, "its attention has terms that gaflow cannot patch")
        return torch.stack(patch.live)

    def logits(self, removed: Tensor) -> Tensor:
        """Logits (r, ...) of runs with edges `removed` (r, l, t, t)."""
        logits, patch = self._run(removed)
        if len(patch.live) != removed.shape[1]:
            raise unsupported(self.model, f"it has {len(patch.live)} attention layers, not {removed.shape[1]}")
        return logits

    def _run(self, removed: Tensor) -> tuple[Tensor, _Patch]:
        """Logits of the runs; a row of the baseline text runs first, if there is one."""
        rows = len(removed)
        embeddings = self.embeddings.expand(rows, -1, -1)
        if self.baseline is not None:
            embeddings = torch.cat([self.baseline, embeddings])
            removed = torch.cat([torch.zeros_like(removed[:1]), removed])
        inputs = {name: value.expand(len(embeddings), *value.shape[1:]) for name, value in self.inputs.items()}
        patch = _Patch(removed, self.removal)
        with borrow(self.model, eager=False), _patched(self.model, patch), torch.no_grad():
            logits = compute_logits(self.model, inputs, embeddings)
        return logits[len(logits) - rows :], patch


@contextmanager
def _patched(model: nn.Module, patch: _Patch) -> Iterator[None]:
    """Compute the attention of `model` by `_attention`."""
    register_attention(_NAME, _attention)
    _LOCAL.patch = patch
    try:
        with attention_implementation(uncompiled(model), _NAME):
            yield
    finally:
        del _LOCAL.patch


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_options: Any,
) -> tuple[Tensor, None]:
    """Eager attention with removed edges; queries (r, h, t, d), keys and values (r, groups, t, d)."""
    patch: _Patch = _LOCAL.patch
    layer = len(patch.live)
    groups = query.shape[1] // key.shape[1]
    key = key.repeat_interleave(groups, 1)
    value = value.repeat_interleave(groups, 1)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = query @ key.transpose(-1, -2) * scale
    if attention_mask is not None:
        scores = scores + attention_mask[..., : key.shape[-2]]
    weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    patch.live.append((weights[0] > 0).any(0))
    if layer < patch.removed.shape[1]:
        removed = patch.removed[:, None, layer]  # (r, 1, t, t)
        context = _context(weights, value, removed, patch.removal)
    else:
        context = weights @ value
    return context.transpose(1, 2).contiguous(), None


def _context(weights: Tensor, value: Tensor, removed: Tensor, removal: Removal) -> Tensor:
    """What heads read (r, h, t, d) through weights (r, h, t, t) without the `removed` edges."""
    remaining = weights.masked_fill(removed, 0)
    if removal == "renormalise":
        total = remaining.sum(-1, keepdim=True)
        remaining = torch.where(total > 0, remaining / total, 0)
    context = remaining @ value
    if removal == "baseline":
        context = context + (weights - remaining) @ value[:1]
    return context
