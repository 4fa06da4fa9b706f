import numpy as np
import pandas as pd
import pytest

from gaflow import plots
from gaflow.plots.curves import _looks
from tests.support.pictures import assert_stands_apart, saved, written

METHODS = ("agf", "ig", "random")


def table(methods=METHODS, metrics=("aopc", "lodds"), orders=("top", "bottom")):
    rows = [
        (method, order, k, metric, m + 0.1 * n + 0.001 * k, m + 0.1 * n, m + 0.1 * n + 0.2)
        for n, method in enumerate(methods)
        for m, metric in enumerate(metrics)
        for order in orders
        for k in range(10, 100, 10)
    ]
    return pd.DataFrame(rows, columns=["method", "order", "k", "metric", "mean", "low", "high"])


def panels(figure):
    return [axes for axes in figure.axes if axes.lines and axes.get_xlabel()]


def test_every_metric_and_order_has_a_panel_with_every_curve_as_it_is():
    curve_table = table()
    figure = plots.curves(curve_table)
    axes_list = panels(figure)
    assert len(axes_list) == 4
    groups = curve_table.groupby(["metric", "order"], sort=False)
    for axes, (_, rows) in zip(axes_list, groups, strict=True):
        for line, (_, curve) in zip(axes.lines, rows.groupby("method", sort=False), strict=True):
            np.testing.assert_array_equal(line.get_xdata(), curve["k"])
            np.testing.assert_array_equal(line.get_ydata(), curve["mean"])
        for band, (_, curve) in zip(axes.collections, rows.groupby("method", sort=False), strict=True):
            heights = np.array(band.get_paths()[0].vertices)[:, 1]
            assert (heights.min(), heights.max()) == (curve["low"].min(), curve["high"].max())
    assert [axes.get_ylabel() for axes in axes_list] == [
        "AOPC (higher is better)",
        "AOPC (lower is better)",
        "LOdds (lower is better)",
        "LOdds (higher is better)",
    ]


def test_panels_of_one_metric_have_the_same_scale():
    curve_table = table(metrics=["aopc", "accuracy"])
    curve_table.loc[curve_table["order"] == "bottom", ["mean", "low", "high"]] *= 3
    aopc, bottom, accuracy, _ = panels(plots.curves(curve_table))
    assert aopc.get_ylim() == bottom.get_ylim() != accuracy.get_ylim()
    assert aopc.get_ylim()[1] >= np.asarray(curve_table["high"])[curve_table["metric"] == "aopc"].max()
    assert accuracy.get_ylabel() == "accuracy (lower is better)"


def test_the_band_is_explained_and_that_of_a_highlighted_method_is_the_strongest():
    figure = plots.curves(table(), highlight=["ig"])
    assert written(figure)[-1] == "interval"
    alphas = np.array([np.asarray(band.get_facecolor())[0, 3] for band in panels(figure)[0].collections])
    np.testing.assert_allclose(alphas, [0.05, 0.25, 0.05])
    plain = table().drop(columns=["low", "high"])
    assert "interval" not in written(plots.curves(plain))


def test_rows_may_come_in_any_order_and_as_a_dict():
    curve_table = table(metrics=["aopc"], orders=["top"])
    mixed = curve_table.sort_values(["k", "mean"], ascending=[False, True], kind="stable")
    assert list(dict.fromkeys(mixed["method"])) == list(METHODS)
    plain = {name: curve_table[name].tolist() for name in curve_table}
    assert saved(plots.curves(plain)) == saved(plots.curves(mixed)) == saved(plots.curves(curve_table))


def test_intervals_metric_and_order_may_be_missing():
    figure = plots.curves({"method": ["a", "a"], "k": [10, 20], "mean": [0.1, 0.2]})
    (axes,) = panels(figure)
    assert len(axes.lines) == 1
    assert not axes.collections
    assert axes.get_ylabel() == "mean"


@pytest.mark.parametrize("count", [1, 3, 15, 30])
def test_nothing_is_clipped_or_hidden_and_every_method_is_in_the_legend(count):
    methods = [f"method {k}" for k in range(count - 1)] + ["x" * 80]
    figure = plots.curves(table(methods))
    assert_stands_apart(figure)
    assert [line for line in written(figure) if line.startswith("method ")] == methods[:-1]


def test_no_two_of_many_methods_look_alike_and_random_is_grey():
    looks = _looks([*[str(k) for k in range(60)], "random"], ["3"])
    styles = {(look["color"], str(look["linestyle"]), look["marker"]) for look in looks.values()}
    assert len(styles) == 61
    colourless = {(str(look["linestyle"]), look["marker"]) for look in list(looks.values())[:12]}
    assert len(colourless) == 12
    assert looks["3"]["linewidth"] > looks["2"]["linewidth"]
    assert looks["random"]["marker"] == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean": None}, "mean is not among"),
        ({"k": None}, "k is not among"),
        ({"low": None}, "no column low"),
        ({"k": [10]}, "equally long"),
        ({"mean": [np.nan, 1]}, "NaN.*mean"),
        ({"low": [5, 5]}, "does not hold its mean"),
        ({"k": [10, 10]}, "several means"),
    ],
)
def test_a_table_that_makes_no_curves_is_refused(change, message):
    good = {"method": ["a", "a"], "k": [10, 20], "mean": [1, 2], "low": [0, 1], "high": [2, 3]}
    plots.curves(good)
    bad = {name: values for name, values in {**good, **change}.items() if values is not None}
    with pytest.raises(ValueError, match=message):
        plots.curves(bad)


def test_only_methods_of_the_table_can_be_highlighted():
    with pytest.raises(ValueError, match=r"highlight.*'agf', 'ig', 'random'.*'x'"):
        plots.curves(table(), highlight=["x"])
    with pytest.raises(TypeError, match="table must be"):
        plots.curves([1, 2])
