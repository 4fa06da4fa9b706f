"""The flow of one text as a page to play with: point at a token to see where its flow goes, layer by layer.

`flow_page` makes one file that needs nothing outside it. Without its script it shows text and drawing as they are; with
it, tokens answer to pointer and keyboard, layers can be stepped through and methods switched. What the script shows of
a token is the *proportional split*: what leaves or enters a node is divided as the edges there are,

    part[l+1, i] = sum_j part[l, j] f[l, i, j] / through[l, j]      (towards the output; likewise towards the input)

over the shown edges, so that what goes by edges that are not shown is what is missing, and is told. A signed method has
two flows, for and against, which can be switched between like methods; the scores are those of both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gaflow.files import write_atomically
from gaflow.html.attribution import View, certificate, flags, headline, level_class, safe, shortened, text, tokens
from gaflow.html.document import document, static
from gaflow.html.flow_svg import Lines, Place, drawing, label, millionths
from gaflow.html.pages import named
from gaflow.methods.base import AGAINST
from gaflow.view.flow_graph import Graph
from gaflow.view.shades import LEVELS, number_format, visible

if TYPE_CHECKING:
    from gaflow.attribution.attribution import Attribution

__all__ = ["flow_page"]

MOST = 1800  # edges of a method, besides a way from each token at either end to the other
STILL = 600  # edges that are drawn before a token is pointed at
_ALL = 3600  # edges of all methods together, in the same way
_NAMED = 5  # tokens at the other end that are named
_LISTED = 1200  # rows of the tables of all methods: if there are more, only the first has one


def flow_page(
    attributions: Attribution | Iterable[Attribution] | Mapping[str, Attribution],
    path: str | Path | None = None,
    *,
    edges: int = MOST,
) -> str:
    """An interactive page about the flow of one text, by one method or by several that can be switched between.

    Of every flow the strongest `edges` are kept (fewer if there are many methods), equally many in each layer, and the
    page says how much they carry. Methods without a flow show their scores. It is also written to `path`, if given.
    """
    if isinstance(edges, bool) or not isinstance(edges, int) or edges < 1:
        raise ValueError(f"edges must be a whole number of at least 1, not {edges!r}")
    found = named(attributions)
    first = found[0][1]
    if any((att.text, att.text_pair, att.tokens) != (first.text, first.text_pair, first.tokens) for _, att in found):
        raise ValueError("the attributions are of different texts; make a page for each text")
    if all(att.layers is None for _, att in found):
        methods = ", ".join(dict.fromkeys(att.method for _, att in found))
        raise ValueError(f"nothing flows by {methods}; take a flow method such as agf, or gaflow.html.page for scores")
    found = [side for name, att in found for side in _sides(name, att)]
    found.sort(key=lambda pair: pair[1].layers is None)  # what can be shown best comes first
    flows = sum(att.flow is not None for _, att in found)
    most = min(edges, _ALL // max(flows, 1))
    made = _document(found, most)
    if path is not None:
        write_atomically(Path(path), made.encode())
    return made


def _sides(name: str, att: Attribution) -> list[tuple[str, Attribution]]:
    """A signed attribution as two, each with one flow and what goes through its nodes; any other as it is."""
    if att.flow is not None and att.flow_against is not None:
        flows = [(f"{name}, for", att.flow), (f"{name}, against", att.flow_against)]
        flows.sort(key=lambda side: -side[1].value.item())  # nothing may flow for or against
        return [(n, replace(att, flow=flow, flow_against=None, layers=flow.through()[0].numpy())) for n, flow in flows]
    return [
        (name, replace(att, layers=None) if AGAINST in att.diagnostics else att)
    ]  # no nodes of what two flows leave


def _document(found: list[tuple[str, Attribution]], most: int) -> str:
    views = [View.of(name, att, "token") for name, att in found]
    view, att = views[0], views[0].att
    methods = [_method(name, each, most) for name, each in found]
    lines = _lines(att, methods[0])
    place = Place.of(lines.labels, max(len(m["layers"]) - 1 for m in methods))
    few = len(att.tokens) * len(views) <= _LISTED
    data = {
        "tokens": [visible(token) for token in att.tokens],
        "labels": list(lines.labels),
        "special": [int(s) for s in lines.special],
        "runs": [run.tokens for each in view.runs for run in each],
        "levels": LEVELS,
        "still": STILL,
        "place": place.to_dict(),
        "methods": methods,
    }
    inside = "".join(
        [
            *(
                f'<div data-method="{k}"{" hidden" if k else ""}>{headline(v, "h1")}{flags(v.att)}</div>\n'
                for k, v in enumerate(views)
            ),
            _controls(views),
            _legend(view),
            text(view),
            f'<p class="says" aria-live="polite">{_says(att, min(STILL, most))}</p>\n',
            f'<div class="scroll">\n{drawing(lines.only(STILL), place)}</div>\n',
            _HELP,
            *(f'<div class="method" data-method="{k}">{_about(v, k == 0 or few)}</div>\n' for k, v in enumerate(views)),
            f'<script type="application/json" id="flow-data">{_json(data)}</script>\n',
        ]
    )
    title = f"{att.label}: the flow of {shortened(att.text)}"
    return document(title, inside, kind="flow", sheets=("flow.css",), script=static("flow.js"))


def _method(name: str, att: Attribution, most: int) -> dict[str, Any]:
    """What the script knows of a method; numbers are those of the result, to six digits."""
    value = 0.0 if att.layers is None else float(att.layers[0].sum())
    made: dict[str, Any] = {
        "name": visible(name),
        "label": visible(att.label),
        "scores": [float(f"{score:.6g}") for score in att.scores.tolist()],
        "value": value,
        "layers": [] if att.layers is None else [millionths(row, value) for row in att.layers],
        "edges": [],
        "ends": [],
        "says": _says(att, min(STILL, most), most),
    }
    if att.flow is not None:
        graph = Graph.of(att.flow)
        shown = graph.strongest(most, ways=True)
        for k in range(att.flow.edges.shape[1]):
            mine = shown.layer == k
            amounts = millionths(shown.amount[mine], value, digits=4)
            ends = zip(shown.i[mine].tolist(), shown.j[mine].tolist(), amounts, strict=True)
            made["edges"].append([x for edge in ends for x in edge])
        if not shown.all:
            made["ends"] = _ends(graph)
    return made


def _says(att: Attribution, drawn: int, kept: int = 0) -> str:
    """What is drawn, and what the script can draw of a token besides."""
    if att.certificate is None:
        return "This method has no flow: the bars are its scores."
    if att.flow is None:
        what = "bars only" if att.layers is None else "nodes and bars only"
        advice = "" if "windows" in att.diagnostics else " Explain again with keep_flow=True for the edges."
        return f"The flow was not kept: {what}.{advice}"
    graph = Graph.of(att.flow)
    shown = graph.strongest(drawn)
    says = shown.says("flow") if shown.amount.any() else "nothing flows"
    said = f"The wider, the more flow; {says}."
    if shown.all or not kept:
        return said
    more = graph.strongest(kept, ways=True)
    if more.all:
        return f"{said} Point at a token to see all of its edges."
    among = f"the {len(more.amount):,} that are kept, which carry {more.share():.1%} of the flow"
    return f"{said} Point at a token to see its own among {among}."


def _ends(graph: Graph) -> list[list[list[float]]]:
    """Where the flow of each input token reaches the output, and that of each output token the input, by all edges.

    For every token the largest of the other end as index, millionths of its own flow, index, ...
    """
    up = down = np.eye(graph.edges.shape[-1])
    for edges in graph.edges:  # column j: what part of j's inflow comes from i
        up = up @ _shares(edges.T)
    for edges in graph.edges[::-1]:  # row i: what part of i's outflow goes to j
        down = down @ _shares(edges)
    return [[_largest(row) for row in parts] for parts in (up, down)]


def _shares(edges: np.ndarray) -> np.ndarray:
    total = edges.sum(1, keepdims=True)
    return edges / np.where(total > 0, total, 1.0)


def _largest(parts: np.ndarray) -> list[float]:
    order = np.argsort(-parts, kind="stable")[:_NAMED]
    return [x for k in order.tolist() if (part := round(1e6 * float(parts[k]))) for x in (k, part)]


def _lines(att: Attribution, method: dict[str, Any]) -> Lines:
    special = tuple(bool(s) for s in att.special_mask)
    labels = tuple(label(token) for token in att.tokens)
    layers, edges = (tuple(map(tuple, method[name])) for name in ("layers", "edges"))
    return Lines(labels, special, tuple(att.scores.tolist()), layers, edges)


def _controls(views: list[View]) -> str:
    """What the script works with; hidden until it does."""
    options = "".join(f'<option value="{k}">{safe(view.name)}</option>' for k, view in enumerate(views))
    single = " hidden" if len(views) == 1 else ""
    return (
        f'<div class="controls" hidden>\n<label{single}>Method <select class="choose">{options}</select></label>\n'
        '<span class="steps" role="group" aria-label="Layer"><button type="button" class="back">◀ '
        '<span>layer below</span></button><output class="layer">all layers</output><button type="button" class="on">'
        '<span>layer above</span> ▶</button><button type="button" class="all">all layers</button></span>\n</div>\n'
    )


_HELP = (
    '<p class="help note" hidden>Point at a token, a node or a word of the text to see where its flow goes; click to '
    "keep it. Keys: ↑ ↓ other tokens, ← → other layers, Esc everything again.</p>\n"
)


def _legend(view: View) -> str:
    """The shades, as `markup.legend` shows them, with places for the script to write in."""
    form = number_format(view.largest)
    cells = [f'<i class="{level_class(k)}"></i>' if k else "<i></i>" for k in range(-LEVELS, LEVELS + 1)]
    below, above = "".join(cells[:LEVELS]), "".join(cells[LEVELS:])
    hidden = "" if view.signed else " hidden"
    strip = f'<span class="strip below" aria-hidden="true"{hidden}>{below}</span>'
    low = form(-view.largest) if view.signed else "0"
    return (
        f'<p class="legend"><span class="scale"><span class="low">{low}</span> {strip}<span class="strip" '
        f'aria-hidden="true">{above}</span> <span class="high">{form(view.largest)}</span></span> <span class="of">'
        "score per token; the stronger the shade, the larger; blue with a dashed line: below 0</span></p>\n"
    )


def _about(view: View, listed: bool) -> str:
    return f"<h2><bdi>{safe(view.name)}</bdi></h2>\n" + certificate(view.att) + (tokens(view) if listed else "")


def _json(data: Any) -> str:
    """JSON that can stand inside a script element: it holds no character that could end it."""
    made = json.dumps(data, separators=(",", ":"), allow_nan=False, default=_plain)
    return made.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain(value: Any) -> Any:
    if isinstance(value, np.integer | np.floating):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
