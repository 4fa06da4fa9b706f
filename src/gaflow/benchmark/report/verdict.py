"""What a benchmark says: the ranking of the methods of every data set, in words and as a table.

The convention this file owns: **methods are ranked by AOPC with the highest-scored tokens masked first**, by the worst
of the replacements that were measured. Whose method it is plays no part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gaflow.benchmark.report.collect import DataSetReport, order_methods
from gaflow.benchmark.report.tables import Columns, ReportColumn, ReportSettings, ReportTable
from gaflow.evaluation.ranking import CONTROL, DOMINANT, SIGNIFICANT, Ranking, rank_methods

if TYPE_CHECKING:
    import pandas as pd

MEASURE = "aopc"
ORDER = "top"


@dataclass(frozen=True)
class Verdict:
    """The ranking of the methods of one data set."""

    data: str
    ranking: Ranking

    @property
    def sentences(self) -> list[str]:
        """The ranking in plain words."""
        return self.ranking.sentences(self.data)

    def table(self) -> ReportTable:
        """A row for each method, the best first."""
        ranking = self.ranking
        columns: Columns = {}
        if len(ranking.replacements) > 1:
            columns[ReportColumn("worst rank", digits=0)] = ranking.worst.tolist()
        for row, replacement in enumerate(ranking.replacements):
            columns[ReportColumn("AOPC", replacement, better=1)] = ranking.means[row].tolist()
            intervals = []
            for low, high in zip(ranking.low[row], ranking.high[row], strict=True):
                intervals.append(f"{low:.3f} to {high:.3f}")
            columns[ReportColumn("interval", replacement)] = intervals
        columns[ReportColumn("against random")] = [ranking.against_control(method) for method in ranking.methods]
        if ranking.best is not None:
            against_best = [ranking.against_best(method) for method in ranking.methods]
            columns[ReportColumn(f"against {ranking.best}")] = against_best
        return ReportTable(
            key=f"ranking-{self.data}",
            title=f"Ranking on {self.data}",
            caption=how_sure(ranking),
            head="method",
            rows=ranking.methods,
            columns=columns,
        )


def verdicts(data_sets: Sequence[DataSetReport], settings: ReportSettings) -> list[Verdict]:
    """The verdict of every data set."""
    found_verdicts = []
    for data in data_sets:
        found_verdicts.append(Verdict(data.name, rank_methods(data.evaluations, MEASURE, ORDER, **settings.sampling)))
    return found_verdicts


def overall_order(all_verdicts: Sequence[Verdict]) -> list[str]:
    """All methods by the worst of their ranks on any data set, then by the mean of these ranks; the best first."""
    worst_ranks: dict[str, list[int]] = {}
    for verdict in all_verdicts:
        for method, rank in zip(verdict.ranking.methods, verdict.ranking.worst.tolist(), strict=True):
            worst_ranks.setdefault(method, []).append(rank)

    def key(method: str) -> tuple[int, int, float]:
        ranks = worst_ranks[method]
        unmeasured = len(all_verdicts) - len(ranks)
        return unmeasured, max(ranks), float(np.mean(ranks))

    methods = order_methods(worst_ranks)
    return sorted(methods, key=key)


def how_sure(ranking: Ranking) -> str:
    """What stands behind the words of a ranking."""
    pairs = len(ranking.methods) * (len(ranking.methods) - 1) // 2
    texts = "1 text" if ranking.texts == 1 else f"{ranking.texts:,} texts"
    words = (
        f'AOPC on {texts}, the highest-scored tokens masked first, with bootstrap intervals. "Clearly": '
        f"p < {SIGNIFICANT:g} in a paired sign-flip test, and ε_min < {DOMINANT:g} by Almost Stochastic Order; "
        f'"on average": the first only. Both are corrected for all {pairs} pairs of methods (Holm, Bonferroni)'
    )
    if len(ranking.replacements) > 1:
        words += ", and must hold with every replacement. Methods are ordered by the worst of their ranks"
    return f"{words}."


def verdict_numbers(all_verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """A row for each data set, method and replacement, with unrounded numbers."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for verdict in all_verdicts:
        ranking = verdict.ranking
        for column, method in enumerate(ranking.methods):
            for row, replacement in enumerate(ranking.replacements):
                entry = {
                    "data_set": verdict.data,
                    "method": method,
                    "worst_rank": int(ranking.worst[column]),
                    "replacement": replacement,
                    "rank": int(ranking.ranks[row, column]),
                    MEASURE: float(ranking.means[row, column]),
                    "low": float(ranking.low[row, column]),
                    "high": float(ranking.high[row, column]),
                    "against_random": ranking.against_control(method),
                    "against_best": ranking.against_best(method),
                }
                entry |= _against_first(ranking, column)
                rows.append(entry)
    return pd.DataFrame(rows)


def _against_first(ranking: Ranking, column: int) -> dict[str, float | None]:
    """Corrected p-value and eps_min of the best method being better than another one."""
    if ranking.best is None or ranking.methods[column] == ranking.best:
        return {"p_best": None, "epsilon_best": None}
    first = ranking.methods.index(ranking.best)
    return {"p_best": float(ranking.p[first, column]), "epsilon_best": float(ranking.epsilon[first, column])}


@dataclass(frozen=True)
class ChartBar:
    """One method under one replacement in the chart of a verdict, in per cent of the chart's width."""

    replacement: str
    low: float
    mean: float
    high: float
    control: float | None  # where random scores are
    number: str


@dataclass(frozen=True)
class ChartRow:
    """One method of the chart."""

    method: str
    rank: int
    is_control: bool
    words: str
    bars: tuple[ChartBar, ...]


@dataclass(frozen=True)
class Chart:
    """A chart of AOPC with intervals, a row for each method."""

    rows: tuple[ChartRow, ...]
    zero: float  # where 0 is, in per cent of the width


def chart(ranking: Ranking) -> Chart:
    """The chart of a ranking."""
    least = min(0.0, float(ranking.low.min()))
    most = max(0.0, float(ranking.high.max()))
    width = (most - least) or 1.0

    def position(value: float) -> float:
        return round(100 * (value - least) / width, 2)

    controls: list[float | None] = [None] * len(ranking.replacements)
    if CONTROL in ranking.methods:
        control_means = ranking.means[:, ranking.methods.index(CONTROL)]
        controls = [position(mean) for mean in control_means]
    rows = []
    for column, method in enumerate(ranking.methods):
        bars = []
        for row, replacement in enumerate(ranking.replacements):
            bar = ChartBar(
                replacement=replacement,
                low=position(ranking.low[row, column]),
                mean=position(ranking.means[row, column]),
                high=position(ranking.high[row, column]),
                control=controls[row],
                number=f"{ranking.means[row, column]:.3f}",
            )
            bars.append(bar)
        chart_row = ChartRow(
            method=method,
            rank=int(ranking.worst[column]),
            is_control=method == CONTROL,
            words=_chart_words(ranking, method),
            bars=tuple(bars),
        )
        rows.append(chart_row)
    return Chart(rows=tuple(rows), zero=position(0.0))


def _chart_words(ranking: Ranking, method: str) -> str:
    """What the tests say of a method, beside its bars."""
    if method == CONTROL:
        return "control"
    against_control = ranking.against_control(method)
    if against_control in ("no better", "worse"):
        return f"{against_control} than random"
    return ranking.against_best(method) or "first"
