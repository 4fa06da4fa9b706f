"""The similarity of two texts that an encoder reads one by one.

With the embeddings `a` and `b` of the two texts, the explained scalar is

    "cosine"   y = <a, b> / (|a| |b|)
    "dot"      y = <a, b>

A target is one of these names; None is the measure that the model was made for. Each text is explained with the other
one fixed: its logits are its embedding, and their weights in `y` are the other's. A product of two factors belongs to
both alike, so each text gets half:

    y = 1/2 y(a, b fixed) + 1/2 y(b, a fixed).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from gaflow.errors import Argument, ArgumentTypeError
from gaflow.inputs.encoding import Encoding, join_pair
from gaflow.inputs.transformers_types import PretrainedModel
from gaflow.tasks.input_reader import InputReader
from gaflow.tasks.targets import ExplainedOutput, Head, LogitTerm, logits_on_host, target_error

MEASURES = {"cosine": "cosine similarity", "dot": "dot product"}
_LOGITS_ROW = {"dot": 0, "cosine": 1}  # of the embedding, and of the same divided by its norm


@dataclass(frozen=True)
class Partner:
    """The other text of a pair, as the target of the first."""

    measure: str  # a name of MEASURES
    embedding: Tensor  # (d,) float64 on the host; divided by its norm for the cosine


@dataclass(frozen=True)
class SimilarityHead(Head[str, str | Partner]):
    """The similarity of an embedding to a given one."""

    measure: str  # what is explained unless a target names another
    pooling: str  # how the embeddings are made, in words
    labels: tuple[str, ...] = ()

    def parse(self, target: object) -> str:
        """The name of the measure."""
        if isinstance(target, ExplainedOutput):
            target = target.target
        if target is None:
            return self.measure
        if isinstance(target, str) and target.strip().lower() in MEASURES:
            return target.strip().lower()
        raise target_error(f" {target!r} is no measure of similarity; use one of {', '.join(MEASURES)}")

    def resolve(self, target: str, encoding: Encoding, name: str) -> str:
        """Measures mean the same for every pair."""
        return target

    def output(self, logits: Tensor, encoding: Encoding, target: str | Partner) -> ExplainedOutput:
        """From the logits (2, d) of one text, whose target is its partner."""
        logits_on_host(logits)  # refuses what is not finite
        if isinstance(target, str):
            return self.describe(target)
        row = _LOGITS_ROW[target.measure]
        terms = []
        for dimension, weight in enumerate(target.embedding.tolist()):
            terms.append(LogitTerm(weight, (row, dimension)))
        return self.describe(target.measure, tuple(terms))

    def describe(self, measure: str, terms: tuple[LogitTerm, ...] = ()) -> ExplainedOutput:
        """The output of a pair; `terms` if it is to be differentiated."""
        name = MEASURES[measure]
        return ExplainedOutput(
            target=measure,
            label=name,
            probability=None,
            prediction=name,
            terms=terms,
            output_kind=f"{name}, {self.pooling}",
        )

    def top_outputs(self, logits: Tensor, encoding: Encoding, count: int) -> list[ExplainedOutput]:
        """All measures, the model's own first."""
        names = sorted(MEASURES, key=lambda name: name != self.measure)
        return [self.describe(name) for name in names[:count]]


def similarity_head(model: PretrainedModel, _tokenizer: object) -> SimilarityHead:
    """The head of a sentence encoder."""
    return SimilarityHead(model.measure, f"{' and '.join(model.pooling)} pooling")


def read_pairs(reader: InputReader, pairs: Sequence[object], names: Sequence[str]) -> list[Encoding]:
    """Pairs of texts, each text a sequence of its own."""
    texts: list[object] = []
    text_names = []
    for pair, name in zip(pairs, names, strict=True):
        if not isinstance(pair, tuple) or len(pair) != 2:
            kind = f"a tuple of {len(pair)}" if isinstance(pair, tuple) else type(pair).__name__
            raise ArgumentTypeError(Argument(name), f" must be two texts for similarity, a tuple, not {kind}")
        for k, text in enumerate(pair):
            if isinstance(text, tuple):
                raise ArgumentTypeError(Argument(f"{name}[{k}]"), " must be a string, not a tuple")
            texts.append(text)
            text_names.append(f"{name}[{k}]")
    encodings = reader.encode(texts, text_names)
    joined = []
    for first, second in zip(encodings[::2], encodings[1::2], strict=True):
        joined.append(join_pair(first, second))
    return joined
