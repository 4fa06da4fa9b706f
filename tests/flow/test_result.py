import pytest
import torch

from gaflow.flow.result import BatchCertificate, Flow


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


@pytest.mark.parametrize(("item", "place"), [(0, 0), (1, 1), (-1, 1), (-2, 0)])
def test_one_item_of_a_flow_is_a_batch_of_one(item, place):
    flow, one = make_flow(), make_flow()[item]
    assert torch.equal(one.edges, flow.edges[place : place + 1])
    assert one.value.tolist() == [flow.value[place].item()]
    assert one.certificate.kappa.tolist() == [flow.certificate.kappa[place].item()]
    assert one.certificate[0] == flow.certificate[place]


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
