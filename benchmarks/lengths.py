"""Table 6 of the paper for the texts of our benchmark: how many there are, and their lengths in characters.

    python -m benchmarks.lengths --data DIR

reads the test files that `benchmarks.reproduce` used, checks them against the digests in the manifests, draws the same
samples again and writes results/faithfulness/lengths.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path

import numpy as np

from benchmarks.report import RESULTS
from benchmarks.reproduce import SETS
from gaflow.data import Classes, draw_sample, open_data, rows_of, survey
from gaflow.tasks.classification import ClassificationHead

FAITHFULNESS = RESULTS / "faithfulness"
SAMPLE_COLUMNS = ("texts", "classes", "mode", "least", "most", "mean")
FILE_COLUMNS = ("file_texts", "file_least", "file_most", "file_mean")  # of the whole test file


def describe(name: str, folder: Path) -> list[str]:
    """A row of the table; ValueError if the file is not the one that was evaluated."""
    title = SETS[name].title
    path = FAITHFULNESS / "manifests" / f"{title.lower().replace(' ', '-')}.json"
    manifest = json.loads(path.read_text())["manifest"]
    data = open_data(folder / f"{name}-test.parquet", label_column="label")
    classes = Classes.of(data, ClassificationHead(SETS[name].labels, link="softmax"))
    surveyed = survey(data, classes)
    if surveyed.digest != manifest["data"]["sha256"]:
        raise ValueError(f"{folder / data.name} is not the file that was evaluated")
    size = manifest["texts"]
    sample = draw_sample(rows_of(data, classes), surveyed, size, manifest["seed"])
    lengths = []
    file_lengths = []
    for row in rows_of(data, classes):
        file_lengths.append(len(row.text))
        if row.number in sample.rows:
            lengths.append(len(row.text))
    counts = [len(lengths), len(SETS[name].labels), sample.mode]
    return [title, *map(str, counts), *extent(lengths), str(len(file_lengths)), *extent(file_lengths)]


def extent(lengths: list[int]) -> list[str]:
    """The least, the largest and the mean length."""
    return [str(min(lengths)), str(max(lengths)), f"{np.mean(lengths):.1f}"]


def main() -> None:
    """Write one row for each data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the test files, such as imdb-test.parquet")
    arguments = parser.parse_args()
    path = FAITHFULNESS / "lengths.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("data_set", *SAMPLE_COLUMNS, *FILE_COLUMNS))
        for name in SETS:
            writer.writerow(describe(name, arguments.data))
    print(path.read_text())


if __name__ == "__main__":
    main()
