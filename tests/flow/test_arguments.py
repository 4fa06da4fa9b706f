import numpy as np
import pytest
import torch

from gaflow.flow.arguments import as_mask, as_networks, as_nodes
from gaflow.flow.barrier.solve import solve


def test_what_is_given_in_place_of_capacities_leads_to_them():
    with pytest.raises(TypeError, match=r"information.*Flow.*flow\.capacity"):
        as_networks(solve(torch.rand(2, 3, 3)))  # pyright: ignore[reportArgumentType]


def test_arrays_lists_and_single_precision_are_taken_as_float64_batches():
    information = torch.rand(4, 3, 3)
    layers = [x.clone().requires_grad_() for x in information]
    for capacities in (
        information,
        information.tolist(),
        information.numpy(),
        information[None],
        layers,
        tuple(layers),
    ):
        networks = as_networks(capacities)
        assert networks.dtype == torch.float64
        assert networks.shape == (1, 4, 3, 3)


def test_what_is_no_array_is_refused_by_its_name():
    with pytest.raises(ValueError, match=r"information.*shape.*length"):
        as_networks([[[1.0, 2.0], [3.0]]])
    with pytest.raises(TypeError, match=r"mask.*'abc'"):
        as_mask("abc", torch.rand(1, 2, 3, 3))
    with pytest.raises(TypeError, match=r"mask.*\[\[1, 1\], \[1\]\]"):
        as_mask([[1, 1], [1]], torch.rand(2, 2, 2, 2))


def test_one_mask_serves_a_whole_batch():
    networks = torch.rand(2, 4, 3, 3)
    assert as_mask([1, 0, 1], networks).tolist() == [[True, False, True]] * 2
    assert as_mask(None, networks).tolist() == [[True] * 3] * 2


@pytest.mark.parametrize(
    "nodes",
    [
        [0, 2],
        (2, 0),
        [-4, 2],
        range(0, 4, 2),
        torch.tensor([0, 2]),
        np.array([0, 2]),
        [[0, 2], [2, 0]],
        [torch.tensor([0, 2]), (np.int64(2), 0)],
        [True, False, True, False],
        np.array([[True, False, True, False]] * 2),
        torch.tensor([True, False, True, False]),
        torch.tensor([[True, False, True, False]] * 2),
        [[True, False, True, False], [0, 2]],
    ],
    ids=repr,
)
def test_nodes_are_positions_or_a_boolean_mask(nodes):
    mask = as_nodes(nodes, torch.ones(2, 4, dtype=torch.bool), "sources")
    assert mask.tolist() == [[True, False, True, False]] * 2


def test_every_item_may_have_its_own_nodes_or_none():
    real = torch.ones(3, 4, dtype=torch.bool)
    mask = as_nodes([[0], [], [1, 3]], real, "sources")
    assert mask.tolist() == [[True, False, False, False], [False] * 4, [False, True, False, True]]
    assert as_nodes(3, real, "sources").tolist() == [[False, False, False, True]] * 3
    assert not as_nodes([], real, "sources").any()
    assert as_nodes(None, real, "sources").all()


@pytest.mark.parametrize(
    ("nodes", "error", "message"),
    [
        ([4], ValueError, "targets of item 0.*position 4.*0 to 3"),
        ([[0], [-5]], ValueError, "targets of item 1.*position -5 among 4"),
        ([[0], [0, 3]], ValueError, "targets of item 1.*position 3.*padding"),
        ([1, 1, 0, 0], ValueError, "position 1 .*twice.*boolean"),
        ([2, -2], ValueError, "position -2 is given twice"),
        ([[0]], ValueError, "2 items.* 1 lists"),
        (torch.ones(3, 4, dtype=torch.bool), ValueError, "2 items.* 3 lists"),
        ([True, False], ValueError, "4 tokens.* 2"),
        ([0.5], TypeError, r"whole numbers.*boolean mask.*\[0.5\]"),
        (torch.tensor([1.0, 0.0]), TypeError, "whole numbers"),
        ([True, 2], TypeError, "whole numbers"),
        ([0, [1]], TypeError, "whole numbers.*not 0"),
        ([[[0]], [[1]]], TypeError, "whole numbers"),
        ("head", TypeError, "whole numbers.*head"),
        ({0}, TypeError, "whole numbers"),
    ],
)
def test_what_names_no_nodes_is_refused(nodes, error, message):
    real = torch.tensor([[True] * 4, [True, True, True, False]])
    with pytest.raises(error, match=message):
        as_nodes(nodes, real, "targets")
