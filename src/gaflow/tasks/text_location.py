"""A location in a text, as a user gives it, and the tokens there.

A location is a token's position (`5`, or "#5"), characters (`(4, 9)`, or "4:9"), or a piece of the text itself. The
convention this file owns: characters are those of the original text, and a location means every token that overlaps it.
A piece that occurs several times is several locations. Occurrences spelt as given come before those of other case, and
whole words before parts of words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gaflow.errors import Argument, ArgumentTypeError
from gaflow.inputs.encoding import Encoding
from gaflow.inputs.segmentation import Span
from gaflow.tasks.targets import as_integer, target_error

TextLocation = int | Span | str  # a token's position, characters, or a piece of the text
_QUOTED_CHARACTERS = 40  # of a text in an error


@dataclass(frozen=True)
class TokenSpan:
    """Consecutive tokens, and the characters that they stand for."""

    tokens: tuple[int, ...]
    span: Span

    @classmethod
    def of(cls, encoding: Encoding, tokens: Sequence[int]) -> TokenSpan:
        """From the first character of the tokens to their last."""
        start = min(encoding.offsets[k][0] for k in tokens)
        end = max(encoding.offsets[k][1] for k in tokens)
        return cls(tuple(tokens), (start, end))


def parse_location(target: object) -> TextLocation:
    """The location that `target` gives; ArgumentTypeError if it gives none."""
    if isinstance(target, str):
        piece = target.strip()
        if match := re.fullmatch(r"#(\d+)", piece):
            return int(match[1])
        if match := re.fullmatch(r"(\d+):(\d+)", piece):
            return int(match[1]), int(match[2])
        if piece:
            return piece
    elif isinstance(target, tuple):
        match [as_integer(value) for value in target]:
            case [int(start), int(end)]:
                return start, end
    else:
        token = as_integer(target)
        if token is not None:
            return token
    raise ArgumentTypeError(
        Argument("target"),
        f" {target!r} is no location: give a piece of the text, characters (start, end), or a token's position",
    )


def find_tokens(location: TextLocation, encoding: Encoding, segment: int, name: str) -> list[TokenSpan]:
    """The tokens at a location of the text (`segment` 0) or its pair (1): one span for each occurrence, at least one.

    `name` is the argument that holds the text.
    """
    source = encoding.source(segment)
    if isinstance(location, int):
        if not 0 <= location < len(encoding):
            raise target_error(f": there is no token {location} in ", Argument(name), f"; there are {len(encoding)}")
        if encoding.segments[location] != segment:
            advice = f" is {encoding.tokens[location]!r}; choose one of {quote(source)}"
            raise target_error(f": token {location} of ", Argument(name), advice)
        return [TokenSpan.of(encoding, [location])]
    occurrences = _occurrences(source, location)
    spans = []
    for first, last in occurrences:
        tokens = []
        for k, (start, end) in enumerate(encoding.offsets):
            overlaps = max(start, first) < min(end, last)
            if overlaps and encoding.segments[k] == segment:
                tokens.append(k)
        if tokens:
            spans.append(TokenSpan.of(encoding, tokens))
    if not spans:
        problem = "has no token in" if occurrences else "is not in"
        length = f"{len(source)} characters"
        if encoding.truncated:
            length += ", truncated"
        raise target_error(
            f": {location!r} {problem} {quote(source)} (", Argument(name), f", {length}); give a piece of it"
        )
    return spans


def tokens_with_characters(encoding: Encoding, segments: Sequence[int] = (0, 1)) -> list[int]:
    """Ordinary tokens, or those of one segment; tokens without characters only if there are no others."""
    tokens = []
    with_characters = []
    for k, (start, end) in enumerate(encoding.offsets):
        if encoding.segments[k] in segments:
            tokens.append(k)
            if start < end:
                with_characters.append(k)
    return with_characters or tokens


def quote(text: str) -> str:
    """The beginning of a text, for errors."""
    if len(text) > _QUOTED_CHARACTERS:
        text = f"{text[: _QUOTED_CHARACTERS - 3]}..."
    return repr(text)


def _occurrences(source: str, location: Span | str) -> list[Span]:
    """The characters at a location: of a piece, wherever it occurs, at best spelt so and as whole words."""
    if isinstance(location, tuple):
        start, end = location
        return [location] if 0 <= start < end <= len(source) else []
    pattern = re.escape(location)
    for flags in (re.NOFLAG, re.IGNORECASE):
        spans = [match.span() for match in re.finditer(pattern, source, flags)]
        if spans:
            words = [span for span in spans if not _is_inside_word(source, *span)]
            return words or spans
    return []


def _is_inside_word(source: str, start: int, end: int) -> bool:
    """Whether a word goes on across one of the borders of a span."""
    for border in (start, end):
        if 0 < border < len(source) and source[border - 1].isalnum() and source[border].isalnum():
            return True
    return False
