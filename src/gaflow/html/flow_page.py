"""The flow of one text as an interactive page: point at a token to see where its flow goes, layer by layer.

`flow_page` makes one file that needs nothing outside it. Python writes the text, the tables and the data; the script
(static/flow.js) draws the flow from the data. Without JavaScript the page shows the shaded text and the tables. For a
token, the script shows the *proportional split*: flow that enters or leaves a node is divided as the edges there are,

    part[l+1, i] = sum_j part[l, j] f[l, i, j] / through[l, j]      (towards the output; likewise towards the input)

over the stored edges. Flow on other edges is missing from that, and the page says how much it is. A signed method has
two flows, for and against; you can switch between them as between methods, and both show the same scores.

The convention this file owns: amounts in the data are **millionths of the flow**, those of nodes to five digits and
those of edges to four.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gaflow.arguments import checked, location, whole_number
from gaflow.attribution.attribution import Attribution
from gaflow.errors import Argument, ArgumentError
from gaflow.files import write_atomically
from gaflow.flow.result import VALUE_AGAINST
from gaflow.html.document import NEGATIVE, document, render, static
from gaflow.view.flow_graph import EdgeSelection, Graph
from gaflow.view.shades import LEVELS
from gaflow.view.summary import Attributions, Legend, NamedAttribution, Summary, of_same_text, summarize
from gaflow.view.text import shortened, visible

STORED_EDGES = 1800  # of a method, besides a path from each token at either end to the other
_STORED_EDGES_IN_ALL = 3600  # of all methods together, likewise
_DRAWN_EDGES = 600  # before a token is pointed at
_NAMED_TOKENS = 5  # tokens at the other end that are named
_LISTED_TOKENS = 1200  # rows in the token tables of all methods: if there are more, only the first method has a table
_LABEL = 16  # characters of a token beside its row


@checked
def flow_page(attributions: Attributions, path: str | Path | None = None, *, edges: int = STORED_EDGES) -> str:
    """An interactive page about the flow of one text, by one method or by several to switch between.

    The strongest `edges` of every flow are stored (fewer if there are many methods), equally many in each layer, and
    the page says how much they carry. Methods without a flow show their scores. The page is also written to `path`, if
    given.

        flow_page(explainer.compare("a gripping film.", methods=["agf", "relevance_flow"]), "flow.html")
    """
    whole_number("edges", edges)
    named = of_same_text(attributions)
    if all(att.layers is None for _, att in named):
        methods = ", ".join(dict.fromkeys(att.method for _, att in named))
        advice = "take a flow method such as agf, or gaflow.html.page for scores"
        raise ArgumentError(Argument("attributions"), f" have no flow (nothing flows by {methods}); {advice}")
    single_flows: list[NamedAttribution] = []
    for name, att in named:
        single_flows.extend(split_signed(name, att))
    single_flows.sort(key=lambda named_att: named_att[1].layers is None)  # methods with a flow come first
    flows = sum(att.flow is not None for _, att in single_flows)
    stored = min(edges, _STORED_EDGES_IN_ALL // max(flows, 1))
    html = _document(single_flows, stored)
    if path is not None:
        write_atomically(location("path", path), html.encode())
    return html


def split_signed(name: str, att: Attribution) -> list[NamedAttribution]:
    """A signed attribution as two, each with one flow and its through-flow; any other as it is."""
    if att.flow is not None and att.flow_against is not None:
        sides = [("for", att.flow), ("against", att.flow_against)]
        sides.sort(key=lambda side: -side[1].value.item())  # one of them may be 0
        diagnostics = dict(att.diagnostics)
        diagnostics.pop(VALUE_AGAINST, None)  # or the verdict on one side would count the other one too
        split = []
        for side, flow in sides:
            layers = flow.through()[0].numpy()
            one_side = replace(att, flow=flow, flow_against=None, layers=layers, diagnostics=diagnostics)
            split.append((f"{name}, {side}", one_side))
        return split
    if VALUE_AGAINST in att.diagnostics:  # the layers are differences of two flows, no flow
        return [(name, replace(att, layers=None))]
    return [(name, att)]


def _document(named: Sequence[NamedAttribution], stored: int) -> str:
    summaries = [summarize(att, name) for name, att in named]
    first = summaries[0]
    positive, signed = _legends(first)
    body = render(
        "flow.html",
        summaries=summaries,
        legend=signed if first.signed else positive,
        levels=LEVELS,
        list_all_tokens=len(first.att.tokens) * len(summaries) <= _LISTED_TOKENS,
        data=drawing_data(named, stored),
    )
    title = f"{first.label}: the flow of {shortened(first.att.text)}"
    script = static("flow.js") + static("flow_start.js")
    return document(title, body, kind="flow", sheets=("flow.css",), script=script)


def drawing_data(named: Sequence[NamedAttribution], stored: int) -> dict[str, Any]:
    """What static/flow.js draws of one text: `stored` edges of each flow at most, besides complete paths."""
    _, att = named[0]
    summary = summarize(att)
    positive, signed = _legends(summary)
    return {
        "tokens": [visible(token) for token in att.tokens],
        "labels": [shortened(token, _LABEL) or "␣" for token in att.tokens],
        "special": att.special_mask.astype(int).tolist(),
        "runs": [run.tokens for run in summary.runs],
        "levels": LEVELS,
        "drawn_edges": _DRAWN_EDGES,
        "legends": {"positive": positive.words, "signed": signed.words},
        "methods": [_method_data(method_att, stored) for _, method_att in named],
    }


def _legends(summary: Summary) -> tuple[Legend, Legend]:
    """The scales of scores without signs and with them."""
    positive = summary.score_legend(NEGATIVE, summary.largest, signed=False)
    signed = summary.score_legend(NEGATIVE, summary.largest, signed=True)
    return positive, signed


def _method_data(att: Attribution, stored: int) -> dict[str, Any]:
    """What the script needs of a method; scores to six digits."""
    scores = [float(f"{score:.6g}") for score in att.scores.tolist()]
    data: dict[str, Any] = {"scores": scores, "value": 0.0, "layers": [], "edges": [], "ends": []}
    data["caption"] = _no_edges_caption(att)
    if att.layers is not None:
        data["value"] = float(att.layers[0].sum())
        data["layers"] = [_millionths(layer, data["value"]) for layer in att.layers]
    if att.flow is not None:
        selection = Graph.of(att.flow).strongest(stored, complete_paths=True)
        data["edges"] = [[] for _ in att.flow.edges[0]]  # of each layer i, j, amount, i, j, amount, ..., weakest first
        amounts = _millionths(selection.amount, data["value"], digits=4)
        nodes = zip(selection.layer.tolist(), selection.i.tolist(), selection.j.tolist(), strict=True)
        for (layer, i, j), amount in zip(nodes, amounts, strict=True):
            data["edges"][layer] += (i, j, amount)
        if not selection.is_complete:
            data["ends"] = _end_to_end(selection.graph)
        data["caption"] = _edges_caption(selection, min(_DRAWN_EDGES, stored))
    return data


def _millionths(amounts: np.ndarray, value: float, digits: int = 5) -> list[float]:
    """Amounts as parts of the flow, to so many digits; 0 where nothing flows."""
    if value <= 0:
        return [0] * len(amounts)
    parts = []
    for amount in (amounts / value * 1e6).tolist():
        rounded = float(f"{amount:.{digits}g}")
        parts.append(int(rounded) if rounded.is_integer() else rounded)
    return parts


def _no_edges_caption(att: Attribution) -> str:
    """What is drawn of a method without its flow."""
    if att.certificate is None:
        return "This method has no flow: the bars are its scores."
    drawn = "bars only" if att.layers is None else "nodes and bars only"
    caption = f"The flow was not kept: {drawn}."
    if "windows" not in att.diagnostics:
        caption += " Explain again with keep_flow=True for the edges."
    return caption


def _edges_caption(stored_edges: EdgeSelection, drawn: int) -> str:
    """Which edges are drawn, and which of them the script can draw of a token besides."""
    drawn_edges = stored_edges.graph.strongest(drawn)
    if not drawn_edges.count:
        return "The wider, the more flow; nothing flows."
    caption = f"The wider, the more flow; {drawn_edges.describe('flow')}."
    if drawn_edges.is_complete:
        return caption
    if stored_edges.is_complete:
        return f"{caption} Point at a token to see all of its edges."
    carried = f"{len(stored_edges.amount):,} stored edges, which carry {stored_edges.share():.1%} of the flow"
    return f"{caption} Point at a token to see its edges among the {carried}."


def _end_to_end(graph: Graph) -> list[list[list[float]]]:
    """Where the flow of each input token comes from in the output, and where that of each output token ends.

    All edges count. For every token: the tokens with the largest parts at the other end, as index, millionths of the
    token's flow, index, ...
    """
    ends = []
    for layers in (graph.edges.swapaxes(1, 2), graph.edges[::-1]):  # upwards, and downwards
        parts = np.eye(graph.edges.shape[-1])
        for edges in layers:  # divide what each token has among its edges
            totals = edges.sum(1, keepdims=True)
            parts = parts @ (edges / np.where(totals > 0, totals, 1.0))
        ends.append([_largest_parts(row) for row in parts])
    return ends


def _largest_parts(parts: np.ndarray) -> list[float]:
    flat: list[float] = []
    for token in np.argsort(-parts, kind="stable")[:_NAMED_TOKENS].tolist():
        part = round(1e6 * float(parts[token]))
        if part:
            flat += (token, part)
    return flat
