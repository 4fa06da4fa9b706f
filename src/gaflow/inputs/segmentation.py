"""Where words and sentences lie in a text, and which tokens belong to them.

The conventions this file owns:

Words are found in the text, not taken from the tokenizer, so two models agree on what a word is: letters and digits
with inner apostrophes; runs of punctuation; runs of symbols; single characters in scripts written without spaces.
Words that share a token become one word, and whitespace tokens go with the word that follows. Every ordinary token thus
belongs to exactly one word, and word scores add up to the scores of the ordinary tokens exactly.

Sentences end with a full stop, question or exclamation mark of any script (Unicode's STerm), closing quotes and
brackets included, or with a paragraph. The marks that Latin script uses for other things too, such as the point of
"3.14", end a sentence only before whitespace. They do not end one after initials and a few abbreviations, nor, in a
text with capitals, where a small letter follows. A token belongs to the sentence that it begins in.
"""

from __future__ import annotations

import reprlib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import regex

from gaflow.errors import Argument, ArgumentError, ArgumentTypeError

Span = tuple[int, int]  # first character, and the one after the last
SplitSentences = Callable[[str], Sequence[str]]  # text -> its sentences, in order
_START = itemgetter(0)
_END = itemgetter(1)

# Parts of character classes. Scripts written without spaces: Thai, Lao, Myanmar, Khmer, kana, Han.
_UNSPACED = (
    r"\u0E00-\u0EFF\u1000-\u109F\u1780-\u17FF\u3040-\u30FF\u31F0-\u31FF"
    r"\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\U00020000-\U000323AF"
)
_SPACE = r"\s\x1C-\x1F"  # as str.isspace
# Character classes. What continues a grapheme cluster belongs to the character before it: combining marks, variation
# selectors, joiners, Thai sara am, and the vowels and final consonants of decomposed Korean.
_CONTINUES = r"[\p{M}\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=V}\p{GCB=T}\u200C\u200D]"
_LETTER = rf"[[\p{{L}}\p{{N}}_]--[{_UNSPACED}]]"
_DIGIT = r"[\p{Numeric_Type=Decimal}\p{Numeric_Type=Digit}]"  # as str.isdigit
_PUNCTUATION, _SYMBOL, _CONTROL = (rf"[\p{{{category}}}--[_{_UNSPACED}{_SPACE}]]" for category in "PSC")
_WORD_UNIT = regex.compile(
    rf"""
      [{_UNSPACED}] {_CONTINUES}*
    | {_LETTER} (?: {_LETTER} | {_CONTINUES}
                  | ['’] (?={_LETTER})                  # the apostrophe of "don't"
                  | (?<={_DIGIT}) [.,] (?={_DIGIT})     # the point of "3.14"
                )*
    | (?: {_PUNCTUATION} {_CONTINUES}* )+
    | (?: {_SYMBOL} {_CONTINUES}* )+
    | (?: {_CONTROL} {_CONTINUES}* )+
    | {_CONTINUES}+
    """,
    regex.VERBOSE | regex.VERSION1,
)
_CONTINUES_CHARACTER = regex.compile(_CONTINUES)
_CLOSING = r"[\p{Pe}\p{Pf}\"']"
_SENTENCE_END = regex.compile(
    rf"""
      (?P<mark> [.!?…]+ ) (?: [{_CLOSING}\p{{Pi}}]         # the German closing quote opens an English quotation
                          | [\x20\u00A0\u202F] » )*      # French has a space before it
      (?=\s)
    | [[\p{{STerm}}\u0F0D\u037E]--[.!?]]+ {_CLOSING}*    # shad and the Greek question mark have no STerm
    | \n\s*\n
    """,
    regex.VERBOSE | regex.VERSION1,
)
_ABBREVIATIONS = {"mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "vs", "e.g", "i.e", "cf", "fig", "vol", "approx"}
_ABBREVIATIONS_BEFORE_NUMBERS = {
    "no", "nos", "nr", "p", "pp", "ch", "sec", "art", "eq",
    "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec",
}  # fmt: skip


@dataclass(frozen=True)
class TokenGroup:
    """A word or a sentence of the text, and the tokens it is made of."""

    start: int
    end: int
    tokens: tuple[int, ...]


def word_units(text: str) -> list[Span]:
    """Spans of the smallest pieces that a reader would call a word, in order."""
    return [match.span() for match in _WORD_UNIT.finditer(text)]


def continues_character(char: str) -> bool:
    """Whether a character belongs to the one before it."""
    return _CONTINUES_CHARACTER.match(char) is not None


def word_spans(text: str, spans: Sequence[Span], indices: Sequence[int]) -> list[TokenGroup]:
    """The words of `text`, given the spans of its ordinary tokens and the index of each token."""
    units = word_units(text)
    words = []
    whitespace = []  # tokens that wait for the next word
    for (start, end), index in sorted(zip(spans, indices, strict=True)):
        first = bisect_right(units, start, key=_END)
        last = bisect_left(units, end, key=_START) - 1
        if start == end or last < first:
            whitespace.append(index)
            continue
        if words and first <= words[-1].last:
            words[-1].last = max(words[-1].last, last)
        else:
            words.append(_Word(first, last))
        words[-1].tokens += [*whitespace, index]
        whitespace = []
    if words:
        words[-1].tokens += whitespace
    elif whitespace:
        return [TokenGroup(0, len(text), tuple(sorted(whitespace)))]
    groups = []
    for word in words:
        start, _ = units[word.first]
        _, end = units[word.last]
        groups.append(TokenGroup(start, end, tuple(sorted(word.tokens))))
    return groups


@dataclass
class _Word:
    """A word while its tokens are collected."""

    first: int  # unit
    last: int  # unit
    tokens: list[int] = field(default_factory=list)


def sentence_spans(
    text: str, spans: Sequence[Span], indices: Sequence[int], split: SplitSentences | None = None
) -> list[TokenGroup]:
    """The sentences of `text` that have tokens, given the spans of its ordinary tokens and the index of each.

    `split` is your own splitter. The last sentence ends with its last token, since a model may not have read on.
    """
    sentences = _sentences(text) if split is None else _split_by(split, text)
    if not sentences:
        return [TokenGroup(0, len(text), tuple(sorted(indices)))]
    members = defaultdict(list)
    for (start, _), index in zip(spans, indices, strict=True):
        sentence = max(bisect_right(sentences, start, key=_START) - 1, 0)
        members[sentence].append(index)
    if members:
        last = max(members)
        start, end = sentences[last]
        end_of_tokens = max(token_end for _, token_end in spans)
        if end_of_tokens > start:
            sentences[last] = (start, min(end_of_tokens, end))
    groups = []
    for sentence, tokens in sorted(members.items()):
        start, end = sentences[sentence]
        groups.append(TokenGroup(start, end, tuple(sorted(tokens))))
    return groups


def _split_by(split: SplitSentences, text: str) -> list[Span]:
    """Spans of the sentences that the user's splitter returns, found in the text in order."""
    pieces = split(text)
    if isinstance(pieces, str) or not isinstance(pieces, Iterable):
        raise ArgumentTypeError(Argument("split"), f" returned {reprlib.repr(pieces)}, and not a list of strings")
    sentences = []
    position = 0
    for sentence in pieces:
        if not isinstance(sentence, str):
            raise ArgumentTypeError(Argument("split"), f" returned a list with {reprlib.repr(sentence)} in it")
        piece = sentence.strip()
        start = text.find(piece, position)
        if start < 0:
            problem = f" returned {piece[:40]!r}, which is not in the text where it should be; return pieces of it"
            raise ArgumentError(Argument("split"), problem)
        position = start + len(piece)
        if piece:
            sentences.append((start, position))
    return sentences


def _sentences(text: str) -> list[Span]:
    """Spans of the sentences, in order, without the whitespace between them."""
    has_capitals = text != text.lower()
    ends = []
    for match in _SENTENCE_END.finditer(text):
        if _ends_sentence(text, match, has_capitals):
            ends.append(match.end())
    sentences = []
    start = 0
    for end in [*ends, len(text)]:
        sentence = text[start:end].strip()
        if sentence:
            first = text.index(sentence, start)
            sentences.append((first, first + len(sentence)))
        start = end
    return sentences


def _ends_sentence(text: str, match: regex.Match[str], has_capitals: bool) -> bool:
    """Whether a sentence ends where one may."""
    mark = match["mark"]
    if mark is None:
        return True
    following = text[match.end() :].lstrip()[:1]
    if has_capitals and following.islower():
        return False
    if mark != ".":
        return True
    written = text[: match.start()].rpartition(" ")[2].lstrip("\"'“‘(")
    word = written.lower()
    is_initial = len(word) == 1 and word.isalpha() and word not in "ai"
    if has_capitals and not written.isupper():  # a word of one letter, of which Russian has many
        is_initial = False
    is_number_next = following.isdigit() and word in _ABBREVIATIONS_BEFORE_NUMBERS
    return not is_initial and not is_number_next and word not in _ABBREVIATIONS
