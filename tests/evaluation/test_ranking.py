from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from gaflow.errors import ArgumentError
from gaflow.evaluation.ranking import rank_methods
from gaflow.evaluation.result import Evaluation
from gaflow.evaluation.significance import aso_pairs, holm, sign_flip_test


def evaluated(values, methods=None):
    """An evaluation of which only the values per text (m, n) are known."""
    values = np.asarray(values, dtype=float)
    names = methods or tuple("abcdefg"[: len(values)])
    return cast("Evaluation", SimpleNamespace(methods=names, per_text=lambda _measure, _order: values))


def spread(*levels, texts=40, seed=0):
    """Values (m, n) around `levels`."""
    noise = np.random.default_rng(seed).normal(size=(len(levels), texts))
    return np.array(levels)[:, None] + 0.1 * noise


def test_methods_are_ranked_by_the_worst_of_their_ranks():
    pad = evaluated([[0.9], [0.8], [0.7], [0.1]])
    delete = evaluated([[0.2], [0.8], [0.9], [0.1]])
    ranking = rank_methods({"pad": pad, "delete": delete})
    assert ranking.methods == ("b", "a", "c", "d")  # a and c tie at 3 and at a mean of 2
    assert ranking.worst.tolist() == [2, 3, 3, 4]
    assert ranking.ranks.tolist() == [[2, 1, 3, 4], [2, 3, 1, 4]]
    assert ranking.means.tolist() == [[0.8, 0.9, 0.7, 0.1], [0.8, 0.2, 0.9, 0.1]]
    assert ranking.best == "b"


def test_equal_means_share_the_better_rank():
    ranking = rank_methods({"pad": evaluated([[0.5, 0.5], [0.4, 0.6], [0.9, 0.9]])})
    assert ranking.methods == ("c", "a", "b")
    assert ranking.worst.tolist() == [1, 2, 2]


def test_less_is_better_where_the_measure_falls():
    ranking = rank_methods({"pad": evaluated([[0.5], [-0.4]])}, "aopc", "bottom")
    assert ranking.methods == ("b", "a")


def test_tests_are_those_of_the_evaluation_that_is_least_sure():
    samples = {"pad": spread(1.0, 0.95, 0.0, seed=1), "delete": spread(1.0, 0.9, 0.0, seed=2)}
    ranking = rank_methods({name: evaluated(values) for name, values in samples.items()}, resamples=50)
    assert ranking.methods == ("a", "b", "c")
    first, second = np.triu_indices(3, 1)
    p_values = []
    epsilons = []
    for values in samples.values():
        p_values.append(sign_flip_test((values[first] - values[second]).T, 10_000, 0))
        epsilons.append(aso_pairs(values, resamples=50))
    np.testing.assert_array_equal(ranking.p[first, second], holm(np.max(p_values, axis=0)))
    np.testing.assert_array_equal(ranking.epsilon, np.max(epsilons, axis=0))
    assert (ranking.p[second, first] == 1).all()
    least = np.min([values.mean(1)[0] - values.mean(1)[1] for values in samples.values()])
    assert ranking.difference[0, 1] == pytest.approx(least)


def test_a_method_that_wins_with_one_replacement_only_is_not_better():
    ranking = rank_methods({"pad": evaluated(spread(1, 0)), "mask": evaluated(spread(0, 1))}, resamples=20)
    assert ranking.verdict("a", "b") == ranking.verdict("b", "a") == "not told apart"
    assert (ranking.p == 1).all()


def test_verdicts_tell_sure_differences_from_average_ones():
    base = np.random.default_rng(0).normal(size=400)
    narrower = 0.8 * base + 0.05  # more on average, but less wherever base is large
    ranking = rank_methods({"pad": evaluated([base, narrower, base - 10], ("plain", "more", "random"))}, resamples=100)
    assert ranking.methods == ("more", "plain", "random")
    assert ranking.verdict("more", "random") == "clearly better"
    assert ranking.verdict("more", "plain") == "better on average"
    assert ranking.verdict("plain", "more") == "not told apart"
    assert ranking.against_best("plain") == "worse on average"
    assert ranking.no_better_than_random() == []


def test_methods_no_better_than_random_are_named():
    values = evaluated(spread(1, 0, 0, -1, texts=60), ("good", "random", "useless", "harmful"))
    ranking = rank_methods({"pad": values}, resamples=50)
    assert set(ranking.no_better_than_random()) == {"useless", "harmful"}
    assert ranking.against_control("harmful") == "worse"
    assert ranking.against_control("good") == "clearly better"
    assert ranking.against_control("random") is None
    assert ranking.against_best("good") is None
    named = [sentence for sentence in ranking.sentences("here") if "useless" in sentence and "harmful" in sentence]
    assert named
    table = ranking.table()
    assert table.loc["harmful", "worst_rank"] == 4
    assert table.loc["good", "aopc_pad"] == pytest.approx(ranking.means[0, 0])


def test_three_texts_prove_nothing():
    ranking = rank_methods({"pad": evaluated(spread(1, 0, texts=3), ("good", "random"))}, resamples=20)
    assert ranking.no_better_than_random() == ["good"]
    alone = rank_methods({"pad": evaluated([[1.0], [0.0]], ("good", "random"))})
    assert alone.verdict("good", "random") == "not told apart"


def test_only_common_methods_and_texts_are_compared():
    ranking = rank_methods({"pad": evaluated([[1.0], [2.0]], ("a", "b")), "mask": evaluated([[3.0]], ("b",))})
    assert ranking.methods == ("b",)
    with pytest.raises(ArgumentError):
        rank_methods({"pad": evaluated([[1.0]]), "mask": evaluated([[1.0, 2.0]])})


@pytest.mark.parametrize(("measure", "order"), [("f1", "top"), ("aopc", "both"), ("", "top")])
def test_measures_without_a_better_side_are_named(measure, order):
    with pytest.raises(ArgumentError) as error:
        rank_methods({"pad": evaluated([[0.9], [0.8]])}, measure, order)
    assert error.value.argument == "measure"
