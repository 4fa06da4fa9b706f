"""How large stored attributions are: bytes of a data-set run per text, and what a million texts would take.

`python -m benchmarks.result_sizes` explains texts of 8, 32 and 128 words by several methods into Parquet shards, and
writes results/result_sizes.md. Texts are drawn from the words of the demo reviews, so tokens repeat as they do in real
texts, and scores do not.
"""

from __future__ import annotations

import argparse
import csv
import random
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

import gaflow
from benchmarks.report import provenance
from gaflow.jobs import attribute

ROOT = Path(__file__).parent.parent
METHOD_SETS = (("attcat",), ("agf",), ("peeled_flow",), ("agf", "attcat", "rollout"))
MILLION = 1_000_000


def draw_texts(words: int, count: int, seed: int) -> list[str]:
    """Texts of so many words, from those of the demo reviews."""
    with open(ROOT / "examples" / "data" / "reviews.csv", encoding="utf-8") as file:
        vocabulary = [word for row in csv.DictReader(file) for word in row["text"].split()]
    generator = random.Random(seed)
    return [" ".join(generator.choices(vocabulary, k=words)) for _ in range(count)]


def column_sizes(folder: Path) -> Counter[str]:
    """Compressed bytes of each column over all shards."""
    sizes: Counter[str] = Counter()
    for path in sorted(folder.glob("*.parquet")):
        metadata = pq.ParquetFile(path).metadata
        for group in range(metadata.num_row_groups):
            for column in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(column)
                sizes[chunk.path_in_schema.partition(".")[0]] += chunk.total_compressed_size
    return sizes


def measure(explainer: gaflow.Explainer, words: int, count: int, methods: tuple[str, ...], seed: int) -> str:
    """A row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        attribute(explainer, draw_texts(words, count, seed), folder, list(methods), shard_size=count, truncation=True)
        size = sum(path.stat().st_size for path in Path(folder).glob("*.parquet"))
        sizes = column_sizes(Path(folder))
    total = sum(sizes.values())
    largest = ", ".join(f"{name} {part / total:.0%}" for name, part in sizes.most_common(3))
    gigabytes = size / count * MILLION / 1e9
    return f"| {words} | {', '.join(methods)} | {size / count:,.0f} | {gigabytes:.2f} | {largest} |"


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    explainer = gaflow.Explainer()
    lines = [
        "# Sizes of stored attributions",
        "",
        f"`python -m benchmarks.result_sizes --texts {options.texts}`: the embedded model, one Parquet shard per row.",
        "The column on the right has the largest columns of the shards.",
        "",
        "| words per text | methods | bytes per text | GB per million texts | largest columns |",
        "|---|---|---|---|---|",
    ]
    for words in (8, 32, 128):
        for methods in METHOD_SETS:
            lines.append(measure(explainer, words, options.texts, methods, options.seed))
            print(lines[-1], flush=True)
    lines += ["", provenance(texts=options.texts, seed=options.seed)]
    (ROOT / "benchmarks" / "results" / "result_sizes.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
