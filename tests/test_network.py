"""The layered network against a search for paths that knows nothing of boolean matrix products."""

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from gaflow.network import Certificate, Flow, LayeredNetwork, as_mask, as_networks


def live_by_enumeration(information: Tensor, real: list[int]) -> np.ndarray:
    """Mark the edges of every path from an output to an input node, trying all of them."""
    layers, t, _ = information.shape
    live = np.zeros((layers, t, t), dtype=bool)
    for path in itertools.product(real, repeat=layers + 1):  # path[k] is the node of layer k
        steps = [(k, path[k + 1], path[k]) for k in range(layers)]
        if all(information[step] > 0 for step in steps):
            for step in steps:
                live[step] = True
    return live


def random_network(seed: int, layers: int, t: int, density: float) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    capacity = torch.rand(layers, t, t, generator=generator, dtype=torch.float64)
    return capacity * (torch.rand(layers, t, t, generator=generator) < density)


def assert_equal_item(network: LayeredNetwork, item: int, alone: LayeredNetwork, places: list[int]) -> None:
    """Item `item` of a batch, looked at through the tokens `places`, is the network `alone`."""
    assert torch.equal(network.capacity[item][:, places][:, :, places], alone.capacity[0])
    assert torch.equal(network.source[item, places], alone.source[0])
    assert torch.equal(network.target[item, places], alone.target[0])
    assert network.capacity[item].count_nonzero() == alone.capacity.count_nonzero()
    for name in ("returning", "kappa"):
        torch.testing.assert_close(getattr(network, name)[item], getattr(alone, name)[0], rtol=1e-15, atol=0)
    for name in ("edges", "dead"):
        assert getattr(network, name)[item] == getattr(alone, name)[0]


@pytest.mark.parametrize("density", [0.15, 0.3, 0.5, 1.0])
@pytest.mark.parametrize(("layers", "t"), [(1, 1), (1, 4), (2, 3), (3, 4), (5, 3)])
@pytest.mark.parametrize("seed", range(4))
def test_an_edge_lives_if_and_only_if_some_path_uses_it(seed, layers, t, density):
    information = random_network(seed, layers, t, density)
    network = LayeredNetwork.build(information[None])
    live = live_by_enumeration(information, list(range(t)))
    np.testing.assert_array_equal(network.capacity[0].numpy(), np.where(live, information.numpy(), 0))
    assert network.dead.item() is (not live.any())
    np.testing.assert_array_equal(network.source[0].numpy() > 0, live[-1].any(-1))
    np.testing.assert_array_equal(network.target[0].numpy() > 0, live[0].any(-2))


def test_the_random_networks_above_do_have_dead_edges_and_dead_networks():
    networks = [random_network(seed, 3, 4, density) for seed in range(4) for density in (0.15, 0.3, 0.5)]
    counts = [(int((x > 0).sum()), int(live_by_enumeration(x, [0, 1, 2, 3]).sum())) for x in networks]
    assert any(live == 0 < positive for positive, live in counts)
    assert any(0 < live < positive for positive, live in counts)


def test_counts_kappa_and_return_are_taken_over_live_edges():
    information = torch.zeros(1, 2, 3, 3)
    information[0, 1, 0, 0], information[0, 0, 0, 0], information[0, 0, 0, 1] = 2.0, 0.5, 1.0
    information[0, 0, 2, 2] = 100.0  # no edge leads to node 2 of the middle layer
    network = LayeredNetwork.build(information)
    assert network.edges.item() == 3 + 1 + 2 + 1
    assert network.kappa.item() == 1.5
    assert network.source.tolist() == [[6.0, 0.0, 0.0]]  # 3 tokens x the largest live capacity
    assert network.target.tolist() == [[6.0, 6.0, 0.0]]
    assert network.returning.item() == 2 + 0.5 + 1 + 6 + 12


def test_terminals_are_literal_or_adjacent_on_request():
    information = random_network(5, 3, 4, 0.6)[None]
    default = LayeredNetwork.build(information)
    literal = LayeredNetwork.build(information, terminal=4)
    assert set(literal.source[literal.source > 0].tolist()) == {4.0}
    assert torch.equal(literal.source > 0, default.source > 0)
    per_item = LayeredNetwork.build(information.expand(2, -1, -1, -1), terminal=torch.tensor([4.0, 7.0]))
    assert per_item.target.amax(-1).tolist() == [4.0, 7.0]
    adjacent = LayeredNetwork.build(information, terminal="adjacent")
    assert torch.equal(adjacent.source, default.capacity[:, -1].sum(-1))
    assert torch.equal(adjacent.target, default.capacity[:, 0].sum(-2))
    for network in (default, literal, adjacent):
        total = network.capacity.sum() + network.source.sum() + network.target.sum()
        torch.testing.assert_close(network.returning[0], total, rtol=1e-15, atol=0)
    with pytest.raises(ValueError, match="'everywhere'"):
        LayeredNetwork.build(information, terminal="everywhere")


@pytest.mark.parametrize("places", [[0, 1, 2], [2, 3, 4], [0, 2, 4]])
@pytest.mark.parametrize("terminal", [None, 3.0, "adjacent"])
def test_padding_anywhere_changes_nothing_whatever_it_holds(places, terminal):
    alone = random_network(7, 3, 3, 0.6)
    padded = torch.full((1, 3, 5, 5), 9.0, dtype=torch.float64)
    for a, b in itertools.product(range(3), repeat=2):
        padded[0, :, places[a], places[b]] = alone[:, a, b]
    mask = torch.zeros(1, 5, dtype=torch.bool)
    mask[0, places] = True
    network = LayeredNetwork.build(padded, mask, terminal)
    assert_equal_item(network, 0, LayeredNetwork.build(alone[None], terminal=terminal), places)


def test_items_of_different_length_do_not_see_each_other():
    lengths = [1, 4, 2, 3]
    items = [random_network(seed, 3, t, 0.7) for seed, t in enumerate(lengths)]
    batch = torch.zeros(4, 3, 4, 4, dtype=torch.float64)
    mask = torch.zeros(4, 4, dtype=torch.int64)  # as tokenizers give it
    for k, (item, t) in enumerate(zip(items, lengths, strict=True)):
        batch[k, :, :t, :t] = item
        mask[k, :t] = 1
    network = LayeredNetwork.build(batch, mask)
    for k, t in enumerate(lengths):
        assert_equal_item(network, k, LayeredNetwork.build(items[k][None]), list(range(t)))


def test_a_network_without_a_path_is_dead_and_empty():
    information = torch.ones(3, 2, 3, 3)
    information[0] = 0
    information[1, 0] = 0
    network = LayeredNetwork.build(information)
    assert network.dead.tolist() == [True, True, False]
    assert network.edges[:2].tolist() == [0, 0]
    for part in (network.capacity, network.source, network.target, network.returning, network.kappa):
        assert not part[:2].any()
    masked = LayeredNetwork.build(information, torch.zeros(3, 3))
    assert masked.dead.all()


def test_liveness_holds_at_the_smallest_positive_number():
    information = torch.full((1, 2, 2, 2), 5e-324, dtype=torch.float64)
    network = LayeredNetwork.build(information)
    assert not network.dead.item()
    assert network.edges.item() == 8 + 4 + 1


def make_flow() -> Flow:
    """Two items of one layer and two tokens: all through one edge; half and half."""
    names = Certificate.__dataclass_fields__
    certificate = Certificate(**{name: torch.tensor([k, k + 0.5]) for k, name in enumerate(names)})
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


def test_a_certificate_becomes_plain_numbers():
    certificate = make_flow().certificate
    assert certificate.to_dict()["dual"] == [1.0, 1.5]
    assert certificate[1].to_dict()["dual"] == 1.5
    assert isinstance(certificate[1].dual, float)


def test_arrays_lists_and_single_precision_are_taken_as_float64_batches():
    information = torch.rand(4, 3, 3)
    for given in (information, information.tolist(), information.numpy(), information[None]):
        networks = as_networks(given)
        assert networks.dtype == torch.float64
        assert networks.shape == (1, 4, 3, 3)


def test_one_mask_serves_a_whole_batch():
    networks = torch.rand(2, 4, 3, 3)
    mask = as_mask([1, 0, 1], networks)
    assert mask is not None
    assert mask.tolist() == [[True, False, True]] * 2
    assert as_mask(None, networks) is None
