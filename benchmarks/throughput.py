"""How many texts a second a data-set run explains: the whole of `gaflow.jobs.attribute`, from the texts to the shards.

    python -m benchmarks.throughput --beside 9f438301da --rounds 3 --threads 1 2
    python -m benchmarks.throughput --texts 5000 --lengths 512 --mixed --batch-size 64 --output throughput_gpu.md
    python -m benchmarks.throughput --workers 1 2 --lengths 16 128 --texts 600 100 --output throughput_workers.md
    python -m benchmarks.throughput --ray 1 2 --lengths 128 --texts 400 --output throughput_ray.md

The classifier has MiniLM-L6's geometry (6 layers, 12 heads, width 384), random weights and the embedded model's
tokenizer. *Mixed* texts have lengths spread evenly from 16 tokens to the longest, in random order; the others have one
length. Every run has a process of its own, in which a run of one short text comes first: what is only slow once does
not count. CPU seconds are those of the process: they say what a core can do even where others share it.

`--beside` measures an earlier commit in turns with this one; where there is no git, it is a folder with that commit's
`src`. The second table says where the time goes: to *tokenise*, to the *forward* and *backward* pass, to the methods
(*solve*), to make rows and files (*write*), and to all else. On a GPU, *busy* is the share of the time in which it
computes: the time of its kernels, by torch's profiler, over that of the same texts without the profiler.

`--workers` runs texts in so many worker processes, one thread each, and `--ray` on so many local workers of Ray. All
numbers of workers are measured in turns. The rate is that of the texts after the first tenth, so that starting the
workers does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import gaflow
from benchmarks.before_after import CHECKOUT, ROOT, check_out
from benchmarks.report import provenance, write
from gaflow.jobs import attribute

SHORTEST = 16  # tokens of a mixed text
STEPS = ("tokenise", "forward", "backward", "solve", "write")
NOW = "now"
PROFILED_BATCHES = 10

Measured = dict[str, Any]  # what a child process prints


def main() -> None:
    """Measure every length and method, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, nargs="+", default=[64], help="one number, or one for each length")
    parser.add_argument("--lengths", type=int, nargs="+", default=[16, 128, 512], help="tokens of a text")
    parser.add_argument("--mixed", action="store_true", help="lengths are those of the longest texts")
    parser.add_argument("--methods", nargs="+", choices=list(gaflow.METHODS), default=["agf"])
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--rounds", type=int, default=1, help="runs of each case, of which the median counts")
    parser.add_argument("--beside", help="an earlier commit, or a folder that holds its src")
    parser.add_argument("--workers", type=int, nargs="+", help="numbers of worker processes")
    parser.add_argument("--ray", type=int, nargs="+", help="numbers of local Ray workers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", default="throughput.md", help="name of the file in results/")
    parser.add_argument("--part", help=argparse.SUPPRESS)  # one run, in a process of its own
    options = parser.parse_args()
    if len(options.texts) == 1:
        options.texts *= len(options.lengths)
    if len(options.texts) != len(options.lengths):
        parser.error("--texts takes one number, or one for each of --lengths")
    if options.workers and options.ray:
        parser.error("give --workers or --ray")
    if options.part is not None:
        print(json.dumps(_measure(json.loads(options.part))))
        return
    settings = {"batch size": options.batch_size, "rounds": options.rounds, "seed": options.seed}
    if options.beside:
        settings["beside"] = Path(options.beside).name
    lines = [
        "# Throughput of data-set runs",
        "",
        "MiniLM-L6's geometry, random weights; see benchmarks/throughput.py for what is measured.",
        "",
        provenance(**settings),
    ]
    lines += _workers_table(options) if options.workers or options.ray else _tables(options)
    print("\n".join(lines))
    print("written to", write(options.output, "\n".join(lines) + "\n").name)


def _tables(options: argparse.Namespace) -> list[str]:
    """How many texts a second, and where the time goes."""
    sources = {NOW: ROOT / "src"}
    if options.beside:
        sources = {options.beside: _source(options.beside), NOW: ROOT / "src"}
    rates = [
        "| method | tokens | threads | commit | texts | seconds | texts/s | CPU seconds a text | errors |",
        "|---|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    shares = [
        "Where the time of this commit goes, in per cent:",
        "",
        f"| method | tokens | threads | {' | '.join(STEPS)} | all else | GPU busy |",
        f"|---|---:|---:|{'---:|' * (len(STEPS) + 2)}",
    ]
    for method in options.methods:
        for length, texts in zip(options.lengths, options.texts, strict=True):
            for threads in options.threads:
                case = _case(options, method, length, texts, threads)
                runs = _run_in_turns(sources, case, options.rounds)
                tokens = f"{SHORTEST} to {length}" if options.mixed else str(length)
                for commit in sources:
                    rates.append(_rate_line(method, tokens, threads, Path(commit).name, runs[commit], texts))
                    print(rates[-1], flush=True)
                shares.append(_share_line(method, tokens, threads, runs[NOW]))
    return [*rates, "", *shares]


def _case(options: argparse.Namespace, method: str, length: int, texts: int, threads: int) -> Measured:
    return {
        "method": method,
        "texts": texts,
        "length": length,
        "mixed": options.mixed,
        "batch_size": options.batch_size,
        "threads": threads,
        "seed": options.seed,
        "device": options.device,
    }


def _source(commit: str) -> Path:
    """The package of an earlier commit."""
    folder = Path(commit)
    if (folder / "src").is_dir():
        return (folder / "src").resolve()
    check_out(commit)
    return CHECKOUT / "src"


def _run_in_turns(sources: dict[str, Path], case: Measured, rounds: int) -> dict[str, list[Measured]]:
    """The runs of each commit, whose order changes from round to round."""
    runs: dict[str, list[Measured]] = {commit: [] for commit in sources}
    names = list(sources)
    for number in range(rounds):
        for commit in names if number % 2 == 0 else reversed(names):
            runs[commit].append(_run_child(sources[commit], case))
    return runs


def _run_child(source: Path, case: Measured) -> Measured:
    paths = os.pathsep.join([str(source), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": str(case["threads"])}
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.throughput", "--part", json.dumps(case)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def _median(runs: list[Measured], name: str) -> float:
    return statistics.median(run[name] for run in runs)


def _rate_line(method: str, tokens: str, threads: int, commit: str, runs: list[Measured], texts: int) -> str:
    seconds = _median(runs, "seconds")
    cells = [method, tokens, str(threads), commit, f"{texts:,}", f"{seconds:.1f}", f"{texts / seconds:.3g}"]
    cells += [f"{_median(runs, 'cpu') / texts:.3g}", str(sum(run["errors"] for run in runs))]
    return f"| {' | '.join(cells)} |"


def _share_line(method: str, tokens: str, threads: int, runs: list[Measured]) -> str:
    cells = []
    left = 100.0
    for step in STEPS:
        share = 100 * statistics.median(run[step] / run["seconds"] for run in runs)
        cells.append(f"{share:.1f}")
        left -= share
    busy = "" if runs[0]["busy"] is None else f"{100 * _median(runs, 'busy'):.0f}"
    return f"| {' | '.join([method, tokens, str(threads), *cells, f'{left:.1f}', busy])} |"


def _measure(case: Measured) -> Measured:
    """One run of this process's package."""
    torch.set_num_threads(case["threads"])
    torch.manual_seed(case["seed"])
    explainer = _explainer(case["device"])
    with tempfile.TemporaryDirectory() as folder:
        attribute(explainer, ["a dog"], Path(folder, "first"), [case["method"]])
    texts = _texts(case["texts"], case["length"], case["mixed"], case["seed"])
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        started = time.perf_counter()
        cpu_started = time.process_time()
        outcome = attribute(explainer, texts, out, [case["method"]], batch_size=case["batch_size"])
        cpu = time.process_time() - cpu_started
        seconds = time.perf_counter() - started
        steps = _steps(out)
    busy = _gpu_busy(explainer, texts, case) if case["device"].startswith("cuda") else None
    return {"seconds": seconds, "cpu": cpu, "errors": outcome.errors, "busy": busy, **steps}


def _steps(folder: Path) -> dict[str, float]:
    """Seconds of each step; 0 where an earlier commit did not measure it."""
    seconds: dict[str, float] = dict.fromkeys(STEPS, 0.0)
    for line in (folder / "timings.jsonl").read_text().splitlines():
        timing = json.loads(line)
        seconds["solve"] += sum(timing["methods"].values())
        for step in STEPS:
            seconds[step] += timing.get(step, 0.0)
    return seconds


def _gpu_busy(explainer: gaflow.Explainer, texts: list[str], case: Measured) -> float:
    """The share of the time of some batches in which the GPU computes."""
    from torch.profiler import ProfilerActivity, profile

    some = random.Random(case["seed"]).sample(texts, min(len(texts), PROFILED_BATCHES * case["batch_size"]))
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        attribute(explainer, some, Path(folder, "plain"), [case["method"]], batch_size=case["batch_size"])
        seconds = time.perf_counter() - started
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            attribute(explainer, some, Path(folder, "profiled"), [case["method"]], batch_size=case["batch_size"])
            torch.cuda.synchronize()
        trace = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    ranges = []
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            ranges.append((float(event["ts"]), float(event["ts"]) + float(event["dur"])))
    return covered(ranges) / 1e6 / seconds


def covered(ranges: list[tuple[float, float]]) -> float:
    """The length of the union of ranges, which may overlap."""
    total = 0.0
    end = float("-inf")
    for start, stop in sorted(ranges):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total


def _workers_table(options: argparse.Namespace) -> list[str]:
    """The rate of each number of workers, and how often it is that of the first number."""
    lines = ["| method | tokens | workers | texts | texts/s | over the first |", "|---|---:|---:|---:|---:|---:|"]
    numbers: list[int] = options.workers or options.ray
    for method in options.methods:
        for length, texts in zip(options.lengths, options.texts, strict=True):
            rates: dict[int, list[float]] = {workers: [] for workers in numbers}
            for number in range(options.rounds):
                for workers in numbers if number % 2 == 0 else reversed(numbers):
                    rates[workers].append(_rate_of_workers(options, method, length, texts, workers))
            first = statistics.median(rates[numbers[0]])
            for workers in numbers:
                rate = statistics.median(rates[workers])
                cells = [method, str(length), str(workers), f"{texts:,}", f"{rate:.3g}", f"{rate / first:.2f}"]
                lines.append(f"| {' | '.join(cells)} |")
                print(lines[-1], flush=True)
    return lines


def _rate_of_workers(options: argparse.Namespace, method: str, length: int, count: int, workers: int) -> float:
    """Texts a second of so many workers, after the first tenth of the texts."""
    from gaflow.jobs import Local, Ray

    if options.ray:
        device = "cpu"  # Ray's workers have the others
        engine = Ray(workers=workers, threads=1, device=options.device)
        shard_size = max(1, count // 50)
    else:
        device = options.device
        engine = Local(workers=workers, threads=1)
        shard_size = count
    torch.manual_seed(options.seed)
    texts = _texts(count, length, options.mixed, options.seed)
    times: list[tuple[float, float]] = []  # texts done, and when

    def note(done: float, total: float) -> None:
        times.append((done, time.perf_counter()))

    with tempfile.TemporaryDirectory() as folder:
        attribute(
            _explainer(device),
            texts,
            Path(folder, "out"),
            [method],
            batch_size=options.batch_size,
            shard_size=shard_size,
            engine=engine,
            progress=note,
        )
    first_done, started = next((done, when) for done, when in times if done >= count / 10)
    last_done, ended = times[-1]
    return (last_done - first_done) / (ended - started)


def _explainer(device: str) -> gaflow.Explainer:
    from transformers import BertConfig, BertForSequenceClassification

    tokenizer = gaflow.Explainer(device="cpu").tokenizer
    sizes: Any = {
        "num_hidden_layers": 6, "num_attention_heads": 12, "hidden_size": 384, "intermediate_size": 1536,
        "vocab_size": len(tokenizer),
    }  # fmt: skip
    model: Any = BertForSequenceClassification(BertConfig(**sizes)).eval()
    return gaflow.Explainer(model.to(device), tokenizer)


def _texts(count: int, length: int, mixed: bool, seed: int) -> list[str]:
    """Texts of common words, each of one token."""
    generator = random.Random(seed)
    words = ["the", "plot", "is", "thin", "but", "this", "film", "a", "good", "one", "and", "never", "long", "not"]
    span = max(1, count - 1)
    lengths = [SHORTEST + (length - SHORTEST) * k // span if mixed else length for k in range(count)]
    generator.shuffle(lengths)
    return [" ".join(generator.choice(words) for _ in range(n - 2)) for n in lengths]


if __name__ == "__main__":
    main()
