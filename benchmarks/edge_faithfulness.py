"""Does the flow know which attention edges count? Edges are removed in the order of flows, capacities and controls.

    python -m benchmarks.edge_faithfulness --data dev.parquet --model DIR --texts 100 --output edges_sst2.md
    python -m benchmarks.edge_faithfulness --data dev.parquet --model DIR --parts sets --output routes_sst2.md

For every ranking: comprehensiveness (probability lost without the highest-scored edges; high is good) and sufficiency
(probability lost with these alone; low is good), with standard errors; and each flow less the capacities that it was
solved on, on the same texts. Rankings:

- attention, and attention times its plain or balanced gradient, summed over heads
- the capacities of `agf`, `relevance_flow` and `peeled_flow` (for less against the output), and their flows. Those of
  `relevance_flow` are the messages of AttnLRP

Then the same for sets of edges that only a flow names: those of its 1, 5 and 20 widest routes for the output, and of
its minimum cut. Each set is compared with as many of the highest-scored edges of other rankings (among them AttnLRP's
messages: attention times its balanced gradient), and with random ones. `--parts` chooses between the two.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import gaflow
from benchmarks.asking import CONTROL, mean_with_error
from benchmarks.relevance_study import read_texts
from benchmarks.report import provenance, write
from gaflow.attribution.attribution import Attribution
from gaflow.evaluation import EdgeEvaluation, EdgeSetEvaluation, cut_edges, edge_sets, edges, route_edges
from gaflow.methods import METHODS, FlowMethod

FLOWS = ("agf", "relevance_flow", "peeled_flow")
REPLACEMENTS = ("pad", "zero", "renormalise")
ROUTES = (1, 5, 20)  # widest routes of a set
MESSAGES = "attention x balanced gradient"  # of AttnLRP
SET_OPPONENTS = ("attention", MESSAGES, *(f"{name}: capacities" for name in FLOWS))
PARTS = ("edges", "sets")
METRICS = ("comprehensiveness", "sufficiency")


@dataclass(frozen=True)
class Product:
    """Information tensors that are only read, not solved on: their capacities are the scores of edges."""

    name: str
    flow: FlowMethod


PRODUCTS = (
    Product("attention", FlowMethod("af", throw=False)),
    Product("attention x gradient", FlowMethod("agf_net", signed=True, throw=False)),
    Product(MESSAGES, FlowMethod("agf_net", signed=True, gradients="balanced", throw=False)),
)


def capacities(attribution: Attribution) -> Any:
    """The capacities (l, t, t) that a flow was solved on, less those against the output."""
    assert attribution.flow is not None
    assert attribution.flow.capacity is not None
    values = attribution.flow.capacity[0]
    against = attribution.flow_against
    if against is None:
        return values
    assert against.capacity is not None
    return values - against.capacity[0]


def rankings(explainer: gaflow.Explainer, texts: Sequence[str]) -> dict[str, list[Any]]:
    """Scores of edges by every ranking."""
    scores: dict[str, list[Any]] = {}
    for product in PRODUCTS:
        attributions = explainer(list(texts), product.flow, truncation=True)
        scores[product.name] = [capacities(attribution) for attribution in attributions]
    for name in FLOWS:
        attributions = explainer(list(texts), METHODS[name], truncation=True)
        scores[f"{name}: capacities"] = [capacities(attribution) for attribution in attributions]
        scores[f"{name}: flow"] = attributions
    return scores


def table(result: EdgeEvaluation) -> list[str]:
    """Both measures, best first, and flows less capacities."""
    frame = result.table().sort_values("comprehensiveness", ascending=False)
    lines = ["| edges ranked by | comprehensiveness | sufficiency |", "|---|---|---|"]
    for name, row in frame.iterrows():
        cells = []
        for metric in ("comprehensiveness", "sufficiency"):
            cells.append(f"{row[metric]:.3f} ± {row[f'{metric}_error']:.3f}")
        lines.append(f"| {name} | {cells[0]} | {cells[1]} |")
    lines += ["", "| flow less its capacities | comprehensiveness | sufficiency |", "|---|---|---|"]
    for name in FLOWS:
        cells = []
        for metric in ("comprehensiveness", "sufficiency"):
            mean, error = result.difference(f"{name}: flow", f"{name}: capacities", metric)
            cells.append(f"{mean:+.3f} ± {error:.3f}")
        lines.append(f"| `{name}` | {cells[0]} | {cells[1]} |")
    return lines


def named_sets(scores: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The edges of the widest routes and of the minimum cut of every flow for the output."""
    sets: dict[str, list[Any]] = {}
    for name in FLOWS:
        flows = [attribution.flow for attribution in scores[f"{name}: flow"]]
        for k in ROUTES:
            sets[f"{name}: {k} widest routes"] = [route_edges(flow, k) for flow in flows]
        sets[f"{name}: minimum cut"] = [cut_edges(flow) for flow in flows]
    return sets


def set_table(result: EdgeSetEvaluation) -> list[str]:
    """Both measures of every set, and of as many edges by every ranking; the most comprehensive first."""
    lines = [
        "| set | edges, mean | texts | removed or kept | comprehensiveness | sufficiency |",
        "|---|---:|---:|---|---|---|",
    ]
    frame = result.table().reset_index()
    for name in result.sets:
        rows = frame.loc[frame["set"] == name].sort_values("comprehensiveness", ascending=False)
        for _, row in rows.iterrows():
            cells = [name, f"{row['size']:.1f}", str(row["texts"]), str(row["edges"])]
            for metric in METRICS:
                cells.append(f"{row[metric]:.3f} ± {row[f'{metric}_error']:.3f}")
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def difference_table(result: EdgeSetEvaluation) -> list[str]:
    """Every set less as many edges by its own capacities, by AttnLRP's messages, and at random, on the same texts."""
    lines = [
        "| set | less | comprehensiveness | sufficiency |",
        "|---|---|---|---|",
    ]
    for number, name in enumerate(result.sets):
        flow = name.split(":")[0]
        for opponent in (f"{flow}: capacities", MESSAGES, CONTROL):
            cells = [name, opponent]
            for metric in METRICS:
                values = result.per_text(metric)[number]
                difference = values[0] - values[result.rankings.index(opponent)]
                cells.append(mean_with_error(difference))
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Explain, remove edges, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="Parquet file of train or dev texts")
    parser.add_argument("--model", required=True, help="folder of a text classifier")
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument("--column", default="text")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", help="name of the file in results/, or a path; none: print only")
    options = parser.parse_args()
    texts = read_texts(options.data, options.column, options.texts, options.seed)
    explainer = gaflow.Explainer(options.model, device=options.device, dtype=torch.float32)
    scores = rankings(explainer, texts)
    lines = [f"# Attention edges of {len(texts)} texts of {options.data.name}", ""]
    lines.append(provenance(model=Path(options.model).name, texts=len(texts), seed=options.seed))
    if "edges" in options.parts:
        for replacement in REPLACEMENTS:
            result = edges(explainer, texts, scores, replacement, truncation=True, progress=False)
            lines += [f"## Removed edges: {replacement}", "", *table(result), ""]
            print("\n".join(table(result)), flush=True)
    if "sets" in options.parts:
        sets = named_sets(scores)
        compared = {name: scores[name] for name in SET_OPPONENTS}
        for replacement in REPLACEMENTS:
            in_sets = edge_sets(explainer, texts, sets, compared, replacement, truncation=True, progress=False)
            lines += [f"## Edges of routes and cuts: {replacement}", "", *set_table(in_sets), ""]
            lines += ["Differences on the same texts, with standard errors:", "", *difference_table(in_sets), ""]
            print("\n".join(difference_table(in_sets)), flush=True)
    if options.output:
        print("written to", write(options.output, "\n".join(lines)).name)


if __name__ == "__main__":
    main()
