"""The result of an evaluation: every text's probability under every masking, and the tables made of them.

The conventions this file owns: **nothing is averaged before it is kept**; an average over levels is taken for each text
first, and intervals and tests resample texts, the same ones for every method (paired). A "run" is such a resample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gaflow.errors import MissingExtraError, UnknownMethodError
from gaflow.evaluation.masking import masked_count
from gaflow.evaluation.metrics import (
    BINS,
    RATES,
    ClassCounts,
    aopc,
    better,
    lodds,
    soft_comprehensiveness,
    soft_sufficiency,
)
from gaflow.evaluation.significance import aso, bootstrap_means, holm, resamples_of, sign_flip_test

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Evaluation"]

_CURVES = ("aopc", "lodds")
_SAME = 1e-2  # of a log-probability: as far as those of one text by one model on two devices may be apart


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Faithfulness of several methods on the same texts and model."""

    methods: tuple[str, ...]  # (m,)
    conditions: tuple[tuple[str, int], ...]  # (c,) order and per cent of the tokens
    levels: tuple[int, ...]  # the per cents that top and bottom averages are over
    classes: tuple[str, ...]  # names
    replacement: str  # what stands where tokens are masked
    sizes: np.ndarray  # (n,) ordinary tokens of every text
    target: np.ndarray  # (n,) class that was explained and whose probability is measured
    base: np.ndarray  # (n,) log-probability of the target, nothing masked
    base_prediction: np.ndarray  # (n,) class
    masked: np.ndarray  # (m, n, c) log-probability of the target
    prediction: np.ndarray  # (m, n, c) class
    gold: np.ndarray | None = None  # (n,) class that is right
    bounds: np.ndarray | None = None  # (n, 2) lowest and highest AOPC, NaN where it was not looked for
    soft: np.ndarray | None = None  # (m, n, 2) probability lost, what counts softly kept and softly removed
    zero: np.ndarray | None = None  # (n,) log-probability of the target without any word, where there is `soft`
    timings: Mapping[str, float] = field(default_factory=dict)  # seconds, and the share of the model's forward passes
    manifest: Mapping[str, Any] = field(default_factory=dict)  # model, versions, settings, counts

    @property
    def orders(self) -> tuple[str, ...]:
        """Those of top and bottom that were asked for."""
        return tuple(o for o in ("top", "bottom") if all((o, k) in self.conditions for k in self.levels))

    def table(self) -> pd.DataFrame:
        """One row per method, averages over texts and levels; every row says how many texts and which replacement."""
        columns: dict[str, Any] = {}
        for order in self.orders:
            for metric in _CURVES:
                columns[f"{metric}_{order}"] = self.per_text(metric, order).mean(1)
            if self.gold is not None:
                columns |= {f"{name}_{order}": value.mean(-1) for name, value in self._rates(order).items()}
        if len(self.orders) == 2:
            columns["srg"] = self.per_text("srg", "both").mean(1)
        for metric in ("comprehensiveness", "sufficiency"):
            if all(c in self.conditions for c in _bins(metric)):
                columns[metric] = self.per_text(metric).mean(1)
        if self.bounds is not None and "top" in self.orders:
            values = self.per_text("normalized_aopc")
            columns |= {"normalized_aopc": _mean_known(values), "normalized_texts": np.isfinite(values).sum(1)}
        if self.soft is not None:
            values = self.per_text("soft_ns")
            columns |= {"soft_ns": _mean_known(values), "soft_nc": _mean_known(self.per_text("soft_nc"))}
            columns["soft_texts"] = np.isfinite(values).sum(1)
        columns["texts"] = len(self.sizes)
        columns["replacement"] = self.replacement
        return _pandas().DataFrame(columns, index=_pandas().Index(self.methods, name="method"))

    def curves(self, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0) -> pd.DataFrame:
        """One row per method, order, level and metric: mean, and the ends of a bootstrap interval over texts.

        `gaflow.plots.curves` draws it.
        """
        _check_share(confidence)
        frames = []
        for order in self.orders:
            values = {metric: self._values(metric, order) for metric in _CURVES}
            drawn = {m: bootstrap_means(v.swapaxes(0, 1), resamples, seed) for m, v in values.items()}
            means = {metric: v.mean(1) for metric, v in values.items()}
            if self.gold is not None:
                means |= self._rates(order)
                parts = [self._rates(order, weights) for weights in resamples_of(len(self.sizes), resamples, seed)]
                drawn |= {name: np.concatenate([part[name] for part in parts]) for name in RATES}
            for metric, mean in means.items():
                tail = (1 - confidence) / 2
                low, high = np.quantile(drawn[metric], (tail, 1 - tail), axis=0)
                frames.append(self._curve(order, metric, mean, np.minimum(low, mean), np.maximum(high, mean)))
        return _pandas().concat(frames, ignore_index=True)

    def significance(
        self,
        method: str = "agf",
        *,
        confidence: float = 0.95,
        resamples: int = 500,
        permutations: int = 10_000,
        seed: int = 0,
    ) -> pd.DataFrame:
        """`method` against every other, by metric and order; an observation is a text's average over levels.

        difference    mean of `method` minus mean of the other; low, high: paired bootstrap interval of it
        p, p_holm     two-sided sign-flip test, and corrected for all rows of this table
        epsilon       `aso` of the texts, `method` better than the other; epsilon_back the other way round; both with
                      confidence shared by the rows of a metric and order (Bonferroni)
        epsilon_runs  the same over `resamples` runs instead of texts, a run being the mean over resampled texts
        """
        _check_share(confidence)
        own = self._row(method)
        others = [k for k in range(len(self.methods)) if k != own]
        if not others or len(self.sizes) < 2:
            raise ValueError("significance needs at least two methods and two texts")
        rows: list[dict[str, Any]] = []
        tail = (1 - confidence) / 2
        settings = {"confidence": confidence, "resamples": resamples, "comparisons": len(others), "seed": seed}
        for metric, order in self._compared():
            values, sign = self.per_text(metric, order), better(metric, order)
            gaps = (values[own] - values[others]).T  # (n, m - 1)
            low, high = np.quantile(bootstrap_means(gaps, resamples, seed), (tail, 1 - tail), axis=0)
            p = sign_flip_test(gaps, permutations, seed)
            runs = sign * bootstrap_means(values.T, resamples, seed)
            for at, other in enumerate(others):
                ours, theirs = sign * values[own], sign * values[other]
                rows.append(
                    {
                        "method": method,
                        "other": self.methods[other],
                        "metric": metric,
                        "order": order,
                        "better": "higher" if sign > 0 else "lower",
                        "difference": float(gaps[:, at].mean()),
                        "low": low[at],
                        "high": high[at],
                        "p": p[at],
                        "epsilon": aso(ours, theirs, **settings),
                        "epsilon_back": aso(theirs, ours, **settings),
                        "epsilon_runs": aso(runs[:, own], runs[:, other], **settings),
                    }
                )
        found = _pandas().DataFrame(rows)
        found.insert(found.columns.get_loc("p") + 1, "p_holm", holm(found["p"]))
        return found

    def values(self) -> pd.DataFrame:
        """One row per method, text, order and level: what was masked, what the model said, and what that means."""
        shape = self.masked.shape
        method, text, condition = (index.ravel() for index in np.indices(shape))
        orders = np.array([order for order, _ in self.conditions])
        levels = np.array([k for _, k in self.conditions])
        count = np.array([[masked_count(int(n), k) for _, k in self.conditions] for n in self.sizes])
        count = np.where(orders == "keep", self.sizes[:, None] - count, count)
        columns = {
            "method": np.array(self.methods, dtype=object)[method],
            "text": text,
            "order": orders.astype(object)[condition],
            "k": levels[condition],
            "masked": count[text, condition],
            "target": np.array(self.classes, dtype=object)[self.target][text],
            "prediction": np.array(self.classes, dtype=object)[self.prediction.ravel()],
            "probability": np.exp(self.masked).ravel(),
            "aopc": aopc(self.base, self.masked).ravel(),
            "lodds": lodds(self.base, self.masked).ravel(),
        }
        if self.gold is not None:
            columns["correct"] = (self.prediction == self.gold[:, None]).ravel()
        return _pandas().DataFrame(columns)

    def per_text(self, metric: str, order: str = "top") -> np.ndarray:
        """A metric's average over levels for every method and text, (m, n).

        aopc and lodds by order; srg (the area between the top and the bottom curve), comprehensiveness, sufficiency,
        normalized_aopc, soft_ns and soft_nc have an order of their own.
        """
        if metric == "srg":
            return self.per_text("aopc", "top") - self.per_text("aopc", "bottom")
        if metric in ("comprehensiveness", "sufficiency"):
            return aopc(self.base, self.masked[:, :, self._where(_bins(metric))]).mean(-1)
        if metric == "normalized_aopc":
            if self.bounds is None:
                raise ValueError("normalized_aopc was not asked for; evaluate with bounds=True")
            low, high = self.bounds.T
            with np.errstate(invalid="ignore", divide="ignore"):
                return np.where(high > low, (self.per_text("aopc", "top") - low) / (high - low), np.nan)
        if metric in ("soft_ns", "soft_nc"):
            if self.soft is None or self.zero is None:
                raise ValueError(f"{metric} was not asked for; evaluate with soft=True")
            share, side = {"soft_ns": (soft_sufficiency, 0), "soft_nc": (soft_comprehensiveness, 1)}[metric]
            return share(self.base, self.zero, self.soft[:, :, side])
        return self._values(metric, order).mean(-1)

    def merge_methods(self, other: Evaluation) -> Evaluation:
        """These methods and those of `other` that are not among them, where both judge the same texts and model."""
        for name in ("conditions", "levels", "classes", "replacement", "sizes", "target", "gold", "base_prediction"):
            if not np.array_equal(getattr(self, name), getattr(other, name)):
                raise ValueError(f"the other evaluation is not of the same texts, model and settings: {name} differs")
        if not np.allclose(self.base, other.base, rtol=_SAME, atol=_SAME * 1e-3):
            raise ValueError("the other evaluation is not of the same model: probabilities of whole texts differ")
        for name in ("soft", "bounds"):
            if (getattr(self, name) is None) != (getattr(other, name) is None):
                raise ValueError(f"only one of the two evaluations has {name}; evaluate both with {name}=True, or none")
        for name in ("model", "soft", "seed"):  # what evaluations on disk say of themselves
            mine, theirs = (e.manifest.get(name) for e in (self, other))
            if mine is not None and theirs is not None and _weights(mine) != _weights(theirs):
                raise ValueError(f"the other evaluation has another {name}: {theirs!r}, not {mine!r}")
        rows = [k for k, method in enumerate(other.methods) if method not in self.methods]
        joined: dict[str, Any] = {"methods": (*self.methods, *(other.methods[k] for k in rows))}
        for name in ("masked", "prediction", "soft"):
            mine, theirs = getattr(self, name), getattr(other, name)
            joined[name] = None if mine is None else np.concatenate([mine, theirs[rows]])
        joined["manifest"] = {**self.manifest, "beside": [*self.manifest.get("beside", ()), dict(other.manifest)]}
        return replace(self, **joined)

    def save(self, folder: str | Path) -> None:
        """Write everything to a folder: values.parquet, texts.parquet and, once these are whole, evaluation.json."""
        from gaflow.evaluation.files import save

        save(self, Path(folder))

    @staticmethod
    def load(folder: str | Path) -> Evaluation:
        """Read what `save` wrote; anything else is refused."""
        from gaflow.evaluation.files import load

        return load(Path(folder))

    def _values(self, metric: str, order: str) -> np.ndarray:
        """(m, n, k) of a metric that every text has at every level."""
        if metric not in _CURVES:
            raise ValueError(f"no metric {metric!r} of single texts; there are {', '.join(_CURVES)} and srg")
        masked = self.masked[:, :, self._where([(order, k) for k in self.levels])]
        return (aopc if metric == "aopc" else lodds)(self.base, masked)

    def _where(self, conditions: Sequence[tuple[str, int]]) -> list[int]:
        missing = [f"{order} {k} %" for order, k in conditions if (order, k) not in self.conditions]
        if missing:
            raise ValueError(f"not evaluated: {', '.join(missing)}; evaluate again with order= and levels= for these")
        return [self.conditions.index(c) for c in conditions]

    def _rates(self, order: str, weights: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Rates (m, k), or (r, m, k) for resampled texts."""
        assert self.gold is not None
        said = self.prediction[:, :, self._where([(order, k) for k in self.levels])]
        return ClassCounts.of(self.gold, said, len(self.classes), weights).rates()

    def _curve(self, order: str, metric: str, mean: Any, low: Any, high: Any) -> pd.DataFrame:
        method, level = (index.ravel() for index in np.indices(mean.shape))
        places = {"method": np.array(self.methods, dtype=object)[method], "order": order}
        numbers = {"mean": mean.ravel(), "low": low.ravel(), "high": high.ravel()}
        return _pandas().DataFrame({**places, "k": np.array(self.levels)[level], "metric": metric, **numbers})

    def _compared(self) -> Iterator[tuple[str, str]]:
        yield from ((metric, order) for order in self.orders for metric in _CURVES)
        if len(self.orders) == 2:
            yield "srg", "both"

    def _row(self, method: str) -> int:
        if method not in self.methods:
            raise UnknownMethodError(f"no method {method!r} was evaluated; there are {', '.join(self.methods)}")
        return self.methods.index(method)

    def __repr__(self) -> str:
        return f"Evaluation({', '.join(self.methods)}; {len(self.sizes)} texts, replacement {self.replacement!r})"


def _weights(said: Any) -> Any:
    """Of a described model what it is, not what it is called."""
    return (said["weights"], said.get("tokenizer")) if isinstance(said, Mapping) and "weights" in said else said


def _bins(metric: str) -> list[tuple[str, int]]:
    return [("top" if metric == "comprehensiveness" else "keep", k) for k in BINS]


def _mean_known(values: np.ndarray) -> np.ndarray:
    """Mean (m,) over texts where there is a value; NaN if there is none at all."""
    known = np.isfinite(values)
    return np.where(known, values, 0.0).sum(1) / np.where(known.any(1), known.sum(1), np.nan)


def _check_share(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence!r}")


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError(f"cannot import pandas ({error}); run: pip install 'gaflow[data]'") from error
    return pandas
