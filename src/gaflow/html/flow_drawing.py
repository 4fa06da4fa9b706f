"""What static/flow.js draws of the flow of one text: for the static page, the explorer and the notebook widget.

Short texts are drawn by token. Long ones are drawn by their words or sentences (`gaflow.view.flow_units`), and each
row can be opened. A signed method has two flows, for and against; both show the same scores.

The convention this file owns: amounts in the data are **millionths of the flow**, those of nodes to five digits and
those of edges to four.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from gaflow.attribution.attribution import Attribution
from gaflow.attribution.words import Unit
from gaflow.flow.result import VALUE_AGAINST, Certificate, Flow, layer_scores
from gaflow.flow.threads import one_core
from gaflow.html.document import NEGATIVE
from gaflow.view.flow_graph import EdgeSelection, Graph
from gaflow.view.flow_units import Group, RowFlow, UnitKind, Units, added_up, flows_between
from gaflow.view.shades import LEVELS
from gaflow.view.summary import Legend, NamedAttribution, Summary, summarize
from gaflow.view.text import shortened, visible

_DRAWN_EDGES = 600  # of tokens, before one is pointed at
_DRAWN_ROW_EDGES = 1200  # of words or sentences, likewise
_MOST_ROW_EDGES = 3600  # of all methods together that are stored for the rows that a drawing begins with
_OPENED_ROWS = 48  # that a page holds, at most
_BYTES_PER_EDGE = 12  # of JSON, at most
_FEWEST_OPENED_EDGES = 120  # of a method in an opened row, besides complete paths
_NAMED_TOKENS = 5  # tokens at the other end that are named
_LABEL = 16  # characters of a token beside its row
_UNIT_LABEL = 26  # of a word or a sentence
_LONGEST_NAME = 600  # characters of a sentence

RowFlows = Mapping[int, RowFlow]  # by the id of the flow between tokens


@dataclass(frozen=True)
class DrawnFlow:
    """One flow of an attribution, and the scores that its bars show."""

    name: str
    att: Attribution  # with this flow only, and its through-flow as layers
    scored: Attribution  # as it was explained: a signed one has two flows


def drawn_flows(named: Sequence[NamedAttribution]) -> list[DrawnFlow]:
    """All flows of some attributions of one text; those for an output stand before those against it."""
    flows = []
    for name, att in named:
        flows.extend(_flows_of(name, att))
    return flows


def _flows_of(name: str, att: Attribution) -> list[DrawnFlow]:
    """A signed attribution as two, each with one flow and its through-flow; any other as it is."""
    if att.flow is not None and att.flow_against is not None:
        diagnostics = dict(att.diagnostics)
        diagnostics.pop(VALUE_AGAINST, None)  # or the verdict on one side would count the other one too
        flows = []
        for side, flow in (("for", att.flow), ("against", att.flow_against)):
            layers = flow.through()[0].numpy()
            one_side = replace(att, flow=flow, flow_against=None, layers=layers, diagnostics=diagnostics)
            flows.append(DrawnFlow(f"{name}, {side}", one_side, att))
        return flows
    if VALUE_AGAINST in att.diagnostics:  # the layers are differences of two flows, no flow
        return [DrawnFlow(name, replace(att, layers=None), att)]
    return [DrawnFlow(name, att, att)]


def drawing_data(
    flows: Sequence[DrawnFlow], stored: int, *, unit: Unit | None = None, opened_bytes: int | None = None
) -> dict[str, Any]:
    """What static/flow.js draws of one text: `stored` edges of each flow at most, besides complete paths.

    `unit`: what a row is; None chooses by the length of the text. A page by itself has the flows of opened rows, up to
    `opened_bytes` of JSON. Without a number, rows have to be asked for, by `row_data`, and tokens have their edges.
    """
    att = flows[0].att
    summary = summarize(att)
    positive, signed = legends(summary)
    units = None
    if unit != "token":
        units = Units.of(att, _weights(flows), unit)
    data: dict[str, Any] = {
        "tokens": [visible(token) for token in att.tokens],
        "labels": [shortened(token, _LABEL) or "␣" for token in att.tokens],
        "special": att.special_mask.astype(int).tolist(),
        "runs": [run.tokens for run in summary.runs],
        "levels": LEVELS,
        "drawn_edges": _DRAWN_EDGES if units is None else _DRAWN_ROW_EDGES,
        "legends": {"positive": positive.words, "signed": signed.words},
    }
    if units is None:
        data["methods"] = [_token_data(drawn.att, stored) for drawn in flows]
        return data
    data["units"] = _unit_data(flows, units, stored)
    if opened_bytes is None:
        data["methods"] = [_token_data(drawn.att, stored) for drawn in flows]
    else:
        data["methods"] = [_node_data(drawn.att) for drawn in flows]
        data["units"].update(_opened_data(flows, units, opened_bytes))
    return data


def row_data(flows: Sequence[DrawnFlow], groups: Sequence[Group], stored: int) -> list[dict[str, Any]]:
    """What static/flow.js draws of each flow between rows, which are these groups of tokens."""
    (row_flows,) = _solve(flows, [groups])
    return [_row_data(drawn, groups, row_flows, stored) for drawn in flows]


def legends(summary: Summary) -> tuple[Legend, Legend]:
    """The scales of scores without signs and with them."""
    positive = summary.score_legend(NEGATIVE, summary.largest, signed=False)
    signed = summary.score_legend(NEGATIVE, summary.largest, signed=True)
    return positive, signed


# Tokens


def _token_data(att: Attribution, stored: int) -> dict[str, Any]:
    """What the script needs of a method that is drawn by token; scores to six digits."""
    data = _node_data(att)
    data["caption"] = _no_edges_caption(att)
    if att.flow is not None:
        selection = Graph.of(att.flow).strongest(stored, complete_paths=True)
        data["edges"] = _edge_data(selection, data["value"])
        if not selection.is_complete:
            data["ends"] = _end_to_end(selection.graph)
        data["caption"] = _edges_caption(selection, min(_DRAWN_EDGES, stored))
    return data


def _node_data(att: Attribution) -> dict[str, Any]:
    """Scores and through-flows of tokens."""
    data: dict[str, Any] = {"scores": _six_digits(att.scores), "value": 0.0, "layers": [], "edges": [], "ends": []}
    if att.layers is not None:
        data["value"] = float(att.layers[0].sum())
        data["layers"] = [_millionths(layer, data["value"]) for layer in att.layers]
    return data


def _edge_data(selection: EdgeSelection, value: float) -> list[list[float]]:
    """Of each layer i, j, amount, i, j, amount, ..., weakest first."""
    edges: list[list[float]] = [[] for _ in selection.graph.edges]
    amounts = _millionths(selection.amount, value, digits=4)
    nodes = zip(selection.layer.tolist(), selection.i.tolist(), selection.j.tolist(), strict=True)
    for (layer, i, j), amount in zip(nodes, amounts, strict=True):
        edges[layer] += (i, j, amount)
    return edges


def _six_digits(scores: np.ndarray) -> list[float]:
    return [float(f"{score:.6g}") for score in scores.tolist()]


def _millionths(amounts: np.ndarray, value: float, digits: int = 5) -> list[float]:
    """Amounts as parts of the flow, to so many digits; 0 where nothing flows."""
    if value <= 0:
        return [0] * len(amounts)
    parts = []
    for amount in (amounts / value * 1e6).tolist():
        rounded = float(f"{amount:.{digits}g}")
        parts.append(int(rounded) if rounded.is_integer() else rounded)
    return parts


def _end_to_end(graph: Graph) -> list[list[list[float]]]:
    """Where the flow of each input token comes from in the output, and where that of each output token ends.

    All edges count. For every token: the tokens with the largest parts at the other end, as index, millionths of the
    token's flow, index, ...
    """
    ends = []
    for layers in (graph.edges.swapaxes(1, 2), graph.edges[::-1]):  # upwards, and downwards
        parts = torch.eye(graph.edges.shape[-1], dtype=torch.float64)
        with one_core():  # NumPy's own threads wait for each other where other processes hold the cores
            for edges in layers:  # divide what each token has among its edges
                totals = edges.sum(1, keepdims=True)
                parts = parts @ torch.from_numpy(edges / np.where(totals > 0, totals, 1.0))
        ends.append([_largest_parts(row) for row in parts.numpy()])
    return ends


def _largest_parts(parts: np.ndarray) -> list[float]:
    flat: list[float] = []
    for token in np.argsort(-parts, kind="stable")[:_NAMED_TOKENS].tolist():
        part = round(1e6 * float(parts[token]))
        if part:
            flat += (token, part)
    return flat


# Words and sentences


def _weights(flows: Sequence[DrawnFlow]) -> np.ndarray:
    """How much of the flows goes through each token, (t,): the sum over node layers, each flow counted as 1."""
    weights = np.zeros(len(flows[0].att.tokens))
    for drawn in flows:
        layers = drawn.att.layers
        if layers is not None and layers[0].sum() > 0:
            weights += layers.sum(0) / layers.sum()
    return weights


def _unit_data(flows: Sequence[DrawnFlow], units: Units, stored: int) -> dict[str, Any]:
    """The units, and the flows between the rows that the drawing begins with."""
    att = flows[0].att
    names = [_unit_name(att, tokens) for tokens in units.members]
    edges = max(1, min(2 * stored, _MOST_ROW_EDGES // len(flows)))
    return {
        "kind": units.kind,
        "members": units.members,
        "names": [shortened(name, _LONGEST_NAME) or "␣" for name in names],
        "labels": [shortened(name, _UNIT_LABEL) or "␣" for name in names],
        "rows": [len(row) for row in units.rows],
        "methods": row_data(flows, units.groups, edges),
    }


def _unit_name(att: Attribution, tokens: Group) -> str:
    """The characters of a unit."""
    segment = att.segments[tokens[0]]
    if segment < 0:
        return att.tokens[tokens[0]]
    start = min(att.offsets[token][0] for token in tokens)
    end = max(att.offsets[token][1] for token in tokens)
    source = (att.text, att.text_pair or "")[segment]
    return source[start:end]


def _opened_data(flows: Sequence[DrawnFlow], units: Units, most: int) -> dict[str, Any]:
    """The flows of opened rows, those with most flow first, as many as fit; and how much flow the others carry."""
    keys, weights = _that_open(units, _weights(flows))
    largest_first = np.argsort(-weights, kind="stable")[:_OPENED_ROWS].tolist()
    groupings = [_opened_groups(units, keys[index]) for index in largest_first]
    bytes_per_flow = most // (max(len(groupings), 1) * len(flows))
    stored = max(_FEWEST_OPENED_EDGES, min(bytes_per_flow // _BYTES_PER_EDGE - 200, _DRAWN_ROW_EDGES))
    opened: dict[str, Any] = {}
    size = 0
    for index, groups, row_flows in zip(largest_first, groupings, _solve(flows, groupings), strict=True):
        methods = [_row_data(drawn, groups, row_flows, stored) for drawn in flows]
        size += len(json.dumps(methods, separators=(",", ":")))
        if size > most:
            break
        opened[keys[index]] = methods
    left_out = [weight for key, weight in zip(keys, weights, strict=True) if key.startswith("u") and key not in opened]
    share = sum(left_out) / max(weights[[key.startswith("u") for key in keys]].sum(), 1e-300)
    return {"opened": opened, "left_out": _left_out_note(len(left_out), share, units.kind)}


def _that_open(units: Units, weights: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The keys of rows of several units ("r" and the row) and of units of several tokens ("u" and the unit)."""
    keys = []
    weight_of = []
    for row, row_units in enumerate(units.rows):
        if len(row_units) > 1:
            keys.append(f"r{row}")
            weight_of.append(weights[list(units.tokens_of(row_units))].sum())
    for unit, tokens in enumerate(units.members):
        if len(tokens) > 1:
            keys.append(f"u{unit}")
            weight_of.append(weights[list(tokens)].sum())
    return keys, np.array(weight_of)


def _opened_groups(units: Units, key: str) -> list[Group]:
    number = int(key[1:])
    return units.opened_row(number) if key.startswith("r") else units.opened_unit(number)


def _solve(flows: Sequence[DrawnFlow], groupings: Sequence[Sequence[Group]]) -> Sequence[RowFlows]:
    """Every flow between the rows of every grouping."""
    solved: list[dict[int, RowFlow]] = [{} for _ in groupings]
    for drawn in flows:
        for flow in (drawn.scored.flow, drawn.scored.flow_against):
            if flow is None or (solved and id(flow) in solved[0]):
                continue
            for row_flows, row_flow in zip(solved, flows_between(flow, groupings), strict=True):
                row_flows[id(flow)] = row_flow
    return solved


def _row_data(drawn: DrawnFlow, groups: Sequence[Group], row_flows: RowFlows, stored: int) -> dict[str, Any]:
    """What the script needs of one flow between rows."""
    att = drawn.att
    data: dict[str, Any] = {"scores": _six_digits(_row_scores(drawn.scored, groups, row_flows)), "value": 0.0}
    if att.flow is None:
        layers = None if att.layers is None else added_up(att.layers, groups)
        data["caption"] = _no_edges_caption(att)
        data["edges"] = []
    else:
        row_flow = row_flows[id(att.flow)]
        layers = row_flow.graph.through
        selection = row_flow.graph.strongest(stored, complete_paths=True)
        data["edges"] = _edge_data(selection, float(layers[0].sum()))
        data["caption"] = _rows_caption(att.flow, row_flow, selection, min(_DRAWN_ROW_EDGES, stored))
    data["layers"] = []
    if layers is not None:
        data["value"] = float(layers[0].sum())
        data["layers"] = [_millionths(layer, data["value"]) for layer in layers]
    return data


def _row_scores(att: Attribution, groups: Sequence[Group], row_flows: RowFlows) -> np.ndarray:
    """The scores of rows: those of the flow between them, or else the sums of their tokens' scores."""
    if att.flow is None or not row_flows[id(att.flow)].solved:
        return added_up(att.scores, groups)
    through = row_flows[id(att.flow)].graph.through
    if att.flow_against is not None:
        through = through - row_flows[id(att.flow_against)].graph.through
    return layer_scores(through, 0 if att.layer is None else att.layer)


# Captions


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


def _rows_caption(flow: Flow, row_flow: RowFlow, stored_edges: EdgeSelection, drawn: int) -> str:
    """Which network is drawn, how good its flow is, and how much of it is shown."""
    if row_flow.solved:
        value = float(row_flow.graph.through[0].sum())
        solved = f"Solved between these rows: flow {value:.4g} ({flow.value.item():.4g} between tokens)"
        network = f"{solved}, {_certified(row_flow.certificate)}."
    else:
        network = "The flow between tokens, added up between these rows; its capacities are not known."
    edges = _edges_caption(stored_edges, drawn).replace("Point at a token", "Point at a row")
    return f"{network} {edges}"


def _certified(certificate: Certificate) -> str:
    if certificate.dead:
        return "no path leads from the output to the input"
    error = max(certificate.conservation, certificate.dual, certificate.centrality)
    return f"{'certified' if certificate.converged else 'not certified'}: solved to {error:.0e}"


def _left_out_note(count: int, share: float, kind: UnitKind) -> str:
    """Which units the page cannot open."""
    if not count:
        return ""
    noun = kind if count == 1 else f"{kind}s"
    return f"{count} {noun} with {share:.1%} of the flow cannot be opened on this page, to keep it small."
