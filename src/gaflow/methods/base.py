"""What a method is: settings with a name that turn a trace into a score per token."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor

from gaflow.arguments import plain_number
from gaflow.flow.result import Flow, NodeFlows, NodeLayer
from gaflow.models.streamed_attention import HeadMean
from gaflow.models.tracing import Trace

Diagnostics = dict[str, float | str]  # findings about one text beyond its scores, by name

_NOT_IN_NAMES = ("throw", "batch_size")  # settings that change no score


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
    def pass_cost(self) -> int:
        """The passes for one text, in forward passes; a backward pass costs about two of them."""
        cost = 0
        for count, direction in re.findall(r"(\d+) (forward|backward)", self.passes):
            cost += int(count) * (1 if direction == "forward" else 2)
        return cost

    @property
    def one_trace(self) -> bool:
        """Whether the method needs no pass of the model beyond the trace that every explanation begins with."""
        return self.passes in ("none", "1 forward", "1 forward, 1 backward")


@dataclass(frozen=True)
class Scores:
    """The result of a method on a traced batch."""

    values: Tensor  # (b, t) token scores, 0 at padding
    flow: Flow | None = None  # flow methods only, if the trace keeps flows
    diagnostics: tuple[Diagnostics, ...] = ()  # (b,) further findings about each text, or none at all
    flow_against: Flow | None = None  # of the network of -y, whose through-flow is subtracted; signed flow methods only
    layer: NodeLayer | None = None  # the node layer that the values are the through-flow of; flow methods only
    node_flows: tuple[NodeFlows, ...] = ()  # for and maybe against; where they are empty, those of the flows

    def sides(self) -> tuple[NodeFlows, ...]:
        """The flow through nodes, for the output and maybe against it; none for other methods."""
        if self.node_flows:
            return self.node_flows
        return tuple(flow.node_flows() for flow in (self.flow, self.flow_against) if flow is not None)

    def layers(self) -> Tensor | None:
        """The score of every token in every node layer, (b, l+1, t); flow methods only."""
        sides = self.sides()
        if not sides:
            return None
        if len(sides) == 1:
            return sides[0].through
        return sides[0].through - sides[1].through


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


def common_head_means(methods: Iterable[object]) -> tuple[HeadMean, ...] | None:
    """All that these methods need of attention together; None if one of them does not say, or needs all heads."""
    together: dict[HeadMean, None] = {}
    for method in methods:
        head_means = getattr(method, "head_means", None)
        if not isinstance(head_means, tuple):  # anybody may write a method
            return None
        together.update(dict.fromkeys(head_means))
    return tuple(together)


class NamedSettings:
    """Base of settings, a dataclass, whose name shows those that are not the defaults."""

    base_name: ClassVar[str]

    def __post_init__(self) -> None:
        """Store NumPy's numbers as Python's, because names and manifests write them out."""
        for name, value in vars(self).items():
            object.__setattr__(self, name, plain_number(value))

    @property
    def name(self) -> str:
        """Name and settings that are not the defaults; it identifies stored results."""
        settings: Any = self
        defaults = {field.name: field.default for field in fields(settings)}
        return name_with_changes(self.base_name, vars(self), defaults)


def name_with_changes(base: str, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """`base` and the values that are not the defaults, for example "agf(signed=True, layer=2)"."""
    changes = []
    for name, default in defaults.items():
        value = values[name]
        if value != default and name not in _NOT_IN_NAMES:
            written = callable_name(value) if callable(value) else repr(value)
            changes.append(f"{name}={written}")
    return f"{base}({', '.join(changes)})" if changes else base


def callable_name(function: object) -> str:
    """A callable in a name, since its repr holds an address in memory."""
    return getattr(function, "__name__", type(function).__name__)
