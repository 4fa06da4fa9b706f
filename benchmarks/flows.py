"""What a run of benchmarks/reproduce.py says of flows, beside faithfulness: `python -m benchmarks.flows OUT`.

OUT/flows.csv     of each data set and flow method: texts, how many flows converged, the share of ordinary tokens
                  that score exactly 0, and the median of the sum of scores over the logit
OUT/timings.csv   of each data set: seconds of the evaluation, of masking, and of the model's own forward passes
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet

COLUMNS = ("data_set", "method", "texts", "converged", "zero_share", "sum_over_output")
STORED_COLUMNS = ["method", "scores", "special_mask", "certificate", "output", "error"]
TIMES = ("total", "masking", "forward", "forward_share")


def flows(folder: Path) -> Iterator[list[Any]]:
    """Rows of one data set's attributions: method, texts, converged, zero_share, sum_over_output."""
    flows_by_method: dict[str, list[tuple[bool, int, int, float]]] = {}
    for part in sorted(folder.glob("part-*.parquet")):
        for row in pyarrow.parquet.read_table(part, columns=STORED_COLUMNS).to_pylist():
            if row["certificate"]:
                scores, special = np.array(row["scores"]), np.array(row["special_mask"])
                certified = json.loads(row["certificate"])["converged"] and row["error"] is None
                plain = scores[~special]
                flow = bool(certified), int((plain == 0).sum()), len(plain), float(scores.sum() / row["output"])
                flows_by_method.setdefault(row["method"], []).append(flow)
    for method, texts in flows_by_method.items():
        certified, zero, tokens, ratio = (np.array(column, float) for column in zip(*texts, strict=True))
        share = zero.sum() / tokens.sum()
        yield [method, len(texts), int(certified.sum()), f"{share:.4g}", f"{np.median(ratio):.4g}"]


def write(path: Path, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table as CSV."""
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(head)
        table.writerows(rows)


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="OUT of benchmarks.reproduce")
    out: Path = parser.parse_args().out
    sets = sorted(path for path in (out / "bench").iterdir() if path.is_dir())
    if not sets:
        raise SystemExit(f"{out} has no evaluations; run benchmarks.reproduce first")
    write(
        out / "flows.csv",
        COLUMNS,
        [[folder.name, *row] for folder in sets for row in flows(folder / "attributions")],
    )
    timings = [(folder.name, json.loads((folder / "pad" / "timings.json").read_text())) for folder in sets]
    write(
        out / "timings.csv", ["data_set", *TIMES], [[name, *(f"{t[key]:.6g}" for key in TIMES)] for name, t in timings]
    )


if __name__ == "__main__":
    main()
