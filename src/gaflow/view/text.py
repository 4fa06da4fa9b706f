"""Texts for readers: what may be printed, which characters a score belongs to, and how numbers are written.

The convention this file owns: **what comes from outside is displayed, never obeyed**. Characters that control a screen
(control codes, bidirectional overrides) or cannot be stored as UTF-8 are written as escapes such as \\x1b.
"""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import regex

if TYPE_CHECKING:
    from gaflow.attribution.words import TextUnit

__all__ = ["Run", "number_format", "one_line", "runs", "shortened", "visible"]

LONGEST_WORD = 60  # characters of a word, token or name in a table
LONGEST_LINE = 1000  # characters of a message

# C0 but tab and newline, DEL, C1, line separators, explicit bidirectional controls, lone surrogates, non-characters
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)


def visible(text: str) -> str:
    """`text` with control characters written as escapes; newlines (of any system) and tabs stay."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub(lambda match: _escape(match[0]), lines)


def _escape(character: str) -> str:
    code = ord(character)
    if code < 256:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}"


def shortened(text: str, longest: int = LONGEST_WORD) -> str:
    """The beginning of `text` on one line; a text of invisible characters only is written as escapes."""
    line = " ".join(visible(text).split())
    if all(unicodedata.category(character) == "Cf" for character in line):  # byte order marks, zero-width spaces
        line = "".join(f"\\u{ord(character):04x}" for character in line)
    if len(line) <= longest:
        return line
    return f"{line[: longest - 1]}…"


def one_line(text: str) -> str:
    """`text` on a single line that is safe to print, at most 1,000 characters long."""
    line = " ".join(visible(text).split())
    if len(line) <= LONGEST_LINE:
        return line
    return line[: LONGEST_LINE - 3] + "..."


def number_format(largest: float) -> Callable[[float], str]:
    """A function that writes scores up to `largest`: all with the same decimals, four digits for the largest."""
    if largest > 0 and not 1e-4 <= largest < 1e6:
        return lambda score: f"{score:.3e}"
    decimals = 3
    if largest > 0:
        decimals = max(3 - math.floor(math.log10(largest)), 0)
    return lambda score: f"{score:.{decimals}f}"


@dataclass(frozen=True)
class Run:
    """Neighbouring characters that belong to the same tokens."""

    start: int  # in characters of the source
    end: int
    score: float  # the sum over its tokens
    tokens: tuple[int, ...]  # indices into Attribution.tokens


def runs(source: str, units: Sequence[TextUnit]) -> list[Run]:
    """The scored parts of `source` in order, for its tokens, words or sentences; other characters are in no run.

    Grapheme clusters (an emoji and its skin tone, a letter and its accents) stay whole, because a change of colour
    inside them would break the glyph. They get the sum of their tokens' scores.
    """
    clusters = _cluster_starts(source)
    spans = []
    for unit in units:
        if unit.start < unit.end:
            start = clusters[bisect_right(clusters, unit.start) - 1]
            end = clusters[bisect_left(clusters, unit.end)]
            spans.append((start, end, unit))
    borders = sorted({border for start, end, _ in spans for border in (start, end)})
    members: list[list[TextUnit]] = [[] for _ in borders]  # units between each border and the next
    for start, end, unit in spans:
        for index in range(bisect_left(borders, start), bisect_left(borders, end)):
            members[index].append(unit)
    result = []
    for index, inside in enumerate(members):
        if inside:
            tokens = sorted({token for unit in inside for token in unit.tokens})
            score = math.fsum(unit.score for unit in inside)
            result.append(Run(start=borders[index], end=borders[index + 1], score=score, tokens=tuple(tokens)))
    return result


def _cluster_starts(text: str) -> list[int]:
    """The first character of each grapheme cluster, and the end of the text."""
    starts = [match.start() for match in regex.finditer(r"\X", text)]
    return [*starts, len(text)]
