"""The figures of a report: masking curves (paper, Figure 8), and one text by all methods (Figure 9)."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gaflow.benchmark.report.collect import DataSetReport, ordered
from gaflow.benchmark.report.tables import NAMES
from gaflow.plots import compare, curves

if TYPE_CHECKING:
    import pandas as pd

    from gaflow.plots import Picture

__all__ = ["drawn", "masking_curves", "samples"]

METRICS = ("aopc", "lodds")


def masking_curves(
    every: Sequence[DataSetReport], points: Mapping[tuple[str, str], pd.DataFrame], highlight: str
) -> Iterator[tuple[str, str, str]]:
    """(file name, caption, SVG) of every data set, replacement and metric; `points` are `Evaluation.curves()`."""
    for data in every:
        for replacement, evaluation in data.evaluations.items():
            table = points[data.slug, replacement]
            rank = {name: k for k, name in enumerate(ordered(evaluation.methods))}
            table = table.sort_values("method", key=lambda names: names.map(rank), kind="stable")
            shown = [highlight] if highlight in evaluation.methods else []
            for metric in METRICS:
                picture = curves(table[table["metric"] == metric], highlight=shown)
                caption = f"{data.name}, {NAMES[metric]} ({replacement})"
                yield f"curves-{data.slug}-{replacement}-{metric}.svg", caption, drawn(picture)


def samples(every: Sequence[DataSetReport]) -> Iterator[tuple[str, str, str]]:
    """(file name, caption, SVG) of one text of every data set, by all methods."""
    for data in every:
        if data.example:
            yield f"sample-{data.slug}.svg", data.name, drawn(compare(data.example))


def drawn(picture: Picture) -> str:
    """A figure as SVG."""
    held = io.BytesIO()
    picture.savefig(held, format="svg")
    return held.getvalue().decode()
