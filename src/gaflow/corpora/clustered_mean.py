"""The mean of a number over all occurrences of something, with an interval that allows for several in one text.

With `s_i` the sum over the `c_i` occurrences in text `i`, and `n` texts, the mean is the ratio `r = Σ s_i / Σ c_i`.
Occurrences in one text are not independent, but texts are. So the variance is that of a ratio of sums over texts, by
the jackknife that leaves out one text at a time:

    se² = (n - 1) / n Σ_i ((s_i - r c_i) / (1 - h_i))² / (Σ_i c_i)²,    h_i = c_i / Σ_j c_j

Without `1 - h_i`, a text with many of the occurrences pulls the mean to itself, and the error seems too small. The
interval is `r ± t se`, with `t` the quantile of Student's distribution. Its degrees of freedom are one less than the
effective number of texts `1 / Σ_i h_i²`, which is `n` if all texts have equally many occurrences.

Texts with equally many occurrences have the same `h_i`. So three numbers for each count are enough, and no text has to
be in memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass
class _Sums:
    """Sums over the texts with the same number of occurrences."""

    texts: int = 0
    total: float = 0.0  # Σ s
    squares: float = 0.0  # Σ s²


@dataclass
class ClusteredMean:
    """A running mean over occurrences in texts."""

    texts: int = 0  # n
    occurrences: int = 0  # Σ c
    total: float = 0.0  # Σ s
    by_count: dict[int, _Sums] = field(default_factory=dict)  # c -> sums over its texts

    def add(self, total: float, occurrences: int) -> None:
        """Include a text."""
        self.texts += 1
        self.occurrences += occurrences
        self.total += total
        sums = self.by_count.setdefault(occurrences, _Sums())
        sums.texts += 1
        sums.total += total
        sums.squares += total * total

    @property
    def mean(self) -> float:
        """The mean over occurrences."""
        return self.total / self.occurrences

    @property
    def effective_texts(self) -> float:
        """How many texts with equally many occurrences would say as much."""
        squared_counts = sum(sums.texts * count * count for count, sums in self.by_count.items())
        return self.occurrences * self.occurrences / squared_counts

    @property
    def standard_error(self) -> float:
        """Of the mean, over texts; NaN for a single text."""
        if self.texts < 2:
            return math.nan
        mean = self.mean
        variance = 0.0
        for count, sums in self.by_count.items():
            expected = mean * count
            residuals = sums.squares - 2 * expected * sums.total + sums.texts * expected * expected
            remaining = 1 - count / self.occurrences
            variance += max(residuals, 0.0) / remaining**2  # below 0 by rounding only
        variance *= (self.texts - 1) / self.texts
        return math.sqrt(variance) / self.occurrences

    def interval(self, confidence: float) -> tuple[float, float]:
        """The ends of the interval; NaN for a single text."""
        from scipy.special import stdtrit  # slow to import

        error = self.standard_error
        if math.isnan(error):
            return math.nan, math.nan
        freedom = max(self.effective_texts - 1, 1.0)
        margin = -float(stdtrit(freedom, (1 - confidence) / 2)) * error  # of the lower end, exact near 0
        return self.mean - margin, self.mean + margin
