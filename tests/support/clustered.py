"""A run on a local Ray cluster of two workers, one of which is killed half way; the test looks at what it leaves.

`python -m tests.support.clustered OUT` runs the job of tests/jobs/test_ray_engine.py in a process of its own, since Ray
starts processes and threads that a test process should not have, and prints which process was killed.
"""

import json
import os
import signal
import sys
from pathlib import Path

import ray
import torch

import gaflow
from gaflow.jobs import Ray, attribute
from gaflow.jobs.ray_engine import start_ray
from tests.support.models import bert

TEXTS = [f"a dog {'is very ' * (k % 11)}smart {k}" for k in range(60)]
METHODS = ["agf", "attcat", "rawatt"]


def main(out):
    torch.set_num_threads(1)
    killed = []

    def progress(done, total):
        times = Path(out, "timings.jsonl")
        if not killed and done >= total / 3 and times.exists():
            last = json.loads(times.read_text().splitlines()[-1])
            killed.append(int(last["worker"].rpartition(":")[2]))
            os.kill(killed[0], signal.SIGKILL)

    memory = 80 << 20  # of the object store, the least that Ray takes
    start_ray(ray, num_cpus=2, object_store_memory=memory)
    outcome = attribute(
        gaflow.Explainer(*bert()), TEXTS, out, METHODS, batch_size=2, shard_size=3, engine=Ray(workers=2, device="cpu"),
        progress=progress,
    )  # fmt: skip
    print(json.dumps({"killed": killed, "finished": outcome.finished, "computed": outcome.computed}))


if __name__ == "__main__":
    main(sys.argv[1])
