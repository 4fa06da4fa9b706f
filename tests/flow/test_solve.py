"""The barrier solver: exact answers, laws, robustness, refusals."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gaflow.errors import SolveError
from gaflow.flow.barrier import state
from gaflow.flow.barrier.edges import LeanEdges
from gaflow.flow.barrier.solve import BARRIERS, Barrier, LogBarrier, solve
from gaflow.flow.maxflow.max_flow import max_flow
from gaflow.flow.network import LayeredNetwork
from gaflow.flow.result import Flow
from tests.support.exact import exact_flow
from tests.support.make_exact import load
from tests.support.problems import path, problems
from tests.support.sweep import KINDS, make, networks
from tests.support.ways import WAYS, solve_by

pytestmark = pytest.mark.slow


def sample(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) ** 3


def assert_near(actual: Tensor, expected: Tensor, value: Tensor | float, tolerance: float = 1e-8) -> None:
    """Within `tolerance` of the flow value everywhere."""
    error = (actual - expected).abs().max() / torch.as_tensor(value).max()
    assert error <= tolerance, f"off by {error:.2e} of the flow value"


def assert_same_flow(actual: Flow, expected: Flow, tolerance: float = 1e-8) -> None:
    for part in ("edges", "source", "target", "value"):
        assert_near(getattr(actual, part), getattr(expected, part), expected.value, tolerance)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", load(), ids=lambda case: case.name)
def test_every_edge_agrees_with_fifty_digits(case, way):
    flow = solve_by(way, case.information, epsilon=case.epsilon, barrier=case.barrier)
    for part in ("edges", "source", "target", "value"):
        expected = torch.as_tensor(getattr(case.flow, part), dtype=torch.float64)
        assert_near(getattr(flow, part)[0], expected, case.flow.value, 1e-9)
    assert flow.mu.item() == pytest.approx(case.flow.mu, rel=1e-14)
    assert flow.certificate.edges.item() == case.flow.live


@pytest.fixture
def lean(monkeypatch):
    """Every network is solved as those of long texts are, eight edges at a time."""
    monkeypatch.setitem(state.LEAN_MIN_TOKENS, "cpu", 1)
    monkeypatch.setattr(state, "CPU_GROUP_EDGES", 1)
    monkeypatch.setattr(state, "LEAN_GROUP_EDGES", 8)


@pytest.mark.parametrize("way", ["blocks", "mixed_precision"])
@pytest.mark.parametrize("case", load(), ids=lambda case: case.name)
def test_with_the_memory_of_long_texts_every_edge_agrees_with_fifty_digits(case, way, lean):
    flow = solve_by(way, case.information, epsilon=case.epsilon, barrier=case.barrier)
    for part in ("edges", "source", "target", "value"):
        expected = torch.as_tensor(getattr(case.flow, part), dtype=torch.float64)
        assert_near(getattr(flow, part)[0], expected, case.flow.value, 1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("barrier", BARRIERS)
def test_with_the_memory_of_long_texts_flows_are_the_same(kind, barrier, request):
    networks_of_kind = []
    for seed in range(4):
        networks_of_kind.append(make(kind, 3, 6, torch.Generator().manual_seed(seed)))
    information = torch.stack(networks_of_kind)
    expected = solve(information, barrier=barrier)
    request.getfixturevalue("lean")
    assert_same_flow(solve(information, barrier=barrier), expected, 1e-9)


def started(information: Tensor) -> state.State:
    network = LayeredNetwork.build(information)
    unit = network.unit
    items = range(len(unit))
    tokens = information.shape[-1]
    return state.State.start(network, unit, unit, items, tokens, weighted=False, subtraction_free=False)


@pytest.mark.parametrize("narrow", [1e-12, 1e-18, 1e-22, 1e-27])
def test_narrow_edges_are_solved_to_the_same_digits_with_less_memory(narrow, request):
    information = sample(3, 6, 6)
    information[1, :, 2] *= narrow
    information[0, 3, :] *= narrow
    expected = solve(information, barrier="capacity").edges[0]
    request.getfixturevalue("lean")
    actual = solve(information, barrier="capacity").edges[0]
    assert torch.allclose(actual, expected, rtol=1e-9, atol=0)


def test_capacities_too_narrow_for_float32_are_solved_with_all_memory(lean):
    information = sample(3, 6, 6)
    information[1, 2, 3] = 0
    assert isinstance(started(information).edges, LeanEdges)
    information[1, 2, 3] = 1e-30
    assert not isinstance(started(information).edges, LeanEdges)


def test_capacities_too_wide_for_float32_are_solved_with_all_memory(lean):
    information = sample(3, 6, 6)
    information[1, 2, 3] = 1e60
    assert not isinstance(started(information).edges, LeanEdges)
    information[1, 2, 3] = 1e20
    assert isinstance(started(information).edges, LeanEdges)


@pytest.mark.parametrize("problem", problems(), ids=lambda problem: problem.name)
def test_answers_derived_by_hand(problem):
    flow = solve(problem.information, **problem.settings)
    for part in ("edges", "source", "target", "value"):
        assert_near(
            getattr(flow, part)[0], torch.as_tensor(getattr(problem, part), dtype=torch.float64), problem.value, 1e-9
        )


@pytest.mark.parametrize("barrier", BARRIERS)
def test_forward_and_backward_networks_have_the_same_flow_reversed(barrier):
    information = sample(2, 5, 7, 7)
    backward = solve(information, barrier=barrier)
    forward = solve(information.flip(1).mT, barrier=barrier)  # every edge reversed: layers and ends change places
    assert_near(forward.edges.flip(1).mT, backward.edges, backward.value)
    assert_near(forward.source, backward.target, backward.value)
    assert_near(forward.target, backward.source, backward.value)


@pytest.mark.parametrize("barrier", BARRIERS)
@pytest.mark.parametrize(("sources", "targets"), [([0], None), (None, [1, 2]), ([2], [0]), ([1, 3], [3])])
def test_flow_between_chosen_ends_agrees_with_fifty_digits(barrier, sources, targets):
    information = sample(3, 4, 4) * (sample(3, 4, 4, seed=1) > 0.01)
    ends = {"sources": sources, "targets": targets}
    flow = solve(information, epsilon=1e-4, barrier=barrier, **ends)
    expected = exact_flow(information.numpy(), epsilon=1e-4, barrier=barrier, **ends)
    for part in ("edges", "source", "target", "value"):
        exact = torch.as_tensor(getattr(expected, part), dtype=torch.float64)
        assert_near(getattr(flow, part)[0], exact, expected.value, 1e-9)
    assert flow.certificate.edges.item() == expected.live


@pytest.mark.parametrize("barrier", BARRIERS)
def test_between_two_nodes_with_one_path_it_is_the_flow_of_that_path(barrier):
    expected = path("path", [0.5, 0.25, 2.0], barrier=barrier, epsilon=1e-3, terminal=0.75)
    information = torch.zeros(3, 4, 4, dtype=torch.float64)
    information[2, 3, 1], information[1, 1, 2], information[0, 2, 0] = 2.0, 0.25, 0.5
    information[2, [0, 1, 2]] = 7.0  # from other sources
    information[0, :, [1, 2, 3]] = 7.0  # to other targets
    flow = solve(information, sources=[3], targets=[0], **expected.settings)
    assert flow.value.item() == pytest.approx(expected.value, rel=1e-9)
    assert_near(flow.through()[0, [3, 2, 1, 0], [3, 1, 2, 0]], flow.value.expand(4), expected.value, 1e-9)


@pytest.mark.parametrize("barrier", BARRIERS)
@pytest.mark.parametrize("way", ["blocks", "banded", "dense", "blocks_two_ended"])
@pytest.mark.parametrize(("sources", "targets"), [([0], [4, 5]), ([5], [0]), ([1, 4], [0, 1, 2])])
def test_choosing_ends_is_cutting_off_the_others(barrier, way, sources, targets):
    information = sample(4, 6, 6)
    flow = solve_by(way, information, barrier=barrier, sources=sources, targets=targets)
    cut = torch.zeros_like(information)
    cut[1:-1] = information[1:-1]
    cut[-1, sources], cut[0, :, targets] = information[-1, sources], information[0, :, targets]
    assert_same_flow(flow, solve_by(way, cut, barrier=barrier), 0)
    others = sorted(set(range(6)) - set(targets))
    assert flow.target[:, others].abs().max() == 0


@pytest.mark.parametrize("barrier", BARRIERS)
def test_reversing_every_edge_exchanges_sources_and_targets(barrier):
    information = sample(4, 6, 6)
    backward = solve(information, barrier=barrier, sources=[0, 3], targets=[1, 2, 5])
    forward = solve(information.flip(0).mT, barrier=barrier, sources=[1, 2, 5], targets=[0, 3])
    assert_near(forward.edges.flip(1).mT, backward.edges, backward.value)
    assert_near(forward.target, backward.source, backward.value)


@pytest.mark.parametrize("barrier", BARRIERS)
def test_every_item_may_have_its_own_ends_and_length(barrier):
    information, mask = sample(4, 3, 6, 6), torch.ones(4, 6)
    mask[1, 4:] = 0
    sources, targets = [[0], [1, 3], [5], [0, 1, 2]], [[0, 1, 2, 3, 4, 5], [0, 2], [1, 5], [3]]
    flow = solve(information, barrier=barrier, mask=mask, sources=sources, targets=targets)
    for k in range(4):
        t = int(mask[k].sum())
        ends: dict[str, Any] = {"sources": sources[k], "targets": targets[k]}
        alone = solve(information[k, :, :t, :t], barrier=barrier, **ends)
        assert_near(flow.edges[k, :, :t, :t], alone.edges[0], alone.value)
        assert_near(flow.target[k].sum(), alone.value, alone.value)
        larger = solve(1e9 * information[k, :, :t, :t], barrier=barrier, **ends)
        assert_near(larger.edges / 1e9, alone.edges, alone.value)


def test_flow_between_chosen_ends_is_within_epsilon_kappa_of_the_maximum():
    pytest.importorskip("ortools")
    for seed in range(5):
        information = sample(4, 7, 7, seed=seed) + 1e-6
        ends: dict[str, Any] = {"sources": [seed], "targets": [0, 6 - seed]}
        flow = solve(information, epsilon=1e-4, **ends)
        largest = max_flow(information, integral=False, **ends).value.item()
        assert largest - 1e-4 * flow.certificate.kappa.item() <= flow.value.item() <= largest * (1 + 1e-12)
        assert largest < 0.9 * max_flow(information, integral=False).value.item()


def test_ends_without_a_path_between_them_are_flagged_beside_others():
    information = torch.eye(4, dtype=torch.float64).expand(3, 2, 4, 4)
    flow = solve(information, sources=[[0], [0], []], targets=[1, 0])
    assert flow.certificate.dead.tolist() == [False, False, True]
    flow = solve(information, sources=[[0], [2], []], targets=[1, 0])
    assert flow.certificate.dead.tolist() == [False, True, True]
    assert flow.converged.all()
    assert flow.through()[1:].abs().max() == 0
    assert flow.target[0].tolist() == [pytest.approx(1, rel=1e-5), 0, 0, 0]


@pytest.mark.parametrize("barrier", BARRIERS)
@pytest.mark.parametrize("way", ["blocks", "banded", "dense", "blocks_two_ended"])
def test_a_batch_gives_what_each_item_alone_gives(barrier, way):
    information = torch.stack([sample(4, 6, 6), 1e4 * sample(4, 6, 6, seed=1) ** 9, 1 + sample(4, 6, 6)])
    flow = solve_by(way, information, barrier=barrier)
    assert len(set(flow.certificate.iterations.tolist())) > 1  # they leave the loop at different times
    for item in range(3):
        assert_same_flow(flow[item], solve_by(way, information[item], barrier=barrier))


@pytest.mark.parametrize("barrier", BARRIERS)
@pytest.mark.parametrize("real", [[0, 1, 2, 3], [2, 3, 4, 5], [0, 2, 3, 6]])
def test_padding_changes_nothing_wherever_it_stands(barrier, real):
    alone = sample(3, 4, 4)
    padded = 100 * sample(3, 7, 7, seed=1)  # what padding positions hold must not matter
    padded[:, torch.tensor(real)[:, None], torch.tensor(real)] = alone
    mask = torch.zeros(7).index_fill(0, torch.tensor(real), 1)
    flow, expected = solve(padded, mask=mask, barrier=barrier), solve(alone, barrier=barrier)
    assert_near(flow.target[:, real], expected.target, expected.value)
    assert_near(flow.edges[..., real, :][..., real], expected.edges, expected.value)
    assert flow.target.sum() == pytest.approx(expected.value.item())
    assert flow.mu.item() == pytest.approx(expected.mu.item(), rel=1e-14)


def test_items_that_fail_one_after_the_other_are_solved_again_each_with_its_own_capacities():
    generator = torch.Generator().manual_seed(27)
    exponents = torch.rand(3, 4, 5, 5, generator=generator, dtype=torch.float64) * 300 - 150
    information = 10.0**exponents * (torch.rand(3, 4, 5, 5, generator=generator) < 0.5)
    first_attempt = LogBarrier(subtraction_free_steps=0)(LayeredNetwork.build(information))
    assert not first_attempt.converged.any()
    failed_after = first_attempt.certificate.iterations.tolist()
    assert failed_after != sorted(failed_after)
    batch = solve(information)
    for item, network in enumerate(information):
        assert batch.value[item].item() == pytest.approx(solve(network).value.item(), rel=1e-9)


def test_items_of_different_lengths_share_a_batch():
    short, long = sample(3, 4, 4), sample(3, 6, 6, seed=1)
    batch, mask = torch.zeros(2, 3, 6, 6, dtype=torch.float64), torch.ones(2, 6)
    batch[0, :, :4, :4], batch[1], mask[0, 4:] = short, long, 0
    flow = solve(batch, mask=mask)
    assert_near(flow.target[0, :4], solve(short).target[0], flow.value[0])
    assert_near(flow.target[1], solve(long).target[0], flow.value[1])


@pytest.mark.parametrize("barrier", BARRIERS)
@pytest.mark.parametrize("factor", [1e-30, 0.3, 1e30])
def test_scale_in_is_scale_out(barrier, factor):
    information = sample(4, 6, 6)
    expected = solve(information, barrier=barrier)
    flow = solve(factor * information, barrier=barrier)
    assert_near(flow.edges / factor, expected.edges, expected.value)
    assert_near(flow.value / factor, expected.value, expected.value)


@pytest.mark.parametrize("barrier", BARRIERS)
def test_renaming_tokens_renames_the_answer(barrier):
    information, order = sample(4, 6, 6), torch.tensor([3, 1, 5, 0, 4, 2])
    expected = solve(information, barrier=barrier)
    flow = solve(information[:, order][:, :, order], barrier=barrier)
    assert_near(flow.target, expected.target[:, order], expected.value)


@pytest.mark.parametrize("barrier", BARRIERS)
def test_every_layer_sums_to_the_flow_value_and_no_edge_is_overfull(barrier):
    information = sample(3, 5, 8, 8)
    flow = solve(information, barrier=barrier)
    through = flow.through()
    assert through.shape == (3, 6, 8)
    torch.testing.assert_close(through.sum(-1), flow.value[:, None].expand(3, 6), rtol=1e-9, atol=0)
    assert ((flow.edges > 0) & (flow.edges < information)).all()


@pytest.mark.parametrize("barrier", BARRIERS)
@pytest.mark.parametrize("epsilon", [1e-8, 1e-6, 1e-4])
def test_the_value_is_within_epsilon_kappa_of_the_maximum(barrier, epsilon):
    pytest.importorskip("ortools")
    for seed in range(5):
        information = sample(4, 7, 7, seed=seed) + 1e-6
        flow = solve(information, epsilon=epsilon, barrier=barrier)
        largest = max_flow(information, integral=False).value.item()
        assert largest - epsilon * flow.certificate.kappa.item() <= flow.value.item() <= largest * (1 + 1e-12)
        assert flow.certificate.cut.item() >= largest * (1 - 1e-12)
        assert flow.certificate.gap.item() <= epsilon * flow.certificate.kappa.item() * (1 + 1e-6)


def test_mu_can_be_given_absolutely():
    information = sample(3, 5, 5)
    relative = solve(information, epsilon=1e-3)
    absolute = solve(information, mu=relative.mu.item())
    assert_same_flow(absolute, relative)
    assert absolute.certificate.epsilon.item() == pytest.approx(1e-3)
    flows = solve(torch.stack([information, 2 * information]), mu=torch.tensor([1e-4, 2e-4], dtype=torch.float64))
    assert_near(flows.edges[1] / 2, flows.edges[0], flows.value[0])


def test_a_binding_terminal_flattens_the_answer():
    information = sample(3, 5, 5) + 1
    flow = solve(information, terminal=1e-3, epsilon=1e-6)
    torch.testing.assert_close(flow.target, torch.full_like(flow.target, 1e-3), rtol=1e-2, atol=0)
    assert solve(information).target.max() > 1


def test_terminals_can_be_one_per_item_and_much_narrower_than_everything_else():
    information = sample(3, 5, 5) + 1
    terminals = torch.tensor([1e-20, 2.0, 40.0], dtype=torch.float64)
    for barrier in BARRIERS:
        flow = solve(information.expand(3, 3, 5, 5), terminal=terminals, barrier=barrier)
        for item in range(3):
            assert_same_flow(flow[item], solve(information, terminal=terminals[item].item(), barrier=barrier))
        assert (flow.value <= 5 * terminals).all()
        assert flow.value[0] > 0


def test_masks_of_all_kinds_share_a_batch():
    information, mask = sample(3, 2, 4, 4), torch.tensor([[0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 1]])
    flow = solve(information, mask=mask)
    assert flow.certificate.dead.tolist() == [True, False, False]
    assert_near(flow.target[1, 1], solve(information[1, :, 1:2, 1:2]).value[0], flow.value[1])
    assert_near(flow.target[2], solve(information[2]).target[0], flow.value[2])


def test_peaked_attention_over_many_tokens_needs_no_second_try():
    generator = torch.Generator().manual_seed(1)
    attention = torch.softmax(6 * torch.randn(12, 2, 160, 160, generator=generator, dtype=torch.float64), -1)
    gradient = torch.randn(attention.shape, generator=generator, dtype=torch.float64)
    flow = solve((attention * gradient).relu().mean(1))
    assert flow.certificate.iterations.item() < LogBarrier.steps


def test_lists_keep_every_digit():
    assert solve([[[1e-50]]]).value.item() == pytest.approx(1e-50, rel=1e-5)


def test_any_order_of_memory_is_taken():
    information = sample(3, 4, 4).numpy()
    assert_same_flow(solve(information[::-1]), solve(information[::-1].copy()), 0)


@pytest.mark.parametrize("way", WAYS)
def test_the_hard_ones_converge(way):
    for hard in networks(60, seed=5, layers=12, tokens=24):
        flow = solve_by(way, hard.information, epsilon=hard.epsilon, barrier=hard.barrier)
        paths = torch.ones(hard.information.shape[-1], dtype=torch.float64)
        for layer in (hard.information > 0).double():
            paths = (layer @ paths).sign()  # which nodes have a way down
        assert flow.certificate.dead.item() == (paths.max().item() == 0)
        assert flow.certificate.dead.item() or flow.value.item() > 0
        assert flow.certificate.conservation.item() < 1e-9


@pytest.mark.parametrize("barrier", BARRIERS)
def test_the_subtraction_free_factorisation_gives_the_same_flow(barrier):
    information = sample(2, 4, 6, 6)
    expected = solve(information, barrier=barrier)
    network = LayeredNetwork.build(information, terminal="adjacent" if barrier == "capacity" else None)
    flow = LogBarrier(barrier=barrier, steps=0)(network)
    assert flow.converged.all()
    assert_same_flow(flow, expected)


def test_a_single_long_path_over_thirty_orders_of_magnitude():
    information = torch.logspace(-30, 0, 15, dtype=torch.float64)[:, None, None]
    for barrier in BARRIERS:
        flow = solve(information, barrier=barrier)
        torch.testing.assert_close(flow.edges.flatten(), flow.value.expand(15), rtol=1e-9, atol=0)
        assert 0.99e-30 < flow.value.item() < 1e-30 * (1 + 1e-12)


def test_without_a_path_everything_is_zero_and_flagged():
    information = sample(3, 3, 4, 4)
    information[0, 1] = 0
    information[2, 0, 1:] = 0
    information[2, 1, :, 0] = 0  # alive in every layer, but no path through
    flow = solve(information)
    assert flow.certificate.dead.tolist() == [True, False, True]
    assert flow.converged.all()
    assert flow.through()[[0, 2]].abs().max() == 0
    assert_same_flow(flow[1], solve(information[1]))
    assert all(np.isfinite(np.asarray(v)).all() for v in flow.certificate.to_dict().values())


def test_capacities_too_small_to_matter_are_dropped_and_counted():
    information = sample(3, 4, 4)
    expected = solve(information)
    information[1, 2, 3] = 0
    without = solve(information)
    information[1, 2, 3] = 1e-200
    flow = solve(information)
    assert (flow.certificate.negligible.item(), expected.certificate.negligible.item()) == (1, 0)
    assert_same_flow(flow, without, 0)


@pytest.mark.parametrize("make", [lambda x: x.numpy(), lambda x: x.float(), lambda x: x.clone().requires_grad_()])
def test_arrays_and_any_float_are_taken_and_left_alone(make):
    information = sample(3, 5, 5).float().double()
    capacities = make(information)
    flow = solve(capacities)
    assert_same_flow(flow, solve(information), 0)
    assert flow.edges.dtype == torch.float64
    assert not flow.edges.requires_grad
    assert np.array_equal(np.asarray(torch.as_tensor(capacities).detach().double()), information.numpy())


def test_what_does_not_converge_raises_and_names_the_items():
    information = torch.stack([torch.zeros(2, 3, 3).double(), sample(2, 3, 3)])
    with pytest.raises(SolveError, match=r"1 of 2.*items \[1\].*throw=False") as caught:
        solve(information, epsilon=1e-310)
    assert caught.value.items == [1]
    flow = solve(information, epsilon=1e-310, throw=False)
    assert flow.converged.tolist() == [True, False]
    assert torch.isfinite(flow.edges).all()
    json.dumps(flow.certificate.to_dict(), allow_nan=False)
    assert_near(caught.value.flow.edges, flow.edges, flow.value, 0)


@pytest.mark.parametrize(
    ("information", "settings", "error", "message"),
    [
        ("abc", {}, TypeError, "information.*'abc'"),
        (torch.ones(3, 3), {}, ValueError, r"not \(3, 3\)"),
        (torch.ones(2, 3, 4), {}, ValueError, r"not \(2, 3, 4\)"),
        (torch.ones(0, 3, 3), {}, ValueError, "no axis empty"),
        (torch.ones(2, 3, 3, dtype=torch.complex64), {}, TypeError, "real numbers"),
        (torch.ones(2, 3, 3, dtype=torch.bool), {}, TypeError, "bool"),
        (torch.full((1, 2, 2), float("nan")), {}, ValueError, "NaN"),
        (torch.full((1, 2, 2), float("inf")), {}, ValueError, "infinite"),
        (-torch.ones(1, 2, 2), {}, ValueError, r"negative values \(smallest -1\).*relu"),
        (torch.ones(1, 2, 2), {"mask": torch.ones(3)}, ValueError, r"mask.*\(1, 2\).*\(3,\)"),
        (torch.ones(1, 2, 2), {"epsilon": 0.0}, ValueError, "epsilon.*positive.* 0"),
        (torch.ones(1, 2, 2), {"epsilon": float("nan")}, ValueError, "epsilon must be positive"),
        (torch.ones(1, 2, 2), {"mu": -1.0}, ValueError, "mu.*positive.*-1"),
        (
            torch.ones(1, 2, 2),
            {"barrier": "log"},
            ValueError,
            "barrier.*'uniform', 'capacity'.*'log'",
        ),
        (torch.ones(1, 2, 2), {"terminal": -1.0}, ValueError, "terminal must be positive"),
        (torch.ones(1, 2, 2), {"terminal": "adjacents"}, ValueError, "terminal must be"),
        (torch.ones(1, 2, 2), {"mu": torch.ones(2)}, ValueError, "mu.*1 items"),
        (torch.ones(1, 2, 2), {"epsilon": "a"}, ValueError, "epsilon.*'a'"),
        (torch.ones(1, 2, 2), {"mask": torch.tensor([0.0, -10.0])}, ValueError, "mask.* 1 .* 0 "),
        (torch.ones(1, 2, 2), {"sources": [2]}, ValueError, "sources of item 0.*position 2 among 2"),
        (torch.ones(1, 2, 2), {"targets": "head"}, ValueError, "targets.*'head'"),
        (torch.ones(1, 2, 2), {"mask": [1, 0], "targets": 1}, ValueError, "targets of item 0.*position 1.*padding"),
        (torch.full((1, 2, 2), 1e308, dtype=torch.float64), {}, ValueError, "information.*overflows"),
    ],
)
def test_bad_input_is_refused_with_advice(information, settings, error, message):
    with pytest.raises(error, match=message):
        solve(information, **settings)


def in_both_precisions(kind: str, seed: int, *, epsilon: float, barrier: Barrier = "uniform") -> tuple[Flow, Flow]:
    """A network solved with factors in single precision and in double."""
    information = make(kind, 4, 64, torch.Generator().manual_seed(seed))
    single = solve_by("mixed_precision", information, epsilon=epsilon, barrier=barrier)
    double = solve_by("blocks", information, epsilon=epsilon, barrier=barrier)
    return single, double


@pytest.mark.parametrize("barrier", BARRIERS)
@pytest.mark.parametrize("epsilon", [1e-9, 1e-4, 10.0])
@pytest.mark.parametrize("kind", KINDS)
def test_steps_in_single_precision_lead_to_the_same_flow(kind, epsilon, barrier):
    single, double = in_both_precisions(kind, 1, epsilon=epsilon, barrier=barrier)
    assert_same_flow(single, double)
    certificate = single.certificate[0]
    assert max(certificate.conservation, certificate.dual, certificate.centrality) < 1e-9


def test_single_precision_costs_no_steps():
    single_steps = 0
    double_steps = 0
    for seed in (0, 4, 9, 10, 26):
        single, double = in_both_precisions("mild", seed, epsilon=1e-9)
        single_steps += int(single.certificate.iterations)
        double_steps += int(double.certificate.iterations)
    assert single_steps < 1.1 * double_steps  # it took 1.6 times as many without corrections


def test_a_flow_is_a_batch_that_can_be_indexed():
    flow = solve(sample(3, 2, 4, 4))
    assert_same_flow(flow[-1], flow[2], 0)
    assert flow[1].certificate.iterations.shape == (1,)
    assert flow.certificate[1].conservation == flow.certificate.conservation[1].item()
    with pytest.raises(IndexError, match="item 3 of a batch of 3"):
        flow[3]


def test_what_is_handed_out_may_be_used_in_autograd():
    information = sample(2, 3, 4, 4)
    information[1] = 0  # dead
    flows = [solve(information), solve(information, throw=False, barrier="capacity")]
    for flow in flows:
        values = [*vars(flow).values(), *vars(flow.certificate).values()]
        assert not any(x.is_inference() for x in values if isinstance(x, Tensor))
    weight = torch.ones(4, dtype=torch.float64, requires_grad=True)
    (flows[0].target[0] * weight).sum().backward()
    torch.testing.assert_close(weight.grad, flows[0].target[0], rtol=0, atol=0)
