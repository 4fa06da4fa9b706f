"""Flow methods (paper section 3): information tensor, layered network, barrier solution, through-flow of the
input.

The score of token `j` is the through-flow of input node `j`, which is the flow on its terminal edge; the
scores of a text sum to its flow value. So do those of any other node layer; summed over all layers they are the
Shapley values of a sum of games, and sum to the flow value times the number of node layers. Names `af`, `gf` and
`agf` always mean the paper's definition.

What goes beyond the paper, each by itself and in any combination:

- heads: the sum over heads instead of the mean, which is in units of `y`, as residual edges are
- residual: the edge `i -> i` of layer `l` gains `relu(<dy/ds_i, h_i>)`, where `s = h + attention` is the residual sum
- signed: the through-flow of the network of `-y` (all gradients turned round) is taken off
- steps: gradients are averages along paths from absent tokens to the text, straight, or in groups by drawn or ranked
  orders (`path.py`)
- nodes: node `i` of the layers 0 to l-1 lets no more through than `relu(<dy/dh_i, h_i>)`: it becomes two nodes with an
  edge of this capacity between them

A flow stays the unique solution of one barrier problem, its scores scale as `y` does, and every layer's sum to the flow
value (signed: to the difference of the two).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from gaflow.errors import GaflowError, UnknownMethodError, UnsupportedModelError
from gaflow.flow.barrier.solve import Barrier, solve
from gaflow.flow.information import INFORMATION, Information, af, by_layer, split_nodes, token_information
from gaflow.flow.result import Flow, NodeLayer, check_layer, layer_scores
from gaflow.methods.base import AGAINST, MethodInfo, Scores, full_name
from gaflow.methods.flow_nodes import Chosen, check_nodes, nodes_of
from gaflow.methods.paths import Paths, along_path
from gaflow.methods.token_removal import check_batch_size, check_replacement
from gaflow.models.attention_tensors import stack_layers
from gaflow.models.cost import MethodCost
from gaflow.models.tracing import Trace

__all__ = ["FlowMethod", "PathFlow", "SignedFlow"]


@dataclass(frozen=True)
class FlowMethod:
    """Generalized Attention Flow with one information tensor."""

    called: ClassVar[str] = ""  # the name of a choice of options
    information: str | Information = "agf"  # a name of INFORMATION, or (attention, gradient) -> (b, l, t, t)
    epsilon: float = 1e-6  # barrier parameter, relative to the smallest layer sum
    mu: float | None = None  # barrier parameter, absolute; replaces epsilon
    barrier: Barrier = "uniform"  # the paper's; or "capacity"
    terminal: float | None = None  # capacity of terminal edges; None never binds, the paper's is t
    throw: bool = True  # raise SolveError where the certificate is missed; False gives the flagged flow
    sources: Chosen = (
        None  # output tokens that flow comes from: positions, a name of NODES, trace -> (b, t) bool, or all
    )
    targets: Chosen = None  # input tokens that flow goes to, likewise
    heads: Literal["mean", "sum"] = field(default="mean", kw_only=True)  # how a named tensor puts heads together
    residual: bool = field(default=False, kw_only=True)  # edges of the residual stream
    signed: bool = field(default=False, kw_only=True)  # take off the flow of -y
    nodes: bool = field(default=False, kw_only=True)  # capacities of nodes
    steps: int | None = field(default=None, kw_only=True)  # of each leg of a path; None: gradients at the text itself
    groups: int = field(default=1, kw_only=True)  # of tokens that come in one after the other on a path; 1: straight
    orders: int = field(default=0, kw_only=True)  # drawn for the groups, each walked from both ends
    ranked: int = field(default=0, kw_only=True)  # times that the groups come in by rank, likewise
    seed: int = field(default=0, kw_only=True)  # other seeds draw others
    replacement: str | int | None = field(default=None, kw_only=True)  # absent tokens of the path, as in ig
    batch_size: int | None = field(default=None, kw_only=True)  # points in one pass; None: as many as fit
    layer: NodeLayer = 0  # the node layer whose through-flow are the scores; "all" for their sum

    def __post_init__(self) -> None:
        for name in ("sources", "targets"):
            object.__setattr__(self, name, check_nodes(getattr(self, name), name))
        object.__setattr__(self, "layer", check_layer(self.layer))
        if isinstance(self.information, str):
            if self.information not in INFORMATION:
                known = ", ".join(INFORMATION)
                raise UnknownMethodError(
                    f"no information tensor {self.information!r}; there are {known}, or a callable"
                )
        elif not callable(self.information):
            raise TypeError(f"information must be a name or a callable, not {type(self.information).__name__}")
        self._check_options()

    def _check_options(self) -> None:
        if self.heads not in ("mean", "sum"):
            raise ValueError(f'heads must be "mean" or "sum", not {self.heads!r}')
        if self.heads == "sum" and not isinstance(self.information, str):
            raise ValueError('heads="sum" is for named tensors; a callable puts the heads together itself')
        for name in ("residual", "signed", "nodes"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, not {getattr(self, name)!r}")
        if self.signed and self.information in ("af", af) and not self.residual and not self.nodes:
            raise ValueError("signed needs a gradient: the attention of y and of -y is the same, so that all cancels")
        _ = self.paths
        check_replacement(self.replacement)
        check_batch_size(self.batch_size)

    @property
    def paths(self) -> Paths | None:
        """The paths that are walked, if any; what is no path is refused."""
        found = Paths(1 if self.steps is None else self.steps, self.groups, self.orders, self.ranked, self.seed)
        if self.steps is None and self.groups > 1:
            raise ValueError(f"groups={self.groups} is for paths; say how many steps each leg of them has")
        return None if self.steps is None else found

    @property
    def name(self) -> str:
        """The method's own name or its information tensor's, followed by the settings that are not the defaults."""
        if self.called:
            return full_name(self.called, self, leave_out=("throw", "batch_size"))
        given = self.information
        base = given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)
        return full_name(base, self, leave_out=("information", "throw", "batch_size"))

    @property
    def cost(self) -> MethodCost:
        """What it does with a trace, as far as memory depends on it."""
        paths, rows = self.paths, self.batch_size
        return MethodCost(paths.together if paths else 0, rows, networks=1 + self.signed, layers=1 + self.nodes)

    @property
    def needs(self) -> tuple[str, ...]:
        """What a trace shows only when it is asked to."""
        return ("residual",) if self.residual else ()

    @property
    def info(self) -> MethodInfo:
        """Only Attention Flow does without the gradient, which shows what the head reads; callables may do anything."""
        attention_only = self.information in ("af", af) and not (
            callable(self.sources) or callable(self.targets) or self.residual or self.nodes
        )
        forward = attention_only and "head" not in (self.sources, self.targets)
        passes = "1 forward" if forward else "1 forward, 1 backward"
        if paths := self.paths:
            asked = 1 + paths.passes
            passes = f"{asked} forward, {asked} backward"
        by = "gaflow, after " if self.called else ""
        return MethodInfo("flow", self.signed, not attention_only, passes, f"{by}Azarkhalili and Libbrecht 2025, ACL")

    def __call__(self, trace: Trace) -> Scores:
        """Scores and flows of a traced batch."""
        paths = self.paths
        seen = along_path(trace, paths, self.replacement, self.batch_size) if paths else trace
        flow = self._flow(seen)
        if not self.signed:
            return Scores(layer_scores(flow.through(), self.layer), flow)
        against = self._flow(_turned(seen))
        found = Scores(flow.target, flow, _facts(against), against)
        return replace(found, values=layer_scores(flow.through() - against.through(), self.layer))

    def capacities(self, trace: Trace) -> Tensor:
        """The network that is solved, (b, l, t, t); with node capacities (b, 2 l, t, t) as `split_nodes` makes it.

        A path-averaged method's network is that of the trace which `along_path` gives.
        """
        found = self._information(trace)
        real = trace.mask[:, None]
        if self.residual:
            if not trace.stream:
                raise GaflowError("residual edges need the residual sums; trace the model with residual=True")
            found = found + torch.diag_embed(self._own(trace.stream, trace.stream_gradient, real)).to(found)
        if self.nodes:
            layers = found.shape[1]
            found = split_nodes(found, self._own(trace.hidden[:layers], trace.hidden_gradient[:layers], real))
        return found.detach()

    def _flow(self, trace: Trace) -> Flow:
        capacities, mask = self.capacities(trace), trace.mask
        if capacities.device.type == "mps":  # no float64 there
            capacities, mask = capacities.cpu(), mask.cpu()
        flow = solve(
            capacities,
            epsilon=self.epsilon,
            mu=self.mu,
            barrier=self.barrier,
            terminal=self.terminal,
            mask=mask,
            sources=nodes_of(self.sources, trace, "sources"),
            targets=nodes_of(self.targets, trace, "targets"),
            throw=self.throw,
        )
        if not self.nodes:
            return flow
        # the capacities of edges alone, without those of nodes, would tell of other cuts
        return replace(flow, edges=flow.edges[:, 1::2], capacity=None)

    def _own(self, states: Sequence[Tensor], gradients: Sequence[Tensor | None], real: Tensor) -> Tensor:
        """The tokens' own information (b, l, t), 0 at padding."""
        known = [g for g in gradients if g is not None]
        if not known or len(known) < len(states) or any(h.shape[:2] != real.shape[::2] for h in states):
            raise UnsupportedModelError(
                f"{self.name!r} needs a hidden state of every token that each block reads, and its gradient, which "
                "this model does not hand out; leave out nodes"
            )
        found = token_information(states, known).masked_fill(~real, 0)
        if not bool(torch.isfinite(found).all()):
            raise GaflowError(f"capacities of {self.name!r} are not finite; a model in half precision may need float32")
        return found

    def _information(self, trace: Trace) -> Tensor:
        """The information tensor (b, l, t, t), checked to be one."""
        if isinstance(self.information, str):
            found: Any = by_layer(INFORMATION[self.information], trace.attentions, trace.gradients)
            if self.heads == "sum":
                found = found * trace.attentions[0].shape[1]
        else:
            found = self._ask(self.information, trace)
        (b, _, t, _), layers = trace.attentions[0].shape, len(trace.attentions)
        if not isinstance(found, Tensor):
            raise TypeError(f"information {self.name!r} returned {type(found).__name__}, not a tensor (b, l, t, t)")
        if tuple(found.shape) != (b, layers, t, t):
            raise ValueError(
                f"information {self.name!r} returned shape {tuple(found.shape)}; "
                f"(b, l, t, t) = {(b, layers, t, t)} is needed: reduce over heads only"
            )
        if not isinstance(self.information, str):  # e.g. 0 / 0 in the rows of padding
            real = trace.mask
            found = found.masked_fill(~(real[:, None, :, None] & real[:, None, None, :]), 0)
        if not bool(torch.isfinite(found).all()):
            raise GaflowError(f"information {self.name!r} is not finite; a model in half precision may need float32")
        if bool((found < 0).any()):
            raise ValueError(f"information {self.name!r} is negative in places; capacities must be >= 0 (use relu)")
        return found

    def _ask(self, function: Information, trace: Trace) -> Any:
        """The user's own tensor, of all layers; what it is given must not be written to, as that of others."""
        attention, gradient = (
            stack_layers(trace.attentions),
            stack_layers(trace.gradients),
        )  # not kept: a solve needs the memory
        before = attention._version, gradient._version
        found = function(attention, gradient)
        if (attention._version, gradient._version) != before:
            raise ValueError(f"information {self.name!r} changed its arguments in place; use relu, not relu_")
        return found


@dataclass(frozen=True)
class SignedFlow(FlowMethod):
    """Flow for and against the output, of a single backward pass (docs/path_flow.md)."""

    called: ClassVar[str] = "signed_flow"
    information: str | Information = "agf_net"
    barrier: Barrier = "capacity"
    layer: NodeLayer = "all"
    heads: Literal["mean", "sum"] = field(default="sum", kw_only=True)
    residual: bool = field(default=True, kw_only=True)
    signed: bool = field(default=True, kw_only=True)


@dataclass(frozen=True)
class PathFlow(SignedFlow):
    """Flow for and against the output along ranked paths, with node capacities (docs/path_flow.md)."""

    called: ClassVar[str] = "path_flow"
    information: str | Information = "agf"
    layer: NodeLayer = 0
    nodes: bool = field(default=True, kw_only=True)
    steps: int | None = field(default=4, kw_only=True)
    groups: int = field(default=4, kw_only=True)
    ranked: int = field(default=3, kw_only=True)


def _turned(trace: Trace) -> Trace:
    """The same trace for `-y`."""
    return replace(
        trace,
        gradients=tuple(-g for g in trace.gradients),
        hidden_gradient=tuple(None if g is None else -g for g in trace.hidden_gradient),
        stream_gradient=tuple(-g for g in trace.stream_gradient),
    )


def _facts(against: Flow) -> tuple[dict[str, float | str], ...]:
    """What is known of the flow that was taken off."""
    known: list[dict[str, float | str]] = [{AGAINST: float(v)} for v in against.value]
    for item in (~against.converged).nonzero().flatten().tolist():
        known[item]["warning"] = "the flow of -y did not converge"
    return tuple(known)
