"""The colours that stand for scores.

Scores above 0 are orange, scores below 0 blue; people with any kind of colour blindness can tell the two apart. The
larger the score, the darker the shade (on a dark page: the lighter), so that shades also work in black and white.
Colour alone never carries the sign: every renderer also draws a line below negative scores.
"""

from __future__ import annotations

import math

RGB = tuple[int, int, int]
BLACK: RGB = (0, 0, 0)
WHITE: RGB = (255, 255, 255)
LEVELS = 16  # shades on either side of 0
POSITIVE_COLOUR = "orange"  # for legends
NEGATIVE_COLOUR = "blue"

# From score 0 to the largest; never so dark (on a dark page: so light) that the letters would have to change colour
_RAMPS = {
    ("light", 1): "ffffff fee3c8 fdc08a fb9550 e8600f",
    ("light", -1): "ffffff d9e8f6 aed1eb 78b3dc 3d8fcb",
    ("dark", 1): "1c1e22 442a1c 6f3c18 9a4a10 bf5604",
    ("dark", -1): "1c1e22 1a3149 1d476f 205f96 2674b8",
}


def level_of(score: float, largest: float) -> int:
    """The shade of a score, -LEVELS to LEVELS; `largest` and everything above it gets the strongest."""
    if largest == 0:
        if score == 0:
            return 0
        return int(math.copysign(LEVELS, score))
    fraction = max(-1.0, min(score / largest, 1.0))
    return round(fraction * LEVELS)


def shade(level: int, scheme: str = "light") -> RGB:
    """The background of level -LEVELS to LEVELS, on a "light" or a "dark" page."""
    sign = -1 if level < 0 else 1
    ramp = [rgb(code) for code in _RAMPS[scheme, sign].split()]
    fraction = min(abs(level) / LEVELS, 1.0) ** 1.5  # sets large scores apart where many are alike
    position = fraction * (len(ramp) - 1)
    step = min(int(position), len(ramp) - 2)
    return _mix(ramp[step], ramp[step + 1], position - step)


def underline(level: int, scheme: str = "light") -> RGB:
    """The line below a run, between its background and its letters: stronger for larger scores."""
    background = shade(level, scheme)
    strength = 0.3 + 0.6 * min(abs(level) / LEVELS, 1.0)
    return _mix(background, foreground(background), strength)


def foreground(background: RGB) -> RGB:
    """Black or white, whichever contrasts more: at least 4.58 to 1 on any colour."""
    if contrast(BLACK, background) >= contrast(WHITE, background):
        return BLACK
    return WHITE


def contrast(a: RGB, b: RGB) -> float:
    """WCAG 2's contrast ratio of two colours, 1 to 21."""
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: RGB) -> float:
    """WCAG 2's relative luminance, 0 (black) to 1 (white): what is left in a black and white print."""
    red, green, blue = (_linear(channel) for channel in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def hex_code(colour: RGB) -> str:
    """A colour as style sheets and terminals write it: "#e8600f"."""
    return "#{:02x}{:02x}{:02x}".format(*colour)


def _linear(channel: int) -> float:
    """A channel of sRGB, 0 to 255, in linear light, 0 to 1."""
    if channel <= 10:
        return channel / 3294.6
    return ((channel / 255 + 0.055) / 1.055) ** 2.4


def _mix(a: RGB, b: RGB, amount: float) -> RGB:
    red, green, blue = (round(x + amount * (y - x)) for x, y in zip(a, b, strict=True))
    return red, green, blue


def rgb(code: str) -> RGB:
    """The colour that style sheets write as six digits: "e8600f"."""
    red, green, blue = bytes.fromhex(code)
    return red, green, blue
