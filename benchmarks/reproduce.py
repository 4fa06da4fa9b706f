"""The paper's comparison, from base encoder to report: train, explain, mask, compare.

    python -m benchmarks.reproduce --base DIR --data DIR --out DIR

For each data set an encoder is fine-tuned on `<set>-train.parquet` (see train_classifier.py), the paper's sample is
drawn from `<set>-test.parquet`, all methods explain it, and their highest- and lowest-scored tokens are replaced by
[PAD], by [MASK], and deleted. The report compares the data sets. Killed at any moment it goes on when called again: no
text is explained or masked twice; costs and report are made anew. So it may be given `--seconds`, after which it stops
and says that it is not done. `--jobs` data sets run at the same time, each in a process of its own. `--split` gives
each of the slow methods of a data set a process of its own, too, which keeps a GPU and many cores busy. `--costs` are
measured afterwards, one at a time. With `--beside`, an earlier call's OUT, its models are used and its methods not
computed again; the report has all of them, costs only the new ones.

    OUT/models/<set>/      the classifier, training.json, heldout.parquet
    OUT/bench/<set>/       attributions and evaluations, as `gaflow bench` writes them; with `--split`, evaluations only
    OUT/flows/<set>.csv    how many flows converged; see benchmarks.flows
    OUT/parts/<part>/      with `--split`: the same as OUT/bench, of some methods
    OUT/costs.csv          seconds, peak memory and passes of each method, alone, a text at a time
    OUT/report/            tables, curves, one page
    OUT/significance.csv   flow methods against every other method: intervals and tests, see Evaluation.significance
    OUT/joined/<set>/      evaluations of both calls, with `--beside`
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow
import torch
from filelock import FileLock
from pyarrow import parquet

from benchmarks.flows import COLUMNS as FLOW_COLUMNS
from benchmarks.flows import flows
from benchmarks.flows import write as write_csv
from benchmarks.passes import counting
from benchmarks.train_classifier import Training, read, train
from gaflow import Explainer
from gaflow.benchmark import DataSetOutcome, bench, report
from gaflow.benchmark.folder_layout import ATTRIBUTIONS, EXAMPLE, SETTINGS, slug
from gaflow.data import open_data
from gaflow.evaluation import Evaluation
from gaflow.evaluation.files import DESCRIPTION
from gaflow.methods import METHODS

SAY = 20.0  # seconds between words about progress
UNFINISHED = 3  # the exit status when the seconds are over
OURS = ("af", "gf", "agf", "relevance_flow", "peeled_flow")  # tested against all others
LEFT_OUT = ("attention_flow",)  # a maximum flow of its own for each token: hours for a data set
METHODS_OF_THE_RUN = tuple(name for name in METHODS if name not in (*LEFT_OUT, "random"))  # the control is always added
SLOW = (("lime",), ("kernel_shap",), ("alti",), ("value_zeroing",), ("ig", "occlusion"))  # each as slow as the others
REPLACEMENTS = ("pad", "mask", "delete")


@dataclass(frozen=True)
class Set:
    """A data set of the paper."""

    title: str
    labels: tuple[str, ...]
    sample: int | None  # texts, unless told; None: all


SETS = {
    "sst2": Set("SST-2", ("negative", "positive"), None),
    "imdb": Set("IMDB", ("negative", "positive"), 1000),
    "yelp_polarity": Set("Yelp", ("negative", "positive"), 1000),
    "amazon_polarity": Set("Amazon", ("negative", "positive"), 1000),
    "ag_news": Set("AG News", ("World", "Sports", "Business", "Sci/Tech"), 1000),
}


@dataclass(frozen=True)
class Work:
    """Where things are and what is asked for."""

    base: str
    data: Path
    out: Path
    replacements: tuple[str, ...]
    sample: int | None
    device: str
    seed: int
    methods: tuple[str, ...] = METHODS_OF_THE_RUN
    folder: str = "bench"
    earlier: Path | None = None  # OUT of another call
    until: float | None = None  # the time, in seconds of the epoch, at which to stop
    batch_size: int = 16  # texts that are explained together
    split: bool = False  # slow methods have processes of their own

    def file(self, name: str, part: str) -> str:
        """The file of a data set's train or test texts."""
        return str(self.data / f"{name}-{part}.parquet")

    def model(self, name: str) -> Path:
        """The folder of its classifier, an earlier call's if there is one."""
        return (self.earlier or self.out) / "models" / name

    def is_over(self) -> bool:
        """Whether it is time to stop."""
        return self.until is not None and time.time() > self.until

    @property
    def bench(self) -> Path:
        """The folder of evaluations."""
        return self.out / self.folder

    def parts(self) -> list[Work]:
        """The works of the processes of a data set, each with some of the methods; the fast ones first."""
        if not self.split:
            return [self]
        slow = {method for group in SLOW for method in group}
        groups = [[method for method in self.methods if method not in slow]]
        for group in SLOW:
            groups.append([method for method in group if method in self.methods])
        parts = []
        for number, methods in enumerate(group for group in groups if group):
            parts.append(replace(self, methods=tuple(methods), folder=f"parts/{number}"))
        return parts


def explainer(work: Work, name: str) -> Explainer:
    """The trained classifier of a data set."""
    return Explainer(work.model(name), device=work.device, dtype=torch.float32)


def train_classifier(work: Work, name: str) -> None:
    """Train the classifier of a data set, unless that was done before; other processes of the data set wait for it."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # as training sets it, whichever process goes on
    folder = work.model(name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if (folder / "training.json").exists():
            return
        files = (work.file(name, "train"), work.file(name, "test"))
        record = train(work.base, files, SETS[name].labels, folder, Training(seed=work.seed), work.device)
        print(f"{name}: trained in {record['seconds']:.0f} s, accuracy {record['accuracy']}", flush=True)


def compare(work: Work, name: str) -> DataSetOutcome:
    """Train on one data set if need be, explain and mask its test texts."""
    train_classifier(work, name)
    data = open_data(work.file(name, "test"), label_column="label")
    (outcome,) = bench(
        explainer(work, name),
        {SETS[name].title: data},
        work.bench,
        methods=work.methods,
        replacements=work.replacements,
        sample=SETS[name].sample if work.sample is None else work.sample,
        seed=work.seed,
        batch_size=work.batch_size,
        truncation=True,
        shard_size=100,
        progress=_words(name),
        stop=work.is_over,
    )
    print(f"{name}: {outcome.texts} texts, skipped {dict(outcome.skipped)}", flush=True)
    return outcome


def _words(name: str) -> Any:
    """Progress as a line now and then, for a log."""
    started = reported = time.perf_counter()

    def say(done: float, total: int) -> None:
        nonlocal reported
        now = time.perf_counter()
        if now - reported > SAY and done:
            reported = now
            print(f"{name}: {done:.0f} of {total}, {(now - started) * (total / done - 1):.0f} s to go", flush=True)

    return say


def costs(work: Work, name: str, texts: int = 8) -> list[dict[str, Any]]:
    """Median seconds, peak memory and passes of each method on some texts, one by one."""
    ex = explainer(work, name)
    all_texts = read(work.file(name, "test"))[0]
    sample_texts = all_texts[:: max(1, len(all_texts) // texts)][:texts]
    rows = []
    for method in work.methods:
        seconds, peaks, forward, backward = [], [], 0, 0
        for k, text in enumerate([sample_texts[0], *sample_texts]):  # the first one warms up
            peak = _start(work.device)
            with counting(ex.model) as passes:
                started = time.perf_counter()
                ex(text, method, truncation=True, keep_flow=False)
                _wait(work.device)
            if k:
                seconds.append(time.perf_counter() - started)
                peaks.append(peak())
                forward, backward = forward + passes.forward, backward + passes.backward
        rows.append(
            {
                "data_set": SETS[name].title,
                "method": method,
                "texts": len(sample_texts),
                "seconds": round(statistics.median(seconds), 5),
                "peak_mib": round(max(peaks)) if max(peaks) else "",
                "forward": forward / len(sample_texts),
                "backward": backward / len(sample_texts),
            }
        )
    return rows


def significance(work: Work, names: list[str]) -> str:
    """Every comparison of the paper's own methods with the others, as CSV."""
    import pandas as pd

    frames = []
    for name in names:
        for replacement in work.replacements:
            evaluation = Evaluation.load(work.bench / slug(SETS[name].title) / replacement)
            for method in [method for method in OURS if method in work.methods]:
                table = evaluation.significance(method, seed=work.seed)
                table.insert(0, "replacement", replacement)
                table.insert(0, "data_set", SETS[name].title)
                frames.append(table)
    return pd.concat(frames).to_csv(index=False, float_format="%.6g", lineterminator="\n") if frames else ""


def join(folders: list[Path], joined: Path, names: list[str], replacements: tuple[str, ...]) -> tuple[str, ...]:
    """Write evaluations and examples of several folders side by side to another one; returns all their methods."""
    methods: dict[str, None] = {}
    for title in (slug(SETS[name].title) for name in names):
        set_folders = [folder / title for folder in folders]
        for replacement in replacements:
            evaluations = [Evaluation.load(folder / replacement) for folder in set_folders]
            merged = reduce(Evaluation.merge_methods, evaluations)
            merged.save(joined / title / replacement)
            methods.update(dict.fromkeys(merged.methods))
        shutil.copy(set_folders[0] / SETTINGS, joined / title)
        join_examples([folder / EXAMPLE for folder in set_folders], joined / title / EXAMPLE)
    return tuple(methods)


def join_examples(files: list[Path], joined: Path) -> None:
    """Write the attributions of one text side by side, each method once."""
    tables = []
    joined_methods: set[str] = set()
    for file in files:
        table = parquet.read_table(file)
        file_methods = table["method"].to_pylist()
        tables.append(table.filter([method not in joined_methods for method in file_methods]))
        joined_methods.update(file_methods)
    parquet.write_table(pyarrow.concat_tables(tables), joined)


def is_finished(work: Work, name: str) -> bool:
    """Whether all methods are judged on a data set, with every replacement."""
    for part in work.parts():
        folder = part.bench / slug(SETS[name].title)
        if not all((folder / replacement / DESCRIPTION).exists() for replacement in work.replacements):
            return False
    return True


def collect(work: Work, name: str) -> None:
    """Put the parts of a finished data set together, and count its flows while their attributions are there."""
    if work.split:
        join([part.bench for part in work.parts()], work.bench, [name], work.replacements)
    title = SETS[name].title
    rows = []
    for part in work.parts():
        rows.extend([title, *row] for row in flows(part.bench / slug(title) / ATTRIBUTIONS))
    path = work.out / "flows" / f"{slug(title)}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_csv(path, FLOW_COLUMNS, rows)


def _start(device: str) -> Any:
    """Begin to watch the memory of a GPU; what is given says how many MiB came on top, 0 elsewhere."""
    if not device.startswith("cuda"):
        return lambda: 0.0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    return lambda: (torch.cuda.max_memory_allocated() - before) / 2**20


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def all_of(names: list[str], jobs: int, command: list[str]) -> bool:
    """Run this script for each name in a process of its own, `jobs` at a time; whether all of them are done.

    A name is a data set, or a part of the work on one.
    """
    waiting = list(names)
    running: dict[str, subprocess.Popen[bytes]] = {}
    finished = True
    while waiting or running:
        while waiting and len(running) < jobs:
            name = waiting.pop(0)
            running[name] = subprocess.Popen([*command, "--only", name])
        time.sleep(0.5)
        for name in [n for n, p in running.items() if p.poll() is not None]:
            status = running.pop(name).returncode
            if status == UNFINISHED:
                finished = False
            elif status:
                for other in running.values():
                    other.terminate()
                sys.exit(f"{name} failed; see above")
    return finished


def process_names(work: Work, names: list[str]) -> list[str]:
    """What the processes of a call are called: after their data set, and with `--split` also their part of the work."""
    if not work.split:
        return names
    # data set after data set, so that the first processes train different classifiers
    return [f"{name}/{number}" for number in range(len(work.parts())) for name in names]


def run_process(work: Work, process_name: str) -> bool:
    """Do the work of one process; whether it is finished."""
    name, _, part = process_name.partition("/")
    part_work = work.parts()[int(part)] if part else work
    return compare(part_work, name).finished


def main(arguments: list[str] | None = None) -> None:
    """Everything, or what is left of it."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="folder of the base encoder")
    parser.add_argument("--data", type=Path, required=True, help="folder of <set>-train.parquet and <set>-test.parquet")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", default=",".join(SETS), help="data sets, by comma")
    parser.add_argument(
        "--replacement", action="append", help="pad, mask or delete; may be repeated; default: all three"
    )
    parser.add_argument("--sample", type=int, help="texts of each data set; default: all of SST-2, 1,000 of the others")
    parser.add_argument(
        "--methods", default=",".join(METHODS_OF_THE_RUN), help="methods, by comma; default: all but attention_flow"
    )
    parser.add_argument("--batch-size", type=int, default=16, help="texts that are explained together")
    parser.add_argument("--jobs", type=int, default=1, help="processes at the same time")
    parser.add_argument("--split", action="store_true", help="run slow methods in processes of their own")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beside", type=Path, help="OUT of an earlier call with other methods: report those too")
    parser.add_argument("--seconds", type=float, help="stop after about so many; the same call then goes on")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--costs", help="measure costs on these data sets, by comma, when all is done")
    options = parser.parse_args(arguments)
    names = options.sets.split(",")
    unknown = [name for name in names if name not in SETS]
    if unknown:
        parser.error(f"no data set {', '.join(unknown)}; there are {', '.join(SETS)}")
    cost_names = options.costs.split(",") if options.costs else []
    not_run = [name for name in cost_names if name not in names]
    if not_run:
        parser.error(f"costs of {', '.join(not_run)}, which is not among the data sets {', '.join(names)}")
    replacements = tuple(options.replacement or REPLACEMENTS)
    work = Work(
        base=options.base,
        data=options.data,
        out=options.out,
        replacements=replacements,
        sample=options.sample,
        device=options.device,
        seed=options.seed,
        methods=tuple(options.methods.split(",")),
        batch_size=options.batch_size,
        split=options.split,
    )
    if options.beside:
        evaluations = [
            Evaluation.load(options.beside / "bench" / slug(SETS[name].title) / replacements[0]) for name in names
        ]
        new = tuple(
            method for method in work.methods if not all(method in evaluation.methods for evaluation in evaluations)
        )
        work = replace(work, earlier=options.beside, methods=new)
    until = options.until or (time.time() + options.seconds if options.seconds else None)
    work = replace(work, until=until)
    if options.only:
        if not run_process(work, options.only):
            sys.exit(UNFINISHED)
        return
    command = [sys.executable, "-m", "benchmarks.reproduce", *arguments]
    if until is not None:
        command += ["--until", str(until)]
    finished = all_of(process_names(work, names), options.jobs, command)
    for name in names:
        if is_finished(work, name):
            collect(work, name)
    if not finished:
        print("not done; run the same command again")
        sys.exit(UNFINISHED)
    if cost_names:
        rows = [row for name in cost_names for row in costs(work, name)]
        with (options.out / "costs.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    if options.beside:
        joined = options.out / "joined"
        methods = join([options.beside / "bench", work.bench], joined, names, replacements)
        work = replace(work, folder=joined.name, methods=methods)
    (options.out / "significance.csv").write_text(significance(work, names))
    for path in report(work.bench, options.out / "report", datasets=[SETS[name].title for name in names]):
        print(path)


if __name__ == "__main__":
    main()
