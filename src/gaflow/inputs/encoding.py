"""Texts become encodings: tokens with their offsets, as the model reads them.

A text is a string or a `(text, pair)` tuple. The convention this file owns: nothing is dropped silently. A text that is
longer than the model takes is an error unless truncation was asked for, and then the encoding says so. Characters that
tokenizers cannot read are errors too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from gaflow.errors import Argument, ArgumentTypeError, TextError
from gaflow.inputs.columns import is_data_set, is_frame
from gaflow.inputs.media import Media
from gaflow.inputs.offsets import search_spans, tidy_spans
from gaflow.inputs.segmentation import Span
from gaflow.inputs.transformers_types import Tokenizer

Text = str | tuple[str, str]
TextAndPair = tuple[str, str | None]

_UNREADABLE = re.compile("[\0\ud800-\udfff]")  # tokenizers drop NUL silently, and cannot read surrogates


@dataclass(frozen=True)
class Encoding:
    """One text (or pair), picture or sound as the model reads it.

    How many tokens a model makes of a picture or sound is known only after a forward pass. Until then `tokens`,
    `offsets` and `segments` are empty; `gaflow.tasks.media_inputs.name_tokens` fills them in.
    """

    text: str
    text_pair: str | None
    inputs: dict[str, Any]  # model input name -> (t,) list; of pictures and sounds a tensor of any shape
    tokens: tuple[str, ...] = ()  # (t,) as the tokenizer writes them
    offsets: tuple[Span, ...] = ()  # (t,) into text or pair, see segments; (0, 0) for tokens in neither
    segments: tuple[int, ...] = ()  # (t,) 0: from text, 1: from pair, -1: special, added by the tokenizer (or a mask)
    truncated: bool = False
    media: Media | None = None  # the picture or sound in place of a text
    parts: tuple[Encoding, ...] = ()  # the two texts of a pair, if the model reads them one by one

    def __len__(self) -> int:
        """The number of tokens; of a picture or sound that has no tokens yet, the number to expect."""
        if self.media is not None and not self.tokens:
            return self.media.expected_tokens
        return len(self.tokens)

    @property
    def shape(self) -> tuple[int, ...]:
        """What inputs must agree in to share a batch without padding."""
        if self.media is None:
            return (len(self),)
        return tuple(size for tensor in self.inputs.values() for size in tensor.shape)

    def source(self, segment: int) -> str:
        """The text that a segment's offsets count in: 0 the text, 1 its pair."""
        return self.text if segment == 0 else self.text_pair or ""

    def select(self, indices: Sequence[int]) -> Encoding:
        """The same text with some of its tokens."""
        inputs = {}
        for name, values in self.inputs.items():
            inputs[name] = [values[k] for k in indices]
        tokens = tuple(self.tokens[k] for k in indices)
        offsets = tuple(self.offsets[k] for k in indices)
        segments = tuple(self.segments[k] for k in indices)
        return replace(self, inputs=inputs, tokens=tokens, offsets=offsets, segments=segments)


def join_pair(first: Encoding, second: Encoding) -> Encoding:
    """Two texts that the model reads one by one, as a pair: the tokens of the first, then those of the second."""
    segments = [*first.segments]
    for segment in second.segments:
        segments.append(1 if segment == 0 else segment)
    return Encoding(
        text=first.text,
        text_pair=second.text,
        inputs={},
        tokens=first.tokens + second.tokens,
        offsets=first.offsets + second.offsets,
        segments=tuple(segments),
        truncated=first.truncated or second.truncated,
        parts=(first, second),
    )


def check_text(text: object, name: str = "text") -> TextAndPair:
    """`text` as (text, pair or None); anything but a non-empty string or a pair of them is an error about `name`."""
    if not isinstance(text, tuple):
        return _check_string(text, name), None
    if len(text) != 2:
        raise ArgumentTypeError(
            Argument(name), f" is a tuple of {len(text)}; a tuple must be one (text, pair). Use a list for many"
        )
    return _check_string(text[0], f"{name}[0]"), _check_string(text[1], f"{name}[1]")


def _check_string(text: object, name: str) -> str:
    if not isinstance(text, str):
        kind = type(text).__name__
        advice = ""
        if is_frame(text) or is_data_set(text):
            advice = "; pass one of its columns"
        elif isinstance(text, Iterable):
            advice = "; pass a list for many texts"
        raise ArgumentTypeError(
            Argument(name), f" must be a string or a (text, pair) tuple of strings, not {kind}{advice}"
        )
    if not text.strip():
        problem = "only whitespace" if text else "empty"
        raise TextError(Argument(name), f" is {problem}; give at least one word")
    return check_readable(text, name)


def check_readable(text: str, name: str) -> str:
    """The text, without characters that no tokenizer reads."""
    unreadable = _UNREADABLE.search(text)
    if unreadable is not None:
        kind = "a NUL character" if unreadable[0] == "\0" else "a lone surrogate"
        raise TextError(Argument(name), f" has {kind} at {unreadable.start()}; remove it, or decode the text properly")
    return text


def encode(
    tokenizer: Tokenizer,
    texts: Sequence[object],
    names: Sequence[str] | None = None,
    *,
    limit: int | None = None,
    truncation: bool = False,
    strategy: str = "longest_first",
    windows: bool = False,
) -> list[Encoding]:
    """Encodings of texts and pairs, in order.

    `names` are the arguments that errors are about (None: "texts[0]", ...). A text of more than `limit` tokens is an
    error, or is cut by `truncation` with the tokenizer's `strategy`; `windows` says that the error may also advise to
    read the text in windows.
    """
    if names is None:
        names = [f"texts[{k}]" for k in range(len(texts))]
    checked = [check_text(text, name) for text, name in zip(texts, names, strict=True)]
    encodings = []
    for _, group in groupby(checked, key=lambda text: text[1] is None):  # a tokenizer call takes pairs or none
        encodings += _tokenize(tokenizer, list(group))
    complete = []
    for text, encoding, name in zip(checked, encodings, names, strict=True):
        length = len(encoding)
        if limit is not None and length > limit:
            if not truncation:
                advice = (", or ", Argument("windows", True), " to read all of it in parts") if windows else ()
                raise TextError(
                    Argument(name),
                    f" has {length} tokens, special ones included, but the model takes {limit}; shorten it or pass ",
                    Argument("truncation", True),
                    f" to explain its first {limit} tokens",
                    *advice,
                )
            outside_pair = length - encoding.segments.count(1)
            if strategy == "only_second" and outside_pair >= limit:
                raise TextError(Argument(name), ": its first text leaves no room for the second; shorten the first")
            (encoding,) = _tokenize(tokenizer, [text], limit, strategy)
        if max(encoding.segments, default=-1) < 0:
            raise TextError(Argument(name), " holds nothing that the tokenizer keeps; give at least one word")
        complete.append(encoding)
    return complete


def _tokenize(
    tokenizer: Tokenizer, texts: Sequence[TextAndPair], limit: int | None = None, strategy: str = "longest_first"
) -> list[Encoding]:
    """Encodings of texts that all have a pair or all have none, cut to `limit` tokens."""
    output = tokenizer(
        [text for text, _ in texts],
        [pair for _, pair in texts if pair is not None] or None,
        truncation=False if limit is None else strategy,
        max_length=limit,
        return_special_tokens_mask=True,
        return_offsets_mapping=bool(getattr(tokenizer, "is_fast", False)),
        verbose=False,
    )
    special_masks = output.pop("special_tokens_mask")
    offsets = output.pop("offset_mapping", None)
    encodings = []
    for k, (text, pair) in enumerate(texts):
        inputs = {name: list(values[k]) for name, values in output.items()}
        tokens = tuple(map(str, tokenizer.convert_ids_to_tokens(inputs["input_ids"])))
        text_offsets = None
        if offsets is None:
            segments = _segments_from_special_tokens(special_masks[k], paired=pair is not None)
            if pair is not None and 1 not in segments and limit is None:
                raise TextError(
                    f"{type(tokenizer).__name__} puts nothing between the two texts of a pair and reports no offsets, "
                    "so they cannot be told apart; use a fast tokenizer, or write the two as one text"
                )
        else:
            text_offsets = offsets[k]
            sequence_ids = output.sequence_ids(k)
            segments = tuple(-1 if sequence is None else sequence for sequence in sequence_ids)
        encoding = Encoding(
            text=text,
            text_pair=pair,
            inputs=inputs,
            tokens=tokens,
            offsets=locate((text, pair), tokens, segments, text_offsets),
            segments=segments,
            truncated=limit is not None,
        )
        encodings.append(_with_template_markers(encoding, tokenizer))
    return encodings


def _with_template_markers(encoding: Encoding, tokenizer: Tokenizer) -> Encoding:
    """The encoding of a text that a chat template has written: one BOS, and the template's markers are special tokens.

    A template writes the BOS into the text, before which the tokenizer puts another one.
    """
    bos = getattr(tokenizer, "bos_token", None)
    has_two = bos is not None and encoding.tokens[:2] == (bos, bos)
    if has_two and encoding.segments[:2] == (-1, 0):
        encoding = encoding.select(range(1, len(encoding)))
        encoding = replace(encoding, segments=(-1, *encoding.segments[1:]))
    if getattr(tokenizer, "chat_template", None) is None:
        return encoding
    markers = set(tokenizer.all_special_tokens)
    for added in tokenizer.added_tokens_decoder.values():
        if added.special:
            markers.add(added.content)
    segments = []
    for token, segment, (start, end) in zip(encoding.tokens, encoding.segments, encoding.offsets, strict=True):
        is_marker = segment >= 0 and token in markers and encoding.source(segment)[start:end] == token
        segments.append(-1 if is_marker else segment)
    return replace(encoding, segments=tuple(segments))


def _segments_from_special_tokens(special_mask: Sequence[int], *, paired: bool) -> tuple[int, ...]:
    """Segments by the special tokens alone: the first run of ordinary tokens is the text, all others its pair."""
    segments = []
    run = -1
    previous = 1
    for special in special_mask:
        if previous and not special:
            run += 1
        segments.append(-1 if special else min(run, int(paired)))
        previous = special
    return tuple(segments)


def locate(
    texts: TextAndPair, tokens: Sequence[str], segments: Sequence[int], offsets: Sequence[Span] | None = None
) -> tuple[Span, ...]:
    """Spans of all tokens, from the tokenizer's offsets or, without any, by a search of the texts."""
    spans = [(0, 0)] * len(tokens)
    for segment, source in enumerate(texts):
        indices = [k for k, token_segment in enumerate(segments) if token_segment == segment]
        if source is None or not indices:
            continue
        segment_tokens = [tokens[k] for k in indices]
        if offsets is None:
            segment_spans = search_spans(source, segment_tokens)
        else:
            segment_spans = tidy_spans(source, [offsets[k] for k in indices], segment_tokens)
        for k, span in zip(indices, segment_spans, strict=True):
            spans[k] = span
    return tuple(spans)
