from dataclasses import fields
from itertools import permutations

import numpy as np
import pytest

from gaflow.evaluation.aopc_bounds import Bounds
from gaflow.evaluation.masking import MaskedOutputs, Masker, masked_count
from gaflow.inputs.encoding import encode
from gaflow.progress import silent
from tests.support.models import bert

TEXTS = ["good dog", "bad", "this film is good and bad", "the dog is not cute, it is smart"]
LEVELS = tuple(range(10, 100, 10))


@pytest.fixture(scope="module")
def question():
    model, tokenizer = bert()
    masker = Masker.of(model, tokenizer, encode(tokenizer, TEXTS))
    original = masker([np.zeros((1, len(p)), dtype=bool) for p in masker.positions])
    target = np.array([original[k][0].argmax() for k in range(len(TEXTS))])
    return masker, np.array([original[k][0].max() for k in range(len(TEXTS))]), target


def bounds_of(question, levels, report=silent, **settings):
    masker, base, target = question
    return Bounds(**settings)(masker, base, target, levels, report)


def order_value(loss, order, levels):
    """AOPC of one order of the tokens, from the loss of every set of them."""
    n = len(order)
    return np.mean([loss[frozenset(order[: masked_count(n, k)])] for k in levels])


def losses(question, text):
    masker, base, target = question
    n = len(masker.positions[text])
    sets = [[(j >> i) & 1 for i in range(n)] for j in range(1 << n)]
    masks = [np.zeros((0, len(p)), dtype=bool) for p in masker.positions]
    masks[text] = np.array(sets, dtype=bool)
    drops = np.exp(base[text]) - np.exp(masker(masks)[text][:, target[text]])
    return {frozenset(i for i in range(n) if s[i]): v for s, v in zip(sets, drops, strict=True)}


def test_short_texts_are_solved_exactly(question):
    bounds = bounds_of(question, LEVELS)
    for text in range(3):
        loss = losses(question, text)
        n = len(question[0].positions[text])
        assert n <= 7
        values = [order_value(loss, order, LEVELS) for order in permutations(range(n))]
        np.testing.assert_allclose(bounds[text], [min(values), max(values)], atol=1e-6)


def test_a_wide_beam_finds_what_is_exact_and_a_narrow_one_no_more(question):
    exact = bounds_of(question, LEVELS, exact=9)
    assert np.isfinite(exact).all()
    # what is kept is ranked by the levels to come too, so that every set must be kept to miss none
    np.testing.assert_allclose(bounds_of(question, LEVELS, exact=0, beam=200), exact, atol=1e-6)
    narrow = bounds_of(question, LEVELS, exact=0, beam=1)
    assert (narrow[:, 0] >= exact[:, 0] - 1e-6).all()
    assert (narrow[:, 1] <= exact[:, 1] + 1e-6).all()


def test_few_levels_need_no_others(question):
    loss = losses(question, 2)
    values = [order_value(loss, order, (30, 60)) for order in permutations(range(6))]
    np.testing.assert_allclose(bounds_of(question, (30, 60))[2], [min(values), max(values)], atol=1e-6)


def test_texts_that_are_too_long_are_left_out(question):
    reports = []
    bounds = bounds_of(question, LEVELS, reports.append, exact=2, longest=6)
    assert np.isnan(bounds[3]).all()
    assert np.isfinite(bounds[:3]).all()
    assert reports == sorted(reports)
    assert reports[-1] == 1


def test_texts_that_are_too_long_are_left_out_even_if_they_could_be_solved_exactly(question):
    bounds = bounds_of(question, LEVELS, exact=8, longest=3)
    assert np.isnan(bounds).all(1).tolist() == [False, False, True, True]


def test_progress_ends_where_every_text_is_solved_exactly(question):
    reports = []
    bounds_of(question, LEVELS[:1], reports.append, exact=16)
    assert reports == sorted(reports)
    assert reports[-1] == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"exact": 17},
        {"beam": 0},
        {"beam": 10**6 + 1},
        {"beam": True},
        {"longest": 0},
        {"longest": 10**6 + 1},
        {"longest": 1.5},
    ],
)
def test_settings_are_checked(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        Bounds(**settings)


def test_settings_may_be_the_least_and_the_largest():
    assert Bounds(exact=0, beam=1, longest=1) != Bounds(exact=16, beam=10**6, longest=10**6)


class Indifferent(Masker):
    """Of a model that gives every text the same output."""

    def __call__(self, masks_by_text, report=silent):
        rows = [np.zeros(len(masks), dtype=int) for masks in masks_by_text]
        return MaskedOutputs(np.zeros((1, 3)), tuple(rows), seconds=0.0)


@pytest.mark.parametrize("exact", [0, 8])
def test_texts_that_cannot_lose_anything_have_zero_as_bounds_and_not_minus_zero(question, exact):
    masker, _, target = question
    indifferent = Indifferent(**{field.name: getattr(masker, field.name) for field in fields(masker)})
    bounds = Bounds(exact=exact)(indifferent, np.zeros(len(TEXTS)), target, LEVELS)
    np.testing.assert_array_equal(bounds, 0)
    assert not np.signbit(bounds).any()


class Conspiracy(Masker):
    """Of a model that loses 0.1 without token 0, and 0.5 without the tokens 1 and 2, which do nothing alone."""

    def __call__(self, masks_by_text, report=silent):
        (masks,) = masks_by_text
        losses = np.where(masks[:, 1] & masks[:, 2], 0.5, 0.1 * masks[:, 0])
        return MaskedOutputs(np.log(1 - losses)[:, None], (np.arange(len(masks)),), seconds=0.0)


@pytest.mark.parametrize(("exact", "highest"), [(3, (0 + 0.5) / 2), (2, (0.1 + 0.1) / 2)])
def test_a_beam_of_one_misses_what_two_tokens_do_together_and_the_exact_solution_does_not(exact, highest):
    model, tokenizer = bert()
    masker = Conspiracy.of(model, tokenizer, encode(tokenizer, ["this is good"]))
    assert masker.sizes.tolist() == [3]
    bounds = Bounds(exact=exact, beam=1)(masker, np.zeros(1), np.zeros(1, dtype=int), levels=(33, 67))
    np.testing.assert_allclose(bounds, [[0.05, highest]], atol=1e-12)
