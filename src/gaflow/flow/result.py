"""A solved flow, how good it is, and the scores of its nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from numbers import Integral
from typing import Any, Literal, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from gaflow.errors import Argument, ArgumentError
from gaflow.flow.arguments import ArrayLike
from gaflow.flow.network import LayeredNetwork, Terminal
from gaflow.flow.records import take_items

NodeLayer = int | Literal["all"]  # a node layer, 0 or -l-1 is the input and l or -1 the output; or the sum over them

LARGEST_ERROR = 1e-6  # of a converged flow, relative to its value; solvers stop far below it

VALUE_AGAINST = "value_against"  # the diagnostic of signed scores that holds the value of the subtracted flow

Array = TypeVar("Array", Tensor, np.ndarray)


@dataclass(frozen=True)
class Certificate:
    """How good the flow of one network is.

    A flow that satisfies all optimality conditions of eq. 12 exactly would show 0 in the first three.
    """

    conservation: float  # largest node imbalance, relative to the flow value
    dual: float  # error of an edge's flow because s = z - v does not hold, relative to the flow value
    centrality: float  # error of an edge's flow because f z = mu and (u - f) v = mu do not hold, likewise
    gap: float  # cut - value: how far the flow value can be from the maximum flow
    cut: float  # an upper bound of every flow: the capacity of the (fractional) cut the potentials describe
    kappa: float  # the smallest layer sum of capacities
    mu: float  # barrier parameter, absolute
    epsilon: float  # barrier parameter, relative: mu = epsilon * kappa / (2 m)
    edges: int  # m, live edges, terminals and return edge included
    negligible: int  # positive capacities that were dropped, below 1e-100 of the largest
    gamma: float  # capacities were int(gamma u), as in Algorithms 1 and 2; 0: not these integers
    clamped: bool  # gamma is smaller than the algorithms print it, for int64 to hold all capacities together
    dead: bool  # no path from source to target: all flows are 0
    iterations: int  # factorisations used
    seconds: float  # wall-clock time of the solve that held this network
    converged: bool

    def check_possible(self) -> None:
        """Refuse a certificate that no solver gives, as files of strangers may hold one: ValueError."""
        for name in ("cut", "kappa", "mu", "epsilon", "gamma", "seconds"):
            amount = getattr(self, name)
            if amount < 0 or (self.converged and not amount < math.inf):
                raise ValueError(f"certificate.{name} is {amount}, not a finite number from 0 on")
        if not self.converged:
            return
        rounding = LARGEST_ERROR * self.cut
        if not -rounding <= self.gap <= self.cut + rounding:
            raise ValueError(f"certificate.gap is {self.gap}, not between 0 and the cut, {self.cut}")
        for name in ("conservation", "dual", "centrality"):
            if not 0 <= getattr(self, name) <= LARGEST_ERROR:
                raise ValueError(f"certificate.{name} is {getattr(self, name)}, yet certificate.converged is true")

    def combine(self, other: Certificate) -> Certificate:
        """The certificate of scores that are the difference of two flows."""
        both = Certificate.worst((self, other), (1.0, 1.0))
        iterations = self.iterations + other.iterations
        seconds = self.seconds + other.seconds
        return replace(both, iterations=iterations, seconds=seconds)

    @classmethod
    def worst(cls, certificates: Sequence[Certificate], weights: Sequence[float]) -> Certificate:
        """The worst of several certificates; amounts of flow add up as flows of these weights do."""
        merged: dict[str, Any] = {}
        for field in fields(cls):
            values = [getattr(certificate, field.name) for certificate in certificates]
            if field.name in ("converged", "dead", "gamma"):
                merged[field.name] = min(values)
            elif field.name in ("edges", "negligible"):
                merged[field.name] = sum(values)
            elif field.name in ("gap", "cut", "kappa"):
                amounts = [weight * value for weight, value in zip(weights, values, strict=True)]
                merged[field.name] = math.fsum(amounts)
            else:
                merged[field.name] = max(values)
        return cls(**merged)

    def to_dict(self) -> dict[str, float | int | bool]:
        """The fields by name, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class BatchCertificate:
    """The certificates of a batch of flows: the fields of `Certificate`, each a tensor (b,)."""

    conservation: Tensor
    dual: Tensor
    centrality: Tensor
    gap: Tensor
    cut: Tensor
    kappa: Tensor
    mu: Tensor
    epsilon: Tensor
    edges: Tensor
    negligible: Tensor
    gamma: Tensor
    clamped: Tensor
    dead: Tensor
    iterations: Tensor
    seconds: Tensor
    converged: Tensor

    @classmethod
    def start(cls, network: LayeredNetwork, value: Tensor, cut: Tensor) -> BatchCertificate:
        """The certificate of flows without errors; a solver replaces the fields that it has more to say of."""
        zero = torch.zeros_like(value)
        return cls(
            conservation=zero,
            dual=zero,
            centrality=zero,
            gap=(cut - value).clamp_min(0),  # below 0 by rounding only
            cut=cut,
            kappa=network.kappa,
            mu=zero,
            epsilon=zero,
            edges=network.edges,
            negligible=network.negligible,
            gamma=zero,
            clamped=torch.zeros_like(network.dead),
            dead=network.dead,
            iterations=torch.zeros_like(network.edges),
            seconds=zero,
            converged=torch.ones_like(network.dead),
        )

    def __getitem__(self, item: int) -> Certificate:
        """The certificate of one flow, in plain numbers."""
        one = {name: values[item].unsqueeze(0) for name, values in vars(self).items()}
        return BatchCertificate(**one).to_list()[0]

    def to_list(self) -> list[Certificate]:
        """The certificate of each flow, in plain numbers. A GPU is waited for once."""
        tensors = vars(self)
        rows = torch.stack(list(tensors.values()), 1).tolist()  # of float64, which holds all numbers of edges exactly
        certificates = []
        for row in rows:
            numbers: dict[str, Any] = {}
            for (name, values), number in zip(tensors.items(), row, strict=True):
                numbers[name] = number if values.is_floating_point() else int(number)
                if values.dtype == torch.bool:
                    numbers[name] = bool(number)
            certificates.append(Certificate(**numbers))
        return certificates

    def to_dict(self) -> dict[str, list]:
        """The fields by name as lists, ready for JSON."""
        return {name: values.tolist() for name, values in vars(self).items()}


@dataclass(frozen=True)
class Potentials:
    """The dual solution `y` of eq. 8 or eq. 12: one number for each node.

    The reduced cost of an edge is `s = c + y_tail - y_head`, with cost `c = -1` on the return edge and 0 elsewhere, as
    `B y + s = c` in the paper. The super-target has 0 and the super-source -1, or a little less because of the barrier.
    An edge whose reduced cost is positive should be empty, and one whose reduced cost is negative should be full.
    """

    nodes: Tensor  # (b, l+1, t) row 0 are the input tokens; 0 at dead nodes
    source: Tensor  # (b,) super-source
    target: Tensor  # (b,) super-target, 0


@dataclass(frozen=True)
class NodeFlows:
    """What scores are made of: all of a batch of flows but their edges, which take far more memory."""

    through: Tensor  # (b, l+1, t) of every node; row 0 are the input tokens
    value: Tensor  # (b,)
    converged: Tensor  # (b,) bool
    certificate: BatchCertificate


@dataclass(frozen=True, repr=False)
class Flow:
    """The flow on every edge of a batch of layered networks."""

    edges: Tensor  # (b, l, t, t) from node i of layer l+1 to node j of layer l
    source: Tensor  # (b, t) super-source -> output nodes
    target: Tensor  # (b, t) input nodes -> super-target: the token scores
    value: Tensor  # (b,)
    mu: Tensor  # (b,) barrier parameter, absolute; 0 for a plain maximum flow
    converged: Tensor  # (b,) bool
    certificate: BatchCertificate
    capacity: Tensor | None = None  # (b, l, t, t) live capacities that it was solved on; None: not known
    potentials: Potentials | None = None  # None: read from a file, or of a network with node capacities
    barrier: str | None = None  # "uniform" or "capacity"; None: a plain maximum flow, or not known
    terminal: Terminal = None  # of `solve`: what the capacity of terminal edges was

    def __repr__(self) -> str:
        values = [f"{value:.4g}" for value in self.value[:3].tolist()]
        if len(self.value) > 3:
            values.append("...")
        failed = int((~self.converged).sum())
        state = f"{failed} NOT CONVERGED" if failed else "converged"
        return f"Flow(value {', '.join(values)}; edges {tuple(self.edges.shape)}; {state})"

    @property
    def dual_value(self) -> Tensor:
        """The value of the dual problem of eq. 8, (b,): no flow is larger, so `value` is at most `gap` from optimal."""
        return self.value + self.certificate.gap  # the cut, but never below the value by rounding

    def through(self) -> Tensor:
        """Through-flow of every node, (b, l+1, t); row 0 are the input tokens, each row sums to the flow value."""
        return torch.cat([self.target[:, None], self.edges.sum(-1)], 1)

    def node_flows(self) -> NodeFlows:
        """The same flows without their edges."""
        return NodeFlows(self.through(), self.value, self.converged, self.certificate)

    def check_possible(self) -> None:
        """Refuse a flow whose parts contradict each other, as files of strangers may hold one: ValueError."""
        for item, value in enumerate(self.value.tolist()):
            self.certificate[item].check_possible()
            arriving = self.target[item].sum().item()
            if self.converged[item] and abs(arriving - value) > LARGEST_ERROR * value:
                raise ValueError(f"flow.value is {value}, but flow.target sums to {arriving}")
            if value == 0 and self.edges[item].any():
                raise ValueError("flow.value is 0, but flow.edges carry flow")

    def __getitem__(self, item: int) -> Flow:
        """Item `item` as a batch of one."""
        count = len(self.value)
        if not -count <= item < count:
            raise IndexError(f"item {item} of a batch of {count} flows")
        index = item % count
        one = slice(index, index + 1)
        certificate = take_items(self.certificate, one)
        potentials = None if self.potentials is None else take_items(self.potentials, one)
        return take_items(self, one, certificate=certificate, potentials=potentials)


def capacities_of(information: ArrayLike | Flow) -> ArrayLike:
    """The edge capacities of a flow, which chosen sources and targets have pruned already; a tensor as it is."""
    if not isinstance(information, Flow):
        return information
    if information.capacity is None:
        raise ArgumentError(
            Argument("information"),
            " is a flow that does not know its capacities: it had node capacities, and no cut is one of edges alone, "
            "or comes from an older file; use a method without nodes, such as agf, or give the information tensor",
        )
    return information.capacity


def check_layer(layer: object) -> NodeLayer:
    """`layer` as a plain number or "all"; refuses values that name no layer of any network."""
    if isinstance(layer, str) and layer == "all":
        return "all"
    if isinstance(layer, bool) or not isinstance(layer, Integral):
        raise ArgumentError(
            Argument("layer"), f' must be the number of a node layer (0 is the input) or "all", not {layer!r}'
        )
    return int(layer)


def layer_scores(through: Array, layer: NodeLayer) -> Array:
    """The through-flow (..., t) of one node layer, or the sum over all, from that of every layer (..., l+1, t)."""
    layer = check_layer(layer)
    if layer == "all":
        return cast(Array, through.sum(-2))
    check_layer_exists(layer, through.shape[-2])
    return through[..., layer, :]


def check_layer_exists(layer: int, count: int) -> None:
    """Refuse a node layer beyond the `count` that a network has."""
    if not -count <= layer < count:
        raise ArgumentError(
            Argument("layer", layer), f" does not exist: the node layers are 0 (input) to {count - 1} (output)"
        )
