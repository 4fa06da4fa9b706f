"""Runs on a local Ray cluster; tests/jobs/test_ray_engine.py looks at the files they leave.

`python -m tests.support.clustered OUT` is a process of its own, because Ray starts processes and threads that a test
process should not have. It prints the outcome of every scenario as JSON.
"""

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import torch

import gaflow
from gaflow.data import Row
from gaflow.jobs import Ray, attribute, ray_engine
from gaflow.jobs.engine import JobSettings, ShardRows
from gaflow.methods import Scores
from tests.support.models import bert

TEXTS = [f"a dog {'is very ' * (k % 11)}smart {k}" for k in range(60)]
METHODS = ["agf", "attcat", "rawatt"]
FEW = TEXTS[:20]
OUTCOMES = "outcomes.json"  # scenario -> outcome


@dataclass(frozen=True)
class Deadly:
    """Kills its process at the texts with a word, as long as a file is there; gives every token the score 1."""

    word: str
    file: str
    name: str = "deadly"

    def __call__(self, trace):
        texts = [encoding.text for encoding in trace.require_model().batch.encodings]
        if any(self.word in text.split() for text in texts) and Path(self.file).exists():
            os._exit(1)
        return Scores(trace.mask.double())


def deadly(out):
    return Deadly("10", f"{out}.deadly")


@dataclass(frozen=True)
class Unsupported:
    """Refuses every model."""

    name: str = "unsupported"

    def __call__(self, trace):
        raise gaflow.UnsupportedModelError("no attention")


class DeadlyTokenizer:
    """Kills the process that it is sent to."""

    def __reduce__(self):
        return os._exit, (1,)


def run(out, texts=FEW, methods=("rawatt",), workers=1, **options):
    return attribute(
        gaflow.Explainer(*bert()), texts, out, list(methods),
        batch_size=2, shard_size=3, engine=Ray(workers=workers, device="cpu", threads=1), **options,
    )  # fmt: skip


def lose_a_worker_half_way(out):
    killed = []
    progress = []

    def report(done, total):
        progress.append(done)
        timings = Path(out, "timings.jsonl")
        if not killed and done >= total / 3 and timings.exists():
            last = json.loads(timings.read_text().splitlines()[-1])
            killed.append(int(last["worker"].rpartition(":")[2]))
            os.kill(killed[0], signal.SIGKILL)

    outcome = run(out, TEXTS, METHODS, workers=2, progress=report)
    return {"killed": killed, "progress": progress, "finished": outcome.finished, "computed": outcome.computed}


def lose_every_worker_at_one_shard(out):
    method = deadly(out)
    Path(method.file).touch()
    try:
        run(out, methods=[method])
    except gaflow.JobError as error:
        return {"error": str(error)}
    finally:
        Path(method.file).unlink()


def never_start_a_worker(out):
    model, _ = bert()
    runner = SimpleNamespace(attention="auto")
    explainer = SimpleNamespace(model=model, tokenizer=DeadlyTokenizer(), task="text-classification", runner=runner)
    return _compute_one_shard(explainer, gaflow.METHODS["rawatt"])


def fail_at_every_text(out):
    return _compute_one_shard(gaflow.Explainer(*bert()), Unsupported())


def _compute_one_shard(explainer, method):
    with Ray(workers=9, threads=1)(explainer) as running:
        shards = iter([ShardRows(0, [Row(0, "a dog")])])
        computed = running.compute(JobSettings((method,)), shards, lambda done: None, lambda: False)
        try:
            next(computed)
        except gaflow.GaflowError as error:
            pool = running.compute.__self__  # type: ignore[attr-defined]
            return {"error": f"{type(error).__name__}: {error}", "workers": len(pool._workers)}


def stop_after_two_shards(out):
    outcome = run(out, stop=lambda: Path(out, "part-00001.parquet").exists())
    return {"finished": outcome.finished, "texts": outcome.texts}


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        lose_a_worker_half_way,
        lose_every_worker_at_one_shard,
        never_start_a_worker,
        fail_at_every_text,
        stop_after_two_shards,
    )
}


def main(out):
    torch.set_num_threads(1)
    ray_engine._LOSSES = 2  # workers take seconds to start
    ray_engine._RESTARTS = 1
    memory = 80 << 20  # of the object store, the least that Ray takes
    ray_engine.start_ray(num_cpus=2, object_store_memory=memory)
    outcomes = {name: scenario(Path(out) / name) for name, scenario in SCENARIOS.items()}
    Path(out, OUTCOMES).write_text(json.dumps(outcomes))  # Ray writes to the standard output, too


if __name__ == "__main__":
    main(sys.argv[1])
