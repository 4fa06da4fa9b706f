"""The report of a benchmark: the paper's tables and figures from the evaluations in a folder.

    tables.md, tables.tex     Tables 1 to 5, 6 and 8 of the paper, further measures, and all pairs of methods
    tables.csv                a row for each data set, replacement and method, with every number of Evaluation.table()
    pairs.csv, curves.csv     Almost Stochastic Order of all pairs; the points of the curves with their intervals
    figures/*.svg             masking curves (Figure 8), one text of each data set by all methods (Figure 9)
    report.html               all of it on one page

The convention this room owns: the same evaluations give the same files, byte for byte; nothing is computed anew but
resamples of texts, by a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaflow.benchmark.report.collect import DataSetReport, collect, ordered
from gaflow.benchmark.report.formats import as_csv, markdown, matrix_table, plain, tex, tex_text
from gaflow.benchmark.report.page import page
from gaflow.benchmark.report.tables import Matrix, Settings, Table, all_tables, matrices
from gaflow.errors import DataError
from gaflow.explainer.default_method import DEFAULT
from gaflow.files import write_atomically

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Settings", "report"]


def report(
    folder: str | Path,
    out: str | Path | None = None,
    *,
    datasets: Sequence[str] | None = None,
    method: str = DEFAULT,
    confidence: float = 0.95,
    resamples: int = 500,
    seed: int = 0,
) -> list[Path]:
    """Write the report of a benchmark's folder, into it unless `out` is another; gives the files.

    `datasets` chooses and orders the data sets by name. `method` is the one that is compared with the best of the
    others and drawn thicker; agf may be missing, any other must have been measured. `confidence`, `resamples` and
    `seed` are of the tests and intervals.
    """
    from gaflow.benchmark.report.figures import masking_curves, samples

    settings = Settings(method, confidence, resamples, seed)
    every = collect(Path(folder), datasets)
    _check_method(method, every)
    place = Path(out) if out is not None else Path(folder)
    tables, pairs = all_tables(every, settings), list(matrices(every, settings))
    points = {
        (data.slug, name): e.curves(confidence=confidence, resamples=resamples, seed=seed)
        for data in every
        for name, e in data.evaluations.items()
    }
    curves = {name: (caption, svg) for name, caption, svg in masking_curves(every, points, method)}
    files: dict[str, str] = {
        "tables.md": _markdown(every, tables, pairs, settings),
        "tables.tex": _tex(every, tables, pairs),
        "tables.csv": _numbers(every),
        "pairs.csv": _pairs(pairs),
        "curves.csv": _points(every, points),
        "report.html": page(every, tables, pairs, curves),
    }
    files |= {f"figures/{name}": svg for name, (_, svg) in curves.items()}
    files |= {f"figures/{name}": svg for name, _, svg in samples(every)}
    (place / "figures").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        write_atomically(place / name, text.encode())
    return [place / name for name in files]


def _check_method(method: str, every: Sequence[DataSetReport]) -> None:
    there = ordered(name for data in every for e in data.evaluations.values() for name in e.methods)
    if method != DEFAULT and method not in there:  # a benchmark need not have the default
        raise DataError(f"no method {method!r} was measured here; there are {', '.join(there)}")


def _markdown(
    every: Sequence[DataSetReport], tables: Sequence[Table], pairs: Sequence[Matrix], settings: Settings
) -> str:
    parts = [f"# Faithfulness on {', '.join(plain(data.name) for data in every)}\n"]
    notes = [f"- {plain(text)}" for data in every for text in _notes(data)]
    parts += ["\n".join(notes) + "\n"] * bool(notes)
    parts += [markdown(table) for table in tables]
    if pairs:
        parts.append(
            f"## All pairs of methods\n\nAlmost Stochastic Order over texts, confidence {settings.confidence:g} shared "
            f"by all pairs of a table (Bonferroni), {settings.resamples} resamples.\n"
        )
    return "\n".join([*parts, *(markdown(matrix_table(matrix)) for matrix in pairs)])


def _tex(every: Sequence[DataSetReport], tables: Sequence[Table], pairs: Sequence[Matrix]) -> str:
    head = "% needs \\usepackage{booktabs} and an encoding that has these characters\n"
    notes = [f"% {tex_text(text)}\n" for data in every for text in _notes(data)]
    return "\n".join([head + "".join(notes), *map(tex, tables), *(tex(matrix_table(matrix)) for matrix in pairs)])


def _notes(data: DataSetReport) -> list[str]:
    """What was left out of one data set."""
    found = [f"{data.name}: without {name}: {why}" for name, why in data.left_out.items()]
    return found + [
        f"{data.name}: {n:,} {'text' if n == 1 else 'texts'} left out: {why}" for why, n in data.skipped.items()
    ]


def _numbers(every: Sequence[DataSetReport]) -> str:
    tables = [(data.name, e.table(), e) for data in every for e in data.evaluations.values()]
    columns = list(dict.fromkeys(c for _, table, _ in tables for c in table.columns if c != "replacement"))
    rows: list[list[Any]] = []
    for name, table, evaluation in tables:
        for method in ordered(evaluation.methods):
            values = [table.loc[method, c].item() if c in table.columns else None for c in columns]
            rows.append([name, evaluation.replacement, method, *values])
    return as_csv(["data_set", "replacement", "method", *columns], rows)


def _pairs(pairs: Sequence[Matrix]) -> str:
    rows = [
        [m.data, m.replacement, m.metric, m.order, a, b, float(m.epsilon[i, j])]
        for m in pairs
        for i, a in enumerate(m.methods)
        for j, b in enumerate(m.methods)
        if i != j
    ]
    return as_csv(["data_set", "replacement", "metric", "order", "method", "other", "epsilon"], rows)


def _points(every: Sequence[DataSetReport], points: dict[tuple[str, str], pd.DataFrame]) -> str:
    columns = ["method", "order", "k", "metric", "mean", "low", "high"]
    rows = [
        [data.name, replacement, *row]
        for data in every
        for replacement in data.evaluations
        for row in points[data.slug, replacement][columns].itertuples(index=False, name=None)
    ]
    return as_csv(["data_set", "replacement", *columns], rows)
