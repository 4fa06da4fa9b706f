import numpy as np
import pytest
import torch

from gaflow.flow.arguments import as_mask, as_networks, as_nodes
from gaflow.flow.barrier.solve import solve


def test_what_is_given_in_place_of_capacities_leads_to_them():
    with pytest.raises(TypeError, match=r"information must be .* not Flow \(.*flow\.capacity"):
        as_networks(solve(torch.rand(2, 3, 3)))  # pyright: ignore[reportArgumentType]


def test_arrays_lists_and_single_precision_are_taken_as_float64_batches():
    information = torch.rand(4, 3, 3)
    layers = [x.clone().requires_grad_() for x in information]
    for given in (information, information.tolist(), information.numpy(), information[None], layers, tuple(layers)):
        networks = as_networks(given)
        assert networks.dtype == torch.float64
        assert networks.shape == (1, 4, 3, 3)


def test_what_is_no_array_is_refused_by_its_name():
    with pytest.raises(ValueError, match=r"information must have shape .* not rows of different length"):
        as_networks([[[1.0, 2.0], [3.0]]])
    with pytest.raises(TypeError, match="mask must hold one flag per token, not 'abc'"):
        as_mask("abc", torch.rand(1, 2, 3, 3))
    with pytest.raises(TypeError, match=r"mask must hold one flag per token, not \[\[1, 1\], \[1\]\]"):
        as_mask([[1, 1], [1]], torch.rand(2, 2, 2, 2))


def test_one_mask_serves_a_whole_batch():
    networks = torch.rand(2, 4, 3, 3)
    mask = as_mask([1, 0, 1], networks)
    assert mask is not None
    assert mask.tolist() == [[True, False, True]] * 2
    assert as_mask(None, networks) is None


@pytest.mark.parametrize(
    "given",
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
def test_nodes_are_positions_or_a_boolean_mask(given):
    found = as_nodes(given, torch.rand(2, 3, 4, 4), None, "sources")
    assert found is not None
    assert found.tolist() == [[True, False, True, False]] * 2


def test_every_item_may_have_its_own_nodes_or_none():
    networks = torch.rand(3, 2, 4, 4)
    found = as_nodes([[0], [], [1, 3]], networks, None, "sources")
    assert found is not None
    assert found.tolist() == [[True, False, False, False], [False] * 4, [False, True, False, True]]
    single, nothing = as_nodes(3, networks, None, "sources"), as_nodes([], networks, None, "sources")
    assert single is not None
    assert nothing is not None
    assert single.tolist() == [[False, False, False, True]] * 3
    assert not nothing.any()
    assert as_nodes(None, networks, None, "sources") is None


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([4], ValueError, "targets of item 0: there is no position 4 among 4 tokens, which are 0 to 3"),
        ([[0], [-5]], ValueError, "targets of item 1: there is no position -5 among 4 tokens"),
        ([[0], [0, 3]], ValueError, "targets of item 1: position 3 is padding"),
        ([1, 1, 0, 0], ValueError, "position 1 is given twice; a mask has to be boolean"),
        ([2, -2], ValueError, "position -2 is given twice"),
        ([[0]], ValueError, "one for each of 2 items, not 1 lists"),
        (torch.ones(3, 4, dtype=torch.bool), ValueError, "one for each of 2 items, not 3 lists"),
        ([True, False], ValueError, "one flag for each of 4 tokens, not 2"),
        ([0.5], TypeError, r"whole numbers\) or a boolean mask, not \[0.5\]"),
        (torch.tensor([1.0, 0.0]), TypeError, "whole numbers"),
        ([True, 2], TypeError, "whole numbers"),
        ([0, [1]], TypeError, "whole numbers.*not 0"),
        ([[[0]], [[1]]], TypeError, "whole numbers"),
        ("head", TypeError, "whole numbers.*head"),
        ({0}, TypeError, "whole numbers"),
    ],
)
def test_what_names_no_nodes_is_refused(given, error, message):
    real = torch.tensor([[True] * 4, [True, True, True, False]])
    with pytest.raises(error, match=message):
        as_nodes(given, torch.rand(2, 3, 4, 4), real, "targets")
