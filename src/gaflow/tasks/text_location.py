"""A place in a text, as a user names it, and the tokens there.

A place is a token's position (`5`, or "#5"), characters (`(4, 9)`, or "4:9"), or a piece of the text itself. The
convention this file owns: characters are the text's own, and a place means every token that reaches into it. A piece
that occurs several times is several places; as a whole word if it ever is one, and spelt as given if it ever is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gaflow.errors import TargetError
from gaflow.inputs.encoding import Encoding
from gaflow.inputs.segmentation import Span
from gaflow.tasks.targets import as_integer

__all__ = ["TextLocation", "TokenSpan", "characters", "find", "parse_location", "piece", "quote"]

_SHOWN = 40  # characters of a text that errors quote


@dataclass(frozen=True)
class TextLocation:
    """What a user said: one of these."""

    token: int | None = None
    span: Span | None = None  # characters
    piece: str | None = None


@dataclass(frozen=True)
class TokenSpan:
    """Tokens that follow one another, and the characters that they stand for."""

    tokens: tuple[int, ...]
    span: Span


def parse_location(given: Any) -> TextLocation:
    """The place that `given` names; refuses what names none."""
    if isinstance(given, str):
        if match := re.fullmatch(r"#(\d+)", given.strip()):
            return TextLocation(token=int(match[1]))
        if match := re.fullmatch(r"(\d+):(\d+)", given.strip()):
            return TextLocation(span=(int(match[1]), int(match[2])))
        if given.strip():
            return TextLocation(piece=given.strip())
    elif isinstance(given, tuple):
        start, end = map(as_integer, given) if len(given) == 2 else (None, None)
        if start is not None and end is not None:
            return TextLocation(span=(start, end))
    elif (token := as_integer(given)) is not None:
        return TextLocation(token=token)
    raise TypeError(
        f"target {given!r} names no place: give a piece of the text, characters (start, end), or a token's position"
    )


def find(where: TextLocation, encoding: Encoding, segment: int, name: str) -> list[TokenSpan]:
    """The tokens of text (`segment` 0) or pair (1) at a place, once for every time that it occurs there; never none."""
    source = encoding.text if segment == 0 else encoding.text_pair or ""
    if where.token is not None:
        return [_token(where.token, encoding, segment, name)]
    if where.span is not None:
        start, end = where.span
        if not 0 <= start < end <= len(source):
            raise TargetError(
                f"{name}: characters {start} to {end} are no part of {quote(source)}, which has {len(source)}"
            )
        spans = [where.span]
    else:
        assert where.piece is not None
        spans = _occurrences(source, where.piece)
        if not spans:
            raise TargetError(f"{name}: {where.piece!r} is not in {quote(source)}; give a piece of it")
    found = [_covered(span, encoding, segment) for span in spans]
    there = [place for place in found if place is not None]
    if not there:
        cut = ", as far as the model reads it: it was truncated" if encoding.truncated else ""
        raise TargetError(f"{name}: there is no token at {_spelled(where)} of {quote(source)}{cut}")
    return there


def piece(encoding: Encoding, segment: int, span: Span) -> str:
    """The characters of `span`."""
    return (encoding.text if segment == 0 else encoding.text_pair or "")[span[0] : span[1]]


def characters(encoding: Encoding, tokens: Sequence[int]) -> Span:
    """From the first character of tokens to their last."""
    return min(encoding.offsets[k][0] for k in tokens), max(encoding.offsets[k][1] for k in tokens)


def quote(text: str) -> str:
    """The beginning of a text, for errors."""
    return repr(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}...")


def _token(k: int, encoding: Encoding, segment: int, name: str) -> TokenSpan:
    if not 0 <= k < len(encoding):
        raise TargetError(f"{name}: there is no token {k}; there are {len(encoding)}, special ones included")
    if encoding.segments[k] != segment:
        raise TargetError(f"{name}: token {k} is {encoding.tokens[k]!r}, which is no part of the text that is asked")
    return TokenSpan((k,), encoding.offsets[k])


def _covered(span: Span, encoding: Encoding, segment: int) -> TokenSpan | None:
    start, end = span
    inside = [
        k
        for k, ((a, b), s) in enumerate(zip(encoding.offsets, encoding.segments, strict=True))
        if s == segment and a < b and a < end and b > start
    ]
    return TokenSpan(tuple(inside), characters(encoding, inside)) if inside else None


def _occurrences(source: str, piece: str) -> list[Span]:
    """TextLocation `piece` is, at best spelt so and between other words."""
    for flags in (0, re.IGNORECASE):
        spans = [m.span() for m in re.finditer(re.escape(piece), source, flags)]
        whole = [span for span in spans if not _cuts(source, span[0]) and not _cuts(source, span[1])]
        if spans:
            return whole or spans
    return []


def _cuts(source: str, at: int) -> bool:
    """Whether a word goes on across a border."""
    return 0 < at < len(source) and source[at - 1].isalnum() and source[at].isalnum()


def _spelled(where: TextLocation) -> str:
    return repr(where.piece) if where.span is None else f"characters {where.span[0]} to {where.span[1]}"
