"""The result: how much each token of a text contributed to the explained output.

The conventions this file owns: scores are float64 arrays over all tokens, special ones included. Offsets count
characters of the original text (or pair, as `segments` says) and are (0, 0) for special tokens that stand in neither. A
word's score is the sum of its tokens' scores. Arrays are read-only, and two attributions are equal when everything that
is stored of them is, whatever model they come from: the provenance is not compared.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gaflow.arguments import checked, whole_number
from gaflow.attribution import editing, exchange, export
from gaflow.attribution.files import read, to_tensors_and_json, write
from gaflow.attribution.layer_names import name_at_layer
from gaflow.attribution.matches import check_matches, matches_of
from gaflow.attribution.words import TextUnit, pieces_of, sentences_of, words_of
from gaflow.errors import Argument, ArgumentError, GaflowError, visible
from gaflow.flow.result import Certificate, Flow, NodeLayer, check_layer, layer_scores
from gaflow.inputs.media import Media
from gaflow.inputs.segmentation import Span
from gaflow.tasks.targets import ResolvedTarget

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gaflow.flow.maxflow.min_cut import MinCut
    from gaflow.flow.routes import Route


@dataclass(frozen=True, eq=False, repr=False)
class Attribution:
    """The token scores of one text by one method, with all that is needed to read, check and store them.

    >>> attribution = explainer("although this dog is not cute, it is very smart.")
    >>> attribution.label, attribution.top(3)
    """

    text: str
    text_pair: str | None  # the second text, for models that read two
    tokens: tuple[str, ...]  # (t,) as the tokenizer shows them
    scores: np.ndarray  # (t,) float64
    offsets: tuple[Span, ...]  # (t,) (start, end)
    segments: tuple[int, ...]  # (t,) 0: from text, 1: from pair, -1: special, masks included
    method: str
    target: ResolvedTarget  # class, (a, b) for a minus b, (a, -1) for a minus the rest, or "position=output"
    label: str  # of the target
    probability: float | None  # of the target; of a among the two for a contrast; None for regression
    output: float  # y, the explained logit or sum of logits
    prediction: str  # label of the largest logit
    truncated: bool = False  # the model read only the beginning of the text
    layers: np.ndarray | None = None  # (l+1, t) float64 through-flow (minus that of `flow_against`), row 0 the input
    flow: Flow | None = None  # batch of one, real tokens only; flow methods only
    certificate: Certificate | None = None  # the worst of both flows if there are two; flow methods only
    diagnostics: Mapping[str, float | str] = field(default_factory=dict)  # of the method, e.g. its error
    output_kind: str = ""  # what `output` is, in words, if it is no logit or difference of two
    read_positions: tuple[int, ...] = ()  # output tokens that y is read from; none if the head reads the whole input
    media: Media | None = None  # a picture or a sound in place of a text; then `text` is its name
    flow_against: Flow | None = None  # of the network of -y, which is subtracted; signed flow methods only
    layer: NodeLayer | None = None  # whose through-flow the scores are, "all" for the sum; flow methods only
    origin: Mapping[str, Any] | Callable[[], Mapping[str, Any]] = field(default_factory=dict)  # of `provenance`
    token_matches: np.ndarray | None = None  # (n, m) what tokens of text and pair add to their similarity together

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", _read_only(self.scores))
        if self.layers is not None:
            object.__setattr__(self, "layers", _read_only(self.layers))
        if self.token_matches is not None:
            object.__setattr__(self, "token_matches", _read_only(self.token_matches))
        diagnostics = {}
        for name, value in self.diagnostics.items():
            diagnostics[str(name)] = value if isinstance(value, str) else float(value)
        object.__setattr__(self, "diagnostics", diagnostics)
        t = len(self.tokens)
        if self.scores.shape != (t,) or not np.isfinite(self.scores).all():
            raise ArgumentError(Argument("scores"), f" must be {t} finite numbers, one per token")
        if len(self.offsets) != t or len(self.segments) != t:
            raise ArgumentError(
                Argument("offsets"), " and ", Argument("segments"), f" must have one entry for each of the {t} tokens"
            )
        if self.layers is not None and self.layers.shape[1:] != (t,):
            raise ArgumentError(Argument("layers"), f" must have the shape (l+1, {t}), not {self.layers.shape}")
        check_matches(self)

    @property
    def output_name(self) -> str:
        """What `output` is, in words: "logit", "difference of logits", "start + end logit" ..."""
        if self.output_kind:
            return self.output_kind
        return "difference of logits" if isinstance(self.target, tuple) else "logit"

    @property
    def special_mask(self) -> np.ndarray:
        """(t,) bool: tokens that the tokenizer added, such as [CLS]."""
        return np.array(self.segments) < 0

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the scores come from: model, revision, hashes, dtype, device, versions, and the method's settings.

        The first use hashes the weights, once for each model. An explainer that goes before its attributions hashes
        them too. If the model has changed since the explanation, the hashes are None and `note` says why. The dict is
        empty for attributions that other libraries or old versions made.
        """
        described = self.origin() if callable(self.origin) else self.origin
        provenance = copy.deepcopy(dict(described))
        settings = provenance.get("settings")
        if isinstance(settings, dict) and "layer" in settings and self.layer is not None:
            settings["layer"] = self.layer  # of `at_layer`
            provenance["method"] = self.method
        return provenance

    words = words_of
    sentences = sentences_of
    pieces = pieces_of
    edit = editing.edit
    to_dict = export.to_dict
    to_pandas = export.to_pandas
    to_shap = export.to_shap
    to_captum = export.to_captum
    to_inseq = exchange.to_inseq
    to_graph = exchange.to_graph
    highlighted = exchange.highlighted
    as_list = exchange.as_list
    save = write
    matches = matches_of

    @classmethod
    @checked
    def from_shap(cls, explanation: object, text: str | None = None, *, method: str = "shap") -> Attribution:
        """The attribution that a `shap.Explanation` of one text and one output is.

        Pass the `text` that was explained, and tokens are found in it. Without it, the text is put together from the
        tokens. The output is the base value plus the sum of the scores.

            gaflow.Attribution.from_shap(explanation[0, :, "positive"])
        """
        return cls(**exchange.fields_from_shap(explanation, text, method))

    @classmethod
    @checked
    def from_captum(cls, record: object, text: str | None = None, *, method: str = "captum") -> Attribution:
        """The attribution that a Captum `VisualizationDataRecord` is; scores are the word attributions of the record.

        Pass the `text` that was explained, and tokens are found in it. Without it, the text is put together from the
        tokens.
        """
        return cls(**exchange.fields_from_captum(record, text, method))

    @checked
    def top(self, k: int = 5, *, words: bool = True) -> list[TextUnit]:
        """The `k` words (or tokens, with `words=False`) of largest score, without special tokens."""
        whole_number("k", k, least=0)
        units = words_of(self) if words else pieces_of(self)
        return sorted(units, key=lambda unit: -unit.score)[:k]

    @checked
    def at_layer(self, layer: NodeLayer) -> Attribution:
        """The same attribution with the through-flow of node layer `layer` (0 the input, -1 the output) as scores.

        "all" sums over the node layers. The scores then sum to the value of the flow (minus that of the flow against)
        times the number of layers.
        """
        if self.layers is None:
            raise GaflowError(f"method {self.method!r} has no flow through layers; flow methods such as agf do")
        return replace(
            self,
            scores=layer_scores(self.layers, layer),
            method=name_at_layer(self.method, layer),
            layer=check_layer(layer),
        )

    @checked
    def normalized(self, *, special: bool = True) -> np.ndarray:
        """Scores (t,) for display: divided by the largest absolute score, within [-1, 1]; zeros if all are.

        `special=False` sets special tokens to 0 first, since they often hold most of the flow.
        """
        scores = self.scores if special else np.where(self.special_mask, 0.0, self.scores)
        largest = np.abs(scores).max(initial=0.0)
        if largest == 0:
            return np.zeros_like(scores)
        return scores / largest

    @checked
    def to_html(self, path: str | Path | None = None, *, words: bool = False, sentences: bool = False) -> str:
        """A self-contained page, also written to `path` if given; colours tokens, or whole `words` or `sentences`.

        `gaflow.html.page` puts several attributions side by side.
        """
        from gaflow.html import page

        return page(self, path, words=words, sentences=sentences)

    @checked
    def to_flow_html(self, path: str | Path | None = None, *, edges: int = 1800) -> str:
        """A self-contained page on which each token shows where its flow goes; also written to `path` if given.

        Flow methods only; the strongest `edges` are drawn. `gaflow.html.flow_page` takes several methods to switch.
        """
        from gaflow.html import flow_page

        return flow_page(self, path, edges=edges)

    @checked
    def plot(self, *, words: bool = False, sentences: bool = False, top: int | None = None) -> Figure:
        """A figure of the scores: the tokens as a heat strip, and a bar for each, or for the `top` ones.

        `words` or `sentences` draws these instead of tokens.

        Of a picture, its patches shaded; of a sound, its frames over time. Save a figure by its `savefig`, as svg, pdf
        or png; notebooks show it.
        """
        from gaflow.plots import bars, media

        if self.media is not None:
            return media(self)
        return bars(self, words=words, sentences=sentences, top=top)

    def plot_layers(self) -> Figure:
        """A figure of the flow through every token of every node layer; `gaflow.plots.layers` shows several."""
        from gaflow.plots import layers

        return layers(self)

    def plot_matches(self) -> Figure:
        """A heat map of the word matches of a similarity: a row for each word of the text, a column for the pair's."""
        from gaflow.plots import matches

        return matches(self)

    @checked
    def plot_flow(
        self,
        *,
        edges: int = 400,
        routes: int | Iterable[Route] = 3,
        cut: MinCut | bool | None = None,
        terminals: bool = False,
    ) -> Figure:
        """A diagram of the flow: the strongest `edges`, the widest `routes`, the edges of the minimum cut.

        `gaflow.plots.flow_diagram` draws flows without an attribution, and explains the other arguments.
        """
        from gaflow.plots import flow_diagram

        return flow_diagram(self, edges=edges, routes=routes, cut=cut, terminals=terminals)

    def _repr_html_(self) -> str:
        from gaflow.html import fragment

        return fragment(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Attribution):
            return NotImplemented
        tensors, values = to_tensors_and_json(self)
        other_tensors, other_values = to_tensors_and_json(other)
        if tensors.keys() != other_tensors.keys():
            return False
        for name, tensor in tensors.items():
            if not np.array_equal(tensor, other_tensors[name], equal_nan=True):
                return False
        return json.dumps(values, sort_keys=True) == json.dumps(other_values, sort_keys=True)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        largest = sorted(self.words(), key=lambda word: -abs(word.score))[:3]
        top = ", ".join(f"{word.text!r} {word.score:.3g}" for word in largest)
        probability = "" if self.probability is None else f" ({self.probability:.1%})"
        method = visible(self.method)
        return f"Attribution({method}, {self.label!r}{probability}, {len(self.tokens)} tokens, top: {top})"


@checked
def load(path: str | Path) -> Attribution:
    """Read an attribution that `Attribution.save` wrote; any other file is a DataError that says what is wrong with it.

    >>> explainer("a very smart dog").save("dog.safetensors")
    >>> gaflow.load("dog.safetensors").words()
    """
    return Attribution(**read(path))


def _read_only(values: np.ndarray) -> np.ndarray:
    """A float64 copy that cannot be written to."""
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array
