"""The figures of a report: masking curves (paper, Figure 8), and one text by all methods (Figure 9)."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gaflow.benchmark.folder_layout import slug
from gaflow.benchmark.report.collect import DataSetReport, ranked_first
from gaflow.benchmark.report.tables import METRIC_NAMES
from gaflow.plots import compare, curves

if TYPE_CHECKING:
    import pandas as pd

    from gaflow.plots import Picture


@dataclass(frozen=True)
class ReportFigure:
    """A figure of the report."""

    name: str  # of its file
    caption: str
    svg: str


def masking_curves(
    data_sets: Sequence[DataSetReport],
    points: Mapping[tuple[str, str], pd.DataFrame],
    highlights: Mapping[str, str | None],
    ranked: Mapping[str, Sequence[str]] | None = None,
) -> list[ReportFigure]:
    """A figure of every data set, replacement and metric; `points` are `Evaluation.curves()`.

    `highlights` has for each data set the method that stands out, `ranked` the methods in the order of the legend.
    """
    ranked = ranked or {}
    figures = []
    for data in data_sets:
        for replacement, evaluation in data.evaluations.items():
            by_method = points[data.name, replacement].set_index("method")
            table = by_method.loc[ranked_first(evaluation.methods, ranked.get(data.name, ()))].reset_index()
            highlight = highlights[data.name]
            highlighted = [highlight] if highlight in evaluation.methods else []
            for metric in ("aopc", "lodds"):
                picture = curves(table[table["metric"] == metric], highlight=highlighted)
                name = f"curves-{data.slug}-{slug(replacement)}-{metric}.svg"
                caption = f"{data.name}, {METRIC_NAMES[metric]} ({replacement})"
                figures.append(ReportFigure(name, caption, _svg(picture)))
    return figures


def example_figures(data_sets: Sequence[DataSetReport]) -> list[ReportFigure]:
    """One text of every data set, by all methods."""
    figures = []
    for data in data_sets:
        if data.example:
            picture = compare(data.example)
            figures.append(ReportFigure(f"sample-{data.slug}.svg", data.name, _svg(picture)))
    return figures


def _svg(picture: Picture) -> str:
    buffer = io.BytesIO()
    picture.savefig(buffer, format="svg")
    return buffer.getvalue().decode()
