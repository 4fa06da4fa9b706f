"""Encodings become batches.

A batch costs the work of its texts, each as long as the longest, and its calls. Short texts get a batch of their own
where that costs less than their padding. From `ENOUGH_WORK` on a batch is not made larger: its calls hardly count any
more, and more texts only take memory.

The convention this file owns: padding is only ever put on the right, where it cannot shift positions. Tokenizers that
pad on the left get batches of texts of one length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from gaflow.inputs.encoding import Encoding
from gaflow.inputs.transformers_types import Tokenizer

ENOUGH_WORK = 16.0  # of the texts of a batch, in units of its calls
_ROUNDING = 1e-9  # relative: costs that differ by less are the same


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
    encodings: Sequence[Encoding],
    size: int,
    padding: Padding,
    fit: Callable[[int], int | None] = lambda length: None,
    work: Callable[[int], float | None] = lambda length: None,
) -> Iterator[list[int]]:
    """Indices of encodings to run together: similar lengths, the longest first, so memory fails early if it does.

    `fit` says how many of one length fit into memory, and `work` what one of them takes, in units of the calls of a
    batch; None if that is unknown. Without `work`, all batches but the last are as large as they may be.
    """
    if len(encodings) == 1:  # which needs no estimate of memory and work
        yield [0]
        return
    order = sorted(range(len(encodings)), key=lambda k: (-len(encodings[k]), encodings[k].shape))
    if padding.token is None:
        for k in order:
            yield [k]
        return
    runs = [order]
    if padding.left:
        runs = [list(same) for _, same in groupby(order, key=lambda k: encodings[k].shape)]
    limits = _Limits(size, fit, work)
    for run in runs:
        lengths = [len(encodings[k]) for k in run]
        for start, stop in limits.cut(lengths):
            yield run[start:stop]


@dataclass(frozen=True)
class _Limits:
    """How many texts share a batch."""

    size: int
    fit: Callable[[int], int | None]
    work: Callable[[int], float | None]

    def cut(self, lengths: Sequence[int]) -> list[tuple[int, int]]:
        """Where each batch of texts of these falling lengths starts and stops."""
        if lengths and self.work(lengths[0]) is not None:
            return self._cut_at_least_cost(lengths)
        ranges = []
        start = 0
        while start < len(lengths):
            stop = min(start + self._most(lengths[start]), len(lengths))
            ranges.append((start, stop))
            start = stop
        return ranges

    def _cut_at_least_cost(self, lengths: Sequence[int]) -> list[tuple[int, int]]:
        """The batches with the lowest cost, by dynamic programming over the texts."""
        count = len(lengths)
        work_of_length = {}
        most_of_length = {}
        for length in set(lengths):
            work = self.work(length) or 0.0
            enough = math.ceil(ENOUGH_WORK / work) if work else self.size
            work_of_length[length] = work
            most_of_length[length] = min(self._most(length), max(1, enough))
        works = np.array([work_of_length[length] for length in lengths])
        stops = np.array([most_of_length[length] for length in lengths]) + np.arange(count)  # the last possible ones
        cheapest = np.zeros(count + 1)  # cost of the first texts, in batches at best
        last_start = np.zeros(count + 1, dtype=np.int64)  # of their last batch
        for stop in range(1, count + 1):
            first = max(0, stop - self.size)
            starts = np.arange(first, stop)
            costs = cheapest[first:stop] + 1 + (stop - starts) * works[first:stop]
            costs[stops[first:stop] < stop] = np.inf
            cheapest[stop] = costs.min()
            as_cheap = costs <= cheapest[stop] * (1 + _ROUNDING)
            last_start[stop] = starts[as_cheap][-1]  # full batches come first
        ranges = []
        stop = count
        while stop:
            start = int(last_start[stop])
            ranges.append((start, stop))
            stop = start
        return ranges[::-1]

    def _most(self, length: int) -> int:
        """The most texts of a batch whose longest has this length."""
        return min(self.size, self.fit(length) or self.size)


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
