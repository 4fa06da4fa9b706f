"""Memory and throughput of data-set runs that differ in nothing but the number of rows.

`python -m benchmarks.stream` writes results/stream.md. Short rows go into a file of each format, and each number below
comes from a process of its own: *reading* passes over all rows once, as every run does before it computes anything
(rows counted, labels looked at, a digest of all texts); *the run* is the whole of `gaflow.jobs.attribute`, with a
random model of one layer and raw attention, so that what is measured is the way from the file to the shards and not
the model.
Memory is the growth of the resident set over what the process had before it, at its peak; of reading also what Python
itself allocated at most (tracemalloc).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.report import provenance, write
from gaflow.models.memory import format_bytes

FORMATS = ("parquet", "csv", "jsonl")
MIB = 1 << 20


def main() -> None:
    """Measure every number of rows and format, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[2_000, 20_000, 200_000])
    parser.add_argument("--shard-size", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--part", nargs=2, metavar=("WHAT", "FILE"), help="used by the script itself")
    options = parser.parse_args()
    if options.part:
        print(json.dumps(PARTS[options.part[0]](Path(options.part[1]), options)))
        return
    lines = [
        "# Data-set runs of 2,000 to 200,000 rows",
        "",
        "Memory does not grow with the number of rows; see benchmarks/stream.py for what is measured.",
        "",
        provenance(shard_size=options.shard_size, batch_size=options.batch_size, threads=1, seed=0),
        "| rows | file | bytes | reading: peak | of it Python's | rows/s | the run: peak | texts/s |",
        "|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for rows in options.rows:
            for kind in FORMATS:
                lines.append(_measure(Path(folder), rows, kind, options))
                print(lines[-1], flush=True)
    print("written to", write("stream.md", "\n".join(lines) + "\n").name)


def _measure(folder: Path, rows: int, kind: str, options: argparse.Namespace) -> str:
    path = folder / f"{rows}.{kind}"
    _write(path, rows)
    read = _child("reading", path, options)
    run = _child("run", path, options) if kind == "parquet" else None
    cells = [f"{rows:,}", kind, format_bytes(path.stat().st_size), f"{read['peak'] / MIB:.1f} MiB"]
    cells += [f"{read['python'] / MIB:.1f} MiB", f"{rows / read['seconds']:,.0f}"]
    cells += ["", ""] if run is None else [f"{run['peak'] / MIB:.1f} MiB", f"{rows / run['seconds']:,.0f}"]
    path.unlink()
    return f"| {' | '.join(cells)} |"


def _texts(rows: int) -> Iterator[dict[str, Any]]:
    for k in range(rows):
        yield {"text": f"the plot of film {k} is thin{' and never dull' * (k % 4)}", "label": k % 2}


def _write(path: Path, rows: int) -> None:
    """A file of short rows, written as a stream."""
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pa.schema([("text", pa.string()), ("label", pa.int64())])
        with pq.ParquetWriter(path, schema) as file:
            source = list(_texts(rows))
            for start in range(0, rows, 10_000):
                file.write_table(pa.Table.from_pylist(source[start : start + 10_000], schema))
        return
    with open(path, "w", encoding="utf-8") as file:
        if path.suffix == ".csv":
            file.write("text,label\n")
        for row in _texts(rows):
            file.write(json.dumps(row) + "\n" if path.suffix == ".jsonl" else f"{row['text']},{row['label']}\n")


def _child(what: str, path: Path, options: argparse.Namespace) -> dict[str, float]:
    sizes = ["--shard-size", str(options.shard_size), "--batch-size", str(options.batch_size)]
    command = [sys.executable, "-m", "benchmarks.stream", *sizes, "--part", what, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def _resident(peak: bool = False) -> int:
    """Bytes of the resident set, now or at its peak since it was last asked for now."""
    if not peak:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew; Linux only
    name = "VmHWM" if peak else "VmRSS"
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return next(int(words[1]) * 1024 for words in lines if words[0] == f"{name}:")


def _read(path: Path, options: argparse.Namespace) -> dict[str, float]:
    """One pass for its time and peak, and one for what Python allocates."""
    import pyarrow.csv
    import pyarrow.parquet  # noqa: F401  # what is loaded on first use is no part of it

    from gaflow.data import Classes, open_data, survey
    from gaflow.tasks.classification import ClassificationHead

    data, classes = (
        open_data(path, label_column="label"),
        Classes(ClassificationHead(("negative", "positive"), "softmax")),
    )
    survey(data, classes, 10)
    before, start = _resident(), time.perf_counter()
    lines = survey(data, classes)
    seconds, peak = time.perf_counter() - start, _resident(peak=True) - before
    tracemalloc.start()
    assert survey(data, classes) == lines
    return {"seconds": seconds, "peak": peak, "python": tracemalloc.get_traced_memory()[1]}


def _run(path: Path, options: argparse.Namespace) -> dict[str, float]:
    """A whole run with a model that costs next to nothing."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    import gaflow
    from gaflow.data import open_data
    from gaflow.jobs import attribute

    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokenizer = gaflow.Explainer(device="cpu").tokenizer
    sizes: Any = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), **sizes)).eval()
    explainer = gaflow.Explainer(model, tokenizer)
    data = open_data(path, label_column="label")
    with tempfile.TemporaryDirectory() as folder:
        attribute(explainer, data, Path(folder, "first"), ["rawatt"], limit=options.shard_size)
        before, start = _resident(), time.perf_counter()
        attribute(
            explainer, data, Path(folder, "all"), ["rawatt"],
            batch_size=options.batch_size, shard_size=options.shard_size,
        )  # fmt: skip
        return {"seconds": time.perf_counter() - start, "peak": _resident(peak=True) - before}


PARTS = {"reading": _read, "run": _run}

if __name__ == "__main__":
    main()
