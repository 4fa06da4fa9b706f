"""Two tests with a known answer: counterfactual pairs, and changes that must not matter.

    python -m benchmarks.robustness --data dev.parquet --model DIR --pairs 150 --texts 100 --output robustness_sst2.md

Counterfactual pairs: a word of a text is exchanged for its antonym, or a negation is left out (docs/evaluation.md).
Where the model's prediction changes, the edited words decided, so their tokens should rank first. Pairs come from all
`--data` files, at most `--pairs` of those that count.

Stability: rank correlation of the scores of words before and after two spaces for one, capitals for small letters, a
full stop more or less, and the model in float64, bfloat16 and float16. Texts are the first `--texts`. Once `--seconds`
are over, no other method begins, and those that are missing are named.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

import gaflow
from benchmarks.asking import mean_with_error
from benchmarks.deadline import Deadline, add_option, missing_lines
from benchmarks.planted import table as recovery_table
from benchmarks.ranked_table import METHODS
from benchmarks.relevance_study import read_texts
from benchmarks.report import provenance, write
from gaflow.errors import GaflowError
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


def pair_lines(
    explainer: gaflow.Explainer, rows: Sequence[Planted], tried: int, methods: Sequence[str], batch_size: int
) -> list[str]:
    """How high methods rank the words that decide."""
    texts = [row.text for row in rows]
    attributions = {name: explainer(texts, name, batch_size=batch_size, keep_flow=False) for name in methods}
    return [
        "## Counterfactual pairs",
        "",
        f"{tried} edits were tried. The texts before and after an edit that changes the prediction are explained.",
        "",
        *recovery_table(recovery(attributions, rows)),
        "",
    ]


def stability_by_method(
    explainer: gaflow.Explainer, texts: Sequence[str], methods: Sequence[str], batch_size: int, deadline: Deadline
) -> tuple[Stability | None, dict[str, str]]:
    """The stability of as many methods as there is time for (None: of none), and why others failed."""
    results = []
    failed = {}
    for name in methods:
        if not deadline.allows(name):
            continue
        started = time.perf_counter()
        try:
            results.append(stability(explainer, texts, [name], precisions=PRECISIONS, batch_size=batch_size))
        except GaflowError as error:
            failed[name] = str(error)
        print(f"stability of {name}, {len(texts)} texts: {time.perf_counter() - started:.1f} s", flush=True)
    if not results:
        return None, failed
    result = Stability(
        methods=tuple(result.methods[0] for result in results),
        changes=results[0].changes,
        correlation=np.concatenate([result.correlation for result in results]),
        probability=results[0].probability,
    )
    return result, failed


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
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--column", default="text")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", help="name of the file in results/, or a path; none: print only")
    add_option(parser)
    options = parser.parse_args(arguments)
    deadline = Deadline(options.seconds)
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
        provenance(model=model, texts=options.texts, seed=options.seed),
    ]
    if "counterfactual pairs" in options.parts:
        rows, tried = deciding_rows(explainer, candidates, options.pairs)
        lines += pair_lines(explainer, rows, tried, methods, options.batch_size)
    if "stability" in options.parts:
        texts = candidates[: options.texts]
        result, failed = stability_by_method(explainer, texts, methods, options.batch_size, deadline)
        if result is not None:
            lines += stability_lines(result)
        lines += missing_lines(deadline.left_out, failed)
    print("\n".join(lines))
    if options.output:
        print("written to", write(options.output, "\n".join(lines)).name)


if __name__ == "__main__":
    main()
