"""Does the ranking of methods hold on other architectures? One table over classifiers of several families.

    python -m benchmarks.families --models MODELS --data DIR --out OUT   # explain and mask; continues if killed
    python -m benchmarks.families --out OUT --table families.md          # the table of what OUT holds

MODELS holds folders `<data set>-<family>-<seed>`, as `train_student.py` writes them (and `<data set>-bert-0`, the
teacher); DIR holds `<data set>-test.parquet`. Every model explains the same test texts, drawn by `--seed`; their
highest- and lowest-scored tokens are replaced by [PAD], by [MASK] or deleted. Methods that cannot explain a model are
left out, and the table says so.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import gaflow
from benchmarks.report import commit, standard_error, write
from gaflow.benchmark import bench
from gaflow.benchmark.folder_layout import slug
from gaflow.data import open_data
from gaflow.evaluation import Evaluation

REPLACEMENTS = ("pad", "mask", "delete")
METHODS = (
    "agf", "attcat", "rollout", "attgrads", "grad_x_input", "attnlrp", "relevance_flow", "peeled_flow", "ig", "lime",
)  # fmt: skip
COMPARED = (("peeled_flow", "lime"), ("relevance_flow", "ig"), ("relevance_flow", "attnlrp"))


@dataclass(frozen=True)
class Judged:
    """AOPC of every method on one model."""

    data: str
    family: str
    seed: int
    accuracy: float
    texts: int
    top: dict[str, np.ndarray]  # method -> (replacements, texts)
    bottom: dict[str, np.ndarray]

    @property
    def name(self) -> str:
        """Data set, family and seed."""
        return f"{self.data}, {self.family}, seed {self.seed}"


def judge(folder: Path, options: argparse.Namespace) -> None:
    """Explain and mask the texts of one model."""
    data = folder.name.split("-", 1)[0]
    explainer = gaflow.Explainer(folder, device=options.device, dtype=torch.float32)
    source = open_data(str(options.data / f"{data}-test.parquet"), label_column="label")
    (outcome,) = bench(
        explainer,
        {folder.name: source},
        options.out / "bench",
        methods=options.methods.split(","),
        replacements=REPLACEMENTS,
        sample=options.texts,
        seed=options.seed,
        truncation=True,
        progress=False,
    )
    training = json.loads((folder / "training.json").read_text())
    accuracy = training["judged"]["accuracy"] if "judged" in training else training["accuracy"]["test"]
    summary = {"accuracy": accuracy, "texts": outcome.texts, "commit": commit(), "training": training}
    (options.out / f"{folder.name}.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(f"{folder.name}: {outcome.texts} texts, left out {outcome.left_out}", flush=True)


def read(out: Path, name: str) -> Judged:
    """What `judge` wrote of a model."""
    data, family, seed = name.rsplit("-", 2)
    summary = json.loads((out / f"{name}.json").read_text())
    evaluations = [Evaluation.load(out / "bench" / slug(name) / replacement) for replacement in REPLACEMENTS]
    top: dict[str, np.ndarray] = {}
    bottom: dict[str, np.ndarray] = {}
    for method in evaluations[0].methods:
        rows = [evaluation.methods.index(method) for evaluation in evaluations]
        pairs = list(zip(evaluations, rows, strict=True))
        top[method] = np.stack([evaluation.per_text("aopc", "top")[row] for evaluation, row in pairs])
        bottom[method] = np.stack([evaluation.per_text("aopc", "bottom")[row] for evaluation, row in pairs])
    return Judged(data, family, int(seed), summary["accuracy"], summary["texts"], top, bottom)


def sources(out: Path, names: list[str]) -> list[str]:
    """Machines, versions and commits of the stored results, a line for each different one."""
    lines = []
    for name in names:
        manifest = json.loads((out / "bench" / slug(name) / REPLACEMENTS[0] / "evaluation.json").read_text())[
            "manifest"
        ]
        versions = manifest["versions"]
        software = ", ".join(f"{library} {versions[library]}" for library in ("python", "torch", "transformers"))
        of_commit = json.loads((out / f"{name}.json").read_text())["commit"]
        line = f"- machine: {manifest['processor']}; {software}; commit {of_commit}; seed {manifest['seed']}"
        if line not in lines:
            lines.append(line)
    return lines


def table(judged: list[Judged]) -> list[str]:
    """AOPC of the highest-scored tokens, averaged over the replacements, and paired differences."""
    methods = sorted({method for model in judged for method in model.top})
    methods.sort(key=lambda method: -np.mean([model.top[method].mean() for model in judged if method in model.top]))
    header = ["model", "accuracy", "texts", *(f"`{method}`" for method in methods)]
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    for model in judged:
        cells = [model.name, f"{model.accuracy:.3f}", str(model.texts)]
        for method in methods:
            cells.append(f"{model.top[method].mean():.3f}" if method in model.top else "left out")
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Paired differences of the mean over the three replacements, with standard errors:", ""]
    titles = [f"`{first}` less `{second}`" for first, second in COMPARED]
    lines += ["| model | " + " | ".join(titles) + " |", "|---" * (len(titles) + 1) + "|"]
    for model in judged:
        cells = [model.name]
        for first, second in COMPARED:
            if first in model.top and second in model.top:
                difference = model.top[first].mean(0) - model.top[second].mean(0)
                cells.append(f"{difference.mean():+.3f} ± {standard_error(difference):.3f}")
            else:
                cells.append("")
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "AOPC of the lowest-scored tokens (lower is better), averaged over the replacements:", ""]
    lines += ["| model | " + " | ".join(f"`{method}`" for method in methods) + " |", "|---" * (len(methods) + 1) + "|"]
    for model in judged:
        values = [f"{model.bottom[method].mean():.3f}" if method in model.bottom else "" for method in methods]
        lines.append("| " + " | ".join([model.name, *values]) + " |")
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Judge models, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, help="folder of the classifiers")
    parser.add_argument("--data", type=Path, help="folder of <data set>-test.parquet")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", help="names of folders in MODELS; all that have a training.json")
    parser.add_argument("--methods", default=",".join(METHODS), help="by comma")
    parser.add_argument("--texts", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--table", help="write the table to this file in results/, or to a path")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.models:
        names = options.only or sorted(path.parent.name for path in options.models.glob("*/training.json"))
        for name in names:
            judge(options.models / name, options)
    if options.table:
        names = [path.stem for path in sorted(options.out.glob("*-*-*.json"))]
        judged = [read(options.out, name) for name in names]
        lines = ["# Other architectures", "", *sources(options.out, names), "", *table(judged), ""]
        print("written to", write(options.table, "\n".join(lines)).name)


if __name__ == "__main__":
    main()
