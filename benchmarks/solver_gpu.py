"""The solver alone on a GPU: absolute times, memory, distance to the floor, growth with the length.

`python -m benchmarks.solver_gpu` writes results/solver_gpu.md; with `--ways` it compares the ways of solving
(solver_ways.py). Capacities are AGF-like: the mean over heads of the
positive part of attention (a softmax of random scores) times a random gradient, with one output token that is read.
A time is the median of the repeats after one unmeasured run, which compiles the kernels. The floor is `3 l t^3` flops a
step at the speed of a float64 matrix product of size 4096 on the same device.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time

import torch
from torch import Tensor

from benchmarks.report import provenance, write
from gaflow import solve

SHAPES = ((1, 12, 16), (64, 12, 128), (16, 12, 512), (1, 12, 2048))
GROWTH = (128, 256, 512, 1024, 2048)
LONG = (1, 22, 8192)
HEADS = 12


def capacities(b: int, layers: int, t: int, device: str, seed: int = 0) -> Tensor:
    """AGF-like information (b, l, t, t)."""
    random = torch.Generator(device).manual_seed(seed)
    total = torch.zeros(b, layers, t, t, device=device)
    for k in range(layers):
        for _ in range(HEADS):
            attention = torch.softmax(3 * torch.randn(b, t, t, device=device, generator=random), -1)
            total[:, k] += attention.mul_(torch.randn(b, t, t, device=device, generator=random)).relu_()
    total[:, -1, 1:] = 0
    return total.div_(HEADS)


def timed(information: Tensor, repeats: int) -> tuple[float, int, float]:
    """Median seconds, largest number of steps, peak GiB on top of the information."""
    seconds, steps, peak = [], 0, 0.0
    for turn in range(repeats + 1):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before, started = torch.cuda.memory_allocated(), time.perf_counter()
        flow = solve(information)
        torch.cuda.synchronize()
        if turn or not repeats:
            seconds.append(time.perf_counter() - started)
        steps = int(flow.certificate.iterations.max())
        peak = (torch.cuda.max_memory_allocated() - before) / 2**30
        del flow
    return statistics.median(seconds), steps, peak


def matmul_speed(device: str) -> float:
    """Flops per second of a float64 matrix product."""
    a = torch.randn(4096, 4096, dtype=torch.float64, device=device)
    (a @ a).sum().item()
    started = time.perf_counter()
    for _ in range(10):
        torch.matmul(a, a)
    torch.cuda.synchronize()
    return 10 * 2 * 4096**3 / (time.perf_counter() - started)


def row(b: int, layers: int, t: int, repeats: int, speed: float, device: str) -> tuple[str, float, int]:
    """A row of the table, and what the growth is read from."""
    seconds, steps, peak = timed(capacities(b, layers, t, device), repeats)
    floor = 3 * b * layers * t**3 * steps / speed
    cells = f"{b} | {layers} | {t} | {steps} | {seconds:.4f} | {seconds / steps * 1e3:.2f} | {floor:.5f}"
    print(cells, flush=True)
    return f"| {cells} | {seconds / floor:.1f} | {peak:.2f} |", seconds, steps


def main() -> None:
    """Measure every shape and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--without-long", action="store_true", help="leave out the text of 8,192 tokens")
    parser.add_argument("--ways", action="store_true", help="compare all ways of solving; writes nothing")
    parser.add_argument("--profile", action="store_true", help="with --ways: the longest kernels, too")
    parser.add_argument("--only", default="", help="with --ways: measurements whose name has this in it")
    options = parser.parse_args()
    if options.ways:
        from benchmarks.solver_ways import measure

        measure(options)
        return
    for _ in range(20):  # a GPU that has slept is slow at first
        solve(capacities(1, 12, 16, options.device))
    speed = matmul_speed(options.device)
    rows = [row(*shape, options.repeats, speed, options.device)[0] for shape in SHAPES]
    growth = [row(1, 12, t, options.repeats, speed, options.device) for t in GROWTH]
    deeper = [row(1, layers, 512, options.repeats, speed, options.device) for layers in (6, 12, 24)]
    if not options.without_long:
        rows.append(row(*LONG, 0, speed, options.device)[0])
    in_t = math.log(growth[-1][1] / growth[-1][2] / (growth[0][1] / growth[0][2])) / math.log(GROWTH[-1] / GROWTH[0])
    in_l = math.log(deeper[-1][1] / deeper[-1][2] / (deeper[0][1] / deeper[0][2])) / math.log(4)
    head = "| texts | layers | tokens | steps | seconds | ms a step | floor, s | / floor | peak GiB |"
    lines = [
        "# The solver on a GPU",
        "",
        "See benchmarks/solver_gpu.py for what is measured.",
        "",
        provenance(epsilon=1e-6, seed=0, repeats=options.repeats)
        + f"- float64 matrix product: {speed / 1e12:.0f} TFLOP/s\n",
        head,
        "|---:" * head[:-1].count("|") + "|",
        *rows,
        "",
        f"Time of a step grows as t^{in_t:.2f} from {GROWTH[0]} to {GROWTH[-1]:,} tokens (flops: t^3, memory: t^2), "
        f"and as l^{in_l:.2f} from 6 to 24 layers of 512 tokens:",
        "",
        head,
        "|---:" * head[:-1].count("|") + "|",
        *(r for r, _, _ in growth),
        *(r for r, _, _ in deeper),
    ]
    print("\n".join(lines))
    print("written to", write("solver_gpu.md", "\n".join(lines) + "\n").name)


if __name__ == "__main__":
    main()
