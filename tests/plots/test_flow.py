import re
import sys
from dataclasses import replace
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.artist import Artist
from matplotlib.collections import Collection, PathCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

import gaflow
from gaflow import plots
from gaflow.plots.figure import shade_colour
from gaflow.plots.flow.strokes import Layout
from gaflow.view.flow_graph import Graph
from gaflow.view.shades import LEVELS
from tests.support.attributions import make, make_flow
from tests.support.models import SENTENCE
from tests.support.pictures import assert_stands_apart, text_of, written

pytestmark = pytest.mark.slow


def network(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def graph_of(edges):
    edges = np.asarray(edges, dtype=float)
    ends = edges.shape[-1]
    return Graph(edges, np.zeros((2, ends)), np.zeros((len(edges) + 1, ends)))


def strokes(figure, tone=None):
    """Widths of all curves, or of those in one colour."""
    linewidths = []
    for collection in figure.findobj(PathCollection):
        if len(collection.get_facecolor()) == 0:  # nodes are filled
            widths = np.broadcast_to(collection.get_linewidth(), len(collection.get_paths()))
            tones = np.broadcast_to(collection.get_edgecolor()[:, :3], (len(collection.get_paths()), 3))
            linewidths += [w for w, c in zip(widths, tones, strict=True) if tone is None or np.allclose(c, tone)]
    return np.array(linewidths)


def caption(figure):
    return " ".join(written(figure))


@pytest.mark.parametrize(
    ("t", "length", "layers"),
    [(3, 6, 1), (3, 40, 24), (12, 8, 12), (12, 40, 6), (40, 8, 24), (128, 8, 12), (300, 5, 1)],
)
def test_nothing_is_clipped_or_hidden_at_any_size(t, length, layers):
    assert_stands_apart(plots.flow_diagram(text_of(t, length, layers)))


def test_every_token_is_named_at_both_ends_while_there_is_room_and_then_the_strongest():
    att = text_of(128, layers=2)
    lines = written(plots.flow_diagram(att))
    assert all(lines.count(token) >= 2 for token in att.tokens)
    att = text_of(400, layers=1)
    lines = written(plots.flow_diagram(att))
    assert 50 < sum(token in lines for token in att.tokens) < 400
    assert att.tokens[int(att.scores.argmax())] in lines


def test_the_strongest_edges_of_every_layer_are_kept():
    edges = network(3, 5, 5).numpy()
    selection = graph_of(edges).strongest(30)
    for k in range(3):
        in_layer = selection.layer == k
        expected = np.sort(edges[k].ravel())[-10:]
        np.testing.assert_array_equal(np.sort(selection.amount[in_layer]), expected)
        np.testing.assert_array_equal(
            edges[k, selection.i[in_layer], selection.j[in_layer]], selection.amount[in_layer]
        )
        assert selection.layer_shares()[k] == pytest.approx(expected.sum() / edges[k].sum())
    assert (np.diff(selection.amount) >= 0).all()
    assert selection.share() == pytest.approx(selection.amount.sum() / edges.sum())
    assert not selection.is_complete


def test_edges_without_flow_are_neither_shown_nor_counted():
    edges = np.zeros((2, 3, 3))
    edges[:, 0, 1] = 2.0
    selection = graph_of(edges).strongest(400)
    assert selection.is_complete
    assert selection.describe("flow") == "all 2 edges with flow"
    assert graph_of(np.zeros((2, 3, 3))).strongest(400).amount.size == 0


def test_the_caption_says_how_much_the_shown_edges_carry():
    flow = gaflow.solve(network(4, 20, 20))
    edges = flow.edges[0].numpy()
    strongest = np.sort(edges.reshape(4, -1))[:, -25:]
    lines = caption(plots.flow_diagram(flow, edges=100))
    assert re.search(f"100 strongest of 1,600 .* {strongest.sum() / edges.sum():.1%} ", lines)
    for k in range(4):
        assert f"{strongest[k].sum() / edges[k].sum():.0%}" in lines.split()
    everything = caption(plots.flow_diagram(flow, edges=1600))
    assert "all 1,600 edges with flow" in everything
    assert "drawn" not in everything.replace("(", " ").split()


def test_widths_are_in_proportion_to_flows():
    edges = np.zeros((1, 8, 8))
    edges[0, 0, :3] = [1.0, 2.0, 4.0]
    flow = replace(make_flow(8, 1), edges=torch.tensor(edges[None]))
    widths = np.sort(strokes(plots.flow_diagram(flow, routes=0)))
    np.testing.assert_allclose(widths / widths[-1], [0.25, 0.5, 1.0])


def test_routes_may_come_one_by_one_but_nothing_else_may():
    flow = gaflow.solve(network(3, 6, 6))
    names = list("abcdef")
    together = plots.flow_diagram(flow, names, routes=gaflow.routes(flow, 2))
    one_by_one = plots.flow_diagram(flow, names, routes=iter(gaflow.routes(flow, 2)))
    assert written(one_by_one) == written(together)
    unreadable: list[Any] = [1, "ab", None, (0, 1)]
    for strange in unreadable:
        with pytest.raises(gaflow.ArgumentTypeError, match="routes"):
            plots.flow_diagram(flow, routes=iter([strange]))


def test_the_widest_routes_are_drawn_and_told():
    flow = gaflow.solve(network(3, 6, 6))
    names = list("abcdef")
    figure = plots.flow_diagram(flow, names, routes=2)
    assert len(strokes(figure, shade_colour(LEVELS))) == 2 * 3
    for k, route in enumerate(gaflow.routes(flow, 2), 1):
        assert f"{k} “{names[route.tokens[0]]}” {route.share:.1%}" in caption(figure)
        assert str(k) in written(figure)
    other_figure = plots.flow_diagram(flow, names, routes=gaflow.routes(flow, 2))
    assert written(other_figure) == written(figure)
    assert len(strokes(plots.flow_diagram(flow, routes=0), shade_colour(LEVELS))) == 0


def test_the_edges_of_a_minimum_cut_are_crossed():
    information = network(3, 6, 6)
    information[1] /= 10  # the bottleneck
    cut = gaflow.min_cut(information)
    figure = plots.flow_diagram(gaflow.solve(information), cut=cut)
    crosses: Any = [c for c in figure.findobj(PathCollection) if c.get_zorder() == 5]
    assert [len(c.get_offsets()) for c in crosses] == [36, 36]  # white below black
    assert re.search(rf"cut.* 36 edges .*{cut.value:.4g}, .*layers 2 and 1 \(36 ", caption(figure))
    few = caption(plots.flow_diagram(gaflow.solve(information), cut=cut, edges=30))
    assert "36 edges" in few
    assert "(10 drawn)" in few


def test_the_minimum_cut_is_found_where_it_can_be(monkeypatch):
    information = network(3, 6, 6)
    flow = gaflow.solve(information)
    other_figure = plots.flow_diagram(flow, cut=gaflow.min_cut(information))
    assert written(plots.flow_diagram(flow)) == written(plots.flow_diagram(flow, cut=True)) == written(other_figure)
    for other, choice in ((flow, False), (replace(flow, capacity=None), None)):
        assert "minimum cut" not in caption(plots.flow_diagram(other, cut=choice))
    with pytest.raises(ValueError, match="capacities"):
        plots.flow_diagram(replace(flow, capacity=None), cut=True)
    bound = gaflow.solve(information, terminal=0.01)
    assert re.search("minimum cut is not .*terminals", caption(plots.flow_diagram(bound)))
    monkeypatch.setitem(sys.modules, "ortools.graph.python", None)
    assert "minimum cut is not" not in caption(plots.flow_diagram(flow))
    without_potentials = replace(flow, potentials=None)
    assert "minimum cut is not" in caption(plots.flow_diagram(without_potentials))
    with pytest.raises(gaflow.MissingExtraError):
        plots.flow_diagram(without_potentials, cut=True)


def test_a_cut_over_several_layers_says_how_much_lies_in_the_narrowest():
    information = torch.zeros(2, 2, 2, dtype=torch.float64)
    information[0, 0, 0], information[1, 0, 0] = 1.0, 9.0
    information[0, 1, 1], information[1, 1, 1] = 9.0, 3.0
    cut = gaflow.min_cut(information)
    text = caption(plots.flow_diagram(gaflow.solve(information), cut=cut))
    assert re.search("2 edges .* 4, 75.0% .*layers 2 and 1", text)


def test_two_flows_of_one_network_are_told_apart_by_colour_and_dashes():
    information = network(4, 3, 3, seed=1)
    one, two = gaflow.max_flow(information), gaflow.max_flow(information, direction="forward")
    difference = (one.edges - two.edges)[0].numpy()
    assert (abs(difference) > 1e-6).any()
    figure = plots.flow_diagram(one, against=two, routes=0)
    assert len(strokes(figure, shade_colour(LEVELS))) == (difference > 1e-6).sum()
    assert len(strokes(figure, shade_colour(-LEVELS))) == (difference < -1e-6).sum()
    curves: Any = figure.findobj(PathCollection)
    dashed = [c for c in curves if c.get_linestyle()[0][1] is not None and len(c.get_paths())]
    assert sum(len(c.get_paths()) for c in dashed) == (difference < -1e-6).sum()
    ends = np.concatenate([(one.source - two.source)[0].numpy(), (one.target - two.target)[0].numpy()])
    assert (ends > 1e-6).any()
    assert (ends < -1e-6).any()
    both = plots.flow_diagram(one, against=two, routes=0, terminals=True)
    for sign in (1, -1):
        assert len(strokes(both, shade_colour(sign * LEVELS))) == sum(
            (sign * x > 1e-6).sum() for x in (difference, ends)
        )
    same = plots.flow_diagram(one, against=one, routes=0, terminals=True)
    assert len(strokes(same, shade_colour(LEVELS))) == len(strokes(same, shade_colour(-LEVELS))) == 0


def test_arrows_point_the_way_of_the_algorithm():
    for direction, sign in (("backward", -1), ("forward", 1)):
        figure = plots.network_diagram(network(1, 2, 2), direction=direction, terminals=False)
        collections: Any = figure.findobj(PolyCollection)
        (tips,) = [c for c in collections if len(c.get_paths())]
        for path in tips.get_paths():
            tip, *base = path.vertices[:3]
            assert np.sign(tip[0] - np.mean(base, 0)[0]) == sign


def test_terminals_change_places_with_the_direction():
    for direction, left in (("backward", "target"), ("forward", "source")):
        figure = plots.network_diagram(network(2, 3, 3), direction=direction)
        places = {t.get_text(): t.get_position()[0] for t in figure.axes[0].texts}
        right = {"target": "source", "source": "target"}[left]
        assert places[left] < places[right]
        assert "capacity 3 each" in caption(figure)
        assert_stands_apart(figure)


def test_the_return_edge_can_be_drawn():
    figure = plots.network_diagram(network(2, 3, 3), returning=True)
    assert "return edge, cost -1" in written(figure)
    assert_stands_apart(figure)
    assert len(strokes(figure)) == 2 * 9 + 2 * 3
    assert len(figure.findobj(FancyArrowPatch)) == 1
    assert len(strokes(plots.network_diagram(network(2, 3, 3), terminals=False))) == 2 * 9


def test_values_are_the_flows_themselves():
    flow = gaflow.max_flow(torch.round(network(2, 3, 3), decimals=2))
    lines = written(plots.flow_diagram(flow, values=True, terminals=True, routes=0))
    amounts = [*flow.edges.flatten().tolist(), *flow.source.flatten().tolist(), *flow.target.flatten().tolist()]
    for amount in amounts:
        assert amount == 0 or f"{amount:.4g}" in lines


def test_any_number_of_edges_makes_few_artists():
    small, large = (plots.flow_diagram(gaflow.solve(network(2, t, t)), edges=10**6) for t in (6, 40))
    counts = [len([a for a in f.findobj(Artist) if isinstance(a, Collection)]) for f in (small, large)]
    assert counts[1] <= counts[0] < 20


def test_an_attribution_brings_its_tokens_title_and_facts():
    att = text_of(6)
    lines = written(att.plot_flow(routes=1))
    assert lines[0] == "positive 87.5%"
    assert "agf" in lines[1]
    assert lines == written(plots.flow_diagram(att, routes=1))
    assert {*att.tokens} <= {*lines}


def test_a_flow_of_nothing_can_be_drawn():
    dead = gaflow.solve(torch.zeros(2, 3, 3))
    assert "nothing flows" in caption(plots.flow_diagram(dead, cut=gaflow.min_cut(torch.zeros(2, 3, 3))))
    assert "all 0 edges with capacity" in caption(plots.network_diagram(torch.zeros(2, 3, 3)))


def test_it_can_be_drawn_into_axes_of_a_figure_of_ones_own():
    with matplotlib.rc_context():
        figure = Figure(figsize=(8, 4), dpi=100)
    axes = figure.subplots(1, 2)
    flow = gaflow.solve(network(2, 4, 4))
    for panel in axes:
        assert plots.flow_diagram(flow, title="one of two", axes=panel) is figure
        assert panel.get_xlim()[0] == 0
        assert len(panel.collections)
    tiny = Figure(figsize=(0.2, 0.2)).subplots()
    with pytest.raises(ValueError, match=r"axes.*2 layers of 4 tokens"):
        plots.flow_diagram(flow, axes=tiny)


def test_places_go_from_left_to_right_and_from_top_to_bottom():
    layout = Layout(left=10, top=20, column=30, row=5, last=2, tokens=4)
    assert [layout.points(layer, 0).tolist() for layer in range(3)] == [[10, 20], [40, 20], [70, 20]]
    assert [layout.points(0, token).tolist() for token in range(4)] == [[10, 20], [10, 25], [10, 30], [10, 35]]
    np.testing.assert_allclose(layout.points(np.array([0, 2]), np.array([3, 1])), [(10, 35), (70, 25)])
    assert layout.terminal(output=False).tolist() == [10 - 0.8 * 30, 27.5]
    assert layout.terminal(output=True).tolist() == [70 + 0.8 * 30, 27.5]
    assert layout.bottom == 47


def test_what_cannot_be_drawn_is_refused():
    flow = gaflow.solve(network(2, 2, 3, 3))
    one = flow[0]
    with pytest.raises(ValueError, match=r"batch of 2.*flow\[0\]"):
        plots.flow_diagram(flow)
    with pytest.raises(TypeError, match="flow must be"):
        plots.flow_diagram(flow.edges)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"tokens.* 3 .* 2"):
        plots.flow_diagram(one, ["a", "b"])
    with pytest.raises(ValueError, match=r"edges must be .* >= 1, not 0"):
        plots.flow_diagram(one, edges=0)
    with pytest.raises(ValueError, match=r"direction.*'up'"):
        plots.flow_diagram(one, direction="up")
    with pytest.raises(ValueError, match="network"):
        plots.flow_diagram(one, against=gaflow.solve(network(3, 3, 3)))
    with pytest.raises(ValueError, match="3 node layers"):
        plots.flow_diagram(one, routes=gaflow.routes(gaflow.solve(network(3, 3, 3)), 1))
    with pytest.raises(ValueError, match="cut"):
        plots.flow_diagram(one, cut=gaflow.min_cut(network(3, 3, 3)))
    with pytest.raises(ValueError, match="batch of 2"):
        plots.network_diagram(network(2, 2, 3, 3))


def test_an_attribution_without_a_flow_says_what_to_do():
    with pytest.raises(ValueError, match=r"ig.*flow"):
        make(SENTENCE, flow=False, method="ig").plot_flow()
    with pytest.raises(ValueError, match="keep_flow=True"):
        replace(make(SENTENCE), flow=None).plot_flow()
