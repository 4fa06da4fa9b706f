"""Checks of arguments that many functions share. Each raises an error that names the argument and what was given."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TypeGuard, TypeVar

from gaflow.errors import Argument, ArgumentError, ArgumentTypeError

__all__ = ["boolean", "distinct", "is_whole_number", "one_of", "open_fraction", "positive_number", "whole_number"]

Choice = TypeVar("Choice")


def is_whole_number(value: object) -> TypeGuard[int]:
    """Whether a value is an int; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def whole_number(name: str, value: object, least: int = 1, most: int | None = None) -> int:
    """A whole number from `least` to `most` (None: no upper bound)."""
    if is_whole_number(value) and value >= least and (most is None or value <= most):
        return value
    bounds = f">= {least}" if most is None else f"from {least} to {most}"
    raise ArgumentError(Argument(name), f" must be a whole number {bounds}, not {value!r}")


def positive_number(name: str, value: object) -> float:
    """A finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ArgumentError(Argument(name), f" must be a number > 0, not {value!r}")
    return value


def open_fraction(name: str, value: object) -> float:
    """A number between 0 and 1, both excluded, as levels of confidence are."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise ArgumentError(Argument(name), f" must lie between 0 and 1, not {value!r}")
    return value


def boolean(name: str, value: object) -> bool:
    """True or False, and nothing that only counts as one."""
    if not isinstance(value, bool):
        raise ArgumentTypeError(Argument(name), f" must be True or False, not {value!r}")
    return value


def one_of(name: str, value: Choice, choices: Collection[Choice]) -> Choice:
    """One of a few values."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ArgumentError(Argument(name), f" must be one of {listed}, not {value!r}")
    return value


def distinct(name: str, values: Sequence[str], reason: str) -> None:
    """Refuse names that are there twice; `reason` says why they must differ."""
    repeated = sorted({value for value in values if values.count(value) > 1})
    if repeated:
        raise ArgumentError(Argument(name), f" names {', '.join(repeated)} twice; {reason}")
