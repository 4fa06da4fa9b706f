"""All files of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from gaflow.arguments import checked, location, output_folder
from gaflow.benchmark.report.collect import DataSetReport, collect, order_methods
from gaflow.benchmark.report.formats import to_csv, to_latex, to_markdown
from gaflow.benchmark.report.page import page
from gaflow.benchmark.report.tables import PairMatrix, ReportSettings, all_tables, pair_matrices
from gaflow.benchmark.report.verdict import Verdict, overall_order, verdict_numbers, verdicts
from gaflow.errors import Argument, DataError
from gaflow.evaluation.faithfulness import CONTROL
from gaflow.files import write_atomically

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Report:
    """The files of a report, not yet written, and what they say first."""

    verdicts: Sequence[Verdict]
    contents: Mapping[str, str]  # file name -> text

    def write(self, folder: Path) -> list[Path]:
        """Write all files into `folder`, which is made if need be."""
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        for name, text in self.contents.items():
            write_atomically(folder / name, text.encode())
        return [folder / name for name in self.contents]


@checked
def report(
    folder: str | Path,
    out: str | Path | None = None,
    *,
    datasets: Sequence[str] | None = None,
    method: str | None = None,
    confidence: float = 0.95,
    resamples: int = 500,
    seed: int = 0,
) -> list[Path]:
    """Write the report of a benchmark's folder, into it unless `out` is another; returns the files.

    `datasets` selects and orders the data sets by name. `method` is compared with the best of the others and drawn
    thicker; None is the best method of each data set. `confidence`, `resamples` and `seed` are those of the tests and
    intervals.
    """
    target = location("folder", folder) if out is None else output_folder("out", out)
    settings = ReportSettings(method=method, confidence=confidence, resamples=resamples, seed=seed)
    return make_report(location("folder", folder), datasets, settings).write(target)


def make_report(folder: Path, datasets: Sequence[str] | None, settings: ReportSettings) -> Report:
    """The report of a benchmark's folder."""
    from gaflow.benchmark.report.figures import example_figures, masking_curves

    data_sets = collect(folder, datasets)
    measured = order_methods(*(data.methods for data in data_sets))
    if settings.method is not None and settings.method not in measured:
        message = f" {settings.method!r} was not measured here; there are {', '.join(measured)}"
        raise DataError(Argument("method"), message)
    all_verdicts = verdicts(data_sets, settings)
    best_first = [name for name in overall_order(all_verdicts) if name != CONTROL]
    compared = settings.method or next(iter(best_first), None)
    tables = [*(verdict.table() for verdict in all_verdicts), *all_tables(data_sets, settings, compared)]
    ranked = {verdict.data: verdict.ranking.methods for verdict in all_verdicts}
    matrices = pair_matrices(data_sets, settings, ranked)
    pair_tables = [matrix.table() for matrix in matrices]
    points = {}
    for data in data_sets:
        for replacement, evaluation in data.evaluations.items():
            points[data.name, replacement] = evaluation.curves(**settings.sampling)
    highlights = {verdict.data: settings.method or verdict.ranking.best for verdict in all_verdicts}
    curve_figures = masking_curves(data_sets, points, highlights, ranked)
    contents = {
        "tables.md": to_markdown(data_sets, all_verdicts, tables, pair_tables, settings),
        "tables.tex": to_latex(data_sets, tables + pair_tables),
        "tables.csv": to_csv(_numbers(data_sets)),
        "ranking.csv": to_csv(verdict_numbers(all_verdicts)),
        "pairs.csv": to_csv(_pairs(matrices)),
        "curves.csv": to_csv(_curves(points)),
        "report.html": page(data_sets, all_verdicts, tables, pair_tables, curve_figures),
    }
    for figure in [*curve_figures, *example_figures(data_sets)]:
        contents[f"figures/{figure.name}"] = figure.svg
    return Report(all_verdicts, contents)


def _numbers(data_sets: Sequence[DataSetReport]) -> pd.DataFrame:
    """`Evaluation.table()` of everything; measures that a table does not have are missing, and NaN is a number."""
    import pandas as pd

    tables = {}
    for data in data_sets:
        for replacement, table in data.tables.items():
            numbers = table.loc[order_methods(table.index)].drop(columns="replacement")
            tables[data.name, replacement] = numbers.astype(object).where(numbers.notna(), "nan")
    return pd.concat(tables, names=["data_set", "replacement"]).reset_index()


def _pairs(matrices: Sequence[PairMatrix]) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for matrix in matrices:
        pairs = product(matrix.methods, repeat=2)
        for (method, other), epsilon in zip(pairs, matrix.epsilon.ravel().tolist(), strict=True):
            if method != other:
                rows.append([matrix.data, matrix.replacement, matrix.metric, matrix.order, method, other, epsilon])
    columns = ["data_set", "replacement", "metric", "order", "method", "other", "epsilon"]
    return pd.DataFrame(rows, columns=columns)


def _curves(points: Mapping[tuple[str, str], pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    return pd.concat(points).rename_axis(["data_set", "replacement", None]).reset_index(level=[0, 1])
