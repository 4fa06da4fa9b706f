"""Texts with masked tokens, and the probabilities that the model gives them.

Of the n ordinary tokens of a text (or of its n words, see units.py), level k masks

    m_k = max(1, floor(k n / 100 + 1/2))

by decreasing score ("top"), by increasing score ("bottom"), or all but the top m_k ("keep"). Sorting is stable: of
equal scores the earlier token comes first, in every order. Special tokens are never masked.

The convention this file owns: **a masked token keeps its position**. Only its word embedding becomes that of [PAD] or
[MASK]; attention mask, position ids and whatever else a model derives from ids stay those of the original text (see
methods/token_removal.py for why ids must not be overwritten). Only deletion makes texts shorter, and moves positions
up. Inputs that look the same to the model run once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gaflow.arguments import is_whole_number
from gaflow.errors import Argument, ArgumentError, GaflowError, TextError, UnsupportedModelError
from gaflow.evaluation.outputs import Readout, read_classes
from gaflow.evaluation.units import MaskingUnit, find_units
from gaflow.inputs.batch import Padding, collate, neutral_tokens
from gaflow.inputs.encoding import Encoding
from gaflow.methods.token_removal import baseline_token
from gaflow.models.embeddings import word_embedding
from gaflow.models.forward import compute_logits
from gaflow.models.limits import padding_of
from gaflow.models.memory import device_of
from gaflow.models.restore import borrow, uncompiled
from gaflow.progress import Report, silent

Condition = tuple[str, int]  # order ("top", "bottom", "keep") and level in per cent
_Outputs = tuple[np.ndarray, float]  # log-probabilities (r, classes), and the seconds of the forward passes

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
    ranks = _ranks(-scores)
    ranks_from_bottom = _ranks(scores)
    masked = []
    for order, level in conditions:
        count = masked_count(n, level)
        if order == "top":
            masked.append(ranks < count)
        elif order == "bottom":
            masked.append(ranks_from_bottom < count)
        else:
            masked.append(ranks >= count)
    return np.stack(masked, -2)


def at_most(masked: np.ndarray, share: float, keys: np.ndarray) -> np.ndarray:
    """Masks (..., d, n) of no more than a `share` of all n units, and of one at least, from larger masks (..., n).

    Of a larger mask each of the d draws takes a random part: the units with the lowest of the random `keys` (d, n).
    """
    n = masked.shape[-1]
    most = max(1, math.floor(share * n + 1e-9))
    masked = np.repeat(masked[..., None, :], len(keys), axis=-2)
    return masked & (_ranks(np.where(masked, keys, np.inf)) < most)


def _ranks(keys: np.ndarray) -> np.ndarray:
    """The rank of each of the keys (..., n), the lowest being 0; of equal ones the earlier has the lower rank."""
    order = np.argsort(keys, kind="stable")
    return np.argsort(order)


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
class Masker:
    """Texts of one model, and the replacement of their masked tokens."""

    model: nn.Module
    inputs: dict[str, np.ndarray]  # model input name -> (b, t) padded on the right; input_ids are among them
    lengths: np.ndarray  # (b,) tokens, special ones included
    positions: tuple[np.ndarray, ...]  # per text (n,): of the tokens that may be masked
    units: tuple[np.ndarray, ...]  # per text (n,): which of them are masked together, numbered from 0
    padding: Padding
    token: int | None  # id of the replacement; None: masked tokens are deleted
    replacement: str  # its name
    tokens_per_pass: int
    readout: Readout = read_classes

    @classmethod
    def of(
        cls,
        model: nn.Module,
        tokenizer: Any,
        encodings: Sequence[Encoding],
        replacement: str | int = "pad",
        tokens_per_pass: int | None = None,
        *,
        unit: MaskingUnit = "token",
        never_masked: Sequence[Collection[int]] | None = None,
        readout: Readout = read_classes,
    ) -> Masker:
        """A masker of `encodings` for `model`, of which the tokens `never_masked` stay; `readout` reads its logits."""
        model = uncompiled(model)
        padding = padding_of(model, tokenizer)
        batch = collate(encodings, padding)
        inputs = {input_name: values.numpy() for input_name, values in batch.inputs.items()}
        positions = []
        units = []
        for encoding, kept_tokens in zip(encodings, never_masked or [()] * len(encodings), strict=True):
            text_positions, text_units = find_units(encoding, unit, kept_tokens)
            positions.append(text_positions)
            units.append(text_units)
        name, token = find_replacement(model, tokenizer, padding, replacement)
        if tokens_per_pass is None:
            on_cpu = device_of(model).type == "cpu"
            tokens_per_pass = _TOKENS_PER_PASS_CPU if on_cpu else _TOKENS_PER_PASS_ACCELERATOR
        masker = cls(
            model=model,
            inputs=inputs,
            lengths=batch.mask.sum(1).numpy(),
            positions=tuple(positions),
            units=tuple(units),
            padding=padding,
            token=token,
            replacement=name,
            tokens_per_pass=tokens_per_pass,
            readout=readout,
        )
        maskable = np.array([len(text_positions) for text_positions in positions])
        if token is None and (masker.lengths == maskable).any():
            raise TextError(
                Argument("replacement", DELETE),
                " may leave nothing of a text, since the tokenizer adds no special tokens; pass 'pad' or 'mask'",
            )
        return masker

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def sizes(self) -> np.ndarray:
        """The number of units of each text (b,): of ordinary tokens, or of words."""
        return np.array([len(np.unique(units)) for units in self.units])

    def no_masks(self, count: int) -> list[np.ndarray]:
        """For each text `count` masks (count, n) that mask nothing."""
        return [np.zeros((count, n), dtype=bool) for n in self.sizes]

    def __call__(self, masks_by_text: Iterable[np.ndarray], report: Report = silent) -> MaskedOutputs:
        """Run the model on masks (r, u) of every text in turn; `report` gets the fraction that is done."""
        row_of_input: dict[bytes, int] = {}  # each different input once, in the order in which they come
        texts = []
        packed_masks = []
        rows = []
        for text, unit_masks in enumerate(masks_by_text):
            masks = unit_masks[:, self.units[text]]  # (r, n)
            text_rows = []
            packed_rows = np.packbits(masks, axis=1)
            for packed, key in zip(packed_rows, self._input_keys(text, masks), strict=True):
                row = row_of_input.setdefault(key, len(row_of_input))
                if row == len(texts):  # an input that was not there before
                    texts.append(text)
                    packed_masks.append(packed)
                text_rows.append(row)
            rows.append(np.array(text_rows, dtype=np.int64))
        log_probabilities, seconds = self._run_masks(np.array(texts), packed_masks, report)
        return MaskedOutputs(log_probabilities, tuple(rows), seconds)

    def _run_masks(self, texts: np.ndarray, packed: Sequence[np.ndarray], report: Report) -> _Outputs:
        """Log-probabilities (u, classes) of `texts` (u,), each with a mask of n bits, and the seconds of all passes."""
        lengths = self.lengths[texts]
        if self.token is None:
            lengths = lengths - [np.unpackbits(bits).sum() for bits in packed]
        outputs = []
        order = []
        seconds = 0.0
        for rows in self.batches(lengths):
            masked = np.zeros((len(rows), self.lengths.max()), dtype=bool)
            for row_masked, row in zip(masked, rows, strict=True):
                positions = self.positions[texts[row]]
                row_masked[positions] = np.unpackbits(packed[row], count=len(positions))
            if self.token is None:
                batch_outputs, batch_seconds = self._run_without(texts[rows], masked)
            else:
                batch_outputs, batch_seconds = self._run_replaced(texts[rows], masked, self.token)
            outputs.append(batch_outputs)
            order.extend(rows)
            seconds += batch_seconds
            report(len(order) / len(texts))
        log_probabilities = np.concatenate(outputs)
        return log_probabilities[np.argsort(order)], seconds

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

    def run_with_embeddings(self, texts: np.ndarray, embed: Callable[[Tensor], Tensor]) -> _Outputs:
        """Log-probabilities (r, classes) of `texts` (r,), and the seconds that the model took.

        `embed` gives the word embeddings (r, t, d) of ids (r, t).
        """
        longest = int(self.lengths[texts].max())
        inputs = {name: values[texts, :longest] for name, values in self.inputs.items()}
        return self._run(texts, inputs, embed)

    def embed(self, ids: Tensor) -> Tensor:
        """Word embeddings (r, t, d) of ids (r, t)."""
        return word_embeddings(self.model, ids)

    def _run_replaced(self, texts: np.ndarray, masked: np.ndarray, token: int) -> _Outputs:
        """Log-probabilities of `texts` (r,) with the embedding of `token` where tokens are `masked` (r, t)."""
        longest = int(self.lengths[texts].max())
        masked_ids = torch.from_numpy(masked[:, :longest]).to(device_of(self.model))
        return self.run_with_embeddings(texts, lambda ids: self.embed(ids.masked_fill(masked_ids, token)))

    def _run_without(self, texts: np.ndarray, masked: np.ndarray) -> _Outputs:
        """Log-probabilities of `texts` (r,) without the tokens that are `masked` (r, t)."""
        real = np.arange(masked.shape[1]) < self.lengths[texts, None]
        real &= ~masked
        longest = int(real.sum(1).max())
        order = np.argsort(~real, axis=1, kind="stable")[:, :longest]  # the remaining tokens move up
        real = np.take_along_axis(real, order, 1)
        inputs = {}
        for name, values in self.inputs.items():
            moved = np.take_along_axis(values[texts], order, 1)
            inputs[name] = np.where(real, moved, self.padding.fill(name))
        return self._run(texts, inputs, None)

    def _run(
        self, texts: np.ndarray, inputs: dict[str, np.ndarray], embed: Callable[[Tensor], Tensor] | None
    ) -> _Outputs:
        """Log-probabilities (r, classes) and seconds of one pass."""
        device = device_of(self.model)
        tensors = {name: torch.from_numpy(values).to(device) for name, values in inputs.items()}
        with torch.inference_mode(False), torch.no_grad():
            started = time.perf_counter()
            embeddings = None if embed is None else embed(tensors["input_ids"])
            logits = compute_logits(self.model, tensors, embeddings)
            on_host = logits.cpu().double()  # waits for the device, so that the time is that of the pass
            seconds = time.perf_counter() - started
        if not bool(torch.isfinite(on_host).all()):
            raise GaflowError(
                "the model's output for a masked text is not finite; check its weights, or load it with ",
                Argument("dtype", torch.float32),
            )
        return self.readout(on_host, texts).numpy(), seconds

    def _input_keys(self, text: int, masks: np.ndarray) -> Iterator[bytes]:
        """A digest of everything that the model reads, for each of a text's masks (r, n)."""
        t = self.lengths[text]
        ids = self.inputs["input_ids"][text, :t]
        is_padding = ids == self.padding.token  # models look for padding among the ids, which stay as they are
        others = [values[text, :t] for name, values in self.inputs.items() if name != "input_ids"]
        unmasked = np.stack([ids, is_padding, *others])
        for mask in masks:
            masked = self.positions[text][mask]
            if self.token is None:
                inputs = np.delete(unmasked, masked, axis=1)
            else:
                inputs = unmasked.copy()
                inputs[0, masked] = self.token
            yield blake2b(inputs.tobytes(), digest_size=16).digest()


def find_replacement(
    model: nn.Module, tokenizer: Any, padding: Padding, replacement: str | int, argument: str = "replacement"
) -> tuple[str, int | None]:
    """Name and token id of a replacement, the value of `argument`; no id means deletion."""
    is_token_id = is_whole_number(replacement) and replacement >= 0
    is_named = isinstance(replacement, str) and replacement in _NAMED_REPLACEMENTS
    if not is_token_id and not is_named:
        names = ", ".join(repr(name) for name in _NAMED_REPLACEMENTS)
        raise ArgumentError(Argument(argument), f" must be {names} or a token id, not {replacement!r}")
    if replacement == DELETE:
        return DELETE, None
    return baseline_token(neutral_tokens(tokenizer, padding), replacement, _embedding(model))


def word_embeddings(model: nn.Module, ids: Tensor) -> Tensor:
    """A model's word embeddings (r, t, d) of ids (r, t)."""
    embedding = _embedding(model)
    with borrow(embedding, eager=False), torch.no_grad():
        return embedding(ids)


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
