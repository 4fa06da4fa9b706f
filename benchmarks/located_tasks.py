"""Are explanations of entities and of answers faithful? Methods on a tagger, or on a model that finds answers.

    python -m benchmarks.located_tasks --model DIR --task token-classification --texts 200 --output entities_wnut17.md
    python -m benchmarks.located_tasks --model DIR --task question-answering --texts 100 --output answers_xquad.md

DIR is what `train_located.py` wrote; its `heldout.parquet` has the texts. Entities: sentences in which the model finds
an entity, with at least `--least` other words; the entity that it is surest of is explained, and its tokens are never
masked. Answers: the predicted answer is explained; neither the question nor the answer is ever masked.

What is measured is the probability of the entity's tags, or of the answer's start times its end. Tokens cannot be
deleted here, since that would move what is measured: [PAD] and [MASK] replace them. The table says how many of the
explained outputs are right.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import torch

import gaflow
from benchmarks.ranked_table import METHODS, report
from benchmarks.report import provenance, write
from benchmarks.train_located import TASKS, Row, entity_spans, normalised_answer
from gaflow.attribution.attribution import Attribution

REPLACEMENTS = ["pad", "mask"]


@dataclass(frozen=True)
class Explained:
    """Texts whose predicted output is explained."""

    texts: list[Any]
    right: list[bool]  # whether the output is that of the data
    probability: list[float]


def sentences_with_entities(
    explainer: gaflow.Explainer, rows: Sequence[Row], count: int, least: int, seed: int
) -> Explained:
    """The first `count` sentences in random order in which the model finds an entity."""
    chosen = Explained([], [], [])
    for index in np.random.default_rng(seed).permutation(len(rows)):
        if len(chosen.texts) == count:
            break
        words = rows[index]["tokens"]
        text = " ".join(words)
        attribution = explainer(text, "random", truncation=True)
        entity = _explained_words(attribution, words)
        if attribution.prediction.startswith("O:") or len(words) - len(entity) < least:
            continue
        kind = re.sub("^[BI]-", "", attribution.prediction.split(":")[0])
        chosen.texts.append(text)
        chosen.right.append((min(entity), max(entity), kind) in entity_spans(rows[index]["tags"]))
        chosen.probability.append(float(attribution.probability or 0.0))
    return chosen


def _explained_words(attribution: Attribution, words: Sequence[str]) -> set[int]:
    """The words that hold the explained tokens."""
    starts = np.cumsum([0, *(len(word) + 1 for word in words[:-1])])
    numbers = set()
    for position in attribution.read_positions:
        start, _ = attribution.offsets[position]
        numbers.add(int(np.searchsorted(starts, start, side="right")) - 1)
    return numbers


def answered_questions(explainer: gaflow.Explainer, rows: Sequence[Row], count: int, seed: int) -> Explained:
    """`count` questions, drawn by `seed`."""
    chosen = Explained([], [], [])
    for index in np.random.default_rng(seed).permutation(len(rows))[:count]:
        row = rows[index]
        pair = (row["question"], row["context"])
        attribution = explainer(pair, "random", truncation=True)
        answers = {normalised_answer(answer["text"]) for answer in row["answers"]}
        chosen.texts.append(pair)
        chosen.right.append(normalised_answer(str(attribution.prediction)) in answers)
        chosen.probability.append(float(attribution.probability or 0.0))
    return chosen


def main(arguments: list[str] | None = None) -> None:
    """Explain, mask, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="what train_located.py wrote")
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--least", type=int, default=5, help="words beside the entity")
    parser.add_argument("--methods", default=",".join(METHODS), help="by comma")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-size", type=int, default=16, help="of explaining")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", help="name of the file in results/, or a path; none: print only")
    options = parser.parse_args(arguments)
    explainer = gaflow.Explainer(options.model, device=options.device, dtype=torch.float32, task=options.task)
    training = json.loads((options.model / "training.json").read_text())
    rows = pyarrow.parquet.read_table(options.model / "heldout.parquet").to_pylist()
    if options.task == "token-classification":
        chosen = sentences_with_entities(explainer, rows, options.texts, options.least, options.seed)
        title = f"Entities in {len(chosen.texts)} sentences, tagged by a model trained on {training['train']}"
    else:
        chosen = answered_questions(explainer, rows, options.texts, options.seed)
        title = f"Answers to {len(chosen.texts)} questions, found by a model trained on {training['train']}"
    if not chosen.texts:
        raise SystemExit("the model finds no entity in any sentence; train it for longer")
    evaluations = gaflow.evaluate(
        explainer,
        chosen.texts,
        methods=options.methods.split(","),
        replacement=REPLACEMENTS,
        eraser=False,
        truncation=True,
        batch_size=options.batch_size,
        seed=options.seed,
        progress=False,
    )
    scores = ", ".join(f"{name} {value:.3f}" for name, value in training["test_scores"].items())
    sizes = next(iter(evaluations.values())).sizes
    lines = [
        f"# {title}",
        "",
        provenance(texts=len(chosen.texts), seed=options.seed, training_seed=training["settings"]["seed"]),
        f"- model: {training['base']}, {training['texts']['train']} training texts, {training['settings']['epochs']} "
        f"epochs, weights {training['weights'][:12]}",
        f"- quality on {training['texts']['test']} test texts ({training['test']}): {scores}",
        f"- of the explained outputs {np.mean(chosen.right):.1%} are right; mean probability "
        f"{np.mean(chosen.probability):.3f}; {np.mean(sizes):.1f} tokens of a text may be masked, on average",
        "",
        *report(evaluations),
    ]
    print("\n".join(lines))
    if options.output:
        print("written to", write(options.output, "\n".join(lines)).name)


if __name__ == "__main__":
    main()
