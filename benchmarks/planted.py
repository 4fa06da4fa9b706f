"""Do scores find the words that a model was taught to go by? (Bastings et al. 2022; gaflow.evaluation)

    python -m benchmarks.planted --base DIR --data FILE --kind single --out DIR --output planted_single.md

FILE is anything `gaflow.data.open_data` reads, with columns `text` and `label` (0, 1, ...). A twentieth of its texts is
held out; of the others half get planted words that decide their label, and a quarter half of such words, which decide
nothing (but for `single`). The encoder DIR is fine-tuned on them, the planted words being tokens of their own. Then

    planted   accuracy on held-out texts with planted words: near 1, or the rule was not learnt
    decoys    accuracy on held-out texts with half of the words, and
    plain     on held-out texts as they are: what the model can do without the rule

and the first `--texts` of the planted held-out texts are explained by every method but `attention_flow`, which would
take hours. OUT gets the model in float16, the tokenizer, `planted.parquet` (the texts explained), `recovery.parquet`
(every text's values), `recovery.md` (the table) and `planted.json` (the settings, accuracies and a hash of the
weights). The table is also written to `--output`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.deadline import Deadline, add_option, missing_lines
from benchmarks.report import provenance, write
from benchmarks.reproduce import METHODS_OF_THE_RUN
from benchmarks.train_classifier import Training, accuracy, encode, fine_tune, read, repeatable, split, weight_hash
from gaflow import Explainer
from gaflow.errors import GaflowError
from gaflow.evaluation import PLANTED_KINDS, Planted, Recovery, plant, planted_words, recovery
from gaflow.methods import find_method

LEARNT = 0.95  # accuracy on planted texts from which on a model may be said to go by the rule


@dataclass(frozen=True)
class Settings:
    """What is planted, learnt and explained."""

    kind: str = "single"
    share: float = 0.5
    decoys: float = 0.25
    least_words: int = 0  # of a text: in one of few words, planted words are easily found
    most_words: int = 300  # of a text, before planting, so that planted words are not cut off
    texts: int = 500  # to explain
    methods: tuple[str, ...] = METHODS_OF_THE_RUN
    batch_size: int = 64  # of explaining
    training: Training = field(default_factory=Training)


def data_of(path: str, settings: Settings) -> dict[str, list[Planted]]:
    """Texts to train on, and held-out ones with the rule, with half of it, and without."""
    texts = []
    classes = []
    for text, label in zip(*read(path), strict=True):
        words = text.split()
        if len(words) >= settings.least_words:
            texts.append(" ".join(words[: settings.most_words]))
            classes.append(label)
    seed = settings.training.seed
    training_rows, heldout_rows = split(len(texts), seed, settings.training.texts)

    def part(part_rows: np.ndarray, share: float, decoys: float, seed: int) -> list[Planted]:
        part_texts = [texts[k] for k in part_rows]
        labels = sorted(set(classes))
        return plant(
            part_texts,
            [classes[k] for k in part_rows],
            settings.kind,
            share=share,
            decoys=decoys,
            classes=labels,
            seed=seed,
        )

    parts = {
        "train": part(training_rows, settings.share, settings.decoys, seed),
        "planted": part(heldout_rows, 1, 0, seed + 1),
        "plain": part(heldout_rows, 0, 0, seed),
    }
    if settings.kind != "single":
        parts["decoys"] = part(heldout_rows, 0, 1, seed + 2)
    return parts


def learn(
    base: str, parts: dict[str, list[Planted]], settings: Settings, device: str
) -> tuple[Any, Any, dict[str, Any]]:
    """A model that knows the rule, its tokenizer, and how well it does."""
    with repeatable(settings.training.seed):
        return _learn(base, parts, settings, device)


def _learn(
    base: str, parts: dict[str, list[Planted]], settings: Settings, device: str
) -> tuple[Any, Any, dict[str, Any]]:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    target_device, training = torch.device(device), settings.training
    count = 1 + max(int(row.label) for row in parts["train"])
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.add_tokens(list(planted_words(settings.kind, len({row.label for row in parts["plain"]}))))
    model = AutoModelForSequenceClassification.from_pretrained(
        base, num_labels=count, attn_implementation="eager", dtype=torch.float32
    )
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model = model.to(target_device)
    data = {
        name: encode(tokenizer, [row.text for row in rows], [row.label for row in rows], training.max_length)
        for name, rows in parts.items()
    }
    pad = int(tokenizer.pad_token_id)
    losses = fine_tune(model, data["train"], pad, training, target_device)
    model.half().float()  # what is stored is what is tested
    del data["train"]
    tested = {name: accuracy(model, part_data, pad, target_device) for name, part_data in data.items()}
    return model, tokenizer, {"loss": losses, "accuracy": tested}


def explain(
    explainer: Explainer, rows: Sequence[Planted], settings: Settings, deadline: Deadline
) -> tuple[Recovery, dict[str, str]]:
    """Attributions by every method, judged; and the methods that failed, with the reason."""
    texts = [row.text for row in rows]
    attributions = {}
    failed = {}
    for name in settings.methods:
        if not deadline.allows(name):
            continue
        started = time.perf_counter()
        try:
            attributions[name] = explainer(
                texts, name, batch_size=settings.batch_size, truncation=True, keep_flow=False
            )
        except GaflowError as error:
            failed[name] = str(error)
        print(f"{name}, {len(texts)} texts: {time.perf_counter() - started:.1f} s", flush=True)
    if not attributions:
        raise SystemExit(f"no method explained the texts: {failed or 'the time was over'}")
    return recovery(attributions, rows, seed=settings.training.seed), failed


def run(
    base: str, data: str, out: Path, settings: Settings, device: str, deadline: Deadline | None = None
) -> dict[str, Any]:
    """All of it; what is written to planted.json."""
    started = time.perf_counter()
    deadline = deadline or Deadline()
    for name in settings.methods:
        find_method(name)  # what is not installed is refused before anything is trained
    parts = data_of(data, settings)
    model, tokenizer, record = learn(base, parts, settings, device)
    out.mkdir(parents=True, exist_ok=True)
    model.half().save_pretrained(out)
    tokenizer.model_max_length = settings.training.max_length
    tokenizer.save_pretrained(out)
    record |= {
        "base": Path(base).name,
        "data": Path(data).name,
        "settings": {**asdict(settings), "methods": list(settings.methods)},
        "texts": {name: len(rows) for name, rows in parts.items()},
        "weights": weight_hash(model),
        "trained_seconds": time.perf_counter() - started,
    }
    rows = parts["planted"][: settings.texts]
    explainer = Explainer(out, device=device, dtype=torch.float32)
    print(f"trained in {record['trained_seconds']:.0f} s, accuracy {record['accuracy']}", flush=True)
    recovered, failed = explain(explainer, rows, settings, deadline)
    record |= {"followed": recovered.followed, "explained": len(recovered.rows), "cut": recovered.cut}
    record |= {"failed": failed, "left_out": deadline.left_out}
    _write(out, rows, recovered, record)
    record["seconds"] = time.perf_counter() - started
    (out / "planted.json").write_text(json.dumps(record, indent=2) + "\n")
    return record


def _write(out: Path, rows: Sequence[Planted], recovered: Recovery, record: dict[str, Any]) -> None:
    import pyarrow
    import pyarrow.parquet

    def write(name: str, **columns: Any) -> None:
        pyarrow.parquet.write_table(pyarrow.table(columns), out / name, compression="zstd")

    write(
        "planted.parquet",
        text=[row.text for row in rows],
        label=[row.label for row in rows],
        spans=[[list(span) for span in row.spans] for row in rows],
    )
    write(
        "recovery.parquet",
        method=np.repeat(np.array(recovered.methods, dtype=object), len(recovered.rows)),
        row=np.tile(recovered.rows, len(recovered.methods)),
        precision=recovered.precision.ravel(),
        mean_rank=recovered.mean_rank.ravel(),
        depth=recovered.depth.ravel(),
    )
    settings = record["settings"]
    tested = ", ".join(f"{name} {value:.3f}" for name, value in record["accuracy"].items())
    training = settings["training"]
    origin = provenance(
        kind=settings["kind"],
        base=record["base"],
        data=record["data"],
        least_words=settings["least_words"],
        training_texts=record["texts"]["train"],
        epochs=training["epochs"],
        rate=training["rate"],
        seed=training["seed"],
    )
    text = "\n".join([f"# Planted words: {settings['kind']}, {record['data']}", "", origin, *table(recovered), ""])
    learnt = record["accuracy"]["planted"] >= LEARNT
    note = (
        "" if learnt else " The rule was not learnt, so that the table says nothing of the methods: train for longer."
    )
    text += f"\nAccuracy on held-out texts: {tested}.{note}\n"
    text += "".join(f"\n{line}" for line in missing_lines(record["left_out"], record["failed"]))
    (out / "recovery.md").write_text(text)


def table(recovered: Recovery) -> list[str]:
    """Markdown, the best precision first; 95 % bootstrap intervals over texts."""
    lines = [
        f"{len(recovered.rows)} texts, {np.mean(recovered.sizes):.1f} tokens of which {np.mean(recovered.planted):.1f} "
        f"decide, followed in {recovered.followed:.1%}; 95 % intervals over texts.",
        "",
        "| method | precision@k | mean rank | depth |",
        "|---|---:|---:|---:|",
    ]
    for method, row in (
        recovered.table().sort_values("precision", ascending=False, kind="stable").to_dict("index").items()
    ):
        cells = [
            f"{row[name]:.3f} ({row[f'{name}_low']:.3f} to {row[f'{name}_high']:.3f})"
            for name in ("precision", "mean_rank", "depth")
        ]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="folder or hub id of the encoder")
    parser.add_argument("--data", required=True)
    parser.add_argument("--kind", choices=PLANTED_KINDS, default=Settings.kind)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=Settings.texts, help="to explain")
    parser.add_argument("--least-words", type=int, default=Settings.least_words, help="shorter texts are left out")
    parser.add_argument("--train-texts", type=int, help="texts to train on; all if left out")
    parser.add_argument("--methods", default=",".join(Settings.methods))
    parser.add_argument("--batch-size", type=int, default=Settings.batch_size, help="of explaining")
    parser.add_argument("--epochs", type=int, default=Training.epochs)
    parser.add_argument("--rate", type=float, default=Training.rate)
    parser.add_argument("--max-length", type=int, default=Training.max_length)
    parser.add_argument("--seed", type=int, default=Training.seed)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add_option(parser)
    parser.add_argument("--output", help="name of the file in results/, or a path; none: print only")
    options = parser.parse_args(arguments)
    deadline = Deadline(options.seconds)
    settings = Settings(
        kind=options.kind,
        least_words=options.least_words,
        texts=options.texts,
        methods=tuple(options.methods.split(",")),
        batch_size=options.batch_size,
        training=Training(
            epochs=options.epochs,
            rate=options.rate,
            max_length=options.max_length,
            texts=options.train_texts,
            seed=options.seed,
        ),
    )
    run(options.base, options.data, options.out, settings, options.device, deadline)
    text = (options.out / "recovery.md").read_text()
    print(text)
    if options.output:
        print("written to", write(options.output, text).name)


if __name__ == "__main__":
    main()
