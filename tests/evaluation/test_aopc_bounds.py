from itertools import permutations

import numpy as np
import pytest

from gaflow.evaluation.aopc_bounds import Bounds
from gaflow.evaluation.masking import Masker, masked_count
from gaflow.inputs.encoding import encode
from gaflow.progress import silent
from tests.support.models import bert

TEXTS = ["good dog", "bad", "this film is good and bad", "the dog is not cute, it is smart"]
LEVELS = tuple(range(10, 100, 10))


@pytest.fixture(scope="module")
def asked():
    model, tokenizer = bert()
    masker = Masker.of(model, tokenizer, encode(tokenizer, TEXTS))
    original = masker([np.zeros((1, len(p)), dtype=bool) for p in masker.positions])
    target = np.array([original[k][0].argmax() for k in range(len(TEXTS))])
    return masker, np.array([original[k][0].max() for k in range(len(TEXTS))]), target


def bounds_of(asked, levels, report=silent, **settings):
    masker, base, target = asked
    return Bounds(**settings)(masker, base, target, levels, report)


def order_value(loss, order, levels):
    """AOPC of one order of the tokens, from the loss of every set of them."""
    n = len(order)
    return np.mean([loss[frozenset(order[: masked_count(n, k)])] for k in levels])


def losses(asked, text):
    masker, base, target = asked
    n = len(masker.positions[text])
    sets = [[(j >> i) & 1 for i in range(n)] for j in range(1 << n)]
    wanted = [np.zeros((0, len(p)), dtype=bool) for p in masker.positions]
    wanted[text] = np.array(sets, dtype=bool)
    found = np.exp(base[text]) - np.exp(masker(wanted)[text][:, target[text]])
    return {frozenset(i for i in range(n) if s[i]): v for s, v in zip(sets, found, strict=True)}


def test_short_texts_are_solved_exactly(asked):
    bounds = bounds_of(asked, LEVELS)
    for text in range(3):
        loss = losses(asked, text)
        n = len(asked[0].positions[text])
        assert n <= 7
        values = [order_value(loss, order, LEVELS) for order in permutations(range(n))]
        np.testing.assert_allclose(bounds[text], [min(values), max(values)], atol=1e-6)


def test_a_wide_beam_finds_what_is_exact_and_a_narrow_one_no_more(asked):
    exact = bounds_of(asked, LEVELS, exact=9)
    assert np.isfinite(exact).all()
    # what is kept is ranked by the levels to come too, so that every set must be kept to miss none
    np.testing.assert_allclose(bounds_of(asked, LEVELS, exact=0, beam=200), exact, atol=1e-6)
    narrow = bounds_of(asked, LEVELS, exact=0, beam=1)
    assert (narrow[:, 0] >= exact[:, 0] - 1e-6).all()
    assert (narrow[:, 1] <= exact[:, 1] + 1e-6).all()


def test_few_levels_need_no_others(asked):
    loss = losses(asked, 2)
    values = [order_value(loss, order, (30, 60)) for order in permutations(range(6))]
    np.testing.assert_allclose(bounds_of(asked, (30, 60))[2], [min(values), max(values)], atol=1e-6)


def test_texts_that_are_too_long_are_left_out(asked):
    told = []
    found = bounds_of(asked, LEVELS, told.append, exact=2, longest=6)
    assert np.isnan(found[3]).all()
    assert np.isfinite(found[:3]).all()
    assert told == sorted(told)
    assert told[-1] == 1


@pytest.mark.parametrize("settings", [{"exact": 17}, {"beam": 0}, {"longest": 1.5}, {"beam": True}])
def test_settings_are_checked(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        Bounds(**settings)
