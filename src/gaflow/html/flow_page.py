"""The flow of one text as an interactive page: point at a token to see where its flow goes, layer by layer.

`flow_page` makes one file that needs nothing outside it. Python writes the text, the tables and the data
(`flow_drawing`); the script (static/flow.js) draws the flow from the data. Without JavaScript the page shows the shaded
text and the tables. For a token, the script shows the *proportional split*: flow that enters or leaves a node is
divided as the edges there are,

    part[l+1, i] = sum_j part[l, j] f[l, i, j] / through[l, j]      (towards the output; likewise towards the input)

over the stored edges. Flow on other edges is missing from that, and the page says how much it is.

Long texts are drawn by words or sentences. The page holds the flows of as many opened rows as fit into a number of
bytes, and says how much flow the others carry.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gaflow.arguments import checked, location, one_of, whole_number
from gaflow.attribution.words import UNITS, Unit
from gaflow.errors import Argument, ArgumentError
from gaflow.files import write_atomically
from gaflow.html.document import document, render, static
from gaflow.html.flow_drawing import DrawnFlow, drawing_data, drawn_flows, legends
from gaflow.view.shades import LEVELS
from gaflow.view.summary import Attributions, of_same_text, summarize
from gaflow.view.text import shortened

STORED_EDGES = 1800  # of a method, besides a path from each token at either end to the other
_STORED_EDGES_IN_ALL = 3600  # of all methods together, likewise
_OPENED_BYTES = 480_000  # of JSON, for opened rows
_LISTED_TOKENS = 1200  # rows in the token tables of all methods: if there are more, only the first method has a table


@checked
def flow_page(
    attributions: Attributions, path: str | Path | None = None, *, edges: int = STORED_EDGES, unit: Unit | None = None
) -> str:
    """An interactive page about the flow of one text, by one method or by several to switch between.

    A text of more than 64 tokens is drawn by its words or sentences: the network is contracted to them and solved
    again, and each of them can be opened. `unit` asks for "token", "word" or "sentence" instead.

    The strongest `edges` of every flow are stored (fewer if there are many methods), equally many in each layer, and
    the page says how much they carry. Methods without a flow show their scores. The page is also written to `path`, if
    given.

        flow_page(explainer.compare("a gripping film.", methods=["agf", "relevance_flow"]), "flow.html")
    """
    flows = checked_flows(attributions, edges, unit)
    html = _document(flows, stored_edges(flows, edges), unit)
    if path is not None:
        write_atomically(location("path", path), html.encode())
    return html


def checked_flows(attributions: Attributions, edges: int, unit: Unit | None) -> list[DrawnFlow]:
    """The flows of attributions of one text, those with most to draw first; refuses what cannot be drawn."""
    whole_number("edges", edges)
    if unit is not None:
        one_of("unit", unit, tuple(UNITS))
    named = of_same_text(attributions)
    if all(att.layers is None for _, att in named):
        methods = ", ".join(dict.fromkeys(att.method for _, att in named))
        advice = "take a flow method such as agf, or gaflow.html.page for scores"
        raise ArgumentError(Argument("attributions"), f" have no flow (nothing flows by {methods}); {advice}")
    flows = []
    for name, att in named:
        flows += sorted(drawn_flows([(name, att)]), key=_value, reverse=True)  # one of two sides may be 0
    flows.sort(key=lambda drawn: drawn.att.layers is None)  # methods with a flow come first
    return flows


def stored_edges(flows: Sequence[DrawnFlow], edges: int) -> int:
    """How many edges of each flow are stored."""
    with_edges = sum(drawn.att.flow is not None for drawn in flows)
    return min(edges, _STORED_EDGES_IN_ALL // max(with_edges, 1))


def _value(drawn: DrawnFlow) -> float:
    return 0.0 if drawn.att.flow is None else drawn.att.flow.value.item()


def _document(flows: Sequence[DrawnFlow], stored: int, unit: Unit | None) -> str:
    summaries = [summarize(drawn.att, drawn.name) for drawn in flows]
    first = summaries[0]
    positive, signed = legends(first)
    body = render(
        "flow.html",
        summaries=summaries,
        legend=signed if first.signed else positive,
        levels=LEVELS,
        list_all_tokens=len(first.att.tokens) * len(summaries) <= _LISTED_TOKENS,
        data=drawing_data(flows, stored, unit=unit, opened_bytes=_OPENED_BYTES),
    )
    title = f"{first.label}: the flow of {shortened(first.att.text)}"
    script = static("flow.js") + static("flow_start.js")
    return document(title, body, kind="flow", sheets=("flow.css",), script=script)
