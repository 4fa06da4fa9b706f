"""Routes: against the enumeration of all routes, against hand-made flows, and against the flow they add up to."""

import itertools
import math
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from gaflow.flow.barrier.solve import solve
from gaflow.flow.maxflow.max_flow import max_flow
from gaflow.flow.result import Flow
from gaflow.flow.routes import Route, Routes, routes
from tests.support.networks import random_attention


def widest_by_enumeration(edges: np.ndarray, source: np.ndarray, target: np.ndarray) -> float:
    layers, t, _ = edges.shape
    return max(
        min(source[r[-1]], target[r[0]], *(edges[k, r[k + 1], r[k]] for k in range(layers)))
        for r in itertools.product(range(t), repeat=layers + 1)
    )


def assert_add_up(decomposition: Routes, flow: Flow) -> None:
    """Amounts, shares and rest make up the value, and no edge carries more than the flow has."""
    value = flow.value.item()
    assert decomposition.value == value
    assert math.fsum(r.amount for r in decomposition) + decomposition.rest == pytest.approx(value, rel=1e-13)
    assert math.fsum(r.share for r in decomposition) + decomposition.rest_share == pytest.approx(1, rel=1e-13)
    assert all(r.amount > 0 for r in decomposition)
    edges, source, target = again(decomposition, flow)
    for part, total in ((edges, flow.edges), (source, flow.source), (target, flow.target)):
        assert (part <= total[0] + 1e-12 * value).all()


def again(decomposition: Routes, flow: Flow) -> tuple[Tensor, Tensor, Tensor]:
    """The flow that the routes make."""
    edges, source, target = (torch.zeros_like(x[0]) for x in (flow.edges, flow.source, flow.target))
    for route in decomposition:
        source[route.tokens[-1]] += route.amount
        target[route.tokens[0]] += route.amount
        for k in range(len(edges)):
            edges[k, route.tokens[k + 1], route.tokens[k]] += route.amount
    return edges, source, target


def flows() -> list[tuple[str, Flow]]:
    information = random_attention(0, 3, 5)
    return [
        ("barrier", solve(information)),
        ("capacity", solve(information, barrier="capacity", epsilon=1e-2)),
        ("maxflow", max_flow(information, integral=False)),
        ("integral", max_flow(information, "forward")),
        ("chosen", solve(information, sources=[0], targets=[1, 3])),
    ]


@pytest.mark.parametrize(("name", "flow"), flows(), ids=[name for name, _ in flows()])
def test_all_routes_together_are_the_flow(name, flow):
    decomposition = routes(flow, None)
    assert_add_up(decomposition, flow)
    assert decomposition.rest <= 1e-12 * decomposition.value
    for part, total in zip(again(decomposition, flow), (flow.edges, flow.source, flow.target), strict=True):
        # Barrier flows balance to 1e-10.
        torch.testing.assert_close(part, total[0], rtol=0, atol=1e-9 * decomposition.value)
    assert len(decomposition) <= int((flow.edges > 0).sum() + (flow.source > 0).sum() + (flow.target > 0).sum())


@pytest.mark.parametrize(("name", "flow"), flows(), ids=[name for name, _ in flows()])
def test_each_route_is_the_widest_of_what_is_left(name, flow):
    edges, source, target = (x[0].numpy().copy() for x in (flow.edges, flow.source, flow.target))
    decomposition = routes(flow, 12)
    for route in decomposition:
        assert route.amount == widest_by_enumeration(edges, source, target)
        source[route.tokens[-1]] -= route.amount
        target[route.tokens[0]] -= route.amount
        for k in range(len(edges)):
            edges[k, route.tokens[k + 1], route.tokens[k]] -= route.amount
    amounts = [route.amount for route in decomposition]
    assert amounts == sorted(amounts, reverse=True)


def test_a_flow_by_hand_reads_from_the_input_upwards():
    # Output 1 sends 3 to node 0 below, output 0 sends 1 to node 2; node 0 gives 2 to token 1 and 1 to token 2.
    edges = torch.zeros(1, 2, 3, 3, dtype=torch.float64)
    edges[0, 1, 1, 0], edges[0, 1, 0, 2] = 3, 1
    edges[0, 0, 0, 1], edges[0, 0, 0, 2], edges[0, 0, 2, 2] = 2, 1, 1
    flow = replace(
        solve(torch.ones(2, 3, 3)),
        edges=edges,
        source=torch.tensor([[1.0, 3.0, 0.0]], dtype=torch.float64),
        target=torch.tensor([[0.0, 2.0, 2.0]], dtype=torch.float64),
        value=torch.tensor([4.0], dtype=torch.float64),
    )
    decomposition = routes(flow)
    assert decomposition.routes == (
        Route((1, 0, 1), 2.0, 0.5),
        Route((2, 0, 1), 1.0, 0.25),
        Route((2, 2, 0), 1.0, 0.25),
    )
    assert (decomposition.rest, decomposition.rest_share, len(decomposition)) == (0, 0, 3)
    two = routes(flow, 2)
    assert list(two) == list(decomposition)[:2]
    assert two[-1] == Route((2, 0, 1), 1.0, 0.25)
    assert (two.rest, two.rest_share) == (1, 0.25)
    assert routes(flow, 0) == Routes((), 4.0, 4.0)


def test_no_route_takes_more_than_its_terminals_carry():
    """Of a flow that does not balance, the narrowest place may be either end."""
    flow = solve(random_attention(4, 2, 3))
    for part in ("source", "target"):
        narrow = replace(flow, **{part: 1e-3 * getattr(flow, part)})
        taken = again(routes(narrow, None), narrow)
        torch.testing.assert_close(taken[1 if part == "source" else 2], getattr(narrow, part)[0], rtol=1e-9, atol=0)


def test_fewer_routes_are_the_beginning_of_more():
    flow = solve(random_attention(1, 4, 6))
    ten, hundred = routes(flow), routes(flow, 100)
    assert len(ten) == 10
    assert routes(flow, cast(Any, np.int64(10))) == ten
    assert len(hundred) == 100
    assert ten.routes == hundred.routes[:10]
    assert_add_up(ten, flow)
    assert 0 < hundred.rest < ten.rest


def test_the_flow_itself_is_left_alone():
    flow = solve(random_attention(2, 2, 4))
    before = flow.edges.clone(), flow.source.clone(), flow.target.clone()
    routes(flow, None)
    assert all(torch.equal(a, b) for a, b in zip(before, (flow.edges, flow.source, flow.target), strict=True))


def test_no_flow_has_no_routes():
    decomposition = routes(solve(torch.zeros(2, 3, 3)))
    assert decomposition == Routes((), 0.0, 0.0)
    assert decomposition.rest_share == 0


def test_an_item_of_a_batch_has_the_routes_of_its_own():
    information = torch.stack([random_attention(k, 2, 4) for k in range(3)])
    flow = max_flow(information, integral=False)
    for k in range(3):
        assert routes(flow[k]).routes == routes(max_flow(information[k], integral=False)).routes


@pytest.mark.parametrize(
    ("flow", "k", "error", "message"),
    [
        (torch.ones(2, 3, 3), 1, TypeError, "flow must be a Flow.*tensor"),
        (solve(torch.ones(2, 1, 3, 3)), 1, ValueError, r"batch of 2.*flow\[0\]"),
        (solve(torch.ones(1, 2, 2)), -1, ValueError, "not -1"),
        (solve(torch.ones(1, 2, 2)), 1.5, ValueError, "not 1.5"),
        (solve(torch.ones(1, 2, 2)), True, ValueError, "not True"),
    ],
)
def test_what_cannot_be_is_refused(flow, k, error, message):
    with pytest.raises(error, match=message):
        routes(flow, k)


@pytest.mark.parametrize("bad", [-1.0, torch.nan, torch.inf])
def test_amounts_that_are_none_are_refused(bad):
    flow = solve(torch.ones(1, 2, 2))
    edges = flow.edges.clone()
    edges[0, 0, 0, 0] = bad
    with pytest.raises(ValueError, match="negative or non-finite"):
        routes(replace(flow, edges=edges))
