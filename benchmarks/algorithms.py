"""Do Algorithms 1 and 2 find the same flow? Synthetic information tensors of many sizes, as in appendix C of the paper.

    python -m benchmarks.algorithms

draws tensors with entries between 0 and 1 for each number of tokens t and of layers l, solves the integers of both
algorithms by plain maximum flow and both networks by the log barrier, and writes results/algorithms.md.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

import gaflow
from benchmarks.cvxpy_reference import cvxpy_flow
from benchmarks.report import provenance, write

TOKENS = (2, 3, 5, 8, 16, 32)
LAYERS = (1, 2, 3, 6, 12)
DIFFERENT = 1e-9  # of the flow value: what differs by less counts as the same


@dataclass(frozen=True)
class Comparison:
    """The two algorithms on one tensor; amounts are shares of the flow value."""

    value: float  # difference of the two values
    edges: float  # largest difference of an edge's flow
    moved: float  # flow that takes other edges, mean over layers
    scores: float  # flow that ends in other tokens
    range_width: float  # mean range of a token's score over all maximum flows


def compare(information: Tensor) -> Comparison:
    """Maximum flows of one tensor (l, t, t) by both algorithms."""
    backward = gaflow.max_flow(information, "backward", terminal="tokens")
    forward = gaflow.max_flow(information, "forward", terminal="tokens")
    value = backward.value.item()
    difference = (backward.edges - forward.edges).abs()
    score_difference = (backward.target - forward.target).abs()
    ranges = gaflow.score_ranges(information, integral=True, terminal="tokens")
    return Comparison(
        value=abs(value - forward.value.item()) / value,
        edges=difference.max().item() / value,
        moved=difference.sum((-2, -1)).mean().item() / 2 / value,
        scores=score_difference.sum().item() / 2 / value,
        range_width=ranges.width.mean().item() / value,
    )


def grid(field: str, comparisons: dict[tuple[int, int], list[Comparison]], *, share: bool) -> list[str]:
    """A table of tokens and layers: how many tensors differ in a field, or the mean of the field."""
    lines = ["| t \\ l | " + " | ".join(map(str, LAYERS)) + " |", "|---:|" + "---:|" * len(LAYERS)]
    for tokens in TOKENS:
        cells = []
        for layers in LAYERS:
            numbers = np.array([getattr(comparison, field) for comparison in comparisons[tokens, layers]])
            if share:
                cells.append(f"{np.mean(numbers > DIFFERENT):.0%}")
            else:
                cells.append(f"{numbers.mean():.1%}")
        lines.append(f"| {tokens} | " + " | ".join(cells) + " |")
    return lines


def barrier_difference(seed: int) -> float:
    """How far the barrier solutions of both networks are apart, as CVXPY finds each of them, of the flow value."""
    generator = torch.Generator().manual_seed(seed)
    information = torch.rand(3, 3, 3, generator=generator, dtype=torch.float64)
    backward = cvxpy_flow(information, epsilon=0.1, direction="backward")
    forward = cvxpy_flow(information, epsilon=0.1, direction="forward")
    difference = (backward.edges - forward.edges).abs().max()
    return difference.item() / backward.value.item()


def main() -> None:
    """Compare on the whole grid and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50, help="tensors of each size")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="algorithms.md", help="name below benchmarks/results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(arguments.seed)
    comparisons = {}
    for tokens in TOKENS:
        for layers in LAYERS:
            shape = (arguments.count, layers, tokens, tokens)
            tensors = torch.rand(shape, generator=generator, dtype=torch.float64)
            comparisons[tokens, layers] = [compare(information) for information in tensors]
    largest = max(comparison.value for several in comparisons.values() for comparison in several)
    barrier = max(barrier_difference(seed) for seed in range(10))
    lines = [
        "# Algorithms 1 and 2 on synthetic tensors",
        "",
        f"{arguments.count} tensors (l, t, t) of each size with entries drawn evenly from 0 to 1; integers and "
        "terminals as the algorithms print them; maximum flows are those that OR-Tools finds.",
        "",
        provenance(count=arguments.count, seed=arguments.seed),
        f"Largest difference of the two values: {largest:.0e} of the flow.",
        f"Largest difference of the two barrier solutions on an edge, as CVXPY finds them (10 tensors of l = t = 3): "
        f"{barrier:.0e}.",
        "",
        "## Tensors on which the two flows differ",
        "",
        *grid("edges", comparisons, share=True),
        "",
        "## Tensors on which the scores of the input tokens differ",
        "",
        *grid("scores", comparisons, share=True),
        "",
        "## Flow that takes other edges, mean over layers and tensors",
        "",
        *grid("moved", comparisons, share=False),
        "",
        "## Flow that ends in another token, mean",
        "",
        *grid("scores", comparisons, share=False),
        "",
        "## Range of a token's score over all maximum flows, mean",
        "",
        *grid("range_width", comparisons, share=False),
    ]
    print("\n".join(lines))
    print("written to", write(arguments.out, "\n".join(lines) + "\n").name)


if __name__ == "__main__":
    main()
