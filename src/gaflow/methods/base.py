"""What every method gives: a score per token, and the flow behind it if there is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from gaflow.flow.result import Flow
from gaflow.models.tracing import Trace

__all__ = ["AGAINST", "Method", "MethodInfo", "Scores", "full_name"]

AGAINST = "value_against"  # the fact that tells the value of the flow against


@dataclass(frozen=True)
class MethodInfo:
    """What a reader of scores has to know about the method they came from."""

    family: str  # "flow", "attention", "gradient", "relevance", "perturbation" or "control"
    signed: bool  # scores below 0 speak against the explained class
    class_specific: bool  # another target gives other scores
    passes: str  # of the model that the scores come from: "none", "1 forward", "1 forward, 1 backward" or more
    reference: str  # author, year and venue
    libraries: tuple[str, ...] = ()  # optional libraries that it is computed with, as imported
    extra: str = ""  # the extra of gaflow that brings them

    @property
    def one_trace(self) -> bool:
        """Whether the trace that every explanation begins with is all that is asked of the model."""
        return self.passes in ("none", "1 forward", "1 forward, 1 backward")


@dataclass(frozen=True)
class Scores:
    """The result of a method on a traced batch."""

    values: Tensor  # (b, t) token scores, 0 at padding
    flow: Flow | None = None  # flow methods only
    diagnostics: tuple[dict[str, float | str], ...] = ()  # (b,) what else is known of each text, if anything
    flow_against: Flow | None = None  # of the network of -y, whose through-flow is taken off; signed flow methods only

    def layers(self) -> Tensor | None:
        """What every token of every node layer counts, (b, l+1, t); flow methods only."""
        if self.flow is None:
            return None
        return self.flow.through() if self.flow_against is None else self.flow.through() - self.flow_against.through()


@runtime_checkable
class Method(Protocol):
    """A settings object: it has a name and maps a trace to scores; ours also have an `about`."""

    @property
    def name(self) -> str: ...

    def __call__(self, trace: Trace) -> Scores: ...


def full_name(base: str, settings: Any, leave_out: Sequence[str] = ()) -> str:
    """`base`, followed by the settings that are not the defaults: by this, results are told apart."""
    changed = [
        f"{f.name}={_shown(getattr(settings, f.name))}"
        for f in fields(settings)
        if f.name not in leave_out and getattr(settings, f.name) != f.default
    ]
    return f"{base}({', '.join(changed)})" if changed else base


def _shown(setting: Any) -> str:
    """A callable by its name: its repr would tell where in memory it is."""
    return getattr(setting, "__name__", type(setting).__name__) if callable(setting) else repr(setting)
