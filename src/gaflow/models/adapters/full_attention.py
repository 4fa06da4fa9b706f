"""Models whose attention layers are matrices (b, h, t, t) already: only where they are differs.

The convention this file owns: one matrix for each layer, no more and no less.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from gaflow.errors import unsupported
from gaflow.inputs.transformers_types import ModelConfig
from gaflow.models.adapters.observed import AttentionLayer, ObservedPass, Softmax


def returned_attention(observed: ObservedPass, part: str = "") -> list[AttentionLayer]:
    """The attention weights that the model returns, or a `part` of it: "encoder_"."""
    attentions = getattr(observed.outputs, f"{part}attentions", None)
    hidden_states = getattr(observed.outputs, f"{part}hidden_states", None)
    if not attentions or any(attention is None for attention in attentions):
        raise unsupported(observed.model, "gaflow needs the attention weights of every layer, and it returns none")
    if hidden_states and len(hidden_states) != len(attentions) + 1:
        count = f"{len(attentions)} of its {len(hidden_states) - 1} layers"
        raise unsupported(observed.model, f"it returns attention weights for {count}")
    if not all(isinstance(attention, Tensor) for attention in attentions):
        raise unsupported(observed.model, "its attention weights are no tensors")
    return [AttentionLayer((attention,)) for attention in attentions]


def encoder_attention(observed: ObservedPass) -> list[AttentionLayer]:
    """The attention weights of the encoder of an encoder-decoder; heads that read tokens have no decoder."""
    part = "encoder_" if hasattr(observed.outputs, "encoder_attentions") else ""
    return returned_attention(observed, part)


def full_nystrom_attention(observed: ObservedPass) -> list[AttentionLayer]:
    """Nystromformer, as long as it is set up for full attention: as many landmarks as tokens."""
    config = observed.config
    if config.num_landmarks != config.segment_means_seq_len:
        raise unsupported(
            observed.model, "its attention is approximated by landmarks: no weights between two tokens exist"
        )
    return returned_attention(observed)


def softmaxes(observed: ObservedPass) -> list[AttentionLayer]:
    """The softmaxes of the pass."""
    return one_softmax_per_layer(observed, observed.softmaxes, observed.config)


def encoder_softmaxes(observed: ObservedPass) -> list[AttentionLayer]:
    """The softmaxes of the encoder of an encoder-decoder."""
    encoder = observed.model.get_encoder()
    return one_softmax_per_layer(
        observed, observed.softmaxes_inside(encoder), getattr(encoder, "config", observed.config)
    )


def one_softmax_per_layer(
    observed: ObservedPass, layer_softmaxes: Sequence[Softmax], config: ModelConfig
) -> list[AttentionLayer]:
    """Layers from softmaxes (b, h, t, t) or (b * h, t, t), if there are as many as the config has layers."""
    layer_count = getattr(getattr(config, "text_config", config), "num_hidden_layers", None)
    shapes = {tuple(softmax.weights.shape[-2:]) for softmax in layer_softmaxes}
    t = observed.mask.shape[1] or max((keys for _, keys in shapes), default=0)
    if len(layer_softmaxes) != layer_count or shapes != {(t, t)}:
        summary = f"{len(layer_softmaxes)} softmaxes of shapes {sorted(shapes)}"
        raise unsupported(observed.model, f"{summary} fit no {layer_count} layers of ({t}, {t})")
    items = len(observed.mask)

    def separate_heads(weights: Tensor) -> Tensor:
        return weights.reshape(items, -1, t, t)

    layers = []
    for softmax in layer_softmaxes:
        layout = None if softmax.weights.dim() == 4 else separate_heads
        layers.append(AttentionLayer((softmax.weights,), layout, softmax.copied_from))
    return layers
