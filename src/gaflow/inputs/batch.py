"""Encodings become batches.

The convention this file owns: padding is only ever put on the right, where it cannot shift positions. Tokenizers that
pad on the left get batches of texts of one length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from gaflow.inputs.encoding import Encoding
from gaflow.inputs.transformers_types import Tokenizer


@dataclass(frozen=True)
class Batch:
    """Encodings side by side, ready for the model."""

    inputs: dict[str, Tensor]  # model input name -> (b, t), or (b, ...) of pictures and sounds
    mask: Tensor  # (b, t) bool: real tokens; (b, 0) for pictures and sounds without tokens yet
    padded: bool  # whether any token is not real, which needs no look at the device
    encodings: tuple[Encoding, ...]  # (b,)
    neutral: Mapping[str, int] = field(default_factory=dict)  # ids of tokens that say nothing: "pad", "mask", "unk"

    def select(self, items: Sequence[int], length: int | None = None) -> Batch:
        """A row for each of `items`, any number of times, cut to `length` tokens (None: as long as they are)."""
        rows = torch.as_tensor(items, device=self.mask.device)
        inputs = {}
        for name, value in self.inputs.items():
            inputs[name] = value[rows, :length] if value.dim() == 2 else value[rows]
        mask = self.mask[rows, :length]
        encodings = tuple(self.encodings[item] for item in items)
        padded = any(len(encoding) < mask.shape[1] for encoding in encodings)
        return replace(self, inputs=inputs, mask=mask, padded=padded, encodings=encodings)


@dataclass(frozen=True)
class Padding:
    """How texts of different lengths may share a batch; `gaflow.models.limits.padding_of` finds it."""

    token: int | None  # fills up input_ids; None: the model cannot tell padding, so every text runs alone
    segment: int = 0  # fills up token_type_ids
    left: bool = False  # the model wants padding on the left, or reads it: only texts of one length run together

    def fill(self, input_name: str) -> int:
        """What fills up a model input."""
        return {"input_ids": self.token or 0, "token_type_ids": self.segment}.get(input_name, 0)


def batches(
    encodings: Sequence[Encoding], size: int, padding: Padding, fit: Callable[[int], int | None] = lambda length: None
) -> Iterator[list[int]]:
    """Indices of encodings to run together: similar lengths, the longest first, so memory fails early if it does.

    `fit` says how many of one length fit into memory, or None if that is unknown.
    """
    if len(encodings) == 1:  # which needs no estimate of the memory
        yield [0]
        return
    order = sorted(range(len(encodings)), key=lambda k: (-len(encodings[k]), encodings[k].shape))
    group = []
    capacity = 1
    for k in order:
        differs = bool(group) and encodings[k].shape != encodings[group[0]].shape
        if len(group) >= capacity or (padding.left and differs):
            yield group
            group = []
        if not group and padding.token is not None:
            capacity = min(size, fit(len(encodings[k])) or size)
        group.append(k)
    if group:
        yield group


def neutral_tokens(tokenizer: Tokenizer, padding: Padding) -> dict[str, int]:
    """Ids of tokens that can stand in for another one, the best first: those of "pad", "mask" and "unk" that exist."""
    tokens = {}
    for name in ("pad", "mask", "unk"):
        token = getattr(tokenizer, f"{name}_token_id", None)
        if name == "pad" and padding.token is not None:
            token = padding.token
        if token is not None:
            tokens[name] = int(token)
    return tokens


def collate(
    encodings: Sequence[Encoding],
    padding: Padding,
    device: torch.device | str | None = None,
    neutral: Mapping[str, int] | None = None,
) -> Batch:
    """One batch, padded on the right to the longest encoding; pictures and sounds must be of one shape."""
    inputs = {}
    if encodings[0].media is not None:
        for name in encodings[0].inputs:
            inputs[name] = torch.stack([encoding.inputs[name] for encoding in encodings]).to(device)
        mask = torch.ones(len(encodings), 0, dtype=torch.bool, device=device)  # the trace shows how many tokens
        return Batch(inputs, mask, padded=False, encodings=tuple(encodings))
    lengths = list(map(len, encodings))
    longest = max(lengths)
    for name in encodings[0].inputs:
        rows = [torch.tensor(encoding.inputs[name]) for encoding in encodings]
        inputs[name] = pad_sequence(rows, batch_first=True, padding_value=padding.fill(name)).to(device)
    real = torch.arange(longest) < torch.tensor(lengths)[:, None]
    inputs.setdefault("attention_mask", real.long().to(device))
    if neutral is None:
        neutral = neutral_tokens(None, padding)
    return Batch(
        inputs=inputs,
        mask=real.to(device),
        padded=min(lengths) < longest,
        encodings=tuple(encodings),
        neutral=neutral,
    )
