"""Models whose layers are matrices (b, h, t, t) already: it only has to be found where they hand them out.

The convention this file owns: one matrix for each layer, no more and no less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from gaflow.errors import unsupported
from gaflow.models.adapters.observed import AttentionLayer, ObservedPass, Softmax

__all__ = ["encoder", "encoder_softmaxes", "full_attention", "own", "softmaxes", "stacked"]


def own(seen: ObservedPass) -> list[AttentionLayer]:
    """What the model hands out."""
    return _handed_out(seen, getattr(seen.outputs, "attentions", None), getattr(seen.outputs, "hidden_states", None))


def encoder(seen: ObservedPass) -> list[AttentionLayer]:
    """What the encoder of an encoder-decoder hands out; heads for tokens have no decoder."""
    if hasattr(seen.outputs, "encoder_attentions"):
        return _handed_out(seen, seen.outputs.encoder_attentions, seen.outputs.encoder_hidden_states)
    return own(seen)


def full_attention(seen: ObservedPass) -> list[AttentionLayer]:
    """Nystromformer, as long as it is set up for full attention: as many landmarks as tokens."""
    if seen.config.num_landmarks != seen.config.segment_means_seq_len:
        raise unsupported(seen.model, "its attention is approximated by landmarks: no weights between two tokens exist")
    return own(seen)


def softmaxes(seen: ObservedPass) -> list[AttentionLayer]:
    """One softmax for each layer."""
    return stacked(seen, seen.softmaxes)


def encoder_softmaxes(seen: ObservedPass) -> list[AttentionLayer]:
    """The same of an encoder."""
    module: Any = seen.model.get_encoder()
    return stacked(seen, [s for s in seen.softmaxes if isinstance(module, nn.Module) and s.inside(module)], module)


def stacked(seen: ObservedPass, found: Sequence[Softmax], module: Any = None) -> list[AttentionLayer]:
    """Layers from softmaxes (b, h, t, t) or (b * h, t, t), if there are as many as the model has layers."""
    config: Any = getattr(seen.model if module is None else module, "config", seen.config)
    blocks = getattr(getattr(config, "text_config", config), "num_hidden_layers", None)
    shapes = {tuple(s.weights.shape[-2:]) for s in found}
    t = seen.mask.shape[1] or max((n for _, n in shapes), default=0)
    if len(found) != blocks or shapes != {(t, t)}:
        raise unsupported(
            seen.model, f"{len(found)} softmaxes of shapes {sorted(shapes)} fit no {blocks} layers of ({t}, {t})"
        )
    items = len(seen.mask)

    def layout(weights: Tensor) -> Tensor:
        return weights.reshape(items, -1, *weights.shape[-2:])

    edges = [() if s.edge is None else (s.edge,) for s in found]
    return [
        AttentionLayer((s.weights,), None if s.weights.dim() == 4 else layout, edge)
        for s, edge in zip(found, edges, strict=True)
    ]


def _handed_out(seen: ObservedPass, attentions: Any, hidden: Any) -> list[AttentionLayer]:
    if not attentions or any(a is None for a in attentions):
        raise unsupported(seen.model, "gaflow needs the attention weights of every layer, and it returns none")
    blocks = len(hidden or ()) - 1
    if 0 <= blocks != len(attentions):
        raise unsupported(seen.model, f"it returns attention weights for {len(attentions)} of its {blocks} layers")
    if not all(isinstance(a, Tensor) for a in attentions):
        raise unsupported(seen.model, "its attention weights are no tensors")
    return [AttentionLayer((a,)) for a in attentions]
