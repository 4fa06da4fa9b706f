"""Tables as Markdown, LaTeX and CSV.

The convention this file owns: names, labels and reasons are strangers' words. They are printed as they are, whatever
they would mean to Markdown, TeX, HTML or a spreadsheet, and control characters are written out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from gaflow.benchmark.report.collect import DataSetReport
from gaflow.benchmark.report.tables import Cell, ReportColumn, ReportSettings, ReportTable
from gaflow.benchmark.report.verdict import Verdict
from gaflow.view.text import visible

if TYPE_CHECKING:
    import pandas as pd

NO_VALUE = "–"
_LATEX_CHARACTERS = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "–": "--", "ε": r"$\varepsilon$", "…": r"\ldots{}", "’": "'",
    "[": "{[}", "]": "{]}",
}  # fmt: skip
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet evaluates texts that begin with one


def cell_text(value: Cell, column: ReportColumn) -> str:
    """A cell as it is printed."""
    if value is None:
        return NO_VALUE
    if isinstance(value, str):
        return visible(value)
    text = f"{value:,.{column.digits}f}"
    is_zero = not text.strip("-0.")
    return text.lstrip("-") if is_zero else text


def to_markdown(
    data_sets: Sequence[DataSetReport],
    verdicts: Sequence[Verdict],
    tables: Sequence[ReportTable],
    pair_tables: Sequence[ReportTable],
    settings: ReportSettings,
) -> str:
    """All tables as one Markdown file, for GitHub; groups are part of the columns' names."""
    notes = chain.from_iterable(data.notes() for data in data_sets)
    template = _template("tables.md", markdown_text)
    return template.render(
        data_sets=data_sets,
        verdicts=verdicts,
        notes=notes,
        tables=tables,
        pair_tables=pair_tables,
        settings=settings,
    )


def markdown_text(text: str) -> str:
    """A text as Markdown prints it, in a cell of a table too."""
    line = " ".join(visible(text).split())
    line = re.sub(r"([\\`*\[\]<>|&~$#])", r"\\\1", line)
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", line)


def to_latex(data_sets: Sequence[DataSetReport], tables: Sequence[ReportTable]) -> str:
    """All tables as one LaTeX file."""
    notes = chain.from_iterable(data.notes() for data in data_sets)
    return _template("tables.tex", latex_text).render(notes=notes, tables=tables)


def latex_text(text: str) -> str:
    """A text as TeX prints it."""
    line = " ".join(visible(text).split())
    return "".join(_LATEX_CHARACTERS.get(character, character) for character in line)


def to_csv(table: pd.DataFrame) -> str:
    """Comma-separated values; numbers unrounded, texts never formulas."""
    return table.map(_csv_cell).to_csv(index=False, lineterminator="\n")


def _csv_cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = visible(value)
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def _template(name: str, write_text: Callable[[str], str]) -> Template:
    """A file of templates/ that writes every value by `write_text`, unless it is `Markup`."""

    def finalize(value: object) -> Markup:
        return value if isinstance(value, Markup) else Markup(write_text(str(value)))

    environment = Environment(
        loader=PackageLoader("gaflow", "benchmark/report/templates"),
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        block_start_string="<%",  # braces are LaTeX's
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
    )
    environment.globals["cell_text"] = cell_text
    return environment.get_template(name)
