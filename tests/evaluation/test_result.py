import math
from types import SimpleNamespace

import numpy as np
import pytest

from gaflow.errors import MissingExtraError, UnknownMethodError
from gaflow.evaluation.faithfulness import evaluate
from tests.support.evaluated import TEXTS


def test_the_table_averages_over_texts_and_levels(evaluated):
    table = evaluated.table()
    values = evaluated.values()
    levels = values[values["k"].isin(range(10, 100, 10))]
    for method in evaluated.methods:
        for order in ("top", "bottom"):
            rows = levels[(levels["method"] == method) & (levels["order"] == order)]
            assert len(rows) == 9 * len(TEXTS)
            assert table.loc[method, f"aopc_{order}"] == pytest.approx(rows["aopc"].mean())
            assert table.loc[method, f"lodds_{order}"] == pytest.approx(rows["lodds"].mean())
            assert table.loc[method, f"accuracy_{order}"] == pytest.approx(rows["correct"].mean())
        bins = values[(values["method"] == method) & values["k"].isin((1, 5, 10, 20, 50))]
        assert table.loc[method, "comprehensiveness"] == pytest.approx(bins[bins["order"] == "top"]["aopc"].mean())
        assert table.loc[method, "sufficiency"] == pytest.approx(bins[bins["order"] == "keep"]["aopc"].mean())
    assert (table["srg"] - table["aopc_top"] + table["aopc_bottom"]).abs().max() < 1e-12
    assert set(table["texts"]) == {len(TEXTS)}
    assert set(table["replacement"]) == {"pad"}
    assert {"f1_top", "precision_bottom", "recall_top"} <= set(table)


def test_per_text_values_say_what_was_masked_and_said(evaluated):
    values = evaluated.values().set_index(["method", "text", "order", "k"])
    row = values.loc[("cat", 0, "top", 50)]
    n = evaluated.sizes[0]
    assert row["masked"] == (n + 1) // 2
    assert values.loc[("cat", 0, "keep", 10)]["masked"] == n - 1
    assert row["lodds"] == pytest.approx(math.log(row["probability"]) - evaluated.base[0])
    assert row["aopc"] == pytest.approx(math.exp(evaluated.base[0]) - row["probability"])
    assert row["target"] in evaluated.classes


def test_curves_hold_means_and_intervals_and_can_be_drawn(evaluated):
    from gaflow.plots import curves

    table = evaluated.curves(resamples=200)
    assert list(table) == ["method", "order", "k", "metric", "mean", "low", "high"]
    assert len(table) == 4 * 2 * 9 * 6
    assert (table["low"] <= table["mean"]).all()
    assert (table["mean"] <= table["high"]).all()
    means = evaluated.table()
    for (method, order, metric), mean in table.groupby(["method", "order", "metric"])["mean"].mean().items():
        assert mean == pytest.approx(means.loc[method, f"{metric}_{order}"])
    wider = evaluated.curves(resamples=200, confidence=0.99)
    assert (wider["high"] - wider["low"] >= table["high"] - table["low"] - 1e-12).all()
    curves(table)


def test_significance_compares_with_every_other(evaluated):
    table = evaluated.significance("cat", resamples=100, permutations=200)
    assert set(table["other"]) == {"gradsam", "rawatt", "random"}
    assert len(table) == 3 * 5
    row = table[(table["other"] == "rawatt") & (table["metric"] == "lodds") & (table["order"] == "top")].iloc[0]
    gap = evaluated.per_text("lodds", "top")[1] - evaluated.per_text("lodds", "top")[2]
    assert row["better"] == "lower"
    assert row["difference"] == pytest.approx(gap.mean())
    signs = np.array(np.meshgrid(*[[-1, 1]] * 5)).reshape(5, -1)
    assert row["p"] == pytest.approx((np.abs(gap @ signs) >= abs(gap.sum()) - 1e-12).mean())
    assert (table["p_holm"] >= table["p"]).all()
    assert table[["epsilon", "epsilon_back", "epsilon_runs"]].stack().between(0, 1).all()


def test_a_method_that_is_better_everywhere_is_found_so(explainer):
    base = evaluate(explainer, TEXTS, methods=["cat"])
    masked = np.stack([base.masked[0] - 3.0, base.masked[0]])
    better = SimpleNamespace(**{**vars(base), "masked": masked, "methods": ("good", "poor")})
    result = type(base)(**{**vars(better), "prediction": base.prediction[:2]})
    table = result.significance("good", resamples=100).set_index(["metric", "order"])
    assert table.loc[("lodds", "top"), "epsilon"] == 0
    assert table.loc[("lodds", "top"), "epsilon_back"] == 1
    assert table.loc[("lodds", "bottom"), "epsilon"] == 1  # there less is worse


def test_unknown_names_and_metrics_are_refused(evaluated):
    with pytest.raises(UnknownMethodError, match="gradsam"):
        evaluated.significance("agf")
    with pytest.raises(ValueError, match="metric"):
        evaluated.per_text("beauty")
    with pytest.raises(ValueError, match="bounds"):
        evaluated.per_text("normalized_aopc")
    with pytest.raises(ValueError, match="confidence"):
        evaluated.curves(confidence=95)


def test_tables_say_which_extra_is_missing(evaluated, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"gaflow\[data\]"):
        evaluated.table()
