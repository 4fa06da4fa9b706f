"""Every way of solving on a GPU, side by side, to set the sizes at which one takes over from another.

`python -m benchmarks.solver_gpu --ways` prints milliseconds of a whole solve (the network built from a tensor on the
GPU, the flow there) for each shape and way, and how far the edges are from those of the first way, relative to the
flow. Then come the building blocks: microseconds of a call, launches included. `--profile` adds the longest kernels of
some solves. Each job may fail: the others go on, in a new process if the GPU does not answer any more.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.solver_gpu import capacities
from gaflow.flow.barrier import gpu
from gaflow.flow.barrier.linear.dispatch import Way
from gaflow.flow.barrier.linear.inverse import invert
from gaflow.flow.barrier.solve import LogBarrier
from gaflow.flow.barrier.without_looking import Loop
from gaflow.flow.network import LayeredNetwork
from gaflow.flow.result import Flow

LAYERS = 12
SHAPES = ((1, 16), (1, 32), (1, 64), (1, 128), (1, 256), (1, 512), (64, 32), (64, 128), (16, 512))  # texts, tokens
PROFILED = ((1, 128), (1, 512), (64, 128), (16, 512))
BLOCK_BATCHES = (1, 2, 32, 128)
BLOCK_TOKENS = (32, 64, 128, 256, 512)
REPEATS = 5
SECONDS_OF_A_JOB = 120
GRAPH_MAX_BATCH_EDGES = 2e7
HOST_MAX_TOKENS = 64
ONE_KERNEL = {16: (2, 4), 32: (4, 8)}  # warps to try, by tile


@dataclass(frozen=True)
class Variant:
    """One way of solving a batch."""

    name: str
    loop: Loop | None = None
    way: Way | None = None
    warps: int | None = None  # of the one kernel
    unroll: bool = True  # its loop over pivots
    host: bool = False


def variants(b: int, t: int) -> list[Variant]:
    """What is compared for a shape; the first is what the others have to agree with."""
    nodes = (LAYERS + 1) * t
    way_before: Way = "blocks_two_ended"
    if b == 1:
        way_before = "dense" if nodes**3 <= 1e10 else "odd_even"
    compared = [
        Variant("before", "looking", way_before),
        Variant("default"),
        Variant("looking", "looking", "odd_even_blocks"),
    ]
    if b * LAYERS * t**2 <= GRAPH_MAX_BATCH_EDGES:
        compared.append(Variant("graph", "graph", "odd_even_blocks"))
    for tile, choices in ONE_KERNEL.items():
        if tile // 2 < t <= tile:
            for warps in choices:
                for unroll in (False, True):
                    name = f"one_kernel {warps} warps" + (" unrolled" if unroll else "")
                    compared.append(Variant(name, "one_kernel", warps=warps, unroll=unroll))
    if b == 1 and t <= HOST_MAX_TOKENS:
        compared.append(Variant("host", host=True))
    return compared


@cache
def information(b: int, t: int) -> Tensor:
    """The capacities of a shape."""
    return capacities(b, LAYERS, t, "cuda")


def solve_by(variant: Variant, b: int, t: int) -> Flow:
    """One solve."""
    tensor = information(b, t)
    if variant.host:
        tensor = tensor.cpu()
    network = LayeredNetwork.build(tensor)
    return LogBarrier(loop=variant.loop, way=variant.way)(network)


@cache
def reference(b: int, t: int) -> Flow:
    """What all ways have to agree with."""
    return solve_by(variants(b, t)[0], b, t)


def median_milliseconds(run: Callable[[], object], repeats: int = REPEATS) -> float:
    """Of a call and what it started."""
    milliseconds = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        started = time.perf_counter()
        run()
        torch.cuda.synchronize()
        milliseconds.append(1e3 * (time.perf_counter() - started))
    return statistics.median(milliseconds)


def measure_variant(variant: Variant, b: int, t: int) -> None:
    """Print a row."""
    settings = {tile: dict(values) for tile, values in gpu.SHORT.items()}
    if variant.warps:
        for tile in ONE_KERNEL:
            gpu.SHORT[tile].update(num_warps=variant.warps, UNROLL=variant.unroll)
    try:
        measure_settings(variant, b, t)
    finally:
        gpu.SHORT.update(settings)


def measure_settings(variant: Variant, b: int, t: int) -> None:
    """The same with the settings of the one kernel as they are."""
    started = time.perf_counter()
    flow = solve_by(variant, b, t)
    torch.cuda.synchronize()
    first_seconds = time.perf_counter() - started
    solve_by(variant, b, t)
    milliseconds = median_milliseconds(partial(solve_by, variant, b, t))
    expected = reference(b, t)
    edges = flow.edges.to(expected.edges.device)
    difference = ((edges - expected.edges) / expected.value[:, None, None, None]).abs().max().item()
    steps = int(flow.certificate.iterations.max())
    expected_steps = int(expected.certificate.iterations.max())
    print(
        f"{b:3d} x {t:4d} | {variant.name:28s} | {milliseconds:8.2f} ms | {steps} steps ({expected_steps}) | "
        f"difference {difference:.1e} | converged {bool(flow.converged.all())} | first call {first_seconds:.1f} s",
        flush=True,
    )


def measure_outside(b: int, t: int) -> None:
    """Print the time of what is no Newton step: the network, the start, errors and results."""
    build = median_milliseconds(lambda: LayeredNetwork.build(information(b, t)))
    network = LayeredNetwork.build(information(b, t))
    no_step = LogBarrier(steps=0, subtraction_free_steps=0)
    both = median_milliseconds(lambda: no_step(network))
    print(f"{b:3d} x {t:4d} | build {build:.2f} ms, two starts and ends {both:.2f} ms", flush=True)


def microseconds(run: Callable[[], object]) -> float:
    """Of a call, averaged over many on the device."""
    run()
    torch.cuda.synchronize()
    start = torch.cuda.Event(enable_timing=True)
    stop = torch.cuda.Event(enable_timing=True)
    calls = 10
    start.record()
    for _ in range(calls):
        run()
    stop.record()
    stop.synchronize()
    return 1e3 * start.elapsed_time(stop) / calls


def replayed_microseconds(run: Callable[[], object]) -> float:
    """The same, replayed as a graph, without what the host needs to start it."""
    run()
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        run()
        stream.synchronize()
        graph.capture_begin()
        for _ in range(10):
            run()
        graph.capture_end()
    return microseconds(graph.replay) / 10


def measure_launch() -> None:
    """Print what a call costs that does nothing to speak of."""
    one = torch.zeros(1, device="cuda")
    print(f"launch: {microseconds(one.zero_):.1f} us, in a graph {replayed_microseconds(one.zero_):.1f} us", flush=True)


def measure_blocks(b: int, t: int) -> None:
    """Print a row of building blocks of this size, in float64."""
    generator = torch.Generator("cuda").manual_seed(0)
    weights = torch.rand(b, t, t, dtype=torch.float64, device="cuda", generator=generator)
    weights = weights + weights.mT
    matrix = torch.diag_embed(weights.sum(-1) + 1) - weights
    columns = torch.rand(b, t, t + 2, dtype=torch.float64, device="cuda", generator=generator)
    factor = torch.linalg.cholesky(matrix)
    error = float((invert(matrix.clone()) @ matrix - torch.eye(t, device="cuda")).abs().max())
    scratch = matrix.clone()
    calls: dict[str, Callable[[], object]] = {
        "cholesky_ex": lambda: torch.linalg.cholesky_ex(matrix),
        "solve_triangular": lambda: torch.linalg.solve_triangular(factor, columns, upper=False),
        "bmm": lambda: torch.bmm(weights, columns),
        "invert": lambda: invert(scratch),  # of what the last call left, which takes as long
    }
    times = []
    for name, run in calls.items():
        times.append(f"{name} {microseconds(run):.0f}")
    times.append(f"invert in a graph {replayed_microseconds(calls['invert']):.0f}")
    times.append(f"bmm in a graph {replayed_microseconds(calls['bmm']):.0f}")
    print(f"{b:3d} x {t:4d} | us: {', '.join(times)} | error {error:.0e}", flush=True)


def measure_leaves() -> None:
    """Print the time of the kernel that inverts, for other settings than those that it has."""
    for tile, choices in {16: (1, 2), 32: (1, 2, 4), 64: (4, 8, 16)}.items():
        for warps in choices:
            for unroll in (True, False):
                matrix = 3 * torch.eye(tile, dtype=torch.float64, device="cuda").expand(2, -1, -1).contiguous()
                inverse = torch.empty_like(matrix)
                gpu.INVERT[tile] = {"UNROLL": unroll, "num_warps": warps, "num_stages": 1}
                taken = replayed_microseconds(partial(gpu.invert, matrix, inverse))
                print(f"leaf {tile}: {warps} warps, unrolled {unroll}: {taken:.1f} us", flush=True)


def profile_shape(b: int, t: int) -> None:
    """Print the kernels that a solve by default spends most of its time in."""
    run = partial(solve_by, Variant("default"), b, t)
    run()
    run()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiled:
        run()
        torch.cuda.synchronize()
    events = [event for event in profiled.key_averages() if event.self_device_time_total > 0]
    events.sort(key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in events)
    print(f"{b} x {t}: {total / 1e3:.2f} ms on the device")
    for event in events[:14]:
        print(f"  {event.self_device_time_total / 1e3:7.3f} ms {event.count:5d} x {event.key[:90]}")
    sys.stdout.flush()


def jobs(options: argparse.Namespace) -> list[tuple[str, Callable[[], None]]]:
    """What is to be measured, by name."""
    named: list[tuple[str, Callable[[], None]]] = [("launch", measure_launch)]
    for b, t in SHAPES:
        named.append((f"outside {b} x {t}", partial(measure_outside, b, t)))
        for variant in variants(b, t):
            named.append((f"{b} x {t} {variant.name}", partial(measure_variant, variant, b, t)))
    for b in BLOCK_BATCHES:
        for t in BLOCK_TOKENS:
            named.append((f"blocks {b} x {t}", partial(measure_blocks, b, t)))
    if options.profile:
        for b, t in PROFILED:
            named.append((f"profile {b} x {t}", partial(profile_shape, b, t)))
    named.append(("leaves", measure_leaves))
    return [(name, run) for name, run in named if options.only in name]


def run_jobs(options: argparse.Namespace) -> None:
    """In the process that measures: all jobs from a number on; the number of the current one is in a file."""
    for number, (name, run) in enumerate(jobs(options)):
        if number < options.first:
            continue
        Path(options.progress).write_text(str(number))
        try:
            run()
        except Exception:  # each job may fail
            last_line = traceback.format_exc().strip().splitlines()[-12:]
            print(f"FAILED {name}:", *last_line, sep="\n    ", flush=True)
        torch.cuda.synchronize()  # raises if the GPU does not answer any more


def measure(options: argparse.Namespace) -> None:
    """Run all jobs, each in the process of the one before unless that broke."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        progress = Path(folder) / "job"
        command = [sys.executable, "-m", "benchmarks.solver_ways", "--progress", str(progress), "--only", options.only]
        if options.profile:
            command.append("--profile")
        names = [name for name, _ in jobs(options)]
        first = 0
        while first < len(names):
            progress.write_text(str(first))
            process = subprocess.Popen([*command, "--first", str(first)])
            broken = wait_for(process, progress)
            current = int(progress.read_text())
            if not broken and process.returncode == 0:
                break
            print(f"BROKEN {names[current]}: a new process goes on after it", flush=True)
            first = current + 1
    print(f"{time.perf_counter() - started:.0f} s in all")


def wait_for(process: subprocess.Popen[bytes], progress: Path) -> bool:
    """Wait for the end of a process; True if it had to be ended, since a job took too long."""
    job = progress.read_text()
    changed = time.monotonic()
    while process.poll() is None:
        time.sleep(0.2)
        now = progress.read_text()
        if now != job:
            job = now
            changed = time.monotonic()
        if time.monotonic() - changed > SECONDS_OF_A_JOB:
            process.kill()
            process.wait()
            return True
    return False


def main() -> None:
    """Run the jobs of the process that measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--progress", required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--profile", action="store_true")
    run_jobs(parser.parse_args())


if __name__ == "__main__":
    main()
