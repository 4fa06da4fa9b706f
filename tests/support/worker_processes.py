"""A run in worker processes, for tests that kill it or press Ctrl-C; it prints the ids of the workers once they work.

`python -m tests.support.worker_processes OUT`
"""

import json
import multiprocessing
import sys
import time
import warnings
from dataclasses import dataclass

import gaflow
from gaflow.cli.progress import until_interrupted
from gaflow.jobs import Local, attribute
from gaflow.methods import Scores
from tests.support.clustered import TEXTS
from tests.support.models import bert


@dataclass(frozen=True)
class Slow:
    """Takes a while, and gives every token the score 1."""

    seconds: float = 0.2
    name: str = "slow"

    def __call__(self, trace):
        time.sleep(self.seconds)
        return Scores(trace.mask.double())


@dataclass(frozen=True)
class Warns:
    """Warns, and gives every token the score 1."""

    name: str = "warns"

    def __call__(self, trace):
        warnings.warn("mind the gap", gaflow.GaflowWarning, stacklevel=1)
        return Scores(trace.mask.double())


def main(out):
    printed = False

    def report(done, total):
        nonlocal printed
        if done and not printed:
            printed = True
            sys.stdout.write(json.dumps([process.pid for process in multiprocessing.active_children()]) + "\n")
            sys.stdout.flush()

    with until_interrupted("texts that are done are stored") as stop:
        outcome = attribute(
            gaflow.Explainer(*bert()), TEXTS * 10, out, [Slow()], batch_size=2, engine=Local(workers=2),
            progress=report, stop=stop,
        )  # fmt: skip
    sys.stdout.write(json.dumps([outcome.finished, outcome.texts]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
