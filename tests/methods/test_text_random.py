import torch

from gaflow.methods.text_random import torch_generator


def numbers(seed, ids):
    return torch.rand(3, generator=torch_generator(seed, ids)).tolist()


def test_seed_and_text_decide_what_is_drawn():
    first = numbers(0, [5, 6])
    torch.rand(7)
    assert numbers(0, [5, 6]) == first
    assert numbers(0, (5, 6)) == first
    others = [numbers(1, [5, 6]), numbers(0, [6, 5]), numbers(0, [56]), numbers(0, [5]), numbers(0, [])]
    assert len({tuple(drawn) for drawn in [first, *others]}) == 6
