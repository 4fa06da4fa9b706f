"""A picture or a sound whose tokens are more or less there, as `presence.py` has it for texts.

    value  =  p_i * value,      0 <= p_i <= 1

for every value of the input that token `i` stands for: the pixels of a patch, the samples of a frame. At 0 they are
what the model takes for nothing: the mean colour of its normalisation, or silence.

The convention this file owns: **the input itself changes**, not what the model makes of it, so that any model will do;
integrating the gradient along `p = (a, ..., a)` is integrating gradients of pixels and summing them over patches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gaflow.errors import UnsupportedModelError
from gaflow.inputs.encoding import Encoding
from gaflow.inputs.media import Image, Sound
from gaflow.methods.token_removal import TokenRemoval, answer_each
from gaflow.models.attention_tensors import accumulation_dtype
from gaflow.models.cost import rows_in_a_pass
from gaflow.models.tracing import TracedModel

__all__ = ["MediaRemoval", "removal_for"]


@dataclass(frozen=True)
class MediaRemoval:
    """`y` as a function of how much each patch or frame of one input is there."""

    traced_model: TracedModel
    item: int  # of the traced_model's batch
    name: str  # of the model's input
    given: Tensor  # (1, c, h, w) or (1, n)
    region: Tensor  # (h, w) or (n,): which ordinary token a value belongs to, m for none
    places: Tensor  # (m,) positions of the ordinary tokens
    rows: int  # inputs in one pass
    replacement: str  # what stands where a token is absent, for the reader

    @classmethod
    def of(
        cls, traced_model: TracedModel, item: int, replacement: str | int | None, batch_size: int | None
    ) -> MediaRemoval:
        """The input `item` of the batch; `batch_size` as in the methods' settings."""
        encoding = traced_model.batch.encodings[item]
        if replacement is not None:
            raise ValueError(f"replacement {replacement!r} is for texts; patches and frames are dimmed to nothing")
        ((name, values),) = traced_model.batch.inputs.items()
        given = values[item : item + 1]
        region, instead = _region(encoding, given)
        places = [k for k, segment in enumerate(encoding.segments) if segment >= 0]
        where = torch.tensor(places, device=given.device)
        rows = batch_size or rows_in_a_pass(given.device, len(encoding))
        return cls(traced_model, item, name, given, region.to(given.device), where, rows, instead)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def length(self) -> int:
        """All tokens, special ones too."""
        return len(self.traced_model.batch.encodings[self.item].segments)

    def vector(self, value: float) -> Tensor:
        """All ordinary tokens there to the same part, (1, m)."""
        return torch.full((1, len(self)), value, dtype=accumulation_dtype(self.given), device=self.given.device)

    def dimmed(self, presence: Tensor) -> Tensor:
        """The input (s, c, h, w) or (s, n) for `presence` (s, m)."""
        kept = torch.cat([presence, torch.ones_like(presence[:, :1])], 1).to(self.given)
        parts = kept[:, self.region]  # (s, h, w) or (s, n)
        return self.given * (parts[:, None] if self.given.dim() == 4 else parts)

    def __call__(self, presence: Tensor) -> Tensor:
        """`y` (s,) for `presence` (s, m) in a single pass; gradients flow if they are enabled."""
        changed = {self.name: self.dimmed(presence)}
        return self.traced_model.output([self.item] * len(presence), eager=False, **changed)

    def values(self, presence: Tensor, tell: Callable[[float], object] = lambda part: None) -> Tensor:
        """`y` (s,) without gradients for any number of rows, each different one computed once, told as it goes."""
        return answer_each(self, self.rows, presence, tell)


def removal_for(
    traced_model: TracedModel, item: int, replacement: str | int | None, batch_size: int | None
) -> MediaRemoval | TokenRemoval:
    """What takes tokens away from the input `item`, whatever it is."""
    kind = TokenRemoval if traced_model.batch.encodings[item].media is None else MediaRemoval
    return kind.of(traced_model, item, replacement, batch_size)


def _region(encoding: Encoding, given: Tensor) -> tuple[Tensor, str]:
    """Which token each value belongs to, and what is left of one that is not there."""
    media = encoding.media
    if isinstance(media, Image) and given.dim() == 4:
        (rows, columns), (h, w) = media.grid, given.shape[2:]
        row, column = torch.arange(h) * rows // h, torch.arange(w) * columns // w
        return row[:, None] * columns + column[None, :], "mean colour"
    if isinstance(media, Sound) and given.dim() == 2 and given.shape[1] == len(media.samples):
        spans = [span for span, s in zip(encoding.offsets, encoding.segments, strict=True) if s >= 0]
        region = torch.full((given.shape[1],), len(spans))
        for k, (start, end) in enumerate(spans):
            region[start:end] = k
        return region, "silence"
    raise UnsupportedModelError(
        "the model reads no pixels or samples but what was computed from them, so no token can be taken away; use a "
        "method that needs the trace only"
    )
