"""Texts as each task reads them.

The conventions this file owns: of a question and its context only the context is ever cut; a mask is no part of the
text, but the question asked about it, and so a special token; what the tokenizer puts after a text that is to be
continued is left out, for the next token comes after the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gaflow.errors import GaflowError, TextError
from gaflow.inputs.encoding import Encoding, check_text, encode, length_limit
from gaflow.tasks.text_location import quote

__all__ = ["masks_of", "read_masked", "read_prompts", "read_questions", "read_single", "read_texts"]


def read_texts(
    model: Any, tokenizer: Any, items: Sequence[Any], truncation: bool, names: Sequence[str]
) -> list[Encoding]:
    """Texts, or pairs of them."""
    return _read(model, tokenizer, items, truncation, names, ", or windows=True to read all of it in parts")


def _read(
    model: Any, tokenizer: Any, items: Sequence[Any], truncation: bool, names: Sequence[str], advice: str = ""
) -> list[Encoding]:
    checked = [check_text(item, name) for item, name in zip(items, names, strict=True)]
    limit = length_limit(model, tokenizer)
    return encode(tokenizer, checked, limit=limit, truncation=truncation, names=names, advice=advice)


def read_single(
    model: Any, tokenizer: Any, items: Sequence[Any], truncation: bool, names: Sequence[str]
) -> list[Encoding]:
    """Texts one by one, never in pairs."""
    for item, name in zip(items, names, strict=True):
        if isinstance(item, tuple):
            raise TypeError(f"{name} is a tuple, but this task reads one text at a time; use a list for many")
    return _read(model, tokenizer, items, truncation, names)


def read_questions(
    model: Any, tokenizer: Any, items: Sequence[Any], truncation: bool, names: Sequence[str]
) -> list[Encoding]:
    """Pairs of a question and the context that holds its answer; a dict with these two names will do."""
    pairs = []
    for item, name in zip(items, names, strict=True):
        given = (item["question"], item["context"]) if _is_question(item) else item
        if not isinstance(given, tuple):
            what = f"a dict of {', '.join(map(repr, item))}" if isinstance(item, Mapping) else type(item).__name__
            raise TypeError(
                f"{name} must be a (question, context) tuple for question answering, or a dict of these two, not {what}"
            )
        pairs.append(check_text(given, name))
    limit = length_limit(model, tokenizer)
    found = encode(tokenizer, pairs, limit=limit, truncation=truncation, names=names, cut="only_second")
    for encoding, name in zip(found, names, strict=True):
        if 1 not in encoding.segments:
            raise TextError(f"{name}: its context holds nothing that the tokenizer keeps; give at least one word")
    return found


def _is_question(item: Any) -> bool:
    return isinstance(item, Mapping) and set(item) == {"question", "context"}


def read_masked(
    model: Any, tokenizer: Any, items: Sequence[Any], truncation: bool, names: Sequence[str]
) -> list[Encoding]:
    """Texts with masks in them."""
    if getattr(tokenizer, "mask_token_id", None) is None:
        raise GaflowError("the tokenizer has no mask token, so it cannot say which token is to be filled in")
    found = []
    for encoding, name in zip(_read(model, tokenizer, items, truncation, names), names, strict=True):
        there = set(masks_of(encoding, tokenizer))
        if not there:
            cut = f" among the {len(encoding)} tokens that the model takes" if encoding.truncated else ""
            raise TextError(
                f"{name} is {quote(encoding.text)}, which has no {tokenizer.mask_token}{cut}; write "
                f"{tokenizer.mask_token} where a token is to be filled in"
            )
        segments = tuple(-1 if k in there else s for k, s in enumerate(encoding.segments))
        found.append(replace(encoding, segments=segments))
    return found


def masks_of(encoding: Encoding, tokenizer: Any) -> list[int]:
    """Where the masks are."""
    return [k for k, token in enumerate(encoding.inputs["input_ids"]) if token == tokenizer.mask_token_id]


def read_prompts(
    model: Any, tokenizer: Any, items: Sequence[Any], truncation: bool, names: Sequence[str]
) -> list[Encoding]:
    """Texts to be continued, which end with their last own token."""
    found = []
    for encoding, name in zip(read_single(model, tokenizer, items, truncation, names), names, strict=True):
        if encoding.truncated:
            raise TextError(
                f"{name} is longer than the model takes, and its end, after which the next token comes, would be cut "
                "off; leave out some of its beginning"
            )
        n = max(k + 1 for k, segment in enumerate(encoding.segments) if segment >= 0)
        found.append(
            replace(
                encoding,
                inputs={key: values[:n] for key, values in encoding.inputs.items()},
                tokens=encoding.tokens[:n],
                offsets=encoding.offsets[:n],
                segments=encoding.segments[:n],
            )
        )
    return found
