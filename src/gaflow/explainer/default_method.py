"""Which method explains when none is named.

`path_flow` is ahead of all our methods by what happens when the tokens of highest score are masked, on all data sets
that it has been measured on, which are classes of whole texts (docs/benchmark.md). So it is the default there, if it
can follow the model; everywhere else it is `agf`, as the paper defines it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gaflow.errors import GaflowError
from gaflow.methods import DEFAULT, METHODS, Method, PathFlow, Scores
from gaflow.models.tracing import Trace

__all__ = ["LEADING", "FallbackToAgf", "default_method"]

LEADING = "path_flow"
_PROBE = PathFlow(steps=1, groups=1, ranked=0, throw=False)  # asks all of a model that `path_flow` does, once


@dataclass(frozen=True)
class FallbackToAgf:
    """The paper's method in place of the leading one, which every result says."""

    reason: str

    @property
    def name(self) -> str:
        """That of the method that is used."""
        return METHODS[DEFAULT].name

    def __call__(self, trace: Trace) -> Scores:
        """Its scores, and the reason."""
        found = METHODS[DEFAULT](trace)
        known = found.diagnostics or tuple({} for _ in found.values)
        said = f"{DEFAULT} instead of {LEADING}, which cannot follow this model: {self.reason}"
        return replace(found, diagnostics=tuple({**each, "default": said} for each in known))


def default_method(task: str, head: Any, explain: Callable[..., object]) -> Method:
    """The default for a model of this task and head; `explain` is asked to try a method on a text."""
    if task != "text-classification" or head.link == "none":  # a number is no class
        return METHODS[DEFAULT]
    try:
        explain("one two", _PROBE, truncation=True, keep_flow=False)
    except GaflowError as error:
        return FallbackToAgf(str(error).split(". ")[0])
    return METHODS[LEADING]
