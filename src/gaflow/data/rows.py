"""Rows of a data set as texts to explain, and what one pass over all of them shows.

The convention this file owns: a row without text (null, empty, only whitespace, not Unicode, not a string at all) is
**skipped and counted**, under the same reason everywhere: one bad row is no reason to give up millions.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any

from gaflow.data.labels import Classes
from gaflow.data.sources import DataSet
from gaflow.errors import DataError
from gaflow.inputs.encoding import Text

__all__ = ["Row", "Survey", "rows_of", "survey"]


@dataclass(frozen=True)
class Row:
    """One row of a data set."""

    number: int  # from 0, over all rows of the data set
    text: str
    text_pair: str | None = None
    gold: int | None = None  # class index of its label
    skipped: str | None = None  # why there is nothing to explain

    @property
    def given(self) -> Text:
        """What the explainer takes."""
        return self.text if self.text_pair is None else (self.text, self.text_pair)


@dataclass(frozen=True)
class Survey:
    """What one pass over a data set shows."""

    rows: int
    skipped: dict[str, int]  # reason -> rows
    unlabelled: int  # of the texts
    digest: str  # of all texts, pairs and labels in their order, whatever they are stored as
    lengths: dict[int, int]  # characters of a text -> texts; bounded by how long texts are, not how many

    @property
    def texts(self) -> int:
        """Rows that can be explained."""
        return self.rows - sum(self.skipped.values())


def rows_of(data: DataSet, classes: Classes, limit: int | None = None) -> Iterator[Row]:
    """All rows in order, skipped ones too, or the first `limit`."""
    for number, (text, pair, label) in enumerate(islice(data.read(), limit)):
        why = _missing(text, "text")
        if data.pair_column is not None or pair is not None:
            why = why or _missing(pair, "pair")
        where = f"{data.name}, row {number}"
        gold = classes.index(label, where) if data.label_column is not None else None
        yield Row(number, "", skipped=why) if why else Row(number, text, pair, gold)


def survey(data: DataSet, classes: Classes, limit: int | None = None) -> Survey:
    """Read all rows once; a data set that holds nothing to explain is an error."""
    digest, lengths, skipped = sha256(), Counter[int](), Counter[str]()
    rows = unlabelled = 0
    for row in rows_of(data, classes, limit):
        rows += 1
        if row.skipped:
            skipped[row.skipped] += 1
            digest.update(b"\n")
            continue
        lengths[len(row.text)] += 1
        unlabelled += row.gold is None
        digest.update(json.dumps([row.text, row.text_pair, row.gold]).encode() + b"\n")
    if not rows:
        raise DataError(f"{data.name} is empty: it holds no rows")
    found = Survey(rows, dict(sorted(skipped.items())), unlabelled, digest.hexdigest(), dict(sorted(lengths.items())))
    if not found.texts:
        reasons = ", ".join(f"{n} {why}" for why, n in found.skipped.items())
        raise DataError(f"{data.name} holds no text to explain: of {rows} rows {reasons}")
    return found


def _missing(value: Any, what: str) -> str | None:
    """Why there is no text, or None if there is."""
    if value is None or (isinstance(value, float) and value != value):  # pandas has NaN for null
        return f"null {what}"
    if not isinstance(value, str):
        return f"{type(value).__name__} {what}"
    if not value.strip():
        return f"empty {what}"
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can spell
        return f"invalid {what}"
    return None
