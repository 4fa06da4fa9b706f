"""How near are methods to the best order of tokens? Normalized AOPC on short texts, with bounds by beam search.

    python -m benchmarks.normalized_aopc --data dev.parquet --model DIR --texts 60 --most 16 --output naopc_sst2.md

For every text the lowest and the highest AOPC of any order of its tokens are searched (Edin et al. 2025): exactly up to
`--exact` tokens, by a beam of `--beam` sets for longer ones. Normalized AOPC is 0 for the worst order that was found
and 1 for the best. How much a beam misses is measured: on the texts of up to `--exact` tokens, bounds by a beam are
compared with exact ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

import gaflow
from benchmarks.asking import mean_with_error
from benchmarks.interactions import short_texts
from benchmarks.ranked_table import METHODS, report
from benchmarks.relevance_study import read_texts
from benchmarks.report import provenance, write
from gaflow.evaluation import Bounds, Evaluation

NEAR_BEST = 0.95
REPLACEMENTS = ["pad", "mask", "delete"]


def normalized_table(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Normalized AOPC with standard errors; the method whose lowest mean is highest first."""
    values = {name: evaluation.per_text("normalized_aopc") for name, evaluation in evaluations.items()}
    methods = next(iter(evaluations.values())).methods
    lowest = np.min([np.nanmean(of_texts, axis=1) for of_texts in values.values()], axis=0)
    lines = ["| method | " + " | ".join(values) + " | at least 0.95 |", "|---" * (2 + len(values)) + "|"]
    for row in np.argsort(-lowest, kind="stable"):
        cells = [mean_with_error(of_texts[row], ".3f") for of_texts in values.values()]
        near_best = np.nanmean([of_texts[row] >= NEAR_BEST for of_texts in values.values()])
        lines.append(f"| {methods[row]} | " + " | ".join(cells) + f" | {near_best:.0%} |")
    return lines


def bound_lines(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """The best and the worst order of each replacement."""
    lines = ["| replacement | worst order | best order |", "|---|---|---|"]
    for replacement, evaluation in evaluations.items():
        assert evaluation.bounds is not None
        low, high = evaluation.bounds.T
        lines.append(f"| {replacement} | {mean_with_error(low, '.3f')} | {mean_with_error(high, '.3f')} |")
    return [*lines, ""]


def missed_by_beam(explainer: gaflow.Explainer, texts: list[str], beam: int, exact: int) -> str:
    """How far bounds by a beam are from exact ones, on texts of up to `exact` tokens."""
    few = short_texts(explainer, texts, 3, exact, len(texts))
    if not few:
        return f"No text has 3 to {exact} tokens, so the beam was not compared with exact bounds."
    widths = []
    for settings in (Bounds(exact=exact), Bounds(exact=0, beam=beam)):
        evaluation = gaflow.evaluate(explainer, few, methods=["random"], eraser=False, order="top", bounds=settings)
        assert evaluation.bounds is not None
        widths.append(evaluation.bounds)
    missed = np.abs(widths[0] - widths[1])
    return (
        f"On the {len(few)} texts of 3 to {exact} tokens, a beam of {beam} misses the exact bounds (pad) by "
        f"{missed.mean():.4f} on average, and by {missed.max():.4f} at most."
    )


def main(arguments: list[str] | None = None) -> None:
    """Explain, search, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="Parquet file of train or dev texts")
    parser.add_argument("--model", required=True, help="folder of a text classifier")
    parser.add_argument("--texts", type=int, default=60)
    parser.add_argument("--least", type=int, default=5, help="tokens of a text")
    parser.add_argument("--most", type=int, default=16, help="tokens of a text")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--exact", type=int, default=8, help="tokens of a text that is solved exactly, at most")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--column", default="text")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-size", type=int, default=16, help="of explaining")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", help="name of the file in results/, or a path; none: print only")
    options = parser.parse_args(arguments)
    explainer = gaflow.Explainer(options.model, device=options.device, dtype=torch.float32)
    candidates = read_texts(options.data, options.column, 10**6, options.seed)
    texts = short_texts(explainer, candidates, options.least, options.most, options.texts)
    evaluations = gaflow.evaluate(
        explainer,
        texts,
        methods=options.methods.split(","),
        replacement=REPLACEMENTS,
        eraser=False,
        bounds=Bounds(beam=options.beam, exact=options.exact),
        batch_size=options.batch_size,
        seed=options.seed,
        progress=False,
    )
    lines = [
        f"# Normalized AOPC of {len(texts)} texts of {options.data.name}",
        "",
        provenance(
            model=Path(options.model).name,
            texts=len(texts),
            tokens=f"{options.least} to {options.most}",
            beam=options.beam,
            exact=options.exact,
            seed=options.seed,
        ),
        "AOPC of the worst and of the best order that were found:",
        "",
        *bound_lines(evaluations),
        missed_by_beam(explainer, texts, options.beam, options.exact),
        "",
        "Normalized AOPC, with the share of texts and replacements where it is at least 0.95:",
        "",
        *normalized_table(evaluations),
        "",
        "## AOPC itself",
        "",
        *report(evaluations),
    ]
    print("\n".join(lines))
    if options.output:
        print("written to", write(options.output, "\n".join(lines)).name)


if __name__ == "__main__":
    main()
