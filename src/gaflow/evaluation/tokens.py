"""Values of ordinary tokens, and overlaps of spans.

The convention this file owns: values of a text are those of all its tokens or those of its ordinary tokens, whichever
their number fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from gaflow.errors import Argument, ArgumentError

ScoresByMethod = dict[str, list[np.ndarray]]  # method -> for every text the scores (n,) of its ordinary tokens


def ordinary_values(values: np.ndarray, ordinary: np.ndarray, name: str, entry: str, alternative: str) -> np.ndarray:
    """The values (n,) of the `ordinary` tokens (t,) bool; errors name the argument, its entry and an alternative."""
    count = int(ordinary.sum())
    if len(values) == count:
        return values
    if len(values) == len(ordinary):
        return values[ordinary]
    raise ArgumentError(
        Argument(name),
        f"{entry} has {len(values)} values, but the text has {len(ordinary)} tokens, {count} of them ordinary; "
        f"pass one value for each, or {alternative}",
    )


def finite_numbers(values: Any) -> np.ndarray | None:
    """An array of the finite numbers that somebody passed; None if they are anything else."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().double()
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):  # lists of different lengths, words, numbers beyond all bounds
        return None
    return numbers if np.isfinite(numbers).all() else None


def check_counts(scores: Mapping[str, Sequence[object]] | None, count: int) -> None:
    """Refuse scores that are not one for each of so many texts."""
    for name, items in (scores or {}).items():
        if len(items) != count:
            message = f"[{name!r}] has {len(items)} entries but there are {count} texts"
            raise ArgumentError(Argument("scores"), message)


def span_overlap(spans: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Length (s, o) of what spans (s, 2) share with others (o, 2); 0 or less where they share nothing."""
    starts = np.maximum(spans[:, None, 0], others[:, 0])
    ends = np.minimum(spans[:, None, 1], others[:, 1])
    return ends - starts
