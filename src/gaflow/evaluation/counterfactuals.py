"""Pairs of texts that differ in a word or two and that the model classifies differently: the edited words decide.

    "a good film"  positive    ->    "a bad film"  negative

All else being equal, the words that were edited are the reason for the model's prediction, so their tokens should rank
first in both texts. Pairs come from rules, an antonym for a word or a negation left out, or from you. Only those count
for which the model's prediction changes; `recovery` then judges attributions as it does for planted words.

The convention this file owns: a text without a word of its own (the one from which the negation was taken) is not
explained, since nothing in it can rank first.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from gaflow.arguments import checked
from gaflow.errors import Argument, ArgumentError, ArgumentTypeError
from gaflow.evaluation.planted_words import Planted
from gaflow.explainer.explainer import Explainer
from gaflow.inputs.encoding import check_text
from gaflow.inputs.offsets import Span

_ANTONYM_PAIRS = (
    ("good", "bad"), ("best", "worst"), ("better", "worse"), ("great", "terrible"), ("funny", "unfunny"),
    ("interesting", "boring"), ("smart", "stupid"), ("clever", "dumb"), ("fresh", "stale"), ("beautiful", "ugly"),
    ("wonderful", "awful"), ("excellent", "poor"), ("brilliant", "dull"), ("warm", "cold"), ("deep", "shallow"),
    ("strong", "weak"), ("rich", "thin"), ("success", "failure"), ("succeeds", "fails"), ("love", "hate"),
    ("loved", "hated"), ("enjoyable", "unpleasant"), ("entertaining", "tedious"), ("original", "derivative"),
    ("moving", "lifeless"), ("charming", "charmless"), ("compelling", "tiresome"), ("perfect", "flawed"),
    ("delightful", "dreadful"), ("powerful", "feeble"), ("engaging", "bland"), ("well", "badly"), ("more", "less"),
    ("always", "never"), ("fun", "pain"), ("easy", "hard"), ("right", "wrong"), ("likable", "unlikable"),
)  # fmt: skip
ANTONYMS: Mapping[str, str] = dict([*_ANTONYM_PAIRS, *((second, first) for first, second in _ANTONYM_PAIRS)])
NEGATIONS = ("not", "n't", "never", "no", "without", "nothing", "neither", "hardly", "barely")
_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class CounterfactualPair:
    """A text, and the same with a small edit."""

    text: str
    edited: str
    text_spans: tuple[Span, ...]  # characters of the words of `text` that are not in `edited`
    edited_spans: tuple[Span, ...]  # characters of the words of `edited` that are not in `text`

    @classmethod
    @checked
    def of(cls, text: str, edited: str) -> CounterfactualPair:
        """A pair whose differences are found word by word."""
        first = [match.span() for match in _WORD.finditer(text)]
        second = [match.span() for match in _WORD.finditer(edited)]
        words = [text[start:end] for start, end in first]
        edited_words = [edited[start:end] for start, end in second]
        text_spans: list[Span] = []
        edited_spans: list[Span] = []
        for kind, i, j, k, m in SequenceMatcher(None, words, edited_words, autojunk=False).get_opcodes():
            if kind != "equal":
                text_spans += first[i:j]
                edited_spans += second[k:m]
        return cls(text, edited, tuple(text_spans), tuple(edited_spans))


@checked
def counterfactual_pairs(
    texts: Sequence[str], antonyms: Mapping[str, str] = ANTONYMS, negations: Sequence[str] = NEGATIONS
) -> list[CounterfactualPair]:
    """Edit every text in each of the ways that the rules allow, one word at a time.

    A word of `antonyms` is replaced by its antonym, and one of `negations` is left out.
    """
    pairs = []
    for text in texts:
        for match in _WORD.finditer(text):
            start, end = match.span()
            word = match.group().casefold()
            if word in antonyms:
                edited = text[:start] + antonyms[word] + text[end:]
            elif word in negations:
                edited = text[:start].rstrip() + text[end:] if start else text[end:].lstrip()
            else:
                continue
            if edited.strip():
                pairs.append(CounterfactualPair.of(text, edited))
    return pairs


@checked
def counterfactual_rows(
    explainer: Explainer, pairs: Sequence[CounterfactualPair | tuple[str, str]], *, batch_size: int = 16
) -> list[Planted]:
    """The texts of all pairs whose prediction the edit changes, as rows for `recovery`.

    `pairs` are those of `counterfactual_pairs`, or tuples (text, edited text) of yours. `source` of a row is the index
    of its pair.

        rows = counterfactual_rows(explainer, counterfactual_pairs(texts))
        sentences = [row.text for row in rows]
        recovery({"ig": explainer(sentences, "ig")}, rows).table()
    """
    edits = [_parse_pair(index, pair) for index, pair in enumerate(pairs)]
    if not edits:
        raise ArgumentError(Argument("pairs"), " is empty; pass at least one pair of texts")
    texts = [text for edit in edits for text in (edit.text, edit.edited)]
    predicted = [attribution.prediction for attribution in explainer(texts, "random", batch_size=batch_size)]
    rows = []
    for source, edit in enumerate(edits):
        label = predicted[2 * source]
        edited_label = predicted[2 * source + 1]
        if label == edited_label:
            continue
        if edit.text_spans:
            rows.append(Planted(text=edit.text, label=label, spans=edit.text_spans, source=source))
        if edit.edited_spans:
            rows.append(Planted(text=edit.edited, label=edited_label, spans=edit.edited_spans, source=source))
    return rows


def _parse_pair(index: int, pair: object) -> CounterfactualPair:
    """One of the `pairs`, with the words that differ."""
    texts = (pair.text, pair.edited) if isinstance(pair, CounterfactualPair) else pair
    if not isinstance(texts, tuple):
        message = f"[{index}] must be a CounterfactualPair, or (text, edited text), not {reprlib.repr(pair)}"
        raise ArgumentTypeError(Argument("pairs"), message)
    text, edited = check_text(texts, f"pairs[{index}]")
    assert edited is not None  # of a tuple
    return pair if isinstance(pair, CounterfactualPair) else CounterfactualPair.of(text, edited)
