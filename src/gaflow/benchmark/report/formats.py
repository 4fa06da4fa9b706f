"""Tables as Markdown, LaTeX and CSV.

The convention this file owns: names, labels and reasons are strangers' words. They are shown as they are, whatever
they would mean to Markdown, TeX, HTML or a spreadsheet; what would steer a screen is written out.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

from gaflow.benchmark.report.tables import Cell, Column, Matrix, Table
from gaflow.view.text import visible

__all__ = ["as_csv", "markdown", "matrix_table", "plain", "shown", "tex", "tex_text"]

NONE = "–"
_ARROWS = {1: "↑", -1: "↓", 0: ""}
_TEX_ARROWS = {1: r"$\uparrow$", -1: r"$\downarrow$", 0: ""}
_TEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "–": "--", "ε": r"$\varepsilon$", "…": r"\ldots{}", "’": "'",
    "[": "{[}", "]": "{]}",
}  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # with which a spreadsheet takes a text for more than a text


def shown(value: Cell, column: Column) -> str:
    """A cell as it is printed."""
    if value is None:
        return NONE
    if isinstance(value, str):
        return visible(value)
    text = f"{value:,.{column.digits}f}"
    return text if text.strip("-0.") else text.lstrip("-")  # no minus before nothing


def markdown(table: Table) -> str:
    """A table of GitHub's Markdown with its title and caption; groups are part of the columns' names."""
    heads = [" ".join(filter(None, (c.group, c.name))) for c in table.columns]
    names = [f"{plain(head)} {_ARROWS[c.better]}".rstrip() for head, c in zip(heads, table.columns, strict=True)]
    lines = [f"### {plain(table.title)}", "", plain(table.caption), ""]
    lines.append(f"| {' | '.join([plain(table.head), *names])} |")
    lines.append("|---|" + "---:|" * len(names))
    for k, row in enumerate(table.rows):
        cells = []
        for c, (value, column) in enumerate(zip(table.cells[k], table.columns, strict=True)):
            text = plain(shown(value, column))
            cells.append(f"**{text}**" if table.best(k, c) else text)
        lines.append(f"| {' | '.join([plain(row), *cells])} |")
    return "\n".join([*lines, ""])


def tex(table: Table) -> str:
    """A table for LaTeX with booktabs."""
    groups = _groups(table.columns)
    lines = [
        r"\begin{table*}[ht]", r"\centering\scriptsize\setlength{\tabcolsep}{4pt}",
        rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\toprule",
    ]  # fmt: skip
    if any(name for name, _, _ in groups):
        lines.append(
            " & ".join(["", *(rf"\multicolumn{{{b - a}}}{{c}}{{{tex_text(name)}}}" for name, a, b in groups)]) + r" \\"
        )
        lines.append(" ".join(rf"\cmidrule(lr){{{a + 2}-{b + 1}}}" for name, a, b in groups if name))
    heads = [tex_text(column.name) + _TEX_ARROWS[column.better] for column in table.columns]
    lines += [" & ".join([tex_text(table.head), *heads]) + r" \\", r"\midrule"]
    for k, row in enumerate(table.rows):
        lines += [r"\midrule"] if k in table.rules else []
        cells = [_tex_cell(table, k, c) for c in range(len(table.columns))]
        lines.append(" & ".join([tex_text(row), *cells]) + r" \\")
    label = re.sub(r"[^a-z0-9-]+", "-", table.key.lower())
    lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{tex_text(table.title)}. {tex_text(table.caption)}}}"]
    return "\n".join([*lines, rf"\label{{tab:{label}}}", r"\end{table*}", ""])


def as_csv(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Comma-separated values; numbers unrounded, texts never formulas."""
    held = io.StringIO()
    writer = csv.writer(held, lineterminator="\n")
    writer.writerow(heads)
    for row in rows:
        writer.writerow([_csv_cell(value) for value in row])
    return held.getvalue()


def matrix_table(matrix: Matrix) -> Table:
    """All pairs as a table: a row's method against a column's."""
    cells = [[None if i == j else float(v) for j, v in enumerate(row)] for i, row in enumerate(matrix.epsilon)]
    caption = "ε_min of the row's method being better than the column's; below 0.5 it is, 0 in every respect."
    key = f"pairs-{matrix.data}-{matrix.replacement}-{matrix.metric}-{matrix.order}"
    columns = tuple(Column(name, digits=2) for name in matrix.methods)
    return Table(key, matrix.title, caption, "", matrix.methods, columns, tuple(tuple(row) for row in cells))


def tex_text(text: str) -> str:
    """A text as TeX prints it."""
    return "".join(_TEX.get(sign, sign) for sign in " ".join(visible(text).split()))


def _tex_cell(table: Table, row: int, column: int) -> str:
    value = table.cells[row][column]
    text = shown(value, table.columns[column])
    if isinstance(value, str) or value is None:
        return tex_text(text)
    number = text.replace("-", "$-$").replace(",", "{,}")
    return rf"\textbf{{{number}}}" if table.best(row, column) else number


def _groups(columns: Sequence[Column]) -> list[tuple[str, int, int]]:
    """Runs of columns of one group: name, first, end."""
    found: list[tuple[str, int, int]] = []
    for k, column in enumerate(columns):
        if found and found[-1][0] == column.group:
            found[-1] = (column.group, found[-1][1], k + 1)
        else:
            found.append((column.group, k, k + 1))
    return found


def plain(text: str) -> str:
    """A text as Markdown shows it, in a cell of a table too."""
    line = " ".join(visible(text).split())
    line = re.sub(r"([\\`*\[\]<>|&~$#])", r"\\\1", line)
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", line)


def _csv_cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, str):
        text = visible(value)
        return f"'{text}" if text.startswith(_FORMULA) else text
    return repr(float(value)) if isinstance(value, float) else value
