"""Rows of a data set as texts to explain, and a survey of all of them in one pass.

The convention this file owns: a row without text (null, empty, only whitespace, not Unicode, not a string) is **skipped
and counted** by reason. One bad row does not end a run over millions.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice

from gaflow.data.labels import Classes
from gaflow.data.sources import DataSet
from gaflow.errors import DataError
from gaflow.inputs.encoding import Text


@dataclass(frozen=True)
class Row:
    """One row of a data set."""

    number: int  # from 0, over all rows of the data set
    text: str
    text_pair: str | None = None
    gold: int | None = None  # class index of its label
    skipped: str | None = None  # the reason, if there is nothing to explain

    @property
    def input(self) -> Text:
        """The text, or the text and its pair, as the explainer takes them."""
        return self.text if self.text_pair is None else (self.text, self.text_pair)


@dataclass(frozen=True)
class Survey:
    """The result of one pass over a data set."""

    rows: int
    skipped: dict[str, int]  # reason -> rows
    unlabelled: int  # of the texts
    digest: str  # of all texts, pairs and labels in their order, whatever the file format
    lengths: dict[int, int]  # characters of a text -> number of texts

    @property
    def texts(self) -> int:
        """Rows that can be explained."""
        return self.rows - sum(self.skipped.values())


def rows_of(data: DataSet, classes: Classes, limit: int | None = None) -> Iterator[Row]:
    """All rows in order, skipped ones included, or the first `limit`."""
    for number, (text, pair, label) in enumerate(islice(data.read(), limit)):
        reason = _reason_to_skip(text, "text")
        if reason is None and (data.columns.pair is not None or pair is not None):
            reason = _reason_to_skip(pair, "pair")
        gold = None
        if data.columns.label is not None:
            gold = classes.index(label, f"{data.name}, row {number}")
        if reason is None:
            yield Row(number, text, pair, gold)
        else:
            yield Row(number, "", skipped=reason)


def survey(data: DataSet, classes: Classes, limit: int | None = None) -> Survey:
    """Read all rows once; a data set without anything to explain is an error."""
    digest = sha256()
    lengths = Counter[int]()
    skipped = Counter[str]()
    rows = 0
    unlabelled = 0
    for row in rows_of(data, classes, limit):
        rows += 1
        if row.skipped:
            skipped[row.skipped] += 1
            digest.update(b"\n")
            continue
        lengths[len(row.text)] += 1
        if row.gold is None:
            unlabelled += 1
        digest.update(json.dumps([row.text, row.text_pair, row.gold]).encode() + b"\n")
    if rows == 0:
        raise DataError(f"{data.name} is empty: it holds no rows")
    result = Survey(
        rows=rows,
        skipped=dict(sorted(skipped.items())),
        unlabelled=unlabelled,
        digest=digest.hexdigest(),
        lengths=dict(sorted(lengths.items())),
    )
    if result.texts == 0:
        reasons = ", ".join(f"{count} {reason}" for reason, count in result.skipped.items())
        raise DataError(f"{data.name} holds no text to explain: of {rows} rows {reasons}")
    return result


def _reason_to_skip(value: object, column: str) -> str | None:
    """The reason why a value is no text, or None if it is one."""
    if value is None or (isinstance(value, float) and value != value):  # pandas has NaN for null
        return f"null {column}"
    if not isinstance(value, str):
        return f"{type(value).__name__} {column}"
    if not value.strip():
        return f"empty {column}"
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can spell
        return f"invalid {column}"
    return None
