"""A process that loads a model once and then forks runs of one job, which the test kills at any moment.

`python -m tests.support.killed MODEL DATA` reads lines of JSON from stdin: {"out": folder, "die": null or n, "tear":
null or n}. Each starts a run in a process of its own, which ends itself at the n-th step of writing (a file synced, or
renamed), or with half of the n-th file written, or is killed from outside. It tells its number and every batch on
stdout, and the parent tells the status in the end.
"""

import json
import os
import signal
import sys

import pandas  # noqa: F401  # once, for all that are forked
import pyarrow.dataset
import pyarrow.parquet  # noqa: F401
import torch

import gaflow
from gaflow.data import open_data
from gaflow.jobs import attribute


def say(**what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def die_at(step):
    """Die at the `step`-th call of what makes files durable: odd ones before it has happened, even ones after."""
    calls = []

    def dying(original):
        def call(*args):
            calls.append(1)
            if len(calls) == step and step % 2:
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*args)
            if len(calls) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call

    os.fsync, os.replace = dying(os.fsync), dying(os.replace)


def die_within(number):
    """Die when one half of the `number`-th file that is written has reached the disk."""
    opened, original = [], os.fdopen

    def fdopen(handle, mode):
        opened.append(handle)
        file = original(handle, mode)
        if len(opened) < number:
            return file

        class Torn:
            def __enter__(self):
                return self

            def __exit__(self, *error):
                file.close()

            def write(self, data):
                file.write(data[: len(data) // 2])
                file.flush()
                os.fsync(file.fileno())
                os.kill(os.getpid(), signal.SIGKILL)

        return Torn()

    os.fdopen = fdopen


def run(explainer, data, job):
    if job["die"] is not None:
        die_at(job["die"])
    if job["tear"] is not None:
        die_within(job["tear"])
    outcome = attribute(
        explainer,
        open_data(data, label_column="label"),
        job["out"],
        ["attcat", "rawatt"],
        batch_size=2,
        shard_size=4,
        progress=lambda done, total: say(done=done),
    )
    say(computed=outcome.computed, finished=outcome.finished)


def main(model, data):
    torch.set_num_threads(1)
    explainer = gaflow.Explainer(model)
    explainer("a dog")  # what is loaded on first use
    say(ready=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            say(pid=os.getpid())
            run(explainer, data, json.loads(line))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        say(status=status)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
