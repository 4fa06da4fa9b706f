"""What mu and the capacity of the terminals change: scores, their order, and faithfulness.

    python -m benchmarks.sensitivity --data sst2-dev.parquet

draws texts from a Parquet file and explains them by AF, GF and AGF for several epsilon (mu = epsilon kappa / (2 m)) and
several terminal capacities u_inf. Compares each with the default, measures AOPC of the highest-scored tokens, and does
the same for the Shapley value of the flow game on the same networks. Writes results/sensitivity.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import spearmanr

import gaflow
from benchmarks.report import provenance, standard_error, write

TENSORS = ("af", "gf", "agf")
EPSILONS = (1e-8, 1e-6, 1e-4, 1e-2, 1.0, 100.0, 1e4)
TERMINALS: dict[str, float | str | None] = {
    "t max(Ā), the default": None,
    "t, the paper's": "tokens",
    "sum of the capacities beside it": "adjacent",
    "0.01": 0.01,
    "0.001": 0.001,
}


def variants(tensor: str) -> dict[str, gaflow.FlowMethod]:
    """All settings of one information tensor, by the name of their row."""
    methods = {}
    for epsilon in EPSILONS:
        methods[f"epsilon = {epsilon:g}"] = gaflow.FlowMethod(tensor, epsilon=epsilon)
    for name, terminal in TERMINALS.items():
        methods[f"u_inf = {name}"] = gaflow.FlowMethod(tensor, terminal=terminal)
    return methods


def difference(scores: Sequence[np.ndarray], default: Sequence[np.ndarray]) -> tuple[float, float]:
    """Mean share of the flow that ends in other tokens, and mean rank correlation, over texts."""
    moved = []
    correlations = []
    for text_scores, default_scores in zip(scores, default, strict=True):
        shares = text_scores / text_scores.sum()
        default_shares = default_scores / default_scores.sum()
        moved.append(np.abs(shares - default_shares).sum() / 2)
        correlation: Any = spearmanr(shares, default_shares)
        correlations.append(correlation.statistic)
    return float(np.mean(moved)), float(np.mean(correlations))


def main() -> None:
    """Explain, compare, mask, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="Parquet file with a column of texts")
    parser.add_argument("--column", default="text")
    parser.add_argument("--model", default=None, help="hub id or path; the embedded model by default")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--orders", type=int, default=128, help="of the flow game")
    parser.add_argument("--out", default="sensitivity.md", help="name below benchmarks/results")
    arguments = parser.parse_args()
    column = pd.read_parquet(arguments.data)[arguments.column]
    texts = column.sample(arguments.count, random_state=arguments.seed).tolist()
    explainer = gaflow.Explainer(arguments.model)
    scores: dict[str, list[np.ndarray]] = {}
    for tensor in TENSORS:
        for row, method in variants(tensor).items():
            attributions = explainer(texts, method=method, batch_size=32)
            scores[f"{tensor}, {row}"] = [attribution.scores for attribution in attributions]
        game = []
        for attribution in explainer(texts, method=tensor, batch_size=32):
            flow = attribution.flow
            if flow is None or flow.capacity is None:
                raise ValueError("the flow of a tensor has capacities")
            game.append(gaflow.shapley(flow.capacity, arguments.orders).numpy())
        scores[f"{tensor}, flow game"] = game
    evaluation = gaflow.evaluate(explainer, texts, methods=[], scores=scores, order="top", eraser=False)
    names = list(evaluation.methods)
    aopc = dict(zip(names, evaluation.per_text("aopc", "top"), strict=True))
    header = " | ".join(f"{tensor} moved | {tensor} rank | {tensor} AOPC | less the default's" for tensor in TENSORS)
    lines = [f"| | {header} |", "|---|" + "---:|" * (4 * len(TENSORS))]
    for row in (*variants("af"), "flow game"):
        cells = []
        for tensor in TENSORS:
            default = f"{tensor}, epsilon = 1e-06"
            name = f"{tensor}, {row}"
            moved, correlation = difference(scores[name], scores[default])
            gap = aopc[name] - aopc[default]
            cells += [
                f"{moved:.1%}",
                f"{correlation:.3f}",
                f"{aopc[name].mean():.3f}",
                f"{gap.mean():+.3f} ± {standard_error(gap):.3f}",
            ]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    random = f"{aopc['random'].mean():.3f}"
    page = [
        "# What mu and u_inf change",
        "",
        f"{len(texts)} texts of {arguments.data.name}. Scores are shares of the flow. *Moved* is the share that ends "
        "in other tokens than with the default settings, *rank* the rank correlation with them, both means over texts. "
        "AOPC is that of the highest-scored tokens, replaced by [PAD], with its paired difference to the default and "
        f"the standard error. Random scores have an AOPC of {random}.",
        "",
        provenance(
            count=arguments.count, seed=arguments.seed, orders=arguments.orders, model=arguments.model or "embedded"
        ),
        *lines,
    ]
    print("\n".join(page))
    print("written to", write(arguments.out, "\n".join(page) + "\n").name)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
