"""What the model itself says without some of its attention, and what its heads add to an edge.

Solving a changed network again answers what follows *in the explanation*. Here the same edges are removed from the
model, which runs again. Both answers are shown side by side, since nothing says that they agree.

The convention this file owns: an edge (layer, i, j) of a network is the attention of query i to key j in that layer,
and a node is all attention from it and to it. What the residual stream carries cannot be removed: a cut edge from a
token to itself loses its attention only.
"""

from __future__ import annotations

import numpy as np
import torch

from gaflow.attribution.attribution import Attribution
from gaflow.evaluation.edge_faithfulness import probabilities_without
from gaflow.explainer.explainer import Explainer
from gaflow.explainer.many import prepare_one
from gaflow.models.forward import forward
from gaflow.models.restore import borrow
from gaflow.models.tracing import backward
from gaflow.web.bodies import HeadsBody, RemoveBody
from gaflow.web.masking_curve import input_of
from gaflow.web.problems import HttpProblem
from gaflow.web.work import Answer


def run_without(explainer: Explainer, att: Attribution, body: RemoveBody) -> Answer:
    """Probabilities of all classes, with all attention and without what `body` names."""

    def removed(layers: int, heads: int, tokens: int) -> np.ndarray:
        _check_tokens(att, tokens)
        return _removed_attention(body, layers, heads, tokens)

    probabilities = probabilities_without(explainer, input_of(att), removed, body.replacement, truncation=att.truncated)
    labels = list(explainer.head.labels)
    return {
        "labels": labels,
        "before": probabilities[0].tolist(),
        "after": probabilities[1].tolist(),
        "prediction": labels[int(probabilities[1].argmax())],
        "to_itself": sum(1 for _, query, key in body.cut_edges if query == key),
    }


def head_amounts(explainer: Explainer, att: Attribution, body: HeadsBody) -> Answer:
    """Attention times gradient of every head, for each of the edges: (edges, heads)."""
    runner = explainer.runner
    prepared = prepare_one(runner, input_of(att), att.target, truncation=att.truncated, windows=False)
    batch = runner.collate([prepared.encoding])
    with borrow(runner.model):
        forward_pass = forward(runner.model, batch)
        (output,) = runner.head.outputs(forward_pass.logits, batch.encodings, [prepared.target])
        trace = backward(forward_pass, [output.terms])
    layers = len(trace.attentions)
    tokens = trace.attentions[0].shape[-1]
    _check_tokens(att, tokens)
    amounts = []
    for layer, query, key in body.edges:
        _check_numbers("edges", (layer, query, key), (layers, tokens, tokens))
        amounts.append(trace.attentions[layer][0, :, query, key] * trace.gradients[layer][0, :, query, key])
    return {"edges": body.edges, "amounts": torch.stack(amounts).double().tolist()}


def _check_tokens(att: Attribution, tokens: int) -> None:
    if len(att.tokens) != tokens:
        raise HttpProblem(
            422, f"this result has {len(att.tokens)} nodes, but the model reads {tokens} tokens; join no tokens", "id"
        )


def _removed_attention(body: RemoveBody, layers: int, heads: int, tokens: int) -> np.ndarray:
    """Which attention goes, (l, h, t, t) bool."""
    removed = np.zeros((layers, heads, tokens, tokens), dtype=bool)
    for layer, query, key in body.cut_edges:
        _check_numbers("cut_edges", (layer, query, key), (layers, tokens, tokens))
        removed[layer, :, query, key] = True
    for node_layer, token in body.cut_nodes:
        _check_numbers("cut_nodes", (node_layer, token), (layers + 1, tokens))
        if node_layer > 0:
            removed[node_layer - 1, :, token] = True
        if node_layer < layers:
            removed[node_layer, :, :, token] = True
    for layer in body.skip_layers:
        _check_numbers("skip_layers", (layer,), (layers,))
        removed[layer] = True
    for layer, head in body.cut_heads:
        _check_numbers("cut_heads", (layer, head), (layers, heads))
        removed[layer, head] = True
    return removed


def _check_numbers(argument: str, values: tuple[int, ...], counts: tuple[int, ...]) -> None:
    for value, count in zip(values, counts, strict=True):
        if not 0 <= value < count:
            raise HttpProblem(
                422, f"{argument}: {value} in {list(values)} does not exist; use 0 to {count - 1}", argument
            )
