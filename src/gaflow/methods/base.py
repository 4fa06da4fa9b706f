"""What a method is: settings with a name that turn a trace into a score per token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from gaflow.flow.result import Flow, NodeLayer
from gaflow.models.tracing import Trace

__all__ = ["DescribedMethod", "Method", "MethodInfo", "Scores", "full_name", "name_with_settings"]


@dataclass(frozen=True)
class MethodInfo:
    """What readers of scores have to know about the method they come from."""

    family: str  # "flow", "attention", "gradient", "relevance", "perturbation" or "control"
    signed: bool  # scores below 0 speak against the explained class
    class_specific: bool  # another target gives other scores
    passes: str  # of the model that the scores come from: "none", "1 forward", "1 forward, 1 backward" or more
    reference: str  # author, year and venue
    libraries: tuple[str, ...] = ()  # optional libraries that it is computed with, as imported
    extra: str = ""  # the extra of gaflow that installs them

    @property
    def one_trace(self) -> bool:
        """Whether the method needs no pass of the model beyond the trace that every explanation begins with."""
        return self.passes in ("none", "1 forward", "1 forward, 1 backward")


@dataclass(frozen=True)
class Scores:
    """The result of a method on a traced batch."""

    values: Tensor  # (b, t) token scores, 0 at padding
    flow: Flow | None = None  # flow methods only
    diagnostics: tuple[dict[str, float | str], ...] = ()  # (b,) further findings about each text, or none at all
    flow_against: Flow | None = None  # of the network of -y, whose through-flow is subtracted; signed flow methods only
    layer: NodeLayer | None = None  # the node layer that the values are the through-flow of; flow methods only

    def layers(self) -> Tensor | None:
        """The score of every token in every node layer, (b, l+1, t); flow methods only."""
        if self.flow is None:
            return None
        through = self.flow.through()
        if self.flow_against is None:
            return through
        return through - self.flow_against.through()


@runtime_checkable
class Method(Protocol):
    """A settings object with a name that maps a trace to scores."""

    @property
    def name(self) -> str: ...

    def __call__(self, trace: Trace) -> Scores: ...


class DescribedMethod(Method, Protocol):
    """A method that also says what its scores mean and cost, as all of gaflow's own do."""

    @property
    def info(self) -> MethodInfo: ...


def full_name(base: str, settings: Any, leave_out: Sequence[str] = ()) -> str:
    """`base`, followed by the fields of `settings` that differ from their defaults; it identifies stored results."""
    changed = {}
    for f in fields(settings):
        value = getattr(settings, f.name)
        if f.name not in leave_out and value != f.default:
            changed[f.name] = value
    return name_with_settings(base, changed)


def name_with_settings(base: str, settings: Mapping[str, Any]) -> str:
    """For example "agf(signed=True, layer=2)"; without settings, `base`."""
    if not settings:
        return base
    listed = ", ".join(f"{name}={_written(value)}" for name, value in settings.items())
    return f"{base}({listed})"


def _written(value: Any) -> str:
    """A setting in a name. Callables are written by their name, since their repr holds an address in memory."""
    if not callable(value):
        return repr(value)
    return getattr(value, "__name__", type(value).__name__)
