"""Texts as each task reads them.

The conventions this file owns: of a question and its context only the context is ever cut. A mask is no part of the
text but stands for the token to predict, and so it is a special token. Special tokens after a text that is to be
continued are left out, for the next token comes right after the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gaflow.errors import Argument, ArgumentTypeError, GaflowError, TextError
from gaflow.inputs.encoding import Encoding
from gaflow.inputs.transformers_types import Tokenizer
from gaflow.tasks.input_reader import InputReader
from gaflow.tasks.text_location import quote


def read_texts(reader: InputReader, texts: Sequence[object], names: Sequence[str]) -> list[Encoding]:
    """Texts, or pairs of them."""
    return reader.encode(texts, names, windows=True)


def read_single(reader: InputReader, texts: Sequence[object], names: Sequence[str]) -> list[Encoding]:
    """Texts one by one, never in pairs."""
    for text, name in zip(texts, names, strict=True):
        if isinstance(text, tuple):
            raise ArgumentTypeError(
                Argument(name), " is a tuple, but this task reads one text at a time; use a list for many"
            )
    return reader.encode(texts, names)


def read_questions(reader: InputReader, questions: Sequence[object], names: Sequence[str]) -> list[Encoding]:
    """Tuples (question, context), where the context holds the answer, or dicts of these two."""
    pairs = []
    for question, name in zip(questions, names, strict=True):
        kind = type(question).__name__
        if isinstance(question, Mapping):
            kind = f"a dict of {', '.join(map(repr, question))}"
            if set(question) == {"question", "context"}:
                question = (question["question"], question["context"])
        if not isinstance(question, tuple):
            raise ArgumentTypeError(
                Argument(name),
                f" must be a (question, context) tuple for question answering, or a dict of these two, not {kind}",
            )
        pairs.append(question)
    encodings = reader.encode(pairs, names, strategy="only_second")
    for encoding, name in zip(encodings, names, strict=True):
        if 1 not in encoding.segments:
            raise TextError(
                Argument(name), ": its context holds nothing that the tokenizer keeps; give at least one word"
            )
    return encodings


def read_masked(reader: InputReader, texts: Sequence[object], names: Sequence[str]) -> list[Encoding]:
    """Texts or pairs with masks in them."""
    tokenizer = reader.processor
    if getattr(tokenizer, "mask_token_id", None) is None:
        raise GaflowError("the tokenizer has no mask token, so it cannot say which token is to be filled in")
    mask_token = tokenizer.mask_token
    encodings = []
    for encoding, name in zip(reader.encode(texts, names), names, strict=True):
        masks = masks_of(encoding.inputs["input_ids"], tokenizer)
        if not masks:
            cut = f" among the {len(encoding)} tokens that the model takes" if encoding.truncated else ""
            raise TextError(
                Argument(name),
                f" is {quote(encoding.text)}, which has no {mask_token}{cut}; write {mask_token} where a token is to "
                "be filled in",
            )
        segments = list(encoding.segments)
        for k in masks:
            segments[k] = -1
        encodings.append(replace(encoding, segments=tuple(segments)))
    return encodings


def masks_of(token_ids: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """The positions of the masks."""
    return [k for k, token in enumerate(token_ids) if token == tokenizer.mask_token_id]


def read_prompts(reader: InputReader, texts: Sequence[object], names: Sequence[str]) -> list[Encoding]:
    """Texts to be continued, which end with their last own token: what the tokenizer puts after them is left out."""
    prompts = []
    for encoding, name in zip(read_single(reader, texts, names), names, strict=True):
        if encoding.truncated:
            raise TextError(
                Argument(name),
                " is longer than the model takes, and truncation would cut off its end, after which the next token "
                "comes; leave out some of its beginning",
            )
        prompts.append(encoding.select(range(_length_of_own(encoding))))
    return prompts


def _length_of_own(encoding: Encoding) -> int:
    """The number of tokens up to the last one that stands in the text, which may be a marker of a chat template."""
    length = 0
    for position, segment in enumerate(encoding.segments):
        start, end = encoding.offsets[position]
        if segment >= 0 or end > start:
            length = position + 1
    return length
