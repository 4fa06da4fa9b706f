"""Measure the embedded sentiment classifier: accuracy, agreement with its teacher, negation, the showcase.

    python benchmarks/eval_demo_model.py --data DIR --teacher DIR --out benchmarks/results/demo_model

writes `demo_model.json` and `demo_model.md`, and fails when the model falls short of what gaflow promises of it.
DIR holds `{sst2,imdb,yelp_polarity,amazon_polarity}-test.parquet` and `sst2-dev.parquet` (columns `text`, `label`).
Intervals are Wilson's, at 95 %. Weights are stored in float16 and measured in float32, as gaflow loads them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import transformers
from transformers import AutoModelForSequenceClassification, AutoTokenizer

ASSETS = Path(__file__).parents[1] / "src" / "gaflow" / "assets"
FLOOR, LARGEST = 0.86, 12_000_000  # accuracy on SST-2 test; bytes of all files
SHOWCASE = {
    "although this dog is not cute, it is very smart.": "positive",
    "the plot is thin and the jokes never land.": "negative",
    "this film is good.": "positive",
    "this film is not good.": "negative",
}
FRAMES = ("this film is{} {}.", "the food was{} {}.", "i think the ending is{} {}.", "her new book is{} {}.")
PRAISE = (
    "good", "great", "funny", "clever", "interesting", "convincing", "moving", "original", "beautiful",
    "smart", "enjoyable", "lovely",
)  # fmt: skip
BLAME = (
    "bad", "boring", "awful", "dull", "stupid", "terrible", "predictable", "annoying", "weak",
    "disappointing", "silly", "ugly",
)  # fmt: skip


@dataclass(frozen=True)
class Classifier:
    """A model with its tokenizer."""

    model: Any
    tokenizer: Any

    @classmethod
    def load(cls, path: Path) -> Classifier:
        """From a folder in Hugging Face layout, in float32."""
        model = AutoModelForSequenceClassification.from_pretrained(path, dtype=torch.float32).eval()
        return cls(model, AutoTokenizer.from_pretrained(path))

    @torch.no_grad()
    def __call__(self, texts: list[str], batch_size: int = 32) -> torch.Tensor:
        """Probability of "positive" (n,), texts cut at 512 pieces."""
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        out = torch.empty(len(texts))
        for chunk in (order[i : i + batch_size] for i in range(0, len(order), batch_size)):
            inputs = self.tokenizer(
                [texts[i] for i in chunk], truncation=True, max_length=512, padding=True, return_tensors="pt"
            )
            out[chunk] = self.model(**inputs).logits.softmax(-1)[:, 1]
        return out


def wilson(right: int, n: int) -> tuple[float, float]:
    """95 % interval of a proportion."""
    z, p = 1.959964, right / n
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return (middle - half) / scale, (middle + half) / scale


def accuracy(student: Classifier, teacher: Classifier | None, path: Path, limit: int | None) -> dict[str, Any]:
    """Accuracy on one file and, with a teacher, its accuracy and how often the two agree."""
    table = pd.read_parquet(path)
    if limit is not None and limit < len(table):
        table = table.sample(limit, random_state=0)
    label = torch.tensor(table["label"].to_numpy()).bool()
    ours = student(table["text"].tolist()) > 0.5
    right = int((ours == label).sum())
    row: dict[str, Any] = {"texts": len(label), "accuracy": right / len(label), "interval": wilson(right, len(label))}
    if teacher is not None:
        theirs = teacher(table["text"].tolist()) > 0.5
        row["teacher_accuracy"] = float((theirs == label).double().mean())
        row["agreement"] = float((ours == theirs).double().mean())
    return row


def negation(model: Classifier) -> dict[str, float]:
    """Of plain statements judged right, the share whose judgement turns with "not"."""
    rates = {}
    for name, words, positive in (("praise", PRAISE, True), ("blame", BLAME, False)):
        pairs = list(itertools.product(FRAMES, words))
        plain = (model([frame.format("", word) for frame, word in pairs]) > 0.5) == positive
        turned = (model([frame.format(" not", word) for frame, word in pairs]) > 0.5) != positive
        rates[f"{name}_right"] = float(plain.double().mean())
        rates[f"{name}_turned"] = float((plain & turned).sum() / plain.sum())
    return rates


def markdown(result: dict[str, Any]) -> str:
    """The result as tables."""
    lines = [
        "# Embedded model: figures",
        "",
        "| data | texts | accuracy (95 %) | teacher | agreement |",
        "|---|---:|---|---:|---:|",
    ]
    for name, row in result["accuracy"].items():
        low, high = row["interval"]
        theirs = [f"{row[key]:.4f}" if key in row else "" for key in ("teacher_accuracy", "agreement")]
        lines.append(
            f"| {name} | {row['texts']:,} | {row['accuracy']:.4f} ({low:.3f} to {high:.3f}) | {' | '.join(theirs)} |"
        )
    lines += ["", "| text | p(positive) |", "|---|---:|"]
    lines += [f"| {text} | {p:.4f} |" for text, p in result["showcase"].items()]
    lines += ["", '| statements judged right, and turned by "not" | student | teacher |', "|---|---:|---:|"]
    teacher = result["negation"].get("teacher", {})
    for key, value in result["negation"]["student"].items():
        lines.append(f"| {key.replace('_', ', ')} | {value:.3f} | {f'{teacher[key]:.3f}' if teacher else ''} |")
    lines += [
        "",
        f"{result['parameters']:,} parameters, {result['bytes']:,} bytes without the card. {result['environment']}.",
        "",
    ]
    return "\n".join(lines)


def shortfalls(result: dict[str, Any]) -> list[str]:
    """What gaflow promises of its model and the model does not keep."""
    wrong = [text for text, p in result["showcase"].items() if (p > 0.5) != (SHOWCASE[text] == "positive")]
    complaints = [f"wrong on the showcase: {text}" for text in wrong]
    if result["accuracy"]["sst2-test"]["accuracy"] < FLOOR:
        complaints.append(f"accuracy on SST-2 test under {FLOOR}")
    if result["bytes"] > LARGEST:
        complaints.append(f"{result['bytes']:,} bytes, over {LARGEST:,}")
    return complaints


def main() -> None:
    """Read the arguments, measure, write both files."""
    parser = argparse.ArgumentParser(description="Measure the embedded model.")
    parser.add_argument("--model", type=Path, default=ASSETS, help="folder of the model (default: the embedded one)")
    parser.add_argument("--data", type=Path, required=True, help="folder of the Parquet files")
    parser.add_argument("--teacher", type=Path, help="folder of the teacher, to measure agreement on SST-2")
    parser.add_argument("--reviews", type=int, default=1000, help="reviews to draw of each test set (seed 0)")
    parser.add_argument("--out", type=Path, required=True, help="path to write, without .json and .md")
    options = parser.parse_args()
    student = Classifier.load(options.model)
    teacher = Classifier.load(options.teacher) if options.teacher else None
    rows = {
        name: accuracy(student, teacher, options.data / f"{name}.parquet", None) for name in ("sst2-dev", "sst2-test")
    }
    for name in ("imdb-test", "yelp_polarity-test", "amazon_polarity-test"):
        rows[name] = accuracy(student, None, options.data / f"{name}.parquet", options.reviews)
    result = {
        "accuracy": rows,
        "showcase": dict(zip(SHOWCASE, student(list(SHOWCASE)).tolist(), strict=True)),
        "negation": {"student": negation(student)} | ({"teacher": negation(teacher)} if teacher else {}),
        "parameters": student.model.num_parameters(),
        "bytes": sum(file.stat().st_size for file in options.model.iterdir() if file.suffix != ".md"),
        "environment": f"torch {torch.__version__}, transformers {transformers.__version__}, {platform.machine()} CPU",
    }
    options.out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    options.out.with_suffix(".md").write_text(markdown(result))
    print(markdown(result))
    sys.exit("\n".join(shortfalls(result)) or 0)


if __name__ == "__main__":
    main()
