"""A picture or a sound with some of its tokens removed, wholly or in part, as `token_removal.py` does for texts.

    value  =  p_i * value,      0 <= p_i <= 1

for every value of the input that token `i` stands for: the pixels of a patch, the samples of a frame. At weight 0 they
are the mean colour of the model's normalisation, or silence.

The convention this file owns: **the input itself changes**, not the model's embedding of it, so it works for any model.
Integrating the gradient along `p = (a, ..., a)` is integrating gradients of pixels and summing them over patches.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from gaflow.errors import Argument, ArgumentError, UnsupportedModelError
from gaflow.inputs.batch import Batch
from gaflow.inputs.encoding import Encoding
from gaflow.inputs.media import Image, Sound
from gaflow.methods.removal import Removal, Replacement
from gaflow.methods.token_removal import TokenRemoval
from gaflow.models.tracing import TracedModel


class MediaRemoval(Removal):
    """The removal of patches or frames from the picture or sound `item` of a batch.

    Its values are those of the model's input, (1, c, h, w) or (1, n).
    """

    def __init__(self, traced_model: TracedModel, item: int, replacement: Replacement, batch_size: int | None) -> None:
        if replacement is not None:
            raise ArgumentError(
                Argument("replacement"), f" {replacement!r} is for texts; patches and frames are always dimmed"
            )
        ((self.input_name, batch_values),) = traced_model.batch.inputs.items()
        values = batch_values[item : item + 1]
        regions, baseline = _regions(traced_model.batch.encodings[item], values)
        super().__init__(traced_model, item, values, baseline, batch_size)
        self._regions = regions.to(values.device)  # (h, w) or (n,): the ordinary token of a value, m for none

    def values_at(self, inclusion: Tensor) -> Tensor:
        """The input (s, c, h, w) or (s, n) for inclusion weights (s, m)."""
        without_token = torch.ones_like(inclusion[:, :1])
        weights = torch.cat([inclusion, without_token], 1).to(self.values)
        weights = weights[:, self._regions]  # (s, h, w) or (s, n)
        if self.values.dim() == 4:
            weights = weights[:, None]  # the same for all colours
        return self.values * weights


def removal_for(traced_model: TracedModel, item: int, replacement: Replacement, batch_size: int | None) -> Removal:
    """The removal of tokens from the input `item`, be it a text, a picture or a sound."""
    kind = TokenRemoval if traced_model.batch.encodings[item].media is None else MediaRemoval
    return kind(traced_model, item, replacement, batch_size)


def changed_inputs(inclusions: Sequence[tuple[Removal, Tensor]]) -> tuple[Batch, Tensor | None]:
    """Inputs with tokens removed, for one pass of the model: of each removal, at inclusion weights (s, m).

    Returns the batch of all rows, and the word embeddings (r, n, d) that replace the model's own; None for media. All
    removals are of texts, or all of media.
    """
    n = max(removal.length for removal, _ in inclusions)
    items = []
    changed = []
    for removal, inclusion in inclusions:
        items += [removal.item] * len(inclusion)
        values = removal.values_at(inclusion)
        if isinstance(removal, TokenRemoval):
            values = pad(values, (0, 0, 0, n - removal.length))
        changed.append(values)
    removal, _ = inclusions[0]
    batch = removal.traced_model.batch.select(items, n)
    if isinstance(removal, TokenRemoval):
        return batch, torch.cat(changed).requires_grad_()
    batch.inputs[removal.input_name] = torch.cat(changed)
    return batch, None


def _regions(encoding: Encoding, values: Tensor) -> tuple[Tensor, str]:
    """The token that each value belongs to, and what is left of a removed one."""
    media = encoding.media
    if isinstance(media, Image) and values.dim() == 4:
        rows, columns = media.grid
        height, width = values.shape[2:]
        row = torch.arange(height) * rows // height
        column = torch.arange(width) * columns // width
        return row[:, None] * columns + column[None, :], "mean colour"
    if isinstance(media, Sound) and values.dim() == 2 and values.shape[1] == len(media.samples):
        spans = []
        for span, segment in zip(encoding.offsets, encoding.segments, strict=True):
            if segment >= 0:
                spans.append(span)
        regions = torch.full((values.shape[1],), len(spans))
        for token, (start, end) in enumerate(spans):
            regions[start:end] = token
        return regions, "silence"
    raise UnsupportedModelError(
        "the model reads features computed from pixels or samples instead of these, so no token can be removed; use a "
        "method that needs the trace only"
    )
