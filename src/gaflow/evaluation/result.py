"""The result of an evaluation: every text's probability under every masking, and tables of it.

On disk an evaluation is a folder:

    values.parquet    method, text, order, k, log_probability, prediction: a row for every masked text
    texts.parquet     text, tokens, target, log_probability, prediction; and, where they were computed, gold, aopc_low,
                      aopc_high, log_probability_zero
    soft.parquet      method, text, lost_kept, lost_removed: only with the soft measures
    timings.json      seconds, which differ from run to run
    evaluation.json   the rest

The conventions this file owns: **nothing is averaged before it is stored**. An average over levels is taken for each
text first, and intervals and tests resample texts, the same ones for every method (paired). A "run" is such a resample.
Apart from the timings the same evaluation gives the same files, byte for byte.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gaflow.arguments import checked, location, output_folder
from gaflow.errors import Argument, ArgumentError, UnknownMethodError, visible
from gaflow.evaluation.arguments import ORDERS, EvaluationSettings
from gaflow.evaluation.files import Columns, StoredTables, read_tables, write_tables
from gaflow.evaluation.masking import Condition, masks
from gaflow.evaluation.metrics import (
    BINS,
    aopc,
    better,
    classification_rates,
    lodds,
    lost_share,
)
from gaflow.evaluation.ranking import Ranking, rank_methods
from gaflow.evaluation.significance import aso, bootstrap_means, holm, interval, resample_counts, sign_flip_test
from gaflow.extras import need
from gaflow.schemas.check import SCHEMAS, as_tuples, check_arrays, reading

if TYPE_CHECKING:
    import pandas as pd

FORMAT = SCHEMAS["formats"]["evaluation"]
_VALUES = "values.parquet"
_TEXTS = "texts.parquet"
_SOFT = "soft.parquet"
_DESCRIBED = ("methods", "conditions", "levels", "classes", "replacement")  # fields in evaluation.json
_DEFAULTS = {"unit": "token", "max_share": None}  # fields in evaluation.json, unless they have this value
_COMPARED = (  # fields in which evaluations must agree to be merged
    "conditions", "levels", "classes", "replacement", "sizes", "target", "gold", "base_prediction", *_DEFAULTS,
)  # fmt: skip
_CURVES = {"aopc": aopc, "lodds": lodds}
_ERASER_ORDERS = {"comprehensiveness": "top", "sufficiency": "keep"}
_COUNTED = {"normalized_aopc": "normalized_texts", "soft_nc": "soft_texts"}  # metrics that some texts lack -> column
_TEXT_COLUMNS = {  # columns of texts.parquet -> fields
    "tokens": "sizes",
    "target": "target",
    "log_probability": "base",
    "prediction": "base_prediction",
    "gold": "gold",
}
_SAME = 1e-2  # relative tolerance for log-probabilities of one text and model on two devices


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Faithfulness of several methods on the same texts and model.

    It is what `gaflow.evaluate` returns:

        scores = gaflow.evaluate(explainer, texts, methods=["agf", "ig"])
        scores.table()
    """

    methods: tuple[str, ...]  # (m,)
    conditions: tuple[Condition, ...]  # (c,) order and per cent of the tokens
    levels: tuple[int, ...]  # the per cents that top and bottom averages are over
    classes: tuple[str, ...]  # names
    replacement: str  # of masked tokens
    sizes: np.ndarray  # (n,) ordinary tokens of every text, or words
    target: np.ndarray  # (n,) class that was explained and whose probability is measured
    base: np.ndarray  # (n,) log-probability of the target, nothing masked
    base_prediction: np.ndarray  # (n,) class
    masked: np.ndarray  # (m, n, c) log-probability of the target
    prediction: np.ndarray  # (m, n, c) class
    gold: np.ndarray | None = None  # (n,) true class
    bounds: np.ndarray | None = None  # (n, 2) lowest and highest AOPC, NaN where it was not searched
    soft: np.ndarray | None = None  # (m, n, 2) probability lost with words softly kept, and softly removed
    zero: np.ndarray | None = None  # (n,) log-probability of the target without any word; exists with `soft`
    unit: str = "token"  # what was masked together: "token" or "word"
    max_share: float | None = None  # of a text, masked at once (F-Fidelity); None: as much as a level says
    timings: Mapping[str, float] = field(default_factory=dict)  # seconds, and the share of the model's forward passes
    manifest: Mapping[str, Any] = field(default_factory=dict)  # model, versions, settings, counts

    @property
    def orders(self) -> tuple[str, ...]:
        """Those of top and bottom that were evaluated."""
        return tuple(order for order in ("top", "bottom") if self._has(order, self.levels))

    def table(self) -> pd.DataFrame:
        """One row per method with averages over texts and levels, the number of texts and the replacement."""
        need("pandas", "data", "tables need pandas")
        import pandas as pd

        columns: dict[str, Any] = {}
        for order in self.orders:
            for metric in _CURVES:
                columns[f"{metric}_{order}"] = self.per_text(metric, order).mean(1)
            for name, rates in self._rates(order).items():
                columns[f"{name}_{order}"] = rates.mean(-1)
        for metric in self._metrics_of_one_order():
            values = self.per_text(metric)
            count = np.isfinite(values).sum(1)  # of texts with a value
            with np.errstate(invalid="ignore"):
                columns[metric] = np.nansum(values, 1) / count
            if metric in _COUNTED:
                columns[_COUNTED[metric]] = count
        columns["texts"] = len(self.sizes)
        columns["replacement"] = self.replacement
        for name, default in _DEFAULTS.items():
            if getattr(self, name) != default:
                columns[name] = getattr(self, name)
        return pd.DataFrame(columns, index=pd.Index(self.methods, name="method"))

    @checked
    def curves(self, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0) -> pd.DataFrame:
        """One row per method, order, level and metric: mean, and the ends of a bootstrap interval over texts.

        `gaflow.plots.curves` draws it.
        """
        need("pandas", "data", "tables need pandas")
        import pandas as pd

        frames = []
        for order in self.orders:
            for metric, mean, resampled in self._resampled_curves(order, resamples, seed):
                low, high = interval(resampled, confidence)
                low = np.minimum(low, mean)
                high = np.maximum(high, mean)
                points = {"mean": mean.ravel(), "low": low.ravel(), "high": high.ravel()}
                keys = [self.methods, [order], self.levels, [metric]]
                index = pd.MultiIndex.from_product(keys, names=["method", "order", "k", "metric"])
                frames.append(pd.DataFrame(points, index=index))
        return pd.concat(frames).reset_index()

    @checked
    def significance(
        self,
        method: str = "agf",
        *,
        confidence: float = 0.95,
        resamples: int = 500,
        permutations: int = 10_000,
        seed: int = 0,
    ) -> pd.DataFrame:
        """Compare `method` with every other method: one row per other method, metric and order.

        An observation is the average of one text over all levels. The columns:

        - `difference`: mean of `method` minus mean of the other; `low` and `high` are its paired bootstrap interval
        - `p`, `p_holm`: two-sided sign-flip test, without and with Holm's correction for all rows of this table
        - `epsilon`: `aso` over texts, small if `method` is better; `epsilon_back` is the other direction. Both share
          their confidence among the rows of a metric and order (Bonferroni)
        - `epsilon_runs`: the same over `resamples` runs instead of texts; a run is the mean over resampled texts

        Example:

            scores.significance("agf").query("metric == 'aopc' and p_holm < 0.05")
        """
        need("pandas", "data", "tables need pandas")
        import pandas as pd

        if method not in self.methods:
            listed = ", ".join(self.methods)
            raise UnknownMethodError(Argument("method"), f" {method!r} was not evaluated; there are {listed}")
        row = self.methods.index(method)
        others = [k for k in range(len(self.methods)) if k != row]
        if not others or len(self.sizes) < 2:
            raise ArgumentError("significance needs at least two methods and two texts")
        epsilon = partial(aso, confidence=confidence, resamples=resamples, comparisons=len(others), seed=seed)
        compared = [(metric, order) for order in self.orders for metric in _CURVES]
        if len(self.orders) == 2:
            compared.append(("srg", "both"))
        comparisons = []
        for metric, order in compared:
            values = self.per_text(metric, order)
            sign = better(metric, order)
            differences = (values[row] - values[others]).T  # (n, m - 1)
            low, high = interval(bootstrap_means(differences, resamples, seed), confidence)
            p_values = sign_flip_test(differences, permutations, seed)
            runs = sign * bootstrap_means(values.T, resamples, seed)
            for column, other in enumerate(others):
                ours = sign * values[row]
                theirs = sign * values[other]
                comparison = {
                    "method": method,
                    "other": self.methods[other],
                    "metric": metric,
                    "order": order,
                    "better": "higher" if sign > 0 else "lower",
                    "difference": float(differences[:, column].mean()),
                    "low": low[column],
                    "high": high[column],
                    "p": p_values[column],
                    "epsilon": epsilon(ours, theirs),
                    "epsilon_back": epsilon(theirs, ours),
                    "epsilon_runs": epsilon(runs[:, row], runs[:, other]),
                }
                comparisons.append(comparison)
        table = pd.DataFrame(comparisons)
        table.insert(list(table).index("p") + 1, "p_holm", holm(table["p"]))
        return table

    @checked
    def ranking(
        self,
        measure: str = "aopc",
        order: str = "top",
        *,
        confidence: float = 0.95,
        resamples: int = 500,
        seed: int = 0,
    ) -> Ranking:
        """Methods by the mean of a measure, with tests of all pairs: `ranking().sentences()` says who is best."""
        evaluations = {self.replacement: self}
        return rank_methods(evaluations, measure, order, confidence=confidence, resamples=resamples, seed=seed)

    def values(self) -> pd.DataFrame:
        """One row per method, text, order and level: tokens masked, the model's output, and the measures of it."""
        need("pandas", "data", "tables need pandas")
        import pandas as pd

        masked_counts = [masks(np.zeros(n), self.conditions).sum(-1) for n in self.sizes]  # (n, c)
        classes = np.array(self.classes, dtype=object)
        predictions = self.prediction.ravel()
        table = pd.DataFrame(self._value_keys())
        table["masked"] = np.broadcast_to(masked_counts, self.masked.shape).ravel()
        table["target"] = classes[self.target[table["text"]]]
        table["prediction"] = classes[predictions]
        table["probability"] = np.exp(self.masked).ravel()
        for metric, compute in _CURVES.items():
            table[metric] = compute(self.base, self.masked).ravel()
        if self.gold is not None:
            table["correct"] = predictions == self.gold[table["text"]]
        return table

    @checked
    def per_text(self, metric: str, order: str = "top") -> np.ndarray:
        """A metric's average over levels for every method and text, (m, n).

        aopc and lodds by order; srg (the area between the top and the bottom curve), comprehensiveness, sufficiency,
        normalized_aopc, soft_ns and soft_nc have an order of their own.
        """
        if metric == "srg":
            return self.per_text("aopc", "top") - self.per_text("aopc", "bottom")
        if metric in _ERASER_ORDERS:
            return self._per_level("aopc", _ERASER_ORDERS[metric], BINS).mean(-1)
        if metric == "normalized_aopc":
            if self.bounds is None:
                raise ArgumentError("normalized_aopc was not computed; evaluate with ", Argument("bounds", True))
            low, high = self.bounds.T
            span = np.where(high > low, high - low, np.nan)  # alike for all orders of a text's tokens, or not searched
            return (self.per_text("aopc", "top") - low) / span
        if metric in ("soft_ns", "soft_nc"):
            if self.soft is None or self.zero is None:
                raise ArgumentError(f"{metric} was not computed; evaluate with ", Argument("soft", True))
            if metric == "soft_ns":
                return 1 - lost_share(self.base, self.zero, self.soft[:, :, 0])
            return lost_share(self.base, self.zero, self.soft[:, :, 1])
        return self._per_level(metric, order, self.levels).mean(-1)

    @checked
    def merge_methods(self, other: Evaluation) -> Evaluation:
        """These methods and those of `other` that are not among them, where both judge the same texts and model."""
        self._check_comparable(other)
        added = [method for method in other.methods if method not in self.methods]
        rows = [other.methods.index(method) for method in added]
        merged: dict[str, Any] = {"methods": (*self.methods, *added)}
        for name in ("masked", "prediction", "soft"):
            ours = getattr(self, name)
            if ours is not None:
                merged[name] = np.concatenate([ours, getattr(other, name)[rows]])
        beside = [*self.manifest.get("beside", ()), dict(other.manifest)]
        return replace(self, **merged, manifest={**self.manifest, "beside": beside})

    @checked
    def save(self, folder: str | Path) -> None:
        """Write everything to a folder: values.parquet, texts.parquet and, once these are complete, evaluation.json."""
        texts = {"text": np.arange(len(self.sizes))}
        for column, name in _TEXT_COLUMNS.items():
            values = getattr(self, name)
            if values is not None:
                texts[column] = values
        if self.bounds is not None:
            texts["aopc_low"] = self.bounds[:, 0]
            texts["aopc_high"] = self.bounds[:, 1]
        outputs = {"log_probability": self.masked.ravel(), "prediction": self.prediction.ravel()}
        tables = {_VALUES: {**self._value_keys(), **outputs}, _TEXTS: texts}
        if self.soft is not None and self.zero is not None:
            texts["log_probability_zero"] = self.zero
            lost_kept, lost_removed = self.soft.reshape(-1, 2).T
            losses = {"lost_kept": lost_kept, "lost_removed": lost_removed}
            tables[_SOFT] = {**self._soft_keys(), **losses}
        description: dict[str, Any] = {"format": FORMAT}
        for name in _DESCRIBED:
            description[name] = getattr(self, name)
        for name, default in _DEFAULTS.items():
            if getattr(self, name) != default:
                description[name] = getattr(self, name)
        description["manifest"] = dict(self.manifest)
        stored = StoredTables(tables, description, self.timings)
        write_tables(output_folder("folder", folder), stored, optional=[_SOFT])

    @staticmethod
    def load(folder: str | Path) -> Evaluation:
        """Read what `save` wrote; anything else is refused."""
        path = location("folder", folder)
        stored = read_tables(path)
        with reading(path, "an evaluation; evaluate again"):
            return _from_tables(stored)

    def _per_level(self, metric: str, order: str, levels: Sequence[int]) -> np.ndarray:
        """(m, n, k) of a metric that every text has at every level."""
        if metric not in _CURVES:
            names = ", ".join(_CURVES)
            raise ArgumentError(Argument("metric"), f" must be {names} or another of single texts, not {metric!r}")
        masked = self.masked[:, :, self._columns(order, levels)]
        return _CURVES[metric](self.base, masked)

    def _columns(self, order: str, levels: Sequence[int]) -> list[int]:
        """Where the conditions of an order and levels are among all."""
        missing = [f"{order} {level} %" for level in levels if (order, level) not in self.conditions]
        if missing:
            raise ArgumentError(
                f"not evaluated: {', '.join(missing)}; evaluate again with ",
                Argument("order"),
                " and ",
                Argument("levels"),
                " for these",
            )
        return [self.conditions.index((order, level)) for level in levels]

    def _has(self, order: str, levels: Sequence[int]) -> bool:
        return all((order, level) in self.conditions for level in levels)

    def _rates(self, order: str, counts: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Accuracy, F1, precision and recall (m, k), or (r, m, k) for texts counted as `counts` (r, n) say.

        There are none without gold labels.
        """
        if self.gold is None:
            return {}
        predicted = self.prediction[:, :, self._columns(order, self.levels)]
        return classification_rates(self.gold, predicted, len(self.classes), counts)

    def _resampled_curves(self, order: str, resamples: int, seed: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Every metric with its means (m, k) and those over resampled texts (r, m, k)."""
        for metric in _CURVES:
            values = self._per_level(metric, order, self.levels)
            resampled = bootstrap_means(values.swapaxes(0, 1), resamples, seed)
            yield metric, values.mean(1), resampled
        if self.gold is None:
            return
        chunks = []
        for counts in resample_counts(len(self.sizes), resamples, seed):
            chunks.append(self._rates(order, counts))
        for name, rates in self._rates(order).items():
            yield name, rates, np.concatenate([chunk[name] for chunk in chunks])

    def _metrics_of_one_order(self) -> list[str]:
        """Metrics that were computed, beside those by order."""
        metrics = ["srg"] if len(self.orders) == 2 else []
        metrics += [metric for metric, order in _ERASER_ORDERS.items() if self._has(order, BINS)]
        if self.bounds is not None and "top" in self.orders:
            metrics.append("normalized_aopc")
        if self.soft is not None:
            metrics += ["soft_ns", "soft_nc"]
        return metrics

    def _check_comparable(self, other: Evaluation) -> None:
        """Refuse an evaluation of other texts, another model or other settings."""
        for name in (
            "conditions",
            "levels",
            "classes",
            "replacement",
            "sizes",
            "target",
            "gold",
            "base_prediction",
            "unit",
            "max_share",
        ):
            if not np.array_equal(getattr(self, name), getattr(other, name)):
                message = f" evaluation is not of the same texts, model and settings: {name} differs"
                raise ArgumentError(Argument("other"), message)
        if not np.allclose(self.base, other.base, rtol=_SAME, atol=_SAME * 1e-3):
            message = " evaluation is not of the same model: probabilities of whole texts differ"
            raise ArgumentError(Argument("other"), message)
        for name in ("soft", "bounds"):
            if (getattr(self, name) is None) != (getattr(other, name) is None):
                raise ArgumentError(
                    f"only one of the two evaluations has {name}; evaluate both with ",
                    Argument(name, True),
                    ", or neither",
                )
        for name in ("model", "soft", "seed"):  # as evaluations on disk record it
            ours = self.manifest.get(name)
            theirs = other.manifest.get(name)
            if ours is not None and theirs is not None and _identity(ours) != _identity(theirs):
                raise ArgumentError(Argument("other"), f" evaluation has another {name}: {theirs!r}, not {ours!r}")

    def _value_keys(self) -> Columns:
        """Method, text, order and level of every value, each (m n c,)."""
        method, text, condition = np.indices(self.masked.shape).reshape(3, -1)
        methods = np.array(self.methods, dtype=object)
        orders = np.array([order for order, _ in self.conditions], dtype=object)
        levels = np.array([level for _, level in self.conditions])
        return {"method": methods[method], "text": text, "order": orders[condition], "k": levels[condition]}

    def _soft_keys(self) -> Columns:
        """Method and text of every soft measure, each (m n,)."""
        keys = self._value_keys()
        first_condition = slice(None, None, len(self.conditions))
        return {name: keys[name][first_condition] for name in ("method", "text")}

    def __repr__(self) -> str:
        methods = visible(", ".join(self.methods))
        return f"Evaluation({methods}; {len(self.sizes)} texts, replacement {self.replacement!r})"


def _from_tables(stored: StoredTables) -> Evaluation:
    """The evaluation that `save` wrote as tables; ValueError if these are not as they should be."""
    description = stored.description
    for name in (_VALUES, _TEXTS):
        if name not in stored.tables:
            raise ValueError(f"there is no {name}")
    texts = stored.tables[_TEXTS]
    values = stored.tables[_VALUES]
    fields: dict[str, Any] = {name: as_tuples(description[name]) for name in _DESCRIBED}
    fields |= {name: description.get(name, default) for name, default in _DEFAULTS.items()}
    _check_levels(fields["levels"], fields["conditions"])
    sizes = check_arrays(texts, "evaluation texts", {"last class": len(fields["classes"]) - 1})
    shape = (len(fields["methods"]), sizes["n"], len(fields["conditions"]))
    check_arrays(values, "evaluation values", {**sizes, "m n c": math.prod(shape)})
    for column, name in _TEXT_COLUMNS.items():
        fields[name] = texts.get(column)
    if "aopc_low" in texts and "aopc_high" in texts:
        fields["bounds"] = np.stack([texts["aopc_low"], texts["aopc_high"]], 1)
    soft = {}
    if "log_probability_zero" in texts:
        soft = stored.tables.get(_SOFT, {})
        check_arrays(soft, "evaluation soft", {"m n": math.prod(shape[:2])})
        losses = np.stack([soft["lost_kept"], soft["lost_removed"]], 1)
        fields |= {"soft": losses.reshape(*shape[:2], 2), "zero": texts["log_probability_zero"]}
    evaluation = Evaluation(
        masked=values["log_probability"].reshape(shape),
        prediction=values["prediction"].reshape(shape),
        timings=stored.timings,
        manifest=description["manifest"],
        **fields,
    )
    _check_keys(_VALUES, values, evaluation._value_keys())
    if soft:
        _check_keys(_SOFT, soft, evaluation._soft_keys())
    return evaluation


def _check_levels(levels: tuple[int, ...], conditions: tuple[Condition, ...]) -> None:
    """Refuse levels other than those of the conditions."""
    for order, eraser in product(ORDERS, (False, True)):
        if conditions == EvaluationSettings(order=order, levels=levels, eraser=eraser).conditions:
            return
    raise ValueError("conditions do not match levels")


def _check_keys(file: str, columns: Columns, expected: Columns) -> None:
    """Refuse rows that are not in the order in which they were written."""
    for name, keys in expected.items():
        if name not in columns or not np.array_equal(columns[name], keys):
            raise ValueError(f"column {name} of {file} does not match the other files")


def _identity(recorded: object) -> Any:
    """Of a model as a manifest describes it the weights and the tokenizer, whatever its name."""
    if isinstance(recorded, Mapping) and "weights" in recorded:
        return recorded["weights"], recorded.get("tokenizer")
    return recorded
