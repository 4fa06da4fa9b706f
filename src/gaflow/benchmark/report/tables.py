"""The tables of the paper, and a few more, as plain data that the formats print as they are.

The conventions this file owns: numbers are those of `Evaluation.table()`, unrounded; the best of a column is the best
before rounding, and equal ones are best together. **Methods are sorted by result**, by their mean rank over the columns
of a table. Every table names its replacement and explains how to read it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from typing import Any, NamedTuple

import numpy as np

from gaflow.arguments import whole_number
from gaflow.benchmark.report.collect import (
    AttributionTimes,
    DataSetReport,
    family,
    method_info,
    order_methods,
    ranked_first,
)
from gaflow.evaluation.faithfulness import CONTROL
from gaflow.evaluation.metrics import better
from gaflow.evaluation.significance import aso, aso_pairs, bootstrap_means

Cell = float | int | str | None

METRIC_NAMES = {"aopc": "AOPC", "lodds": "LOdds"}
_RATE_NAMES = {"f1": "F1", "accuracy": "Acc", "precision": "Prec", "recall": "Rec"}
_FIRST = {"top": "the highest-scored first", "bottom": "the lowest-scored first"}  # by order of masking
_DIGITS = {"mean": 1, "accuracy": 3}  # of the table of data sets, where all other numbers are whole
_METHOD = "method"  # head of a table with methods as rows
_TRACE = "(trace)"


@dataclass(frozen=True)
class ReportSettings:
    """How differences are tested."""

    method: str | None = None  # compared with the best of the others; None: the best one
    confidence: float = 0.95
    resamples: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        whole_number("resamples", self.resamples, least=2)
        whole_number("seed", self.seed, least=0)

    @property
    def sampling(self) -> dict[str, Any]:
        """The arguments of tests and intervals."""
        return {"confidence": self.confidence, "resamples": self.resamples, "seed": self.seed}


@dataclass(frozen=True)
class ReportColumn:
    """A column of a table."""

    name: str
    group: str = ""  # data set
    better: int = 0  # 1: higher is better, -1: lower is, 0: neither
    digits: int = 3


Columns = dict[ReportColumn, Sequence[Cell]]  # with a cell for each row


class ColumnGroup(NamedTuple):
    """Neighbouring columns of one data set."""

    name: str
    start: int
    end: int  # excluded


@dataclass(frozen=True)
class _Measures:
    """A table of measures that `Evaluation.table()` has."""

    key: str
    title: str
    caption: str
    columns: Mapping[str, ReportColumn]  # by column of Evaluation.table()


_FAITHFULNESS = (
    _Measures(
        key="faithfulness-top",
        title="AOPC and LOdds, top k% masked",
        caption=f"Table 1 of the paper: average over the masked shares of the tokens, {_FIRST['top']}",
        columns={"aopc_top": ReportColumn("AOPC", better=1), "lodds_top": ReportColumn("LOdds", better=-1)},
    ),
    _Measures(
        key="faithfulness-bottom",
        title="AOPC and LOdds, bottom k% masked",
        caption=f"Table 2 of the paper: average over the masked shares of the tokens, {_FIRST['bottom']}",
        columns={"aopc_bottom": ReportColumn("AOPC", better=-1), "lodds_bottom": ReportColumn("LOdds", better=1)},
    ),
)
_RATES = (
    _Measures(
        key="rates-top",
        title="F1, accuracy, precision and recall, top k% masked",
        caption="Table 3 of the paper: predictions for masked texts against gold labels, macro averages, "
        f"{_FIRST['top']}",
        columns={f"{rate}_top": ReportColumn(name, better=-1) for rate, name in _RATE_NAMES.items()},
    ),
    _Measures(
        key="rates-bottom",
        title="F1, accuracy, precision and recall, bottom k% masked",
        caption=f"Predictions for masked texts against gold labels, macro averages, {_FIRST['bottom']}",
        columns={f"{rate}_bottom": ReportColumn(name, better=1) for rate, name in _RATE_NAMES.items()},
    ),
)
_OTHERS = _Measures(
    key="others",
    title="Other measures of faithfulness",
    caption="ERASER's comprehensiveness and sufficiency (1, 5, 10, 20, 50% of the tokens) and the area between the top "
    "and the bottom curve of AOPC (SRG)",
    columns={
        "comprehensiveness": ReportColumn("Compr", better=1),
        "sufficiency": ReportColumn("Suff", better=-1),
        "srg": ReportColumn("SRG", better=1),
        "normalized_aopc": ReportColumn("NAOPC", better=1),
        "soft_nc": ReportColumn("Soft-NC", better=1),
        "soft_ns": ReportColumn("Soft-NS", better=1),
    },
)


@dataclass(frozen=True)
class ReportTable:
    """A table, whatever format it will be written in."""

    key: str
    title: str
    caption: str
    head: str  # of the first column
    rows: Sequence[str]
    columns: Columns

    @property
    def label(self) -> str:
        """The key, as LaTeX refers to it."""
        return re.sub(r"[^a-z0-9-]+", "-", self.key.lower())

    def is_best(self, column: ReportColumn, row: int) -> bool:
        """Whether a cell is the best of its column."""
        values = self.columns[column]
        value = values[row]
        if column.better == 0 or not isinstance(value, float):
            return False
        numbers = [number for number in values if isinstance(number, float)]
        best = max(numbers) if column.better > 0 else min(numbers)
        is_best = abs(value - best) <= 1e-9 * abs(best)  # differences by rounding do not count
        return is_best and len(numbers) > 1

    @property
    def groups(self) -> list[ColumnGroup]:
        """Runs of columns of one group."""
        groups = []
        start = 0
        for name, columns in groupby(column.group for column in self.columns):
            end = start + len(list(columns))
            groups.append(ColumnGroup(name, start, end))
            start = end
        return groups


@dataclass(frozen=True)
class PairMatrix:
    """`eps_min` of every method being better than every other, on one data set."""

    data: str
    replacement: str
    metric: str
    order: str
    methods: tuple[str, ...]  # (m,)
    epsilon: np.ndarray  # (m, m), NaN on the diagonal

    def table(self) -> ReportTable:
        """A row's method against a column's."""
        columns = {}
        for index, name in enumerate(self.methods):
            values = self.epsilon[:, index].tolist()
            values[index] = None
            columns[ReportColumn(name, digits=2)] = values
        return ReportTable(
            key=f"pairs-{self.data}-{self.replacement}-{self.metric}-{self.order}",
            title=f"{self.data}, {METRIC_NAMES[self.metric]}, {self.order} k% masked ({self.replacement})",
            caption="ε_min of the row's method being better than the column's; below 0.5 it is, 0 in every respect.",
            head="",
            rows=self.methods,
            columns=columns,
        )


def all_tables(
    data_sets: Sequence[DataSetReport], settings: ReportSettings, compared: str | None = None
) -> list[ReportTable]:
    """Tables for every replacement, then those about the data sets and methods themselves.

    `compared` is the method of the paper's Tables 4 and 5; None leaves these out.
    """
    replacements = dict.fromkeys(replacement for data in data_sets for replacement in data.evaluations)
    tables = [_data_set_table(data_sets)]
    for replacement in replacements:
        evaluated = [data for data in data_sets if replacement in data.evaluations]
        labelled = [data for data in evaluated if data.evaluations[replacement].gold is not None]
        for measures in _FAITHFULNESS:
            tables.append(_measures_table(measures, evaluated, replacement))
        if labelled:
            for measures in _RATES:
                tables.append(_measures_table(measures, labelled, replacement))
        for order in _FIRST:
            if compared is None:
                continue
            comparison = _comparison_table(evaluated, replacement, order, compared, settings)
            if comparison.columns:
                tables.append(comparison)
        tables.append(_measures_table(_OTHERS, evaluated, replacement))
    timed = {data.name: data.times for data in data_sets if data.times is not None}
    if timed:
        tables.append(_runtime_table(timed))
    return tables


def pair_matrices(
    data_sets: Sequence[DataSetReport], settings: ReportSettings, ranked: Mapping[str, Sequence[str]] | None = None
) -> list[PairMatrix]:
    """Almost Stochastic Order of all pairs, for every data set, replacement, metric and order.

    `ranked` has the methods of each data set, the best first: the order of rows and columns.
    """
    ranked = ranked or {}
    matrices = []
    for data in data_sets:
        for replacement, evaluation in data.evaluations.items():
            methods = ranked_first(evaluation.methods, ranked.get(data.name, ()))
            if len(methods) < 2 or len(evaluation.sizes) < 2:
                continue
            rows = [evaluation.methods.index(method) for method in methods]
            for order, metric in product(_FIRST, METRIC_NAMES):
                values = better(metric, order) * evaluation.per_text(metric, order)[rows]
                matrix = PairMatrix(
                    data=data.name,
                    replacement=replacement,
                    metric=metric,
                    order=order,
                    methods=tuple(methods),
                    epsilon=aso_pairs(values, **settings.sampling),
                )
                matrices.append(matrix)
    return matrices


def _measures_table(measures: _Measures, data_sets: Sequence[DataSetReport], replacement: str) -> ReportTable:
    """Methods down, data sets and measures across."""
    methods = order_methods(*(data.evaluations[replacement].methods for data in data_sets))
    columns: Columns = {}
    for data in data_sets:
        table = data.tables[replacement].reindex(methods)
        for name, column in measures.columns.items():
            if name in table:
                numbers = table[name].astype(float)
                finite = numbers.astype(object).where(np.isfinite(numbers), None)
                columns[replace(column, group=data.name)] = finite.tolist()
    by_result = _result_order(columns, len(methods))
    caption = f"{measures.caption} {_replacement_note(replacement)}"
    if any(column.name == "NAOPC" for column in columns):
        caption += " NAOPC: AOPC between the worst and the best order of tokens."
    return ReportTable(
        key=f"{measures.key}-{replacement}",
        title=f"{measures.title} ({replacement})",
        caption=caption,
        head=_METHOD,
        rows=[methods[row] for row in by_result],
        columns={column: [values[row] for row in by_result] for column, values in columns.items()},
    )


def _result_order(columns: Columns, count: int) -> list[int]:
    """Rows by their mean rank over the columns; a row without a number in a column ranks last there."""
    ranks = []
    for column, values in columns.items():
        if column.better == 0:
            continue
        numbers = np.array([-np.inf if value is None else column.better * float(value) for value in values])
        ranks.append((numbers[:, None] < numbers).sum(1))
    if not ranks:
        return list(range(count))
    return np.argsort(np.mean(ranks, axis=0), kind="stable").tolist()


def _comparison_table(
    data_sets: Sequence[DataSetReport], replacement: str, order: str, method: str, settings: ReportSettings
) -> ReportTable:
    """Whether a method beats the best of the methods of other families, by Almost Stochastic Order."""
    columns: Columns = {}
    for data in data_sets:
        evaluation = data.evaluations[replacement]
        others = [name for name in evaluation.methods if name != CONTROL and family(name) != family(method)]
        if method not in evaluation.methods or not others or len(evaluation.sizes) < 2:
            continue
        for metric, name in METRIC_NAMES.items():
            signed = better(metric, order) * evaluation.per_text(metric, order)
            values = dict(zip(evaluation.methods, signed, strict=True))
            rival = max(others, key=lambda other, values=values: values[other].mean())
            compared = np.stack([values[method], values[rival]], 1)
            runs = bootstrap_means(compared, settings.resamples, settings.seed)
            over_texts = aso(*compared.T, **settings.sampling)
            over_runs = aso(*runs.T, **settings.sampling)
            columns[ReportColumn(name, group=data.name)] = (over_texts, over_runs, rival)
    number = 4 if order == "top" else 5
    caption = (
        f"Table {number} of the paper: ε_min of {method} being better than the best method of another kind; "
        f"below 0.5 it is. Over texts, and over {settings.resamples} runs, a run being the mean over resampled texts"
    )
    return ReportTable(
        key=f"aso-{order}-{replacement}",
        title=f"Almost Stochastic Order of {method}, {order} k% masked ({replacement})",
        caption=f"{caption} {_replacement_note(replacement)}",
        head="",
        rows=("ε_min, texts", "ε_min, runs", "compared with"),
        columns=columns,
    )


def _data_set_table(data_sets: Sequence[DataSetReport]) -> ReportTable:
    """What the numbers are about."""
    facts = [_facts(data) for data in data_sets]
    columns = {}
    for name in facts[0]:
        column = ReportColumn(name, digits=_DIGITS.get(name, 0))
        columns[column] = [row[name] for row in facts]
    return ReportTable(
        key="data",
        title="Data sets",
        caption="What was evaluated. Accuracy: of the model, on the texts as they are. Tokens: without special ones.",
        head="data set",
        rows=[data.name for data in data_sets],
        columns=columns,
    )


def _facts(data: DataSetReport) -> dict[str, Cell]:
    """What a data set's first evaluation is of, by column."""
    first = next(iter(data.evaluations.values()))
    sizes = first.sizes
    model = first.manifest.get("model", {})
    accuracy = None
    if first.gold is not None:
        accuracy = float((first.base_prediction == first.gold).mean())
    return {
        "model": model.get("name"),
        "texts": len(sizes),
        "skipped": sum(data.skipped.values()),
        "truncated": first.manifest.get("truncated"),
        "classes": len(first.classes),
        "tokens, least": int(sizes.min()),
        "mean": float(sizes.mean()),
        "most": int(sizes.max()),
        "accuracy": accuracy,
        "replacements": ", ".join(data.evaluations),
        "seed": first.manifest.get("seed"),
        "device": model.get("device"),
    }


def _runtime_table(times_by_data_set: Mapping[str, AttributionTimes]) -> ReportTable:
    """How long explaining takes; the fastest first."""
    methods = order_methods(*(times.methods for times in times_by_data_set.values()))
    rows = [_TRACE, *sorted(methods, key=lambda method: _seconds(times_by_data_set, method))]
    columns: Columns = {ReportColumn("passes"): [_passes(method) for method in rows]}
    caption = (
        "Table 8 of the paper, over data sets: seconds a text in batches, beside the trace that all methods share"
        "; what only some share counts for the first of them"
    )
    for name, times in times_by_data_set.items():
        seconds = {_TRACE: times.trace, **times.methods}
        columns[ReportColumn("s/text", name, digits=4)] = _scaled(seconds, times.texts, rows)
        if times.peak:
            columns[ReportColumn("MiB", name, digits=0)] = _scaled(times.peak, 2**20, rows)
    if any(times.peak for times in times_by_data_set.values()):
        caption += "; most memory on the GPU, with the model and the trace"
    return ReportTable(
        key="runtime",
        title="Runtime",
        caption=f"{caption}.",
        head=_METHOD,
        rows=rows,
        columns=columns,
    )


def _seconds(times_by_data_set: Mapping[str, AttributionTimes], method: str) -> float:
    """Seconds a text, mean over the data sets that have the method."""
    seconds = []
    for times in times_by_data_set.values():
        if method in times.methods:
            seconds.append(times.methods[method] / times.texts)
    return float(np.mean(seconds))


def _scaled(amounts: Mapping[str, float], unit: int, methods: Sequence[str]) -> list[Cell]:
    """The amounts of `methods` in a unit; None where there is none."""
    scaled = {method: amount / unit for method, amount in amounts.items()}
    return [scaled.get(method) for method in methods]


def _passes(method: str) -> str | None:
    if method == _TRACE:
        return "1 forward, 1 backward"
    info = method_info(method)
    return None if info is None else info.passes


def _replacement_note(replacement: str) -> str:
    if replacement == "delete":
        return "(masked tokens are deleted)."
    return f"(masked tokens become [{replacement.upper()}])."
