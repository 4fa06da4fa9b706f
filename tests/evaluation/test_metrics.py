from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

from gaflow.evaluation.metrics import BINS, aopc, better, classification_rates, lodds, lost_share


def by_sklearn(gold, predicted):
    none: Any = 0  # the stubs know of strings alone
    p, r, f, _ = precision_recall_fscore_support(gold, predicted, average="macro", zero_division=none)
    return {"accuracy": accuracy_score(gold, predicted), "f1": f, "precision": p, "recall": r}


def test_losses_are_differences_of_probabilities_and_of_their_logarithms():
    base, masked = np.log([0.9, 0.5]), np.log([[[0.6, 0.95], [0.25, 0.5]]])
    np.testing.assert_allclose(aopc(base, masked), [[[0.3, -0.05], [0.25, 0]]], atol=1e-12)
    np.testing.assert_allclose(lodds(base, masked), [[np.log([2 / 3, 0.95 / 0.9]), [-np.log(2), 0]]], atol=1e-12)


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_rates_are_those_of_scikit_learn(classes):
    generator = np.random.default_rng(classes)
    gold = generator.integers(0, max(2, classes - 1), 12)  # one class is nobody's label
    predicted = generator.integers(0, classes, (3, 12, 4))
    predicted[0, :, 0] = 0
    rates = classification_rates(gold, predicted, classes)
    for method in range(3):
        for level in range(4):
            for name, value in by_sklearn(gold, predicted[method, :, level]).items():
                assert rates[name][method, level] == pytest.approx(value, abs=1e-12)


def test_weights_count_texts_several_times():
    generator = np.random.default_rng(0)
    gold, predicted = generator.integers(0, 3, 10), generator.integers(0, 3, (2, 10, 2))
    drawn = generator.integers(0, 10, (5, 10))
    weights = np.stack([np.bincount(d, minlength=10) for d in drawn]).astype(float)
    rates = classification_rates(gold, predicted, 3, weights)
    for r, resample in enumerate(drawn):
        for name, value in by_sklearn(gold[resample], predicted[1, resample, 0]).items():
            assert rates[name][r, 1, 0] == pytest.approx(value, abs=1e-12)


def test_what_is_better_depends_on_the_order():
    assert better("aopc", "top") == better("lodds", "bottom") == better("srg", "both") == 1
    assert better("aopc", "bottom") == better("lodds", "top") == -1
    with pytest.raises(ValueError, match="aopc"):
        better("aopc", "both")


def test_the_levels_of_eraser_are_those_of_its_paper():
    assert BINS == (1, 5, 10, 20, 50)


def test_a_lost_share_is_relative_to_losing_all_words_and_needs_something_to_lose():
    base = np.log([0.9, 0.9, 0.5, 0.5, 0.5])
    zero = np.log([0.4, 0.4, 0.5, 0.7, 0.25])
    lost = np.array([[0.1, 0.6, 0.1, 0.1, -0.1], [0.5, 0.0, 0.0, 0.2, 0.125]])
    shares = [[0.2, 1.0, np.nan, np.nan, 0.0], [1.0, 0.0, np.nan, np.nan, 0.5]]
    np.testing.assert_allclose(lost_share(base, zero, lost), shares, atol=1e-12)
    small = np.log([0.5])
    assert np.isnan(lost_share(small, np.log([0.5 - 0.99e-4]), np.array([1e-5])))
    np.testing.assert_allclose(lost_share(small, np.log([0.5 - 2e-4]), np.array([1e-4])), [0.5], rtol=1e-9)


def test_rates_of_one_text_are_those_of_its_class_and_the_predicted_one():
    rates = classification_rates(np.array([0, 0, 1]), np.array([[0], [1], [1]]), 4)
    assert {name: values.tolist() for name, values in rates.items()} == {
        "accuracy": [pytest.approx(2 / 3)],
        "f1": [pytest.approx(2 / 3)],
        "precision": [0.75],
        "recall": [0.75],
    }
