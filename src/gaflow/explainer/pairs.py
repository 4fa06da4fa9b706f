"""Pairs of texts that a sentence encoder reads one by one.

Each text is explained as an item of its own, with the embedding of the other one fixed, and gets half of the result
(`gaflow.tasks.similarity`). The network of a pair is that of both texts side by side, with no edges between them.

    y = Σ_ij <p_i, q_j> / (|a| |b|)

is also a sum over pairs of tokens, where `p_i` is what token `i` adds to the embedding `a`, and `q_j` what token `j`
adds to `b`. These are the token matches. They are exact where the embedding is a sum over tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from torch import Tensor

from gaflow.attribution.attribution import Attribution
from gaflow.explainer.runner import Runner
from gaflow.explainer.windows import Window, add_up
from gaflow.flow.result import Flow
from gaflow.flow.side_by_side import side_by_side
from gaflow.inputs.encoding import Encoding
from gaflow.models.sentence_encoder import Embeddings, SentenceEncoder, embed
from gaflow.tasks.similarity import Partner, SimilarityHead
from gaflow.tasks.targets import ExplainedOutput

_HALF = 0.5  # of a product belongs to each of its two factors
_ROUNDING = 1e-6  # of a cosine in float32, and of gradients where it is largest
_ONLY_ROUNDING = (
    "the embeddings are parallel, where the gradient of the cosine is 0, so these scores are rounding errors; "
    "use peeled_flow, occlusion or the target 'dot'"
)


@dataclass(frozen=True)
class Similarity:
    """The similarity of a pair."""

    output: ExplainedOutput
    targets: tuple[Partner, ...]  # of the first text: the second one, and the other way round
    token_matches: np.ndarray | None  # (n, m) the terms of y; None if the embeddings are no sums over tokens


def split_pair(pair: Encoding) -> tuple[Window, ...]:
    """The two texts of a pair, each with its positions among the tokens of both."""
    windows = []
    start = 0
    for part in pair.parts:
        end = start + len(part)
        windows.append(Window(part, tuple(range(start, end)), _HALF, of_pair=True))
        start = end
    return tuple(windows)


def compare_pair(runner: Runner, windows: Sequence[Window], measure: str) -> Similarity:
    """The similarity of the two texts of a pair, from a forward pass without gradients."""
    encodings = [window.encoding for window in windows]
    texts: dict[int, _Embedded] = {}
    for group in runner.batches(encodings, len(encodings)):
        batch = runner.collate([encodings[k] for k in group])
        embeddings = embed(runner.model, batch.inputs)
        for row, k in enumerate(group):
            texts[k] = _embedded(embeddings, row, len(encodings[k]), measure)
    first, second = texts[0], texts[1]
    matches = None
    if first.token_parts is not None and second.token_parts is not None:
        matches = (first.token_parts @ second.token_parts.T).numpy()
    head = cast(SimilarityHead, runner.head)
    targets = (Partner(measure, second.embedding), Partner(measure, first.embedding))
    return Similarity(head.describe(measure), targets, matches)


@dataclass(frozen=True)
class _Embedded:
    """One text as the measure reads it."""

    embedding: Tensor  # (d,)
    token_parts: Tensor | None  # (t, d) that sum to the embedding


def _embedded(embeddings: Embeddings, row: int, length: int, measure: str) -> _Embedded:
    if measure == "cosine":
        embedding = embeddings.unit[row]
        parts = embeddings.unit_parts
    else:
        embedding = embeddings.plain[row]
        parts = embeddings.plain_parts
    return _Embedded(embedding, None if parts is None else parts[row, :length])


def merge_pair(
    runner: Runner, pair: Encoding, windows: Sequence[Window], texts: Sequence[Attribution], similarity: Similarity
) -> Attribution:
    """The attribution of a pair by one method, from those of its two texts."""
    model: SentenceEncoder = runner.model
    merged = add_up(pair, windows, texts, similarity.output, "texts")
    diagnostics = dict(merged.diagnostics)
    if model.pooling_by_default:
        diagnostics["pooling"] = f"{model.pooling[0]}, since the model names none; gaflow.SentenceEncoder takes others"
    if abs(merged.output) > 1 - _ROUNDING and _is_rounding(merged.scores) and similarity.output.target == "cosine":
        warnings = [diagnostics.get("warning"), _ONLY_ROUNDING]
        diagnostics["warning"] = "; ".join(str(warning) for warning in warnings if warning is not None)
    return replace(
        merged,
        text=pair.text,
        text_pair=pair.text_pair,
        truncated=pair.truncated,
        output_kind=similarity.output.output_kind,
        flow=_join([text.flow for text in texts]),
        flow_against=_join([text.flow_against for text in texts]),
        diagnostics=diagnostics,
        token_matches=similarity.token_matches,
    )


def _is_rounding(scores: np.ndarray) -> bool:
    largest = float(np.abs(scores).max(initial=0.0))
    return 0 < largest < _ROUNDING


def _join(flows: Sequence[Flow | None]) -> Flow | None:
    present = [flow for flow in flows if flow is not None]
    if len(present) < len(flows):
        return None
    return side_by_side(present, [_HALF] * len(present))
