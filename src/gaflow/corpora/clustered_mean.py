"""The mean of a number over all occurrences of something, with an interval that allows for several in one text.

With `s_i` the sum over the `c_i` occurrences in text `i`, and `n` texts, the mean is the ratio `r = Σ s_i / Σ c_i`.
Occurrences in one text are not independent, but texts are. So the variance is that of a ratio of sums over texts:

    se² = n / (n - 1) Σ_i (s_i - r c_i)² / (Σ_i c_i)²

and the interval is `r ± t se`, with `t` the quantile of Student's distribution with `n - 1` degrees of freedom. A
bootstrap over texts estimates the same variance. It would need all texts in memory, where these sums need six numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist


@dataclass
class ClusteredMean:
    """A running mean over occurrences in texts."""

    texts: int = 0  # n
    occurrences: int = 0  # Σ c
    total: float = 0.0  # Σ s
    squares: float = 0.0  # Σ s²
    products: float = 0.0  # Σ s c
    squared_counts: int = 0  # Σ c²

    def add(self, total: float, occurrences: int) -> None:
        """Include a text."""
        self.texts += 1
        self.occurrences += occurrences
        self.total += total
        self.squares += total * total
        self.products += total * occurrences
        self.squared_counts += occurrences * occurrences

    @property
    def mean(self) -> float:
        """The mean over occurrences."""
        return self.total / self.occurrences

    @property
    def standard_error(self) -> float:
        """Of the mean, over texts; NaN for a single text."""
        if self.texts < 2:
            return math.nan
        mean = self.mean
        residuals = self.squares - 2 * mean * self.products + mean * mean * self.squared_counts
        variance = self.texts / (self.texts - 1) * max(residuals, 0.0)  # below 0 by rounding only
        return math.sqrt(variance) / self.occurrences

    def interval(self, confidence: float) -> tuple[float, float]:
        """The ends of the interval; NaN for a single text."""
        error = self.standard_error
        if math.isnan(error):
            return math.nan, math.nan
        margin = -student_quantile((1 - confidence) / 2, self.texts - 1) * error  # of the lower end, exact near 0
        return self.mean - margin, self.mean + margin


def student_quantile(probability: float, freedom: int) -> float:
    """A quantile of Student's distribution: exact for 1 and 2 degrees of freedom, otherwise a series.

    It is that of Abramowitz and Stegun 26.7.5. Up to a probability of 0.995 it is off by less than 2 % for 3 degrees of
    freedom, and by less than 0.1 % for 7.
    """
    if freedom == 1:
        return math.tan(math.pi * (probability - 0.5))
    if freedom == 2:
        odds = 4 * probability * (1 - probability)
        return 2 * (probability - 0.5) * math.sqrt(2 / odds)
    z = NormalDist().inv_cdf(probability)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    correction = 0.0
    for power, term in enumerate((first, second, third, fourth), start=1):
        correction += term / freedom**power
    return z + correction
