"""What an explanation costs, beside what the model itself costs: trace and solve against forward and backward.

`python -m benchmarks.solver` (some minutes on two cores) writes results/solver.md. Every number of a row is taken in
the same run, the measured parts taking turns, and is the median of the repeats (twice as many below 256 tokens, four
times as many below 64).

The model is BERT-base's geometry with random weights. Its own backward pass goes from one logit to the input embeddings
with the model's default attention, the least a gradient method does; with the gradients of all parameters, as in
training, it is the "training" column. The floor of a solve is `3 l t^3` flops a step at the speed of a float64 matrix
product of size 1024. CVXPY solves the same problem with Clarabel, where it does, at the smallest epsilon it manages.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.cvxpy_reference import cvxpy_flow
from benchmarks.report import provenance, write
from gaflow import GaflowError, solve
from gaflow.flow import information
from gaflow.inputs.batch import Batch
from gaflow.models.forward import forward as observe
from gaflow.models.restore import borrow
from gaflow.models.tracing import Trace
from gaflow.models.tracing import backward as differentiate
from gaflow.tasks.targets import LogitTerm

LAYERS, HEADS, WIDTH = 12, 12, 768
CVXPY_UP_TO = 14
HEADER = (
    "| t | forward | forward + backward | training | trace | solve | trace + agf + solve "
    "| ratio to forward + backward | ratio to training | steps | floor of solve | solve / floor "
    "| peak memory of solve, MiB | CVXPY (epsilon) | CVXPY / solve |"
)


def main() -> None:
    """Measure every length and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[14, 32, 128, 256, 512])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memory", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    if options.memory:
        return print(peak_memory(options.memory))
    model, speed = bert(), matmul_speed()
    rows = [measure(model, t, options.repeats * (4 if t < 64 else 2 if t < 256 else 1), speed) for t in options.lengths]
    lines = [
        "# Cost of an explanation",
        "",
        "Seconds, medians of one run; see benchmarks/solver.py for what is measured.",
        "",
        provenance(layers=LAYERS, heads=HEADS, width=WIDTH, seed=options.seed, repeats=options.repeats, epsilon=1e-6)
        + f"- float64 matrix product: {speed / 1e9:.0f} GFLOP/s\n",
        HEADER,
        "|---:" * HEADER[:-1].count("|") + "|",
        *rows,
    ]
    print("\n".join(lines))
    print("written to", write("solver.md", "\n".join(lines) + "\n").name)
    return None


def bert() -> Any:
    """BERT-base, untrained, with two labels."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(num_hidden_layers=LAYERS, num_attention_heads=HEADS, hidden_size=WIDTH)
    return BertForSequenceClassification(config).eval()


def measure(model: Any, t: int, repeats: int, speed: float) -> str:
    """One row of the table."""
    ids = torch.randint(1000, 20000, (1, t))
    mask = torch.ones(1, t, dtype=torch.bool)
    batch = Batch({"input_ids": ids, "attention_mask": mask.long()}, mask, False, ())

    def forward() -> None:
        with torch.no_grad():
            model(ids)

    def backward() -> None:
        embeddings = model.get_input_embeddings()(ids).detach().requires_grad_()
        torch.autograd.grad(model(inputs_embeds=embeddings).logits[0, 0], embeddings)

    def training() -> None:
        torch.autograd.grad(model(ids).logits[0, 0], list(model.parameters()), allow_unused=True)

    def look() -> Trace:
        terms = [(LogitTerm(1.0, (0,)),)] * len(batch.mask)
        with borrow(model):
            return differentiate(observe(model, batch), terms)

    forward_pass = look()
    capacities = information.by_layer(information.agf, forward_pass.attentions, forward_pass.gradients)

    def explain() -> None:
        again = look()
        solve(information.by_layer(information.agf, again.attentions, again.gradients))

    parts = (forward, backward, training, look, lambda: solve(capacities), explain)
    plain, lean, trained, traced, solved, end_to_end = medians(parts, repeats)
    steps = int(solve(capacities).certificate.iterations)
    floor = 3 * LAYERS * t**3 * steps / speed
    cvxpy = with_cvxpy(capacities[0]) if t <= CVXPY_UP_TO else None
    cells = [
        f"{t} | {plain:.3f} | {lean:.3f} | {trained:.3f} | {traced:.3f} | {solved:.3f} | {end_to_end:.3f}",
        f"{end_to_end / lean:.2f} | {end_to_end / trained:.2f} | {steps}",
        f"{floor:.4f} | {solved / floor:.1f} | {child_memory(t)}",
        f"{cvxpy[0]:.1f} ({cvxpy[1]:g}) | {cvxpy[0] / solved:.0f}" if cvxpy else "not solved | ",
    ]
    print(cells, flush=True)
    return "| " + " | ".join(cells) + " |"


def medians(parts: tuple[Callable[[], object], ...], repeats: int) -> list[float]:
    """Median seconds of each part, taking turns, after one unmeasured turn."""
    seconds: list[list[float]] = [[] for _ in parts]
    for turn in range(repeats + 1):
        for part, durations in zip(parts, seconds, strict=True):
            started = time.perf_counter()
            part()
            if turn:
                durations.append(time.perf_counter() - started)
    return [statistics.median(durations) for durations in seconds]


def with_cvxpy(capacities: Tensor) -> tuple[float, float] | None:
    """Seconds of CVXPY with Clarabel and the smallest epsilon that it solves."""
    for epsilon in (1e-6, 1e-4, 1e-2, 1.0):
        started = time.perf_counter()
        try:
            if bool(cvxpy_flow(capacities, epsilon=epsilon).converged.all()):
                return time.perf_counter() - started, epsilon
        except GaflowError:
            continue
    return None


def matmul_speed(size: int = 1024) -> float:
    """Flops a second of a float64 matrix product, the best of a few."""
    a = torch.rand(size, size, dtype=torch.float64)
    best = min(medians((lambda: a @ a,), 1)[0] for _ in range(5))
    return 2 * size**3 / best


def child_memory(t: int) -> str:
    """Peak memory of a solve in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.solver", "--memory", str(t)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def peak_memory(t: int) -> int:
    """MiB of resident memory that a solve adds at its peak, looked at every few milliseconds (Linux)."""
    solve(torch.rand(1, 2, 4, 4))  # load what is loaded once
    capacities = torch.rand(1, LAYERS, t, t) ** 4
    before = resident()
    peaks = [0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            peaks.append(resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    solve(capacities)
    done.set()
    watcher.join()
    return (max(peaks) - before) // 2**20


def resident() -> int:
    """Bytes of this process in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    main()
