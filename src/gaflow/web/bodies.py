"""What requests may hold. Names are those of Python; the limits of values are checked by the library itself."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Whole = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]
TargetPart = Annotated[str, Field(max_length=1000)] | Whole
Label = TargetPart | Annotated[list[TargetPart], Field(min_length=2, max_length=2)] | None
Positions = list[Whole] | None


class Body(BaseModel):
    """A JSON object; keys that it does not know are errors, so that a typing mistake is noticed."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class TextBody(Body):
    """A text, or two, and the model that reads it."""

    text: str
    text_pair: str | None = None
    model: str | None = Field(None, description="One of /models; the first if there is none here.")
    truncation: bool = False
    windows: bool = False

    @property
    def input(self) -> str | tuple[str, str]:
        """The text as explainers take it."""
        return self.text if self.text_pair is None else (self.text, self.text_pair)


class PredictionsBody(TextBody):
    """Which outputs can be explained."""

    count: Annotated[int, Field(ge=1, le=100)] = 5


class TargetBody(TextBody):
    """A text and the output that is explained."""

    target: Label = None
    edges: Annotated[int, Field(ge=0, le=3600)] = Field(
        0, description="If not 0, the answer has a drawing with so many of the strongest edges of each flow."
    )

    @property
    def parsed_target(self) -> Any:
        """The target as explainers take it."""
        return tuple(self.target) if isinstance(self.target, list) else self.target


class ExplainBody(TargetBody):
    """One text by one method."""

    method: str | None = Field(None, description="One of /methods; the default method if there is none here.")


class CompareBody(TargetBody):
    """One text by several methods, from a single trace."""

    methods: Annotated[list[str], Field(min_length=1)]


class SolveBody(Body):
    """A network to change and solve again: that of a kept result, or capacities."""

    id: str | None = Field(None, description="Of an answer of /explain, /compare or /solve.")
    capacities: list[list[list[Number]]] | None = Field(None, description="(l, t, t), in place of an id.")
    cut_edges: list[tuple[Whole, Whole, Whole]] = Field([], description="(layer, i, j) as in gaflow.edit")
    cut_nodes: list[tuple[Whole, Whole]] = Field([], description="(node layer, token)")
    skip_layers: list[Whole] = []
    widen: list[tuple[Whole, Whole, Whole, Number]] = Field([], description="(layer, i, j, factor)")
    sources: Positions = None
    targets: Positions = None
    groups: Literal["word", "sentence"] | list[list[Whole]] | None = None
    group_names: list[Annotated[str, Field(max_length=200)]] = Field(
        [], description="Of the first groups of a list, in place of their text."
    )
    epsilon: Number | None = None
    barrier: Literal["uniform", "capacity"] | None = None
    edges: Annotated[int, Field(ge=0, le=3600)] = 0

    def edits(self) -> dict[str, Any]:
        """The changes as `gaflow.edit` takes them."""
        widen = {}
        for layer, i, j, factor in self.widen:
            widen[layer, i, j] = factor
        return {
            "cut_edges": self.cut_edges,
            "cut_nodes": self.cut_nodes,
            "skip_layers": self.skip_layers,
            "widen": widen,
            "sources": self.sources,
            "targets": self.targets,
            "groups": self.groups,
            "epsilon": self.epsilon,
            "barrier": self.barrier,
        }


class FlowBody(Body):
    """A flow of a kept result."""

    id: str
    against: bool = Field(False, description="The flow against the output, of a signed method.")


class DrawingBody(Body):
    """Groups of tokens to draw a kept result by, such as opened rows of a long text."""

    id: str
    groups: list[list[Whole]] = Field(description="as in gaflow.edit; each other token is by itself")
    edges: Annotated[int, Field(ge=1, le=3600)] = 600


class CutBody(FlowBody):
    """Which minimum cut."""

    nearest: Literal["output", "input"] = "output"


class RoutesBody(FlowBody):
    """How many routes."""

    k: Annotated[int, Field(ge=0, le=1000)] = 10


class RangesBody(FlowBody):
    """Of which node layer."""

    layer: Whole = 0


class MaskBody(Body):
    """Tokens to mask, from the strongest score down, and the model's answers."""

    id: str
    levels: Annotated[list[Annotated[int, Field(ge=1, le=100)]], Field(min_length=1, max_length=100)] = [
        10, 20, 30, 40, 50, 60, 70, 80, 90,
    ]  # fmt: skip
    replacement: Literal["pad", "mask", "unk", "delete"] = "pad"
    random_orders: Annotated[int, Field(ge=0, le=100)] = Field(
        0, description="Mask in so many random orders too, and answer the band that they lie in."
    )


class RemoveBody(Body):
    """Attention to remove from the model itself, to compare with the answer of the changed network."""

    id: str
    cut_edges: list[tuple[Whole, Whole, Whole]] = Field([], description="(layer, query, key), in all heads")
    cut_nodes: list[tuple[Whole, Whole]] = Field([], description="(node layer, token)")
    skip_layers: list[Whole] = []
    cut_heads: list[tuple[Whole, Whole]] = Field([], description="(layer, head)")
    replacement: Literal["pad", "mask", "zero", "renormalise"] = "zero"


class HeadsBody(Body):
    """Edges whose heads are told apart."""

    id: str
    edges: Annotated[list[tuple[Whole, Whole, Whole]], Field(min_length=1, max_length=3600)]


class ExportBody(Body):
    """A result, and the kind of file."""

    id: str
    kind: Literal["html", "flow", "svg", "json", "graph", "safetensors"]


class DifferenceBody(Body):
    """Two results with networks of the same layers, and which tokens belong together."""

    first: str
    second: str
    pairs: Annotated[list[tuple[Whole, Whole]], Field(min_length=1, max_length=4096)] = Field(
        description="(token of the first, token of the second), in order"
    )
    edges: Annotated[int, Field(ge=1, le=3600)] = 400
