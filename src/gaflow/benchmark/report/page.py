"""The report as one HTML page: nothing to fetch, nothing to run.

The convention this file owns: figures stand in the page as they are in their files, but without ids, which are only
unique within a file. The template escapes everything else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from gaflow.benchmark.report.collect import DataSetReport
from gaflow.benchmark.report.formats import cell_text
from gaflow.benchmark.report.tables import Cell, ReportTable
from gaflow.benchmark.report.verdict import Verdict, chart, how_sure
from gaflow.html.document import NEGATIVE, document, render, trusted_svg
from gaflow.view.shades import LEVELS
from gaflow.view.summary import shared_legend, summarize

if TYPE_CHECKING:
    from gaflow.benchmark.report.figures import ReportFigure


def page(
    data_sets: Sequence[DataSetReport],
    verdicts: Sequence[Verdict],
    tables: Sequence[ReportTable],
    pair_tables: Sequence[ReportTable],
    figures: Sequence[ReportFigure],
) -> str:
    """The complete page; `figures` are the masking curves."""
    body = render(
        "report.html",
        data_sets=data_sets,
        verdicts=verdicts,
        tables=tables,
        figures=figures,
        examples=[_example(data) for data in data_sets if data.example],
        pair_tables=pair_tables,
        cell_text=cell_text,
        chart=chart,
        how_sure=how_sure,
        shade_level=_shade_level,
        without_ids=_without_ids,
    )
    names = ", ".join(data.name for data in data_sets)
    return document(f"Faithfulness on {names}", body, kind="report", sheets=("report.css",))


def _example(data: DataSetReport) -> Markup:
    """One text by all methods, a row each."""
    summaries = [summarize(attribution, name) for name, attribution in data.example.items()]
    legend = shared_legend(summaries, NEGATIVE)
    return render("example.html", name=data.name, summaries=summaries, legend=legend)


def _shade_level(epsilon: Cell) -> int:
    """The shade of a pair, which grows as `eps_min` falls from 0.5 to 0."""
    if not isinstance(epsilon, float) or epsilon >= 0.5:
        return 0
    return round((1 - 2 * epsilon) * LEVELS)


def _without_ids(svg: str) -> Markup:
    """The drawing of an SVG file, without its header, metadata and ids."""
    drawing = svg[svg.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, count=1, flags=re.DOTALL)
    return trusted_svg(re.sub(r'(<g|<svg) id="\w+_\d+"', r"\1", drawing))
