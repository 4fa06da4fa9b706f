"""How the cost of the barrier solver grows with tokens and layers: steps, seconds, and the exponents of both.

    python -m benchmarks.growth

Capacities are those of AGF on random attention: softmax rows times positive noise, mean over heads. One thread, so that
times compare. Writes results/growth.md; docs/solver.md sets it beside Table 7 of the paper.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
from torch import Tensor

import gaflow
from benchmarks.report import provenance, write

TOKENS = (16, 32, 64, 128, 256, 512)
LAYERS = (1, 3, 6, 12, 24, 48)
HEADS = 12


def capacities(layers: int, tokens: int, generator: torch.Generator) -> Tensor:
    """An AGF-like tensor (l, t, t)."""
    scores = torch.randn(layers, HEADS, tokens, tokens, generator=generator, dtype=torch.float64)
    gradient = torch.randn(layers, HEADS, tokens, tokens, generator=generator, dtype=torch.float64)
    product = (2 * scores).softmax(-1) * gradient
    return product.relu().mean(1)


def measure(layers: int, tokens: int, repeats: int, seed: int) -> tuple[float, float, int]:
    """Median seconds and steps of a solve, and the number of edges."""
    generator = torch.Generator().manual_seed(seed)
    seconds = []
    steps = []
    edges = 0
    for _ in range(repeats):
        information = capacities(layers, tokens, generator)
        started = time.perf_counter()
        flow = gaflow.solve(information)
        seconds.append(time.perf_counter() - started)
        steps.append(int(flow.certificate.iterations))
        edges = int(flow.certificate.edges)
    return statistics.median(seconds), statistics.median(steps), edges


def exponent(sizes: list[int], amounts: list[float]) -> float:
    """The slope of a straight line through the logarithms."""
    slope, _ = np.polyfit(np.log(sizes), np.log(amounts), 1)
    return float(slope)


def table(name: str, sizes: list[tuple[int, int]], repeats: int, seed: int) -> list[str]:
    """Rows of one sweep, and the exponents over its upper half."""
    lines = [f"| {name} | edges m | steps | seconds | seconds a step |", "|---:|---:|---:|---:|---:|"]
    measured = []
    for layers, tokens in sizes:
        seconds, steps, edges = measure(layers, tokens, repeats, seed)
        measured.append((layers if name == "l" else tokens, edges, steps, seconds))
        size, _, _, _ = measured[-1]
        lines.append(f"| {size} | {edges:,} | {steps:g} | {seconds:.4f} | {seconds / steps:.5f} |")
    upper = measured[len(measured) // 2 - 1 :]
    sizes_measured, edge_counts, step_counts, times = map(list, zip(*upper, strict=True))
    all_sizes = [row[0] for row in measured]
    all_steps = [row[2] for row in measured]
    return [
        *lines,
        "",
        f"Steps grow as {name}^{exponent(all_sizes, all_steps):.2f} over the whole table. From {name} = {upper[0][0]} "
        f"on seconds grow as {name}^{exponent(sizes_measured, times):.2f}, or m^{exponent(edge_counts, times):.2f}; "
        f"steps as {name}^{exponent(sizes_measured, step_counts):.2f}.",
    ]


def main() -> None:
    """Measure both sweeps and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="growth.md", help="name below benchmarks/results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    settings = (arguments.repeats, arguments.seed)
    lines = [
        "# How the solver's cost grows",
        "",
        "Medians; AGF-like capacities, epsilon 1e-6, uniform barrier.",
        "",
        provenance(repeats=arguments.repeats, seed=arguments.seed, heads=HEADS),
        "## Tokens, 12 layers",
        "",
        *table("t", [(12, tokens) for tokens in TOKENS], *settings),
        "",
        "## Layers, 64 tokens",
        "",
        *table("l", [(layers, 64) for layers in LAYERS], *settings),
    ]
    print("\n".join(lines))
    print("written to", write(arguments.out, "\n".join(lines) + "\n").name)


if __name__ == "__main__":
    main()
