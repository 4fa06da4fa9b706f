"""Which options of the flow methods are faithful: variants side by side on held-in texts, next to other methods.

    python -m benchmarks.study --data dev.parquet --model DIR --texts 100 --output study_sst2.md
    python -m benchmarks.study --data train.parquet --model DIR --texts 1000 --device cuda --output study.md

For every variant: AOPC and LOdds of the highest-scored tokens, the area between the curves of highest and lowest (SRG),
replacement [PAD], all levels from 10 to 90 per cent; the difference of AOPC to `ig` on the same texts with its standard
error; passes of the model and seconds per text (trace included). All variants share one trace of each text, and all
on the same paths one average. What is done is kept in a folder (`--kept`), a batch of texts at a time, and not
computed again: killed at any moment, the study goes on, and several processes may share the texts. `--only` takes parts
of names.

Choices are made on train and dev texts. A file with "test" in its name is refused.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import torch

import gaflow
from benchmarks.report import provenance, write
from gaflow.files import write_atomically
from gaflow.methods import METHODS, Cat, FlowMethod, Method, Scores
from gaflow.methods.base import name_with_changes
from gaflow.methods.paths import Paths, along_path
from gaflow.models.tracing import Trace

CONTROLS = ("random", "attgrads", "cat", "attcat", "transatt", "ig", "lime")
METRICS = ("aopc_top", "lodds_top", "srg")
STRAIGHT: dict[str, Any] = {"steps": None, "groups": 1, "orders": 0, "ranked": 0}  # at the text itself
KEPT = Path(__file__).parents[1] / "build" / "study"


@dataclass(frozen=True)
class OnPath:
    """Not a flow: CAT on path averages, the sum over layers of the path integrals `∫ <dy/dh, dh>`.

    With `layers=1` the input layer alone: integrated gradients along the same paths, the node capacities of the flow.
    """

    paths: Paths
    layers: int | None = None

    @property
    def name(self) -> str:
        """Name and settings."""
        paths = name_with_changes("paths", vars(self.paths), vars(Paths()))
        return f"no flow{', input layer' if self.layers == 1 else ''}: {paths}"

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a trace that is averaged already."""
        return Cat()(replace(trace, attentions=trace.attentions[: self.layers]))


KINDS = (  # of paths
    Paths(10),
    Paths(4, groups=2, orders=4),
    Paths(4, groups=4, ranked=1),
    Paths(4, groups=4, ranked=2),
    Paths(4, groups=4, ranked=3),
    Paths(4, groups=4, orders=2, ranked=1),
    Paths(4, groups=8, ranked=1),
    Paths(2, groups=8, ranked=2),
    Paths(2, groups=8, ranked=3),
)
LAST = Paths(4, groups=4, ranked=2)  # the paths that options are left out on


def variants() -> dict[str, Any]:
    """The grid: one option after the other from the paper's `agf`, kinds of paths, one option less."""
    one = FlowMethod("agf_net", heads="sum", residual=True, signed=True, barrier="capacity", layer="all", throw=False)
    full = replace(one, information="agf", nodes=True, layer=0)
    on = {kind: replace(full, **asdict(kind)) for kind in KINDS}
    less: list[dict[str, Any]] = [
        {"residual": False}, {"signed": False}, {"barrier": "uniform"}, {"heads": "mean"}, {"information": "gf"},
    ]  # fmt: skip
    of_one: list[dict[str, Any]] = [{"information": "agf"}, {"layer": 0}, {"nodes": True}]
    of_paths: list[dict[str, Any]] = [{"information": "agf_net"}, {"layer": "all"}, {"nodes": False}, {"layer": 1}]
    chosen: list[FlowMethod] = [
        *(replace(METHODS[name], throw=False) for name in ("af", "gf", "agf")),  # type: ignore[type-var]
        FlowMethod("agf", layer="all", throw=False),
        FlowMethod("agf", signed=True, layer="all", throw=False),
        FlowMethod("agf", heads="sum", residual=True, layer="all", throw=False),
        *(one, *(replace(one, **change) for change in (*less, *of_one))),
        *on.values(),
        *(replace(on[LAST], **change) for change in (*less, *of_paths)),
    ]
    raw = [OnPath(kind, layers=1) for kind in KINDS] + [OnPath(LAST)]
    return {**{name: METHODS[name] for name in CONTROLS}, **{m.name: m for m in (*raw, *chosen)}}


@dataclass(frozen=True)
class Panel:
    """A method of the explainer that asks every variant about each trace, and keeps what they say."""

    asked: dict[str, Any]
    scores: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)  # variant -> text -> (t,)
    seconds: dict[str, float] = field(default_factory=dict)  # variant -> of all texts, without the trace
    failed: dict[str, int] = field(default_factory=dict)  # variant -> flows that did not converge
    name = "panel"
    needs = ("residual",)

    def __call__(self, trace: Trace) -> Scores:
        """Ask them all about one batch."""
        walked: dict[Paths, tuple[Trace, float]] = {}
        for name, method in self.asked.items():
            seen, spent, plain = trace, 0.0, method
            if isinstance(method, FlowMethod | OnPath) and method.paths.steps is not None:
                kind = method.paths
                if kind not in walked:
                    walked[kind] = _timed(lambda kind=kind: along_path(trace, kind))
                seen, spent = walked[kind]
                plain = replace(method, **STRAIGHT) if isinstance(method, FlowMethod) else method
            found, more = _timed(lambda plain=plain, seen=seen: plain(seen))
            self._keep(name, trace, found, spent + more)
        return Scores(trace.mask.double())

    def _keep(self, name: str, trace: Trace, found: Scores, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        flows = [flow for flow in (found.flow, found.flow_against) if flow is not None]
        self.failed[name] = self.failed.get(name, 0) + sum(int((~flow.converged).sum()) for flow in flows)
        values = found.values.detach().double().cpu().numpy()
        kept = self.scores.setdefault(name, {})
        for row, encoding in zip(values, trace.require_model().batch.encodings, strict=True):
            kept[encoding.text] = row[: len(encoding)]


def _timed(call: Any) -> tuple[Any, float]:
    started = time.perf_counter()
    found = call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return found, time.perf_counter() - started


def main() -> None:
    """Compute what is missing, then write the table of all."""
    given = arguments()
    torch.set_num_threads(given.threads)
    texts = read_texts(Path(given.data), given.column, given.texts, given.seed)
    explainer = gaflow.Explainer(given.model, device=given.device, dtype=torch.float32)
    folder = Path(given.kept) / key_of(given, texts)
    folder.mkdir(parents=True, exist_ok=True)
    grid = choose(variants(), given.only)
    parts = [texts[k : k + given.batch_size] for k in range(0, len(texts), given.batch_size)]
    turn, turns = (int(n) for n in given.share.split("/"))
    for number in range(turn - 1, len(parts), turns):
        study(explainer, parts[number], grid, folder / f"{number:04d}.json", given.seed)
        print(f"part {number + 1} of {len(parts)}", flush=True)
    rows, count = gather(folder, list(grid))
    if not count:
        raise SystemExit("no batch of texts is done yet")
    lines = [
        f"# Variants of the flow methods on {count} texts of {Path(given.data).name}",
        "",
        "Held-in texts; see benchmarks/study.py for what is measured.",
        "",
        provenance(model=Path(given.model).name, texts=count, seed=given.seed, replacement="pad"),
        *table(rows),
        "",
    ]
    print("\n".join(lines))
    print("written to", write(given.output, "\n".join(lines)).name)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="Parquet file of train or dev texts")
    parser.add_argument("--model", required=True, help="folder of a text classifier")
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--column", default="text")
    parser.add_argument("--only", nargs="*", default=[], help="parts of names of variants")
    parser.add_argument("--batch-size", type=int, default=16, help="texts together, which a kill costs at most")
    parser.add_argument("--share", default="1/1", help="2/3: the second of three processes that share the texts")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kept", default=str(KEPT), help="folder of what is done")
    parser.add_argument("--output", default="study.md", help="name of the file in results/, or a path")
    return parser.parse_args()


def choose(grid: dict[str, Any], only: Sequence[str]) -> dict[str, Any]:
    """The variants whose name has one of these parts; a whole name means that one alone."""
    return {n: m for n, m in grid.items() if not only or any(n == p if p in grid else p in n for p in only)}


def read_texts(path: Path, column: str, count: int, seed: int) -> list[str]:
    """Different texts of a file, drawn by `seed`."""
    if "test" in path.stem:
        raise SystemExit(f"{path.name} looks like a test split: choices are made on train and dev texts")
    found = pyarrow.parquet.read_table(path, columns=[column])[column].to_pylist()
    different = list(dict.fromkeys(text.strip() for text in found if text and text.strip()))
    order = np.random.default_rng(seed).permutation(len(different))[:count]
    return [different[k] for k in order]


def key_of(given: argparse.Namespace, texts: Sequence[str]) -> str:
    """What decides the numbers, in a few letters: results of other texts or another model are other results."""
    decided = [str(given.model), given.batch_size, list(texts)]
    return hashlib.sha256(json.dumps(decided).encode()).hexdigest()[:12]


def study(explainer: gaflow.Explainer, texts: list[str], grid: dict[str, Method], place: Path, seed: int) -> None:
    """Explain some texts by the variants that are not there yet, judge them, and keep what was found."""
    there = json.loads(place.read_text()) if place.exists() else {}
    asked = {name: method for name, method in grid.items() if name not in there}
    if not asked:
        return
    settings: dict[str, Any] = {"batch_size": len(texts), "truncation": True}
    _, tracing = _timed(lambda: explainer(texts, Panel({}), keep_flow=False, **settings))
    panel = Panel(asked)
    explainer(texts, panel, keep_flow=False, **settings)
    stored = {name: [panel.scores[name][text] for text in texts] for name in asked}
    judged = gaflow.evaluate(explainer, texts, methods=[], scores=stored, eraser=False, seed=seed, **settings)
    values = {
        "aopc_top": judged.per_text("aopc", "top"),
        "lodds_top": judged.per_text("lodds", "top"),
        "srg": judged.per_text("srg"),
    }
    for name, method in asked.items():
        at = judged.methods.index(name)
        there[name] = {
            "passes": passes_of(method),
            "seconds": [tracing + panel.seconds[name]],
            "failed": [panel.failed[name]],
            **{metric: values[metric][at].tolist() for metric in METRICS},
        }
    write_atomically(place, json.dumps(there).encode())


def gather(folder: Path, names: Sequence[str]) -> tuple[list[dict[str, Any]], int]:
    """The rows of variants over all parts that have them all, and how many texts these are."""
    parts = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    parts = [part for part in parts if set(names) <= set(part)]
    rows = []
    for name in names:
        lists = {key: [v for part in parts for v in part[name][key]] for key in ("seconds", "failed", *METRICS)}
        rows.append({"name": name, "passes": parts[0][name]["passes"] if parts else "", **lists})
    return rows, len(rows[0]["srg"]) if rows else 0


def passes_of(method: Any) -> str:
    """Passes of the model, the trace included."""
    if not isinstance(method, OnPath):
        return method.info.passes
    asked = 1 + method.paths.passes
    return f"{asked} forward, {asked} backward"


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Best first, as Markdown."""
    ig = next((np.array(row["aopc_top"]) for row in rows if row["name"] == "ig"), None)
    lines = [
        "| variant | AOPC top | LOdds top | SRG | AOPC less ig's | passes | s per text | unsolved |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: -float(np.mean(row["aopc_top"]))):
        aopc, lodds, srg = (float(np.mean(row[metric])) for metric in METRICS)
        gap = "" if ig is None else _gap(np.array(row["aopc_top"]) - ig)
        cells = [f"`{row['name']}`", f"{aopc:.3f}", f"{lodds:.2f}", f"{srg:.3f}", gap, row["passes"]]
        lines.append(
            "| " + " | ".join([*cells, f"{sum(row['seconds']) / len(row['srg']):.3f}", str(sum(row["failed"]))]) + " |"
        )
    return lines


def _gap(difference: np.ndarray) -> str:
    """Mean and standard error."""
    return f"{difference.mean():+.3f} ± {difference.std(ddof=1) / len(difference) ** 0.5:.3f}"


if __name__ == "__main__":
    main()
