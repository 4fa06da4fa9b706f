import math

import numpy as np
import pytest

from gaflow.corpora.clustered_mean import ClusteredMean, student_quantile


@pytest.mark.parametrize(
    ("probability", "freedom", "quantile", "tolerance"),
    [  # from printed tables
        (0.975, 1, 12.706, 1e-4),
        (0.975, 2, 4.303, 1e-4),
        (0.995, 2, 9.925, 1e-4),
        (0.975, 3, 3.182, 0.02),
        (0.975, 7, 2.365, 1e-3),
        (0.995, 7, 3.499, 1e-3),
        (0.95, 9, 1.833, 1e-3),
        (0.975, 30, 2.042, 5e-4),
        (0.975, 10**6, 1.960, 1e-4),
    ],
)
def test_quantiles_of_students_distribution(probability, freedom, quantile, tolerance):
    assert student_quantile(probability, freedom) == pytest.approx(quantile, rel=tolerance)


def test_the_mean_and_its_error_by_hand():
    mean = ClusteredMean()
    for total, occurrences in [(1.0, 1), (4.0, 2), (3.0, 3)]:
        mean.add(total, occurrences)
    # residuals s - r c with r = 8 / 6: -1/3, 4/3, -1
    squares = (1 / 3) ** 2 + (4 / 3) ** 2 + 1
    error = math.sqrt(3 / 2 * squares) / 6
    assert mean.mean == pytest.approx(8 / 6)
    assert mean.standard_error == pytest.approx(error)
    low, high = mean.interval(0.95)
    assert (low, high) == pytest.approx((8 / 6 - 4.3027 * error, 8 / 6 + 4.3027 * error), abs=1e-4)


def test_one_text_has_no_interval():
    mean = ClusteredMean()
    mean.add(3.0, 2)
    assert mean.mean == 1.5
    assert all(map(math.isnan, mean.interval(0.95)))


def test_with_one_occurrence_in_each_text_the_error_is_that_of_a_mean():
    values = np.random.default_rng(0).normal(size=40)
    mean = ClusteredMean()
    for value in values:
        mean.add(float(value), 1)
    assert mean.standard_error == pytest.approx(values.std(ddof=1) / math.sqrt(40))


def test_the_error_is_that_of_a_bootstrap_over_texts():
    generator = np.random.default_rng(1)
    counts = generator.integers(1, 5, 400)
    totals = counts * generator.normal(1, 1, 400)
    mean = ClusteredMean()
    for total, count in zip(totals.tolist(), counts.tolist(), strict=True):
        mean.add(total, count)
    samples = generator.integers(0, 400, (2000, 400))
    means = totals[samples].sum(1) / counts[samples].sum(1)
    assert mean.standard_error == pytest.approx(means.std(), rel=0.06)


@pytest.mark.parametrize("texts", [10, 60])
def test_intervals_hold_the_truth_as_often_as_they_say(texts):
    """Occurrences in a text share an effect of the text: an interval over occurrences would be far too narrow."""
    generator = np.random.default_rng(2)
    truth = 0.3
    covered = 0
    naive = 0
    for _ in range(1000):
        counts = generator.integers(1, 6, texts)
        effects = generator.normal(0, 0.2, texts)
        occurrences = [truth + effect + generator.normal(0, 0.05, n) for effect, n in zip(effects, counts, strict=True)]
        mean = ClusteredMean()
        for values in occurrences:
            mean.add(float(values.sum()), len(values))
        low, high = mean.interval(0.95)
        covered += low <= truth <= high
        everything = np.concatenate(occurrences)
        margin = 1.96 * everything.std(ddof=1) / math.sqrt(len(everything))
        naive += abs(everything.mean() - truth) <= margin
    assert (
        0.92 <= covered / 1000 <= 0.97
    )  # 95 %, give or take four standard errors, and what a ratio of few texts costs
    assert naive / 1000 < 0.80
