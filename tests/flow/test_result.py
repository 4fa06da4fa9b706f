import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gaflow.errors import ArgumentError
from gaflow.flow.network import LayeredNetwork
from gaflow.flow.result import LARGEST_ERROR, BatchCertificate, Certificate, Flow, capacities_of, layer_scores


def make_flow() -> Flow:
    """Two items of one layer and two tokens: all through one edge; half and half."""
    names = BatchCertificate.__dataclass_fields__
    certificate = BatchCertificate(**{name: torch.tensor([k, k + 0.5]) for k, name in enumerate(names)})
    return Flow(
        edges=torch.tensor([[[[0.0, 3.0], [0.0, 0.0]]], [[[1.0, 0.0], [0.0, 1.0]]]]),
        source=torch.tensor([[3.0, 0.0], [1.0, 1.0]]),
        target=torch.tensor([[0.0, 3.0], [1.0, 1.0]]),
        value=torch.tensor([3.0, 2.0]),
        mu=torch.tensor([0.1, 0.2]),
        converged=torch.tensor([True, False]),
        certificate=certificate,
    )


def test_through_flow_has_the_input_tokens_in_row_zero():
    assert make_flow().through().tolist() == [[[0, 3], [3, 0]], [[1, 1], [1, 1]]]
    assert torch.equal(make_flow().through().sum(-1), torch.tensor([[3.0, 3.0], [2.0, 2.0]]))


@pytest.mark.parametrize(("item", "index"), [(0, 0), (1, 1), (-1, 1), (-2, 0)])
def test_one_item_of_a_flow_is_a_batch_of_one(item, index):
    flow, one = make_flow(), make_flow()[item]
    assert torch.equal(one.edges, flow.edges[index : index + 1])
    assert one.value.tolist() == [flow.value[index].item()]
    assert one.certificate.kappa.tolist() == [flow.certificate.kappa[index].item()]
    assert one.certificate[0] == flow.certificate[index]


@pytest.mark.parametrize("item", [2, -3])
def test_an_item_outside_the_batch_is_refused(item):
    with pytest.raises(IndexError, match=f"item {item} of a batch of 2"):
        make_flow()[item]


def test_a_flow_is_shown_on_one_line_and_says_what_failed():
    assert repr(make_flow()) == "Flow(value 3, 2; edges (2, 1, 2, 2); 1 NOT CONVERGED)"
    assert repr(make_flow()[0]) == "Flow(value 3; edges (1, 1, 2, 2); converged)"


def test_a_certificate_becomes_plain_numbers():
    certificate = make_flow().certificate
    assert certificate.to_dict()["dual"] == [1.0, 1.5]
    assert certificate[1].to_dict()["dual"] == 1.5
    assert isinstance(certificate[1].dual, float)


def make_certificate(**changes: float) -> Certificate:
    names = [name for name in Certificate.__dataclass_fields__ if name not in ("dead", "clamped", "converged")]
    values: dict[str, Any] = {name: float(k + 1) for k, name in enumerate(names)}
    return Certificate(**{**values, "dead": False, "clamped": False, "converged": True, **changes})


def test_the_worst_of_certificates_adds_counts_and_weighs_amounts():
    one = make_certificate(gap=1.0, cut=8.0, kappa=4.0, edges=5, negligible=1, mu=0.5, gamma=10.0, dead=True, dual=7.0)
    two = make_certificate(gap=2.0, cut=3.0, kappa=5.0, edges=7, negligible=2, mu=0.25, gamma=0.0, converged=False)
    worst = Certificate.worst((one, two), (0.25, 2.0))
    assert (worst.gap, worst.cut, worst.kappa) == (4.25, 8.0, 11.0)
    assert (worst.edges, worst.negligible) == (12, 3)
    assert (worst.mu, worst.dual, worst.gamma) == (0.5, 7.0, 0.0)
    assert (worst.dead, worst.converged, worst.clamped) == (False, False, False)
    assert (worst.iterations, worst.seconds) == (one.iterations, one.seconds)


def test_scores_that_are_a_difference_took_both_solves():
    one = make_certificate(iterations=3, seconds=0.5, gap=1.0, clamped=True)
    two = make_certificate(iterations=4, seconds=0.25, gap=2.0)
    both = one.combine(two)
    assert (both.iterations, both.seconds, both.gap, both.clamped) == (7, 0.75, 3.0, True)


def test_a_certificate_starts_without_errors():
    network = LayeredNetwork.build(torch.ones(2, 1, 2, 2) * torch.tensor([1.0, 0.0]).reshape(2, 1, 1, 1))
    certificate = BatchCertificate.start(network, torch.tensor([3.0, 0.0]), torch.tensor([3.5, 0.0]))
    first, second = certificate[0], certificate[1]
    assert (first.conservation, first.dual, first.centrality, first.mu, first.epsilon) == (0, 0, 0, 0, 0)
    assert (first.gap, first.cut, first.kappa, first.edges, first.negligible) == (0.5, 3.5, 4.0, 9, 0)
    assert (first.gamma, first.clamped, first.iterations, first.seconds) == (0, False, 0, 0)
    assert (first.dead, second.dead, first.converged, second.converged) == (False, True, True, True)


@pytest.mark.parametrize(("layer", "expected"), [(0, [1, 2]), (1, [3, 4]), (-1, [3, 4]), (-2, [1, 2]), ("all", [4, 6])])
def test_scores_of_a_node_layer_count_from_the_input_or_from_the_output(layer, expected):
    through = np.array([[1, 2], [3, 4]])
    assert layer_scores(through, layer).tolist() == expected
    assert layer_scores(torch.tensor(through)[None], layer).tolist() == [expected]


@pytest.mark.parametrize("layer", [2, -3, True, 1.0, "some", None])
def test_a_layer_that_does_not_exist_is_refused(layer):
    with pytest.raises(ArgumentError, match="layer"):
        layer_scores(np.ones((2, 3)), layer)


def test_a_flow_of_many_items_shows_the_first_three_values():
    flow = make_flow()
    many = replace(flow, value=torch.arange(4.0), converged=torch.ones(4, dtype=torch.bool))
    assert "value 0, 1, 2, ...;" in repr(many)
    assert "value 0, 1, 2;" in repr(replace(many, value=torch.arange(3.0)))


def certificate(**changes):
    network = LayeredNetwork.build(torch.ones(1, 1, 2, 2))
    return replace(BatchCertificate.start(network, torch.tensor([3.0]), torch.tensor([3.0]))[0], **changes)


@pytest.mark.parametrize("changes", [{}, {"dual": LARGEST_ERROR}, {"converged": False, "dual": math.nan}])
def test_a_certificate_that_can_be_true_is_accepted(changes):
    possible = certificate(**changes)
    possible.check_possible()
    assert possible.converged == changes.get("converged", True)


@pytest.mark.parametrize("name", ["cut", "kappa", "mu", "epsilon", "gamma", "seconds"])
def test_amounts_below_zero_cannot_be_true(name):
    with pytest.raises(ValueError, match=name):
        certificate(**{name: -1e-9, "converged": False}).check_possible()


@pytest.mark.parametrize("name", ["conservation", "dual", "centrality"])
@pytest.mark.parametrize("error", [-1e-9, 2 * LARGEST_ERROR, math.nan, math.inf])
def test_a_converged_flow_has_small_errors(name, error):
    with pytest.raises(ValueError, match=name):
        certificate(**{name: error}).check_possible()


@pytest.mark.parametrize("name", ["cut", "kappa", "mu", "epsilon", "gamma", "seconds"])
def test_infinite_amounts_cannot_be_true_of_a_converged_flow_alone(name):
    with pytest.raises(ValueError, match=name):
        certificate(**{name: math.inf}).check_possible()
    certificate(**{name: math.inf, "converged": False}).check_possible()


LIMIT = LARGEST_ERROR * 8.0


@pytest.mark.parametrize("gap", [-LIMIT, 0.0, 8.0, 8.0 + LIMIT])
def test_a_gap_from_zero_to_the_cut_can_be_true_but_for_rounding(gap):
    certificate(cut=8.0, gap=gap).check_possible()
    assert certificate(cut=8.0, gap=gap).gap == gap


@pytest.mark.parametrize("gap", [-1.001 * LIMIT, 8.0 + 1.001 * LIMIT, math.nan])
def test_a_gap_outside_of_zero_and_the_cut_cannot_be_true(gap):
    with pytest.raises(ValueError, match="gap"):
        certificate(cut=8.0, gap=gap).check_possible()


def test_no_flow_is_larger_than_value_and_gap_together():
    flow = make_flow()
    assert torch.equal(flow.dual_value, flow.value + flow.certificate.gap)


def possible_flow(**changes: Any) -> Flow:
    """Two units over two edges of one layer."""
    network = LayeredNetwork.build(torch.ones(1, 1, 2, 2))
    value = torch.tensor([2.0], dtype=torch.float64)
    flow = Flow(
        edges=torch.eye(2, dtype=torch.float64)[None, None],
        source=torch.ones(1, 2, dtype=torch.float64),
        target=torch.ones(1, 2, dtype=torch.float64),
        value=value,
        mu=torch.zeros(1),
        converged=torch.tensor([True]),
        certificate=BatchCertificate.start(network, value, value),
    )
    return replace(flow, **changes)


def arriving(amount: float) -> torch.Tensor:
    return torch.tensor([[1.0, amount]], dtype=torch.float64)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"target": arriving(1.0 + 1.9 * LARGEST_ERROR)},
        {"target": arriving(1.0 - 1.9 * LARGEST_ERROR)},
        {"target": arriving(5.0), "converged": torch.tensor([False])},
        {"value": torch.tensor([2.0**-20]), "target": torch.full((1, 2), 2.0**-21)},
        {"value": torch.zeros(1), "target": torch.zeros(1, 2), "edges": torch.zeros(1, 1, 2, 2)},
    ],
)
def test_a_flow_whose_tokens_get_its_value_can_be_true(changes):
    flow = possible_flow(**changes)
    flow.check_possible()
    assert len(flow.value) == 1


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"target": arriving(1.0 + 2.1 * LARGEST_ERROR)}, "value"),
        ({"target": arriving(1.0 - 2.1 * LARGEST_ERROR)}, "value"),
        ({"target": arriving(-3.0)}, "value"),
        ({"value": torch.tensor([1.0])}, "value"),
        ({"value": torch.zeros(1), "target": torch.zeros(1, 2)}, "edges"),
    ],
)
def test_a_flow_that_contradicts_itself_cannot_be_true(changes, match):
    with pytest.raises(ValueError, match=match):
        possible_flow(**changes).check_possible()


def test_a_flow_with_an_impossible_certificate_cannot_be_true():
    flow = possible_flow()
    with pytest.raises(ValueError, match="dual"):
        replace(flow, certificate=replace(flow.certificate, dual=torch.ones(1))).check_possible()


def test_capacities_are_those_that_a_flow_was_solved_on():
    information = torch.rand(1, 1, 2, 2)
    assert capacities_of(information) is information
    assert capacities_of(possible_flow(capacity=information)) is information
    with pytest.raises(ArgumentError, match="information"):
        capacities_of(possible_flow())
