"""Masking curves: how the model's answer changes as more of a text is masked (paper, Figure 8).

The convention this file owns: **the table is tidy**, one row per point, as `Evaluation.curves()` gives it. Columns
method, k (per cent of the tokens masked), mean; low and high, the ends of a confidence interval, if there are any;
metric and order ("top": most important tokens first, "bottom": least), which make a panel each. A DataFrame or a dict
of equally long columns. Panels of one metric have the same scale, so that they can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from gaflow.plots.figure import GREY, INK, PAD, Picture, fitted, styled, width_of

__all__ = ["curves"]

# Okabe and Ito's colours, told apart with any kind of colour blindness; yellow is left out, too light for a line
_COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.5, 1.2, 1.5)))
_MARKERS = "osD^vPX<>*hd"
_RANDOM = {"color": GREY, "linestyle": (0, (1, 1.5)), "marker": "", "linewidth": 1.2}
_TITLES = {"top": "most important tokens first", "bottom": "least important tokens first"}
_NAMES = {"aopc": "AOPC", "lodds": "LOdds"}
_LESS_FIRST = ("lodds", "accuracy", "f1", "precision", "recall")  # what should fall as important tokens are masked
_BETTER = {("aopc", "top"): "higher", ("aopc", "bottom"): "lower"}
_BETTER |= {(name, order): b for name in _LESS_FIRST for order, b in (("top", "lower"), ("bottom", "higher"))}

PANEL = (250.0, 190.0)  # width and height of the axes
_LEFT, _BELOW, _ABOVE, _BETWEEN = 52.0, 44.0, 26.0, 24.0
_NAME = 110.0  # width of a method's name


def curves(table: Any, *, highlight: Sequence[str] = ()) -> Picture:
    """The curves in `table`, a panel for every metric and order; methods in `highlight` stand out."""
    columns = _columns(table)
    metrics, orders = (list(dict.fromkeys(columns[name])) for name in ("metric", "order"))
    methods = list(dict.fromkeys(columns["method"]))
    for name in highlight:
        if name not in methods:
            raise ValueError(f"highlight: there is no method {name!r} in the table; it has {', '.join(methods)}")
    looks = _looks(methods, highlight)
    names = {name: fitted(name, 8.5, _NAME) for name in methods}
    width = (_LEFT + PANEL[0]) * len(orders) + 46 + max(width_of(name, 8.5) for name in (*names.values(), "interval"))
    height = (_ABOVE + PANEL[1] + _BELOW) * len(metrics) + max(0.0, 16 * len(methods) - PANEL[1] - 44)
    picture = Picture.sized(width + 2 * PAD, height + 2 * PAD, "masking curves")
    with styled():
        for row, metric in enumerate(metrics):
            panels = []
            for column, order in enumerate(orders):
                axes = _panel(picture, row, column)
                here = (columns["metric"] == metric) & (columns["order"] == order)
                _lines(axes, {name: values[here] for name, values in columns.items()}, looks, highlight)
                _labels(axes, metric, order)
                panels.append(axes)
            ends = np.array([axes.get_ylim() for axes in panels])
            for axes in panels:
                axes.set_ylim(ends.min(), ends.max())
        left = (_LEFT + PANEL[0]) * len(orders) + 8
        _legend(picture, names, looks, left, banded=bool((columns["high"] > columns["low"]).any()))
    return picture


def _columns(table: Any) -> dict[str, np.ndarray]:
    """The table as arrays, checked; what may be missing is filled in."""
    there = list(table) if isinstance(table, Mapping) else list(getattr(table, "columns", ()))
    for name in ("method", "k", "mean"):
        if name not in there:
            raise ValueError(f"table needs the columns method, k and mean, and {name} is not among {there}")
    found = {name: np.asarray(table[name]) for name in there}
    size = found["mean"].size
    fill = {"metric": np.full(size, ""), "order": np.full(size, "")}
    missing = {"low", "high"} - set(there)
    if len(missing) == 1:
        raise ValueError(f"table has one end of the intervals but no column {missing.pop()}; give both or neither")
    fill |= dict.fromkeys(missing, found["mean"])
    found = {**fill, **found}
    texts = {name: np.array([str(v) for v in found[name]], dtype=object) for name in ("method", "metric", "order")}
    numbers = {name: found[name].astype(float) for name in ("k", "mean", "low", "high")}
    lengths = {name: values.size for name, values in {**texts, **numbers}.items()}
    if set(lengths.values()) != {size} or size == 0:
        raise ValueError(f"the columns of table must be equally long and not empty, not {lengths}")
    for name, values in numbers.items():
        if not np.isfinite(values).all():
            raise ValueError(f"column {name} of table holds NaN or infinite values; drop these rows first")
    if bool((numbers["low"] > numbers["mean"]).any() | (numbers["high"] < numbers["mean"]).any()):
        raise ValueError("some interval of table does not hold its mean: low <= mean <= high must be true")
    return {**texts, **numbers}


def _looks(methods: Sequence[str], highlight: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour, dashes and marker of every method: no two alike, and not by colour alone."""
    looks = {}
    for k, name in enumerate(m for m in methods if m != "random"):
        looks[name] = {
            "color": _COLOURS[k % len(_COLOURS)],
            "linestyle": _DASHES[(k // len(_COLOURS)) % len(_DASHES)],
            "marker": _MARKERS[k % len(_MARKERS)],
            "linewidth": 2.6 if name in highlight else 1.3,
        }
    return {name: looks.get(name, _RANDOM) for name in methods}


def _panel(picture: Picture, row: int, column: int) -> Axes:
    width, height = 72 * picture.get_figwidth(), 72 * picture.get_figheight()
    left = PAD + _LEFT + (_LEFT + PANEL[0]) * column
    top = PAD + _ABOVE + (_ABOVE + PANEL[1] + _BELOW) * row
    return picture.add_axes((left / width, 1 - (top + PANEL[1]) / height, PANEL[0] / width, PANEL[1] / height))


def _lines(
    axes: Axes, points: dict[str, np.ndarray], looks: dict[str, dict[str, Any]], highlight: Sequence[str]
) -> None:
    plain = 0.05 if highlight else 0.15 if len(looks) <= 4 else 0.08  # many bands are hard to tell apart
    for depth, (method, look) in enumerate(looks.items()):
        mine = np.flatnonzero(points["method"] == method)
        if not mine.size:
            continue
        mine = mine[np.argsort(points["k"][mine], kind="stable")]
        k, mean, low, high = (points[name][mine] for name in ("k", "mean", "low", "high"))
        if np.unique(k).size != k.size:
            raise ValueError(f"{method} has several means for the same k; give one row per method, order, metric and k")
        if (high > low).any():
            alpha = 0.25 if method in highlight else plain
            inside, edge = (look["color"], alpha), (look["color"], 2 * alpha)
            axes.fill_between(k, low, high, facecolor=inside, edgecolor=edge, linewidth=0.6)
        axes.plot(k, mean, **look, markersize=4.5, markeredgecolor="white", markeredgewidth=0.5, zorder=3 + depth / 100)


def _labels(axes: Axes, metric: str, order: str) -> None:
    title = _TITLES.get(order, order)
    better = _BETTER.get((metric.lower(), order))
    said = fitted(title, 9, PANEL[0], "bold") if title else ""
    axes.set_title(said, size=9, weight="bold", loc="left")
    axes.set_xlabel("tokens masked (%)", size=8.5)
    name = fitted(_NAMES.get(metric.lower(), metric), 8.5, PANEL[1] - 90) if metric else "mean"
    axes.set_ylabel(f"{name} ({better} is better)" if better else name, size=8.5)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)


def _legend(
    picture: Picture, names: dict[str, str], looks: dict[str, dict[str, Any]], left: float, *, banded: bool
) -> None:
    sheet = picture.sheet()
    for k, (name, shown) in enumerate(names.items()):
        y = _ABOVE + 6 + 16 * k
        look = {**looks[name], "markersize": 4.5, "markeredgecolor": "white", "markeredgewidth": 0.5}
        sheet.add_line(Line2D([left, left + 11, left + 22], [y, y, y], markevery=[1], **look))
        sheet.text(left + 28, y, shown, size=8.5, va="center_baseline", color=INK)
    if banded:
        y = _ABOVE + 6 + 16 * len(names)
        sheet.add_patch(Rectangle((left, y - 5), 22, 10, facecolor=GREY, alpha=0.25, linewidth=0))
        sheet.text(left + 28, y, "interval", size=8.5, va="center_baseline", color=INK)
