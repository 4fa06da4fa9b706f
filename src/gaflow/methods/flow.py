"""Flow methods (paper section 3): information tensor, layered network, barrier solution, through-flow of the
input.

The score of token `j` is the through-flow of input node `j`, which is the flow on its terminal edge; the
scores of a text sum to its flow value. So do those of any other node layer; summed over all layers they sum to the flow
value times the number of node layers. Names `af`, `gf` and
`agf` always mean the paper's definition.

What goes beyond the paper, each by itself and in any combination:

- heads: the sum over heads instead of the mean, which is in units of `y`, as residual edges are
- residual: the edge `i -> i` of layer `l` gains `relu(<dy/ds_i, h_i>)`, where `s = h + attention` is the residual sum
- signed: the through-flow of the network of `-y` (all gradients negated) is subtracted
- nodes: node `i` of the layers 0 to l-1 lets no more through than `relu(<dy/dh_i, h_i>)`: it becomes two nodes with an
  edge of this capacity between them
- gradients: balanced ones, of a model that is linear around the text (`balanced.py`)
- rounds: signed edges are averages over contexts without the strongest tokens (`peeling.py`)

A flow stays the unique solution of one barrier problem, its scores scale as `y` does, and every layer's sum to the flow
value (signed: to the difference of the two).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from inspect import getdoc
from typing import Any, Unpack

import torch
from torch import Tensor

from gaflow.arguments import checked, plain_number
from gaflow.errors import Argument, ArgumentError, ArgumentTypeError, GaflowError, UnsupportedModelError
from gaflow.flow.arguments import Nodes, as_nodes
from gaflow.flow.barrier.solve import LogBarrier, default_terminal, solve_network
from gaflow.flow.barrier.state import lean_min_tokens
from gaflow.flow.information import (
    INFORMATION,
    SIGNED_INFORMATION,
    Information,
    is_mean_over_heads,
    signed_token_information,
    split_nodes,
)
from gaflow.flow.network import LayeredNetwork
from gaflow.flow.records import take_items
from gaflow.flow.result import VALUE_AGAINST, Flow, NodeFlows, layer_scores
from gaflow.methods.balanced import with_gradients
from gaflow.methods.base import Diagnostics, MethodInfo, Scores, callable_name, name_with_changes
from gaflow.methods.flow_nodes import NodeChoice, nodes_of
from gaflow.methods.flow_settings import (
    PRESETS,
    RECORD_OF,
    RECORDS,
    BarrierSettings,
    FlowOptions,
    NetworkSettings,
    ScoringSettings,
    default_options,
)
from gaflow.methods.peeling import Peeling, SignedNetwork, input_relevance, peel
from gaflow.models.attention_tensors import stack_layers
from gaflow.models.cost import MethodCost
from gaflow.models.streamed_attention import HeadMean
from gaflow.models.tracing import Trace

LEFT_TO_BIASES = "left_to_biases"  # the diagnostic of balanced gradients: the output less its sum over input tokens


@dataclass(frozen=True, init=False)
class FlowMethod:
    """Generalized Attention Flow with one information tensor.

    All options (`flow_settings.py`) are flat keywords, and can be read and replaced by the same names. A `preset` sets
    other defaults, and gives the method its name.

        signed = gaflow.FlowMethod("agf", signed=True, layer="all")
        quick = dataclasses.replace(gaflow.METHODS["peeled_flow"], rounds=3)
    """

    preset: str | None  # a name of PRESETS; None: the paper's method, named after its information tensor
    network: NetworkSettings
    solver: BarrierSettings
    peeling: Peeling
    scoring: ScoringSettings

    @checked
    def __init__(
        self,
        information: str | Information | None = None,
        *,
        preset: str | None = None,
        network: NetworkSettings | None = None,
        solver: BarrierSettings | None = None,
        peeling: Peeling | None = None,
        scoring: ScoringSettings | None = None,
        **options: Unpack[FlowOptions],
    ) -> None:
        """Build the records. Options take precedence over records, and records over the preset's defaults."""
        values = default_options(preset)
        for record in (network, solver, peeling, scoring):
            if record is not None:
                values.update(vars(record))
        values.update(options)
        if information is not None:
            values["information"] = information
        for name in values:
            if name not in RECORD_OF:
                raise ArgumentTypeError(
                    Argument(name), f" is no option of flow methods; they are {', '.join(RECORD_OF)}"
                )
        object.__setattr__(self, "preset", preset)
        for record_name, kind in RECORDS.items():
            record_values = {field.name: plain_number(values[field.name]) for field in fields(kind)}
            object.__setattr__(self, record_name, kind(**record_values))
        if self.scoring.signed and not self.network.uses_gradient:
            raise ArgumentError(
                Argument("signed"), " needs a gradient: the attention of y and of -y is the same, so all scores cancel"
            )
        if self.peeling.rounds > 1 and not self._has_signed_network:
            names = " or ".join(SIGNED_INFORMATION)
            raise ArgumentError(
                Argument("rounds", self.peeling.rounds),
                f" averages signed edges: it needs the information tensor {names} and no node capacities",
            )

    def __getattr__(self, name: str) -> Any:
        """An option by its flat name: `method.rounds` is `method.peeling.rounds`."""
        if name not in RECORD_OF:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(getattr(self, RECORD_OF[name]), name)

    @property
    def options(self) -> dict[str, Any]:
        """All options by their flat names, in the order of names and manifests."""
        values = {}
        for name in default_options(self.preset):
            values[name] = getattr(getattr(self, RECORD_OF[name]), name)
        return values

    @property
    def name(self) -> str:
        """The preset or the information tensor, followed by the options that are not the defaults."""
        return self._name

    @cached_property
    def _name(self) -> str:
        defaults = default_options(self.preset)
        if self.preset is not None:
            return name_with_changes(self.preset, self.options, defaults)
        del defaults["information"]
        information = self.network.information
        base = information if isinstance(information, str) else callable_name(information)
        return name_with_changes(base, self.options, defaults)

    @property
    def description(self) -> str:
        """One sentence about the preset or the information tensor."""
        if self.preset is not None:
            return PRESETS[self.preset].description
        information = self.network.information
        documented = INFORMATION[information] if isinstance(information, str) else information
        return (getdoc(documented) or "").partition("\n")[0]

    @property
    def _has_signed_network(self) -> bool:
        """Whether both flows of a signed method are those of one signed network."""
        return self.network.information in SIGNED_INFORMATION and not self.network.nodes

    @property
    def _solves_together(self) -> bool:
        """Whether the networks for and against the output are solved as one batch."""
        return self._has_signed_network and (self.network.gradients != "plain" or self.peeling.rounds > 1)

    @property
    def cost(self) -> MethodCost:
        """What the method does with a trace, as far as memory depends on it."""
        signed = self.scoring.signed
        networks = 2 if signed else 1
        layers = 2 if self.network.nodes else 1  # a node with a capacity is an edge of a layer of its own
        means = self.head_means or ()
        return MethodCost(
            peels=self.peeling.rounds > 1,
            networks=networks,
            layers=layers,
            together=self._solves_together and signed,
            means=len(means),
        )

    @property
    def needs(self) -> tuple[str, ...]:
        """What a trace shows only on request."""
        return ("residual",) if self.network.residual else ()

    @property
    def head_means(self) -> tuple[HeadMean, ...] | None:
        """All that the method needs of attention; None if it needs all heads, as a tensor of a user's may."""
        tensor = self.network.information
        if not isinstance(tensor, str):
            function = tensor if is_mean_over_heads(tensor) else None
        elif tensor in SIGNED_INFORMATION:
            return (HeadMean(SIGNED_INFORMATION[tensor]),)
        else:
            function = INFORMATION[tensor]
        if function is None:
            return None
        if self.scoring.signed:
            return HeadMean(function), HeadMean(function, -1)
        return (HeadMean(function),)

    @property
    def info(self) -> MethodInfo:
        """Only Attention Flow needs no gradient. Callables may read it, and the rows of the head are found by it."""
        sources = self.network.sources
        targets = self.network.targets
        class_specific = self.network.uses_gradient or callable(sources) or callable(targets)
        if self.peeling.rounds > 1:
            passes = f"{self.peeling.rounds} forward, {self.peeling.rounds} backward"
        elif class_specific or "head" in (sources, targets):
            passes = "1 forward, 1 backward"
        else:
            passes = "1 forward"
        reference = "Azarkhalili and Libbrecht 2025, ACL"
        return MethodInfo(
            family="flow",
            signed=self.scoring.signed,
            class_specific=class_specific,
            passes=passes,
            reference=reference if self.preset is None else f"gaflow, after {reference}",
        )

    def __call__(self, trace: Trace) -> Scores:
        """Scores and flows of a traced batch."""
        trace = with_gradients(trace, self.network.gradients)
        sides = []
        flows: list[Flow | None] = []
        for flow in self._flows(trace):
            sides.append(flow.node_flows())
            flows.append(flow if trace.keeps_flow else None)
            del flow  # the next one needs the memory
        through = sides[0].through
        diagnostics: list[Diagnostics] = [{} for _ in sides[0].value]
        if self.scoring.signed:
            through = through - sides[1].through
            _add_flow_against(diagnostics, sides[1])
        if self.network.gradients != "plain":
            _add_biases(diagnostics, trace)
        return Scores(
            values=layer_scores(through, self.scoring.layer),
            flow=flows[0],
            diagnostics=tuple(diagnostics),
            flow_against=flows[1] if self.scoring.signed else None,
            layer=self.scoring.layer,
            node_flows=tuple(sides),
        )

    def capacities(self, trace: Trace, sign: int = 1) -> Tensor:
        """The network that is solved, (b, l, t, t); with node capacities (b, 2 l, t, t) as `split_nodes` makes it.

        For balanced gradients, give a trace of them (`with_gradients`). With sign -1, the network is that of `-y`.
        """
        if self._solves_together:
            return self._checked_capacities(self._signed_network(trace).capacities(sign))
        capacities = self._information(trace, sign)
        if self.network.residual:
            residual = sign * self._residual(trace)
            capacities = capacities + torch.diag_embed(residual.relu()).to(capacities)
        if self.network.nodes:
            layers = capacities.shape[1]
            nodes = sign * self._token_information(trace, trace.hidden[:layers], trace.hidden_gradient[:layers])
            capacities = split_nodes(capacities, nodes.relu())
        return self._checked_capacities(capacities)

    def _checked_capacities(self, capacities: Tensor) -> Tensor:
        if not bool(torch.isfinite(capacities).all()):
            raise GaflowError(f"capacities of {self.name!r} are not finite; a model in half precision may need float32")
        return capacities.detach()

    def _flows(self, trace: Trace) -> Iterator[Flow]:
        """The flow for the output and, of a signed method, the one against it."""
        signs = (1, -1) if self.scoring.signed else (1,)
        if not self._solves_together:
            for sign in signs:
                yield self._solve(self.capacities(trace, sign), trace)
            return
        texts, tokens = trace.mask.shape
        if len(signs) == 1 or tokens >= lean_min_tokens(trace.mask.device.type):  # then memory decides
            averaged = self._signed_network(trace) if self.peeling.rounds > 1 else None
            for sign in signs:
                yield self._solve(self._capacities_of_sign(trace, averaged, sign), trace)
            return
        network = self._signed_network(trace)
        capacities = torch.cat([network.capacities(sign) for sign in signs])
        both = self._solve(self._checked_capacities(capacities), trace, copies=2)
        yield _half(both, slice(0, texts))
        yield _half(both, slice(texts, None))

    def _capacities_of_sign(self, trace: Trace, averaged: SignedNetwork | None, sign: int) -> Tensor:
        """One of the two networks; that of a single context is quickly made again, and not kept for the other."""
        network = self._signed_network(trace) if averaged is None else averaged
        return self._checked_capacities(network.capacities(sign))

    def _signed_network(self, trace: Trace) -> SignedNetwork:
        """The network whose positive part speaks for the output, averaged over the contexts of all rounds."""
        return peel(trace, self.peeling, self._signed_network_of)

    def _signed_network_of(self, trace: Trace) -> SignedNetwork:
        """The signed network of one trace."""
        edges = trace.head_means(HeadMean(SIGNED_INFORMATION[str(self.network.information)]))
        if self.network.heads == "sum":
            edges = edges * trace.heads
        residual = self._residual(trace) if self.network.residual else torch.zeros_like(edges[..., 0])
        return SignedNetwork(edges, residual.to(edges))

    def _residual(self, trace: Trace) -> Tensor:
        """What the residual stream carries of each token, (b, l, t)."""
        if not trace.stream:
            raise GaflowError(
                "residual edges need the residual sums; trace the model with ", Argument("residual", True)
            )
        return self._token_information(trace, trace.stream, trace.stream_gradient)

    def _solve(self, capacities: Tensor, trace: Trace, copies: int = 1) -> Flow:
        """The flows of networks of the traced texts, of `copies` networks each, one after the other."""
        mask = torch.cat([trace.mask] * copies)
        if capacities.device.type == "mps":  # no float64 there
            capacities = capacities.cpu()
            mask = mask.cpu()
        terminal = self.network.terminal
        if terminal is None:
            terminal = default_terminal(self.solver.barrier)
        network = LayeredNetwork.build(
            capacities,
            terminal,
            mask,
            _nodes(self.network.sources, trace, "sources", copies),
            _nodes(self.network.targets, trace, "targets", copies),
        )
        del capacities  # long texts need the memory
        solver = LogBarrier(epsilon=self.solver.epsilon, mu=self.solver.mu, barrier=self.solver.barrier)
        flow = solve_network(network, solver, terminal, throw=self.solver.throw)
        if not self.network.nodes:
            return flow
        # the capacities of edges alone, without those of nodes, would describe other cuts; nodes have two potentials
        return replace(flow, edges=flow.edges[:, 1::2], capacity=None, potentials=None)

    def _token_information(self, trace: Trace, states: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> Tensor:
        """`<gradient, state>` of every token (b, l, t), 0 at padding."""
        available = [g for g in gradients if g is not None]
        complete = 0 < len(states) <= len(available)
        if not complete or any(h.shape[:2] != trace.mask.shape for h in states):
            raise UnsupportedModelError(
                f"{self.name!r} needs a hidden state of every token that each block reads, and its gradient, which "
                "this model does not return; leave out ",
                Argument("nodes"),
            )
        return signed_token_information(states, available).masked_fill(~trace.mask[:, None], 0)

    def _information(self, trace: Trace, sign: int) -> Tensor:
        """The information tensor (b, l, t, t) of `y` or `-y`, checked."""
        tensor = self.network.information
        if not isinstance(tensor, str) and trace.layer_means is None:
            information = self._call_information(tensor, trace, sign)
        elif tensor in SIGNED_INFORMATION:
            signed = trace.head_means(HeadMean(SIGNED_INFORMATION[str(tensor)]))
            information = (sign * signed).relu()
        else:
            function = INFORMATION[tensor] if isinstance(tensor, str) else tensor
            information = trace.head_means(HeadMean(function, sign))
        if self.network.heads == "sum":
            information = information * trace.heads
        if not isinstance(tensor, str) and bool((information < 0).any()):
            raise ArgumentError(
                Argument("information"), f" {self.name!r} is negative in places; capacities must be >= 0 (use relu)"
            )
        return information

    def _call_information(self, function: Information, trace: Trace, sign: int) -> Tensor:
        """The tensor of a user's function. It must not write to its arguments, which other methods use as well."""
        attention = stack_layers(trace.attentions)  # not stored: the solver needs the memory
        gradient = stack_layers(trace.gradients).mul_(sign)
        versions = attention._version, gradient._version
        information: object = function(attention, gradient)
        argument = Argument("information")
        if (attention._version, gradient._version) != versions:
            raise ArgumentError(argument, f" {self.name!r} changed its arguments in place; use relu, not relu_")
        if not isinstance(information, Tensor):
            kind = type(information).__name__
            raise ArgumentTypeError(argument, f" {self.name!r} returned {kind}, not a tensor (b, l, t, t)")
        b, layers, _, t, _ = attention.shape
        if tuple(information.shape) != (b, layers, t, t):
            raise ArgumentError(
                argument,
                f" {self.name!r} returned shape {tuple(information.shape)}; "
                f"(b, l, t, t) = {(b, layers, t, t)} is needed: reduce over heads only",
            )
        real = trace.mask[:, None, :, None] & trace.mask[:, None, None, :]
        return information.masked_fill(~real, 0)  # rows of padding may hold 0 / 0


def _nodes(choice: NodeChoice, trace: Trace, name: str, copies: int) -> Nodes:
    """The chosen tokens of every network."""
    nodes = nodes_of(choice, trace, name)
    if nodes is None or copies == 1:
        return nodes
    return as_nodes(nodes, trace.mask, name).repeat(copies, 1)


def _half(flow: Flow, items: slice) -> Flow:
    """The flows for or against the output of all texts; both took half of the time."""
    certificate = take_items(flow.certificate, items)
    certificate = replace(certificate, seconds=certificate.seconds / 2)
    potentials = None if flow.potentials is None else take_items(flow.potentials, items)
    return take_items(flow, items, certificate=certificate, potentials=potentials)


def _add_flow_against(diagnostics: list[Diagnostics], flow_against: NodeFlows) -> None:
    """Add the value of the subtracted flow of each text, and a warning where it did not converge."""
    for item, value in enumerate(flow_against.value.tolist()):
        diagnostics[item][VALUE_AGAINST] = value
    for item in (~flow_against.converged).nonzero().flatten().tolist():
        diagnostics[item]["warning"] = "the flow of -y did not converge"


def _add_biases(diagnostics: list[Diagnostics], trace: Trace) -> None:
    """Add what of the output reaches no token, since biases and constant parts of softmaxes take it."""
    try:
        relevance = input_relevance(trace)
    except UnsupportedModelError:  # a model without hidden states
        return
    outputs = trace.output.double().tolist()
    for item, total in enumerate(relevance.double().sum(1).tolist()):
        diagnostics[item][LEFT_TO_BIASES] = outputs[item] - total
