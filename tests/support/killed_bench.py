"""A process that forks benchmarks, which end themselves at a given step of writing; see `tests.support.killed`.

`python -m tests.support.killed_bench MODEL DATA OUT` runs one undisturbed, then several that die, each followed by one
that is left alone, and tells on stdout how each ended.
"""

import os
import sys
from pathlib import Path

import torch

import gaflow
from gaflow.benchmark import bench
from gaflow.data import open_data
from tests.support.killed import die_at, say

STEPS = (2, 7, 15, 21, 30, 35, 39)  # bench.json, shards, sample.parquet, parts, and the whole


def run(explainer, data, out, step):
    child = os.fork()
    if child == 0:
        if step is not None:
            die_at(step)
        opened = open_data(data, label_column="label")
        bench(explainer, {"rows": opened}, out, methods=["cat", "rawatt"], shard_size=3, batch_size=2)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def main(model, data, folder):
    torch.set_num_threads(1)
    explainer = gaflow.Explainer(model)
    explainer("a dog")  # what is loaded on first use
    say(out="whole", status=run(explainer, data, Path(folder) / "whole", None))
    for step in STEPS:
        for death in (step, None):
            say(out=str(step), status=run(explainer, data, Path(folder) / str(step), death))


if __name__ == "__main__":
    main(*sys.argv[1:])
