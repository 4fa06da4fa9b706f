import math

import numpy as np
import pytest
from scipy import stats

from gaflow.corpora.clustered_mean import ClusteredMean


def test_the_mean_and_its_error_by_hand():
    mean = ClusteredMean()
    for total, occurrences in [(1.0, 1), (4.0, 2), (3.0, 3)]:
        mean.add(total, occurrences)
    # residuals s - r c with r = 8 / 6: -1/3, 4/3, -1; divided by 1 - c / 6
    squares = (1 / 3 * 6 / 5) ** 2 + (4 / 3 * 6 / 4) ** 2 + (1 * 6 / 3) ** 2
    error = math.sqrt(2 / 3 * squares) / 6
    assert mean.mean == pytest.approx(8 / 6)
    assert mean.standard_error == pytest.approx(error)
    assert mean.effective_texts == pytest.approx(36 / 14)
    margin = stats.t.ppf(0.975, 36 / 14 - 1) * error
    assert mean.interval(0.95) == pytest.approx((8 / 6 - margin, 8 / 6 + margin))


def test_the_error_is_that_of_leaving_out_one_text_at_a_time():
    generator = np.random.default_rng(3)
    counts = generator.integers(1, 4, 12)
    totals = counts * generator.normal(1, 1, 12)
    mean = ClusteredMean()
    for total, count in zip(totals.tolist(), counts.tolist(), strict=True):
        mean.add(total, count)
    left_out = (totals.sum() - totals) / (counts.sum() - counts)
    error = math.sqrt(11 / 12 * ((left_out - mean.mean) ** 2).sum())
    assert mean.standard_error == pytest.approx(error)


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


def few(generator, texts):
    """One to five occurrences in a text."""
    return generator.integers(1, 6, texts)


def mostly_one(generator, texts):
    """One occurrence in most texts, and hundreds in some."""
    return np.minimum(generator.zipf(2.0, texts), 200)


@pytest.mark.parametrize("texts", [3, 10, 60])
@pytest.mark.parametrize("draw_counts", [few, mostly_one])
def test_intervals_hold_the_truth_as_often_as_they_say(texts, draw_counts):
    """Occurrences in a text share an effect of the text: an interval over occurrences would be far too narrow."""
    generator = np.random.default_rng(2)
    truth = 0.3
    covered = 0
    naive = 0
    for _ in range(1000):
        counts = draw_counts(generator, texts)
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
    assert 0.93 <= covered / 1000 <= 0.985  # 95 % give or take three standard errors, and wide rather than narrow
    assert naive / 1000 < 0.80
