"""How often Almost Stochastic Order calls one of two samples better that come from the same distribution.

    python -m benchmarks.aso_errors

Writes results/aso_errors.md; docs/evaluation.md cites it.
"""

from __future__ import annotations

import argparse

import numpy as np

import gaflow
from benchmarks.report import provenance, write

THRESHOLDS = (0.5, 0.2)


def error_rates(size: int, trials: int, seed: int) -> list[float]:
    """The share of trials in which epsilon is below each threshold, for two normal samples of `size` numbers."""
    generator = np.random.default_rng(seed)
    epsilons = []
    for trial in range(trials):
        first, second = generator.normal(size=(2, size))
        epsilons.append(gaflow.aso(first, second, seed=trial))
    return [float(np.mean(np.array(epsilons) < threshold)) for threshold in THRESHOLDS]


def main() -> None:
    """Draw, test and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[20, 100, 1000])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    lines = ["# False alarms of Almost Stochastic Order", "", provenance(trials=options.trials, seed=options.seed)]
    lines += ["| numbers in each sample | epsilon < 0.5 | epsilon < 0.2 |", "|---:|---:|---:|"]
    for size in options.sizes:
        rates = error_rates(size, options.trials, options.seed)
        cells = " | ".join(f"{rate:.1%}" for rate in rates)
        lines.append(f"| {size} | {cells} |")
    write("aso_errors.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
