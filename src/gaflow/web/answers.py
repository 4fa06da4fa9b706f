"""What the API answers, for its OpenAPI document. Results follow the published JSON Schemas (`gaflow.schema`).

The convention this file owns: models here describe answers and never change them; the tests compare both.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, WithJsonSchema

from gaflow.schemas.published import schema
from gaflow.web.work import State


def _published(name: str) -> WithJsonSchema:
    """The published schema as a part of the document."""
    parts = {key: value for key, value in schema(name).items() if not key.startswith("$") and key != "version"}
    return WithJsonSchema(parts)


AttributionJson = Annotated[dict[str, Any], _published("attribution")]
FlowJson = Annotated[dict[str, Any], _published("flow")]
JsonObject = dict[str, Any]


class ProblemJson(BaseModel):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str = Field(description="What is wrong, and what to do")
    argument: str | None = Field(None, description="of the request that is wrong; missing where it is none")


class DrawnMethod(BaseModel):
    """One flow, ready to draw; amounts are millionths of the flow."""

    scores: list[float]
    value: float
    layers: list[list[float]]
    edges: list[list[float]] = Field(description="of each layer i, j, amount, i, j, amount, ..., weakest first")
    ends: list[list[list[float]]] = []
    caption: str


class DrawnUnits(BaseModel):
    """The words or sentences that a long text is drawn by."""

    kind: Literal["word", "sentence"]
    members: list[list[int]] = Field(description="the tokens of each unit")
    names: list[str]
    labels: list[str]
    rows: list[int] = Field(description="how many units each row of the drawing has")
    methods: list[DrawnMethod] = Field(description="the flows between the rows")


class Drawing(BaseModel):
    """What the page draws of a result."""

    names: list[str] = Field(description="of the flows")
    tokens: list[str]
    labels: list[str]
    special: list[int]
    runs: list[list[int]]
    levels: int
    drawn_edges: int
    legends: dict[str, str]
    methods: list[DrawnMethod]
    units: DrawnUnits | None = Field(None, description="missing for short texts")


class Result(BaseModel):
    """An attribution that is kept, and its id."""

    id: str
    attribution: AttributionJson
    drawing: Drawing | None = Field(None, description="missing unless the request had edges")


class Results(BaseModel):
    """The results of several methods, by name."""

    results: dict[str, Result]


class SolvedCapacities(BaseModel):
    """The flow of a network without a text."""

    flow: FlowJson
    certificate: JsonObject


class Prediction(BaseModel):
    """An output that can be explained."""

    target: int | list[int] | str
    label: str
    probability: float | None


class Predictions(BaseModel):
    """Outputs, the most probable first."""

    predictions: list[Prediction]


class Band(BaseModel):
    """Probabilities when tokens are masked in random orders."""

    low: list[float]
    mean: list[float]
    high: list[float]


class MaskingCurve(BaseModel):
    """What the model says as more and more tokens are masked."""

    levels: list[int] = Field(description="percent of the tokens")
    masked: list[int] = Field(description="how many tokens these are")
    tokens: int
    unmasked: float = Field(description="the probability without masking")
    probability: list[float]
    random: list[float]
    prediction: list[str]
    order: list[int] | None = Field(None, description="tokens, first masked first; missing where tokens were joined")
    band: Band | None = Field(None, description="missing without random_orders")


class WithoutAttention(BaseModel):
    """Probabilities of all classes, with all attention and without some of it."""

    labels: list[str]
    before: list[float]
    after: list[float]
    prediction: str
    to_itself: int


class HeadAmounts(BaseModel):
    """Attention times gradient of each head, for each of some edges."""

    edges: list[list[int]] = Field(description="(layer, i, j)")
    amounts: list[list[float]]


class Drawings(BaseModel):
    """The flows of a result between groups of its tokens."""

    methods: list[DrawnMethod]


class CutEdgeJson(BaseModel):
    """An edge of a cut; layer -1 is below the input, and the number of layers is above the output."""

    layer: int
    i: int
    j: int
    capacity: float


class Cut(BaseModel):
    """A minimum cut."""

    value: float
    edges: list[CutEdgeJson]
    share: list[float]
    bottleneck: int
    nearest: Literal["output", "input"]
    unique: bool
    dead: bool


class RouteJson(BaseModel):
    """A route from an input token to the output."""

    tokens: list[int]
    amount: float
    share: float
    narrowest: list[int] | None = Field(description="the edge (layer, i, j) that carries the least")


class RouteList(BaseModel):
    """The widest routes, and how much flow takes others."""

    routes: list[RouteJson]
    rest: float
    value: float


class Ranges(BaseModel):
    """The least and the largest score of each token."""

    low: list[float]
    high: list[float]
    unique: bool


class Difference(BaseModel):
    """Edges on which two flows differ, with their shares of both."""

    layers: int
    edges: list[list[float]] = Field(description="(layer, i, j, share of the first flow, share of the second)")
    nodes: list[list[list[float]]]
    moved: float


class WorkStatus(BaseModel):
    """How far work is."""

    id: str
    state: State
    progress: float = Field(ge=0, le=1)
    problem: ProblemJson | None = Field(None, description="missing unless it failed or was stopped")
    answer: JsonObject | None = Field(None, description="missing until it is done")


class ModelFacts(BaseModel):
    """A model; what follows `waiting` is known while it is loaded."""

    name: str
    loaded: bool
    waiting: int
    class_: str | None = Field(None, alias="class")
    task: str | None = None
    labels: list[str] | None = None
    tokens: int | None = Field(None, description="that it reads at most")


class Models(BaseModel):
    """The models of the server."""

    models: list[ModelFacts]


class MethodFacts(BaseModel):
    """A method, and what its scores mean and cost."""

    name: str
    description: str
    family: str
    signed: bool
    class_specific: bool
    passes: str
    reference: str
    libraries: list[str]
    extra: str
    settings: JsonObject


class Methods(BaseModel):
    """All methods."""

    methods: list[MethodFacts]


class LimitValues(BaseModel):
    """How much the server takes and keeps, by the names of `gaflow.web.Limits`."""

    limits: dict[str, int | float]


class RunFacts(BaseModel):
    """A folder or file that the server was started with."""

    name: str
    kind: Literal["run", "attribution", "files", "unreadable"]
    texts: int | None = None
    finished: bool | None = None
    methods: list[str] | None = None
    model: str | None = None
    problem: str | None = None


class Runs(BaseModel):
    """All of them."""

    runs: list[RunFacts]


class RowJson(BaseModel):
    """A row of a run."""

    row: int
    text: str
    text_pair: str | None
    method: str
    label: str | None
    probability: float | None
    prediction: str | None
    gold_label: str | int | float | bool | None
    error: str | None
    tokens: list[str] | None
    scores: list[float] | None
    offsets: list[list[int]] | None
    segments: list[int] | None
    special_share: float | None
    certificate_error: float | None


class Rows(BaseModel):
    """Rows of a run from `offset` on; `more` if there are others after them."""

    rows: list[RowJson]
    offset: int
    more: bool


class Corpus(BaseModel):
    """Importances of words by class."""

    classes: dict[str, dict[Literal["for", "against"], list[JsonObject]]]
    method: str
    texts: int
    left_out: int


class Health(BaseModel):
    """The server answers."""

    status: Literal["ok"]
    version: str
