"""Flow diagrams: node layers in columns, the input at the left; tokens in rows; the wider an edge, the more it carries.

In a colourless print everything can still be told apart: strong edges are wide and dark, routes are drawn as double
lines with numbers, the edges of a minimum cut are crossed, what is more than in another flow is outlined, what is less
dashed.

The convention this file owns: **widths are proportional to amounts** within a figure, but for hairlines, which are
less than they look.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from gaflow.errors import MissingExtraError
from gaflow.flow.arguments import as_networks
from gaflow.flow.maxflow.min_cut import MinCut, min_cut
from gaflow.flow.paper_algorithms import check_direction
from gaflow.flow.result import Flow
from gaflow.flow.routes import Route
from gaflow.flow.routes import routes as widest_routes
from gaflow.plots.figure import facts, fitted, name_of
from gaflow.plots.flow.frame import LABEL, Drawing
from gaflow.plots.flow.strokes import Pen
from gaflow.view.flow_graph import EdgeSelection, Graph

if TYPE_CHECKING:
    from gaflow.attribution.attribution import Attribution

__all__ = ["flow_diagram", "network_diagram"]

MOST = 400  # edges


def flow_diagram(
    flow: Flow | Attribution,
    tokens: Sequence[str] | None = None,
    *,
    edges: int = MOST,
    routes: int | Iterable[Route] = 3,
    cut: MinCut | bool | None = None,
    against: Flow | None = None,
    direction: str = "backward",
    terminals: bool = False,
    values: bool = False,
    title: str = "",
    axes: Axes | None = None,
) -> Any:
    """Who passes how much on to whom: one flow, from `solve` or `max_flow`, or that of an attribution.

    The strongest `edges` are drawn, and the caption says how much they carry. `routes` highlights the widest ones (so
    many, or what `gaflow.routes` gave). The edges of the minimum cut are crossed, where the flow knows its capacities
    and OR-Tools is installed; `cut` is one that `gaflow.min_cut` gave, or True to insist, or False for none. `against`
    is another flow of the same network: edges that carry more than there are orange, those that carry less blue and
    dashed. `direction` is that of the arrows, "forward" for Algorithm 2; `terminals` adds super-source and
    super-target, and `values` writes the amounts at the edges. Drawn into `axes`, if given, otherwise into a figure of
    its own; gives the figure.
    """
    check_direction(direction)
    flow, tokens, special, title, below = _unpack(flow, tokens, title)
    graph, beside = Graph.of(flow), None if against is None else Graph.of(against, "against")
    other = None if beside is None else beside.edges
    if other is not None and other.shape != graph.edges.shape:
        raise ValueError(f"against has edges {other.shape}, flow has {graph.edges.shape}: they must be of one network")
    ways = list(widest_routes(flow, routes)) if isinstance(routes, int) else list(routes)
    cut, missing = _cut_of(flow, cut)
    _check(graph, ways, cut, edges)
    shown, names = graph.strongest(edges, other), _names(tokens, graph)
    said = [f"the wider, the more flow; {shown.describe('flow')}" if graph.edges.any() else "nothing flows"]
    if other is not None:
        said.append("orange with an outline: more than in the other flow; blue dashes: less")
    if ways:
        said.append(_say_routes(ways, names))
    if cut is not None:
        said.append(_say_cut(cut, shown))
    if missing:
        said.append(missing)

    def strokes(pen: Pen) -> None:
        pen.edges(shown, other)
        pen.nodes(graph.through)
        pen.routes([way.tokens for way in ways])
        if cut is not None:
            pen.crosses(*_crossed(cut, shown))

    about = (special, direction, terminals, values, False, title, below, "; ".join(said), beside)
    return Drawing(graph, shown, names, *about).on(axes, strokes)


def network_diagram(
    information: Any,
    tokens: Sequence[str] | None = None,
    *,
    edges: int = MOST,
    direction: str = "backward",
    terminals: bool = True,
    returning: bool = False,
    values: bool = False,
    title: str = "",
    axes: Axes | None = None,
) -> Any:
    """The network that Algorithm 1 ("backward") or 2 ("forward") builds of one information tensor (l, t, t).

    The wider an edge, the larger its capacity. `terminals` adds super-source and super-target, `returning` the edge
    from the one back to the other that makes a circulation of it; the rest is as in `flow_diagram`.
    """
    check_direction(direction)
    networks = as_networks(information)
    if len(networks) != 1:
        raise ValueError(f"network_diagram takes one network (l, t, t), not a batch of {len(networks)}: index it first")
    given = networks[0].cpu().numpy()
    graph = Graph(given, None, None, np.ones((len(given) + 1, given.shape[-1])))
    _check(graph, [], None, edges)
    shown, names = graph.strongest(edges), _names(tokens, graph)
    said = f"the wider, the more capacity; {shown.describe('capacity')}"
    terminals = terminals or returning
    if terminals:
        said += f"; dashed: edges of the terminals, capacity {given.shape[-1]} each"

    def strokes(pen: Pen) -> None:
        pen.edges(shown)
        pen.nodes(None)

    plain = np.zeros(len(names), dtype=bool)
    about = (plain, direction, terminals, values, returning, title, "", said)
    return Drawing(graph, shown, names, *about).on(axes, strokes)


def _unpack(
    given: Flow | Attribution, tokens: Sequence[str] | None, title: str
) -> tuple[Flow, Sequence[str] | None, np.ndarray, str, str]:
    """Flow, tokens, which of them are special, title and what stands below it."""
    if isinstance(given, Flow) or not hasattr(given, "special_mask"):
        t = given.edges.shape[-1] if isinstance(given, Flow) else 0
        return given, tokens, np.zeros(t, dtype=bool), title, ""  # type: ignore[return-value]
    if given.flow is None:
        why = "has no flow" if given.layers is None else "was made without keeping its flow"
        raise ValueError(
            f"the attribution by {given.method} {why}; take a flow method such as agf, with keep_flow=True"
        )
    below = facts(given) + (" · drawn: the flow for, not that against" if given.flow_against is not None else "")
    return given.flow, tokens or given.tokens, given.special_mask, title or name_of(given), below


def _cut_of(flow: Flow, cut: MinCut | bool | None) -> tuple[MinCut | None, str]:
    """The minimum cut to mark, and if one should be marked but cannot, why."""
    if not isinstance(cut, bool) and cut is not None:
        return cut, ""
    if cut is False or (cut is None and (flow.capacity is None or bool(flow.certificate.dead[0]))):
        return None, ""
    try:
        return min_cut(flow), ""
    except (MissingExtraError, ValueError) as error:
        if cut:
            raise
        return None, f"the minimum cut is not marked: {error}"


def _names(tokens: Sequence[str] | None, graph: Graph) -> list[str]:
    t = graph.edges.shape[-1]
    names = [str(k) for k in range(t)] if tokens is None else [str(token) for token in tokens]
    if len(names) != t:
        raise ValueError(f"tokens must name each of the {t} tokens, not {len(names)}")
    return names


def _check(graph: Graph, ways: Sequence[Route], cut: MinCut | None, edges: int) -> None:
    layers, t, _ = graph.edges.shape
    if edges < 1:
        raise ValueError(f"edges must be at least 1, not {edges}")
    for way in ways:
        if len(way.tokens) != layers + 1 or not all(0 <= k < t for k in way.tokens):
            raise ValueError(f"the route {way.tokens} does not lead through {layers + 1} node layers of {t} tokens")
    if cut is not None and tuple(cut.side.shape) != (layers + 1, t):
        raise ValueError(f"cut is of a network of {tuple(cut.side.shape)} nodes, the flow of {(layers + 1, t)}")


def _say_routes(ways: Sequence[Route], names: Sequence[str]) -> str:
    each = [f"{k} “{fitted(names[way.tokens[0]], 8, LABEL)}” {way.share:.1%}" for k, way in enumerate(ways, 1)]
    return f"orange, at one width: the widest routes, {', '.join(each)} of the flow"


def _say_cut(cut: MinCut, shown: EdgeSelection) -> str:
    if cut.dead or cut.bottleneck is None:
        return "no minimum cut: there is no path"
    crossed = len(_crossed(cut, shown)[0])
    place = f"between layers {cut.bottleneck + 1} and {cut.bottleneck}"
    part = cut.share[cut.bottleneck + 1].item()
    where = place if part == 1 else f"{part:.1%} of it {place}"
    return (
        f"crossed: the minimum cut, {len(cut.edges):,} edges of capacity {cut.value:.4g}, {where} ({crossed:,} drawn)"
    )


def _crossed(cut: MinCut, shown: EdgeSelection) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The drawn edges that are in the cut: layer, i, j."""
    members = {(edge.layer, edge.i, edge.j) for edge in cut.edges}
    every = zip(shown.layer.tolist(), shown.i.tolist(), shown.j.tolist(), strict=True)
    mine = np.array([edge in members for edge in every], dtype=bool)
    return shown.layer[mine], shown.i[mine], shown.j[mine]
