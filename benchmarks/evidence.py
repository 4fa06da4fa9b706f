"""All evidence that docs/evidence.md names, in one run: classifiers are trained once, tables are made side by side.

    python -m benchmarks.evidence --base DIR --data DIR --out OUT --jobs 12 --seconds 540

DIR of `--base` is the encoder; DIR of `--data` has Parquet files of SST-2, IMDB, HateXplain, movie reviews and XQuAD,
whose names `--list` shows with the commands. Each step is one of the other scripts, in a process of its own, and begins
when the classifiers that it needs are there. The tables of `--only` are made, or all of them:

    rationales, f_fidelity, planted_pair, planted_context, stability, answers, aopc_cost, normalized_aopc

Scripts whose work several processes share have steps that compute, and one that writes the table from what is there.
When all but `--reserve` of the `--seconds` are over, steps that still compute are ended, and tables are written of what
is done; scripts that can are told the time themselves, and name in their result what they left out.

    OUT/models/<name>/     classifiers; what is trained is not trained again
    OUT/kept/              scores that are not computed again
    OUT/logs/<step>.log    what the steps print
    OUT/summary.md         seconds and status of every step
    OUT/evidence.zip       results, logs and records of training: all but weights and scores

Results are written to benchmarks/results, or to `--results`. `--tiny` runs everything on a few texts, to see that it
works; its numbers mean nothing, and are written to OUT/results.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import RESULTS, provenance
from benchmarks.reproduce import METHODS_OF_THE_RUN

REPOSITORY = Path(__file__).parents[1]
PATIENCE = 10.0  # seconds that a step may take to end when it is asked to
LARGEST_RECORD = 4 << 20  # bytes of a file in the archive
SLOW_ON_LONG_TEXTS = (("kernel_shap", "occlusion"), ("lime", "value_zeroing"), ("ig", "alti"))  # by process
SLOW_ON_SHORT_TEXTS = ("kernel_shap", "lime")
CURVES = (("LIME",), ("KernelSHAP, paired",), ("integrated gradients", "attgrads"), ("peeled_flow", "attnlrp", "agf"))


@dataclass(frozen=True)
class Sizes:
    """How much of everything is done."""

    epochs: int = 3  # of classifiers
    answer_epochs: int = 10
    train_texts: int | None = None  # of each classifier; None: all
    f_fidelity: int = 300  # texts
    draws: int = 10
    aopc_cost: int = 200
    planted: int = 500
    rationales: int = 100_000
    normalized_aopc: int = 300
    exact: int = 12  # tokens of a text whose best order is found exactly
    beam: int = 10
    stability: int = 150
    answers: int = 200
    methods: tuple[str, ...] = ()  # of every script; none: its own
    curves: tuple[tuple[str, ...], ...] = CURVES  # of AOPC against cost, by process


TINY = Sizes(
    epochs=1,
    answer_epochs=1,
    train_texts=100,
    f_fidelity=3,
    draws=2,
    aopc_cost=1,
    planted=6,
    rationales=6,
    normalized_aopc=2,
    exact=5,
    beam=2,
    stability=2,
    answers=2,
    methods=("agf", "attnlrp", "rollout"),
    curves=(("attnlrp",), ("agf",)),
)


@dataclass(frozen=True)
class Step:
    """A script with its arguments, and what must be there before it."""

    name: str
    script: str  # a module
    arguments: tuple[str, ...]
    needs: tuple[str, ...] = ()  # other steps
    results: tuple[str, ...] = ()  # names of the files that it writes
    made: Path | None = None  # where it is there, the step was done before
    collects: bool = False  # runs with what is there, also if a step that it needs was ended
    takes_seconds: bool = False  # has an option `--seconds`

    def command(self, seconds: float | None) -> list[str]:
        """What is run, with `seconds` left for new work."""
        command = [sys.executable, "-m", self.script, *self.arguments]
        if self.takes_seconds and seconds is not None:
            command += ["--seconds", f"{max(0.0, seconds):.0f}"]
        return command


@dataclass
class Outcome:
    """What became of a step."""

    status: str  # done, was there, failed (CODE), ended, left out
    seconds: float = 0.0
    results: list[Path] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        """Whether steps that need it may begin."""
        return self.status in ("done", "was there")


@dataclass(frozen=True)
class Places:
    """Folders that steps read and write."""

    base: str
    data: Path
    out: Path
    results: Path
    device: str
    seed: int

    def file(self, *names: str) -> str:
        """The first of these Parquet files that is there; the first name if none is."""
        files = [self.data / f"{name}.parquet" for name in names]
        return str(next((file for file in files if file.exists()), files[0]))

    def model(self, name: str) -> Path:
        """The folder of a classifier."""
        return self.out / "models" / name

    def kept(self, name: str) -> Path:
        """The folder of what is not computed again."""
        return self.out / "kept" / name


def _training(places: Places, sizes: Sizes, epochs: int) -> list[str]:
    """Arguments of everything that trains."""
    arguments = ["--base", places.base, "--epochs", str(epochs)]
    if sizes.train_texts:
        arguments += ["--texts", str(sizes.train_texts)]
    return [*arguments, *_shared(places)]


def _shared(places: Places) -> list[str]:
    """Arguments of every script."""
    return ["--seed", str(places.seed), "--device", places.device]


def _methods(sizes: Sizes) -> list[str]:
    """The methods, unless a script runs its own."""
    return ["--methods", ",".join(sizes.methods)] if sizes.methods else []


def _classifier(places: Places, sizes: Sizes, name: str, files: Sequence[str], labels: str, *more: str) -> Step:
    """Train a classifier on the first of `files`, and test it on the second."""
    folder = places.model(name)
    arguments = _training(places, sizes, sizes.epochs)
    arguments += ["--train", files[0], "--test", files[1], "--labels", labels, "--out", str(folder), *more]
    return Step(f"train-{name}", "benchmarks.train_classifier", tuple(arguments), made=folder / "training.json")


def training_steps(places: Places, sizes: Sizes) -> list[Step]:
    """The classifiers, each of them once; the slowest first."""
    sst2 = (places.file("sst2-train"), places.file("sst2-test"))
    imdb = (places.file("imdb-train", "imdb-train-9000"), places.file("imdb-test", "imdb-test-1000"))
    hatexplain = (places.file("hatexplain-train"), places.file("hatexplain-test"))
    polarity = "negative,positive"
    folder = places.model("answers")
    arguments = _training(places, sizes, sizes.answer_epochs)
    arguments += ["--task", "question-answering", "--train", places.file("squad_xquad_en-dev"), "--out", str(folder)]
    return [
        _classifier(places, sizes, "imdb", imdb, polarity),
        _classifier(places, sizes, "sst2", sst2, polarity),
        _classifier(places, sizes, "masked", sst2, polarity, "--masking", "0.3"),
        _classifier(places, sizes, "hatexplain", hatexplain, "hatespeech,normal,offensive", "--column", "tokens"),
        Step("train-answers", "benchmarks.train_located", tuple(arguments), made=folder / "training.json"),
    ]


def f_fidelity_steps(places: Places, sizes: Sizes) -> list[Step]:
    """Three measurements in processes of their own, and their tables."""
    arguments = ["--base", places.base, "--train", places.file("sst2-train"), "--test", places.file("sst2-test")]
    arguments += ["--labels", "negative,positive", "--data-name", "sst2", "--out", str(places.kept("f_fidelity"))]
    arguments += ["--plain", str(places.model("sst2")), "--masked", str(places.model("masked"))]
    arguments += ["--epochs", str(sizes.epochs), "--texts", str(sizes.f_fidelity), "--draws", str(sizes.draws)]
    arguments += ["--batch-size", "64", "--shard-size", "100", *_methods(sizes), *_shared(places)]
    steps = []
    for setup, classifier in (("plain-limited", "sst2"), ("masked-limited", "masked"), ("plain", "sst2")):
        own_arguments = (*arguments, "--setups", setup, "--compute-only")
        step = Step(
            f"f_fidelity-{setup}", "benchmarks.f_fidelity", own_arguments, (f"train-{classifier}",), takes_seconds=True
        )
        steps.append(step)
    arguments += ["--output", str(places.results / "f_fidelity_sst2.md")]
    return [*steps, _table("f_fidelity", "benchmarks.f_fidelity", arguments, steps, "f_fidelity_sst2.md")]


def aopc_cost_steps(places: Places, sizes: Sizes) -> list[Step]:
    """Curves in processes of their own, and their table."""
    arguments = ["--data", places.file("sst2-dev"), "--model", str(places.model("sst2")), "--shared"]
    arguments += ["--texts", str(sizes.aopc_cost), "--kept", str(places.kept("aopc_cost")), *_shared(places)]
    steps = []
    for number, curves in enumerate(sizes.curves):
        own_arguments = (*arguments, "--explain-only", "--curves", *curves)
        step = Step(
            f"aopc_cost-{number + 1}", "benchmarks.aopc_cost", own_arguments, ("train-sst2",), takes_seconds=True
        )
        steps.append(step)
    arguments += ["--curves", *(curve for curves in sizes.curves for curve in curves)]
    arguments += ["--output", str(places.results / "aopc_cost_sst2")]
    return [
        *steps,
        _table("aopc_cost", "benchmarks.aopc_cost", arguments, steps, "aopc_cost_sst2.md", "aopc_cost_sst2.svg"),
    ]


def planted_steps(kind: str, places: Places, sizes: Sizes) -> list[Step]:
    """A classifier that knows a rule of two words, and whether methods find them."""
    name = f"planted_{kind}"
    arguments = ["--base", places.base, "--data", places.file("sst2-train"), "--kind", kind, "--least-words", "10"]
    arguments += ["--out", str(places.model(name)), "--texts", str(sizes.planted), "--epochs", str(sizes.epochs)]
    arguments += [*_methods(sizes), *_shared(places), "--output", str(places.results / f"{name}.md")]
    if sizes.train_texts:
        arguments += ["--train-texts", str(sizes.train_texts)]
    return [Step(name, "benchmarks.planted", tuple(arguments), results=(f"{name}.md",), takes_seconds=True)]


def rationales_steps(places: Places, sizes: Sizes) -> list[Step]:
    """Groups of methods in processes of their own, and the table of all."""
    arguments = ["--parts", "rationales", "--texts", str(sizes.rationales), "--rationales", str(places.data)]
    arguments += ["--classifiers", str(places.out / "models"), "--kept", str(places.kept("rationales"))]
    arguments += ["--threads", "1", *_shared(places)]
    methods = sizes.methods or METHODS_OF_THE_RUN
    slow = {name for group in SLOW_ON_LONG_TEXTS for name in group}
    quick = [name for name in methods if name not in slow]
    groups = {
        "movie_rationales": [*SLOW_ON_LONG_TEXTS, quick],
        "hatexplain": [SLOW_ON_SHORT_TEXTS, [name for name in methods if name not in SLOW_ON_SHORT_TEXTS]],
    }
    classifiers = {"movie_rationales": "imdb", "hatexplain": "hatexplain"}
    steps = []
    for data, data_groups in groups.items():
        for group in data_groups:
            names = [name for name in group if name in methods]
            if not names:
                continue
            name = f"rationales-{data}-{names[0]}"
            own_arguments = (*arguments, "--sets", data, "--methods", ",".join(names))
            own_arguments = (*own_arguments, "--output", str(places.kept("rationales") / f"{name}.md"))
            steps.append(
                Step(name, "benchmarks.sanity", own_arguments, (f"train-{classifiers[data]}",), takes_seconds=True)
            )
    arguments += ["--methods", ",".join(methods), "--output", str(places.results / "rationales.md")]
    return [*steps, _table("rationales", "benchmarks.sanity", arguments, steps, "rationales.md")]


def normalized_aopc_steps(places: Places, sizes: Sizes) -> list[Step]:
    """Normalized AOPC of short texts."""
    arguments = ["--data", places.file("sst2-dev"), "--model", str(places.model("sst2"))]
    arguments += ["--texts", str(sizes.normalized_aopc), "--most", "20", "--batch-size", "64"]
    arguments += ["--exact", str(sizes.exact), "--beam", str(sizes.beam), *_methods(sizes), *_shared(places)]
    return [
        _alone(
            "normalized_aopc", "benchmarks.normalized_aopc", arguments, places, "normalized_aopc_sst2.md", "train-sst2"
        )
    ]


def stability_steps(places: Places, sizes: Sizes) -> list[Step]:
    """Harmless edits and other precisions."""
    arguments = ["--data", places.file("sst2-dev"), "--model", str(places.model("sst2")), "--parts", "stability"]
    arguments += ["--texts", str(sizes.stability), "--batch-size", "64", *_methods(sizes), *_shared(places)]
    step = _alone("stability", "benchmarks.robustness", arguments, places, "stability_sst2.md", "train-sst2")
    return [replace(step, takes_seconds=True)]


def answers_steps(places: Places, sizes: Sizes) -> list[Step]:
    """Explanations of answers to questions."""
    arguments = ["--task", "question-answering", "--model", str(places.model("answers"))]
    arguments += ["--texts", str(sizes.answers), *_methods(sizes), *_shared(places)]
    return [_alone("answers", "benchmarks.located_tasks", arguments, places, "answers_xquad.md", "train-answers")]


def _alone(name: str, script: str, arguments: Sequence[str], places: Places, result: str, need: str) -> Step:
    """A table that one process makes."""
    output = ("--output", str(places.results / result))
    return Step(name, script, (*arguments, *output), needs=(need,), results=(result,))


def _table(name: str, script: str, arguments: Sequence[str], steps: Sequence[Step], *results: str) -> Step:
    """The table of what other steps computed."""
    needs = tuple(step.name for step in steps)
    return Step(name, script, tuple(arguments), needs, results, collects=True, takes_seconds=True)


TABLES: dict[str, Callable[[Places, Sizes], list[Step]]] = {  # those that take longest first
    "rationales": rationales_steps,
    "f_fidelity": f_fidelity_steps,
    "planted_pair": partial(planted_steps, "pair"),
    "planted_context": partial(planted_steps, "context"),
    "stability": stability_steps,
    "answers": answers_steps,
    "aopc_cost": aopc_cost_steps,
    "normalized_aopc": normalized_aopc_steps,
}


def steps_of(names: Iterable[str], places: Places, sizes: Sizes) -> list[Step]:
    """The steps of the tables `names`, training before all else."""
    chosen = [step for name in names for step in TABLES[name](places, sizes)]
    needed = {need for step in chosen for need in step.needs}
    training = [step for step in training_steps(places, sizes) if step.name in needed]
    return [*training, *chosen]


class Running:
    """A step in a process."""

    def __init__(self, step: Step, seconds: float | None, log: Path, environment: Mapping[str, str]):
        self.step = step
        self.started = time.time()
        self.asked_to_end: float | None = None  # when
        self._log = log.open("w")
        self.process = subprocess.Popen(
            step.command(seconds), stdout=self._log, stderr=subprocess.STDOUT, cwd=REPOSITORY, env=dict(environment)
        )

    def end(self) -> None:
        """Ask the process to end, and end it if it takes too long.

        An interrupt lets Python leave the GPU in order, which other processes share.
        """
        now = time.time()
        if self.asked_to_end is None:
            self.asked_to_end = now
            self.process.send_signal(signal.SIGINT)
        elif now - self.asked_to_end > PATIENCE:
            self.process.kill()

    def outcome(self, results: Path) -> Outcome | None:
        """What became of it; None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        self._log.close()
        status = "done" if code == 0 else f"failed ({code})"
        if code and self.asked_to_end is not None:
            status = "ended"
        files = [results / name for name in self.step.results]
        written = [file for file in files if file.exists() and file.stat().st_mtime >= self.started - 1]
        return Outcome(status, time.time() - self.started, written)


@dataclass
class Schedule:
    """Steps side by side, until all are done or the time is over."""

    steps: list[Step]
    jobs: int
    seconds: float | None
    reserve: float  # seconds at the end in which only tables are written
    out: Path
    results: Path
    threads: int = 1
    after_each: Callable[[dict[str, Outcome]], Any] = lambda outcomes: None
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def run(self) -> dict[str, Outcome]:
        """The outcome of every step."""
        started = time.time()
        waiting = list(self.steps)
        running: list[Running] = []
        (self.out / "logs").mkdir(parents=True, exist_ok=True)
        self.results.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: [one.process.kill() for one in running if one.process.poll() is None])
            while waiting or running:
                left = None if self.seconds is None else self.seconds - (time.time() - started)
                waiting = self._begin(waiting, running, left)
                self._end_late(running, left)
                finished = [one for one in running if self._note(one)]
                running[:] = [one for one in running if one not in finished]
                time.sleep(0.1)
        return self.outcomes

    def _begin(self, waiting: list[Step], running: list[Running], left: float | None) -> list[Step]:
        """Begin what can begin; the steps that still wait."""
        still_waiting = []
        is_late = left is not None and left <= self.reserve
        for step in waiting:
            needed = [self.outcomes.get(need) for need in step.needs]
            if step.made is not None and step.made.exists():
                self._finish(step, Outcome("was there"))
            elif is_late and not step.collects:
                self._finish(step, Outcome("left out, since the time was over"))
            elif any(outcome is None for outcome in needed):
                still_waiting.append(step)
            elif not step.collects and not all(outcome is not None and outcome.is_done for outcome in needed):
                self._finish(step, Outcome("left out, since what it needs failed"))
            elif len(running) >= self.jobs:
                still_waiting.append(step)
            else:
                seconds = None if left is None else left - self.reserve
                log = self.out / "logs" / f"{step.name}.log"
                running.append(Running(step, seconds, log, self._environment()))
                print(f"begin {step.name}", flush=True)
        return still_waiting

    def _end_late(self, running: list[Running], left: float | None) -> None:
        """End steps that write no table when only the reserve is left, and all others at the end."""
        if left is None:
            return
        for one in running:
            writes_a_table = one.step.collects or one.step.results
            end = 2 * PATIENCE if writes_a_table else self.reserve
            if left <= end:
                one.end()

    def _note(self, one: Running) -> bool:
        """Whether a step has ended; its outcome is then known."""
        outcome = one.outcome(self.results)
        if outcome is None:
            return False
        self._finish(one.step, outcome)
        return True

    def _finish(self, step: Step, outcome: Outcome) -> None:
        self.outcomes[step.name] = outcome
        print(f"{outcome.status}: {step.name}, {outcome.seconds:.0f} s", flush=True)
        self.after_each(self.outcomes)

    def _environment(self) -> dict[str, str]:
        threads = str(self.threads)
        return {
            **os.environ,
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONUNBUFFERED": "1",
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        }


def summary(outcomes: Mapping[str, Outcome], settings: Mapping[str, object]) -> str:
    """A table of all steps."""
    lines = ["# Evidence", "", provenance(**settings), "| step | seconds | status | result |", "|---|---:|---|---|"]
    for name, outcome in outcomes.items():
        files = ", ".join(file.name for file in outcome.results)
        lines.append(f"| {name} | {outcome.seconds:.0f} | {outcome.status} | {files} |")
    return "\n".join([*lines, ""])


def archive(path: Path, out: Path, outcomes: Mapping[str, Outcome], text: str) -> None:
    """Write one file with all results, logs and records, which replaces the one before."""
    (out / "summary.md").write_text(text)
    files = {"summary.md": out / "summary.md"}
    for outcome in outcomes.values():
        for file in outcome.results:
            files[f"results/{file.name}"] = file
    for pattern in ("logs/*.log", "models/*/training.json", "models/*/planted.json", "models/*/recovery.parquet"):
        for file in sorted(out.glob(pattern)):
            if file.stat().st_size <= LARGEST_RECORD:
                files[str(file.relative_to(out))] = file
    unfinished = path.with_name(f"{path.name}.part")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as package:
        for name, file in files.items():
            package.write(file, name)
    unfinished.replace(path)


def begun_differently(out: Path, decisive: Mapping[str, object]) -> str:
    """What an earlier call with this OUT had instead of these settings, or nothing: it left classifiers behind."""
    path = out / "settings.json"
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(decisive))
    earlier = json.loads(path.read_text())
    return ", ".join(f"{name} {earlier.get(name)!r}" for name, value in decisive.items() if earlier.get(name) != value)


def main(arguments: list[str] | None = None) -> None:
    """Train, run all scripts, and pack what they wrote."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="folder of the base encoder")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", help="tables, by comma; all if left out")
    parser.add_argument("--jobs", type=int, default=1, help="processes at the same time")
    parser.add_argument("--threads", type=int, default=1, help="of the processor, for each process")
    parser.add_argument("--seconds", type=float, help="for everything")
    parser.add_argument("--reserve", type=float, default=75.0, help="seconds at the end, for writing tables")
    parser.add_argument("--results", type=Path, help="default: benchmarks/results; with --tiny, OUT/results")
    parser.add_argument("--archive", type=Path, help="written after every step; default: OUT/evidence.zip")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tiny", action="store_true", help="a few texts of everything, to see that it works")
    parser.add_argument("--list", action="store_true", help="print the commands, and run nothing")
    options = parser.parse_args(arguments)
    sizes = TINY if options.tiny else Sizes()
    out = options.out.resolve()
    results = options.results or (out / "results" if options.tiny else RESULTS)
    places = Places(
        base=str(Path(options.base).resolve()),
        data=options.data.resolve(),
        out=out,
        results=results.resolve(),
        device=options.device,
        seed=options.seed,
    )
    names = options.only.split(",") if options.only else list(TABLES)
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        parser.error(f"no table {', '.join(unknown)}; there are {', '.join(TABLES)}")
    steps = steps_of(names, places, sizes)
    if options.list:
        for step in steps:
            print(" ".join(["python", *step.command(None)[1:]]))
        return
    different = begun_differently(out, {"base": places.base, "seed": options.seed, "tiny": options.tiny})
    if different:
        parser.error(f"{out} was begun with {different}; use the same options, or another --out")
    settings = {"jobs": options.jobs, "threads": options.threads, "seconds": options.seconds, "seed": options.seed}

    path = options.archive or places.out / "evidence.zip"

    def pack(outcomes: Mapping[str, Outcome]) -> None:
        archive(path, places.out, outcomes, summary(outcomes, settings))

    schedule = Schedule(
        steps=steps,
        jobs=options.jobs,
        seconds=options.seconds,
        reserve=options.reserve,
        out=places.out,
        results=places.results,
        threads=options.threads,
        after_each=pack,
    )
    outcomes = schedule.run()
    print(summary(outcomes, settings))
    pack(outcomes)
    print("packed in", path)
    if not all(outcomes[step.name].is_done for step in steps):
        sys.exit("not all steps are done; see the logs")


if __name__ == "__main__":
    main()
