"""The settings of flow methods: four small records, and the flat keywords that name all their fields.

`FlowMethod` holds the records: network, solver, peeling (`peeling.py`) and scoring. Users, names
and manifests write them as flat keywords. The convention this file owns: **no two records have a field of the same
name**, and FlowOptions lists the fields in the order in which names and manifests show them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict

from gaflow.arguments import boolean, one_of
from gaflow.errors import Argument, ArgumentError, ArgumentTypeError, UnknownMethodError
from gaflow.flow.barrier.solve import Barrier
from gaflow.flow.information import INFORMATION, Information, af
from gaflow.flow.network import check_terminal_name
from gaflow.flow.result import NodeLayer, check_layer
from gaflow.methods.balanced import GradientKind, check_gradients
from gaflow.methods.flow_nodes import NodeChoice, check_nodes
from gaflow.methods.peeling import Peeling
from gaflow.methods.removal import Replacement

HeadReduction = Literal["mean", "sum"]


@dataclass(frozen=True)
class NetworkSettings:
    """The layered network: its capacities, and where flow enters and leaves it."""

    information: str | Information = "agf"  # a name of INFORMATION, or (attention, gradient) -> (b, l, t, t)
    terminal: float | str | None = None  # of terminal edges; None never binds, the paper's is "tokens": t of each text
    sources: NodeChoice = None  # output tokens that flow comes from: positions, a name of NODES, trace -> (b, t) bool
    targets: NodeChoice = None  # input tokens that flow goes to, likewise; None: all tokens
    heads: HeadReduction = "mean"  # how a named tensor combines the heads
    residual: bool = False  # add the edges of the residual stream
    nodes: bool = False  # limit the flow through nodes
    gradients: GradientKind = "plain"  # or balanced ones, with the half rule ("balanced") or constant attention

    def __post_init__(self) -> None:
        check_gradients(self.gradients)
        object.__setattr__(self, "sources", check_nodes("sources", self.sources))
        object.__setattr__(self, "targets", check_nodes("targets", self.targets))
        self._check_information()
        if isinstance(self.terminal, str):
            check_terminal_name(self.terminal)
        boolean("residual", self.residual)
        boolean("nodes", self.nodes)

    def _check_information(self) -> None:
        one_of("heads", self.heads, ("mean", "sum"))
        if not isinstance(self.information, str):
            if not callable(self.information):
                kind = type(self.information).__name__
                raise ArgumentTypeError(Argument("information"), f" must be a name or a callable, not {kind}")
            if self.heads == "sum":
                raise ArgumentError(
                    Argument("heads", "sum"), " is for named tensors; a callable combines the heads itself"
                )
        elif self.information not in INFORMATION:
            names = ", ".join(INFORMATION)
            raise UnknownMethodError(f"no information tensor {self.information!r}; there are {names}, or a callable")

    @property
    def uses_gradient(self) -> bool:
        """Whether capacities depend on the gradient of `y`. Those of Attention Flow do not."""
        return self.information not in ("af", af) or self.residual or self.nodes


@dataclass(frozen=True)
class BarrierSettings:
    """The barrier problem, and what happens where its solution misses the certificate. `solve` checks the values."""

    epsilon: float = 1e-6  # barrier parameter, relative to the smallest layer sum
    mu: float | None = None  # barrier parameter, absolute; replaces epsilon
    barrier: Barrier = "uniform"  # the paper's; or "capacity"
    throw: bool = True  # raise SolveError where the certificate is missed; False gives the flagged flow


@dataclass(frozen=True)
class ScoringSettings:
    """How scores are read off the flow."""

    signed: bool = False  # subtract the flow of -y
    layer: NodeLayer = 0  # the node layer whose through-flow is the score; "all" for the sum over layers

    def __post_init__(self) -> None:
        boolean("signed", self.signed)
        object.__setattr__(self, "layer", check_layer(self.layer))


class FlowOptions(TypedDict, total=False):
    """The fields of all four records but `information`, in the order in which names and manifests show them."""

    epsilon: float
    mu: float | None
    barrier: Barrier
    terminal: float | str | None
    throw: bool
    sources: NodeChoice
    targets: NodeChoice
    heads: HeadReduction
    residual: bool
    signed: bool
    nodes: bool
    replacement: Replacement
    layer: NodeLayer
    gradients: GradientKind
    rounds: int
    share: float


@dataclass(frozen=True)
class Preset:
    """A named choice of options that goes beyond the paper."""

    description: str
    options: Mapping[str, Any]  # those that differ from the defaults


_RELEVANCE = {
    "information": "knockout",
    "barrier": "capacity",
    "heads": "sum",
    "residual": True,
    "signed": True,
    "gradients": "balanced",
}

# The names are stored with results.
PRESETS = {
    "relevance_flow": Preset(
        "Flow of balanced relevance for and against the output, of a single backward pass (docs/relevance_flow.md).",
        _RELEVANCE,
    ),
    "peeled_flow": Preset(
        "Relevance flow averaged over the text and contexts without its strongest tokens (docs/relevance_flow.md).",
        _RELEVANCE | {"rounds": 5},
    ),
}

RECORDS = {
    "network": NetworkSettings,
    "solver": BarrierSettings,
    "peeling": Peeling,
    "scoring": ScoringSettings,
}
RECORD_OF = {field.name: record for record, kind in RECORDS.items() for field in fields(kind)}  # of each option
_FIELDS = {field.name: field for kind in RECORDS.values() for field in fields(kind)}
_DEFAULTS = {name: _FIELDS[name].default for name in ("information", *FlowOptions.__annotations__)}


def default_options(preset: str | None) -> dict[str, Any]:
    """The value of every option, in order, that a method of this preset has unless it is changed."""
    if preset is None:
        return dict(_DEFAULTS)
    return _DEFAULTS | dict(PRESETS[one_of("preset", preset, PRESETS)].options)
