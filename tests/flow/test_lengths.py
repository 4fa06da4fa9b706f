"""Networks of similar length are solved together, and shorter ones by themselves."""

from itertools import chain, combinations, pairwise

import pytest
import torch

import gaflow
from gaflow.flow.barrier.lengths import LENGTH_STEP, best_ranges, group_by_length
from gaflow.flow.network import LayeredNetwork


def random_network(tokens, layers=3):
    return torch.rand(layers, tokens, tokens, dtype=torch.float64) ** 4


def padded_batch(lengths):
    longest = max(lengths)
    batch = torch.zeros(len(lengths), 3, longest, longest, dtype=torch.float64)
    mask = torch.zeros(len(lengths), longest, dtype=torch.bool)
    for item, tokens in enumerate(lengths):
        batch[item, :, :tokens, :tokens] = random_network(tokens)
        mask[item, :tokens] = True
    return batch, mask


def cost(groups, layers, calls):
    """Of groups of lengths: each pays its calls, and each of its networks as much as the longest."""
    total = 0.0
    for group in groups:
        longest = -(-max(group) // LENGTH_STEP) * LENGTH_STEP
        total += calls + len(group) * layers * (3 * longest**3 + 600 * longest**2)
    return total


def all_groupings(lengths):
    """Every way of cutting sorted lengths into runs."""
    cuts = range(1, len(lengths))
    for count in range(len(lengths)):
        for boundaries in combinations(cuts, count):
            ends = [0, *boundaries, len(lengths)]
            yield [lengths[start:stop] for start, stop in pairwise(ends)]


@pytest.mark.parametrize("calls", [1e5, 1e7, 1e9])
@pytest.mark.parametrize("lengths", [[200, 190, 90, 64, 60, 14, 14], [512, 14], [40, 39, 38], [7]])
def test_no_other_grouping_costs_less(lengths, calls):
    ranges = best_ranges(lengths, 6, calls)
    groups = []
    for longest, shortest in ranges:
        groups.append([length for length in lengths if shortest <= length <= longest])
    assert sorted(chain(*groups)) == sorted(lengths)
    least = min(cost(grouping, 6, calls) for grouping in all_groupings(lengths))
    assert cost(groups, 6, calls) == pytest.approx(least, rel=1e-12)


def test_every_live_item_is_in_one_group_that_is_long_enough():
    batch, mask = padded_batch([150, 9, 140, 20])
    batch[1] = 0  # no path
    network = LayeredNetwork.build(batch, mask=mask)
    groups = group_by_length(network)
    tokens_of_item = {item: tokens for items, tokens in groups for item in items}
    assert sorted(tokens_of_item) == [0, 2, 3]
    assert tokens_of_item[0] == 150
    assert tokens_of_item[2] >= 140
    assert 20 <= tokens_of_item[3] < 140


def test_a_length_ends_at_the_last_live_node_of_any_layer():
    information = torch.zeros(1, 2, 5, 5, dtype=torch.float64)
    information[0, 1, 0, 3] = 1
    information[0, 0, 3, 1] = 1
    information[0, 0, 4, 1] = 1  # nothing comes to node 4
    assert LayeredNetwork.build(information).tokens == [4]
    assert LayeredNetwork.build(torch.zeros(1, 2, 5, 5)).tokens == [0]


@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
def test_a_batch_that_is_solved_in_groups_gives_what_each_network_alone_gives(barrier):
    torch.manual_seed(0)
    lengths = [11, 130, 24, 9]
    batch, mask = padded_batch(lengths)
    assert len(group_by_length(LayeredNetwork.build(batch, mask=mask))) > 1
    together = gaflow.solve(batch, mask=mask, barrier=barrier)
    assert together.converged.all()
    for item, tokens in enumerate(lengths):
        alone = gaflow.solve(batch[item, :, :tokens, :tokens], barrier=barrier)
        largest = alone.edges.max()
        assert (together.edges[item, :, :tokens, :tokens] - alone.edges[0]).abs().max() < 1e-8 * largest
        assert together.edges[item].sum() == pytest.approx(alone.edges.sum().item(), rel=1e-9)
        for name in ("source", "target"):
            values = getattr(together, name)[item]
            assert (values[:tokens] - getattr(alone, name)[0]).abs().max() < 1e-8 * alone.value[0]
            assert (values[tokens:] == 0).all()
        assert together.value[item].item() == pytest.approx(alone.value[0].item(), rel=1e-9)
        assert together.certificate[item].gap == pytest.approx(alone.certificate[0].gap, rel=1e-2)
        assert together.potentials is not None
        assert alone.potentials is not None
        potentials = together.potentials.nodes[item, :, :tokens]
        assert (potentials - alone.potentials.nodes[0]).abs().max() < 1e-6
        assert together.potentials.source[item].item() == pytest.approx(alone.potentials.source[0].item(), rel=1e-9)
