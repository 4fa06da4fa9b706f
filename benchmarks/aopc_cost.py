"""How faithful is a method for what it costs? AOPC against passes of the model, one curve for each method.

    python -m benchmarks.aopc_cost --data dev.parquet --model DIR --texts 100 --output aopc_cost_sst2

Every method that has a setting for its effort is run with several: steps of integrated gradients, samples of LIME and
KernelSHAP, rounds of `peeled_flow`. Methods of one pass are points. A forward pass counts 1 and a backward pass 2.
AOPC is the mean of the replacements. Writes a table (.md) and a figure (.svg), beside each other.

The scores of every setting are kept in a folder (`--kept`), and not computed again. So processes that are given
different `--curves` can share the work before one with all of them writes the table. Once `--seconds` are over, no
other setting begins, and those that are missing are named. With `--shared` the table has no seconds, which other work
on the machine would change.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

import gaflow
from benchmarks.deadline import Deadline, add_option, missing_lines
from benchmarks.relevance_study import read_texts
from benchmarks.report import RESULTS, provenance
from benchmarks.train_classifier import weight_hash
from gaflow.evaluation.significance import bootstrap_means, interval
from gaflow.files import write_atomically
from gaflow.methods import METHODS, FlowMethod, IntegratedGradients, KernelShap, Lime

REPLACEMENTS = ["pad", "mask", "delete"]
KEPT = Path(__file__).parents[1] / "build" / "aopc_cost"
_COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_MARKERS = "osD^vPX"


def efforts() -> dict[str, list[Any]]:
    """The settings of every curve, from the least effort to the most."""
    return {
        "integrated gradients": [IntegratedGradients(steps=steps) for steps in (1, 2, 5, 10, 20, 50)],
        "LIME": [Lime(samples=samples) for samples in (20, 50, 100, 200, 500, 1000)],
        "KernelSHAP, paired": [KernelShap(samples=samples, paired=True) for samples in (20, 50, 100, 200, 500, 1000)],
        "peeled_flow": [FlowMethod(preset="peeled_flow", rounds=rounds, throw=False) for rounds in (1, 2, 3, 5, 7, 9)],
        "attnlrp": [METHODS["attnlrp"]],
        "agf": [METHODS["agf"]],
        "attgrads": [METHODS["attgrads"]],
    }


def cost(method: Any) -> int:
    """Passes of the model; a backward pass costs two forward ones."""
    passes = dict.fromkeys(("forward", "backward"), 0)
    for count, kind in re.findall(r"(\d+) (forward|backward)", method.info.passes):
        passes[kind] += int(count)
    return passes["forward"] + 2 * passes["backward"]


@dataclass(frozen=True)
class ScoreStore:
    """The scores of every setting on these texts, computed once."""

    explainer: gaflow.Explainer
    texts: list[str]
    folder: Path
    batch_size: int = 16

    def scores(self, name: str, method: Any, deadline: Deadline) -> tuple[list[np.ndarray], float] | None:
        """Scores (t,) of every text, and the seconds of one; None if they are not there and the time is over."""
        path = self._file(method)
        if not path.exists():
            if not deadline.allows(name):
                return None
            started = time.perf_counter()
            attributions = self.explainer(
                self.texts, method, batch_size=self.batch_size, truncation=True, keep_flow=False
            )
            seconds = (time.perf_counter() - started) / len(self.texts)
            stored = {"seconds": seconds, "scores": [attribution.scores.tolist() for attribution in attributions]}
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(stored).encode())
            print(name, f"{seconds:.3f} s/text", flush=True)
        stored = json.loads(path.read_text())
        return [np.array(values) for values in stored["scores"]], stored["seconds"]

    def _file(self, method: Any) -> Path:
        decided = json.dumps([repr(method), self.texts, self.batch_size])
        digest = hashlib.sha256(decided.encode()).hexdigest()[:20]
        return self.folder / weight_hash(self.explainer.model)[:12] / f"{digest}.json"


def explain(
    store: ScoreStore, curves: Sequence[str], deadline: Deadline
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The scores of each setting, and what it costs; settings of all curves in turn, the cheapest first."""
    scores: dict[str, Any] = {}
    points = []
    settings = [(curve, method) for curve, methods in efforts().items() for method in methods if curve in curves]
    for curve, method in sorted(settings, key=lambda setting: cost(setting[1])):
        name = f"{curve}, {cost(method)} passes"
        stored = store.scores(name, method, deadline)
        if stored is not None:
            scores[name], seconds = stored
            points.append({"curve": curve, "name": name, "cost": cost(method), "seconds": seconds})
    points.sort(key=lambda point: list(efforts()).index(point["curve"]))
    return scores, points


def measure(
    explainer: gaflow.Explainer, texts: Sequence[str], scores: dict[str, Any], points: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The points, and that of random scores, with the AOPC of every text (mean of the replacements)."""
    results = gaflow.evaluate(
        explainer, list(texts), scores=scores, replacement=REPLACEMENTS, eraser=False, order="top", truncation=True
    )
    points = [*points, {"curve": "random", "name": "random", "cost": 0, "seconds": 0.0}]
    for point in points:
        by_replacement = []
        for evaluation in results.values():
            by_replacement.append(evaluation.per_text("aopc")[evaluation.methods.index(point["name"])])
        point["aopc"] = np.mean(by_replacement, axis=0)
    return points


def table(points: Sequence[dict[str, Any]], shared: bool = False) -> list[str]:
    """A row for each setting, by curve and cost; without seconds if the machine is `shared`."""
    titles = ["method", "passes", *([] if shared else ["s/text"]), "AOPC", "95 % interval over texts"]
    lines = [f"| {' | '.join(titles)} |", "|---" + "|---:" * (len(titles) - 2) + "|---|"]
    for point in points:
        low, high = interval(bootstrap_means(point["aopc"]), 0.95)
        cells = [point["curve"], str(point["cost"])]
        if not shared:
            cells.append(f"{point['seconds']:.3f}")
        cells += [f"{point['aopc'].mean():.3f}", f"{low:.3f} to {high:.3f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def figure(points: Sequence[dict[str, Any]]) -> Figure:
    """AOPC against passes, one curve for each method, with the level of random scores."""
    picture = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = picture.subplots()
    curves = list(dict.fromkeys(point["curve"] for point in points if point["curve"] != "random"))
    for curve, colour, marker in zip(curves, _COLOURS, _MARKERS, strict=False):
        own = [point for point in points if point["curve"] == curve]
        costs = [point["cost"] for point in own]
        means = np.array([point["aopc"].mean() for point in own])
        ends = np.array([interval(bootstrap_means(point["aopc"]), 0.95) for point in own])
        axes.plot(costs, means, color=colour, marker=marker, label=curve, linewidth=1.4, markersize=5)
        axes.fill_between(costs, ends[:, 0], ends[:, 1], color=colour, alpha=0.12, linewidth=0)
    random = next(point for point in points if point["curve"] == "random")
    axes.axhline(random["aopc"].mean(), color="0.5", linestyle=":", label="random")
    axes.set_xscale("log")
    axes.set_xlabel("passes of the model for a text (a backward pass counts 2)")
    axes.set_ylabel("AOPC, mean of [PAD], [MASK] and deletion (higher is better)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.legend(frameon=False, fontsize=8.5, loc="lower right")
    return picture


def main(arguments: list[str] | None = None) -> None:
    """Explain, mask, and write the table and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="Parquet file of train or dev texts")
    parser.add_argument("--model", required=True, help="folder of a text classifier")
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument("--column", default="text")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", help="name of the files in results/, or a path, without suffix; none: print only")
    parser.add_argument("--curves", nargs="+", choices=list(efforts()), default=list(efforts()))
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--kept", type=Path, default=KEPT, help="folder of the scores that are there")
    parser.add_argument("--shared", action="store_true", help="other work shares the machine: leave out the seconds")
    parser.add_argument("--explain-only", action="store_true", help="keep the scores, and write no table")
    add_option(parser)
    options = parser.parse_args(arguments)
    deadline = Deadline(options.seconds)
    texts = read_texts(options.data, options.column, options.texts, options.seed)
    explainer = gaflow.Explainer(options.model, device=options.device, dtype=torch.float32)
    scores, points = explain(ScoreStore(explainer, texts, options.kept, options.batch_size), options.curves, deadline)
    if options.explain_only:
        return
    points = measure(explainer, texts, scores, points)
    lines = [f"# AOPC against cost, {len(texts)} texts of {options.data.name}", ""]
    lines.append(provenance(model=Path(options.model).name, texts=len(texts), seed=options.seed))
    lines += ["Passes: a forward pass counts 1, a backward pass 2. AOPC: mean of [PAD], [MASK] and deletion.", ""]
    lines += [*table(points, options.shared), "", *missing_lines(deadline.left_out)]
    print("\n".join(lines))
    if options.output:
        path = RESULTS / options.output
        write_atomically(path.with_suffix(".md"), "\n".join(lines).encode())
        figure(points).savefig(path.with_suffix(".svg"))
        print("written to", path.with_suffix(".md"), "and", path.with_suffix(".svg").name)


if __name__ == "__main__":
    main()
