"""Texts for readers: what may be printed, which characters a score belongs to, and how numbers are written.

The convention this file owns: texts are cut between characters as readers see them, never inside an emoji or a letter
and its accents. `gaflow.errors.visible` writes out what controls a screen.
"""

from __future__ import annotations

import math
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise

import regex

from gaflow.attribution.words import TextUnit
from gaflow.errors import escape, visible

LONGEST_WORD = 60  # characters of a word, token or name in a table
LONGEST_LINE = 1000  # characters of a message


def shortened(text: str, longest: int = LONGEST_WORD) -> str:
    """The beginning of `text` on one line; a text of invisible characters only is written as escapes."""
    line = " ".join(visible(text).split())
    if all(unicodedata.category(character) == "Cf" for character in line):  # byte order marks, zero-width spaces
        line = "".join(escape(character) for character in line)
    if len(line) <= longest:
        return line
    return beginning(line, longest - 1) + "…"


def one_line(text: str) -> str:
    """`text` on a single line that is safe to print, at most 1,000 characters long."""
    line = " ".join(visible(text).split())
    if len(line) <= LONGEST_LINE:
        return line
    return beginning(line, LONGEST_LINE - 3) + "..."


def beginning(line: str, longest: int) -> str:
    """At most `longest` characters of a line, without a broken emoji at the end."""
    end = 0
    for cluster in regex.finditer(r"\X", line[: longest + 1]):
        if cluster.end() <= longest:
            end = cluster.end()
    return line[: end or longest]


def number_format(largest: float) -> Callable[[float], str]:
    """A function that writes scores up to `largest`: all with the same decimals, four digits for the largest."""
    if largest > 0 and not 1e-4 <= largest < 1e6:
        return lambda score: f"{score:.3e}"
    decimals = 3
    if largest > 0:
        decimals = max(3 - math.floor(math.log10(largest)), 0)
    return lambda score: f"{score:.{decimals}f}"


def runs(source: str, units: Sequence[TextUnit]) -> list[TextUnit]:
    """The scored parts of `source` in order, for its tokens, words or sentences; other characters are in no part.

    Grapheme clusters (an emoji and its skin tone, a letter and its accents) stay whole, because a change of colour
    inside them would break the glyph. They get the sum of their tokens' scores.
    """
    clusters = [match.start() for match in regex.finditer(r"\X", source)]
    clusters.append(len(source))
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
    for (start, end), inside in zip(pairwise(borders), members, strict=False):  # nothing is behind the last border
        if inside:
            tokens = sorted({token for unit in inside for token in unit.tokens})
            score = math.fsum(unit.score for unit in inside)
            run = TextUnit(source[start:end], start, end, score, tokens=tuple(tokens), segment=inside[0].segment)
            result.append(run)
    return result
