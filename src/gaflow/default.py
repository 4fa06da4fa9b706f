"""Which method explains when none is named.

`path_flow` is the most faithful of our methods wherever that has been measured, which is for classes of whole texts
(docs/benchmark.md). So it is the default there, if it can follow the model; everywhere else it is `agf`, as the paper
defines it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gaflow.errors import UnsupportedModelError
from gaflow.methods import DEFAULT, METHODS, Method, PathFlow, Scores
from gaflow.tracing import Trace

__all__ = ["LEADING", "Instead", "default_method"]

LEADING = "path_flow"
_PROBE = PathFlow(steps=1, groups=1, ranked=0)  # asks all of a model that `path_flow` does, once


@dataclass(frozen=True)
class Instead:
    """The paper's method in place of the leading one, which every result says."""

    reason: str

    @property
    def name(self) -> str:
        """That of the method that is used."""
        return METHODS[DEFAULT].name

    def __call__(self, trace: Trace) -> Scores:
        """Its scores, and the reason."""
        found = METHODS[DEFAULT](trace)
        known = found.facts or tuple({} for _ in found.values)
        return replace(found, facts=tuple({**each, f"not {LEADING}": self.reason} for each in known))


def default_method(task: str, explain: Callable[..., object]) -> Method:
    """The default for a model of this task; `explain` is asked to try a method on a text."""
    if task != "text-classification":
        return METHODS[DEFAULT]
    try:
        explain("one two", _PROBE, keep_flow=False)
    except UnsupportedModelError as error:
        return Instead(str(error).split(". ")[0])
    return METHODS[LEADING]
