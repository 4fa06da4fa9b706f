"""Importances over a corpus as one HTML page: tables by class, and examples one click away."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gaflow.arguments import checked, location, whole_number
from gaflow.corpora.importances import check_table
from gaflow.corpora.shortcuts import shortcuts
from gaflow.files import write_atomically
from gaflow.html.document import document, render
from gaflow.view.summary import provenance_rows

if TYPE_CHECKING:
    from pandas import DataFrame


@checked
def corpus_page(table: DataFrame, path: str | Path | None = None, *, top: int = 50, lift: float = 3.0) -> str:
    """A self-contained page of a table of `gaflow.corpus`; it is also written to `path`, if given.

    `top` is the number of n-grams in each table, `lift` the least one of a plausible shortcut.
    """
    check_table(table)
    whole_number("top", top)
    largest = float(np.abs(table["share"].to_numpy()).max(initial=0.0))
    classes = {}
    for name, rows in table.groupby("class", sort=True):
        highest = rows.loc[rows["share"] >= 0]
        lowest = rows.loc[rows["share"] < 0].iloc[::-1]
        classes[name] = {"for": _records(highest.head(top)), "against": _records(lowest.head(top))}
    body = render(
        "corpus.html",
        classes=classes,
        shortcuts=_records(shortcuts(table, lift=lift).head(top)),
        attributes=table.attrs,
        provenance=provenance_rows(table.attrs.get("provenance", {})),
        lift=lift,
        largest=largest,
        isnan=lambda value: value != value,
    )
    html = document(f"Words of {table.attrs.get('texts', '')} texts", body, kind="several")
    if path is not None:
        write_atomically(location("path", path), html.encode())
    return html


def _records(table: DataFrame) -> list[dict[Hashable, object]]:
    return table.to_dict("records")
