"""Where two flows differ: the edges whose shares of their flows are furthest apart.

Amounts are shares of each flow's value, so that flows of different models and texts can be compared. Tokens that only
one of the two has are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gaflow.flow.result import Flow
from gaflow.web.problems import HttpProblem
from gaflow.web.work import Answer

Pairs = Sequence[tuple[int, int]]


def flow_difference(first: Flow, second: Flow, pairs: Pairs, count: int) -> Answer:
    """Up to `count` edges as (layer, i, j, share of the first, share of the second); i, j are indices into `pairs`."""
    layers = len(first.edges[0])
    if len(second.edges[0]) != layers:
        raise HttpProblem(
            422, f"the flows have {layers} and {len(second.edges[0])} layers; compare their scores only", "second"
        )
    amounts = np.stack([_shares(first, pairs, 0, "first"), _shares(second, pairs, 1, "second")])
    gap = np.abs(amounts[1] - amounts[0]).reshape(layers, -1)
    per_layer = max(1, count // layers)
    edges = []
    for layer in range(layers):
        furthest = np.argsort(-gap[layer], kind="stable")[:per_layer]
        for index in furthest[gap[layer, furthest] > 0].tolist():
            i, j = divmod(index, len(pairs))
            edges.append((layer, i, j, *amounts[:, layer, i, j].tolist()))
    nodes = [_node_shares(first, pairs, 0), _node_shares(second, pairs, 1)]
    return {"layers": layers, "edges": edges, "nodes": [shares.tolist() for shares in nodes], "moved": _moved(amounts)}


def _shares(flow: Flow, pairs: Pairs, side: int, argument: str) -> np.ndarray:
    """The edges of the paired tokens as shares of the flow, (l, p, p)."""
    edges = flow.edges[0].detach().cpu().double().numpy()
    tokens = _tokens(pairs, side, edges.shape[-1], argument)
    value = flow.value.item()
    return edges[:, tokens[:, None], tokens] / value if value > 0 else edges[:, tokens[:, None], tokens]


def _node_shares(flow: Flow, pairs: Pairs, side: int) -> np.ndarray:
    """The same of nodes, (l+1, p)."""
    through = flow.through()[0].detach().cpu().double().numpy()
    tokens = np.array([pair[side] for pair in pairs])
    value = flow.value.item()
    return through[:, tokens] / value if value > 0 else through[:, tokens]


def _tokens(pairs: Pairs, side: int, count: int, argument: str) -> np.ndarray:
    tokens = np.array([pair[side] for pair in pairs])
    if tokens.min() < 0 or tokens.max() >= count or len(set(tokens.tolist())) < len(tokens):
        raise HttpProblem(
            422, f"pairs must name each token of the {argument} result at most once: 0 to {count - 1}", "pairs"
        )
    return tokens


def _moved(amounts: np.ndarray) -> float:
    """The part of the flow that takes other edges, averaged over layers: half of the sum of all differences."""
    return float(np.abs(amounts[1] - amounts[0]).sum((1, 2)).mean() / 2)
