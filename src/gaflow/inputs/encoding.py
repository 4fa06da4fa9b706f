"""Texts become encodings, encodings become batches.

A text is a string or a `(text, pair)` tuple. The convention this file owns: nothing is dropped silently. A
text longer than the model takes is an error unless truncation was asked for, and then the encoding says so;
padding is only ever put on the right, where it cannot shift positions (tokenizers that pad on the left get
batches of one length).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gaflow.errors import TextError
from gaflow.inputs.media import Media
from gaflow.inputs.offsets import Span, search_spans, tidy_spans
from gaflow.models.adapters import runs_alone
from gaflow.models.restore import modules_of

__all__ = [
    "Batch",
    "Encoding",
    "Padding",
    "Text",
    "batches",
    "check_text",
    "collate",
    "encode",
    "length_limit",
    "neutral_tokens",
]

Text = str | tuple[str, str]
_UNLIMITED = 10**9  # tokenizers write 1e30 when they do not know their limit


@dataclass(frozen=True)
class Encoding:
    """One text (or pair) as the model reads it."""

    text: str
    text_pair: str | None
    inputs: dict[str, Any]  # model input name -> (t,) list; of pictures and sounds a tensor of any shape
    tokens: tuple[str, ...]  # (t,) as the tokenizer shows them
    offsets: tuple[Span, ...]  # (t,) into text or pair, whichever the segment says; (0, 0) for tokens in neither
    segments: tuple[int, ...]  # (t,) 0: from text, 1: from pair, -1: special, added by the tokenizer (or a mask)
    truncated: bool
    media: Media | None = None  # what was seen or heard instead of a text; then `inputs` are tensors

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def size(self) -> tuple[int, ...]:
        """What inputs must agree in to share a batch without padding."""
        if self.media is None:
            return (len(self),)
        return tuple(n for value in self.inputs.values() for n in value.shape)


@dataclass(frozen=True)
class Batch:
    """Encodings side by side, ready for the model."""

    inputs: dict[str, Tensor]  # model input name -> (b, t), or (b, ...) of pictures and sounds
    mask: Tensor  # (b, t) bool: real tokens
    padded: bool  # whether any token is not real, known without asking the device
    encodings: tuple[Encoding, ...]  # (b,)
    neutral: Mapping[str, int] = field(default_factory=dict)  # ids of tokens that say nothing: "pad", "mask", "unk"


def check_text(item: Any, name: str = "text") -> tuple[str, str | None]:
    """`item` as (text, pair or None); anything but a non-empty string or a pair of them is an error."""
    if isinstance(item, tuple):
        if len(item) != 2:
            raise TypeError(f"{name} is a tuple of {len(item)}; a tuple must be one (text, pair). Use a list for many")
        first, second = item
        return _check_string(first, f"{name}[0]"), _check_string(second, f"{name}[1]")
    return _check_string(item, name), None


def _check_string(item: Any, name: str) -> str:
    if not isinstance(item, str):
        raise TypeError(f"{name} must be a string or a (text, pair) tuple of strings, not {type(item).__name__}")
    if not item.strip():
        raise TextError(f"{name} is {'only whitespace' if item else 'empty'}; give at least one word")
    try:
        item.encode()
    except UnicodeEncodeError as error:
        raise TextError(f"{name} is not valid Unicode (lone surrogate at {error.start}); decode it properly") from None
    return item


def length_limit(model: nn.Module, tokenizer: Any) -> int | None:
    """The most tokens that model and tokenizer take, special tokens included; None if neither has a limit."""
    limits = [getattr(tokenizer, "model_max_length", None)]
    config: Any = getattr(model, "config", None)
    limits.append(getattr(config, "max_position_embeddings", None))
    for name, part in [pair for module in modules_of(model) for pair in module._modules.items()]:
        if name.endswith("position_embeddings") and isinstance(part, nn.Embedding):
            # RoBERTa and its kin number positions from padding_idx + 1
            limits.append(part.num_embeddings - (0 if part.padding_idx is None else part.padding_idx + 1))
    known = [int(n) for n in limits if isinstance(n, int | float) and 0 < n < _UNLIMITED]
    return min(known, default=None)


def encode(
    tokenizer: Any,
    texts: Sequence[tuple[str, str | None]],
    *,
    limit: int | None = None,
    truncation: bool = False,
    names: Sequence[str] | None = None,
    cut: str = "longest_first",
    advice: str = "",
) -> list[Encoding]:
    """Encodings of checked texts, in order.

    `names` are what errors call the texts, `cut` is what truncation cuts, `advice` what else a long text can be given.
    """
    names = names or [f"texts[{k}]" for k in range(len(texts))]
    done: list[Encoding | None] = [None] * len(texts)
    for paired in (False, True):
        chosen = [k for k, (_, pair) in enumerate(texts) if (pair is not None) == paired]
        for k, encoding in zip(chosen, _encode(tokenizer, [texts[k] for k in chosen]), strict=True):
            done[k] = encoding
    result: list[Encoding] = []
    for encoding, text, name in zip(done, texts, names, strict=True):
        assert encoding is not None
        if limit is not None and len(encoding) > limit:
            if not truncation:
                raise TextError(
                    f"{name} has {len(encoding)} tokens, special ones included, but the model takes {limit}; "
                    f"shorten it or pass truncation=True to explain its first {limit} tokens{advice}"
                )
            if cut == "only_second" and sum(segment < 1 for segment in encoding.segments) >= limit:
                raise TextError(f"{name}: what comes before its second text leaves no room for it; shorten the first")
            encoding = _encode(tokenizer, [text], limit, cut)[0]
        if all(segment < 0 for segment in encoding.segments):
            raise TextError(f"{name} holds nothing that the tokenizer keeps; give at least one word")
        result.append(encoding)
    return result


def _encode(
    tokenizer: Any, texts: Sequence[tuple[str, str | None]], limit: int | None = None, cut: str = "longest_first"
) -> list[Encoding]:
    if not texts:
        return []
    firsts, pairs = [t[0] for t in texts], [t[1] for t in texts if t[1] is not None]
    fast = bool(getattr(tokenizer, "is_fast", False))
    found = tokenizer(
        firsts,
        pairs or None,
        truncation=False if limit is None else cut,
        max_length=limit,
        return_special_tokens_mask=True,
        return_offsets_mapping=fast,
        verbose=False,
    )
    special, offsets = found.pop("special_tokens_mask"), found.pop("offset_mapping", None)
    encodings = []
    for k, (text, pair) in enumerate(texts):
        inputs = {name: list(values[k]) for name, values in found.items()}
        tokens = tuple(str(t) for t in tokenizer.convert_ids_to_tokens(inputs["input_ids"]))
        if offsets is None:
            segments = _runs(special[k], paired=pair is not None)
            if pair is not None and 1 not in segments and limit is None:
                raise TextError(
                    f"{type(tokenizer).__name__} puts nothing between the two texts of a pair and reports no offsets, "
                    "so that they cannot be told apart; use a fast tokenizer, or write the two as one text"
                )
        else:
            segments = [-1 if s is None else s for s in found.sequence_ids(k)]
        spans = _spans(text, pair, tokens, segments, None if offsets is None else offsets[k])
        encodings.append(Encoding(text, pair, inputs, tokens, spans, tuple(segments), limit is not None))
    return encodings


def _runs(special: Sequence[int], *, paired: bool) -> list[int]:
    """Segments from nothing but the special tokens: of a pair, the first run of ordinary ones is the text."""
    segments, run = [], -1
    for k, flag in enumerate(special):
        if not flag and (k == 0 or special[k - 1]):
            run += 1
        segments.append(-1 if flag else min(run, int(paired)))
    return segments


def _spans(
    text: str,
    pair: str | None,
    tokens: Sequence[str],
    segments: Sequence[int],
    offsets: Sequence[Span] | None,
) -> tuple[Span, ...]:
    spans: list[Span] = [(0, 0)] * len(tokens)
    for segment, source in enumerate((text, pair)):
        chosen = [k for k, s in enumerate(segments) if s == segment]
        if source is None or not chosen:
            continue
        mine = [tokens[k] for k in chosen]
        if offsets is None:
            found = search_spans(source, mine)
        else:
            found = tidy_spans(source, [offsets[k] for k in chosen], mine)
        for k, span in zip(chosen, found, strict=True):
            spans[k] = span
    return tuple(spans)


@dataclass(frozen=True)
class Padding:
    """How texts of different lengths may share a batch."""

    token: int | None  # fills up input_ids; None: the model cannot tell padding, so every text runs alone
    segment: int = 0  # fills up token_type_ids
    left: bool = False  # the model wants padding on the left, or reads it: only texts of one length run together

    @classmethod
    def of(cls, model: nn.Module, tokenizer: Any) -> Padding:
        """What model and tokenizer agree on; the model's own padding token is the one it looks for."""
        if getattr(model, "main_input_name", "input_ids") != "input_ids":
            return cls(0, left=True)  # pictures and sounds are never padded
        token = getattr(tokenizer, "pad_token_id", None)
        if token is not None:
            token = getattr(getattr(model, "config", None), "pad_token_id", token)
        left = getattr(tokenizer, "padding_side", "right") == "left" or runs_alone(model)
        return cls(token, getattr(tokenizer, "pad_token_type_id", None) or 0, left)


def batches(
    encodings: Sequence[Encoding], size: int, padding: Padding, fit: Callable[[int], int | None] = lambda length: None
) -> Iterator[list[int]]:
    """Indices of encodings to run together: similar lengths, longest first (so that memory fails early).

    `fit` says how many of one length fit into memory, if that is known.
    """
    order = sorted(range(len(encodings)), key=lambda k: (-len(encodings[k]), encodings[k].size))
    most, group = 1, list[int]()
    for k in order:
        differs = bool(group) and encodings[k].size != encodings[group[0]].size
        if len(group) >= most or (padding.left and differs):
            yield group
            group = []
        if not group and padding.token is not None:
            most = min(size, fit(len(encodings[k])) or size)
        group.append(k)
    if group:
        yield group


def neutral_tokens(tokenizer: Any, padding: Padding) -> dict[str, int]:
    """Tokens that can stand where another one is absent, the best first, as far as the tokenizer has them."""
    known = {name: getattr(tokenizer, f"{name}_token_id", None) for name in ("pad", "mask", "unk")}
    if padding.token is not None:
        known["pad"] = padding.token
    return {name: int(token) for name, token in known.items() if token is not None}


def collate(
    encodings: Sequence[Encoding],
    padding: Padding,
    device: torch.device | str | None = None,
    neutral: Mapping[str, int] | None = None,
) -> Batch:
    """One batch, padded on the right to the longest encoding.

    How many tokens a model makes of pictures and sounds shows in the trace: until then the mask has no columns.
    """
    if encodings[0].media is not None:
        tensors = {name: torch.stack([e.inputs[name] for e in encodings]).to(device) for name in encodings[0].inputs}
        return Batch(tensors, torch.ones(len(encodings), 0, dtype=torch.bool, device=device), False, tuple(encodings))
    lengths = [len(e) for e in encodings]
    longest = max(lengths)
    fill = {"input_ids": padding.token or 0, "token_type_ids": padding.segment}
    inputs = {
        name: torch.tensor(
            [e.inputs[name] + [fill.get(name, 0)] * (longest - len(e)) for e in encodings], device=device
        )
        for name in encodings[0].inputs
    }
    real = torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]
    inputs.setdefault("attention_mask", real.long().to(device))
    if neutral is None:
        neutral = {} if padding.token is None else {"pad": padding.token}
    return Batch(inputs, real.to(device), min(lengths) < longest, tuple(encodings), neutral)
