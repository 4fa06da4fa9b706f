"""What a Newton step does on single edges, and that every edge takes part in it."""

from dataclasses import replace
from decimal import Decimal, localcontext

import pytest
import torch

from gaflow.flow.barrier.edges import MAX_WEIGHT_GROWTH, MIN_SHARE_LEFT, Edges
from gaflow.flow.barrier.state import State
from gaflow.flow.network import LayeredNetwork


def some_edges(count: int = 200) -> tuple[Edges, torch.Tensor]:
    """Edges anywhere between empty and full, the first one dead, and reduced costs of either sign."""
    generator = torch.Generator().manual_seed(3)
    capacity, share, cost = (torch.rand(1, count, generator=generator, dtype=torch.float64) for _ in range(3))
    capacity[0, 0] = 0
    edges = Edges.start(capacity, torch.full((1, 1), 1e-9, dtype=torch.float64))
    edges.flow.copy_(capacity * share)
    edges.slack.copy_(capacity - edges.flow)
    edges.weight.fill_(1e30)  # grows no more
    return edges, (cost - 0.5) * 1e-3


def linearized(edges: Edges, cost: torch.Tensor, *, first: bool = False, subtraction_free: bool = False) -> None:
    level = torch.tensor([1e-6], dtype=torch.float64)
    edges.linearize(cost.clone(), level, level / 5, first=first, subtraction_free=subtraction_free)


@pytest.mark.parametrize("subtraction_free", [False, True])
def test_weight_and_residual_are_those_of_the_multipliers_that_the_potentials_imply(subtraction_free):
    edges, cost = some_edges()
    linearized(edges, cost, subtraction_free=subtraction_free)
    for k in range(1, cost.shape[1]):
        with localcontext() as context:
            context.prec = 40
            u, f, g, s = (Decimal(float(x[0, k])) for x in (edges.capacity, edges.flow, edges.slack, cost))
            least = Decimal("1e-6") / u
            root = (least**2 + s**2 / 4).sqrt()
            d = (least + root + s / 2) * g + (least + root - s / 2) * f
            weight, residual = f * g / d, (Decimal("2e-7") * (g - f) - f * g * s) / d
        assert float(edges.weight[0, k]) == pytest.approx(float(weight), rel=1e-9)
        assert float(edges.residual[0, k]) == pytest.approx(float(residual), rel=1e-9, abs=1e-20)


def single_edge(capacity: float, flow: float) -> Edges:
    """One edge with a weight that grows no more."""
    edges = Edges.start(torch.tensor([[capacity]], dtype=torch.float64), torch.tensor([[1e-30]], dtype=torch.float64))
    edges.flow.fill_(flow)
    edges.slack.fill_(capacity - flow)
    edges.weight.fill_(1e300)
    return edges


@pytest.mark.parametrize(
    ("cost", "subtraction_free", "residual"),
    [(5e-22, True, 0), (5e-22, False, -5e-16), (2e-21, True, -2e-15), (2e-21, False, -2e-15)],
)
def test_only_without_subtractions_is_a_residual_below_the_rounding_error_of_its_flow_nothing(
    cost, subtraction_free, residual
):
    edges = single_edge(2.0, 1.0)  # its weight is f g / (2 mu), and its residual the weight times the cost
    level = torch.tensor([5e-7], dtype=torch.float64)
    costs = torch.tensor([[cost]], dtype=torch.float64)
    edges.linearize(costs, level, level, first=False, subtraction_free=subtraction_free)
    assert edges.residual.item() == pytest.approx(residual, rel=1e-12, abs=0)


def test_without_subtractions_the_weight_of_a_nearly_empty_edge_that_should_be_full_keeps_every_digit():
    edges = single_edge(1.0, 1e-18)
    level = torch.tensor([1e-20], dtype=torch.float64)
    edges.linearize(torch.tensor([[-0.5]], dtype=torch.float64), level, level, first=False, subtraction_free=True)
    # the multipliers of a reduced cost of -1/2 and mu = 1e-20 are v = 1/2 + mu and z = mu, but for squares of mu
    scale = 1e-20 * 1.0 + 0.5 * 1e-18
    assert edges.weight.item() == pytest.approx(1e-18 / scale, rel=1e-13)


def test_in_the_first_step_multipliers_are_those_of_flow_and_slack():
    edges, cost = some_edges()
    linearized(edges, cost, first=True)
    flow, slack, cost = (values[:, 1:] for values in (edges.flow, edges.slack, cost))
    before = 1e-6
    scale = before / flow * slack + before / slack * flow
    weight = flow * slack / scale
    torch.testing.assert_close(edges.weight[:, 1:], weight, rtol=1e-12, atol=0)
    residual = weight * (2e-7 / flow - 2e-7 / slack - cost)
    torch.testing.assert_close(edges.residual[:, 1:], residual, rtol=1e-9, atol=1e-15)


def test_a_dead_edge_has_no_weight_and_never_moves():
    edges, cost = some_edges()
    for first in (True, False):
        linearized(edges, cost, first=first)
        assert edges.weight[0, 0] == edges.residual[0, 0] == 0
        assert edges.step(torch.ones_like(cost))[0, 0] == 0
        assert edges.flow[0, 0] == edges.slack[0, 0] == 0


def test_a_step_leaves_a_share_of_every_flow_and_slack_and_tells_which_edges_wanted_more():
    edges, cost = some_edges()
    linearized(edges, cost)
    flow, slack = edges.flow.clone(), edges.slack.clone()
    difference = torch.where(torch.arange(200) % 2 == 0, 1e-2, -1e-2).double()[None]
    full_step = edges.residual - edges.weight * difference
    short = edges.step(difference.clone())
    change = full_step.clamp(-(1 - MIN_SHARE_LEFT) * flow, (1 - MIN_SHARE_LEFT) * slack)
    torch.testing.assert_close(edges.flow, flow + change, rtol=1e-12, atol=0)
    torch.testing.assert_close(edges.slack, slack - change, rtol=1e-9, atol=1e-18)
    assert torch.equal(short > 0, (full_step - change).abs() > 1e-12 * full_step.abs())
    assert 0 < short.sum() < 200


def test_a_weight_grows_to_a_multiple_of_itself_at_most():
    edges, cost = some_edges()
    linearized(edges, cost)
    free = edges.weight.clone()
    edges.weight.mul_(1e-3)
    linearized(edges, cost)
    torch.testing.assert_close(edges.weight, free * 1e-3 * MAX_WEIGHT_GROWTH, rtol=1e-12, atol=0)


def started(top: int, *, weighted: bool = False) -> State:
    """Two networks of three layers and five tokens, the first `top` of which are read."""
    information = torch.rand(2, 3, 5, 5, generator=torch.Generator().manual_seed(1)) + 0.1
    information[:, -1, top:] = 0
    network = LayeredNetwork.build(information)
    one = torch.ones(2, dtype=torch.float64)
    return State.start(network, one, 1e-3 * one, range(2), 5, weighted=weighted, subtraction_free=False)


@pytest.mark.parametrize("top", [1, 4, 5])
def test_the_output_nodes_that_are_alive_end_where_no_item_has_another(top):
    assert started(top).top == top


@pytest.mark.parametrize(("mu", "floats"), [([1e-20, 1e-20], 2), ([1e-20, 1e-21], 3), ([1e-30, 1e-30], 3)])
def test_potentials_have_a_third_float_where_some_item_has_a_tiny_mu(mu, floats):
    network = LayeredNetwork.build(torch.ones(2, 3, 5, 5))
    one = torch.ones(2, dtype=torch.float64)
    target = torch.tensor(mu, dtype=torch.float64)
    state = State.start(network, one, target, range(2), 5, weighted=False, subtraction_free=False)
    assert state.node.shape == (floats, 2, 21)


def test_before_the_first_step_no_edge_was_cut_short():
    assert started(5).cut_short.tolist() == [0, 0]


@pytest.mark.parametrize("size", [1, 7, 10, 20, 40, 50, 99, 100, 171])
@pytest.mark.parametrize("top", [1, 4, 5])
def test_a_group_holds_no_more_edges_than_allowed_or_those_of_one_tail(size, top):
    state = replace(started(top), group_edges=size)
    of_one_tail = 2 * 5  # two items, five heads
    for group, edges in state.groups():
        assert group.outer == (group.stop == 0)
        assert group.outer or edges.capacity.numel() <= max(size, of_one_tail)


def test_edges_that_just_fit_are_one_group():
    state = started(4)
    edges = state.edges.capacity.numel()
    assert edges == 2 * (3 * 5 * 5 + 2 * 5 + 1)
    ((group, _),) = replace(state, group_edges=edges).groups()
    assert (group.start, group.stop, group.outer, group.columns) == (0, 15, True, slice(0, 86))
    assert len(list(replace(state, group_edges=edges - 1).groups())) > 1


@pytest.mark.parametrize("size", [1, 7, 40, 100, 250, 10**6])
@pytest.mark.parametrize("top", [1, 4, 5])
def test_groups_hold_every_live_edge_once(size, top):
    state = replace(started(top), group_edges=size)
    counts = torch.zeros_like(state.edges.capacity)
    for group, edges in state.groups():
        assert edges.capacity.shape == counts[:, group.columns].shape
        counts[:, group.columns] += 1
    assert torch.equal(counts[state.edges.capacity > 0], torch.ones_like(counts)[state.edges.capacity > 0])
    assert counts.max() == 1


@pytest.mark.parametrize("size", [1, 7, 40, 100, 250])
@pytest.mark.parametrize("top", [1, 4, 5])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_at_the_nodes_do_not_depend_on_the_groups(size, top, weighted):
    together = started(top, weighted=weighted)
    grouped = replace(started(top, weighted=weighted), group_edges=size)
    change = torch.rand(1, 2, 21, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 1e-2
    for _ in range(2):  # the first step is another
        expected = together.linearize()
        together.step(change)
        actual = grouped.linearize()
        grouped.step(change)
        for name in vars(expected):
            torch.testing.assert_close(getattr(actual, name), getattr(expected, name), rtol=1e-13, atol=1e-15)
        torch.testing.assert_close(grouped.cut_short, together.cut_short, rtol=0, atol=0)
        torch.testing.assert_close(grouped.edges.variables, together.edges.variables, rtol=1e-12, atol=1e-15)
    flow = together.edges.variables[1]
    layers = flow[:, :75].view(2, 3, 5, 5)
    source, target = flow[:, 75:80], flow[:, 80:85]
    entering = torch.cat([layers.sum(-2).flatten(1), source, flow[:, 85:]], 1)
    leaving = torch.cat([target, layers.sum(-1).flatten(1), source.sum(-1, keepdim=True)], 1)
    torch.testing.assert_close(
        together.linearize().max_imbalance, (leaving - entering).abs().amax(-1), rtol=1e-12, atol=0
    )
