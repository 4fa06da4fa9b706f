"""Mutation testing: small changes to the code that numbers come from, each of which should make a test fail.

`python -m benchmarks.mutants --sample 40` changes each of `MODULES` in 40 ways, one at a time, and runs its tests. It
prints how many mutants the tests killed, and every survivor as a diff. A survivor is either a missing test, or a change
that makes no difference: list those with the reason in mutants_explained.json.

A mutant lives in a temporary copy of the package (links but for the one file), so the working tree is never touched.
One process imports torch and other large libraries once and forks a child for each mutant. (mutmut needs compiled
libraries, cosmic-ray imports torch anew for every mutant.) A run continues from its file of results.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import zip_longest
from pathlib import Path

import pytest
import torch

from benchmarks.mutations import Mutant, mutants_of

ROOT = Path(__file__).parent.parent
EXPLAINED = Path(__file__).with_name("mutants_explained.json")
MARKS = "not browser and not ray and not gpu"  # of slow files, the fast tests are run
SHARED_LIBRARIES = ("hypothesis", "numpy", "scipy", "sklearn", "tokenizers", "torch", "transformers")
SOLVER_TESTS = ("flow/test_certificate", "flow/test_solve", "hostile/test_networks")
LINEAR_TESTS = ("flow/test_linear", *SOLVER_TESTS)
MAXFLOW_TESTS = ("flow/test_max_flow", "flow/test_min_cut", "flow/test_score_ranges")
EVALUATION_TESTS = (
    "evaluation/test_faithfulness",
    "evaluation/test_masking",
    "evaluation/test_result",
    "evaluation/test_units",
    "evaluation/test_outputs",
    "evaluation/test_several",
)
REMOVAL_TESTS = ("methods/test_token_removal", "methods/test_media_removal", "methods/test_perturbation")

# module -> its tests, the most telling first
MODULES: dict[str, tuple[str, ...]] = {
    "flow/network": ("flow/test_network", *SOLVER_TESTS, "flow/test_max_flow"),
    "flow/information": ("flow/test_information", "methods/test_flow", "methods/test_flow_nodes"),
    "flow/result": ("flow/test_result", "flow/test_potentials", "flow/test_solve", "flow/test_max_flow"),
    "flow/barrier/solve": ("flow/test_potentials", *SOLVER_TESTS),
    "flow/barrier/state": ("flow/test_edges", *SOLVER_TESTS),
    "flow/barrier/edges": ("flow/test_edges", *SOLVER_TESTS),
    "flow/barrier/multifloat": ("flow/test_multifloat", *SOLVER_TESTS),
    "flow/barrier/linear/block_tridiagonal": LINEAR_TESTS,
    "flow/barrier/linear/dispatch": LINEAR_TESTS,
    "flow/barrier/linear/subtraction_free": LINEAR_TESTS,
    "flow/barrier/linear/system": LINEAR_TESTS,
    "flow/threads": ("flow/test_threads", *LINEAR_TESTS),
    "flow/barrier/linear/whole_matrix": LINEAR_TESTS,
    "flow/maxflow/integer_network": ("flow/test_integer_network", "flow/test_paper_algorithms", *MAXFLOW_TESTS),
    "flow/maxflow/max_flow": ("flow/test_max_flow", "flow/test_potentials", "flow/test_paper_algorithms"),
    "flow/maxflow/min_cut": ("flow/test_min_cut",),
    "flow/maxflow/own_solver": ("flow/test_own_solver", *MAXFLOW_TESTS),
    "flow/maxflow/score_ranges": ("flow/test_score_ranges",),
    "flow/maxflow/single_pairs": ("flow/test_single_pairs",),
    "flow/maxflow/shapley": ("flow/test_shapley",),
    "flow/maxflow/circulation": ("flow/test_circulation",),
    "flow/routes": ("flow/test_routes",),
    "flow/paper_algorithms": ("flow/test_paper_algorithms", "flow/test_max_flow", "flow/test_potentials"),
    "flow/editing": ("flow/test_editing",),
    "evaluation/masking": (*EVALUATION_TESTS, "evaluation/test_soft_masking"),
    "evaluation/metrics": ("evaluation/test_metrics", "evaluation/test_result", "evaluation/test_soft_masking"),
    "evaluation/faithfulness": EVALUATION_TESTS,
    "evaluation/significance": ("evaluation/test_significance", "evaluation/test_result"),
    "evaluation/aopc_bounds": ("evaluation/test_aopc_bounds", "evaluation/test_result"),
    "evaluation/soft_masking": ("evaluation/test_soft_masking", "evaluation/test_faithfulness"),
    "methods/removal": REMOVAL_TESTS,
    "methods/token_removal": (*REMOVAL_TESTS, "evaluation/test_masking"),
    "methods/peeling": ("methods/test_relevance_flow",),
    "methods/perturbation": ("methods/test_perturbation", "methods/test_media_removal", "test_arguments"),
}


class Recorder:
    """A plugin of pytest that remembers outcomes and durations."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed: list[str] = []  # tests, or files that cannot be imported
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Called for each collected file."""
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called for setup, call and teardown of each test."""
        self.seconds[report.nodeid] += report.duration
        self.passed += report.when == "call" and report.passed
        if report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)


@dataclass(frozen=True)
class Job:
    """Tests to run on the package with another text of one module."""

    module: str
    source: str
    arguments: Sequence[str]  # of pytest
    limit: float  # seconds

    def fork(self) -> Child:
        """Start it in a process of its own."""
        folder = tempfile.TemporaryDirectory(prefix="mutant")
        overlay = Path(folder.name)
        _link_package(ROOT / "src", overlay, Path("gaflow", f"{self.module}.py").parts, self.source)
        started = time.perf_counter()
        pid = os.fork()
        if not pid:
            _run_tests(overlay, self.arguments)
        return Child(pid, folder, started)


@dataclass(frozen=True)
class Child:
    """The process of a job."""

    pid: int
    folder: tempfile.TemporaryDirectory
    started: float

    def result(self) -> dict | None:
        """What its plugin recorded; None if it died before."""
        path = Path(self.folder.name, "result.json")
        return json.loads(path.read_text()) if path.exists() else None


def _link_package(original: Path, overlay: Path, parts: Sequence[str], source: str) -> None:
    """Fill `overlay` with links to all that is in `original`, but for the file at `parts`."""
    for entry in original.iterdir():
        if entry.name != parts[0] and entry.name != "__pycache__":
            (overlay / entry.name).symlink_to(entry)
    inside = overlay / parts[0]
    if len(parts) == 1:
        inside.write_text(source, encoding="utf-8")
        return
    inside.mkdir()
    _link_package(original / parts[0], inside, parts[1:], source)


def _run_tests(overlay: Path, arguments: Sequence[str]) -> None:
    """Run pytest in a forked child, which ends here."""
    os.setsid()  # for processes of the tests to end with it
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # a mutant that eats the memory goes first
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(silence, descriptor)
    sys.path.insert(0, str(overlay))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(overlay), os.environ.get("PYTHONPATH", "")])
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    recorder = Recorder()
    options = ["-q", "-m", MARKS, "-p", "no:cacheprovider", f"--basetemp={overlay / 'tmp'}"]
    try:
        pytest.main([*options, *arguments], plugins=[recorder])
        modules = [name for name in sys.modules if name.split(".")[0] in SHARED_LIBRARIES]
        record = {**vars(recorder), "modules": modules}
        partial = overlay / "partial.json"
        partial.write_text(json.dumps(record))
        partial.rename(overlay / "result.json")
    finally:
        os._exit(0)


Done = Callable[[str, Child, bool], None]  # key of a job, its process, and whether its time was over


def run_all(jobs: dict[str, Job], workers: int, end: float, done: Done) -> None:
    """Run jobs side by side, starting none after `end`, and hand over each when it is done."""
    waiting = list(reversed(jobs))
    running: dict[str, Child] = {}
    while running or waiting:
        now = time.perf_counter()
        while waiting and len(running) < workers and now < end:
            key = waiting.pop()
            running[key] = jobs[key].fork()
        if not running:
            return
        for key, child in list(running.items()):
            ended = os.waitpid(child.pid, os.WNOHANG)[0] != 0
            late = not ended and now > child.started + jobs[key].limit
            if late:
                os.killpg(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)
            if ended or late:
                del running[key]
                done(key, child, late)
                child.folder.cleanup()
        time.sleep(0.01)


@dataclass
class TestFile:
    """What the tests of a file do on the package as it is."""

    seconds: float = 0.0
    deselected: list[str] = field(default_factory=list)  # tests that fail here, or take too long
    broken: bool = False  # cannot be imported here, or skips all its tests

    __test__ = False


def try_tests(names: Sequence[str], workers: int, longest: float) -> dict[str, TestFile]:
    """Run test files on the package as it is, and import here what they import of large libraries."""
    files: dict[str, TestFile] = {}
    modules: set[str] = set()

    def done(name: str, child: Child, late: bool) -> None:
        record = child.result()
        if record is None or not record["passed"]:
            files[name] = TestFile(broken=True)
            return
        _, *others = record["seconds"].items()  # the first test of a file waits for imports
        slow = [test for test, seconds in others if seconds > longest]
        total = sum(seconds for _, seconds in others if seconds <= longest)
        files[name] = TestFile(total, sorted({*slow, *record["failed"]}))
        modules.update(record["modules"])

    anything = "flow/network"
    source = _source(anything)
    jobs = {name: Job(anything, source, [_path(name)], 300.0) for name in names}
    run_all(jobs, workers, float("inf"), done)
    for module in sorted(modules):
        with suppress(Exception):  # a part of a library that only exists while it is imported, for example
            importlib.import_module(module)
    gc.freeze()  # children need not look for garbage in what was imported before them
    return files


def _path(test: str) -> str:
    return f"tests/{test}.py"


def _source(module: str) -> str:
    return (ROOT / "src" / "gaflow" / f"{module}.py").read_text(encoding="utf-8")


def arguments_for(module: str, files: Mapping[str, TestFile]) -> tuple[list[str], float]:
    """The arguments of pytest for mutants of a module, and the seconds that they may take."""
    arguments = ["-x"]
    seconds = 0.0
    for name in MODULES[module]:
        if not files[name].broken:
            arguments.append(_path(name))
            arguments += [f"--deselect={test}" for test in files[name].deselected]
            seconds += files[name].seconds
    return arguments, 20 + 3 * seconds


def select(modules: Sequence[str], sample: int | None, seed: int) -> list[Mutant]:
    """Mutants that are not explained, of each module in turn."""
    columns = []
    for module in modules:
        mutants = [mutant for mutant in mutants_of(module, _source(module)) if not explanation(mutant)]
        if sample is not None and sample < len(mutants):
            mutants = random.Random(f"{seed} {module}").sample(mutants, sample)
        columns.append(mutants)
    rows = zip_longest(*columns)
    return [mutant for row in rows for mutant in row if mutant is not None]


@cache
def _explanations() -> dict[str, list[dict[str, str]]]:
    """Of each module: the first line that changes, as it is and (if only one change is meant) changed, and a reason."""
    return json.loads(EXPLAINED.read_text(encoding="utf-8"))


def explanation(mutant: Mutant) -> str | None:
    """Why a mutant makes no difference; None if nobody has said so."""
    for entry in _explanations().get(mutant.module, []):
        if entry["line"] == mutant.before and entry.get("mutant", mutant.after) == mutant.after:
            return entry["reason"]
    return None


def read_outcomes(path: Path) -> dict[str, Mutant]:
    """Earlier results by diff."""
    if not path.exists():
        return {}
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {record["diff"]: Mutant(**record) for record in records}


def report(mutants: Sequence[Mutant]) -> str:
    """A table of the modules, and the survivors as diffs."""
    columns = ("killed", "crashed", "timeout", "survived")
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    survivors = []
    for mutant in sorted(mutants, key=lambda mutant: (mutant.module, mutant.line)):
        if explanation(mutant):
            continue
        counts[mutant.module][mutant.status] += 1
        counts["all"][mutant.status] += 1
        if mutant.status == "survived":
            survivors.append(mutant.diff)
    lines = [f"| module | mutants | {' | '.join(columns)} |", "|---|" + "---:|" * 5]
    for module in sorted(counts, key=lambda module: (module == "all", module)):
        count = counts[module]
        cells = [module, count.total(), *[count[column] for column in columns]]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, "", *survivors])


def main() -> None:
    """Run the mutants and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", nargs="+", choices=MODULES, default=list(MODULES), metavar="MODULE")
    parser.add_argument("--sample", type=int, help="mutants of each module; all of them if left out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no mutant after this time")
    parser.add_argument("--longest", type=float, default=1.5, help="leave out tests that take more seconds")
    parser.add_argument("--results", type=Path, default=Path("build/mutants.jsonl"))
    parser.add_argument("--report", action="store_true", help="print the results of earlier runs only")
    options = parser.parse_args()
    outcomes = read_outcomes(options.results)
    if not options.report:
        end = time.perf_counter() + 60 * options.minutes
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        torch.set_num_threads(1)
        os.chdir(ROOT)
        options.results.parent.mkdir(parents=True, exist_ok=True)
        names = sorted({name for module in options.modules for name in MODULES[module]})
        files = try_tests(names, options.workers, options.longest)
        for name, file in files.items():
            print(f"{name}: {file.seconds:.1f} s; left out: {'all' if file.broken else file.deselected}", flush=True)
        modules = [module for module in options.modules if not all(files[name].broken for name in MODULES[module])]
        mutants = {mutant.diff: mutant for mutant in select(modules, options.sample, options.seed)}
        jobs = {}
        for diff, mutant in mutants.items():
            if diff not in outcomes:
                arguments, limit = arguments_for(mutant.module, files)
                jobs[diff] = Job(mutant.module, mutant.source, arguments, limit)
        with options.results.open("a", encoding="utf-8") as stream:

            def done(diff: str, child: Child, late: bool) -> None:
                outcomes[diff] = judge(mutants[diff], child, late)
                stream.write(json.dumps(asdict(outcomes[diff])) + "\n")
                stream.flush()

            run_all(jobs, options.workers, end, done)
    print(report(list(outcomes.values())))


def judge(mutant: Mutant, child: Child, late: bool) -> Mutant:
    """A mutant whose tests have ended, with what they said; its source is no longer needed."""
    record = child.result()
    test = ""
    if late:
        status = "timeout"
    elif record is None:
        status = "crashed"
    elif record["failed"]:
        status = "killed"
        test = record["failed"][0]
    else:
        status = "survived"
    seconds = round(time.perf_counter() - child.started, 2)
    return replace(mutant, source="", status=status, seconds=seconds, test=test)


if __name__ == "__main__":
    main()
