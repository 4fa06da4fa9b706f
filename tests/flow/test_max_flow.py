"""Plain maximum flow: against every cut, against hand-made networks, and against itself reversed."""

import itertools
import sys
import time
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from gaflow.errors import GaflowError, MissingExtraError
from gaflow.flow.maxflow.max_flow import max_flow
from gaflow.flow.paper_algorithms import dense_network
from gaflow.flow.result import Flow
from tests.support.networks import random_information


def smallest_cut(information: np.ndarray, sources: list[int] | None = None, targets: list[int] | None = None) -> float:
    """The least capacity of all cuts: whatever is neither a source nor a target may be on either side."""
    layers, t, _ = information.shape
    free = np.ones((layers + 1, t), dtype=bool)
    free[-1, range(t) if sources is None else sources] = False
    free[0, range(t) if targets is None else targets] = False
    best = np.inf
    for bits in itertools.product([False, True], repeat=int(free.sum())):
        side = np.zeros((layers + 1, t), dtype=bool)  # the targets are on theirs
        side[-1] = True
        side[free] = bits
        best = min(best, information[side[1:, :, None] & ~side[:-1, None, :]].sum())
    return best


def assert_flow(flow: Flow, information: Tensor) -> None:
    """Conserved at every node, inside the capacities, and of the value it claims."""
    assert (flow.edges >= 0).all()
    assert (flow.edges <= information * (1 + 1e-15)).all()
    scale = flow.value.clamp_min(1e-300)[:, None]
    into = torch.cat([flow.edges.sum(-2), flow.source[:, None]], 1)
    assert ((flow.through() - into).abs().amax((-2, -1)) <= 1e-12 * scale[:, 0]).all()
    torch.testing.assert_close(flow.through().sum(-1), flow.value[:, None].expand(-1, into.shape[1]))


@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize(("layers", "t", "density"), [(1, 3, 1.0), (2, 4, 0.5), (3, 4, 1.0), (4, 3, 0.5)])
@pytest.mark.parametrize("seed", range(3))
def test_the_value_is_the_least_of_all_cuts(seed, layers, t, density, direction):
    information = random_information(seed, layers, t, t, density=density)
    flow = max_flow(information, direction, integral=False)
    assert_flow(flow, information[None])
    assert flow.value.item() == pytest.approx(smallest_cut(information.numpy()), rel=1e-14, abs=1e-14)
    assert flow.certificate.cut.item() == pytest.approx(flow.value.item(), rel=1e-14)
    assert flow.converged.all()


@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize(("sources", "targets"), [([1], None), (None, [0, 2]), ([0], [2]), ([0, 2], [1, 2])])
@pytest.mark.parametrize("layers", [1, 3])
def test_between_chosen_ends_too_the_value_is_the_least_of_all_cuts(layers, sources, targets, direction):
    information = random_information(2, layers, 3, 3, density=0.8)
    flow = max_flow(information, direction, integral=False, sources=sources, targets=targets)
    assert_flow(flow, information[None])
    expected = smallest_cut(information.numpy(), sources, targets)
    assert flow.value.item() == pytest.approx(expected, rel=1e-14, abs=1e-14)
    assert set(flow.source[0].nonzero().flatten().tolist()) <= set(sources or range(3))
    assert set(flow.target[0].nonzero().flatten().tolist()) <= set(targets or range(3))


def test_more_ends_never_carry_less():
    information = random_information(4, 3, 5, 5)
    values = [max_flow(information, integral=False, sources=range(k), targets=[0, 3]).value.item() for k in range(6)]
    assert values[0] == 0
    assert values == sorted(values)
    assert values[1] < values[5]


@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_integral_capacities_are_those_of_the_algorithms(direction):
    information = random_information(3, 3, 4, 4)
    gamma = dense_network(information, direction).gamma
    flow = max_flow(information, direction)
    assert_flow(flow, information[None])
    counts = flow.edges * gamma
    torch.testing.assert_close(counts, counts.round(), rtol=0, atol=1e-9)
    assert flow.value.item() * gamma == pytest.approx(smallest_cut(np.floor(gamma * information.numpy())), rel=1e-15)


def largest_integer_flow(upper: np.ndarray, source: int, target: int) -> int:
    """Breadth-first augmenting paths on a dense matrix of Python integers."""
    room = upper.astype(object)
    value = 0
    while True:
        before, frontier = {source: source}, [source]
        while frontier and target not in before:
            after = [(a, b) for a in frontier for b in np.flatnonzero(room[a] > 0).tolist()]
            frontier = []
            for a, b in after:
                if b not in before:
                    before[b] = a
                    frontier.append(b)
        if target not in before:
            return value
        path, node = [], target
        while node != source:
            path.append((before[node], node))
            node = before[node]
        amount = min(int(room[a, b]) for a, b in path)
        for a, b in path:
            room[a, b] -= amount
            room[b, a] += amount
        value += amount


@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize("smallest", [1e-3, 1e-15, 3e-16, 1e-16, 7e-17, 3e-17, 1e-17, 1e-18, 1e-25])
def test_the_integers_solved_are_those_of_the_dense_network(smallest, direction):
    information = random_information(12, 3, 4, 4, density=0.7)
    information[1, 2, 3] = smallest  # some of these clamp gamma, some just do not
    dense = dense_network(information, direction)
    flow = max_flow(information, direction, terminal="tokens")
    certificate = flow.certificate[0]
    assert (certificate.gamma, certificate.clamped) == (dense.gamma, dense.clamped)
    expected = largest_integer_flow(dense.upper_int.numpy(), dense.source, dense.target)
    assert flow.value.item() == expected / dense.gamma
    padded = torch.full((1, 3, 6, 6), 1e-30, dtype=torch.float64)
    padded[0, :, :4, :4] = information
    again = max_flow(padded, direction, mask=[1, 1, 1, 1, 0, 0])
    assert (again.certificate[0].gamma, again.value.item()) == (dense.gamma, expected / dense.gamma)


def test_gamma_is_only_named_where_it_was_used():
    information = random_information(1, 2, 3, 3)
    assert max_flow(information, integral=False).certificate.gamma.tolist() == [0]
    assert max_flow(information).certificate.gamma.item() == dense_network(information).gamma
    assert max_flow(information).certificate.clamped.tolist() == [False]


def test_whole_numbers_are_solved_without_any_gap():
    information = torch.randint(0, 9, (2, 3, 5, 5), generator=torch.Generator().manual_seed(0)).double()
    for integral in (True, False):
        flow = max_flow(information, integral=integral)
        assert flow.certificate.gap.tolist() == [0, 0]
        assert flow.value.tolist() == [smallest_cut(item.numpy()) for item in information]


def test_both_directions_agree_on_the_value_and_not_on_the_flow():
    information = random_information(11, 8, 4, 3, 3)
    backward, forward = max_flow(information), max_flow(information, "forward")
    torch.testing.assert_close(backward.value, forward.value, rtol=1e-12, atol=0)
    assert_flow(forward, information)
    assert (backward.edges - forward.edges).abs().amax() > 1e-3


def test_the_gap_bounds_what_rounding_lost():
    information = random_information(5, 3, 6, 6) + 0.1  # gamma = 10: one digit of every capacity
    coarse, fine = max_flow(information), max_flow(information, integral=False)
    lost = fine.value - coarse.value
    assert lost.item() > 0.01
    assert coarse.certificate.gap.item() >= lost.item() * (1 - 1e-12)
    assert fine.certificate.gap.item() < 1e-12


def test_capacities_over_thirty_orders_neither_overflow_nor_break():
    information = 10.0 ** (-30 * random_information(6, 2, 4, 5, 5))
    for integral in (True, False):
        flow = max_flow(information, integral=integral)
        certificate = flow.certificate
        assert_flow(flow, information)
        assert (certificate.negligible > 0).all()
        assert (
            certificate.gap <= (certificate.edges / certificate.gamma if integral else 1e-14 * certificate.kappa)
        ).all()
        assert certificate.clamped.tolist() == [integral, integral]


@pytest.mark.parametrize("scale", [1e-305, 1e-200, 1e200, 1e300])
def test_values_scale_with_the_capacities(scale):
    information = random_information(7, 3, 4, 4)
    flow, scaled = (max_flow(factor * information, integral=False) for factor in (1.0, scale))
    assert scaled.value.item() / scale == pytest.approx(flow.value.item(), rel=1e-9)


def test_literal_terminals_bind():
    information = torch.full((2, 3, 3), 5.0)
    assert max_flow(information).value.item() == 45
    assert max_flow(information, terminal=3).value.item() == 9


def test_where_literal_terminals_bind_only_tokens_solves_the_printed_integers():
    information = 5 * random_information(0, 3, 3, 3)
    dense = dense_network(information)
    printed = largest_integer_flow(dense.upper_int.numpy(), dense.source, dense.target) / dense.gamma
    assert printed == max_flow(information, terminal="tokens").value.item() == 9  # 3 terminals of capacity 3
    assert max_flow(information).value.item() > printed + 7


def test_padding_and_company_change_nothing():
    items = [random_information(k, 3, t, t, density=0.8) for k, t in enumerate((2, 4, 3))]
    batch, mask = torch.full((3, 3, 4, 4), 5.0, dtype=torch.float64), torch.zeros(3, 4)
    for k, item in enumerate(items):
        t = item.shape[-1]
        batch[k, :, :t, :t] = item
        mask[k, :t] = 1
    flow = max_flow(batch, mask=mask)
    for k, item in enumerate(items):
        t = item.shape[-1]
        assert torch.equal(flow.edges[k, :, :t, :t], max_flow(item).edges[0])
        assert flow.edges[k].sum() == flow.edges[k, :, :t, :t].sum()


def test_no_path_is_a_flagged_zero():
    information = torch.zeros(2, 2, 3, 3)
    information[1, 0] = 1.0
    flow = max_flow(information)
    assert flow.value.tolist() == [0, 0]
    assert not flow.edges.any()
    assert flow.certificate.dead.tolist() == [True, True]
    assert flow.certificate[0].conservation == 0


@pytest.mark.parametrize(
    ("information", "message"),
    [
        (-torch.ones(1, 2, 2), "negative"),
        (torch.ones(2, 3), "shape"),
        (torch.full((1, 1, 1), torch.nan), "NaN"),
    ],
)
def test_what_is_no_network_is_refused(information, message):
    with pytest.raises(ValueError, match=message):
        max_flow(information)
    with pytest.raises(ValueError, match="direction"):
        max_flow(torch.ones(1, 2, 2), "up")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"mask.*\(1, 2\).*\(3,\)"):
        max_flow(torch.ones(1, 2, 2), mask=torch.ones(3))


def test_a_missing_library_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.graph.python", None)
    with pytest.raises(MissingExtraError, match=r"gaflow\[maxflow\]"):
        max_flow(torch.ones(1, 2, 2))


def test_a_library_that_cannot_be_loaded_is_not_called_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.graph.python", ModuleType("empty"))
    with pytest.raises(GaflowError, match=r"installed.*cannot import name") as caught:
        max_flow(torch.ones(1, 2, 2))
    assert not isinstance(caught.value, MissingExtraError)


def test_padding_smaller_than_every_capacity_changes_nothing():
    information = torch.rand(3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.1
    padded = torch.full((3, 5, 5), 1e-9, dtype=torch.float64)
    padded[:, :4, :4] = information
    expected = max_flow(information)
    assert max_flow(padded, mask=[1, 1, 1, 1, 0]).value.item() == expected.value.item()


def test_a_narrow_place_in_a_wide_path_is_not_rounded_away():
    path = torch.tensor([1.0, 1e-25], dtype=torch.float64)[:, None, None]
    assert max_flow(path, integral=False).value.item() == pytest.approx(1e-25, rel=1e-12)


def test_edges_that_rounding_takes_away_are_counted():
    information = torch.tensor([[[1.0, 1e-30], [0.0, 1.0]]], dtype=torch.float64)
    assert max_flow(information, integral=False).certificate.negligible.tolist() == [1]


def test_the_certificate_holds_the_largest_imbalance_as_a_share_of_the_value():
    flow = max_flow(7 * random_information(8, 4, 3, 5, 5), integral=False)
    inflow = torch.cat([flow.edges.sum(-2), flow.source[:, None]], 1)
    imbalance = (flow.through() - inflow).abs().amax((-2, -1))
    assert (imbalance > 0).all()  # integers of 62 bits are rounded to floats of 53
    torch.testing.assert_close(flow.certificate.conservation, imbalance / flow.value, rtol=1e-12, atol=0)
    whole_numbers = torch.arange(18.0).reshape(2, 3, 3)
    assert max_flow(whole_numbers).certificate.conservation.tolist() == [0]


def test_the_seconds_of_the_items_are_those_of_the_call():
    started = time.perf_counter()
    flow = max_flow(random_information(9, 3, 2, 4, 4))
    elapsed = time.perf_counter() - started
    assert (flow.certificate.seconds > 0).all()
    assert flow.certificate.seconds.sum() <= elapsed


def test_a_missing_library_is_reported_before_wrong_capacities(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.graph.python", None)
    with pytest.raises(MissingExtraError):
        max_flow(-torch.ones(1, 2, 2))
