"""Which settings of relevance flow are faithful: variants on held-in texts under three replacements, with their cost.

    python -m benchmarks.relevance_study --data dev.parquet --model DIR --texts 100 --output relevance_sst2.md
    python -m benchmarks.relevance_study --data train.parquet --model DIR --only relevance_flow ig lime --device cuda

For every variant: AOPC of the highest-scored and of the lowest-scored tokens when they are replaced by [PAD], by [MASK]
and when they are deleted; the mean of the three; its difference to `--reference` on the same texts with a standard
error; passes of the model and milliseconds per text. Rows "no flow" read the same gradients or capacities without one:

- gradient x input at the input layer, averaged over the same contexts (`no flow: input relevance`)
- what the lowest layer of the network brings to each token (`no flow: lowest edges`)
- what reaches each token if every node shares what it gets in proportion to its capacities (`no flow: rollout`)

Choices are made on train and dev texts. A file with "test" in its name is refused.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import torch
from torch import Tensor

import gaflow
from benchmarks.report import provenance, standard_error, write
from gaflow.methods import METHODS, AttCat, AttGrads, Cat, FlowMethod, Scores
from gaflow.methods.balanced import with_gradients
from gaflow.methods.peeling import SignedNetwork, input_relevance, peel
from gaflow.models.tracing import Trace
from gaflow.tasks.classification import REST

REPLACEMENTS = ("pad", "mask", "delete")
CONTROLS = ("random", "grad_x_input", "ig", "lime", "attnlrp", "value_zeroing", "alti")


@dataclass(frozen=True)
class WithoutFlow:
    """The network of a flow method, read without a flow."""

    flow: FlowMethod
    reading: str  # a name of READINGS

    gradients = "balanced"
    needs = ("residual",)

    @property
    def name(self) -> str:
        """The reading and the rounds."""
        return f"no flow: {self.reading}, rounds={self.flow.peeling.rounds}"

    @property
    def info(self) -> Any:
        """As that of the flow."""
        return self.flow.info

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a traced batch."""
        trace = with_gradients(trace, "balanced")
        return Scores(READINGS[self.reading](self.flow, trace))


def _lowest_edges(flow: FlowMethod, trace: Trace) -> Tensor:
    network = flow._signed_network(trace)
    return network.edges[:, 0].sum(1) + network.residual[:, 0]


def _rollout(flow: FlowMethod, trace: Trace) -> Tensor:
    network = flow._signed_network(trace)
    return _shares(network, 1) - _shares(network, -1)


def _shares(network: SignedNetwork, sign: int) -> Tensor:
    capacities = network.capacities(sign)
    share = capacities[:, -1].sum(-1)  # of the output nodes
    for layer in reversed(range(capacities.shape[1])):
        rows = capacities[:, layer] / capacities[:, layer].sum(-1, keepdim=True).clamp_min(1e-30)
        share = (share[:, None] @ rows)[:, 0]
    return share


def _input_relevance(flow: FlowMethod, trace: Trace) -> Tensor:
    def as_network(context: Trace) -> SignedNetwork:
        relevance = input_relevance(context)
        return SignedNetwork(torch.zeros_like(flow._signed_network_of(context).edges), relevance[:, None])

    return peel(trace, flow.peeling, as_network).residual[:, 0]


READINGS: dict[str, Callable[[FlowMethod, Trace], Tensor]] = {
    "input relevance": _input_relevance,
    "lowest edges": _lowest_edges,
    "rollout": _rollout,
}


def variants() -> dict[str, Any]:
    """The grid: one setting after the other from `relevance_flow` and `peeled_flow`, and readings without a flow."""
    one = FlowMethod(preset="relevance_flow", throw=False)
    five = FlowMethod(preset="peeled_flow", throw=False)
    flows = [
        one,
        replace(one, gradients="balanced_cp"),
        replace(one, information="agf_net"),
        replace(one, nodes=True),
        replace(one, barrier="uniform"),
        replace(one, layer="all"),
        five,
        replace(five, rounds=3),
        replace(five, rounds=9),
        replace(five, share=0.05),
        replace(five, share=0.2),
        replace(five, replacement="pad"),
        replace(five, replacement="mask"),
        replace(five, information="agf_net"),
        replace(five, gradients="balanced_cp"),
    ]
    others = [
        Cat("balanced"),
        AttCat("balanced"),
        AttGrads("balanced"),
        FlowMethod("agf", gradients="balanced", throw=False),
    ]
    unsolved = [WithoutFlow(flow, reading) for flow in (one, five) for reading in READINGS]
    named = {name: METHODS[name] for name in CONTROLS}
    return named | {method.name: method for method in (*flows, *others, *unsolved)}


def main() -> None:
    """Explain, judge under every replacement, and write the table."""
    options = arguments()
    torch.set_num_threads(options.threads)
    texts = read_texts(Path(options.data), options.column, options.texts, options.seed)
    explainer = gaflow.Explainer(options.model, device=options.device, dtype=torch.float32)
    settings: dict[str, Any] = {"batch_size": options.batch_size, "truncation": True}
    grid = choose(variants(), options.only)
    targets: Any = None
    if options.contrast:
        predictions = explainer(texts, "random", **settings)
        targets = [(prediction.target, REST) for prediction in predictions]
    scores = {}
    seconds = {}
    for name, method in grid.items():
        explainer(texts[:1], method, keep_flow=False, **settings)  # what is done once is not counted
        started = time.perf_counter()
        attributions = explainer(texts, method, targets, keep_flow=False, **settings)
        seconds[name] = (time.perf_counter() - started) / len(texts)
        scores[name] = [attribution.scores for attribution in attributions]
        print(f"{seconds[name]:8.3f} s per text  {name}", flush=True)
    results = []
    for replacement in REPLACEMENTS:
        results.append(
            gaflow.evaluate(
                explainer, texts, methods=[], scores=scores, eraser=False, replacement=replacement, seed=0, **settings
            )
        )
    rows = [row(name, method, results, seconds[name]) for name, method in grid.items()]
    lines = [
        f"# Relevance flow on {len(texts)} texts of {Path(options.data).name}",
        "",
        "Held-in texts; see benchmarks/relevance_study.py for what is measured.",
        "",
        provenance(model=Path(options.model).name, texts=len(texts), seed=options.seed, contrast=options.contrast),
        *table(rows, options.reference),
        "",
    ]
    print("\n".join(lines))
    if options.output:
        print("written to", write(options.output, "\n".join(lines)).name)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="Parquet file of train or dev texts")
    parser.add_argument("--model", required=True, help="folder of a text classifier")
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--column", default="text")
    parser.add_argument("--only", nargs="*", default=[], help="parts of names of variants")
    parser.add_argument("--reference", default="relevance_flow", help="the variant that differences are to")
    parser.add_argument(
        "--contrast", action="store_true", help="explain the predicted class less the mean of the others"
    )
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", help="name of the file in results/, or a path; none: print only")
    return parser.parse_args()


def choose(grid: dict[str, Any], parts: Sequence[str]) -> dict[str, Any]:
    """The variants whose name has one of these parts; a whole name means that one alone."""
    if not parts:
        return grid
    variants_by_name = {}
    for name, method in grid.items():
        if any(name == part if part in grid else part in name for part in parts):
            variants_by_name[name] = method
    return variants_by_name


def read_texts(path: Path, column: str, count: int, seed: int) -> list[str]:
    """Different texts of a file, drawn by `seed`."""
    if "test" in path.stem:
        raise SystemExit(f"{path.name} looks like a test split: choices are made on train and dev texts")
    texts = pyarrow.parquet.read_table(path, columns=[column])[column].to_pylist()
    different = list(dict.fromkeys(text.strip() for text in texts if text and text.strip()))
    order = np.random.default_rng(seed).permutation(len(different))[:count]
    return [different[k] for k in order]


def row(name: str, method: Any, results: Sequence[gaflow.Evaluation], seconds: float) -> dict[str, Any]:
    """AOPC of a variant by replacement and order, (3, texts) each, and its cost."""
    index = [result.methods.index(name) for result in results]
    return {
        "name": name,
        "top": np.stack([result.per_text("aopc", "top")[k] for result, k in zip(results, index, strict=True)]),
        "bottom": np.stack([result.per_text("aopc", "bottom")[k] for result, k in zip(results, index, strict=True)]),
        "passes": method.info.passes,
        "seconds": seconds,
    }


def table(rows: Sequence[dict[str, Any]], reference: str) -> list[str]:
    """Best first, as Markdown."""
    of_reference = next((r["top"].mean(0) for r in rows if r["name"] == reference), None)
    columns = [*(f"top {name}" for name in REPLACEMENTS), "top", "bottom", f"top less {reference}", "passes", "ms"]
    lines = ["| variant | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for r in sorted(rows, key=lambda r: -float(r["top"].mean())):
        cells = [f"`{r['name']}`", *(f"{value:.3f}" for value in r["top"].mean(1))]
        cells += [f"{r['top'].mean():.3f}", f"{r['bottom'].mean():.3f}"]
        cells.append("" if of_reference is None else _difference(r["top"].mean(0) - of_reference))
        cells += [r["passes"], f"{1000 * r['seconds']:.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _difference(values: np.ndarray) -> str:
    """Mean and standard error."""
    return f"{values.mean():+.3f} ± {standard_error(values):.3f}"


if __name__ == "__main__":
    main()
