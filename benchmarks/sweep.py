"""Robustness: thousands of hard networks, each of which must converge or be all dead.

`python -m benchmarks.sweep` (some minutes on one core) writes results/sweep.md. With `--device`, `--way` or `--loop` it
only prints the table of that way of solving.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass, field

import torch

from benchmarks.report import provenance, write
from gaflow.flow.barrier.linear.dispatch import WAYS
from gaflow.flow.barrier.solve import LogBarrier, default_terminal
from gaflow.flow.barrier.without_looking import LOOPS
from gaflow.flow.network import LayeredNetwork
from tests.support.sweep import networks


@dataclass
class Row:
    """What became of one kind of network."""

    count: int = 0
    dead: int = 0
    failed: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    worst: float = 0.0


def main() -> None:
    """Solve them all, one by one, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--way", choices=WAYS, help="to solve all linear systems")
    parser.add_argument("--loop", choices=LOOPS, help="to take the steps of all networks")
    options = parser.parse_args()
    prints_only = options.device != "cpu" or options.way is not None or options.loop is not None
    torch.set_num_threads(1)
    rows: dict[tuple[str, str], Row] = defaultdict(Row)
    for hard in networks(options.count, options.seed):
        row = rows[hard.kind, hard.barrier]
        terminal = default_terminal(hard.barrier)
        network = LayeredNetwork.build(hard.information.to(options.device), terminal)
        solver = LogBarrier(epsilon=hard.epsilon, barrier=hard.barrier, way=options.way, loop=options.loop)
        flow = solver(network)
        certificate = flow.certificate[0]
        row.count += 1
        row.dead += certificate.dead
        if not certificate.converged:
            row.failed.append(hard.index)
        if not certificate.dead:
            row.steps.append(certificate.iterations)
            row.worst = max(row.worst, certificate.conservation, certificate.dual, certificate.centrality)
    lines = [
        "# Hard networks",
        "",
        "l 1..24, t 1..48, epsilon 1e-9..1e3; worst = largest conservation, dual or centrality error of any network.",
        "",
        provenance(count=options.count, seed=options.seed),
        "| kind | barrier | networks | all dead | not converged | steps, mean | steps, most | worst |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for (kind, barrier), row in sorted(rows.items()):
        mean, most = (sum(row.steps) / len(row.steps), max(row.steps)) if row.steps else (0, 0)
        cells = (kind, barrier, row.count, row.dead, len(row.failed), f"{mean:.1f}", most, f"{row.worst:.0e}")
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    print("\n".join(lines))
    if not prints_only:
        print("written to", write("sweep.md", "\n".join(lines) + "\n").name)
    if failed := [index for row in rows.values() for index in row.failed]:
        raise SystemExit(f"not converged: {failed}")


if __name__ == "__main__":
    main()
