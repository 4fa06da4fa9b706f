"""The layers of a streamed pass: which calls of attention they are, and what the backward pass finds in them.

The convention this file owns: a pass is streamed only if there is exactly one call for each layer of the network. All
else is left to the eager pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gaflow.errors import UnsupportedModelError
from gaflow.inputs.batch import Batch
from gaflow.models.adapters import Adapter
from gaflow.models.differentiation import differentiate
from gaflow.models.restore import modules_of
from gaflow.models.streamed_attention import HeadMean, Stream, StreamedLayer


@dataclass(frozen=True)
class LayerMeans:
    """Means over heads of every layer, in place of the attention and the gradient of all heads."""

    head_means: tuple[HeadMean, ...]
    means: Mapping[HeadMean, tuple[Tensor, ...]]  # l x (b, t, t) float32 or wider, zero at padding
    heads: tuple[int, ...]  # of each layer
    read: Tensor  # (b, t) bool: rows of the top layer that have a gradient


@dataclass(frozen=True)
class StreamedLayers:
    """The layers of a pass, from the input up."""

    stream: Stream
    layers: tuple[StreamedLayer, ...]

    def differentiate(self, y: Tensor, others: Sequence[Any]) -> list[Tensor | None]:
        """Gradients of `y` (b,) by the `others`; on the way every layer finds its means."""

        def announce(scale: float) -> None:
            self.stream.scale = scale

        tokens = [layer.token for layer in self.layers]
        gradients = differentiate(y, [*tokens, *others], announce)
        for number, layer in enumerate(self.layers):
            if not layer.means and self.stream.head_means:
                raise UnsupportedModelError(f"no gradient of the output reaches the attention of layer {number}")
        for head_mean in self.stream.head_means:
            are_finite = [layer.means[head_mean].isfinite().all().to(tokens[0].device) for layer in self.layers]
            # one look at the device, not one for each layer
            for number, is_finite in enumerate(torch.stack(are_finite).tolist()):
                if not is_finite:
                    raise UnsupportedModelError(f"the attention of layer {number} is not finite")
        return gradients[len(tokens) :]

    def means(self) -> LayerMeans:
        """What the layers found, once they were differentiated."""
        device = self.layers[0].token.device
        means = {}
        for head_mean in self.stream.head_means:
            means[head_mean] = tuple(layer.means[head_mean].to(device) for layer in self.layers)
        read = self.layers[-1].read
        if read is None:
            raise UnsupportedModelError("no gradient of the output reaches the attention of the last layer")
        heads = tuple(layer.shape[1] for layer in self.layers)
        return LayerMeans(tuple(self.stream.head_means), means, heads, read.to(device))


def find_layers(
    model: nn.Module, adapter: Adapter, stream: Stream, hidden: Sequence[Tensor], batch: Batch
) -> list[StreamedLayer]:
    """The calls that are layers of the network; refuses calls that do not fit."""
    calls = stream.calls
    get_encoder = getattr(model, "get_encoder", None)
    if adapter.part and get_encoder is not None:
        encoder = set(modules_of(get_encoder()))
        calls = [call for call in calls if call.module in encoder]
    count = len(hidden) - 1 if hidden else getattr(getattr(model, "config", None), "num_hidden_layers", 0)
    b = len(batch.mask)
    t = batch.mask.shape[1] or (calls[0].shape[-1] if calls else 0)
    fitting = [call for call in calls if call.shape[0] == b and call.shape[2:] == (t, t)]
    if not calls or len(fitting) != count or len(calls) != count:
        raise UnsupportedModelError(f"{len(calls)} calls of attention fit no {count} layers")
    if not all(call.token.requires_grad for call in calls):
        raise UnsupportedModelError("its attention is cut off from autograd")
    stream.choose(calls)
    return calls


def padding_edges(batch: Batch) -> Tensor | None:
    """The edges from or to padding, (b, 1, t, t); None if there are none."""
    if not batch.padded:
        return None
    real = batch.mask
    return ~(real[:, None, :, None] & real[:, None, None, :])
