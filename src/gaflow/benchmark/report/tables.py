"""The tables of the paper, and a few more, as plain data that the formats print as they are.

The convention this file owns: numbers are those of `Evaluation.table()`, unrounded; the best of a column is the best
before rounding, and equal ones are best together. Every table names its replacement and explains how to read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

from gaflow.benchmark.report.collect import AttributionTimes, DataSetReport, family, method_info, order_methods
from gaflow.evaluation.faithfulness import CONTROL
from gaflow.evaluation.metrics import better
from gaflow.evaluation.significance import aso, aso_pairs, bootstrap_means

__all__ = [
    "METRIC_NAMES",
    "Cell",
    "ColumnGroup",
    "PairMatrix",
    "ReportColumn",
    "ReportSettings",
    "ReportTable",
    "all_tables",
    "pair_matrices",
]

Cell = float | int | str | None

METRIC_NAMES = {"aopc": "AOPC", "lodds": "LOdds"}
_RATE_NAMES = {"f1": "F1", "accuracy": "Acc", "precision": "Prec", "recall": "Rec"}
_FIRST = {"top": "the highest-scored first", "bottom": "the lowest-scored first"}  # by order of masking
_DIGITS = {"mean": 1, "accuracy": 3}  # of the table of data sets, where all other numbers are whole
_TRACE = "(trace)"


@dataclass(frozen=True)
class ReportSettings:
    """How differences are tested."""

    method: str = "agf"  # compared with the best of the others
    confidence: float = 0.95
    resamples: int = 500
    seed: int = 0


@dataclass(frozen=True)
class ReportColumn:
    """A column of a table."""

    name: str
    group: str = ""  # data set
    better: int = 0  # 1: higher is better, -1: lower is, 0: neither
    digits: int = 3


class ColumnGroup(NamedTuple):
    """Neighbouring columns of one data set."""

    name: str
    start: int
    end: int  # excluded


_OTHER_MEASURES = {  # by column of Evaluation.table()
    "comprehensiveness": ReportColumn("Compr", better=1),
    "sufficiency": ReportColumn("Suff", better=-1),
    "srg": ReportColumn("SRG", better=1),
    "normalized_aopc": ReportColumn("NAOPC", better=1),
    "soft_nc": ReportColumn("Soft-NC", better=1),
    "soft_ns": ReportColumn("Soft-NS", better=1),
}


@dataclass(frozen=True)
class ReportTable:
    """A table, whatever format it will be written in."""

    key: str
    title: str
    caption: str
    head: str  # of the first column
    rows: tuple[str, ...]
    columns: tuple[ReportColumn, ...]
    cells: tuple[tuple[Cell, ...], ...]  # (rows, columns)
    rules: frozenset[int] = frozenset()  # rows with a line above

    def is_best(self, row: int, column: int) -> bool:
        """Whether a cell is the best of its column."""
        sign = self.columns[column].better
        value = self.cells[row][column]
        if sign == 0 or not isinstance(value, float):
            return False
        values = [cells[column] for cells in self.cells]
        numbers = [number for number in values if isinstance(number, float)]
        best = max(numbers) if sign > 0 else min(numbers)
        return len(numbers) > 1 and abs(value - best) <= 1e-9 * abs(best)  # differences by rounding do not count

    @property
    def groups(self) -> list[ColumnGroup]:
        """Runs of columns of one group."""
        groups: list[ColumnGroup] = []
        for k, column in enumerate(self.columns):
            if groups and groups[-1].name == column.group:
                groups[-1] = groups[-1]._replace(end=k + 1)
            else:
                groups.append(ColumnGroup(column.group, k, k + 1))
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

    @property
    def title(self) -> str:
        """What it compares."""
        return f"{self.data}, {METRIC_NAMES[self.metric]}, {self.order} k% masked ({self.replacement})"

    def table(self) -> ReportTable:
        """A row's method against a column's."""
        rows = []
        for i, numbers in enumerate(self.epsilon.tolist()):
            numbers[i] = None
            rows.append(tuple(numbers))
        return ReportTable(
            key=f"pairs-{self.data}-{self.replacement}-{self.metric}-{self.order}",
            title=self.title,
            caption="ε_min of the row's method being better than the column's; below 0.5 it is, 0 in every respect.",
            head="",
            rows=self.methods,
            columns=tuple(ReportColumn(name, digits=2) for name in self.methods),
            cells=tuple(rows),
        )


def all_tables(data_sets: Sequence[DataSetReport], settings: ReportSettings) -> list[ReportTable]:
    """Tables for every replacement, then those about the data sets and methods themselves."""
    replacements = dict.fromkeys(replacement for data in data_sets for replacement in data.evaluations)
    tables = [_data_set_table(data_sets)]
    for replacement in replacements:
        evaluated = [data for data in data_sets if replacement in data.evaluations]
        tables += [_faithfulness_table(evaluated, replacement, order) for order in _FIRST]
        labelled = [data for data in evaluated if data.evaluations[replacement].gold is not None]
        if labelled:
            tables += [_rate_table(labelled, replacement, order) for order in _FIRST]
        for order in _FIRST:
            columns = _comparisons(evaluated, replacement, order, settings)
            if columns:
                tables.append(_comparison_table(columns, replacement, order, settings))
        tables.append(_other_measures_table(evaluated, replacement))
    timed = {data.name: data.times for data in data_sets if data.times is not None}
    if timed:
        tables.append(_runtime_table(timed))
    return tables


def pair_matrices(data_sets: Sequence[DataSetReport], settings: ReportSettings) -> list[PairMatrix]:
    """Almost Stochastic Order of all pairs, for every data set, replacement, metric and order."""
    matrices = []
    for data in data_sets:
        for replacement, evaluation in data.evaluations.items():
            methods = order_methods(evaluation.methods)
            if len(methods) < 2 or len(evaluation.sizes) < 2:
                continue
            rows = [evaluation.methods.index(method) for method in methods]
            for order, metric in product(_FIRST, METRIC_NAMES):
                values = better(metric, order) * evaluation.per_text(metric, order)[rows]
                epsilon = aso_pairs(
                    values, confidence=settings.confidence, resamples=settings.resamples, seed=settings.seed
                )
                matrix = PairMatrix(
                    data=data.name,
                    replacement=replacement,
                    metric=metric,
                    order=order,
                    methods=tuple(methods),
                    epsilon=epsilon,
                )
                matrices.append(matrix)
    return matrices


def _faithfulness_table(data_sets: Sequence[DataSetReport], replacement: str, order: str) -> ReportTable:
    """AOPC and LOdds of every method."""
    measures = {}
    for metric, name in METRIC_NAMES.items():
        measures[f"{metric}_{order}"] = ReportColumn(name, better=better(metric, order))
    number = 1 if order == "top" else 2
    caption = f"Table {number} of the paper: average over the masked shares of the tokens, {_FIRST[order]}"
    return _measures_table(
        data_sets,
        replacement,
        measures,
        key=f"faithfulness-{order}-{replacement}",
        title=f"AOPC and LOdds, {order} k% masked ({replacement})",
        caption=f"{caption} {_replacement_note(replacement)}",
    )


def _rate_table(data_sets: Sequence[DataSetReport], replacement: str, order: str) -> ReportTable:
    """F1, accuracy, precision and recall of every method."""
    sign = -1 if order == "top" else 1
    measures = {f"{rate}_{order}": ReportColumn(name, better=sign) for rate, name in _RATE_NAMES.items()}
    subject = "Table 3 of the paper: predictions" if order == "top" else "Predictions"
    caption = f"{subject} for masked texts against gold labels, macro averages, {_FIRST[order]}"
    return _measures_table(
        data_sets,
        replacement,
        measures,
        key=f"rates-{order}-{replacement}",
        title=f"F1, accuracy, precision and recall, {order} k% masked ({replacement})",
        caption=f"{caption} {_replacement_note(replacement)}",
    )


def _other_measures_table(data_sets: Sequence[DataSetReport], replacement: str) -> ReportTable:
    caption = (
        "ERASER's comprehensiveness and sufficiency (1, 5, 10, 20, 50% of the tokens) and the area between the top and "
        f"the bottom curve of AOPC (SRG) {_replacement_note(replacement)}"
    )
    if any("normalized_aopc" in data.tables[replacement] for data in data_sets):
        caption += " NAOPC: AOPC between the worst and the best order of tokens."
    return _measures_table(
        data_sets,
        replacement,
        _OTHER_MEASURES,
        key=f"others-{replacement}",
        title=f"Other measures of faithfulness ({replacement})",
        caption=caption,
    )


def _measures_table(
    data_sets: Sequence[DataSetReport],
    replacement: str,
    measures: Mapping[str, ReportColumn],
    *,
    key: str,
    title: str,
    caption: str,
) -> ReportTable:
    """Methods down, data sets and `measures` of `Evaluation.table()` across."""
    methods = order_methods(*(data.evaluations[replacement].methods for data in data_sets))
    columns: dict[ReportColumn, Sequence[Cell]] = {}
    for data in data_sets:
        table = data.tables[replacement].reindex(methods)
        for name, column in measures.items():
            if name in table:
                numbers = table[name].astype(float).tolist()
                finite = [number if np.isfinite(number) else None for number in numbers]
                columns[replace(column, group=data.name)] = finite
    return _method_table(methods, columns, key, title, caption)


def _method_table(
    methods: Sequence[str], columns: Mapping[ReportColumn, Sequence[Cell]], key: str, title: str, caption: str
) -> ReportTable:
    """Methods down, with a line between families."""
    families = [family(method) for method in methods]
    return ReportTable(
        key=key,
        title=title,
        caption=caption,
        head="method",
        rows=tuple(methods),
        columns=tuple(columns),
        cells=tuple(zip(*columns.values(), strict=True)),
        rules=frozenset(k for k in range(1, len(families)) if families[k] != families[k - 1]),
    )


def _comparisons(
    data_sets: Sequence[DataSetReport], replacement: str, order: str, settings: ReportSettings
) -> dict[ReportColumn, tuple[Cell, ...]]:
    """Columns of `eps_min` over texts and over runs of a method against the best of another family, and its name."""
    method = settings.method
    columns: dict[ReportColumn, tuple[Cell, ...]] = {}
    for data in data_sets:
        evaluation = data.evaluations[replacement]
        others = [name for name in evaluation.methods if name != CONTROL and family(name) != family(method)]
        if method not in evaluation.methods or not others or len(evaluation.sizes) < 2:
            continue
        for metric, name in METRIC_NAMES.items():
            signed = better(metric, order) * evaluation.per_text(metric, order)
            values = dict(zip(evaluation.methods, signed, strict=True))
            rival = max(others, key=lambda other, values=values: values[other].mean())
            epsilons = _epsilons(values[method], values[rival], settings)
            columns[ReportColumn(name, group=data.name)] = (*epsilons, rival)
    return columns


def _epsilons(ours: np.ndarray, theirs: np.ndarray, settings: ReportSettings) -> tuple[float, float]:
    """`eps_min` over texts, and over runs."""
    epsilon = partial(aso, confidence=settings.confidence, resamples=settings.resamples, seed=settings.seed)
    our_runs, their_runs = bootstrap_means(np.stack([ours, theirs], 1), settings.resamples, settings.seed).T
    return epsilon(ours, theirs), epsilon(our_runs, their_runs)


def _comparison_table(
    columns: Mapping[ReportColumn, tuple[Cell, ...]], replacement: str, order: str, settings: ReportSettings
) -> ReportTable:
    """Whether a method beats the best of the methods of other families, by Almost Stochastic Order."""
    method = settings.method
    number = 4 if order == "top" else 5
    return ReportTable(
        key=f"aso-{order}-{replacement}",
        title=f"Almost Stochastic Order of {method}, {order} k% masked ({replacement})",
        caption=f"Table {number} of the paper: ε_min of {method} being better than the best method of another kind; "
        f"below 0.5 it is. Over texts, and over {settings.resamples} runs, a run being the mean over resampled texts "
        f"{_replacement_note(replacement)}",
        head="",
        rows=("ε_min, texts", "ε_min, runs", "compared with"),
        columns=tuple(columns),
        cells=tuple(zip(*columns.values(), strict=True)),
    )


def _data_set_table(data_sets: Sequence[DataSetReport]) -> ReportTable:
    """What the numbers are about."""
    facts = [_facts(data) for data in data_sets]
    return ReportTable(
        key="data",
        title="Data sets",
        caption="What was evaluated. Accuracy: of the model, on the texts as they are. Tokens: without special ones.",
        head="data set",
        rows=tuple(data.name for data in data_sets),
        columns=tuple(ReportColumn(name, digits=_DIGITS.get(name, 0)) for name in facts[0]),
        cells=tuple(tuple(cells.values()) for cells in facts),
    )


def _facts(data: DataSetReport) -> dict[str, Cell]:
    """What a data set's first evaluation is of, by column."""
    first = next(iter(data.evaluations.values()))
    model = first.manifest.get("model", {})
    return {
        "model": model.get("name"),
        "texts": len(first.sizes),
        "skipped": sum(data.skipped.values()),
        "truncated": first.manifest.get("truncated"),
        "classes": len(first.classes),
        "tokens, least": int(first.sizes.min()),
        "mean": float(first.sizes.mean()),
        "most": int(first.sizes.max()),
        "accuracy": None if first.gold is None else float((first.base_prediction == first.gold).mean()),
        "replacements": ", ".join(data.evaluations),
        "seed": first.manifest.get("seed"),
        "device": model.get("device"),
    }


def _runtime_table(times_by_data_set: Mapping[str, AttributionTimes]) -> ReportTable:
    """How long explaining takes."""
    rows = [_TRACE, *order_methods(*(times.methods for times in times_by_data_set.values()))]
    columns: dict[ReportColumn, Sequence[Cell]] = {ReportColumn("passes"): [_passes(method) for method in rows]}
    for name, times in times_by_data_set.items():
        seconds = {_TRACE: times.trace, **times.methods}
        per_text = {method: total / times.texts for method, total in seconds.items()}
        columns[ReportColumn("s/text", name, digits=4)] = [per_text.get(method) for method in rows]
        if times.peak:
            mebibytes = {method: size / 2**20 for method, size in times.peak.items()}
            columns[ReportColumn("MiB", name, digits=0)] = [mebibytes.get(method) for method in rows]
    caption = (
        "Table 8 of the paper, over data sets: seconds a text in batches, beside the trace that all methods share"
        "; what only some share counts for the first of them"
    )
    if any(times.peak for times in times_by_data_set.values()):
        caption += "; most memory on the GPU, with the model and the trace"
    return _method_table(rows, columns, "runtime", "Runtime", f"{caption}.")


def _passes(method: str) -> str | None:
    if method == _TRACE:
        return "1 forward, 1 backward"
    info = method_info(method)
    return None if info is None else info.passes


def _replacement_note(replacement: str) -> str:
    if replacement == "delete":
        return "(masked tokens are deleted)."
    return f"(masked tokens become [{replacement.upper()}])."
