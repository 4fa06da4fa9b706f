import pytest
import torch

from gaflow.methods.text_random import TextGenerator


def numbers(seed, ids, count=3):
    with TextGenerator(seed, ids):
        return torch.rand(count).tolist()


def test_seed_and_text_decide_what_is_drawn():
    first = numbers(0, [5, 6])
    torch.rand(7)
    assert numbers(0, [5, 6]) == first
    assert numbers(0, (5, 6)) == first
    others = [numbers(1, [5, 6]), numbers(0, [6, 5]), numbers(0, [56]), numbers(0, [5]), numbers(0, [])]
    assert len({tuple(drawn) for drawn in [first, *others]}) == 6


def test_the_state_of_others_is_put_back_however_it_ends():
    before = torch.get_rng_state()
    numbers(0, [1])
    assert torch.equal(torch.get_rng_state(), before)
    for _ in range(2):  # the second would wait forever if the first had not given its turn back
        with pytest.raises(RuntimeError, match="shape"), TextGenerator(0, [1]):
            torch.rand(3).view(2)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_pause_shows_the_state_of_others_and_goes_on_where_it_was():
    uninterrupted = numbers(0, [1], 4)
    expected = torch.get_rng_state()
    draws = TextGenerator(0, [1])
    with draws:
        first = torch.rand(2).tolist()
        with draws.suspended():
            assert torch.equal(torch.get_rng_state(), expected)
            torch.rand(5)  # somebody else's
            moved = torch.get_rng_state()
        rest = torch.rand(2).tolist()
    assert first + rest == uninterrupted
    assert torch.equal(torch.get_rng_state(), moved)


def test_a_pause_that_fails_leaves_everything_in_order():
    before = torch.get_rng_state()
    draws = TextGenerator(0, [1])
    with pytest.raises(RuntimeError, match="inside"), draws, draws.suspended():
        raise RuntimeError("inside")
    assert torch.equal(torch.get_rng_state(), before)
    assert len(numbers(0, [1])) == 3
