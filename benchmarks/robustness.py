"""Two tests with a known answer: counterfactual pairs, and changes that must not matter.

    python -m benchmarks.robustness --data dev.parquet --model DIR --pairs 150 --texts 100 --output robustness_sst2.md

Counterfactual pairs: a word of a text is exchanged for its antonym, or a negation is left out (docs/evaluation.md).
Where the model's prediction changes, the edited words decided, so their tokens should rank first. Pairs come from all
`--data` files, at most `--pairs` of those that count.

Stability: rank correlation of the scores of words before and after two spaces for one, capitals for small letters, a
full stop more or less, and the model in float64, bfloat16 and float16. Texts are the first `--texts`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

import gaflow
from benchmarks.asking import mean_with_error
from benchmarks.planted import table as recovery_table
from benchmarks.ranked_table import METHODS
from benchmarks.relevance_study import read_texts
from benchmarks.report import provenance, write
from gaflow.evaluation import Planted, Stability, counterfactual_pairs, counterfactual_rows, recovery, stability

PARTS = ("counterfactual pairs", "stability")
PRECISIONS = ("float64", "bfloat16", "float16")
_PAIRS_AT_ONCE = 200


def deciding_rows(explainer: gaflow.Explainer, texts: Sequence[str], count: int) -> tuple[list[Planted], int]:
    """Texts of up to `count` pairs that change the prediction, and the number of pairs tried."""
    pairs = counterfactual_pairs(texts)
    rows: list[Planted] = []
    changing: set[tuple[int, int]] = set()
    for start in range(0, len(pairs), _PAIRS_AT_ONCE):
        for row in counterfactual_rows(explainer, pairs[start : start + _PAIRS_AT_ONCE]):
            if (start, row.source) not in changing and len(changing) == count:
                return rows, start + row.source
            changing.add((start, row.source))
            rows.append(row)
    return rows, len(pairs)


def pair_lines(explainer: gaflow.Explainer, rows: Sequence[Planted], tried: int, methods: Sequence[str]) -> list[str]:
    """How high methods rank the words that decide."""
    texts = [row.text for row in rows]
    attributions = {name: explainer(texts, name) for name in methods}
    return [
        "## Counterfactual pairs",
        "",
        f"{tried} edits were tried. The texts before and after an edit that changes the prediction are explained.",
        "",
        *recovery_table(recovery(attributions, rows)),
        "",
    ]


def stability_lines(result: Stability) -> list[str]:
    """Rank correlation with standard errors, the method with the highest lowest mean first."""
    means = np.nanmean(result.correlation, axis=2)
    order = np.argsort(-np.nanmin(means, axis=1), kind="stable")
    titles = []
    for column, change in enumerate(result.changes):
        texts = int(np.isfinite(result.correlation[:, column]).any(0).sum())
        titles.append(f"{change} ({texts} texts)")
    lines = ["| method | " + " | ".join(titles) + " |", "|---" * (1 + len(titles)) + "|"]
    for row in order:
        cells = [mean_with_error(values) for values in result.correlation[row]]
        lines.append(f"| {result.methods[row]} | " + " | ".join(cells) + " |")
    changed = []
    for change, values in zip(result.changes, result.probability, strict=True):
        changed.append(f"{change} {np.nanmean(np.abs(values)):.4f}")
    return [
        "## Stability",
        "",
        "Rank correlation of the scores of words, mean over texts with standard error; texts whose prediction changes "
        "are left out. Sorted by the worst column.",
        "",
        *lines,
        "",
        f"Mean change of the predicted probability: {', '.join(changed)}.",
        "",
    ]


def main(arguments: list[str] | None = None) -> None:
    """Edit, explain, compare, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="Parquet files of texts")
    parser.add_argument("--model", required=True, help="folder of a text classifier")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--pairs", type=int, default=150, help="that change the prediction")
    parser.add_argument("--texts", type=int, default=100, help="for stability")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--column", default="text")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", help="name of the file in results/, or a path; none: print only")
    options = parser.parse_args(arguments)
    methods = options.methods.split(",")
    explainer = gaflow.Explainer(options.model, device=options.device, dtype=torch.float32)
    candidates: list[str] = []
    for path in options.data:
        candidates += read_texts(path, options.column, 10**6, options.seed)
    files = ", ".join(path.name for path in options.data)
    model = Path(options.model).name
    lines = [
        f"# {' and '.join(options.parts).capitalize()}: {files}",
        "",
        provenance(model=model, seed=options.seed),
    ]
    if "counterfactual pairs" in options.parts:
        rows, tried = deciding_rows(explainer, candidates, options.pairs)
        lines += pair_lines(explainer, rows, tried, methods)
    if "stability" in options.parts:
        texts = candidates[: options.texts]
        lines += stability_lines(stability(explainer, texts, methods, precisions=PRECISIONS))
    print("\n".join(lines))
    if options.output:
        print("written to", write(options.output, "\n".join(lines)).name)


if __name__ == "__main__":
    main()
