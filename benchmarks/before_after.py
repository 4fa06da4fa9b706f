"""This commit and an earlier one side by side: time of the processor and memory of typical work, in one run.

    python -m benchmarks.before_after 3664b57 --rounds 5

The earlier commit is checked out into `build/before`. Each round starts three processes with one thread each, in
changing order: the earlier commit, this one, and this one again. The ratio of the last two is the noise of the machine.
Seconds are of the processor, so other work on the machine matters little. Results are in results/before_after.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import provenance, write

ROOT = Path(__file__).parents[1]
CHECKOUT = ROOT / "build" / "before"
BEFORE, NOW, AGAIN = "before", "now", "again"
MEMORY = "peak memory of the process"


@dataclass(frozen=True)
class Ratios:
    """One operation over all rounds."""

    amount: float  # of this commit, median: milliseconds, or MiB of memory
    change: tuple[float, ...]  # this commit over the earlier one, per round
    noise: tuple[float, ...]  # this commit over itself, per round


def main() -> None:
    """Measure all rounds and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the earlier commit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="time spent on each operation")
    parser.add_argument("--output", default="before_after.md", help="file in benchmarks/results")
    arguments = parser.parse_args()
    check_out(arguments.commit)
    sources = {BEFORE: CHECKOUT / "src", NOW: ROOT / "src", AGAIN: ROOT / "src"}
    rounds = []
    for number in range(arguments.rounds):
        rounds.append(run_round(sources, number, arguments.seconds))
        print(f"round {number + 1} of {arguments.rounds} done", flush=True)
    text = report(arguments.commit, summarise(rounds), rounds=arguments.rounds, seconds=arguments.seconds)
    print(text)
    print("written to", write(arguments.output, text).name)


def check_out(commit: str) -> None:
    """A clean copy of the earlier commit's files."""
    CHECKOUT.mkdir(parents=True, exist_ok=True)
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["rm", "-rf", str(CHECKOUT / "src")], check=True)
    subprocess.run(["tar", "-x", "-C", str(CHECKOUT)], input=archive, check=True)


def run_round(sources: dict[str, Path], number: int, seconds: float) -> dict[str, dict[str, float]]:
    """The measurements of each process of a round; the order changes from round to round."""
    names = list(sources)
    first = number % len(names)
    measured = {}
    for name in names[first:] + names[:first]:
        measured[name] = run_worker(sources[name], seconds)
    return measured


def run_worker(source: Path, seconds: float) -> dict[str, float]:
    """Seconds by operation, and bytes of memory, of the package in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "benchmarks" / "before_after_worker.py"), str(seconds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    result = json.loads(done.stdout.splitlines()[-1])
    return {**result["seconds"], MEMORY: result["peak"]}


def summarise(rounds: list[dict[str, dict[str, float]]]) -> dict[str, Ratios]:
    """The ratios of every operation, from the measurements of all rounds."""
    ratios = {}
    for name in rounds[0][NOW]:
        scale = 2.0**-20 if name == MEMORY else 1000.0
        ratios[name] = Ratios(
            scale * statistics.median(measured[NOW][name] for measured in rounds),
            tuple(measured[NOW][name] / measured[BEFORE][name] for measured in rounds),
            tuple(measured[AGAIN][name] / measured[NOW][name] for measured in rounds),
        )
    return ratios


def report(commit: str, ratios: dict[str, Ratios], **settings: object) -> str:
    """The table in Markdown."""
    lines = [
        f"# This commit beside {commit}",
        "",
        "Ratios are those of the processor's time; below 1, this commit is faster.",
        "The noise is this commit measured against itself.",
        "",
        provenance(**settings, before=commit, threads_per_process=1),
        "| operation | ms now | now / before: median | least to most | noise: least to most |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, ratio in ratios.items():
        unit = " MiB" if name == MEMORY else ""
        median = statistics.median(ratio.change)
        cells = [name, f"{ratio.amount:,.1f}{unit}", f"{median:.2f}", _range(ratio.change), _range(ratio.noise)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _range(values: tuple[float, ...]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


if __name__ == "__main__":
    main()
