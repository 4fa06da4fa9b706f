"""Tables as Markdown, LaTeX and CSV.

The convention this file owns: names, labels and reasons are strangers' words. They are printed as they are, whatever
they would mean to Markdown, TeX, HTML or a spreadsheet, and control characters are written out.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

from gaflow.benchmark.report.collect import DataSetReport
from gaflow.benchmark.report.tables import Cell, PairMatrix, ReportColumn, ReportSettings, ReportTable
from gaflow.view.text import visible

__all__ = [
    "cell_text",
    "latex_table",
    "latex_text",
    "markdown_table",
    "markdown_text",
    "to_csv",
    "to_latex",
    "to_markdown",
]

NO_VALUE = "–"
_ARROWS = {1: "↑", -1: "↓", 0: ""}
_LATEX_ARROWS = {1: r"$\uparrow$", -1: r"$\downarrow$", 0: ""}
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
    tables: Sequence[ReportTable],
    matrices: Sequence[PairMatrix],
    settings: ReportSettings,
) -> str:
    """All tables as one Markdown file."""
    names = ", ".join(markdown_text(data.name) for data in data_sets)
    parts = [f"# Faithfulness on {names}\n"]
    notes = [f"- {markdown_text(note)}\n" for data in data_sets for note in data.notes()]
    if notes:
        parts.append("".join(notes))
    parts += [markdown_table(table) for table in tables]
    if matrices:
        parts.append(
            f"## All pairs of methods\n\nAlmost Stochastic Order over texts, confidence {settings.confidence:g} shared "
            f"by all pairs of a table (Bonferroni), {settings.resamples} resamples.\n"
        )
    parts += [markdown_table(matrix.table()) for matrix in matrices]
    return "\n".join(parts)


def markdown_table(table: ReportTable) -> str:
    """A table of GitHub's Markdown with its title and caption; groups are part of the columns' names."""
    heads = [markdown_text(table.head)]
    for column in table.columns:
        name = markdown_text(f"{column.group} {column.name}".strip())
        heads.append(f"{name} {_ARROWS[column.better]}".rstrip())
    lines = [
        f"### {markdown_text(table.title)}",
        "",
        markdown_text(table.caption),
        "",
        f"| {' | '.join(heads)} |",
        "|---|" + "---:|" * len(table.columns),
    ]
    for row, name in enumerate(table.rows):
        cells = [markdown_text(name)]
        for column, value in enumerate(table.cells[row]):
            text = markdown_text(cell_text(value, table.columns[column]))
            cells.append(f"**{text}**" if table.is_best(row, column) else text)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def markdown_text(text: str) -> str:
    """A text as Markdown prints it, in a cell of a table too."""
    line = " ".join(visible(text).split())
    line = re.sub(r"([\\`*\[\]<>|&~$#])", r"\\\1", line)
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", line)


def to_latex(data_sets: Sequence[DataSetReport], tables: Sequence[ReportTable], matrices: Sequence[PairMatrix]) -> str:
    """All tables as one LaTeX file."""
    head = "% needs \\usepackage{booktabs} and an encoding that has these characters\n"
    for data in data_sets:
        for note in data.notes():
            head += f"% {latex_text(note)}\n"
    parts = [latex_table(table) for table in tables]
    parts += [latex_table(matrix.table()) for matrix in matrices]
    return "\n".join([head, *parts])


def latex_table(table: ReportTable) -> str:
    """A table for LaTeX with booktabs."""
    lines = [
        r"\begin{table*}[ht]",
        r"\centering\scriptsize\setlength{\tabcolsep}{4pt}",
        rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
        r"\toprule",
    ]
    groups = table.groups
    if any(group.name for group in groups):
        names = [""]
        rules = []
        for group in groups:
            names.append(rf"\multicolumn{{{group.end - group.start}}}{{c}}{{{latex_text(group.name)}}}")
            if group.name:
                rules.append(rf"\cmidrule(lr){{{group.start + 2}-{group.end + 1}}}")
        lines.append(_latex_row(names))
        lines.append(" ".join(rules))
    heads = [latex_text(column.name) + _LATEX_ARROWS[column.better] for column in table.columns]
    lines += [_latex_row([latex_text(table.head), *heads]), r"\midrule"]
    for row, name in enumerate(table.rows):
        if row in table.rules:
            lines.append(r"\midrule")
        cells = [_latex_cell(table, row, column) for column in range(len(table.columns))]
        lines.append(_latex_row([latex_text(name), *cells]))
    label = re.sub(r"[^a-z0-9-]+", "-", table.key.lower())
    lines += [
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{latex_text(table.title)}. {latex_text(table.caption)}}}",
        rf"\label{{tab:{label}}}",
        r"\end{table*}",
        "",
    ]
    return "\n".join(lines)


def latex_text(text: str) -> str:
    """A text as TeX prints it."""
    line = " ".join(visible(text).split())
    return "".join(_LATEX_CHARACTERS.get(character, character) for character in line)


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cell(table: ReportTable, row: int, column: int) -> str:
    value = table.cells[row][column]
    text = cell_text(value, table.columns[column])
    if isinstance(value, str) or value is None:
        return latex_text(text)
    number = text.replace("-", "$-$").replace(",", "{,}")
    return rf"\textbf{{{number}}}" if table.is_best(row, column) else number


def to_csv(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Comma-separated values; numbers unrounded, texts never formulas."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(heads)
    for row in rows:
        writer.writerow([_csv_cell(value) for value in row])
    return buffer.getvalue()


def _csv_cell(value: object) -> object:
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, str):
        text = visible(value)
        return f"'{text}" if text.startswith(_FORMULA_STARTS) else text
    return "" if value is None else value
