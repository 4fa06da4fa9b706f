"""Masking curves: how the model's output changes as more of a text is masked (paper, Figure 8).

The convention this file owns: **the table is tidy**, one row per point, as `Evaluation.curves()` returns it. Columns
are method, k (percent of the tokens masked) and mean; low and high, the ends of a confidence interval, if there are
any; metric and order ("top": most important tokens first, "bottom": least), which make a panel each. The table is a
DataFrame or a dict of equally long columns. Panels of one metric have the same scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, product
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gaflow.arguments import checked, one_of
from gaflow.errors import Argument, ArgumentError, ArgumentTypeError
from gaflow.plots.figure import GREY, PAD, Look, Picture, fit_text, styled

Columns = dict[str, np.ndarray]

# Okabe and Ito's colours, which people with any kind of colour blindness tell apart; yellow is too light for a line
_COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.5, 1.2, 1.5)))
_MARKERS = "osD^vPX<>*hd"
_MARKER_LOOK = {"markersize": 4.5, "markeredgecolor": "white", "markeredgewidth": 0.5}
_RANDOM = {"color": GREY, "linestyle": (0, (1, 1.5)), "marker": "", "linewidth": 1.2}
_TITLES = {"top": "most important tokens first", "bottom": "least important tokens first"}
_METRIC_NAMES = {"aopc": "AOPC", "lodds": "LOdds"}
_RISING = ("aopc",)  # metrics that should rise as important tokens are masked
_FALLING = ("lodds", "accuracy", "f1", "precision", "recall")

_NUMBERS = ("k", "mean", "low", "high")

_PANEL_WIDTH = 302.0  # with the labels of its axes
_PANEL_HEIGHT = 260.0
_LEGEND_WIDTH = 150.0
_LEGEND_ROW = 16.0
_NAME_WIDTH = 110.0  # of a method's name, at most


@checked
def curves(table: Any, *, highlight: Sequence[str] = ()) -> Picture:
    """A figure of the curves in `table`, a panel for every metric and order; methods in `highlight` stand out.

    plots.curves(gaflow.evaluate(explainer, texts).curves(), highlight=["agf"]).savefig("curves.svg")
    """
    columns = _columns(table)
    metrics, orders, methods = (list(dict.fromkeys(columns[name])) for name in ("metric", "order", "method"))
    for name in highlight:
        one_of("highlight", name, methods)
    by_k = np.argsort(columns["k"], kind="stable")
    columns = {name: values[by_k] for name, values in columns.items()}
    looks = _looks(methods, highlight)
    width = _PANEL_WIDTH * len(orders) + _LEGEND_WIDTH
    height = max(_PANEL_HEIGHT * len(metrics), _LEGEND_ROW * (len(methods) + 1))
    picture = Picture.padded(width, "masking curves", height)
    picture.set_layout_engine("constrained", w_pad=PAD / 72, h_pad=PAD / 72)
    with styled():
        panels = picture.subplots(len(metrics), len(orders), sharey="row", squeeze=False)
        for metric, metric_panels in zip(metrics, panels, strict=True):
            for order, axes in zip(orders, metric_panels, strict=True):
                inside = (columns["metric"] == metric) & (columns["order"] == order)
                points = {name: values[inside] for name, values in columns.items()}
                _draw_curves(axes, points, looks, highlight)
                _label_axes(axes, metric, order)
        handles: list[Artist] = []
        for method, look in looks.items():
            name = fit_text(method, 8.5, _NAME_WIDTH)
            handles.append(Line2D([], [], label=name, **look, **_MARKER_LOOK))
        if (columns["high"] > columns["low"]).any():
            handles.append(Patch(facecolor=GREY, alpha=0.25, label="interval"))
        picture.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=8.5, handlelength=2.6)
    return picture


def _columns(table: Any) -> Columns:
    """The table as arrays, checked; columns that may be missing are filled in."""
    argument = Argument("table")
    if not isinstance(table, Mapping) and not hasattr(table, "columns"):
        raise ArgumentTypeError(argument, f" must be a table of curves, not {type(table).__name__}")
    present = set(getattr(table, "columns", table))
    for name in ("method", "k", "mean"):
        if name not in present:
            message = f" needs the columns method, k and mean, and {name} is not among {list(table)}"
            raise ArgumentError(argument, message)
    missing = {"low", "high"} - present
    if len(missing) == 1:
        message = f" has one end of the intervals but no column {missing.pop()}; give both or neither"
        raise ArgumentError(argument, message)

    columns: Columns = {}
    for name in ("method", "metric", "order"):
        values = table[name] if name in present else [""] * len(table["mean"])
        columns[name] = np.array([str(value) for value in values], dtype=object)
    for name in _NUMBERS:
        source = "mean" if name in missing else name
        columns[name] = np.asarray(table[source], dtype=float)
    lengths = {name: values.size for name, values in columns.items()}
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise ArgumentError(argument, f" must have equally long columns that are not empty, not {lengths}")
    for name in _NUMBERS:
        if not np.isfinite(columns[name]).all():
            raise ArgumentError(argument, f" holds NaN or infinite values in column {name}; drop these rows first")
    if (columns["low"] > columns["mean"]).any() or (columns["high"] < columns["mean"]).any():
        raise ArgumentError(argument, " has an interval that does not hold its mean: low <= mean <= high must be true")
    return columns


def _looks(methods: Sequence[str], highlight: Sequence[str]) -> dict[str, Look]:
    """Colour, dashes and marker of every method: no two alike, and not by colour alone."""
    looks = {}
    strokes = cycle(product(_DASHES, _COLOURS))
    for name, (dashes, colour), marker in zip(methods, strokes, cycle(_MARKERS), strict=False):
        width = 2.6 if name in highlight else 1.3
        looks[name] = {"color": colour, "linestyle": dashes, "marker": marker, "linewidth": width}
    if "random" in looks:
        looks["random"] = _RANDOM
    return looks


def _draw_curves(axes: Axes, points: Columns, looks: dict[str, Look], highlight: Sequence[str]) -> None:
    band_opacity = 0.15 if len(looks) <= 4 else 0.08  # many bands are hard to tell apart
    if highlight:
        band_opacity = 0.05
    for index, (method, look) in enumerate(looks.items()):
        rows = points["method"] == method
        if not rows.any():
            continue
        k, mean, low, high = (points[name][rows] for name in _NUMBERS)
        if np.unique(k).size != k.size:
            message = f": {method} has several means for the same k; give one row per method, order, metric and k"
            raise ArgumentError(Argument("table"), message)
        if (high > low).any():
            opacity = 0.25 if method in highlight else band_opacity
            face = (look["color"], opacity)
            edge = (look["color"], 2 * opacity)
            axes.fill_between(k, low, high, facecolor=face, edgecolor=edge, linewidth=0.6)
        axes.plot(k, mean, **look, **_MARKER_LOOK, zorder=3 + index / 100)


def _label_axes(axes: Axes, metric: str, order: str) -> None:
    title = _TITLES.get(order, order)
    if title:
        title = fit_text(title, 9, _PANEL_WIDTH - 60, "bold")
    axes.set_title(title, size=9, weight="bold", loc="left")
    axes.set_xlabel("tokens masked (%)", size=8.5)
    name = "mean"
    if metric:
        name = fit_text(_METRIC_NAMES.get(metric.lower(), metric), 8.5, _PANEL_HEIGHT - 160)
    if order in ("top", "bottom") and metric.lower() in _RISING + _FALLING:
        rises = metric.lower() in _RISING
        better = "higher" if rises == (order == "top") else "lower"
        name += f" ({better} is better)"
    axes.set_ylabel(name, size=8.5)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
