"""A small benchmark, and the files that it leaves."""

import hashlib
from pathlib import Path

import gaflow
from gaflow.benchmark import bench
from gaflow.data import open_data
from tests.support.models import SENTENCE, bert

EXPLAINER = gaflow.Explainer(*bert())


WORDS = SENTENCE.strip(".").replace(",", "").split()


ROWS = [{"text": " ".join(WORDS[: 1 + k % 9]) + f" {k}", "label": k % 2} for k in range(14)]


METHODS_USED = ["cat", "rawatt"]


TIMES = ("timings.json", "timings.jsonl")


def files(folder):
    """All that a benchmark leaves but the times."""
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in Path(folder).rglob("*")
        if p.is_file() and p.name not in TIMES
    }


def run(out, source=ROWS, **options):
    label = {"label_column": "label"} if isinstance(source, list) and isinstance(source[0], dict) else {}
    data = source if isinstance(source, str | Path) else open_data(source, **label)
    settings = {"methods": METHODS_USED, "shard_size": 4, "batch_size": 2} | options
    (done,) = bench(EXPLAINER, {"rows": data}, out, **settings)
    return done
