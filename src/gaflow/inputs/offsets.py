"""Where tokens and words lie in the original text.

The convention this file owns: a span `(start, end)` counts characters of the text as the user wrote it,
before any lower-casing, accent stripping or byte-level encoding. It never begins or ends with whitespace,
takes in combining marks that the tokenizer dropped, and is empty for tokens that stand for whitespace alone.
Several tokens may share one character (the bytes of an emoji).

Words are found in the text, not taken from the tokenizer, so that two models agree on what a word is: letters
and digits with inner apostrophes; runs of punctuation; runs of symbols; single characters in scripts written
without spaces. Words that one token reaches into are one word, and whitespace tokens go with the word that
follows, so every ordinary token belongs to exactly one word and word scores add up to the ordinary token
scores exactly.

Sentences are found in the text too: they end with a full stop, question or exclamation mark, quotes and brackets
included, or with a paragraph; not after initials and a few abbreviations, nor, in a text that has capitals at all,
where a small letter follows. A token belongs to the sentence that it begins in.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Span", "WordSpan", "search_spans", "sentence_spans", "tidy_spans", "word_spans"]

Span = tuple[int, int]

# Scripts written without spaces: Thai, Lao, Myanmar, Khmer, kana, Han
_UNSPACED = (
    (0x0E00, 0x0EFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x3040, 0x30FF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x323AF),
)
_JOINERS = "\u200c\u200d"  # zero-width: they glue emoji and letters together
_SENTENCE_END = re.compile(r"(?P<mark>[.!?…]+)[\"'”’»)\]]*(?=\s)|[。！？]+[」』”’）]*|\n\s*\n")
_SHORT_FORMS = {"mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "vs", "e.g", "i.e", "cf", "fig", "vol", "approx"}
_SPACE_MARKERS = "▁Ġ"  # how SentencePiece and byte-level vocabularies write a space


@dataclass(frozen=True)
class WordSpan:
    """A word of the text and the tokens it is made of."""

    start: int
    end: int
    tokens: tuple[int, ...]


def tidy_spans(text: str, spans: Sequence[Span], tokens: Sequence[str]) -> list[Span]:
    """The tokenizer's own offsets of consecutive tokens of `text`, brought to the convention of this file."""
    tidy: list[Span] = []
    for k, ((start, end), token) in enumerate(zip(spans, tokens, strict=True)):
        while start < end and text[start].isspace():
            start += 1
        while end > start and text[end - 1].isspace():
            end -= 1
        if start < end and token and not token.strip(_SPACE_MARKERS) and text[start:end] != token:
            end = start  # a space put before the first word, which claims that word's first letter
        following = spans[k + 1][0] if k + 1 < len(spans) else len(text)
        while start < end < following and _continues(text[end]):
            end += 1
        tidy.append((start, end))
    return tidy


def search_spans(text: str, tokens: Sequence[str]) -> list[Span]:
    """Spans of consecutive tokens of `text`, for tokenizers that report no offsets.

    Tokens that spell the text out, as characters or as bytes, say where they are. Others are looked up in order,
    ignoring case, accents and the vocabulary's own markers. Tokens that are not in the text (unknown words) share the
    gap between their neighbours.
    """
    for spell in (str.encode, _as_byte):
        spelled = [spell(token) for token in tokens]
        if text.encode().startswith(b"".join(spelled)):
            return tidy_spans(text, _count(text, spelled), tokens)
    folded, origin = _fold(text)
    starts = [start for start, _ in _units(folded)]
    found: list[Span | None] = []
    cursor = unknown = 0
    for token in tokens:
        surface = _fold(_surface(token))[0].strip()
        at = _locate(folded, surface, cursor, starts, unknown)
        if at < 0:
            found.append(None)
            unknown += 1
            continue
        cursor, unknown = at + len(surface), 0
        found.append((origin[at], origin[cursor - 1] + 1 if surface else origin[at]))
    return tidy_spans(text, _fill(text, found), tokens)


def _as_byte(token: str) -> bytes:
    """What a token stands for if every byte is written as the character of its number."""
    return bytes([ord(token)]) if len(token) == 1 and ord(token) < 256 else token.encode()


def _count(text: str, spelled: Sequence[bytes]) -> list[Span]:
    """The characters that pieces of the text's bytes touch; those of one character share it."""
    owners = [k for k, char in enumerate(text) for _ in char.encode()]
    spans: list[Span] = []
    cursor = 0
    for piece in spelled:
        mine = owners[cursor : cursor + len(piece)]
        here = owners[cursor] if cursor < len(owners) else len(text)
        spans.append((mine[0], mine[-1] + 1) if mine else (here, here))
        cursor += len(piece)
    return spans


def _locate(folded: str, surface: str, cursor: int, starts: Sequence[int], unknown: int) -> int:
    """Where `surface` comes next; after unknown words, preferably at the beginning of a later word."""
    if unknown and surface:
        later = [s for s in starts if s >= cursor][unknown:]
        at = next((s for s in later if folded.startswith(surface, s)), -1)
        if at >= 0:
            return at
    return folded.find(surface, cursor)


def _fill(text: str, found: Sequence[Span | None]) -> list[Span]:
    """Spans with every None replaced: one word of the gap each if they are as many, else the whole gap."""
    spans: list[Span] = []
    for span in found:
        if span is not None:
            spans.append(span)
            continue
        k = len(spans)
        first = next((j + 1 for j in reversed(range(k)) if found[j] is not None), 0)
        last = next((j for j in range(k, len(found)) if found[j] is not None), len(found))
        start = spans[first - 1][1] if first else 0
        end = max(start, found[last][0] if last < len(found) else len(text))  # type: ignore[index]
        spaced = [match.span() for match in re.finditer(r"\S+", text[start:end])]
        words = next((found for found in (_units(text[start:end]), spaced) if len(found) == last - first), None)
        if words is None:
            spans.append((start, end))
        else:
            spans.append((start + words[k - first][0], start + words[k - first][1]))
    return spans


def word_spans(text: str, spans: Sequence[Span], indices: Sequence[int]) -> list[WordSpan]:
    """The words of `text`, given the spans of its ordinary tokens and the index of each token."""
    units = _units(text)
    starts, ends = [u[0] for u in units], [u[1] for u in units]
    words: list[tuple[int, int, list[int]]] = []  # first unit, last unit, tokens
    waiting: list[int] = []
    for (start, end), index in sorted(zip(spans, indices, strict=True)):
        first, last = bisect_right(ends, start), bisect_left(starts, end) - 1
        if start == end or last < first:
            waiting.append(index)
            continue
        if words and first <= words[-1][1]:
            low, high, members = words.pop()
            words.append((low, max(high, last), [*members, *waiting, index]))
        else:
            words.append((first, last, [*waiting, index]))
        waiting = []
    if words:
        words[-1][2].extend(waiting)
    elif waiting:
        return [WordSpan(0, len(text), tuple(sorted(waiting)))]
    return [WordSpan(starts[low], ends[high], tuple(sorted(members))) for low, high, members in words]


def sentence_spans(text: str, spans: Sequence[Span], indices: Sequence[int]) -> list[WordSpan]:
    """The sentences of `text` that have tokens, given the spans of its ordinary tokens and the index of each.

    The last ends with its last token: a model may not have read on.
    """
    sentences = _sentences(text)
    starts = [start for start, _ in sentences]
    members: dict[int, list[int]] = {}
    for (start, _), index in zip(spans, indices, strict=True):
        members.setdefault(max(bisect_right(starts, start) - 1, 0), []).append(index)
    if not sentences:
        return [WordSpan(0, len(text), tuple(sorted(indices)))]
    if members:
        first, last = sentences[max(members)]
        reached = max(end for _, end in spans)
        sentences[max(members)] = (first, min(reached, last) if reached > first else last)
    return [WordSpan(*sentences[k], tuple(sorted(mine))) for k, mine in sorted(members.items())]


def _sentences(text: str) -> list[Span]:
    """Spans of the sentences, in order, without the whitespace between them."""
    cased, found, start = text != text.lower(), [], 0
    ends = [*(m.end() for m in _SENTENCE_END.finditer(text) if _ends(text, m, cased)), len(text)]
    for end in ends:
        piece = text[start:end]
        inner = piece.strip()
        if inner:
            first = start + piece.index(inner)
            found.append((first, first + len(inner)))
        start = end
    return found


def _ends(text: str, mark: re.Match[str], cased: bool) -> bool:
    """Whether a sentence ends where one may."""
    if mark["mark"] is None:
        return True
    following = text[mark.end() :].lstrip()[:1]
    if cased and following.islower():
        return False
    before = text[: mark.start()].rpartition(" ")[2].lstrip("\"'“‘(").lower()
    initial = len(before) == 1 and before.isalpha() and before not in "ai"
    return mark["mark"] != "." or not (initial or before in _SHORT_FORMS)


def _units(text: str) -> list[Span]:
    """Spans of the smallest pieces that a reader would call a word, in order."""
    units: list[Span] = []
    kind = " "
    for k, char in enumerate(text):
        if units and units[-1][1] == k and (_continues(char) or _links(text, k, kind)):
            units[-1] = (units[-1][0], k + 1)
            continue
        previous, kind = kind, _kind(char)
        if kind == " ":
            continue
        if units and units[-1][1] == k and kind == previous and kind != "single":
            units[-1] = (units[-1][0], k + 1)
        else:
            units.append((k, k + 1))
    return units


def _kind(char: str) -> str:
    if char.isspace():
        return " "
    if any(low <= ord(char) <= high for low, high in _UNSPACED):
        return "single"
    if char.isalnum() or char == "_":
        return "word"
    return unicodedata.category(char)[0]


def _continues(char: str) -> bool:
    """Combining marks, variation selectors and joiners belong to the character before them."""
    return char in _JOINERS or unicodedata.category(char)[0] == "M"


def _links(text: str, k: int, kind: str) -> bool:
    """The apostrophe of "don't", the point of "3.14"."""
    if kind != "word" or not 0 < k < len(text) - 1:
        return False
    before, char, after = text[k - 1], text[k], text[k + 1]
    if char in "'’":
        return _kind(after) == "word"
    return char in ".," and before.isdigit() and after.isdigit()


def _fold(text: str) -> tuple[str, list[int]]:
    """Text without case and accents, and the original position of each of its characters (and of its end)."""
    folded: list[str] = []
    origin: list[int] = []
    for k, char in enumerate(text):
        for plain in unicodedata.normalize("NFKD", char).casefold():
            if not unicodedata.category(plain).startswith("M"):
                folded.append(plain)
                origin.append(k)
    return "".join(folded), [*origin, len(text)]


def _surface(token: str) -> str:
    """A token without the markers by which vocabularies tell where words begin and end."""
    bare = token.removesuffix("</w>").removesuffix("@@").removeprefix("##").strip(_SPACE_MARKERS)
    return bare or token.strip(_SPACE_MARKERS)
