"""The result: what each token of a text contributed to the explained output.

The conventions this file owns: scores are float64 arrays over all tokens, special ones included; offsets
count characters of the original text (or pair, as `segments` says) and are (0, 0) for special tokens that stand in
neither; a word's score is the sum of its tokens' scores. Arrays are read-only, and two attributions are equal when
everything in them is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from gaflow.attribution.files import read, write
from gaflow.attribution.parts import STORED_NAMES, from_tensors_and_json, to_tensors_and_json
from gaflow.attribution.words import TextUnit, pieces_of, sentences_of, words_of
from gaflow.errors import GaflowError, MissingExtraError
from gaflow.flow.result import BatchCertificate, Certificate, Flow, NodeLayer, layer_scores
from gaflow.inputs.media import Media
from gaflow.inputs.segmentation import Span
from gaflow.methods.flow_nodes import name_at_layer
from gaflow.tasks.targets import ResolvedTarget

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from gaflow.flow.maxflow.min_cut import MinCut
    from gaflow.flow.routes import Route

__all__ = ["Attribution", "TextUnit", "load"]

_NOT_PLAIN = ("flow", "flow_against", "certificate", "media")  # fields that `to_dict` leaves out or puts in other words


@dataclass(frozen=True, eq=False, repr=False)
class Attribution:
    """Token scores of one text under one method, with all that is needed to read, check and store them."""

    text: str
    text_pair: str | None  # the second text, for models that read two
    tokens: tuple[str, ...]  # (t,) as the tokenizer shows them
    scores: np.ndarray  # (t,) float64
    offsets: tuple[Span, ...]  # (t,) (start, end)
    segments: tuple[int, ...]  # (t,) 0: from text, 1: from pair, -1: special, masks included
    method: str
    target: (
        ResolvedTarget  # class index, or (a, b) for the contrast a minus b; "place=what" where a place is asked about
    )
    label: str  # of the target
    probability: float | None  # of the target; of a among the two for a contrast; None for regression
    output: float  # y, the explained logit or sum of logits
    prediction: str  # label of the largest logit
    truncated: bool = False  # the model read only the beginning of the text
    layers: np.ndarray | None = None  # (l+1, t) float64 through-flow (less that against), row 0 the input
    flow: Flow | None = None  # batch of one, real tokens only; flow methods only
    certificate: Certificate | None = None  # plain numbers, the worst of both flows if there are two; flow methods only
    diagnostics: Mapping[str, float | str] = field(default_factory=dict)  # what else the method knows, e.g. its error
    output_kind: str = ""  # what `output` is, in words, if it is no logit or difference of two
    read_positions: tuple[int, ...] = ()  # output tokens that y is read from; none where the head reads the whole input
    media: Media | None = None  # what was seen or heard in place of a text; then `text` is what to call it
    flow_against: Flow | None = None  # as `flow`, of the network of -y, which is taken off; signed flow methods only

    def __post_init__(self) -> None:
        for name in ("scores", "layers"):
            value = getattr(self, name)
            if value is not None:
                array = np.array(value, dtype=np.float64)
                array.setflags(write=False)
                object.__setattr__(self, name, array)
        t = len(self.tokens)
        if self.scores.shape != (t,) or not np.isfinite(self.scores).all():
            raise ValueError(f"scores must be {t} finite numbers, one per token")
        if len(self.offsets) != t or len(self.segments) != t:
            raise ValueError(f"offsets and segments must have one entry for each of the {t} tokens")
        if self.layers is not None and (self.layers.ndim != 2 or self.layers.shape[1] != t):
            raise ValueError(f"layers have shape {self.layers.shape}, not (l+1, {t})")
        object.__setattr__(
            self, "diagnostics", {str(k): v if isinstance(v, str) else float(v) for k, v in self.diagnostics.items()}
        )

    @property
    def output_name(self) -> str:
        """What `output` is, in words: "logit", "difference of logits", "start + end logit" ..."""
        return self.output_kind or ("difference of logits" if isinstance(self.target, tuple) else "logit")

    @property
    def special_mask(self) -> np.ndarray:
        """(t,) bool: tokens that the tokenizer added, such as [CLS]."""
        return np.array([s < 0 for s in self.segments])

    def words(self) -> list[TextUnit]:
        """The words of the text, in order: every ordinary token is in exactly one, special tokens in none."""
        return words_of(self)

    def sentences(self) -> list[TextUnit]:
        """The sentences of the text, in order, as far as the model has read: each ordinary token is in exactly one."""
        return sentences_of(self)

    def pieces(self) -> list[TextUnit]:
        """The ordinary tokens, each as the piece of text it stands for (empty for a whitespace token)."""
        return pieces_of(self)

    def top(self, k: int = 5, *, words: bool = True) -> list[TextUnit]:
        """The `k` words (or tokens, with `words=False`) of largest score, without special tokens."""
        if k < 0:
            raise ValueError(f"k must be >= 0, not {k}")
        return sorted(self.words() if words else self.pieces(), key=lambda w: -w.score)[:k]

    def at_layer(self, layer: NodeLayer) -> Attribution:
        """The same with the through-flow of node layer `layer` (0 the input, -1 the output) as scores.

        "all" sums over the node layers, so that the scores sum to their number times the value of the flow, less that
        of the flow against if there is one.
        """
        if self.layers is None:
            raise GaflowError(f"method {self.method!r} has no flow through layers; flow methods such as agf do")
        return replace(self, scores=layer_scores(self.layers, layer), method=name_at_layer(self.method, layer))

    def normalized(self, *, special: bool = True) -> np.ndarray:
        """Scores (t,) for display: divided by the largest absolute score, within [-1, 1]; zeros if all are.

        `special=False` sets special tokens to 0 first, since they often hold most of the flow.
        """
        scores = self.scores if special else np.where(self.special_mask, 0.0, self.scores)
        largest = np.abs(scores).max(initial=0.0)
        return scores / largest if largest > 0 else np.zeros_like(scores)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the edge flows and pictures or sounds, as plain JSON values."""
        plain = {
            STORED_NAMES.get(f.name, f.name): getattr(self, f.name) for f in fields(self) if f.name not in _NOT_PLAIN
        }
        plain["special_mask"] = self.special_mask
        plain["certificate"] = None if self.certificate is None else self.certificate.to_dict()
        plain["words"] = [{f.name: getattr(w, f.name) for f in fields(w)} for w in self.words()]
        return _plain(plain)

    def to_pandas(self, *, words: bool = False) -> pd.DataFrame:
        """One row per token, or per word."""
        pandas = _need("pandas", "gaflow[data]")
        if words:
            return pandas.DataFrame([{f.name: getattr(w, f.name) for f in fields(w)} for w in self.words()])
        starts, ends = zip(*self.offsets, strict=True)
        columns = {"token": self.tokens, "score": self.scores, "start": starts, "end": ends}
        return pandas.DataFrame({**columns, "segment": self.segments, "special": self.special_mask})

    def to_shap(self) -> Any:
        """A `shap.Explanation` over the tokens.

        Its base value is the output without any ordinary token where the method knows it, else 0 (flow scores sum to
        the flow, less that against if there is one).
        """
        shap = _need("shap", "shap")
        base = self.diagnostics.get("baseline_output", 0.0)
        return shap.Explanation(
            values=self.scores.copy(), base_values=base, data=np.array(self.tokens), output_names=[self.label]
        )

    def to_captum(self, true_label: str | None = None) -> Any:
        """A `captum.attr.visualization.VisualizationDataRecord`; `true_label` is what the text should be."""
        visualization = _need("captum.attr._utils.visualization", "gaflow[baselines]")
        gap = 0.0 if self.certificate is None else self.certificate.gap
        return visualization.VisualizationDataRecord(
            self.normalized(),
            self.output if self.probability is None else self.probability,
            self.prediction,
            true_label or "",
            self.label,
            float(self.scores.sum()),
            list(self.tokens),
            self.diagnostics.get("convergence_delta", gap),
        )

    def to_html(self, path: str | Path | None = None, *, words: bool = False, sentences: bool = False) -> str:
        """A self-contained page, also written to `path` if given; colours tokens, or whole `words` or `sentences`.

        `gaflow.html.page` puts several attributions side by side.
        """
        from gaflow.html import page

        return page(self, path, words=words, sentences=sentences)

    def to_flow_html(self, path: str | Path | None = None, *, edges: int = 1800) -> str:
        """A self-contained page on which each token shows where its flow goes; also written to `path` if given.

        Flow methods only; the strongest `edges` are kept. `gaflow.html.flow_page` takes several methods to switch.
        """
        from gaflow.html import flow_page

        return flow_page(self, path, edges=edges)

    def plot(self, *, words: bool = False, top: int | None = None) -> Figure:
        """A figure of the scores: the tokens (or words) as a heat strip, and a bar for each, or for the `top` ones.

        Of a picture, its patches shaded; of a sound, its frames over time. Like all figures it is saved by its
        `savefig`, as svg, pdf or png, and shown by notebooks.
        """
        from gaflow.plots import bars, seen

        return bars(self, words=words, top=top) if self.media is None else seen(self)

    def plot_layers(self) -> Figure:
        """A figure of the flow through every token of every node layer; `gaflow.plots.layers` shows several."""
        from gaflow.plots import layers

        return layers(self)

    def plot_flow(
        self,
        *,
        edges: int = 400,
        routes: int | Iterable[Route] = 3,
        cut: MinCut | bool | None = None,
        terminals: bool = False,
    ) -> Figure:
        """A diagram of the flow: the strongest `edges`, the widest `routes`, the edges of the minimum cut.

        `gaflow.plots.flow_diagram` draws flows without an attribution, and says what the rest means.
        """
        from gaflow.plots import flow_diagram

        return flow_diagram(self, edges=edges, routes=routes, cut=cut, terminals=terminals)

    def _repr_html_(self) -> str:
        from gaflow.html import fragment

        return fragment(self)

    def save(self, path: str | Path) -> None:
        """Write everything to one file, for `gaflow.load`: JSON if its name ends in .json, otherwise safetensors.

        An existing file is replaced only once all is written.
        """
        write(path, *to_tensors_and_json(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Attribution):
            return NotImplemented
        return all(_same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        words = sorted(self.words(), key=lambda word: -abs(word.score))[:3]
        shown = ", ".join(f"{w.text!r} {w.score:.3g}" for w in words)
        chance = "" if self.probability is None else f" ({self.probability:.1%})"
        return f"Attribution({self.method}, {self.label!r}{chance}, {len(self.tokens)} tokens, top: {shown})"


def load(path: str | Path) -> Attribution:
    """Read what `Attribution.save` wrote; anything else is refused."""
    tensors, about = read(path)
    try:
        return Attribution(**from_tensors_and_json(about, tensors))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise GaflowError(f"{path} is damaged: {error}") from error


def _need(module: str, install: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise MissingExtraError(f"cannot import {package} ({error}); run: pip install '{install}'") from error


def _plain(value: Any) -> Any:
    """JSON has no tuples, arrays or infinities."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return np.array_equal(a.numpy(force=True), b.numpy(force=True), equal_nan=a.is_floating_point())
    if isinstance(a, Flow | BatchCertificate | Certificate) and type(a) is type(b):
        return all(_same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and a == b
