"""The report as one HTML page: nothing to fetch, nothing to run.

The convention this file owns: **everything that is not ours goes through `safe`**, and figures stand in the page as
they are in their files, but for ids, which are only unique within a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

from gaflow.benchmark.report.collect import DataSetReport
from gaflow.benchmark.report.formats import matrix_table, shown
from gaflow.benchmark.report.tables import Matrix, Table
from gaflow.html.document import document, level_class, render
from gaflow.view.shades import LEVELS
from gaflow.view.summary import shared_legend, summarize
from gaflow.view.text import visible

__all__ = ["page"]

_ARROWS = {1: ("↑", "more is better"), -1: ("↓", "less is better")}


def page(
    every: Sequence[DataSetReport],
    tables: Sequence[Table],
    pairs: Sequence[Matrix],
    figures: Mapping[str, tuple[str, str]],
) -> str:
    """The whole page; `figures` are file name -> (caption, SVG) of the masking curves."""
    names = ", ".join(data.name for data in every)
    parts = [f"<h1>Faithfulness on {_names(every)}</h1>\n", _notes(every)]
    parts += [_table(table) for table in tables]
    if figures:
        parts.append("<h2>Masking curves</h2>\n")
        parts += [_figure(caption, svg) for caption, svg in figures.values()]
    if any(data.example for data in every):
        parts.append("<h2>One text of each data set</h2>\n")
        parts += [_example(data) for data in every if data.example]
    if pairs:
        parts.append("<h2>All pairs of methods</h2>\n")
        parts.append(
            '<p class="note">Almost Stochastic Order: ε<sub>min</sub> bounds how far the method of a row fails to be '
            "better than that of a column. Below 0.5 (orange) it is better, the more the closer to 0; the error is "
            "shared by all pairs of a table (Bonferroni).</p>\n"
        )
        parts += [_matrix(matrix, first=k == 0) for k, matrix in enumerate(pairs)]
    return document(f"Faithfulness on {names}", Markup("".join(parts)), kind="report", sheets=("report.css",))


def _notes(every: Sequence[DataSetReport]) -> str:
    """What was left out, which must not be missed."""
    found = []
    for data in every:
        found += [f"{_bdi(data.name)}: without {_bdi(name)}: {_bdi(why)}" for name, why in data.left_out.items()]
        found += [
            f"{_bdi(data.name)}: {n:,} {'text' if n == 1 else 'texts'} left out: {_bdi(why)}"
            for why, n in data.skipped.items()
        ]
    items = "".join(f"<li>{said}</li>\n" for said in found)
    return f'<ul class="flags">\n{items}</ul>\n' if items else ""


def _table(table: Table) -> str:
    groups = list(dict.fromkeys(column.group for column in table.columns))
    head = f'<tr><th scope="col">{safe(table.head)}</th>'
    if any(groups):
        spans = [(name, sum(column.group == name for column in table.columns)) for name in groups]
        cells = "".join(f'<th scope="colgroup" colspan="{n}">{_bdi(name)}</th>' for name, n in spans)
        head = f'<tr class="groups"><th></th>{cells}</tr>\n{head}'
    for column in table.columns:
        sign, title = _ARROWS.get(column.better, ("", ""))
        arrow = f' <span title="{title}">{sign}</span>' if sign else ""
        head += f'<th scope="col">{_bdi(column.name)}{arrow}</th>'
    body = "".join(_row(table, k) for k in range(len(table.rows)))
    inside = f"<thead>\n{head}</tr>\n</thead>\n<tbody>\n{body}</tbody>"
    caption = f'<h2>{_bdi(table.title)}</h2>\n<p class="note">{_bdi(table.caption)}</p>\n'
    return f'{caption}<div class="wide"><table class="results">{inside}</table></div>\n'


def _row(table: Table, k: int) -> str:
    cells = ""
    for c, (value, column) in enumerate(zip(table.cells[k], table.columns, strict=True)):
        said = _bdi(shown(value, column)) if isinstance(value, str) else safe(shown(value, column))
        kind = "word" if isinstance(value, str) else "number"
        cells += f'<td class="{kind}">{f"<b>{said}</b>" if table.best(k, c) else said}</td>'
    rule = ' class="rule"' if k in table.rules else ""
    return f'<tr{rule}><th scope="row">{_bdi(table.rows[k])}</th>{cells}</tr>\n'


def _matrix(matrix: Matrix, *, first: bool) -> str:
    """All pairs, the shade growing from 0.5 to 0; the first is open."""
    table = matrix_table(matrix)
    head = "".join(f'<th scope="col"><span>{_bdi(name)}</span></th>' for name in matrix.methods)
    body = ""
    for k, name in enumerate(matrix.methods):
        cells = ""
        for value, column in zip(table.cells[k], table.columns, strict=True):
            level = round((1 - 2 * value) * LEVELS) if isinstance(value, float) and value < 0.5 else 0
            kind = f"number {level_class(level)}" if level else "number"
            cells += f'<td class="{kind}">{"" if value is None else shown(value, column)}</td>'
        body += f'<tr><th scope="row">{_bdi(name)}</th>{cells}</tr>\n'
    inside = f"<thead><tr><th></th>{head}</tr></thead>\n<tbody>\n{body}</tbody>"
    return (
        f"<details{' open' * first}><summary>{_bdi(matrix.title)}</summary>\n"
        f'<div class="wide"><table class="pairs">{inside}</table></div></details>\n'
    )


def _example(data: DataSetReport) -> str:
    """One text by all methods, a row each."""
    summaries = [summarize(att, name) for name, att in data.example.items()]
    legend = shared_legend(summaries, "blue with a dashed line below")
    return render("example.html", name=data.name, summaries=summaries, legend=legend)


def _figure(caption: str, svg: str) -> str:
    inside = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], count=1, flags=re.DOTALL)
    inside = re.sub(r'(<g|<svg) id="\w+_\d+"', r"\1", inside)
    return f'<figure><figcaption>{_bdi(caption)}</figcaption>\n<div class="wide">{inside}</div></figure>\n'


def _names(every: Sequence[DataSetReport]) -> str:
    return ", ".join(_bdi(data.name) for data in every)


def safe(text: str) -> str:
    """`text` as it may stand between tags and in quoted attributes."""
    return str(escape(visible(text)))


def _bdi(text: str) -> str:
    return f"<bdi>{safe(text)}</bdi>"
