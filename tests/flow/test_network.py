"""The layered network against a search for paths that knows nothing of boolean matrix products."""

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from gaflow.flow.network import NEGLIGIBLE_SHARE, LayeredNetwork


def live_by_enumeration(
    information: Tensor, real: list[int], sources: list[int] | None = None, targets: list[int] | None = None
) -> np.ndarray:
    """Mark the edges of every path from an output node (of `sources`) to an input node (of `targets`), trying all."""
    layers, t, _ = information.shape
    live = np.zeros((layers, t, t), dtype=bool)
    for path in itertools.product(real, repeat=layers + 1):  # path[k] is the node of layer k
        if (sources and path[-1] not in sources) or (targets and path[0] not in targets):
            continue
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


def flags(t: int, *positions: int) -> Tensor:
    return torch.zeros(1, t, dtype=torch.bool).index_fill(1, torch.tensor(positions), True)


@pytest.mark.parametrize(("sources", "targets"), [([0], None), (None, [1, 2]), ([3], [0]), ([1, 2], [1, 3])])
@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_only_what_lies_between_chosen_sources_and_targets_lives(seed, layers, sources, targets):
    information = random_network(seed, layers, 4, 0.6)
    above, below = (None if nodes is None else flags(4, *nodes) for nodes in (sources, targets))
    network = LayeredNetwork.build(information[None], sources=above, targets=below)
    live = live_by_enumeration(information, list(range(4)), sources, targets)
    np.testing.assert_array_equal(network.capacity[0].numpy(), np.where(live, information.numpy(), 0))
    np.testing.assert_array_equal(network.source[0].numpy() > 0, live[-1].any(-1))
    np.testing.assert_array_equal(network.target[0].numpy() > 0, live[0].any(-2))
    assert network.dead.item() is (not live.any())


@pytest.mark.parametrize("terminal", [None, 3.0, "tokens", "adjacent"])
def test_choosing_ends_is_removing_the_other_rows_and_columns(terminal):
    information = random_network(0, 3, 5, 0.8)[None]
    network = LayeredNetwork.build(information, terminal, None, flags(5, 1, 4), flags(5, 0, 1, 2))
    information[0, -1, [0, 2, 3]] = 0
    information[0, 0, :, [3, 4]] = 0
    assert_equal_item(network, 0, LayeredNetwork.build(information, terminal=terminal), list(range(5)))


def test_items_may_have_ends_of_their_own_and_padding_is_never_one():
    information = torch.stack([random_network(seed, 2, 4, 0.9) for seed in range(3)])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1]]).bool()
    sources, targets = torch.cat([flags(4, 0), flags(4, 1, 3), flags(4, 2)]), flags(4, 0, 2, 3).expand(3, 4)
    network = LayeredNetwork.build(information, None, mask, sources, targets)
    for k in range(3):
        alone = LayeredNetwork.build(information[k, None], None, mask[k, None], sources[k, None], targets[k, None])
        assert_equal_item(network, k, alone, list(range(4)))
    assert (network.source[1] > 0).tolist() == [False, True, False, False]
    assert (network.target[1] > 0).tolist() == [True, False, True, False]


def test_ends_without_a_path_between_them_are_dead():
    information = torch.eye(3).expand(1, 2, 3, 3)
    assert LayeredNetwork.build(information, sources=flags(3, 0), targets=flags(3, 1, 2)).dead.item()
    assert not LayeredNetwork.build(information, sources=flags(3, 0), targets=flags(3, 0)).dead.item()
    assert LayeredNetwork.build(information, sources=torch.zeros(1, 3, dtype=torch.bool)).dead.item()


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
    tokens = LayeredNetwork.build(information, terminal="tokens")
    assert torch.equal(tokens.source, literal.source)
    assert torch.equal(tokens.target, literal.target)
    adjacent = LayeredNetwork.build(information, terminal="adjacent")
    assert torch.equal(adjacent.source, default.capacity[:, -1].sum(-1))
    assert torch.equal(adjacent.target, default.capacity[:, 0].sum(-2))
    for network in (default, literal, adjacent):
        total = network.capacity.sum() + network.source.sum() + network.target.sum()
        torch.testing.assert_close(network.returning[0], total, rtol=1e-15, atol=0)
    with pytest.raises(ValueError, match="'everywhere'"):
        LayeredNetwork.build(information, terminal="everywhere")


@pytest.mark.parametrize("places", [[0, 1, 2], [2, 3, 4], [0, 2, 4]])
@pytest.mark.parametrize("terminal", [None, 3.0, "tokens", "adjacent"])
def test_padding_anywhere_changes_nothing_whatever_it_holds(places, terminal):
    alone = random_network(7, 3, 3, 0.6)
    padded = torch.full((1, 3, 5, 5), 9.0, dtype=torch.float64)
    for a, b in itertools.product(range(3), repeat=2):
        padded[0, :, places[a], places[b]] = alone[:, a, b]
    mask = torch.zeros(1, 5, dtype=torch.bool)
    mask[0, places] = True
    network = LayeredNetwork.build(padded, terminal, mask)
    assert_equal_item(network, 0, LayeredNetwork.build(alone[None], terminal=terminal), places)


def test_items_of_different_length_do_not_see_each_other():
    lengths = [1, 4, 2, 3]
    items = [random_network(seed, 3, t, 0.7) for seed, t in enumerate(lengths)]
    batch = torch.zeros(4, 3, 4, 4, dtype=torch.float64)
    mask = torch.zeros(4, 4, dtype=torch.int64)  # as tokenizers give it
    for k, (item, t) in enumerate(zip(items, lengths, strict=True)):
        batch[k, :, :t, :t] = item
        mask[k, :t] = 1
    network = LayeredNetwork.build(batch, mask=mask)
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
    masked = LayeredNetwork.build(information, mask=torch.zeros(3, 3))
    assert masked.dead.all()


def test_liveness_holds_at_the_smallest_positive_number():
    information = torch.full((1, 2, 2, 2), 5e-324, dtype=torch.float64)
    network = LayeredNetwork.build(information)
    assert not network.dead.item()
    assert network.edges.item() == 8 + 4 + 1


def path_network(*capacities: float) -> Tensor:
    """One path, one token wide."""
    return torch.tensor(capacities, dtype=torch.float64).reshape(1, -1, 1, 1)


def test_the_unit_of_flow_is_the_smallest_cut_through_a_layer_or_the_terminals():
    information = torch.tensor([[[[1.0, 2.0], [0.0, 4.0]], [[3.0, 0.0], [0.5, 1.0]]]])  # layer sums 7 and 4.5
    assert LayeredNetwork.build(information).unit.tolist() == [4.5]
    assert LayeredNetwork.build(information.flip(1)).unit.tolist() == [4.5]
    assert LayeredNetwork.build(information, terminal=1.5).unit.tolist() == [3.0]
    one_source = LayeredNetwork.build(information, terminal=1.5, sources=flags(2, 1))
    one_target = LayeredNetwork.build(information, terminal=1.5, targets=flags(2, 1))
    assert one_source.source.tolist() == [[0, 1.5]]
    assert one_target.target.tolist() == [[0, 1.5]]
    assert one_source.unit.tolist() == one_target.unit.tolist() == [1.5]
    assert LayeredNetwork.build(torch.zeros(1, 2, 3, 3)).unit.tolist() == [1]


def test_where_every_path_is_far_narrower_than_every_layer_the_unit_is_what_all_paths_may_carry():
    narrow = 2.0**-60
    information = torch.zeros(1, 2, 2, 2, dtype=torch.float64)
    information[0, 1] = torch.diag(torch.tensor([1.0, narrow]))
    information[0, 0] = torch.diag(torch.tensor([narrow, 1.0]))
    network = LayeredNetwork.build(information)
    assert network.edges.tolist() == [4 + 2 + 2 + 1]
    assert network.unit.tolist() == [9 * narrow]
    assert LayeredNetwork.build(path_network(1.0, narrow)).unit.tolist() == [narrow]
    by_source = LayeredNetwork.build(torch.ones(1, 1, 2, 2), terminal=narrow)
    assert by_source.unit.tolist() == [2 * narrow]
    wide = torch.tensor([[[[1.0, 0.0], [0.0, 2.0**-30]], [[2.0**-30, 0.0], [0.0, 1.0]]]], dtype=torch.float64)
    assert LayeredNetwork.build(wide).unit.tolist() == [1 + 2.0**-30]


def test_of_several_narrow_paths_the_widest_counts_whichever_tokens_it_joins():
    narrow = 2.0**-60
    information = torch.zeros(2, 2, 3, 3, dtype=torch.float64)
    information[:, 1, 0, 1] = 1.0  # a path from 0 by 1 to 2, narrow at its end
    information[:, 0, 1, 2] = torch.tensor([4, 1]) * narrow
    information[:, 1, 1, 2] = torch.tensor([2, 2]) * narrow  # a path from 1 by 2 to 0, narrow at its beginning
    information[:, 0, 2, 0] = 1.0
    network = LayeredNetwork.build(information)
    assert network.edges.tolist() == [9, 9]
    assert network.unit.tolist() == [9 * 4 * narrow, 9 * 2 * narrow]


def test_edges_below_a_share_of_kappa_are_dropped_with_all_that_hangs_on_them():
    information = torch.zeros(2, 2, 2, 2, dtype=torch.float64)
    information[:, 1, 0, 0] = 1.0
    information[:, 1, 1, 1] = 3.0  # leads to the edge that is dropped, and nowhere else
    information[:, 0, 0, 0] = 2.0
    information[0, 0, 1, 1] = 1e-101
    information[1, 0, 1, 1] = 1e-99
    network = LayeredNetwork.build(information)
    assert network.negligible.tolist() == [1, 0]
    assert network.edges.tolist() == [2 + 2 + 1, 4 + 4 + 1]
    assert network.kappa.tolist() == [1.0, 2.0]
    assert network.capacity[0].nonzero().tolist() == [[0, 0, 0], [1, 0, 0]]
    assert network.capacity[1].count_nonzero() == 4
    assert network.source.tolist() == [[4.0, 0.0], [6.0, 6.0]]


def test_an_edge_of_just_that_share_of_kappa_stays():
    information = torch.diag(torch.tensor([1.0, NEGLIGIBLE_SHARE], dtype=torch.float64))[None, None]
    network = LayeredNetwork.build(information)
    assert network.kappa.tolist() == [1.0]
    assert network.negligible.tolist() == [0]
    assert network.edges.tolist() == [2 + 4 + 1]


def test_capacities_whose_sum_is_no_number_are_refused():
    assert LayeredNetwork.build(torch.full((1, 1, 1, 1), 5e307, dtype=torch.float64)).returning.item() == 1.5e308
    second_too_large = torch.tensor([1.0, 7e307], dtype=torch.float64)
    with pytest.raises(ValueError, match="information"):
        LayeredNetwork.build(second_too_large.reshape(2, 1, 1, 1))


def test_layers_that_all_overflow_are_refused_even_if_their_narrow_edges_are_all_that_connects_them():
    wide = torch.diag(torch.tensor([1e308, 1e308, 0.5, 0.5], dtype=torch.float64))
    information = torch.stack([wide, wide.flip(0, 1)])
    with pytest.raises(ValueError, match="information"):
        LayeredNetwork.build(information[None])
