"""The tables of the paper, and a few more, as plain data: whoever writes them as text decides nothing.

The convention this file owns: numbers are those of `Evaluation.table()`, unrounded; the best of a column is the best
before rounding, and equal ones are best together. Every table names its replacement and says how it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gaflow.benchmark.report.collect import DataSetReport, family, ordered
from gaflow.evaluation.faithfulness import CONTROL
from gaflow.evaluation.metrics import better
from gaflow.evaluation.result import Evaluation
from gaflow.evaluation.significance import aso, aso_pairs, bootstrap_means
from gaflow.methods import METHODS

__all__ = ["COMPARED", "NAMES", "Cell", "Column", "Matrix", "Settings", "Table", "all_tables", "matrices"]

Cell = float | int | str | None

COMPARED = (("aopc", "top"), ("lodds", "top"), ("aopc", "bottom"), ("lodds", "bottom"))
NAMES = {"aopc": "AOPC", "lodds": "LOdds", "f1": "F1", "accuracy": "Acc", "precision": "Prec", "recall": "Rec"}
_RATES = ("f1", "accuracy", "precision", "recall")
_OTHERS = {  # column of Evaluation.table() -> name, and whether more is better
    "comprehensiveness": ("Compr", 1),
    "sufficiency": ("Suff", -1),
    "srg": ("SRG", 1),
    "normalized_aopc": ("NAOPC", 1),
    "soft_nc": ("Soft-NC", 1),
    "soft_ns": ("Soft-NS", 1),
}


@dataclass(frozen=True)
class Settings:
    """How differences are tested."""

    method: str = "agf"  # compared with the best of the others
    confidence: float = 0.95
    resamples: int = 500
    seed: int = 0


@dataclass(frozen=True)
class Column:
    """What a column holds."""

    name: str
    group: str = ""  # data set
    better: int = 0  # 1: more is better, -1: less is, 0: neither
    digits: int = 3


@dataclass(frozen=True)
class Table:
    """A table as it is, whatever it will be written as."""

    key: str
    title: str
    caption: str
    head: str  # of the first column
    rows: tuple[str, ...]
    columns: tuple[Column, ...]
    cells: tuple[tuple[Cell, ...], ...]  # (rows, columns)
    rules: frozenset[int] = frozenset()  # rows that a line is drawn above

    def best(self, row: int, column: int) -> bool:
        """Whether a cell is the best of its column."""
        sign, value = self.columns[column].better, self.cells[row][column]
        if not sign or not isinstance(value, float):
            return False
        known = [v for v in (cells[column] for cells in self.cells) if isinstance(v, float)]
        top = max(known) if sign > 0 else min(known)
        return len(known) > 1 and abs(value - top) <= 1e-9 * abs(top)  # what only rounding tells apart is equal


@dataclass(frozen=True)
class Matrix:
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
        return f"{self.data}, {NAMES[self.metric]}, {self.order} k% masked ({self.replacement})"


def all_tables(every: Sequence[DataSetReport], settings: Settings) -> list[Table]:
    """Tables for every replacement, then those about the data sets and methods themselves."""
    found: list[Table] = [_data_sets(every)]
    for replacement in dict.fromkeys(r for data in every for r in data.evaluations):
        mine = {data.name: data.evaluations[replacement] for data in every if replacement in data.evaluations}
        for number, order in ((1, "top"), (2, "bottom")):
            found.append(_faithfulness(mine, replacement, order, f"Table {number} of the paper"))
        found += [_rates(mine, replacement, order) for order in ("top", "bottom") if _labelled(mine)]
        found += [t for order in ("top", "bottom") if (t := _against_best(mine, replacement, order, settings))]
        found.append(_others(mine, replacement))
    runtime = _runtime(every)
    return [*found, runtime] if runtime else found


def matrices(every: Sequence[DataSetReport], settings: Settings) -> Iterator[Matrix]:
    """Almost Stochastic Order of all pairs, for every data set, replacement, metric and order."""
    for data in every:
        for replacement, evaluation in data.evaluations.items():
            names = ordered(evaluation.methods)
            if len(names) < 2 or len(evaluation.sizes) < 2:
                continue
            rows = [evaluation.methods.index(name) for name in names]
            for metric, order in COMPARED:
                values = better(metric, order) * evaluation.per_text(metric, order)[rows]
                epsilon = aso_pairs(
                    values, confidence=settings.confidence, resamples=settings.resamples, seed=settings.seed
                )
                yield Matrix(data.name, replacement, metric, order, tuple(names), epsilon)


def _faithfulness(mine: Mapping[str, Evaluation], replacement: str, order: str, where: str) -> Table:
    columns = {f"{metric}_{order}": Column(NAMES[metric], better=better(metric, order)) for metric in ("aopc", "lodds")}
    caption = f"{where}: average over the masked shares of the tokens, {_said(order)} {_masked(replacement)}"
    return _by_method(
        f"faithfulness-{order}-{replacement}",
        f"AOPC and LOdds, {order} k% masked ({replacement})",
        caption,
        mine,
        columns,
    )


def _rates(mine: Mapping[str, Evaluation], replacement: str, order: str) -> Table:
    sign = -1 if order == "top" else 1
    columns = {f"{name}_{order}": Column(NAMES[name], better=sign) for name in _RATES}
    where = "Table 3 of the paper: predictions" if order == "top" else "Predictions"
    caption = f"{where} for masked texts against gold labels, macro averages, {_said(order)}"
    caption += f" {_masked(replacement)}"
    labelled = {name: e for name, e in mine.items() if e.gold is not None}
    title = f"F1, accuracy, precision and recall, {order} k% masked ({replacement})"
    return _by_method(f"rates-{order}-{replacement}", title, caption, labelled, columns)


def _others(mine: Mapping[str, Evaluation], replacement: str) -> Table:
    there = {name for e in mine.values() for name in e.table().columns}
    columns = {k: Column(name, better=sign) for k, (name, sign) in _OTHERS.items() if k in there}
    caption = (
        "ERASER's comprehensiveness and sufficiency (1, 5, 10, 20, 50% of the tokens) and the area between the top and "
        f"the bottom curve of AOPC (SRG) {_masked(replacement)}"
    )
    caption += " NAOPC: AOPC between the worst and the best order of tokens." if "normalized_aopc" in there else ""
    return _by_method(
        f"others-{replacement}", f"Other measures of faithfulness ({replacement})", caption, mine, columns
    )


def _by_method(
    key: str, title: str, caption: str, mine: Mapping[str, Evaluation], wanted: Mapping[str, Column]
) -> Table:
    """Methods down, data sets and measures across."""
    tables = {name: evaluation.table() for name, evaluation in mine.items()}
    rows = ordered(method for evaluation in mine.values() for method in evaluation.methods)
    keys = [(name, column) for name in mine for column in wanted if column in tables[name].columns]
    columns = tuple(
        Column(wanted[column].name, name, wanted[column].better, wanted[column].digits) for name, column in keys
    )
    cells = tuple(tuple(_number(tables[name], method, column) for name, column in keys) for method in rows)
    rules = frozenset(k for k in range(1, len(rows)) if family(rows[k]) != family(rows[k - 1]))
    return Table(key, title, caption, "method", tuple(rows), columns, cells, rules)


def _number(table: Any, method: str, column: str) -> float | None:
    if method not in table.index:
        return None
    value = float(table.loc[method, column])
    return value if np.isfinite(value) else None


def _against_best(mine: Mapping[str, Evaluation], replacement: str, order: str, settings: Settings) -> Table | None:
    """Whether a method beats the best of the methods of other families, by Almost Stochastic Order."""
    method = settings.method
    columns, found = [], []
    for name, evaluation in mine.items():
        others = [m for m in evaluation.methods if m not in (method, CONTROL) and family(m) != family(method)]
        if method not in evaluation.methods or not others or len(evaluation.sizes) < 2:
            continue
        for metric in ("aopc", "lodds"):
            values = better(metric, order) * evaluation.per_text(metric, order)
            means = dict(zip(evaluation.methods, values.mean(1), strict=True))
            rival = max(others, key=lambda m, means=means: means[m])
            ours, theirs = (values[evaluation.methods.index(m)] for m in (method, rival))
            columns.append(Column(NAMES[metric], name))
            found.append((*_epsilons(ours, theirs, settings), rival))
    if not columns:
        return None
    caption = (
        f"Table {4 if order == 'top' else 5} of the paper: ε_min of {method} being better than the best method of "
        f"another kind; below 0.5 it is. Over texts, and over {settings.resamples} runs, a run being the mean over "
        f"resampled texts {_masked(replacement)}"
    )
    rows = ("ε_min, texts", "ε_min, runs", "compared with")
    title = f"Almost Stochastic Order of {method}, {order} k% masked ({replacement})"
    cells = tuple(zip(*found, strict=True))
    return Table(f"aso-{order}-{replacement}", title, caption, "", rows, tuple(columns), cells)


def _epsilons(ours: np.ndarray, theirs: np.ndarray, settings: Settings) -> tuple[float, float]:
    """`eps_min` over texts, and over runs."""
    runs = bootstrap_means(np.stack([ours, theirs], 1), settings.resamples, settings.seed)
    first, second = (
        aso(a, b, confidence=settings.confidence, resamples=settings.resamples, seed=settings.seed)
        for a, b in ((ours, theirs), runs.T)
    )
    return first, second


def _data_sets(every: Sequence[DataSetReport]) -> Table:
    """What the numbers are about."""
    columns = tuple(
        Column(name, digits=digits)
        for name, digits in (
            ("model", 0), ("texts", 0), ("skipped", 0), ("truncated", 0), ("classes", 0), ("tokens, least", 0),
            ("mean", 1), ("most", 0), ("accuracy", 3), ("replacements", 0), ("seed", 0), ("device", 0),
        )
    )  # fmt: skip
    rows = []
    for data in every:
        first = next(iter(data.evaluations.values()))
        about = first.manifest
        accuracy = None if first.gold is None else float((first.base_prediction == first.gold).mean())
        model = about.get("model", {})
        rows.append(
            (
                model.get("name"), len(first.sizes), sum(data.skipped.values()), about.get("truncated"),
                len(first.classes), int(first.sizes.min()), float(first.sizes.mean()), int(first.sizes.max()), accuracy,
                ", ".join(data.evaluations), about.get("seed"), model.get("device"),
            )
        )  # fmt: skip
    caption = "What was evaluated; accuracy is that of the model on the texts as they are. Tokens without special ones."
    return Table("data", "Data sets", caption, "data set", tuple(d.name for d in every), columns, tuple(rows))


def _runtime(every: Sequence[DataSetReport]) -> Table | None:
    """How long explaining takes."""
    timed = [(data.name, data.times) for data in every if data.times is not None]
    if not timed:
        return None
    names = ordered(name for _, times in timed for name in times.methods)
    memory = any(times.peak for _, times in timed)
    columns = [Column("passes")]
    for name, times in timed:
        columns.append(Column("s/text", name, digits=4))
        columns += [Column("MiB", name, digits=0)] * bool(times.peak)
    cells = []
    for method in ["(trace)", *names]:
        row: list[Cell] = ["1 forward, 1 backward" if method == "(trace)" else _passes(method)]
        for _, times in timed:
            seconds = times.trace if method == "(trace)" else times.methods.get(method)
            row.append(None if seconds is None else seconds / times.texts)
            row += [times.peak.get(method, 0) / 2**20 or None] * bool(times.peak)
        cells.append(tuple(row))
    caption = "Table 8 of the paper, over data sets: seconds a text in batches, beside the trace that all methods share"
    caption += "; what only some share counts for the first of them"
    caption += "; most memory on the GPU, with the model and the trace." if memory else "."
    rows = ("(trace)", *names)
    rules = frozenset(k for k in range(1, len(rows)) if family(rows[k]) != family(rows[k - 1]))
    return Table("runtime", "Runtime", caption, "method", rows, tuple(columns), tuple(cells), rules)


def _passes(method: str) -> str | None:
    known: Any = METHODS.get(method)
    return None if known is None else known.info.passes


def _labelled(mine: Mapping[str, Evaluation]) -> bool:
    return any(evaluation.gold is not None for evaluation in mine.values())


def _said(order: str) -> str:
    return "the highest-scored first" if order == "top" else "the lowest-scored first"


def _masked(replacement: str) -> str:
    how = "masked tokens are deleted" if replacement == "delete" else f"masked tokens become [{replacement.upper()}]"
    return f"({how})."
