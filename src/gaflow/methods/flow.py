"""Flow methods (paper section 3): information tensor, layered network, barrier solution, through-flow of the
input.

The score of token `j` is the through-flow of input node `j`, which is the flow on its terminal edge; the
scores of a text sum to its flow value. So do those of any other node layer; summed over all layers they are the
Shapley values of a sum of games, and sum to the flow value times the number of node layers. Names `af`, `gf` and
`agf` always mean the paper's definition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gaflow.errors import GaflowError, UnknownMethodError
from gaflow.information import INFORMATION, Information, af
from gaflow.methods.nodes import Chosen, Layer, check_layer, check_nodes, layer_scores, nodes_of
from gaflow.methods.scores import About, Scores, full_name
from gaflow.solvers.barrier import Barrier, solve
from gaflow.tracing import Trace

__all__ = ["FlowMethod"]


@dataclass(frozen=True)
class FlowMethod:
    """Generalized Attention Flow with one information tensor."""

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
    layer: Layer = 0  # the node layer whose through-flow are the scores; "all" for their sum

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

    @property
    def name(self) -> str:
        """The information tensor's name, followed by the settings that are not the defaults."""
        given = self.information
        base = given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)
        return full_name(base, self, leave_out=("information", "throw"))

    @property
    def about(self) -> About:
        """Only Attention Flow does without the gradient, which shows what the head reads; callables may do anything."""
        attention_only = self.information in ("af", af) and not callable(self.sources) and not callable(self.targets)
        forward = attention_only and "head" not in (self.sources, self.targets)
        passes = "1 forward" if forward else "1 forward, 1 backward"
        return About("flow", False, not attention_only, passes, "Azarkhalili and Libbrecht 2025, ACL")

    def __call__(self, trace: Trace) -> Scores:
        """Scores and flows of a traced batch."""
        mask = trace.mask
        information = self._capacities(trace)
        if information.device.type == "mps":  # no float64 there
            information, mask = information.cpu(), mask.cpu()
        flow = solve(
            information,
            epsilon=self.epsilon,
            mu=self.mu,
            barrier=self.barrier,
            terminal=self.terminal,
            mask=mask,
            sources=nodes_of(self.sources, trace, "sources"),
            targets=nodes_of(self.targets, trace, "targets"),
            throw=self.throw,
        )
        return Scores(layer_scores(flow.through(), self.layer), flow)

    def _capacities(self, trace: Trace) -> Tensor:
        """The information tensor (b, l, t, t), checked to be one."""
        if isinstance(self.information, str):
            found: Any = INFORMATION[self.information](trace.attention, trace.gradient)
        else:
            found = self._ask(self.information, trace)
        b, layers, _, t, _ = trace.attention.shape
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
        return found.detach()

    def _ask(self, function: Information, trace: Trace) -> Any:
        """The user's own tensor; other methods share the trace, so it must not be written to."""
        before = trace.attention._version, trace.gradient._version
        found = function(trace.attention, trace.gradient)
        if (trace.attention._version, trace.gradient._version) != before:
            raise ValueError(f"information {self.name!r} changed its arguments in place; use relu, not relu_")
        return found
