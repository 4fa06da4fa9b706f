"""Where scores lie on a text, and the shades that show them.

A shade grows with the size of the score: orange above 0, blue below, which people with any kind of colour blindness
tell apart. On a light page it gets darker step by step, on a dark page lighter, so that it also works without
colours; the sign is never told by colour alone (negative runs are underlined, see static/attribution.css).

The convention this file owns: **what comes from outside is shown, never obeyed**. Characters that steer a reader's
screen (control codes, bidirectional overrides) or cannot be stored as UTF-8 are written out, as in \\x1b.
"""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gaflow.attribution.attribution import TextUnit

__all__ = [
    "LEVELS",
    "Run",
    "contrast",
    "foreground",
    "luminance",
    "number_format",
    "runs",
    "shade",
    "spelled",
    "underline",
    "visible",
]

RGB = tuple[int, int, int]
BLACK, WHITE = (0, 0, 0), (255, 255, 255)
LEVELS = 16  # shades on either side of 0

# From score 0 to the largest; never so dark (on a dark page: so light) that the letters would have to change colour
_RAMPS: dict[tuple[str, int], tuple[str, ...]] = {
    ("light", 1): ("ffffff", "fee3c8", "fdc08a", "fb9550", "e8600f"),
    ("light", -1): ("ffffff", "d9e8f6", "aed1eb", "78b3dc", "3d8fcb"),
    ("dark", 1): ("1c1e22", "442a1c", "6f3c18", "9a4a10", "bf5604"),
    ("dark", -1): ("1c1e22", "1a3149", "1d476f", "205f96", "2674b8"),
}

# C0 but tab and newline, DEL, C1, line separators, explicit bidirectional controls, lone surrogates, non-characters
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)


@dataclass(frozen=True)
class Run:
    """Neighbouring characters that the same tokens stand for."""

    start: int  # in characters of the source
    end: int
    score: float  # the sum over its tokens
    tokens: tuple[int, ...]  # indices into Attribution.tokens


def visible(text: str) -> str:
    """`text` with everything that could steer a screen written out; newlines (of any system) and tabs stay."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _STEERING.sub(lambda found: _written_out(ord(found[0])), lines)


def _written_out(code: int) -> str:
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def runs(source: str, pieces: Sequence[TextUnit]) -> list[Run]:
    """The coloured parts of `source` in order, given its tokens or words; what none of them covers is in no run.

    Characters drawn as one (an emoji and its skin tone, a letter and its accents) stay together: a change of
    colour between them would tear them apart. They have the sum of all their tokens' scores.
    """
    starts = _cluster_starts(source)
    spans = {k: (_down(starts, p.start), _up(starts, p.end)) for k, p in enumerate(pieces) if p.start < p.end}
    edges = sorted({edge for span in spans.values() for edge in span})
    members: list[list[int]] = [[] for _ in edges]
    for k, (start, end) in spans.items():
        for at in range(bisect_left(edges, start), bisect_left(edges, end)):
            members[at].append(k)
    found: list[Run] = []
    for at, mine in enumerate(members):
        if mine:
            tokens = sorted({token for k in mine for token in pieces[k].tokens})
            score = math.fsum(pieces[k].score for k in mine)
            found.append(Run(edges[at], edges[at + 1], score, tuple(tokens)))
    return found


def _down(starts: Sequence[int], at: int) -> int:
    return starts[bisect_right(starts, at) - 1]


def _up(starts: Sequence[int], at: int) -> int:
    return starts[bisect_left(starts, at)]


def _cluster_starts(text: str) -> list[int]:
    """Where the characters begin that are drawn as one, and the end of the text."""
    starts: list[int] = []
    flags = 0
    for at, char in enumerate(text):
        flags = flags + 1 if "\U0001f1e6" <= char <= "\U0001f1ff" else 0
        attached = (
            char in "\u200c\u200d"
            or unicodedata.category(char).startswith("M")
            or "\U0001f3fb" <= char <= "\U0001f3ff"  # skin tones
            or "\U000e0020" <= char <= "\U000e007f"  # the tags of regional flags
            or (at > 0 and text[at - 1] == "\u200d")
            or (flags > 0 and flags % 2 == 0)  # two letters make a flag
        )
        if not at or not attached:
            starts.append(at)
    return [*starts, len(text)]


def number_format(largest: float) -> Callable[[float], str]:
    """How to write scores up to `largest`: all with the same decimals, four digits for the largest."""
    if largest > 0 and not 1e-4 <= largest < 1e6:
        return lambda score: f"{score:.3e}"
    decimals = 3 if largest == 0 else max(3 - math.floor(math.log10(largest)), 0)
    return lambda score: f"{score:.{decimals}f}"


def spelled(facts: Mapping[str, float | str]) -> dict[str, str]:
    """What a method knows beside its scores, as a reader wants it."""
    return {k.replace("_", " "): v if isinstance(v, str) else f"{v:.4g}" for k, v in facts.items()}


def shade(level: int, scheme: str = "light") -> RGB:
    """The background of level -LEVELS to LEVELS, on a "light" or a "dark" page."""
    ramp = [_rgb(colour) for colour in _RAMPS[scheme, -1 if level < 0 else 1]]
    amount = min(abs(level) / LEVELS, 1.0) ** 1.5  # sets large scores apart where many are alike
    at = amount * (len(ramp) - 1)
    low = min(int(at), len(ramp) - 2)
    return _mix(ramp[low], ramp[low + 1], at - low)


def underline(level: int, scheme: str = "light") -> RGB:
    """The line below a run, between its background and its letters: stronger for larger scores."""
    back = shade(level, scheme)
    return _mix(back, foreground(back), 0.3 + 0.6 * min(abs(level) / LEVELS, 1.0))


def foreground(back: RGB) -> RGB:
    """Black or white, whichever contrasts more: at least 4.58 to 1 on any colour."""
    return max((BLACK, WHITE), key=lambda colour: contrast(colour, back))


def contrast(a: RGB, b: RGB) -> float:
    """WCAG 2's contrast ratio of two colours, 1 to 21."""
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: RGB) -> float:
    """WCAG 2's relative luminance, 0 (black) to 1 (white): what is left in a black and white print."""
    linear = [c / 3294.6 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _mix(a: RGB, b: RGB, amount: float) -> RGB:
    red, green, blue = (round(x + amount * (y - x)) for x, y in zip(a, b, strict=True))
    return red, green, blue


def _rgb(colour: str) -> RGB:
    return int(colour[:2], 16), int(colour[2:4], 16), int(colour[4:], 16)
