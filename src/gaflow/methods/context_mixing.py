"""Context mixing: how much each token of a layer takes from each other one, multiplied out from layer to layer.

With `n` tokens, `C^l` (n x n, rows sum to 1) for block `l = 1 ... L`, and `r` the rows that the head reads
(`Trace.rows`), the score is the rollout `r C^L ... C^1`. The two methods differ in `C`, before its rows are divided by
their sums:

- value zeroing (Mohebbi et al. 2023): `C_ij = 1 - cos(h_i, h_i without the values of token j)`, for the output `h` of
  the block, which reads its usual input
- ALTI (Ferrando et al. 2022): `C_ij = max(0, |y_i| - |y_i - T_ij|)`, with sums of absolute values. `y` is the residual
  sum of attention, after the LayerNorm that follows it if all else reads that, as in BERT. `T_ij` is what of `y_i`
  comes from token `j`: its values, and for `i = j` the residual stream, through a LayerNorm with a constant deviation

Both are measured on passes in which a token has no values (`zeroed_values.py`). What of the residual sum comes from the
values of token `j` is the sum less that without these values, biases of values included and biases of the output not.

The convention this file owns: each text is explained by itself, so a batch gives the same as each text alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import normalize

from gaflow.arguments import boolean, optional_whole_number
from gaflow.errors import UnsupportedModelError
from gaflow.methods.base import MethodInfo, NamedSettings, Scores
from gaflow.models.attention_tensors import accumulation_dtype
from gaflow.models.cost import rows_in_a_pass
from gaflow.models.tracing import Trace
from gaflow.models.zeroed_values import AttentionSum, LayerNormCall, ObservedText, observe_text
from gaflow.progress import Report, within

_LARGEST_REST = 0.03  # of a residual sum by which it may be no sum over tokens, for half precision
_INFO = MethodInfo(
    family="attention",
    signed=False,
    class_specific=False,
    passes="1 forward per token",
    reference="Mohebbi et al. 2023, EACL",
)


@dataclass(frozen=True)
class _ContextMixing(NamedSettings, ABC):
    """What both methods have in common."""

    head_means = ()  # only the rows that the head reads

    rollout: bool = True  # multiply all layers out; False: the last layer alone
    batch_size: int | None = None  # tokens in one pass; None: as many as fit, fewer for long texts

    def __post_init__(self) -> None:
        super().__post_init__()
        boolean("rollout", self.rollout)
        optional_whole_number("batch_size", self.batch_size)

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a traced batch."""
        traced_model = trace.require_model()
        rows = trace.rows().cpu().double()
        values = torch.zeros(trace.mask.shape, dtype=torch.float64)
        share = 1 / len(values)  # of the work, for one text
        for item, real in enumerate(trace.mask.cpu()):
            report = within(traced_model.report, item * share, share)
            mixing = self.mixing(trace, item, report)
            values[item, real] = self._aggregate(rows[item, real], mixing)
        return Scores(values)

    @abstractmethod
    def mixing(self, trace: Trace, item: int, report: Report) -> Tensor:
        """`C` of every layer (l, n, n), rows sum to 1, of one text."""

    def _aggregate(self, rows: Tensor, mixing: Tensor) -> Tensor:
        if not self.rollout:
            return rows @ mixing[-1]
        scores = rows
        for layer in reversed(mixing):
            scores = scores @ layer
        return scores

    def _rows_in_a_pass(self, text: ObservedText, device: torch.device) -> int:
        """How many copies of a text run together."""
        if getattr(getattr(text.model, "config", None), "pad_token_id", 0) is None:
            return 1  # decoders refuse more, since they could not find where a text ends
        return self.batch_size or rows_in_a_pass(device, text.length)

    def _without_one(self, text: ObservedText, device: torch.device, report: Report) -> Iterator[tuple[Tensor, Tensor]]:
        """Tokens (k,), and for each of them a row of `keep` (k, n) without this token, until all had their turn."""
        n = text.length
        size = self._rows_in_a_pass(text, device)
        for start in range(0, n, size):
            tokens = torch.arange(start, min(start + size, n), device=device)
            keep = torch.ones(len(tokens), n, device=device)
            keep[torch.arange(len(tokens), device=device), tokens] = 0
            yield tokens, keep
            report(min(1.0, (start + size) / n))


@dataclass(frozen=True)
class ValueZeroing(_ContextMixing):
    """Value zeroing: how far a block's output moves when a token's values are zeroed, multiplied out."""

    base_name = "value_zeroing"
    info = _INFO

    def mixing(self, trace: Trace, item: int, report: Report) -> Tensor:
        """Cosine distances between outputs of blocks."""
        text = observe_text(trace.require_model(), item)
        blocks = text.blocks()
        mixing = torch.zeros(len(blocks), text.length, text.length, dtype=torch.float64)
        for tokens, keep in self._without_one(text, trace.logits.device, report):
            columns = tokens.cpu()

            def measure(layer: int, state: Tensor, columns: Tensor = columns) -> None:
                distances = _cosine_distances(blocks[layer].state, state)  # (k, n)
                mixing[layer][:, columns] = distances.cpu().double().mT

            with text.block_outputs(blocks, measure):
                text.run(keep, {})
        return _normalised(mixing)


@dataclass(frozen=True)
class Alti(_ContextMixing):
    """ALTI: how near what a token contributes to the residual sum of attention is to that sum, multiplied out."""

    base_name = "alti"
    info = replace(_INFO, reference="Ferrando, Gállego and Costa-jussà 2022, EMNLP")

    def mixing(self, trace: Trace, item: int, report: Report) -> Tensor:
        """Nearness of contributions."""
        text = observe_text(trace.require_model(), item, residual=True)
        device = trace.logits.device
        layers = [_Contributions(text, residual) for residual in text.attention_sums]
        for tokens, keep in self._without_one(text, device, report):
            text.run(keep, {layer.call: partial(layer.measure, tokens) for layer in layers})
        even = torch.arange(text.length, device=device) % 2
        halves_and_none = torch.stack([even, 1 - even, torch.zeros_like(even)])
        signs = torch.tensor([1, 1, -1], device=device)
        size = self._rows_in_a_pass(text, device)
        for keep, row_signs in zip(halves_and_none.split(size), signs.split(size), strict=True):
            text.run(keep, {layer.call: partial(layer.add_up, row_signs) for layer in layers})
        for layer in layers:
            layer.check()
        return _normalised(torch.stack([layer.mixing for layer in layers]))


class _Contributions:
    """What tokens contribute to the residual sum `s` of a layer, measured on sums without their values."""

    def __init__(self, text: ObservedText, residual: AttentionSum) -> None:
        dtype = accumulation_dtype(residual.total)
        self.mixing = torch.zeros(text.length, text.length, dtype=torch.float64)  # C, before rows are normalised
        self.call = residual.call
        self._model = text.model
        self._total = residual.total.to(dtype)  # (1, n, d) s
        self._stream = residual.stream.to(dtype)  # (1, n, d)
        self._norm = residual.norm
        self._output = _layer_norm(self._total, residual.norm)  # (1, n, d) y
        self._rest = self._total  # what `check` looks at

    def measure(self, tokens: Tensor, total: Tensor) -> Tensor:
        """Fill the columns of `tokens` (k,) in from sums (k, n, d) without their values; gives back the usual sums."""
        contributions = self._total - total.to(self._total)
        rows = torch.arange(len(tokens), device=tokens.device)
        contributions[rows, tokens] += self._stream[0, tokens]
        transformed = _linear_layer_norm(contributions, self._total, self._norm)
        distance = (self._output - transformed).abs().sum(-1)  # (k, n)
        nearness = (self._output.abs().sum(-1) - distance).relu()
        self.mixing[:, tokens.cpu()] = nearness.cpu().double().mT
        return total.copy_(self._total)

    def add_up(self, signs: Tensor, total: Tensor) -> Tensor:
        """Prepare `check` by sums (k, n, d) with the values of one half of the tokens, the other half, or none.

        `signs` (k,) are 1 for a half and -1 for none.
        """
        signed = signs[:, None, None] * total.to(self._total)
        self._rest = self._rest - signed.sum(0)
        return total.copy_(self._total)

    def check(self) -> None:
        """Refuse a sum that is none over tokens: both halves give what all tokens do."""
        if bool(self._rest.abs().max() > _LARGEST_REST * self._total.abs().max()):
            raise UnsupportedModelError(
                f"alti cannot explain {type(self._model).__name__}: what its attention adds to the residual stream is "
                "no sum over tokens, as if a norm were in between; use rollout or value_zeroing"
            )


def _layer_norm(x: Tensor, norm: LayerNormCall | None) -> Tensor:
    """The LayerNorm of hidden states, if there is one."""
    if norm is None:
        return x
    normalised = _linear_layer_norm(x, x, norm)
    return normalised if norm.bias is None else normalised + norm.bias.detach()


def _linear_layer_norm(x: Tensor, total: Tensor, norm: LayerNormCall | None) -> Tensor:
    """The LayerNorm without its bias, and with the deviation of other states `total`."""
    if norm is None:
        return x
    deviation = (total.var(-1, correction=0, keepdim=True) + norm.eps).sqrt()
    normalised = (x - x.mean(-1, keepdim=True)) / deviation
    return normalised if norm.weight is None else normalised * norm.weight.detach()


def _cosine_distances(x: Tensor, y: Tensor) -> Tensor:
    """`1 - cos` of hidden states (..., d), as half of a squared distance, since the difference has few digits."""
    dtype = accumulation_dtype(x)
    unit_x = normalize(x.to(dtype), dim=-1)
    unit_y = normalize(y.to(dtype), dim=-1)
    return (unit_x - unit_y).square().sum(-1) / 2


def _normalised(mixing: Tensor) -> Tensor:
    """Rows divided by their sums; rows of zeros stay."""
    sums = mixing.sum(-1, keepdim=True)
    return mixing / sums.where(sums > 0, 1)
