"""Importances of words and n-grams over a stored run, by class.

For an n-gram `w` and a class `c`, over the texts whose explained class is `c`:

    share      mean share of the scores of its text, over all occurrences (`ngrams.py`), with an interval
    frequency  of all n-grams of this length in these texts, the fraction that are `w`
    push       of the sum of all shares above 0 of n-grams of this length, the fraction that `w` has
    lift       push / frequency: how much more of the score it has than of the text

The folder is read twice, one row at a time. The first pass counts texts in a table of fixed size, where several n-grams
may share a place. So a count is never too small, and the second pass leaves out only n-grams that are too rare for
certain. Memory grows with the number of n-grams that are frequent enough, not with the texts.
"""

from __future__ import annotations

import heapq
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count as counter
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from gaflow.arguments import checked, location, whole_number
from gaflow.corpora.clustered_mean import ClusteredMean
from gaflow.corpora.ngrams import Occurrence, Snippet, cut_snippet, find_ngrams
from gaflow.errors import Argument, ArgumentError, ArgumentTypeError, DataError
from gaflow.extras import need
from gaflow.jobs.stored import Stored, read_attributions

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = (
    "class", "words", "length", "texts", "count", "share", "low", "high", "frequency", "push", "lift", "lift_low",
    "gold_rate", "examples",
)  # fmt: skip
_NO_NUMBERS = ("class", "words", "examples")
_PLACES = 1 << 22  # of the table of counts
_MOST_COUNTED = np.iinfo(np.uint32).max


@dataclass
class _Importance:
    """What is known of an n-gram in a class."""

    length: int
    shares: ClusteredMean = field(default_factory=ClusteredMean)
    positive: ClusteredMean = field(default_factory=ClusteredMean)  # of shares above 0
    with_gold: int = 0  # texts whose true class is known
    gold: int = 0  # of them, texts whose true class is this one
    examples: list[tuple[float, int, Snippet]] = field(default_factory=list)  # a heap, the weakest first


@dataclass
class _Class:
    """The n-grams of a class, and sums over all n-grams of each length, rare ones included."""

    texts: int = 0
    occurrences: dict[int, int] = field(default_factory=dict)
    positive: dict[int, float] = field(default_factory=dict)
    importances: dict[str, _Importance] = field(default_factory=dict)


@dataclass(frozen=True)
class _Settings:
    """How n-grams are counted."""

    longest: int
    fold_case: bool
    examples: int


@checked
def corpus(
    folder: str | Path,
    *,
    method: str | None = None,
    length: int = 1,
    minimum: int = 10,
    fold_case: bool = True,
    examples: int = 3,
    confidence: float = 0.95,
) -> DataFrame:
    """Importances of words and n-grams over a run that `gaflow attribute` stored, by the explained class.

    Args:
        folder: of a run, or a folder or file in the same format.
        method: whose scores to read; needed if the folder has several.
        length: the most words of an n-gram; 1 is single words.
        minimum: leave out n-grams that occur in fewer texts of a class.
        fold_case: count "Good" and "good" as one.
        examples: how many occurrences with the highest shares to keep of each n-gram.
        confidence: of the intervals.

    Returns a DataFrame, by class and then by share, the highest first. `low` and `high` are the ends of an interval of
    `share` that takes texts, not occurrences, as independent. `lift_low` is the lower end for `lift`, with the average
    share of all words taken as known. `gold_rate` is
    the fraction of texts with the n-gram whose true class is this one, NaN if no true classes are stored.
    `table.attrs` has the method, the number of texts that were read and left out, and the provenance of the scores.

        >>> table = gaflow.corpus("attributions", length=2)
        >>> table[table["class"] == "positive"].head(10)
    """
    path = location("folder", folder)
    whole_number("length", length)
    whole_number("minimum", minimum)
    whole_number("examples", examples, least=0)
    if not 0 < confidence < 1:
        raise ArgumentError(Argument("confidence"), f" must lie between 0 and 1, not {confidence}")
    need("pandas", "data", "a table of importances needs pandas")
    settings = _Settings(length, fold_case, examples)
    name, counts = _count_texts(path, method, settings)
    classes: dict[str, _Class] = {}
    texts = 0
    left_out = 0
    provenance: Mapping[str, object] = {}
    for stored in read_attributions(path, methods=[name], verify=False):
        provenance = stored.provenance  # the same for all texts
        occurrences = find_ngrams(stored, length, fold_case)
        if not occurrences:
            left_out += 1
            continue
        texts += 1
        of_class = classes.setdefault(str(stored.label or ""), _Class())
        _add_text(of_class, stored, occurrences, counts, minimum, settings)
    attributes = {"method": name, "texts": texts, "left_out": left_out, "provenance": dict(provenance)}
    return _table(classes, minimum, confidence, attributes)


def check_table(table: DataFrame) -> None:
    """Refuse a table that has not the columns of those that `corpus` returns."""
    need("pandas", "data", "a table of importances needs pandas")
    import pandas as pd

    if not isinstance(table, pd.DataFrame):
        raise ArgumentTypeError(Argument("table"), f" must be a DataFrame, not {reprlib.repr(table)}")
    names = list(table.columns)
    for column in COLUMNS:
        if names.count(column) != 1:
            problem = f" must be a table that gaflow.corpus returned, with one column {column!r}"
            raise ArgumentError(Argument("table"), problem)
        values = table[column]
        is_right = values.dtype.kind in "iuf"
        if column in _NO_NUMBERS:
            is_right = all(_is_cell(column, value) for value in values)
        if len(values) and not is_right:
            problem = f" must be a table that gaflow.corpus returned, but its column {column!r} has other values"
            raise ArgumentError(Argument("table"), problem)


def _is_cell(column: str, value: object) -> bool:
    """Whether a column without numbers can have a value."""
    if column == "examples":
        return isinstance(value, list | tuple) and all(isinstance(example, Snippet) for example in value)
    return isinstance(value, str)


def _count_texts(path: Path, method: str | None, settings: _Settings) -> tuple[str, np.ndarray]:
    """The method, and in how many texts the n-grams of each place occur, at least."""
    counts = np.zeros(_PLACES, dtype=np.uint32)
    methods: dict[str, None] = {}
    for stored in read_attributions(path, methods=None if method is None else [method]):
        methods[stored.method] = None
        if len(methods) > 1:
            listed = " and ".join(map(repr, methods))
            raise ArgumentError(f"the folder has scores of {listed}, at least; choose one by ", Argument("method"))
        places = {_place(ngram.name) for ngram in find_ngrams(stored, settings.longest, settings.fold_case)}
        index = np.fromiter(places, dtype=np.int64, count=len(places))
        counts[index] = np.minimum(counts[index], _MOST_COUNTED - 1) + 1
    if not methods:
        problem = "no rows" if method is None else f"no rows of the method {method!r}"
        raise DataError(f"{str(path)!r} has {problem}")
    return next(iter(methods)), counts


def _place(name: str) -> int:
    return crc32(name.encode()) % _PLACES


def _add_text(
    of_class: _Class,
    stored: Stored,
    occurrences: list[Occurrence],
    counts: np.ndarray,
    minimum: int,
    settings: _Settings,
) -> None:
    """Include a text in the sums of its class."""
    of_class.texts += 1
    by_name: dict[str, list[Occurrence]] = {}
    for occurrence in occurrences:
        length = occurrence.length
        of_class.occurrences[length] = of_class.occurrences.get(length, 0) + 1
        of_class.positive[length] = of_class.positive.get(length, 0.0) + max(occurrence.share, 0.0)
        if counts[_place(occurrence.name)] >= minimum:
            by_name.setdefault(occurrence.name, []).append(occurrence)
    for name, in_text in by_name.items():
        importance = of_class.importances.setdefault(name, _Importance(in_text[0].length))
        importance.shares.add(sum(occurrence.share for occurrence in in_text), len(in_text))
        importance.positive.add(sum(max(occurrence.share, 0.0) for occurrence in in_text), len(in_text))
        if stored.gold_label is not None:
            importance.with_gold += 1
            importance.gold += stored.gold_label == stored.label
        strongest = max(in_text, key=lambda occurrence: abs(occurrence.share))
        _keep_example(importance, stored, strongest, settings.examples)


_ORDER = counter()  # of examples: snippets themselves cannot be compared


def _keep_example(importance: _Importance, stored: Stored, occurrence: Occurrence, most: int) -> None:
    """Keep the occurrence if it is among the strongest of different texts."""
    strength = abs(occurrence.share)
    if most == 0 or (len(importance.examples) == most and strength <= importance.examples[0][0]):
        return
    heapq.heappush(importance.examples, (strength, -next(_ORDER), cut_snippet(stored, occurrence)))
    if len(importance.examples) > most:
        heapq.heappop(importance.examples)


def _table(classes: dict[str, _Class], minimum: int, confidence: float, attributes: dict[str, object]) -> DataFrame:
    import pandas as pd

    rows = list(_rows(classes, minimum, confidence))
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    table = table.sort_values(["class", "share"], ascending=[True, False], kind="stable", ignore_index=True)
    table.attrs.update(attributes)
    return table


def _rows(classes: dict[str, _Class], minimum: int, confidence: float) -> Iterator[dict[str, object]]:
    for class_name, of_class in classes.items():
        for name, importance in of_class.importances.items():
            shares = importance.shares
            if shares.texts < minimum:
                continue
            occurrences = of_class.occurrences[importance.length]
            usual = of_class.positive[importance.length] / occurrences  # share above 0 of any n-gram of this length
            low, high = np.clip(shares.interval(confidence), -1.0, 1.0).tolist()  # as all shares are
            frequency = shares.occurrences / occurrences
            lift = importance.positive.mean / usual if usual > 0 else 0.0
            lift_low = importance.positive.interval(confidence)[0] / usual if usual > 0 else 0.0
            strongest = sorted(importance.examples, reverse=True)
            yield {
                "class": class_name,
                "words": name,
                "length": importance.length,
                "texts": shares.texts,
                "count": shares.occurrences,
                "share": shares.mean,
                "low": low,
                "high": high,
                "frequency": frequency,
                "push": lift * frequency,
                "lift": lift,
                "lift_low": lift_low,
                "gold_rate": importance.gold / importance.with_gold if importance.with_gold else float("nan"),
                "examples": tuple(snippet for _, _, snippet in strongest),
            }
