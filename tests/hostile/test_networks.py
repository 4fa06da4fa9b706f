"""Networks made to break the solver: any numbers that float64 holds, up to 600 decades apart."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gaflow.errors import ArgumentError
from gaflow.flow.barrier.solve import BARRIERS, Barrier, solve
from gaflow.flow.result import Flow
from tests.support.exact import exact_flow
from tests.support.problems import path

pytestmark = pytest.mark.slow

KINDS = ("flat", "graded", "denormal", "layered", "bottleneck", "equal", "single_path", "ranked_nodes", "two_sizes")
LARGEST = 1e304  # sums of larger capacities overflow, which is refused
SERIES = [
    1.5209238252661108e-27,
    7.12461769580841e-08,
    4.66161796043401e27,
    138240,
    11475615744,
    2.8537731133079455e-23,
]


def make_network(kind: str, layers: int, tokens: int, decades: float, seed: int) -> np.ndarray:
    """Capacities (l, t, t) over up to `decades` orders of magnitude; some are missing, and often all but one output."""
    rng = np.random.default_rng(seed)
    shape = (layers, tokens, tokens)
    uniform = rng.random(shape)
    capacity = KIND_MAKERS[kind](rng, uniform, decades)
    capacity = np.minimum(capacity, LARGEST)
    if rng.random() < 0.3:
        capacity = capacity * (rng.random(shape) < 0.6)
    if rng.random() < 0.2:
        capacity[-1, 1:] = 0
    return capacity


def _layered(rng: np.random.Generator, uniform: np.ndarray, decades: float) -> np.ndarray:
    exponents = rng.uniform(-decades / 2, decades / 2, size=(len(uniform), 1, 1))
    return uniform * 10.0**exponents


def _bottleneck(rng: np.random.Generator, uniform: np.ndarray, decades: float) -> np.ndarray:
    capacity = uniform.copy()
    capacity[rng.integers(len(capacity))] *= 10.0 ** -min(decades, 300)
    return capacity


def _single_path(rng: np.random.Generator, uniform: np.ndarray, decades: float) -> np.ndarray:
    layers, tokens, _ = uniform.shape
    capacity = uniform * 10.0**-decades
    nodes = rng.integers(tokens, size=layers + 1)
    exponents = rng.uniform(-decades / 2, decades / 2, size=layers)
    capacity[np.arange(layers), nodes[1:], nodes[:-1]] = 10.0**exponents
    return capacity


def _ranked_nodes(rng: np.random.Generator, uniform: np.ndarray, decades: float) -> np.ndarray:
    layers, tokens, _ = uniform.shape
    exponents = rng.uniform(-decades / 4, decades / 4, size=(layers + 1, tokens))
    return uniform * 10.0 ** (exponents[1:, :, None] + exponents[:-1, None, :])


KIND_MAKERS: dict[str, Callable[[np.random.Generator, np.ndarray, float], np.ndarray]] = {
    "flat": lambda rng, uniform, decades: uniform,
    "graded": lambda rng, uniform, decades: 10.0 ** (decades * (uniform - 0.5)),
    "denormal": lambda rng, uniform, decades: rng.choice([5e-324, 1e-310, 2.3e-308, 1e-150, 1.0], size=uniform.shape),
    "layered": _layered,
    "bottleneck": _bottleneck,
    "equal": lambda rng, uniform, decades: np.full_like(uniform, 10.0 ** rng.uniform(-decades / 2, decades / 2)),
    "single_path": _single_path,
    "ranked_nodes": _ranked_nodes,
    "two_sizes": lambda rng, uniform, decades: np.where(uniform < 0.5, 1.0, 10.0 ** -min(decades, 300)),
}


def networks(max_layers: int = 8, max_tokens: int = 12, max_decades: float = 600) -> st.SearchStrategy[np.ndarray]:
    return st.builds(
        make_network,
        kind=st.sampled_from(KINDS),
        layers=st.integers(1, max_layers),
        tokens=st.integers(1, max_tokens),
        decades=st.sampled_from([0.0, 8.0, 30.0, 60.0, 100.0, 300.0, 600.0]).filter(lambda x: x <= max_decades),
        seed=st.integers(0, 2**32 - 1),
    )


barriers = st.sampled_from(BARRIERS)
epsilons = st.sampled_from([1e-6, 1e-6, 1e-12, 1e-9, 1e-3, 10.0])


def assert_certified(flow: Flow, capacity: np.ndarray, epsilon: float) -> None:
    """The flow fits its capacities, is conserved, and is as near to its own bound as was asked for."""
    assert flow.converged.all()
    through = flow.through()
    rounding = 1e-9 * flow.value + 1e-320  # denormal numbers have few digits
    assert ((through.sum(-1) - flow.value[:, None]).abs() <= rounding[:, None]).all()
    assert (flow.edges >= 0).all()
    assert (flow.edges.numpy() <= capacity * (1 + 1e-12)).all()
    certificate = flow.certificate
    assert (certificate.gap <= epsilon * certificate.kappa * (1 + 1e-6) + rounding).all()


@given(networks(), barriers, epsilons)
@example(np.reshape(SERIES, (6, 1, 1)), "capacity", 1e-6)
@example(make_network("layered", 5, 5, 80.0, 14), "capacity", 1e-6)
@example(make_network("graded", 5, 5, 300.0, 3), "uniform", 1e-12)
@example(make_network("denormal", 3, 3, 0.0, 1), "capacity", 1e-3)
@example(
    np.array([[[1.0, 0.0], [0.0, 1e-48]], [[1e-48, 0.0], [0.0, 1.0]], [[1.0, 1e-48], [1.0, 0.0]]]), "capacity", 1e-12
)
def test_every_network_is_solved(capacity, barrier, epsilon):
    flow = solve(capacity, barrier=barrier, epsilon=epsilon)
    assert_certified(flow, capacity, epsilon)


@given(networks(max_layers=4, max_tokens=4), barriers, epsilons)
@example(np.array([[[1.0, 0.0], [0.0, 1e-150]], [[1e-150, 0.0], [0.0, 1.0]]]), "uniform", 1e-6)
def test_the_value_is_within_epsilon_kappa_of_the_maximum_flow(capacity, barrier, epsilon):
    flow = solve(capacity, barrier=barrier, epsilon=epsilon)
    certificate = flow.certificate[0]
    largest = exact_maximum_flow(capacity)
    rounding = 1e-10 * largest + 1e-320
    lost = certificate.negligible * 1e-100 * narrowest_layer(capacity)
    assert largest - epsilon * certificate.kappa - rounding - lost <= flow.value.item() <= largest + rounding
    assert certificate.cut >= largest - rounding - lost


def narrowest_layer(capacity: np.ndarray) -> float:
    """The least capacity of a layer, over the edges that lie on a path from the output to the input."""
    layers, tokens, _ = capacity.shape
    positive = capacity > 0
    reached = np.ones((layers + 1, tokens), dtype=bool)
    reaching = reached.copy()
    for k in range(layers):
        reaching[k + 1] = (positive[k] & reaching[k]).any(1)
    for k in reversed(range(layers)):
        reached[k] = (positive[k] & reached[k + 1, :, None]).any(0)
    live = positive & reached[1:, :, None] & reaching[:-1, None, :]
    return float((capacity * live).sum((1, 2)).min())


def exact_maximum_flow(capacity: np.ndarray) -> float:
    """The maximum flow of one network (l, t, t) in rational numbers."""
    layers, tokens, _ = capacity.shape
    graph = nx.DiGraph()
    for k, i, j in np.argwhere(capacity > 0).tolist():
        graph.add_edge((k + 1, i), (k, j), capacity=Fraction(capacity[k, i, j]))
    for token in range(tokens):
        graph.add_edge("source", (layers, token))
        graph.add_edge((0, token), "target")
    return float(nx.maximum_flow_value(graph, "source", "target"))


@given(networks(max_layers=3, max_tokens=3, max_decades=60), barriers, epsilons)
def test_every_edge_agrees_with_high_precision(capacity, barrier, epsilon):
    assume(capacity[capacity > 0].min(initial=1.0) > 1e-290)
    flow = solve(capacity, barrier=barrier, epsilon=epsilon)
    expected = exact_flow(capacity, barrier=barrier, epsilon=epsilon, digits=20)
    error = np.abs(flow.edges[0].numpy() - expected.edges).max()
    assert error <= 1e-9 * expected.value


@given(st.lists(st.floats(-80, 80), min_size=1, max_size=8), barriers, epsilons)
@example([-26.8, -7.1, 27.7, 5.1, 10.1, -22.5], "capacity", 1e-6)
def test_a_series_of_edges_has_the_flow_of_its_one_equation(exponents, barrier, epsilon):
    capacities = [10.0**exponent for exponent in exponents]
    expected = path("series", capacities, barrier=barrier, epsilon=epsilon)
    flow = solve(expected.information, **expected.settings)
    assert flow.value.item() == pytest.approx(expected.value, rel=1e-9)


@given(st.lists(networks(max_layers=1, max_tokens=1), min_size=2, max_size=5), barriers, epsilons)
def test_single_edges_of_a_batch_do_not_disturb_each_other(capacities, barrier, epsilon):
    assert_batch_equals_alone(np.stack(capacities), barrier, epsilon)


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 2**32 - 1)), min_size=2, max_size=4),
    st.integers(1, 4),
    st.integers(1, 4),
    barriers,
    epsilons,
)
def test_a_hostile_neighbour_in_the_batch_changes_nothing(items, layers, tokens, barrier, epsilon):
    batch = [make_network(kind, layers, tokens, 100.0, seed) for kind, seed in items]
    assert_batch_equals_alone(np.stack(batch), barrier, epsilon)


def assert_batch_equals_alone(batch: np.ndarray, barrier: Barrier, epsilon: float) -> None:
    together = solve(batch, barrier=barrier, epsilon=epsilon)
    for item, capacity in enumerate(batch):
        alone = solve(capacity, barrier=barrier, epsilon=epsilon)
        error = (together.edges[item] - alone.edges[0]).abs().max()
        assert error <= 1e-8 * alone.value.item() + 1e-320


@given(networks(max_layers=4, max_tokens=4, max_decades=60), barriers, st.integers(-30, 30))
def test_scale_in_is_scale_out(capacity, barrier, exponent):
    flow = solve(capacity, barrier=barrier)
    assume(flow.value.item() > 2e-290)
    scaled = solve(capacity * 2.0**exponent, barrier=barrier)
    torch.testing.assert_close(scaled.edges, flow.edges * 2.0**exponent, rtol=0, atol=1e-8 * scaled.value.item())


@given(networks(max_layers=4, max_tokens=4, max_decades=30), barriers)
def test_single_precision_is_solved_as_the_numbers_that_it_holds(capacity, barrier):
    single = torch.as_tensor(capacity, dtype=torch.float32)
    flow = solve(single, barrier=barrier)
    assert torch.equal(flow.edges, solve(single.double(), barrier=barrier).edges)


@pytest.mark.parametrize("barrier", BARRIERS)
@pytest.mark.parametrize(("share", "negligible"), [(1.01e-100, 0), (0.99e-100, 1)])
def test_capacities_are_dropped_below_the_limit_that_is_promised(barrier, share, negligible):
    flow = solve([[[0.5, share], [0.0, 0.5]]], barrier=barrier)
    assert flow.certificate.negligible.item() == negligible
    assert (flow.edges[0, 0, 0, 1] > 0).item() == (not negligible)


@pytest.mark.parametrize("barrier", BARRIERS)
def test_capacities_above_the_limit_that_is_promised_count_as_the_limit(barrier):
    def series(width: float) -> Flow:
        return solve([[[1.0, 0.0], [0.0, 1.0]], [[width, width], [1.0, 1.0]]], barrier=barrier)

    assert torch.equal(series(1e299).edges, series(1e120).edges)
    settings: Any = {"barrier": barrier, "epsilon": 1e-3}
    assert solve([[[1.0]], [[1e300]]], **settings).value.item() == pytest.approx(1.0, rel=1e-2)


def test_a_flow_below_the_limit_of_every_layer_counts_as_none():
    crossing = torch.tensor([[[1.0, 0.0], [0.0, 1e-120]], [[1e-120, 0.0], [0.0, 1.0]]], dtype=torch.float64)
    flow = solve(crossing)
    assert flow.certificate.dead.item()
    assert flow.certificate.negligible.item() == 2


def test_a_sum_that_overflows_is_refused():
    with pytest.raises(ArgumentError) as refusal:
        solve(torch.full((2, 2, 2), 1e308, dtype=torch.float64))
    assert refusal.value.argument == "information"


@pytest.mark.parametrize("barrier", BARRIERS)
@pytest.mark.parametrize("settings", [{"epsilon": 1e-100}, {"mu": 1e-200}, {"epsilon": 1e100}, {"mu": 1e150}])
def test_any_sharpness_is_solved(barrier, settings):
    capacity = make_network("flat", 3, 4, 0.0, 5)
    flow = solve(capacity, barrier=barrier, **settings)
    assert flow.converged.all()


@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
@pytest.mark.parametrize("terminal", [1e-100, 1e-50, 1e50, 1e100])
def test_terminals_may_be_far_narrower_or_wider_than_the_edges(barrier, terminal):
    flow = solve(torch.ones(2, 3, 3, dtype=torch.float64), terminal=terminal, barrier=barrier)
    assert flow.converged.all()
    assert flow.value.item() == pytest.approx(min(3 * terminal, 9), rel=1e-5)
