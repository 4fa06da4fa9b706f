"""Texts with tokens masked, and what the model says of them.

Of the n ordinary tokens of a text, level k masks

    m_k = max(1, floor(k n / 100 + 1/2))

by decreasing score ("top"), by increasing score ("bottom"), or all but the top m_k ("keep"). Sorting is stable: of
equal scores the earlier token comes first, in every order. Special tokens are never masked.

The convention this file owns: **a masked token stays where it is**. [PAD] and [MASK] take the place of the word, with
attention 1, while positions and whatever else a model derives from ids stay those of the original text (see
methods/presence.py for why ids must not be written over). Deletion alone makes texts shorter, and positions move up.
Inputs that would look the same to the model are asked about once.
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

from gaflow.errors import GaflowError, TextError, UnsupportedModelError
from gaflow.inputs.encoding import Batch, Encoding, Padding, neutral_tokens
from gaflow.methods.token_removal import absent_token
from gaflow.models.tracing import TracedModel, borrow, word_embedding
from gaflow.progress import Report, silent

__all__ = ["DELETE", "ORDERS", "Answers", "Masker", "find_replacement", "masked_count", "masks"]

ORDERS = ("top", "bottom", "keep")
DELETE = "delete"
_TOKENS = {"cpu": 4096}  # tokens in one pass: more do not make a processor faster
_TOKENS_ELSEWHERE = 1 << 16  # an accelerator wants more to be busy, and has the memory


def masked_count(n: int, k: int) -> int:
    """m_k of a text with n ordinary tokens, in whole numbers so that halves are rounded up exactly."""
    return max(1, (k * n + 50) // 100)


def masks(scores: np.ndarray, conditions: Sequence[tuple[str, int]]) -> np.ndarray:
    """Which of the ordinary tokens are masked (..., c, n) under each (order, k), for their scores (..., n)."""
    n = scores.shape[-1]
    ranks = np.empty((*scores.shape[:-1], 2, n), dtype=np.int64)
    for way, key in enumerate((-scores, scores)):
        np.put_along_axis(ranks[..., way, :], np.argsort(key, axis=-1, kind="stable"), np.arange(n), -1)
    upwards, keep, count = _cuts(n, tuple(conditions))
    return (ranks[..., upwards, :] < count[:, None]) ^ keep[:, None]


@lru_cache(maxsize=4096)
def _cuts(n: int, conditions: tuple[tuple[str, int], ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of every condition (c,): whether it sorts upwards (0 or 1), whether the rest is masked, how many come first."""
    orders = [order for order, _ in conditions]
    upwards = np.array([int(order == "bottom") for order in orders])
    return upwards, np.array([o == "keep" for o in orders]), np.array([masked_count(n, k) for _, k in conditions])


@dataclass(frozen=True)
class Answers:
    """What the model said of masked texts."""

    logs: np.ndarray  # (u, c) float64 log-probabilities of the different inputs
    where: tuple[np.ndarray, ...]  # per text (r,): which of them answers each of its masks
    seconds: float  # spent in the model's forward passes

    def __getitem__(self, text: int) -> np.ndarray:
        """Log-probabilities (r, c) of one text's masks."""
        return self.logs[self.where[text]]


@dataclass(frozen=True)
class Masker:
    """Texts of one model, and what takes the place of masked tokens."""

    model: nn.Module
    inputs: dict[str, np.ndarray]  # model input name -> (b, t) padded on the right, input_ids among them
    lengths: np.ndarray  # (b,) tokens, special ones included
    places: tuple[np.ndarray, ...]  # per text (n,): positions of its ordinary tokens
    padding: Padding
    token: int | None  # that takes the place of masked ones; None: they are deleted
    name: str  # of the replacement, for the reader
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
        """The masked versions of `encodings` that `model` can be asked about."""
        model = getattr(model, "_orig_mod", model)
        padding = Padding.of(model, tokenizer)
        lengths = np.array([len(e) for e in encodings])
        fill = {"input_ids": padding.token or 0, "token_type_ids": padding.segment}
        inputs = {}
        for name in encodings[0].inputs:
            inputs[name] = np.full((len(encodings), lengths.max()), fill.get(name, 0), dtype=np.int64)
            for row, encoding in zip(inputs[name], encodings, strict=True):
                row[: len(encoding)] = encoding.inputs[name]
        inputs.setdefault("attention_mask", (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64))
        places = tuple(np.flatnonzero(np.array(e.segments) >= 0) for e in encodings)
        name, token = find_replacement(model, tokenizer, padding, replacement)
        if token is None and any(len(p) == t for p, t in zip(places, lengths, strict=True)):
            raise TextError(
                "replacement='delete' may leave nothing of a text, since the tokenizer adds no special tokens; "
                "use 'pad' or 'mask'"
            )
        if tokens_per_pass is None:
            tokens_per_pass = _TOKENS.get(_device(model).type, _TOKENS_ELSEWHERE)
        return cls(model, inputs, lengths, places, padding, token, name, tokens_per_pass)

    def __len__(self) -> int:
        return len(self.lengths)

    def __call__(self, wanted: Iterable[np.ndarray], report: Report = silent) -> Answers:
        """Answers for masks (r, n) of every text in turn; `report` is told which part of them is there."""
        owner, bits, where = self._different(wanted)
        logs = np.empty((0, 0))
        seconds, done = 0.0, 0
        left = self.lengths[owner]
        if self.token is None:
            left = left - np.unpackbits(bits, axis=1).sum(1)
        for rows in self.groups(left):
            hidden = np.unpackbits(bits[rows], axis=1, count=self.lengths.max()).astype(bool)
            found, took = self._ask(owner[rows], hidden, int(left[rows].max()))
            seconds += took
            if not logs.size:
                logs = np.empty((len(owner), found.shape[1]))
            logs[rows] = found
            done += len(rows)
            report(done / len(owner))
        return Answers(logs, where, seconds)

    def _different(self, wanted: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
        """Inputs that differ to the model: whose they are (u,), what is masked (u, t/8 bytes); and which is whose."""
        keys, bits, counts = [], [], []
        width = int(self.lengths.max())
        # drawn anew each time, so that no text can be made to look like another
        factors = np.random.default_rng().integers(0, 2**63, (2, len(self.inputs) + 1, width), dtype=np.uint64) | 1
        for text, chosen in enumerate(wanted):
            hidden = np.zeros((len(chosen), width), dtype=bool)
            hidden[:, self.places[text]] = chosen
            bits.append(np.packbits(hidden, axis=1))
            if self.token is None:
                keys.append(self._keys_without(text, hidden[:, : self.lengths[text]], factors))
            else:
                keys.append(self._keys(text, bits[-1], factors))
            counts.append(len(chosen))
        first, which = _different_rows(np.concatenate(keys))
        owner = np.repeat(np.arange(len(counts)), counts)[first]
        return owner, np.concatenate(bits)[first], tuple(np.split(which, np.cumsum(counts)[:-1]))

    def _frame(self, text: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids (t,), and what else the model reads (f, t): it looks for padding among the ids, masked or not."""
        t = self.lengths[text]
        ids = self.inputs["input_ids"][text, :t]
        others = [values[text, :t] for name, values in self.inputs.items() if name != "input_ids"]
        return ids, np.stack([*others, ids == self.padding.token]).astype(np.uint64) + 1

    def _keys(self, text: int, bits: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """What the model would be given for each row of `bits` (r, t/8), as 128 bits (r, 2): random sums of the inputs.

        Masking a token changes a sum by a number of its own, and eight tokens by one of 256: these are looked up.
        """
        assert self.token is not None
        ids, frame = self._frame(text)
        t = len(ids)
        whole = factors[:, 0, :t] @ (ids.astype(np.uint64) + 1) + (factors[:, 1:, :t] * frame).sum((1, 2))
        change = np.zeros((2, bits.shape[1] * 8), dtype=np.uint64)
        change[:, :t] = factors[:, 0, :t] * (np.uint64(self.token) - ids.astype(np.uint64))
        table = np.zeros((2, bits.shape[1], 1), dtype=np.uint64)
        for place in change.reshape(2, -1, 8).transpose(2, 0, 1)[
            ::-1, :, :, None
        ]:  # the first bit of a byte weighs most
            table = np.concatenate([table, table + place], -1)
        return (table[:, np.arange(bits.shape[1]), bits].sum(-1) + whole[:, None]).T

    def _keys_without(self, text: int, hidden: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """The same for masked tokens `hidden` (r, t) that are deleted, so that all after them move up."""
        ids, frame = self._frame(text)
        there = np.cumsum(~hidden, axis=1) - 1
        found = np.empty((len(hidden), 2), dtype=np.uint64)
        for half, rows in enumerate(factors):
            terms = sum(f[there] * row for f, row in zip(rows, (ids.astype(np.uint64) + 1, *frame), strict=True))
            found[:, half] = np.where(hidden, np.uint64(0), terms).sum(1)
        return found

    def groups(self, lengths: np.ndarray) -> Iterator[np.ndarray]:
        """Rows to ask about together: similar lengths, longest first so that memory fails early."""
        order = np.argsort(-lengths, kind="stable")
        start = 0
        while start < len(order):
            longest = lengths[order[start]]
            size = 1 if self.padding.token is None else max(1, self.tokens_per_pass // int(longest))
            stop = min(start + size, len(order))
            if self.padding.left:
                stop = min(stop, start + int((lengths[order[start:stop]] == longest).sum()))
            yield order[start:stop]
            start = stop

    def _ask(self, owner: np.ndarray, hidden: np.ndarray, longest: int) -> tuple[np.ndarray, float]:
        """Log-probabilities (r, c) of texts `owner` with tokens `hidden` (r, t) masked, and the seconds of the pass."""
        device = _device(self.model)
        real = np.arange(hidden.shape[1]) < self.lengths[owner, None]
        if self.token is None:
            real &= ~hidden
            order = np.argsort(~real, axis=1, kind="stable")[:, :longest]  # what is left, moved up
            real = np.take_along_axis(real, order, 1)
            given = {name: np.take_along_axis(values[owner], order, 1) for name, values in self.inputs.items()}
            given = {name: np.where(real, values, self._fill(name)) for name, values in given.items()}
        else:
            real, given = real[:, :longest], {name: values[owner, :longest] for name, values in self.inputs.items()}
        inputs = {name: torch.from_numpy(values).to(device) for name, values in given.items()}
        if self.token is None:
            return self._read(inputs, real, None)
        masked, token = torch.from_numpy(hidden[:, :longest]).to(device), self.token
        return self._read(inputs, real, lambda ids: self._embed(ids.masked_fill(masked, token)))

    def _fill(self, name: str) -> int:
        """What stands at padding in an input."""
        return {"input_ids": self.padding.token or 0, "token_type_ids": self.padding.segment}.get(name, 0)

    def with_words(self, owner: np.ndarray, change: Callable[[Tensor], Tensor]) -> np.ndarray:
        """Log-probabilities (r, c) of texts `owner`, word embeddings (r, t, d) being what `change` makes of them."""
        device, longest = _device(self.model), int(self.lengths[owner].max())
        real = np.arange(longest) < self.lengths[owner, None]
        inputs = {name: torch.from_numpy(values[owner, :longest]).to(device) for name, values in self.inputs.items()}
        return self._read(inputs, real, lambda ids: change(self._embed(ids)))[0]

    def _read(
        self, inputs: dict[str, Tensor], real: np.ndarray, embed: Callable[[Tensor], Tensor] | None
    ) -> tuple[np.ndarray, float]:
        """Log-probabilities (r, c), the word embeddings being `embed` of the ids, and the seconds of the pass."""
        batch = Batch(inputs, torch.from_numpy(real).to(_device(self.model)), not real.all(), ())
        with torch.inference_mode(False), torch.no_grad():
            start = time.perf_counter()
            words = None if embed is None else embed(inputs["input_ids"])
            logits = TracedModel(self.model, batch, _unread).logits(range(len(real)), words=words, eager=False)
            found = logits.cpu().double()  # waits for the device, so that the time is the pass's
            seconds = time.perf_counter() - start
        if not bool(torch.isfinite(found).all()):
            raise GaflowError(
                "the model's output for a masked text is not finite; check its weights, or load it with "
                "dtype=torch.float32"
            )
        return found.log_softmax(-1).numpy(), seconds

    def _embed(self, ids: Tensor) -> Tensor:
        """Word embeddings (r, t, d) of tokens (r, t)."""
        embedding = _embedding(self.model)
        with borrow(embedding, eager=False), torch.no_grad():
            return embedding(ids)


def _different_rows(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where different rows of `keys` (r, 2) come first, in that order (u,), and which of them each row is (r,)."""
    order = np.argsort(keys[:, 0].copy(), kind="stable")  # so that the first of equal ones is the first to come
    ranked = keys[order]  # rows that only differ in the second half may be split, and are then asked about twice
    new = np.concatenate([[True], (ranked[1:] != ranked[:-1]).any(1)])
    first = order[new]
    coming = np.argsort(first)  # keys are random, and batches must not be
    rank = np.empty_like(coming)
    rank[coming] = np.arange(len(coming))
    which = np.empty(len(keys), dtype=np.int64)
    which[order] = rank[np.cumsum(new) - 1]
    return first[coming], which


def _unread(logits: Tensor, items: Sequence[int]) -> Tensor:
    raise AssertionError("nothing but logits is asked for here")


def find_replacement(model: nn.Module, tokenizer: Any, padding: Padding, wanted: str | int) -> tuple[str, int | None]:
    """Name and token of a replacement; no token means deletion."""
    known = ("pad", "mask", "unk", DELETE)
    a_token = isinstance(wanted, int) and not isinstance(wanted, bool) and wanted >= 0
    if not a_token and wanted not in known:
        raise ValueError(f"replacement must be {', '.join(map(repr, known))} or a token id, not {wanted!r}")
    if wanted == DELETE:
        return DELETE, None
    return absent_token(neutral_tokens(tokenizer, padding), wanted, _embedding(model))


def _embedding(model: nn.Module) -> nn.Module:
    embedding = word_embedding(model)
    if embedding is None:
        raise UnsupportedModelError(
            f"{type(model).__name__} has no word embeddings (get_input_embeddings() gives none), so no word can be "
            f"replaced or perturbed; use replacement={DELETE!r} and soft=False"
        )
    return embedding


def _device(model: nn.Module) -> torch.device:
    weight = next(model.parameters(), None)
    return torch.device("cpu") if weight is None else weight.device
