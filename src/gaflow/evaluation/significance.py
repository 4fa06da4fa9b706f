"""Tests of whether one sample of scores is better than another, and by how much.

Almost Stochastic Order (del Barrio et al. 2018, Dror et al. 2019, Ulmer et al. 2022). `A` is better than `B` in every
respect if `F_A^-1(t) >= F_B^-1(t)` for all t, where `F^-1` is the quantile function. How far that is violated:

    eps(A, B) = integral over {F_A^-1 < F_B^-1} of (F_A^-1 - F_B^-1)^2 dt  /  integral of (F_A^-1 - F_B^-1)^2 dt

between 0 (A dominates) and 1 (B does), and `eps(A, B) + eps(B, A) = 1`. With n and m observations and confidence 1 - a,

    eps_min = eps_nm - sqrt((n + m) / (n m)) sigma z_a,      sigma^2 = Var* [sqrt(n m / (n + m)) (eps* - eps_nm)]

is an upper bound of the violation, where `*` are bootstrap resamples and `z_a = Phi^-1(a) < 0`. Quantile functions of
samples are step functions, so the integrals are sums and exact.

The convention this file owns: **larger is better** in every sample passed here, and an observation is a text.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from gaflow.arguments import checked, open_fraction, vector, whole_number
from gaflow.errors import Argument, ArgumentError

_NUMBERS_AT_ONCE = 1 << 22  # drawn, so that they fit into memory


@checked
def aso(
    a: ArrayLike,
    b: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 500,
    comparisons: int = 1,
    seed: int = 0,
) -> float:
    """Upper bound `eps_min` on how far `a` (n,) fails to be stochastically larger than `b` (m,), in [0, 1].

    Below 0.5 `a` is better than `b` more than the other way round, and 0 means better in every respect. Two samples of
    the same distribution give less than 0.5 in one case of six, and less than 0.2 in one of forty: use 0.2 to call `a`
    better. `comparisons` is the number of tests that share the error (Bonferroni). If the samples are equal throughout,
    neither is better, and the bound is 1.

        gaflow.aso([0.9, 0.8, 0.95], [0.2, 0.4, 0.3])
    """
    x = np.sort(_sample("a", a))
    y = np.sort(_sample("b", b))
    open_fraction("confidence", confidence)
    whole_number("resamples", resamples, 2)
    whole_number("comparisons", comparisons)
    whole_number("seed", seed, 0)
    steps = _QuantileSteps(len(x), len(y))
    if not np.any(steps.difference(x, y)):
        return 1.0
    observed = steps.violation(x[None], y[None])[0]
    generator = np.random.default_rng(seed)
    resampled = []
    for count in _chunks(resamples, len(x) + len(y)):
        x_resampled = _resample(x, count, generator)
        y_resampled = _resample(y, count, generator)
        resampled.append(steps.violation(x_resampled, y_resampled))
    spread = np.concatenate(resampled).std(ddof=1)  # the factors sqrt(nm / (n + m)) of sigma and of the bound cancel
    z = NormalDist().inv_cdf((1 - confidence) / comparisons)
    bound = observed - spread * z
    return float(np.clip(bound, 0.0, 1.0))


def _resample(sample: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """Sorted resamples (count, n) of a sample (n,)."""
    n = len(sample)
    indices = generator.integers(0, n, (count, n))
    return np.sort(sample[indices], axis=1)


def aso_pairs(values: ArrayLike, *, confidence: float = 0.95, resamples: int = 500, seed: int = 0) -> np.ndarray:
    """`eps_min` (m, m) of every row of `values` (m, n) being better than every other; NaN on the diagonal.

    Every sample is resampled once, for all pairs that it is in, and `eps(B, A) = 1 - eps(A, B)` of the same resamples.
    The error is shared by the `m (m - 1) / 2` pairs (Bonferroni): no two can both be better than the other.
    """
    samples = [_sample(f"values[{k}]", row) for k, row in enumerate(np.asarray(values))]
    rows = np.sort(samples, axis=1)
    open_fraction("confidence", confidence)
    whole_number("resamples", resamples, 2)
    m, n = rows.shape
    bounds = np.full((m, m), np.nan)
    if m < 2:
        return bounds
    first, second = np.triu_indices(m, 1)  # of every pair
    generator = np.random.default_rng(seed)
    index_type = np.uint16 if n <= 1 << 16 else np.uint32  # small ones, which NumPy sorts by radix
    resampled = []
    for count in _chunks(resamples, m * n):
        drawn = generator.integers(0, n, (m, count, n), dtype=index_type)
        indices = np.sort(drawn, axis=-1, kind="stable").astype(np.intp)
        drawn_rows = np.take_along_axis(rows[:, None], indices, -1)
        violations = []
        for i, j in zip(first, second, strict=True):
            violations.append(_paired_violation(drawn_rows[i] - drawn_rows[j]))
        resampled.append(np.stack(violations, 1))
    spread = np.concatenate(resampled).std(0, ddof=1)
    differences = rows[first] - rows[second]
    observed = _paired_violation(differences)
    z = NormalDist().inv_cdf((1 - confidence) / len(first))
    margin = -spread * z
    margin[~differences.any(1)] = np.inf  # of equal samples neither is better: the bound is 1
    bounds[first, second] = np.clip(observed + margin, 0.0, 1.0)
    bounds[second, first] = np.clip(1 - observed + margin, 0.0, 1.0)
    return bounds


def _paired_violation(difference: np.ndarray) -> np.ndarray:
    """`eps` (r,) from differences (r, n) of quantiles of equally many observations."""
    total = np.einsum("rn,rn->r", difference, difference)
    negative = np.minimum(difference, 0.0)
    violated = np.einsum("rn,rn->r", negative, negative)
    return _ratio(violated, total)


def violation(a: ArrayLike, b: ArrayLike) -> float:
    """`eps(A, B)` of two samples as they are; 0.5 if they are equal throughout."""
    x = np.sort(_sample("a", a))
    y = np.sort(_sample("b", b))
    violations = _QuantileSteps(len(x), len(y)).violation(x[None], y[None])
    return float(violations[0])


class _QuantileSteps:
    """Intervals on which the quantile functions of two samples of n and m observations are both constant."""

    def __init__(self, n: int, m: int) -> None:
        x_edges = np.arange(1, n + 1) * m  # in units of 1 / (n m), so exact
        y_edges = np.arange(1, m + 1) * n
        edges = np.union1d(x_edges, y_edges)
        self.x_index = (edges - 1) // m  # (s,) observation of the first sample
        self.y_index = (edges - 1) // n  # (s,) observation of the second
        self.widths = np.diff(edges, prepend=0) / (n * m)  # (s,)

    def difference(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Difference (..., s) of the quantile functions of sorted samples (..., n) and (..., m)."""
        return x[..., self.x_index] - y[..., self.y_index]

    def violation(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """`eps` (r,) of sorted samples (r, n) and (r, m)."""
        difference = self.difference(x, y)
        negative = np.minimum(difference, 0.0)
        total = difference**2 @ self.widths
        violated = negative**2 @ self.widths
        return _ratio(violated, total)


def _ratio(violated: np.ndarray, total: np.ndarray) -> np.ndarray:
    """`violated / total` (r,), or 0.5 where the total is 0."""
    halves = np.full(len(total), 0.5)
    return np.divide(violated, total, out=halves, where=total > 0)


def resample_counts(n: int, resamples: int, seed: int = 0) -> Iterator[np.ndarray]:
    """How often each of n observations is drawn (r, n), in chunks of `resamples` rows in all."""
    generator = np.random.default_rng(seed)
    equal_chances = np.full(n, 1 / n)
    for count in _chunks(resamples, n):
        counts = generator.multinomial(n, equal_chances, size=count)
        yield counts.astype(np.float64)


def bootstrap_means(values: np.ndarray, resamples: int = 1000, seed: int = 0) -> np.ndarray:
    """Means (r, ...) of `values` (n, ...) over resampled texts, the same ones for every column: paired."""
    whole_number("resamples", resamples)
    whole_number("seed", seed, 0)
    n = len(values)
    columns = values.reshape(n, -1)
    chunks = [counts @ columns for counts in resample_counts(n, resamples, seed)]
    means = np.concatenate(chunks) / n
    return means.reshape(resamples, *values.shape[1:])


def interval(resampled: np.ndarray, confidence: float) -> np.ndarray:
    """Ends (2, ...) of the interval that holds the central share `confidence` of resampled values (r, ...)."""
    open_fraction("confidence", confidence)
    tail = (1 - confidence) / 2
    return np.quantile(resampled, (tail, 1 - tail), axis=0)


def sign_flip_test(differences: np.ndarray, resamples: int = 10_000, seed: int = 0) -> np.ndarray:
    """Two-sided p-values (...) of paired `differences` (n, ...) having mean 0.

    If the two methods were alike, every text's difference could as well have the other sign. All 2^n signs are tried
    if they are no more than `resamples`; else that many random ones, and the observed ones count as one of them.
    """
    whole_number("permutations", resamples)
    n = len(differences)
    columns = differences.reshape(n, -1)
    observed = np.abs(columns.sum(0)) * (1 - 1e-12)  # sums that differ only by rounding are equal
    hits = np.zeros(columns.shape[1])
    trials = 2**n
    if trials <= resamples:
        chunks = [all_subsets(n)]
    else:
        generator = np.random.default_rng(seed)
        chunks = (generator.integers(0, 2, (count, n)) for count in _chunks(resamples, n))
        trials = 1 + resamples
        hits += 1
    for flipped in chunks:
        signs = 1.0 - 2.0 * flipped
        hits += (np.abs(signs @ columns) >= observed).sum(0)
    return (hits / trials).reshape(differences.shape[1:])


def all_subsets(n: int) -> np.ndarray:
    """All subsets of n things, (2^n, n): set number s has those of the bits of s."""
    numbers = np.arange(1 << n)[:, None]
    return (numbers >> np.arange(n)) & 1 == 1


def holm(p: ArrayLike) -> np.ndarray:
    """Holm's correction (1979): p-values that bound the probability of any false claim among all of them."""
    p_values = np.asarray(p, dtype=np.float64)
    order = np.argsort(p_values, kind="stable")
    remaining = np.arange(len(p_values), 0, -1)  # claims not yet made, from the smallest p-value on
    stepped = np.maximum.accumulate(p_values[order] * remaining)
    corrected = np.empty_like(p_values)
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected


def _sample(name: str, values: ArrayLike) -> np.ndarray:
    sample = vector(name, values).astype(np.float64)
    if len(sample) < 2:
        message = " must have at least two numbers"
        raise ArgumentError(Argument(name), message)
    return sample


def _chunks(rows: int, width: int) -> Iterator[int]:
    """`rows` of `width` numbers in chunks that fit into memory: the rows of each."""
    most = max(1, _NUMBERS_AT_ONCE // max(1, width))
    for start in range(0, rows, most):
        yield min(most, rows - start)
