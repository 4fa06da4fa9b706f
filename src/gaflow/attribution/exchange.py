"""Attributions to and from the formats of other libraries. These are methods of `Attribution`.

The convention this file owns: **scores go over as they are**, one per token, and nothing is made up. What another
library does not say (a probability, the place of a token in the text) stays empty, or is asked for.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gaflow.arguments import checked, vector, whole_number
from gaflow.attribution.words import pieces_of, words_of
from gaflow.errors import Argument, ArgumentError, ArgumentTypeError
from gaflow.extras import need
from gaflow.inputs.encoding import check_readable, locate

if TYPE_CHECKING:
    from gaflow.attribution.attribution import Attribution


_MARKER = re.compile(r"\[[A-Z]+\d*\]|</?s>|<\|?[a-z_]+\|?>")  # how tokenizers write special tokens


@checked
def as_list(att: Attribution, *, words: bool = True) -> list[tuple[str, float]]:
    """(word, score) of every word, the largest absolute score first, as LIME's `as_list`; `words=False`: of tokens."""
    units = words_of(att) if words else pieces_of(att)
    ranked = sorted(units, key=lambda unit: -abs(unit.score))
    return [(unit.text, unit.score) for unit in ranked]


@checked
def highlighted(att: Attribution, *, words: bool = False) -> list[tuple[str, float | None]]:
    """The text in pieces with scores from -1 to 1, for `gradio.HighlightedText`; None between tokens.

    The scores are divided by the largest absolute one. The pieces are the whole text, and after it the pair.
    """
    units = words_of(att) if words else pieces_of(att)
    largest = max((abs(unit.score) for unit in units), default=0.0) or 1.0
    pieces: list[tuple[str, float | None]] = []
    for segment, source in enumerate((att.text, att.text_pair)):
        if source is None:
            continue
        if segment == 1:
            pieces.append(("\n", None))
        end = 0
        for unit in units:
            if unit.segment != segment or unit.end <= end:  # tokens of one character share it
                continue
            if unit.start > end:
                pieces.append((source[end : unit.start], None))
            pieces.append((source[max(unit.start, end) : unit.end], unit.score / largest))
            end = unit.end
        if end < len(source):
            pieces.append((source[end:], None))
    return pieces


@checked
def to_inseq(att: Attribution) -> Any:
    """An `inseq.FeatureAttributionOutput` with the tokens as source and the label as the only target token.

    `show()` of Inseq divides the scores by the sum of their absolute values; `show(normalize=False)` does not.
    """
    need("inseq", None, "an Inseq output needs inseq")
    import torch
    from inseq.data.attribution import (  # type: ignore[import-not-found]
        FeatureAttributionOutput,
        FeatureAttributionSequenceOutput,
    )
    from inseq.utils.typing import TokenWithId  # type: ignore[import-not-found]

    scores = torch.tensor(att.scores, dtype=torch.float32)
    sequence = FeatureAttributionSequenceOutput(
        source=[TokenWithId(token, index) for index, token in enumerate(att.tokens)],
        target=[TokenWithId(att.label, 0)],
        source_attributions=scores[:, None, None],  # (t, 1 target, 1): Inseq adds up the last axis to show them
        step_scores={},
        sequence_scores={},
        attr_pos_start=0,
        attr_pos_end=1,
    )
    info = {"attribution_method": att.method, "input_texts": [att.text], "generated_texts": [att.label]}
    return FeatureAttributionOutput(sequence_attributions=[sequence], info=info)


@checked
def to_graph(att: Attribution, *, edges: int = 2000, slug: str = "gaflow") -> dict[str, Any]:
    """The attribution as a graph in the JSON format of circuit-tracer and Neuronpedia.

    Nodes are the tokens in every layer and the explained output. Links go from the input to the output and weigh what
    flows through them, minus what flows against it. The strongest `edges` between layers are kept. Methods without
    flow have one layer, with the scores as weights. `slug` names the graph among others.

        Path("graph.json").write_text(json.dumps(att.to_graph()))
    """
    whole_number("edges", edges)
    weights = _layer_weights(att)
    depth = len(weights) - 1
    influences = _influences(weights)
    nodes = []
    for layer, position in np.ndindex(*weights.shape):
        weight = float(weights[layer, position])
        nodes.append(_token_node(att, layer, position, weight, float(influences[layer, position])))
    output = _output_node(att, depth)
    links = _straight_links(att) if att.flow is None else _flow_links(att, edges)
    last = att.scores if att.flow is None else _signed(att, "source")
    for position in np.flatnonzero(last).tolist():
        links.append(_link(_node_id(depth, position), output["node_id"], last[position]))
    ends = {link["source"] for link in links} | {link["target"] for link in links}
    drawn = [node for node in nodes if node["node_id"] in ends or node["feature_type"] == "embedding"]
    return {
        "metadata": {
            "slug": slug,
            "scan": str(att.provenance.get("model") or "gaflow"),
            "transcoder_list": [],
            "prompt_tokens": list(att.tokens),
            "prompt": att.text if att.text_pair is None else f"{att.text}\n{att.text_pair}",
            "node_threshold": 1.0,  # all nodes, until the reader hides those of little influence
            "schema_version": 1,
            "info": {"description": f"{att.method}: {att.label}", "generator": {"name": "gaflow"}},
            "generation_settings": {"provenance": att.provenance},
        },
        "qParams": {
            "pinnedIds": [],
            "supernodes": [],
            "linkType": "both",
            "clickedId": "",
            "sg_pos": "",
        },
        "nodes": [*drawn, output],
        "links": links,
    }


def _layer_weights(att: Attribution) -> np.ndarray:
    """What goes through each token of each layer, (l+1, t); methods without flow have the scores in a single layer.

    It is a layer of its own after the input, since Neuronpedia shows no graph without one.
    """
    if att.flow is None or att.layers is None:
        return np.stack([att.scores, att.scores])
    return att.layers


def _influences(weights: np.ndarray) -> np.ndarray:
    """The share of all weights that nodes as strong as this one, or stronger, have together: what circuit-tracer has.

    Its reader hides nodes above a threshold from 0 to 1.
    """
    largest = np.abs(weights).max(initial=0.0) or 1.0
    strengths = np.abs(weights / largest).flatten()  # whose sum does not overflow
    order = np.argsort(-strengths, kind="stable")
    shares = np.empty_like(strengths)
    shares[order] = np.cumsum(strengths[order]) / (strengths.sum() or 1.0)
    return np.minimum(shares, 1.0).reshape(weights.shape)  # rounding may exceed it


def _flow_links(att: Attribution, count: int) -> list[dict[str, Any]]:
    """Links of the strongest flows: edges (l, t, t) go from token i of a layer to token j of the layer below."""
    flows = _signed(att, "edges")
    strongest = np.argsort(-abs(flows), axis=None, kind="stable")[:count]
    links = []
    for layer, upper, lower in zip(*np.unravel_index(strongest, flows.shape), strict=True):
        weight = float(flows[layer, upper, lower])
        if weight != 0:
            source = _node_id(int(layer), int(lower))
            target = _node_id(int(layer) + 1, int(upper))
            links.append(_link(source, target, weight))
    return links


def _straight_links(att: Attribution) -> list[dict[str, Any]]:
    """Links of scores without flow, from each token of the input to the same token of the only layer."""
    links = []
    for position in np.flatnonzero(att.scores).tolist():
        links.append(_link(_node_id(0, position), _node_id(1, position), att.scores[position]))
    return links


def _signed(att: Attribution, name: str) -> np.ndarray:
    """What flows, minus what flows against it."""
    values = getattr(att.flow, name)[0].double().numpy()
    if att.flow_against is not None:
        values = values - getattr(att.flow_against, name)[0].double().numpy()
    return values


def _node_id(layer: int, position: int) -> str:
    """Layer, feature and position, as circuit-tracer writes them; a token is its own feature, and layers count from 1.

    Neuronpedia draws a layer 0 on top of the input.
    """
    name = "E" if layer == 0 else str(layer)
    return f"{name}_{position}_{position}"


def _feature_number(layer: int, position: int) -> int:
    """One number for a layer and a feature: Cantor's pairing, in version 1 of the format."""
    total = layer + position
    return total * (total + 1) // 2 + position


def _link(source: str, target: str, weight: float) -> dict[str, Any]:
    return {"source": source, "target": target, "weight": float(weight)}


def _token_node(att: Attribution, layer: int, position: int, weight: float, influence: float) -> dict[str, Any]:
    """A token of the input, or its hidden state in a layer.

    The format has no type for hidden states. Theirs is the one that front ends draw as an ordinary node.
    """
    node_id = _node_id(layer, position)
    return {
        "node_id": node_id,
        "feature": position if layer == 0 else _feature_number(layer, position),
        "layer": node_id.partition("_")[0],
        "ctx_idx": position,
        "feature_type": "embedding" if layer == 0 else "cross layer transcoder",
        "token_prob": 0.0,
        "is_target_logit": False,
        "run_idx": 0,
        "reverse_ctx_idx": 0,
        "jsNodeId": node_id,
        "clerp": att.tokens[position],
        "influence": influence,
        "activation": weight,
    }


def _output_node(att: Attribution, depth: int) -> dict[str, Any]:
    """The explained output. Front ends read the probability from its label, where "nan" says that there is none."""
    position = len(att.tokens) - 1
    feature = att.target if isinstance(att.target, int) else 0
    layer = depth + 1
    node_id = f"{layer}_{feature}_{position}"
    probability = math.nan if att.probability is None else att.probability
    return {
        "node_id": node_id,
        "feature": feature,
        "layer": str(layer),
        "ctx_idx": position,
        "feature_type": "logit",
        "token_prob": att.probability or 0.0,
        "is_target_logit": True,
        "run_idx": 0,
        "reverse_ctx_idx": 0,
        "jsNodeId": node_id,
        "clerp": f'Output "{att.label}" (p={probability:.3f})',
        "influence": None,
        "activation": att.output,
    }


def fields_from_shap(explanation: object, text: str | None, method: str) -> dict[str, Any]:
    """The fields of the Attribution that an explanation of one text and one output is."""
    shap_explanation: Any = explanation
    try:
        values = shap_explanation.values
        base_values = shap_explanation.base_values
        data = shap_explanation.data
        names = shap_explanation.output_names
    except AttributeError as error:
        raise ArgumentTypeError(Argument("explanation"), f" must be a shap.Explanation: {error}") from error
    if getattr(values, "ndim", 1) != 1:
        raise ArgumentError(
            Argument("explanation"),
            f" has values of the shape {values.shape}; choose one text and one output, as in explanation[0, :, 'yes']",
        )
    tokens = _token_strings("explanation", data)
    scores = vector("explanation", values, len(tokens))
    base_value = _first_number("explanation", base_values)
    label = _first_name(names)
    return _from_tokens(tokens, scores, text) | {
        "method": method,
        "target": label,
        "label": label,
        "prediction": label,
        "probability": None,
        "output": _first_number("explanation", base_value + sum(scores.tolist())),
        "diagnostics": {"baseline_output": base_value},
    }


def fields_from_captum(record: object, text: str | None, method: str) -> dict[str, Any]:
    """The fields of the Attribution that a visualisation record is."""
    captum_record: Any = record
    try:
        tokens = _token_strings("record", captum_record.raw_input_ids)
        scores = vector("record", captum_record.word_attributions, len(tokens))
        output = _first_number("record", captum_record.attr_score)
        probability = _first_number("record", captum_record.pred_prob)
        error_of_sum = _first_number("record", captum_record.convergence_score)
        label = str(captum_record.attr_class)
        prediction = str(captum_record.pred_class)
    except AttributeError as error:
        raise ArgumentTypeError(Argument("record"), f" must be a Captum VisualizationDataRecord: {error}") from error
    is_prediction = label == prediction and 0 <= probability <= 1
    return _from_tokens(tokens, scores, text) | {
        "method": method,
        "target": label,
        "label": label,
        "prediction": prediction,
        "probability": probability if is_prediction else None,
        "output": output,
        "diagnostics": {"convergence_delta": error_of_sum},
    }


def _token_strings(argument: str, tokens: object) -> list[str]:
    if isinstance(tokens, str) or not isinstance(tokens, Iterable) or getattr(tokens, "ndim", 1) == 0:
        raise ArgumentError(Argument(argument), " must hold tokens, one string for each score")
    strings = [check_readable(str(token), argument) for token in tokens]
    if not strings:
        raise ArgumentError(Argument(argument), " has no tokens")
    return strings


def _first_number(argument: str, value: object) -> float:
    """A finite number, or the first one of an array."""
    try:
        number = float(np.asarray(value, dtype=np.float64).flat[0])
    except (TypeError, ValueError, OverflowError, IndexError):
        number = math.nan
    if not math.isfinite(number):
        raise ArgumentError(Argument(argument), f" must hold finite numbers, not {reprlib.repr(value)}")
    return number


def _first_name(names: object) -> str:
    """The name of the output, or the first one of a list."""
    if isinstance(names, Iterable) and not isinstance(names, str) and getattr(names, "ndim", 1):
        names = next(iter(names), None)
    return "output" if names is None else str(names)


def _from_tokens(tokens: Sequence[str], scores: np.ndarray, text: str | None) -> dict[str, Any]:
    """Text, offsets and segments of tokens. Without a text, the tokens are put together to one."""
    markers = {token for token in tokens if not token or _MARKER.fullmatch(token)}
    if text is not None:
        check_readable(text, "text")
    else:
        spaced = any(token != token.strip() for token in tokens)  # SHAP keeps the blanks between words
        ordinary = [token for token in tokens if token not in markers]
        text = ("" if spaced else " ").join(ordinary)
    segments = []
    for token in tokens:
        is_special = token in markers and (not token or token not in text)
        segments.append(-1 if is_special else 0)
    return {
        "text": text,
        "text_pair": None,
        "tokens": tuple(tokens),
        "scores": scores,
        "offsets": locate((text, None), tokens, segments),
        "segments": tuple(segments),
    }
