"""Flow diagrams: node layers in columns, the input at the left; tokens in rows; the wider an edge, the more it carries.

Everything can be told apart in black and white: strong edges are wide and dark, routes are double lines with numbers,
the edges of a minimum cut are crossed. Where two flows are compared, edges that carry more are outlined, and edges that
carry less are dashed.

The convention this file owns: **widths are proportional to amounts** within a figure, except hairlines, which carry
less than they look.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gaflow.arguments import checked, whole_number
from gaflow.attribution.attribution import Attribution
from gaflow.errors import Argument, ArgumentError, ArgumentTypeError, MissingExtraError
from gaflow.flow.arguments import as_networks, only_network
from gaflow.flow.maxflow.min_cut import MinCut, min_cut
from gaflow.flow.paper_algorithms import check_direction
from gaflow.flow.result import Flow
from gaflow.flow.routes import Route
from gaflow.flow.routes import routes as widest_routes
from gaflow.plots.elements import summary_remarks
from gaflow.plots.figure import fit_text
from gaflow.plots.flow.frame import draw_diagram
from gaflow.plots.flow.strokes import LABEL_WIDTH, Diagram
from gaflow.view.flow_graph import EdgeSelection, Graph
from gaflow.view.shades import NEGATIVE_COLOUR, POSITIVE_COLOUR
from gaflow.view.summary import summarize

_DRAWN_EDGES = 400


@checked
def flow_diagram(
    flow: Flow | Attribution,
    tokens: Sequence[str] | None = None,
    *,
    edges: int = _DRAWN_EDGES,
    routes: int | Iterable[Route] = 3,
    cut: MinCut | bool | None = None,
    against: Flow | None = None,
    direction: str = "backward",
    terminals: bool = False,
    values: bool = False,
    title: str = "",
    axes: Axes | None = None,
) -> Figure:
    """A figure of how much each token passes on to each other token, layer by layer.

    `flow` is one flow of `solve` or `max_flow`, or an attribution. The strongest `edges` are drawn, and the caption
    says how much they carry. `routes` highlights the widest routes: a number of them, or what `gaflow.routes`
    returned. The edges of the minimum cut are crossed if the flow knows its capacities and OR-Tools is installed;
    `cut` is one that `gaflow.min_cut` returned, True to require it, or False for none. `against` is another flow of
    the same network: edges that carry more than there are orange, those that carry less blue and dashed. `direction`
    is that of the arrows, "forward" for Algorithm 2. `terminals` adds super-source and super-target, and `values`
    writes the amounts at the edges. The diagram is drawn into `axes`, if given. Returns the figure.

        plots.flow_diagram(explainer("a gripping film.", "agf")).savefig("flow.svg")
    """
    check_direction(direction)
    whole_number("edges", edges)
    facts: list[str] = []
    special: frozenset[int] = frozenset()
    if isinstance(flow, Attribution):
        summary = summarize(flow)
        facts = summary_remarks(summary)
        if flow.flow_against is not None:
            facts.append("drawn: the flow for, not the flow against")
        tokens = tokens or flow.tokens
        special = frozenset(np.flatnonzero(flow.special_mask).tolist())
        title = title or summary.headline
        if flow.flow is None:
            reason = "has no flow" if flow.layers is None else "was made without keeping its flow"
            raise ArgumentError(
                Argument("flow"),
                f": the attribution by {flow.method} {reason}; take a flow method such as agf, with ",
                Argument("keep_flow", True),
            )
        flow = flow.flow
    graph = Graph.of(flow)
    other = graph if against is None else Graph.of(against, "against")
    if other.edges.shape != graph.edges.shape:
        message = f" has edges {other.edges.shape}, flow has {graph.edges.shape}: they must be of one network"
        raise ArgumentError(Argument("against"), message)
    names = _names(tokens, graph)
    if isinstance(routes, int):
        routes = widest_routes(flow, routes)
    drawn_routes = list(routes)
    _check_routes(drawn_routes, graph)
    min_cut_of_flow, no_cut_reason = _find_cut(flow, cut)

    selection = graph.strongest(edges, other.edges)
    captions = ["nothing flows"]
    if graph.edges.any():
        captions = [f"the wider, the more flow; {selection.describe('flow')}"]
    if against is not None:
        captions.append(
            f"{POSITIVE_COLOUR} with an outline: more than in the other flow; {NEGATIVE_COLOUR} dashes: less"
        )
    if drawn_routes:
        captions.append(_routes_caption(drawn_routes, names))
    crossed = None
    if min_cut_of_flow is not None:
        crossed = _crossed(min_cut_of_flow, selection)
        captions.append(_cut_caption(min_cut_of_flow, int(crossed.sum())))
    if no_cut_reason:
        captions.append(f"the minimum cut is not marked: {no_cut_reason}")
    diagram = Diagram(
        selection=selection,
        other=other,
        names=names,
        special=special,
        forward=direction == "forward",
        terminals=terminals,
        values=values,
        title=title,
        facts=facts,
        caption="; ".join(captions),
        routes=[route.tokens for route in drawn_routes],
        crossed=crossed,
    )
    return draw_diagram(diagram, axes)


@checked
def network_diagram(
    information: Any,
    tokens: Sequence[str] | None = None,
    *,
    edges: int = _DRAWN_EDGES,
    direction: str = "backward",
    terminals: bool = True,
    returning: bool = False,
    values: bool = False,
    title: str = "",
    axes: Axes | None = None,
) -> Figure:
    """A figure of the network that Algorithm 1 ("backward") or 2 ("forward") builds of a tensor (l, t, t).

    The wider an edge, the larger its capacity. `terminals` adds super-source and super-target, `returning` the edge
    from the one back to the other that makes a circulation of it. The other arguments are those of `flow_diagram`.
    """
    check_direction(direction)
    whole_number("edges", edges)
    capacities = only_network(as_networks(information), "network_diagram").cpu().numpy()
    layers, t, _ = capacities.shape
    ends = np.full((2, t), float(t))
    graph = Graph(edges=capacities, ends=ends, through=np.ones((layers + 1, t)), is_flow=False)
    selection = graph.strongest(edges)
    terminals = terminals or returning
    caption = f"the wider, the more capacity; {selection.describe('capacity')}"
    if terminals:
        caption += f"; dashed: edges of the terminals, capacity {t} each"
    diagram = Diagram(
        selection=selection,
        other=graph,
        names=_names(tokens, graph),
        forward=direction == "forward",
        terminals=terminals,
        values=values,
        title=title,
        caption=caption,
        returning=returning,
    )
    return draw_diagram(diagram, axes)


def _find_cut(flow: Flow, cut: MinCut | bool | None) -> tuple[MinCut | None, str]:
    """The minimum cut to mark; if it should be marked but cannot, the reason."""
    if isinstance(cut, MinCut):
        return cut, ""
    if cut is False:
        return None, ""
    cannot_have_one = flow.capacity is None or bool(flow.certificate.dead[0])
    if cut is None and cannot_have_one:
        return None, ""
    try:
        return min_cut(flow), ""
    except (MissingExtraError, ValueError) as error:
        if cut:
            raise
        return None, str(error)


def _names(tokens: Sequence[str] | None, graph: Graph) -> list[str]:
    t = graph.edges.shape[-1]
    if tokens is None:
        return [str(index) for index in range(t)]
    if len(tokens) != t:
        raise ArgumentError(Argument("tokens"), f" must name each of the {t} tokens, not {len(tokens)}")
    return [str(token) for token in tokens]


def _check_routes(routes: Sequence[Route], graph: Graph) -> None:
    layers, t = graph.through.shape
    for route in routes:
        if not isinstance(route, Route):
            raise ArgumentTypeError(Argument("routes"), f" must be what gaflow.routes returned, not {route!r}")
        if len(route.tokens) != layers or not all(0 <= token < t for token in route.tokens):
            message = f" has {route.tokens}, which does not lead through {layers} node layers of {t} tokens"
            raise ArgumentError(Argument("routes"), message)


def _routes_caption(routes: Sequence[Route], names: Sequence[str]) -> str:
    captions = []
    for number, route in enumerate(routes, 1):
        token = fit_text(names[route.tokens[0]], 8, LABEL_WIDTH)
        captions.append(f"{number} “{token}” {route.share:.1%}")
    return f"{POSITIVE_COLOUR}, at one width: the widest routes, {', '.join(captions)} of the flow"


def _cut_caption(cut: MinCut, drawn: int) -> str:
    if cut.dead or cut.bottleneck is None:
        return "no minimum cut: there is no path"
    layers = f"between layers {cut.bottleneck + 1} and {cut.bottleneck}"
    share = cut.share[cut.bottleneck + 1].item()
    if share < 1:
        layers = f"{share:.1%} of it {layers}"
    edges = f"{len(cut.edges):,} edges of capacity {cut.value:.4g}"
    return f"crossed: the minimum cut, {edges}, {layers} ({drawn:,} drawn)"


def _crossed(cut: MinCut, selection: EdgeSelection) -> np.ndarray:
    """Which of the drawn edges are in the cut, (m,) bool; a cut of another network is refused."""
    graph = selection.graph
    nodes = tuple(cut.side.shape)
    if nodes != graph.through.shape:
        message = f" is of a network of {nodes} nodes, the flow of {graph.through.shape}"
        raise ArgumentError(Argument("cut"), message)
    in_cut = np.zeros(graph.edges.shape, dtype=bool)
    for edge in cut.edges:
        in_cut[edge.layer, edge.i, edge.j] = True
    return in_cut[selection.layer, selection.i, selection.j]
