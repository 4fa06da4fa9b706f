"""Columns of other libraries as lists of texts, and frames: pandas, polars, Arrow, `datasets`, NumPy.

The convention this file owns: libraries are told by what their objects can do, never by their name, so that none of
them is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

_KINDS_OF_TEXTS = ("O", "T", "U")  # NumPy's letters for objects and two kinds of strings


class ArrowFrame(Protocol):
    """A table of pandas, polars, Arrow or another library, as `is_frame` tells it."""

    @property
    def columns(self) -> Iterable[object]: ...


def as_items(values: object) -> list[Any] | None:
    """The items of a list, tuple, array of strings, Series or column; None if `values` is a single input.

    A tuple of two is a single (text, pair), unless it holds tuples itself.
    """
    if isinstance(values, list):
        return values
    if isinstance(values, tuple):
        is_pair = len(values) == 2 and not all(isinstance(value, tuple) for value in values)
        return None if is_pair else list(values)
    if is_frame(values) or is_data_set(values):
        return None
    dtype_kind = getattr(getattr(values, "dtype", None), "kind", None)
    if dtype_kind in _KINDS_OF_TEXTS and getattr(values, "ndim", None) == 1:  # NumPy, and arrays behind pandas' Series
        return values.tolist()  # type: ignore[attr-defined]
    if isinstance(values, np.ndarray):
        return None  # a picture or a sound
    for name in ("to_pylist", "to_list"):  # Arrow; pandas and polars
        if hasattr(values, name):
            return getattr(values, name)()
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return list(values)  # a column of `datasets`
    return None


def all_items(values: Iterable[Any]) -> list[Any]:
    """The same where a single input is not possible: a tuple of two holds two items."""
    items = None if isinstance(values, tuple) else as_items(values)
    return list(values) if items is None else items


def is_frame(values: object) -> bool:
    """Whether `values` is a table with named columns that Arrow can read."""
    is_readable = hasattr(values, "__arrow_c_stream__") or hasattr(values, "__dataframe__")
    return is_readable and hasattr(values, "columns")


def is_data_set(values: object) -> bool:
    """Whether `values` is a `datasets.Dataset`, or another thing with named columns and their features."""
    return hasattr(values, "column_names") and hasattr(values, "features")
