"""Where tokens lie in the original text.

The convention this file owns: a span `(start, end)` counts characters of the text as the user wrote it, before any
lower-casing, accent stripping or byte-level encoding. It never begins or ends with whitespace, takes in combining marks
that the tokenizer dropped, and is empty for tokens that stand for whitespace alone. Several tokens may share one
character (the bytes of an emoji).
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence

from gaflow.inputs.segmentation import Span, continues_character, word_units

_SPACE_MARKERS = "▁Ġ"  # how SentencePiece and byte-level vocabularies write a space


def tidy_spans(text: str, spans: Sequence[Span], tokens: Sequence[str]) -> list[Span]:
    """The tokenizer's own offsets of consecutive tokens of `text`, brought to the convention of this file."""
    tidy = []
    has_continuations = not text.isascii()  # no ASCII character belongs to the one before it
    for k, ((start, end), token) in enumerate(zip(spans, tokens, strict=True)):
        piece = text[start:end]
        stripped = piece.strip()
        if stripped != piece:
            start += len(piece) - len(piece.lstrip())
        end = start + len(stripped)
        is_space_marker = token[:1] in _SPACE_MARKERS and token != "" and token.strip(_SPACE_MARKERS) == ""
        if is_space_marker and stripped != token:
            end = start  # a space put before the first word, which claims that word's first letter
        if has_continuations:
            next_start = spans[k + 1][0] if k + 1 < len(spans) else len(text)
            while start < end < next_start and continues_character(text[end]):
                end += 1
        tidy.append((start, end))
    return tidy


def search_spans(text: str, tokens: Sequence[str]) -> list[Span]:
    """Spans of consecutive tokens of `text`, for tokenizers that report no offsets.

    Tokens that spell the text out, as characters or as bytes, are counted. Others are searched in order, ignoring case,
    accents and the vocabulary's own markers. Tokens that are not in the text (unknown words) share the gap between
    their neighbours.
    """
    for to_bytes in (str.encode, _from_byte_characters):
        spelled = [to_bytes(token) for token in tokens]
        if text.encode().startswith(b"".join(spelled)):
            return tidy_spans(text, _count_bytes(text, spelled), tokens)
    return tidy_spans(text, _fill_gaps(text, _search(text, tokens)), tokens)


def _from_byte_characters(token: str) -> bytes:
    """The bytes of a token if every byte is written as the character of its number."""
    if len(token) == 1 and ord(token) < 256:
        return bytes([ord(token)])
    return token.encode()


def _count_bytes(text: str, spelled: Sequence[bytes]) -> list[Span]:
    """The characters that consecutive pieces of the text's bytes touch; pieces of one character share it."""
    characters = []  # that each byte belongs to
    for k, char in enumerate(text):
        characters += [k] * len(char.encode())
    characters.append(len(text))
    spans = []
    cursor = 0
    for piece in spelled:
        start = characters[cursor]
        cursor += len(piece)
        spans.append((start, characters[cursor - 1] + 1 if piece else start))
    return spans


def _search(text: str, tokens: Sequence[str]) -> list[Span | None]:
    """The spans of tokens in `text`, ignoring case, accents and markers of words; None for tokens not in it."""
    folded, origin = _fold(text)
    words = word_units(folded)
    spans = []
    cursor = 0
    unknown = 0  # tokens just before that are not in the text
    for token in tokens:
        bare = token.removesuffix("</w>").removesuffix("@@").removeprefix("##")
        unmarked = bare.strip(_SPACE_MARKERS) or token.strip(_SPACE_MARKERS)
        surface = _fold(unmarked)[0].strip()
        position = _next_occurrence(folded, surface, cursor, words, unknown)
        if position < 0:
            spans.append(None)
            unknown += 1
            continue
        cursor = position + len(surface)
        unknown = 0
        start = origin[position]
        spans.append((start, origin[cursor - 1] + 1 if surface else start))
    return spans


def _next_occurrence(folded: str, surface: str, cursor: int, words: Sequence[Span], unknown: int) -> int:
    """Where `surface` comes next, or -1; after unknown words, preferably at the beginning of a later word."""
    if unknown and surface:
        later = bisect_left(words, (cursor, 0))
        for start, _ in words[later + unknown :]:
            if folded.startswith(surface, start):
                return start
    return folded.find(surface, cursor)


def _fill_gaps(text: str, spans: Sequence[Span | None]) -> list[Span]:
    """Spans in place of every None: one word of the gap for each token if the numbers agree, else the whole gap."""
    filled = []
    while len(filled) < len(spans):
        span = spans[len(filled)]
        if span is not None:
            filled.append(span)
            continue
        start = filled[-1][1] if filled else 0
        end = len(text)
        count = 0  # tokens in the gap
        for following in spans[len(filled) :]:
            if following is not None:
                end = max(start, following[0])
                break
            count += 1
        filled += _share_gap(text[start:end], start, count)
    return filled


def _share_gap(gap: str, start: int, count: int) -> list[Span]:
    """The spans of `count` unknown tokens in the piece `gap` of a text, which begins at `start`."""
    spaced = [match.span() for match in re.finditer(r"\S+", gap)]
    for words in (word_units(gap), spaced):
        if len(words) == count:
            return [(start + first, start + last) for first, last in words]
    return [(start, start + len(gap))] * count


def _fold(text: str) -> tuple[str, list[int]]:
    """Text without case and accents, and the original position of each of its characters (and of its end)."""
    folded = []
    origin = []
    for k, char in enumerate(text):
        for plain in unicodedata.normalize("NFKD", char).casefold():
            if not unicodedata.category(plain).startswith("M"):
                folded.append(plain)
                origin.append(k)
    return "".join(folded), [*origin, len(text)]
