"""Texts with masked tokens, and the probabilities that the model gives them.

Of the n ordinary tokens of a text, level k masks

    m_k = max(1, floor(k n / 100 + 1/2))

by decreasing score ("top"), by increasing score ("bottom"), or all but the top m_k ("keep"). Sorting is stable: of
equal scores the earlier token comes first, in every order. Special tokens are never masked.

The convention this file owns: **a masked token keeps its position**. Only its word embedding becomes that of [PAD] or
[MASK]; attention mask, position ids and whatever else a model derives from ids stay those of the original text (see
methods/token_removal.py for why ids must not be overwritten). Only deletion makes texts shorter, and moves positions
up. Inputs that look the same to the model run once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gaflow.arguments import is_whole_number
from gaflow.errors import Argument, ArgumentError, GaflowError, TextError, UnsupportedModelError
from gaflow.inputs.batch import Padding, neutral_tokens
from gaflow.inputs.encoding import Encoding
from gaflow.methods.token_removal import absent_token
from gaflow.models.embeddings import word_embedding
from gaflow.models.forward import compute_logits
from gaflow.models.limits import padding_of
from gaflow.models.restore import borrow
from gaflow.progress import Report, silent

__all__ = ["DELETE", "Condition", "MaskedOutputs", "Masker", "find_replacement", "masked_count", "masks"]

Condition = tuple[str, int]  # order ("top", "bottom", "keep") and level in per cent

DELETE = "delete"
_NAMED_REPLACEMENTS = ("pad", "mask", "unk", DELETE)
_TOKENS_PER_PASS_CPU = 4096  # more tokens do not make a processor faster
_TOKENS_PER_PASS_ACCELERATOR = 1 << 16  # an accelerator needs more to be busy, and has the memory


def masked_count(n: int, level: int) -> int:
    """m_k of a text with n ordinary tokens, in whole numbers so that halves are rounded up exactly."""
    return max(1, (level * n + 50) // 100)


def masks(scores: np.ndarray, conditions: Sequence[Condition]) -> np.ndarray:
    """Which of the ordinary tokens each condition masks (..., c, n), for their scores (..., n)."""
    n = scores.shape[-1]
    ranks = np.empty((*scores.shape[:-1], 2, n), dtype=np.int64)  # by decreasing, and by increasing score
    for direction, key in enumerate((-scores, scores)):
        order = np.argsort(key, axis=-1, kind="stable")
        np.put_along_axis(ranks[..., direction, :], order, np.arange(n), -1)
    cuts = _cuts(n, tuple(conditions))
    ranked_first = ranks[..., cuts.direction, :] < cuts.count[:, None]
    return ranked_first ^ cuts.keep[:, None]


@dataclass(frozen=True)
class _Cuts:
    """Where each condition cuts the ranked tokens of a text."""

    direction: np.ndarray  # (c,) 0: by decreasing score, 1: by increasing score
    keep: np.ndarray  # (c,) bool: mask all but those ranked first
    count: np.ndarray  # (c,) tokens ranked first


@lru_cache(maxsize=4096)
def _cuts(n: int, conditions: tuple[Condition, ...]) -> _Cuts:
    return _Cuts(
        direction=np.array([int(order == "bottom") for order, _ in conditions]),
        keep=np.array([order == "keep" for order, _ in conditions]),
        count=np.array([masked_count(n, level) for _, level in conditions]),
    )


@dataclass(frozen=True)
class MaskedOutputs:
    """The model's log-probabilities of masked texts, each different input once."""

    log_probabilities: np.ndarray  # (u, classes) float64, of the different inputs
    rows: tuple[np.ndarray, ...]  # per text (r,): the row of each of its masks
    seconds: float  # spent in the model's forward passes

    def __getitem__(self, text: int) -> np.ndarray:
        """Log-probabilities (r, classes) of one text's masks."""
        return self.log_probabilities[self.rows[text]]


@dataclass(frozen=True)
class _UniqueInputs:
    """The different inputs among all masked texts, in the order in which they first come."""

    text: np.ndarray  # (u,)
    bits: np.ndarray  # (u, t / 8) uint8, the masked tokens
    rows: tuple[np.ndarray, ...]  # per text (r,): which of the inputs each of its masks is

    def masked(self, rows: np.ndarray, width: int) -> np.ndarray:
        """The masked tokens (r, width) of some inputs, as bool."""
        return np.unpackbits(self.bits[rows], axis=1, count=width).astype(bool)


@dataclass(frozen=True)
class Masker:
    """Texts of one model, and the replacement of their masked tokens."""

    model: nn.Module
    inputs: dict[str, np.ndarray]  # model input name -> (b, t) padded on the right; input_ids are among them
    lengths: np.ndarray  # (b,) tokens, special ones included
    positions: tuple[np.ndarray, ...]  # per text (n,): of its ordinary tokens
    padding: Padding
    token: int | None  # id of the replacement; None: masked tokens are deleted
    replacement: str  # its name
    tokens_per_pass: int

    @classmethod
    def of(
        cls,
        model: nn.Module,
        tokenizer: Any,
        encodings: Sequence[Encoding],
        replacement: str | int = "pad",
        tokens_per_pass: int | None = None,
    ) -> Masker:
        """A masker of `encodings` for `model`."""
        model = getattr(model, "_orig_mod", model)  # of a compiled model
        padding = padding_of(model, tokenizer)
        lengths = np.array([len(encoding) for encoding in encodings])
        width = int(lengths.max())
        inputs = {}
        for input_name in encodings[0].inputs:
            values = np.full((len(encodings), width), _padding_value(input_name, padding), dtype=np.int64)
            for row, encoding in zip(values, encodings, strict=True):
                row[: len(encoding)] = encoding.inputs[input_name]
            inputs[input_name] = values
        inputs.setdefault("attention_mask", (np.arange(width) < lengths[:, None]).astype(np.int64))
        positions = tuple(np.flatnonzero(np.array(encoding.segments) >= 0) for encoding in encodings)
        name, token = find_replacement(model, tokenizer, padding, replacement)
        without_special = [len(ordinary) == t for ordinary, t in zip(positions, lengths, strict=True)]
        if token is None and any(without_special):
            raise TextError(
                Argument("replacement", DELETE),
                " may leave nothing of a text, since the tokenizer adds no special tokens; pass 'pad' or 'mask'",
            )
        if tokens_per_pass is None:
            on_cpu = _device(model).type == "cpu"
            tokens_per_pass = _TOKENS_PER_PASS_CPU if on_cpu else _TOKENS_PER_PASS_ACCELERATOR
        return cls(
            model=model,
            inputs=inputs,
            lengths=lengths,
            positions=positions,
            padding=padding,
            token=token,
            replacement=name,
            tokens_per_pass=tokens_per_pass,
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def __call__(self, masks_by_text: Iterable[np.ndarray], report: Report = silent) -> MaskedOutputs:
        """Run the model on masks (r, n) of every text in turn; `report` gets the fraction that is done."""
        unique = self._unique_inputs(masks_by_text)
        count = len(unique.text)
        lengths = self.lengths[unique.text]
        if self.token is None:
            lengths = lengths - np.unpackbits(unique.bits, axis=1).sum(1)
        log_probabilities = np.empty((0, 0))
        seconds = 0.0
        done = 0
        for rows in self.batches(lengths):
            texts = unique.text[rows]
            masked = unique.masked(rows, int(self.lengths.max()))
            if self.token is None:
                batch, batch_seconds = self._run_without(texts, masked)
            else:
                batch, batch_seconds = self._run_replaced(texts, masked, self.token)
            if not log_probabilities.size:
                log_probabilities = np.empty((count, batch.shape[1]))
            log_probabilities[rows] = batch
            seconds += batch_seconds
            done += len(rows)
            report(done / count)
        return MaskedOutputs(log_probabilities, unique.rows, seconds)

    def batches(self, lengths: np.ndarray) -> Iterator[np.ndarray]:
        """Rows to run together: similar lengths, longest first so that memory fails early."""
        order = np.argsort(-lengths, kind="stable")
        start = 0
        while start < len(order):
            longest = int(lengths[order[start]])
            size = 1 if self.padding.token is None else max(1, self.tokens_per_pass // longest)
            batch = order[start : start + size]
            if self.padding.left:
                batch = batch[lengths[batch] == longest]  # a prefix, since lengths fall
            yield batch
            start += len(batch)

    def run_with_embeddings(self, texts: np.ndarray, embed: Callable[[Tensor], Tensor]) -> tuple[np.ndarray, float]:
        """Log-probabilities (r, classes) of `texts` (r,), and the seconds that the model took.

        `embed` gives the word embeddings (r, t, d) of ids (r, t).
        """
        longest = int(self.lengths[texts].max())
        return self._run({name: values[texts, :longest] for name, values in self.inputs.items()}, embed)

    def embed(self, ids: Tensor) -> Tensor:
        """Word embeddings (r, t, d) of ids (r, t)."""
        embedding = _embedding(self.model)
        with borrow(embedding, eager=False), torch.no_grad():
            return embedding(ids)

    def _run_replaced(self, texts: np.ndarray, masked: np.ndarray, token: int) -> tuple[np.ndarray, float]:
        """Log-probabilities of `texts` (r,) with the embedding of `token` where tokens are `masked` (r, t)."""
        longest = int(self.lengths[texts].max())
        masked_ids = torch.from_numpy(masked[:, :longest]).to(_device(self.model))
        return self.run_with_embeddings(texts, lambda ids: self.embed(ids.masked_fill(masked_ids, token)))

    def _run_without(self, texts: np.ndarray, masked: np.ndarray) -> tuple[np.ndarray, float]:
        """Log-probabilities of `texts` (r,) without the tokens that are `masked` (r, t)."""
        real = np.arange(masked.shape[1]) < self.lengths[texts, None]
        real &= ~masked
        longest = int(real.sum(1).max())
        order = np.argsort(~real, axis=1, kind="stable")[:, :longest]  # the remaining tokens move up
        real = np.take_along_axis(real, order, 1)
        inputs = {}
        for name, values in self.inputs.items():
            moved = np.take_along_axis(values[texts], order, 1)
            inputs[name] = np.where(real, moved, _padding_value(name, self.padding))
        return self._run(inputs, None)

    def _run(self, inputs: dict[str, np.ndarray], embed: Callable[[Tensor], Tensor] | None) -> tuple[np.ndarray, float]:
        """Log-probabilities (r, classes) and seconds of one pass."""
        device = _device(self.model)
        tensors = {name: torch.from_numpy(values).to(device) for name, values in inputs.items()}
        with torch.inference_mode(False), torch.no_grad():
            started = time.perf_counter()
            embeddings = None if embed is None else embed(tensors["input_ids"])
            logits = compute_logits(self.model, tensors, embeddings=embeddings, eager=False)
            on_host = logits.cpu().double()  # waits for the device, so that the time is that of the pass
            seconds = time.perf_counter() - started
        if not bool(torch.isfinite(on_host).all()):
            raise GaflowError(
                "the model's output for a masked text is not finite; check its weights, or load it with ",
                Argument("dtype", torch.float32),
            )
        return on_host.log_softmax(-1).numpy(), seconds

    def _unique_inputs(self, masks_by_text: Iterable[np.ndarray]) -> _UniqueInputs:
        """The different inputs that masks (r, n) of every text in turn give the model."""
        keys = []
        bits = []
        counts = []
        width = int(self.lengths.max())
        # other factors each time, so that no text can be constructed to look like another
        shape = (2, len(self.inputs) + 1, width)
        factors = np.random.default_rng().integers(0, 2**63, shape, dtype=np.uint64) | 1
        for text, ordinary_masks in enumerate(masks_by_text):
            masked = np.zeros((len(ordinary_masks), width), dtype=bool)
            masked[:, self.positions[text]] = ordinary_masks
            text_bits = np.packbits(masked, axis=1)
            if self.token is None:
                text_keys = self._keys_of_deletion(text, masked[:, : self.lengths[text]], factors)
            else:
                text_keys = self._keys_of_replacement(text, text_bits, factors, self.token)
            keys.append(text_keys)
            bits.append(text_bits)
            counts.append(len(ordinary_masks))
        first, row_of_mask = _unique_rows(np.concatenate(keys))
        text_of_mask = np.repeat(np.arange(len(counts)), counts)
        rows = np.split(row_of_mask, np.cumsum(counts)[:-1])
        return _UniqueInputs(text=text_of_mask[first], bits=np.concatenate(bits)[first], rows=tuple(rows))

    def _ids_and_features(self, text: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids (t,) and everything else that the model reads (f, t): it looks for padding among the original ids."""
        t = self.lengths[text]
        ids = self.inputs["input_ids"][text, :t]
        features = [values[text, :t] for name, values in self.inputs.items() if name != "input_ids"]
        features.append(ids == self.padding.token)
        return ids.astype(np.uint64), np.stack(features).astype(np.uint64) + 1

    def _keys_of_replacement(self, text: int, bits: np.ndarray, factors: np.ndarray, token: int) -> np.ndarray:
        """128-bit keys (r, 2) of the inputs that masks `bits` (r, t / 8) give: random sums of the inputs.

        Masking a token changes a sum by a number of its own, and eight tokens by one of 256: these are looked up.
        """
        ids, features = self._ids_and_features(text)
        t = len(ids)
        original = factors[:, 0, :t] @ (ids + 1) + (factors[:, 1:, :t] * features).sum((1, 2))
        byte_count = bits.shape[1]
        change = np.zeros((2, byte_count * 8), dtype=np.uint64)
        change[:, :t] = factors[:, 0, :t] * (np.uint64(token) - ids)
        change_by_bit = change.reshape(2, byte_count, 8)
        table = np.zeros((2, byte_count, 1), dtype=np.uint64)
        for bit in reversed(range(8)):  # the first bit of a byte weighs most
            table = np.concatenate([table, table + change_by_bit[:, :, bit, None]], -1)
        changes = table[:, np.arange(byte_count), bits].sum(-1)
        return (changes + original[:, None]).T

    def _keys_of_deletion(self, text: int, masked: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """128-bit keys (r, 2) of the inputs without the tokens that are `masked` (r, t), the others moved up."""
        ids, features = self._ids_and_features(text)
        new_positions = np.cumsum(~masked, axis=1) - 1
        keys = np.empty((len(masked), 2), dtype=np.uint64)
        for half, half_factors in enumerate(factors):
            terms = np.zeros(masked.shape, dtype=np.uint64)
            for feature_factors, feature in zip(half_factors, (ids + 1, *features), strict=True):
                terms += feature_factors[new_positions] * feature
            keys[:, half] = np.where(masked, np.uint64(0), terms).sum(1)
        return keys


def find_replacement(
    model: nn.Module, tokenizer: Any, padding: Padding, replacement: str | int
) -> tuple[str, int | None]:
    """Name and token id of a replacement; no id means deletion."""
    is_token_id = is_whole_number(replacement) and replacement >= 0
    if not is_token_id and replacement not in _NAMED_REPLACEMENTS:
        names = ", ".join(repr(name) for name in _NAMED_REPLACEMENTS)
        raise ArgumentError(Argument("replacement"), f" must be {names} or a token id, not {replacement!r}")
    if replacement == DELETE:
        return DELETE, None
    return absent_token(neutral_tokens(tokenizer, padding), replacement, _embedding(model))


def _unique_rows(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where different rows of `keys` (r, 2) come first, in that order (u,), and which of them each row is (r,)."""
    order = np.argsort(keys[:, 0].copy(), kind="stable")  # stable: the first of equal rows stays the first
    ranked = keys[order]  # rows that only differ in the second half may be split, and then run twice
    starts_group = np.concatenate([[True], (ranked[1:] != ranked[:-1]).any(1)])
    first = order[starts_group]
    by_first = np.argsort(first)  # keys are random, and batches must not be
    rank = np.empty_like(by_first)
    rank[by_first] = np.arange(len(by_first))
    group = np.cumsum(starts_group) - 1
    unique_of_row = np.empty(len(keys), dtype=np.int64)
    unique_of_row[order] = rank[group]
    return first[by_first], unique_of_row


def _padding_value(input_name: str, padding: Padding) -> int:
    """The value of a model input where there is padding."""
    if input_name == "input_ids":
        return padding.token or 0
    if input_name == "token_type_ids":
        return padding.segment
    return 0


def _embedding(model: nn.Module) -> nn.Module:
    embedding = word_embedding(model)
    if embedding is None:
        raise UnsupportedModelError(
            f"{type(model).__name__} has no word embeddings (get_input_embeddings() gives none), so no word can be "
            "replaced or perturbed; pass ",
            Argument("replacement", DELETE),
            " and ",
            Argument("soft", False),
        )
    return embedding


def _device(model: nn.Module) -> torch.device:
    weight = next(model.parameters(), None)
    return torch.device("cpu") if weight is None else weight.device
