"""Whether one sample of scores is better than another, and by how much.

Almost Stochastic Order (del Barrio et al. 2018, Dror et al. 2019, Ulmer et al. 2022). `A` is better than `B` in every
respect if `F_A^-1(t) >= F_B^-1(t)` for all t, where `F^-1` is the quantile function. How far that is violated:

    eps(A, B) = integral over {F_A^-1 < F_B^-1} of (F_A^-1 - F_B^-1)^2 dt  /  integral of (F_A^-1 - F_B^-1)^2 dt

between 0 (A dominates) and 1 (B does), and `eps(A, B) + eps(B, A) = 1`. With n and m observations and confidence 1 - a,

    eps_min = eps_nm - sqrt((n + m) / (n m)) sigma z_a,      sigma^2 = Var* [sqrt(n m / (n + m)) (eps* - eps_nm)]

is an upper bound of the violation, where `*` are bootstrap resamples and `z_a = Phi^-1(a) < 0`. Quantile functions of
samples are steps, so that the integrals are sums and exact.

The convention this file owns: **larger is better** in every sample given here, and an observation is a text.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import NormalDist
from typing import Any

import numpy as np

__all__ = ["aso", "aso_pairs", "bootstrap_means", "holm", "resamples_of", "sign_flip_test", "violation"]

_CHUNK = 1 << 22  # numbers drawn at once


def aso(
    a: Any,
    b: Any,
    *,
    confidence: float = 0.95,
    resamples: int = 500,
    comparisons: int = 1,
    seed: int = 0,
) -> float:
    """Upper bound `eps_min` on how far `a` (n,) fails to be stochastically larger than `b` (m,), in [0, 1].

    Below 0.5 `a` is better than `b` more than the other way round; the usual threshold to claim so is 0.5 or less, and
    0 means better in every respect. `comparisons` is by how many tests an error may happen (Bonferroni). Samples of
    one and the same distribution give more than 0.5; of samples that are equal throughout none is better, and the
    bound is 1.
    """
    x, y = _sample(a, "a"), _sample(b, "b")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence!r}")
    for name, value, least in (("resamples", resamples, 2), ("comparisons", comparisons, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be a whole number >= {least}, not {value!r}")
    n, m = len(x), len(y)
    steps = _steps(n, m)
    x, y = np.sort(x), np.sort(y)
    if not np.any(x[steps[0]] != y[steps[1]]):
        return 1.0
    found = _violation(x[None], y[None], steps)[0]
    generator = np.random.default_rng(seed)
    drawn = []
    for count in _counts(resamples, n + m):
        ones = np.sort(x[generator.integers(0, n, (count, n))], axis=1)
        others = np.sort(y[generator.integers(0, m, (count, m))], axis=1)
        drawn.append(_violation(ones, others, steps))
    spread = np.concatenate(drawn).std(ddof=1)  # the factors sqrt(nm / (n + m)) of sigma and of the bound cancel
    bound = found - spread * NormalDist().inv_cdf((1 - confidence) / comparisons)
    return float(np.clip(bound, 0.0, 1.0))


def aso_pairs(values: Any, *, confidence: float = 0.95, resamples: int = 500, seed: int = 0) -> np.ndarray:
    """`eps_min` (m, m) of every row of `values` (m, n) being better than every other; NaN on the diagonal.

    Every sample is resampled once, for all pairs that it is in, and `eps(B, A) = 1 - eps(A, B)` of the same resamples.
    The error is shared by the `m (m - 1) / 2` pairs (Bonferroni): no two can both be better than the other.
    """
    rows = np.stack([np.sort(_sample(row, f"values[{k}]")) for k, row in enumerate(values)])
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence!r}")
    m, n = rows.shape
    pairs = np.triu_indices(m, 1)
    if m < 2:
        return np.full((m, m), np.nan)
    generator = np.random.default_rng(seed)
    small = np.uint16 if n <= 1 << 16 else np.uint32  # which NumPy sorts by radix
    drawn = []
    for count in _counts(resamples, m * n):
        chosen = np.sort(generator.integers(0, n, (m, count, n), dtype=small), axis=-1, kind="stable")
        again = np.take_along_axis(rows[:, None], chosen.astype(np.intp), -1)
        drawn.append(np.stack([_paired_violation(again[i] - again[j]) for i, j in zip(*pairs, strict=True)], 1))
    spread = np.concatenate(drawn).std(0, ddof=1)
    found = np.array([_paired_violation((rows[i] - rows[j])[None])[0] for i, j in zip(*pairs, strict=True)])
    margin = -spread * NormalDist().inv_cdf((1 - confidence) / len(found))
    same = np.array([np.array_equal(rows[i], rows[j]) for i, j in zip(*pairs, strict=True)], dtype=bool)
    bound = np.full((m, m), np.nan)
    bound[pairs] = np.where(same, 1.0, np.clip(found + margin, 0.0, 1.0))
    bound.T[pairs] = np.where(same, 1.0, np.clip(1 - found + margin, 0.0, 1.0))
    return bound


def _paired_violation(gap: np.ndarray) -> np.ndarray:
    """`eps` (r,) from differences (r, n) of quantiles of equally many observations."""
    whole = np.einsum("rn,rn->r", gap, gap)
    below = np.minimum(gap, 0.0)
    against = np.einsum("rn,rn->r", below, below)
    return np.divide(against, whole, out=np.full(len(gap), 0.5), where=whole > 0)


def violation(a: Any, b: Any) -> float:
    """`eps(A, B)` of two samples as they are; 0.5 if they are equal throughout."""
    x, y = np.sort(_sample(a, "a")), np.sort(_sample(b, "b"))
    return float(_violation(x[None], y[None], _steps(len(x), len(y)))[0])


def _steps(n: int, m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the quantile functions of n and m observations are constant: indices into both, and widths."""
    edges = np.union1d(np.arange(1, n + 1) * m, np.arange(1, m + 1) * n)  # in units of 1 / (n m), so exact
    widths = np.diff(edges, prepend=0)
    return (edges - 1) // m, (edges - 1) // n, widths / (n * m)


def _violation(x: np.ndarray, y: np.ndarray, steps: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    """`eps` (r,) of sorted samples (r, n) and (r, m)."""
    ones, others, widths = steps
    gap = x[:, ones] - y[:, others]
    whole = (gap**2) @ widths
    against = np.minimum(gap, 0.0) ** 2 @ widths
    return np.divide(against, whole, out=np.full(len(gap), 0.5), where=whole > 0)


def resamples_of(n: int, resamples: int, seed: int = 0) -> Iterator[np.ndarray]:
    """How often each of n observations is drawn (r, n), in chunks of `resamples` rows in all."""
    generator = np.random.default_rng(seed)
    for count in _counts(resamples, n):
        yield generator.multinomial(n, np.full(n, 1 / n), size=count).astype(np.float64)


def bootstrap_means(values: np.ndarray, resamples: int = 1000, seed: int = 0) -> np.ndarray:
    """Means (r, ...) of `values` (n, ...) over resampled texts, the same ones for every column: paired."""
    n = len(values)
    flat = values.reshape(n, -1)
    means = np.concatenate([weights @ flat for weights in resamples_of(n, resamples, seed)]) / n
    return means.reshape(resamples, *values.shape[1:])


def sign_flip_test(differences: np.ndarray, resamples: int = 10_000, seed: int = 0) -> np.ndarray:
    """Two-sided p-values (...) of paired `differences` (n, ...) having mean 0.

    If the two methods were alike, every text's difference could as well have the other sign. All 2^n signs are tried
    if they are no more than `resamples`; else that many random ones, and those observed count as one of them.
    """
    n = len(differences)
    flat = differences.reshape(n, -1)
    observed = np.abs(flat.sum(0)) * (1 - 1e-12)  # sums that only rounding tells apart are equal
    hits = np.zeros(flat.shape[1])
    exact = n < 40 and 2**n <= resamples
    if exact:
        signs = 1.0 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        hits += (np.abs(signs @ flat) >= observed).sum(0)
        return (hits / 2**n).reshape(differences.shape[1:])
    generator = np.random.default_rng(seed)
    for count in _counts(resamples, n):
        signs = 1.0 - 2.0 * generator.integers(0, 2, (count, n))
        hits += (np.abs(signs @ flat) >= observed).sum(0)
    return ((1 + hits) / (1 + resamples)).reshape(differences.shape[1:])


def holm(p: Any) -> np.ndarray:
    """Holm's correction (1979): p-values that keep the chance of any false claim among all of them."""
    given = np.asarray(p, dtype=np.float64)
    order = np.argsort(given, kind="stable")
    stepped = np.maximum.accumulate(given[order] * np.arange(len(given), 0, -1))
    corrected = np.empty_like(given)
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected


def _sample(values: Any, name: str) -> np.ndarray:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or len(found) < 2:
        raise ValueError(f"{name} must be a list of at least two numbers, but has shape {found.shape}")
    if not np.isfinite(found).all():
        raise ValueError(f"{name} holds NaN or infinite values; leave these observations out in both samples")
    return found


def _counts(rows: int, width: int) -> Iterator[int]:
    """`rows` in pieces that fit into memory."""
    most = max(1, _CHUNK // max(1, width))
    for start in range(0, rows, most):
        yield min(most, rows - start)
