"""How often, and how far, plain Attention Flow leaves the scores of a text open.

    python -m benchmarks.arbitrary --data sst2-test.parquet

draws texts from a Parquet file, takes the three information tensors of each, and asks of all its maximum flows: where
may the scores lie (`score_ranges`), do Algorithms 1 and 2 find the same (`max_flow`), where is the bottleneck
(`min_cut`), and where in all this is the barrier solution (`solve`). Writes results/arbitrary.md.

Of two input tokens, one reaches its largest score in the same maximum flow in which the other has its least (scores of
maximum flows are the bases of a polymatroid), so that their order is open exactly where their ranges overlap.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

import gaflow
from benchmarks.report import provenance, write
from gaflow.flow.information import INFORMATION
from gaflow.methods import Scores
from gaflow.models.tracing import Trace

OPEN = 1e-9  # of the flow value: what is open by less counts as determined


@dataclass
class Capture:
    """A method that keeps what the model did, and scores nothing."""

    name: str = "capture"
    traces: list[Trace] = field(default_factory=list)

    def __call__(self, trace: Trace) -> Scores:
        """Keep the trace."""
        self.traces.append(trace)
        return Scores(torch.zeros(trace.mask.shape))


@dataclass(frozen=True)
class Finding:
    """What became of one text under one information tensor; amounts are in units of the flow value."""

    tokens: int
    widest: float  # range of the token that is most open
    width: float  # mean range of a token
    fixed: float  # flow whose token all maximum flows agree on
    layers: float  # node layers in which some score is open, of all
    pairs: float  # token pairs whose order is open, of all
    top: float  # 1 if all maximum flows agree on the token of largest score
    value_apart: float  # difference of the two algorithms' values
    elsewhere: float  # flow that ends in another token under Algorithm 2 than under 1
    swapped: float  # token pairs that the two algorithms order differently, of all
    outside: float  # how far the barrier solution is outside of a range, beyond its gap
    short: float  # how far it is below a range, gap included
    unique_cut: float  # 1 if there is only one minimum cut
    cut: Tensor  # (l+2,) share of the cut in each layer of edges


def examine(information: Tensor) -> Finding | None:
    """One text's network (l, t, t); None if nothing flows in it."""
    flow = gaflow.solve(information)
    if bool(flow.certificate.dead[0]):
        return None
    cut, t = gaflow.min_cut(information), information.shape[-1]
    value = cut.value
    ranges = [gaflow.score_ranges(information, layer=layer) for layer in range(len(information) + 1)]
    low, high = (x / value for x in ranges[0])
    one, two = (gaflow.max_flow(information, direction) for direction in ("backward", "forward"))
    first, second = one.target[0] / value, two.target[0] / value
    score, gap = flow.target[0] / value, flow.certificate.gap[0] / value
    upper = torch.triu(torch.ones(t, t, dtype=torch.bool), 1)
    several = max(int(upper.sum()), 1)
    overlap = (high[:, None] > low + OPEN) & (high > low[:, None] + OPEN) & upper
    beaten = (high[:, None] <= low + OPEN) | torch.eye(t, dtype=torch.bool)  # [i, j]: i never above j
    swapped = (first[:, None] > first + OPEN) & (second[:, None] < second - OPEN)
    return Finding(
        tokens=t,
        widest=float((high - low).max()),
        width=float((high - low).mean()),
        fixed=float(low.sum()),
        layers=sum(bool(r.width.max() > OPEN * value) for r in ranges) / len(ranges),
        pairs=float(overlap.sum()) / several,
        top=float(beaten.all(0).any()),
        value_apart=abs(float(one.value - two.value)) / value,
        elsewhere=float((first - second).abs().sum()) / 2,
        swapped=float(swapped.sum()) / several,
        outside=float(torch.maximum(score - high, low - gap - score).max().clamp_min(0)),
        short=float((low - score).max().clamp_min(0)),
        unique_cut=float(cut.unique),
        cut=cut.share,
    )


ROWS: dict[str, Callable[[list[Finding]], str]] = {
    "texts with open scores": lambda results: _percent(f.widest > OPEN for f in results),
    "node layers with open scores, mean": lambda results: _percent(f.layers for f in results),
    "range of a token, mean": lambda results: _percent(f.width for f in results),
    "widest range in a text, mean": lambda results: _percent(f.widest for f in results),
    "widest range in a text, largest": lambda results: f"{max(f.widest for f in results):.1%}",
    "flow whose token is determined, mean": lambda results: _percent(f.fixed for f in results),
    "token pairs whose order is open, mean": lambda results: _percent(f.pairs for f in results),
    "texts whose first token is determined": lambda results: _percent(f.top for f in results),
    "texts where Algorithms 1 and 2 differ": lambda results: _percent(f.elsewhere > OPEN for f in results),
    "flow that ends elsewhere under Algorithm 2, mean": lambda results: _percent(f.elsewhere for f in results),
    "the same, largest": lambda results: f"{max(f.elsewhere for f in results):.1%}",
    "token pairs that they order differently, mean": lambda results: _percent(f.swapped for f in results),
    "difference of their values, largest": lambda results: f"{max(f.value_apart for f in results):.0e}",
    "texts with the barrier solution inside": lambda results: _percent(f.outside <= OPEN for f in results),
    "most it is below a range, gap included": lambda results: f"{max(f.short for f in results):.0e}",
    "texts with one minimum cut only": lambda results: _percent(f.unique_cut for f in results),
}


def _percent(values: Iterable[float]) -> str:
    return f"{statistics.fmean(values):.1%}"


def table(findings: dict[str, list[Finding]]) -> list[str]:
    """Both tables in Markdown."""
    lines = ["| | " + " | ".join(findings) + " |", "|---|" + "---:|" * len(findings)]
    lines += [f"| {name} | " + " | ".join(row(f) for f in findings.values()) + " |" for name, row in ROWS.items()]
    cuts = {name: torch.stack([f.cut for f in results]).mean(0) for name, results in findings.items()}
    count = len(next(iter(cuts.values())))
    names = ["input -> super-target", *(f"{k + 1} -> {k}" for k in range(count - 2)), "super-source -> output"]
    lines += ["", "Where the minimum cut (the one nearest to the output) lies, mean share per layer of edges:", ""]
    lines += ["| between node layers | " + " | ".join(cuts) + " |", "|---|" + "---:|" * len(cuts)]
    for k in reversed(range(count)):
        lines.append(f"| {names[k]} | " + " | ".join(f"{cut[k]:.1%}" for cut in cuts.values()) + " |")
    return lines


def main() -> None:
    """Draw texts, examine them one by one, write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="Parquet file with a column of texts")
    parser.add_argument("--column", default="text")
    parser.add_argument("--model", default=None, help="hub id or path; the embedded model by default")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="arbitrary.md", help="name below benchmarks/results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    texts = pd.read_parquet(options.data)[options.column].sample(options.count, random_state=options.seed).tolist()
    explainer = gaflow.Explainer(options.model)
    findings: dict[str, list[Finding]] = {name: [] for name in ("af", "gf", "agf")}
    dead = dict.fromkeys(findings, 0)
    for text in texts:
        capture = Capture()
        explainer(text, method=capture, truncation=True)
        (traced,) = capture.traces
        for name, results in findings.items():
            finding = examine(INFORMATION[name](traced.attention, traced.gradient)[0].double().cpu())
            dead[name] += finding is None
            results += [] if finding is None else [finding]
    lengths = [result.tokens for result in findings["af"]]
    lines = [
        "# How arbitrary plain maximum flow is",
        "",
        f"{len(texts)} texts of {options.data.name}, {sum(lengths) / len(lengths):.1f} tokens on average; "
        "all amounts are relative to the maximum flow. Ranges are over all maximum flows, exact; the flows of "
        "Algorithms 1 and 2 are those that OR-Tools finds.",
        f"Open means by more than {OPEN:g} of the flow. Texts without any flow, left out: "
        + ", ".join(f"{name} {count}" for name, count in dead.items())
        + ".",
        "",
        provenance(count=options.count, seed=options.seed, model=options.model or "embedded"),
        *table(findings),
    ]
    print("\n".join(lines))
    print("written to", write(options.out, "\n".join(lines) + "\n").name)


if __name__ == "__main__":
    main()
