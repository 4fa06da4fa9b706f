"""Does the flow that two tokens share say how they act together? Predictions of interactions against true ones.

    python -m benchmarks.interactions --data dev.parquet --model DIR --texts 80 --output interactions.md

The true interaction of two tokens is found by masking: what masking both costs, less what masking each costs. It is
compared with predictions by rank correlation over the pairs of each text, of sizes and of signed values
(docs/concepts/faithfulness.md):

- shared flow of `relevance_flow`, `peeled_flow` and `agf`
- second-order effects, of the plain and of the balanced gradient
- the loss of the output if attention between the two tokens is removed
- what needs no pairs at all, as a control: the product of the two tokens' scores, how near they are in the text,
  attention between them, and random numbers
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gaflow
from benchmarks.edge_faithfulness import capacities
from benchmarks.relevance_study import read_texts
from benchmarks.report import provenance, write
from gaflow.evaluation import InteractionEvaluation, attention_ablation, interactions, second_order
from gaflow.evaluation.significance import bootstrap_means, interval
from gaflow.methods import METHODS, FlowMethod, IntegratedGradients
from gaflow.tasks import Target

FLOWS = ("relevance_flow", "peeled_flow", "agf")
SCORES = (METHODS["attnlrp"], IntegratedGradients(steps=20))
REPLACEMENTS = ("pad", "mask", "delete")
LEADING = "shared flow: relevance_flow"  # compared with all others


def short_texts(explainer: gaflow.Explainer, texts: Sequence[str], least: int, most: int, count: int) -> list[str]:
    """The first `count` texts of `least` to `most` ordinary tokens."""
    selected = []
    for text in texts:
        tokens = len(explainer.tokenizer(text, add_special_tokens=False)["input_ids"])
        if least <= tokens <= most:
            selected.append(text)
    return selected[:count]


def predictions(explainer: gaflow.Explainer, texts: Sequence[str]) -> dict[str, list[Any]]:
    """Predicted interactions (t, t) of every text, by name.

    Flows and scores explain the log-odds of the predicted class, as a contrast of the two classes.
    """
    items = list(texts)
    targets: list[Target] = []
    for attribution in explainer(items, "random"):
        assert isinstance(attribution.target, int)
        targets.append((attribution.target, 1 - attribution.target))
    by_name: dict[str, list[Any]] = {}
    for name in FLOWS:
        by_name[f"shared flow: {name}"] = explainer(items, name, target=targets)
    for kind in ("plain", "balanced"):
        by_name[f"second order: {kind}"] = [second_order(explainer, text, kind) for text in items]
    for removal in ("zero", "pad", "renormalise"):
        ablated = [attention_ablation(explainer, text, removal) for text in items]
        by_name[f"attention removed: {removal}"] = ablated
    for method in SCORES:
        attributions = explainer(items, method, target=targets)
        by_name[f"product of scores: {method.name}"] = [np.outer(att.scores, att.scores) for att in attributions]
    attention = explainer(items, FlowMethod("af", throw=False), target=targets)
    by_name["attention between them"] = []
    by_name["nearness"] = []
    for attribution in attention:
        between = np.asarray(capacities(attribution)).sum(0)
        by_name["attention between them"].append(between + between.T)
        positions = np.arange(len(between), dtype=float)
        by_name["nearness"].append(1 / (1 + np.abs(positions[:, None] - positions)))
    return by_name


def table(result: InteractionEvaluation) -> list[str]:
    """Rank correlations, the best first, and the leading prediction less every other one."""
    frame = result.table().sort_values("size_correlation", ascending=False)
    lines = [
        "| predicted by | size, rank correlation | sign, rank correlation | shared flow less this, size |",
        "|---|---|---|---|",
    ]
    sizes = result.size_correlation
    leading = sizes[result.methods.index(LEADING)]
    for name, row in frame.iterrows():
        cells = []
        for kind in ("size", "sign"):
            ends = f"({row[f'{kind}_low']:+.3f} to {row[f'{kind}_high']:+.3f})"
            cells.append(f"{row[f'{kind}_correlation']:+.3f} {ends}")
        difference = leading - sizes[result.methods.index(str(name))]
        difference = difference[np.isfinite(difference)]
        if name == LEADING:
            cells.append("")
        else:
            low, high = interval(bootstrap_means(difference), 0.95)
            cells.append(f"{difference.mean():+.3f} ({low:+.3f} to {high:+.3f})")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Predict, mask all pairs, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="Parquet file of train or dev texts")
    parser.add_argument("--model", required=True, help="folder of a text classifier with two classes")
    parser.add_argument("--texts", type=int, default=80)
    parser.add_argument("--least", type=int, default=5, help="tokens of a text")
    parser.add_argument("--most", type=int, default=16, help="tokens of a text")
    parser.add_argument("--column", default="text")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", help="name of the file in results/, or a path; none: print only")
    options = parser.parse_args()
    explainer = gaflow.Explainer(options.model, device=options.device, dtype=torch.float32)
    candidates = read_texts(options.data, options.column, 10**6, options.seed)
    texts = short_texts(explainer, candidates, options.least, options.most, options.texts)
    predicted = predictions(explainer, texts)
    lines = [f"# Interactions of pairs of tokens in {len(texts)} texts of {options.data.name}", ""]
    settings = {"model": Path(options.model).name, "texts": len(texts), "seed": options.seed}
    lines.append(provenance(**settings, tokens=f"{options.least} to {options.most}"))
    lines += [
        "Rank correlation over the pairs of a text with the true interactions; mean over texts and 95 % bootstrap",
        "interval. Size: absolute values. Sign: values as they are; shared flow, nearness and attention have none.",
        "",
    ]
    for replacement in REPLACEMENTS:
        result = interactions(explainer, texts, predicted, replacement, progress=False)
        pairs = sum(len(truth) * (len(truth) - 1) // 2 for truth in result.true)
        sizes = np.concatenate([np.abs(truth[np.triu_indices(len(truth), 1)]) for truth in result.true])
        lines += [f"## Masked tokens: {replacement}", ""]
        lines += [f"{pairs:,} pairs, of mean size {sizes.mean():.3f} (log-odds).", "", *table(result), ""]
        print("\n".join(lines[-len(predicted) - 6 :]), flush=True)
    if options.output:
        print("written to", write(options.output, "\n".join(lines)).name)


if __name__ == "__main__":
    main()
