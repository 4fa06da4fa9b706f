"""Fine-tune an encoder to classify the texts of a data set.

    python -m benchmarks.train_classifier --base DIR --train FILE --test FILE --labels negative,positive --out DIR

FILE is anything `gaflow.data.open_data` reads, with columns `text` (or another, `--column`; lists of words are joined
by spaces) and `label`. A twentieth of the training texts is held out and never trained on: what is chosen later (a
variant of a method, say) can be chosen there. The rate rises linearly over the first tenth of the steps and falls
linearly to 0. The same seed on the same machine gives the same weights: attention is eager, since its fused backward
passes are not deterministic.

With `--masking 0.3` every training text is masked at random, anew in each epoch: up to 30 % of its ordinary tokens, by
[PAD], [MASK] or deletion (`--masked-by`). Masked texts are then nothing new to the model, and masking can be measured
on it without the objection that it reads texts of a kind that it never saw (F-Fidelity, docs/evaluation.md). `--base`
may be a classifier that was trained before.

DIR gets the model in float16 (load it with `dtype=torch.float32`), the tokenizer, `heldout.parquet`, and
`training.json` with the settings, the accuracies and a hash of the weights.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaflow.data import open_data
from gaflow.files import write_atomically

HELD_OUT = 20  # one in so many


@dataclass(frozen=True)
class Training:
    """Settings of a fine-tuning run."""

    epochs: int = 3
    batch_size: int = 64
    rate: float = 5e-5
    decay: float = 0.01
    warm_up: float = 0.1
    max_length: int = 512
    texts: int | None = None  # to train on, drawn by `seed`; None: all
    seed: int = 0
    masking: float = 0.0  # the largest share of the ordinary tokens of a training text that is masked
    masked_by: str = "pad,mask,delete"  # one of them for each text


@dataclass(frozen=True)
class Texts:
    """Texts as token ids, with the classes they belong to."""

    ids: list[list[int]]  # (n,) of (t,)
    classes: list[int]  # (n,)


def read(path: str, column: str = "text") -> tuple[list[str], list[int]]:
    """Texts and labels of a file; a text may be a list of words."""
    rows = list(open_data(path, text_column=column, label_column="label").read())
    texts = [" ".join(text) if isinstance(text, list) else str(text) for text, _, _ in rows]
    return texts, [int(label) for _, _, label in rows]


def split(count: int, seed: int, most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on, at most `most` of them, and rows held out."""
    order = np.random.default_rng(seed).permutation(count)
    held_out = count // HELD_OUT
    return np.sort(order[held_out:][:most]), np.sort(order[:held_out])


def encode(tokenizer: Any, texts: Sequence[str], classes: Sequence[int], length: int) -> Texts:
    """Token ids, cut to `length`."""
    return Texts(tokenizer(list(texts), truncation=True, max_length=length)["input_ids"], list(classes))


def groups(data: Texts, size: int, rng: np.random.Generator | None) -> Iterator[list[int]]:
    """Batches of similar length; with `rng`, of random members and in random order."""
    lengths = np.array([len(ids) for ids in data.ids])
    noise = np.zeros(len(lengths)) if rng is None else rng.uniform(-0.1, 0.1, len(lengths))
    order = np.argsort(lengths * (1 + noise), kind="stable")
    batches = [order[k : k + size].tolist() for k in range(0, len(order), size)]
    if rng is not None:
        rng.shuffle(batches)  # type: ignore[arg-type]
    yield from batches


def mask_at_random(
    data: Texts, special: set[int], tokens: dict[str, int | None], share: float, rng: np.random.Generator
) -> Texts:
    """The texts with a random part of their ordinary tokens masked, at most `share` of them.

    `tokens` has for each way of masking the id that masked tokens get, or None for deletion.
    """
    ways = list(tokens.values())
    masked_texts = []
    for ids in data.ids:
        ordinary = [position for position, token in enumerate(ids) if token not in special]
        most = int(share * len(ordinary) + 1e-9)  # whole tokens
        masked = set(rng.permutation(ordinary)[: rng.integers(0, most + 1)].tolist())
        token = ways[rng.integers(len(ways))]
        if token is None:
            masked_texts.append([kept for position, kept in enumerate(ids) if position not in masked])
        else:
            masked_texts.append([token if position in masked else kept for position, kept in enumerate(ids)])
    return Texts(masked_texts, data.classes)


def collate(data: Texts, group: Sequence[int], pad: int, device: torch.device) -> dict[str, Tensor]:
    """The model's inputs for some texts."""
    longest = max(len(data.ids[k]) for k in group)
    ids = torch.full((len(group), longest), pad)  # masked tokens may have the same id, but attention is on there
    mask = torch.zeros_like(ids)
    for row, k in enumerate(group):
        ids[row, : len(data.ids[k])] = torch.tensor(data.ids[k])
        mask[row, : len(data.ids[k])] = 1
    classes = torch.tensor([data.classes[k] for k in group])
    inputs = {"input_ids": ids, "attention_mask": mask, "labels": classes}
    return {name: value.to(device, non_blocking=True) for name, value in inputs.items()}


def fine_tune(
    model: Any,
    data: Any,
    pad: int,
    settings: Training,
    device: torch.device,
    mask: Callable[[Any], Any] | None = None,
    make_inputs: Callable[..., dict[str, Tensor]] = collate,
) -> list[float]:
    """Train `model` in place; the mean loss of each epoch. `mask` changes the texts of each epoch.

    `make_inputs` makes the model's inputs from `data`, which is anything with `ids`, as `collate` does from Texts.
    """
    torch.manual_seed(settings.seed)
    rng = np.random.default_rng(settings.seed)
    steps = settings.epochs * -(-len(data.ids) // settings.batch_size)
    optimizer = torch.optim.AdamW(model.parameters(), settings.rate, weight_decay=settings.decay)
    warm = max(1, int(settings.warm_up * steps))
    rates = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda k: min((k + 1) / warm, max(0.0, (steps - k) / max(1, steps - warm)))
    )
    model.train()
    losses = []
    for _ in range(settings.epochs):
        total = torch.zeros((), device=device)
        epoch_data = data if mask is None else mask(data)
        for group in groups(epoch_data, settings.batch_size, rng):
            inputs = make_inputs(epoch_data, group, pad, device)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss = model(**inputs).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rates.step()
            total += loss.detach() * len(group)
        losses.append(float(total) / len(data.ids))
    model.eval()
    return losses


def random_masking(tokenizer: Any, settings: Training) -> Callable[[Texts], Texts]:
    """A function that masks texts at random, differently each time it is called."""
    rng = np.random.default_rng([settings.seed, 1])
    ids: dict[str, int | None] = {"pad": tokenizer.pad_token_id, "mask": tokenizer.mask_token_id, "delete": None}
    tokens = {name: ids[name] for name in settings.masked_by.split(",")}
    for name, token in tokens.items():
        if token is None and name != "delete":
            raise SystemExit(f"the tokenizer has no {name} token; name other ways by --masked-by")
    special = set(tokenizer.all_special_ids)
    return lambda data: mask_at_random(data, special, tokens, settings.masking, rng)


@torch.no_grad()
def accuracy(model: Any, data: Texts, pad: int, device: torch.device) -> float:
    """Share of texts whose class is the largest logit."""
    right = torch.zeros((), device=device)
    for group in groups(data, 128, None):
        inputs = collate(data, group, pad, device)
        right += (model(**inputs).logits.argmax(-1) == inputs["labels"]).sum()
    return float(right) / len(data.ids)


def weight_hash(model: Any) -> str:
    """SHA-256 over names and values of the weights."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """While this lasts, torch gives the same numbers again. What runs afterwards may use any operation of a GPU."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def train(
    base: str,
    files: tuple[str, str],
    labels: Sequence[str],
    out: Path,
    settings: Training,
    device: str,
    column: str = "text",
) -> dict:
    """Fine-tune `base` on the first of `files`, test it on the second; what is written to training.json."""
    with repeatable(settings.seed):
        return _train(base, files, labels, out, settings, device, column)


def _train(
    base: str, files: tuple[str, str], labels: Sequence[str], out: Path, settings: Training, device: str, column: str
) -> dict:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    started, target_device = time.perf_counter(), torch.device(device)
    tokenizer = AutoTokenizer.from_pretrained(base)
    names = dict(enumerate(labels))
    model = AutoModelForSequenceClassification.from_pretrained(
        base,
        num_labels=len(names),
        id2label=names,
        label2id={name: k for k, name in names.items()},
        attn_implementation="eager",
        dtype=torch.float32,
    ).to(target_device)
    texts, classes = read(files[0], column)
    training_rows, heldout_rows = split(len(texts), settings.seed, settings.texts)
    parts = {
        "train": ([texts[k] for k in training_rows], [classes[k] for k in training_rows]),
        "heldout": ([texts[k] for k in heldout_rows], [classes[k] for k in heldout_rows]),
        "test": read(files[1], column),
    }
    data = {name: encode(tokenizer, part[0], part[1], settings.max_length) for name, part in parts.items()}
    pad = int(tokenizer.pad_token_id)
    mask = None
    if settings.masking:
        mask = random_masking(tokenizer, settings)
    losses = fine_tune(model, data["train"], pad, settings, target_device, mask)
    model.half().float()  # what is stored is what is tested
    record = {
        "base": Path(base).name,
        "train": Path(files[0]).name,
        "test": Path(files[1]).name,
        "settings": asdict(settings),
        "texts": {name: len(part.ids) for name, part in data.items()},
        "loss": losses,
        "accuracy": {name: accuracy(model, data[name], pad, target_device) for name in ("heldout", "test")},
    }
    out.mkdir(parents=True, exist_ok=True)
    model.half().save_pretrained(out)
    tokenizer.model_max_length = settings.max_length
    tokenizer.save_pretrained(out)
    _write_held_out(out / "heldout.parquet", *parts["heldout"])
    record |= {"weights": weight_hash(model), "seconds": time.perf_counter() - started}
    write_atomically(out / "training.json", (json.dumps(record, indent=2) + "\n").encode())  # last: all else is there
    return record


def _write_held_out(path: Path, texts: list[str], classes: list[int]) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"text": texts, "label": classes}), path, compression="zstd")


def main() -> None:
    """Train from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="folder or hub id of the encoder")
    parser.add_argument("--train", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--column", default="text", help="of the texts, or of lists of their words")
    parser.add_argument("--labels", required=True, help="names of the classes, by comma")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=Training.epochs)
    parser.add_argument("--max-length", type=int, default=Training.max_length)
    parser.add_argument("--texts", type=int, help="texts to train on; all if left out")
    parser.add_argument("--seed", type=int, default=Training.seed)
    parser.add_argument("--masking", type=float, default=0.0, help="share of a training text, masked at most")
    parser.add_argument("--masked-by", default=Training.masked_by, help="pad, mask or delete, by comma")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    if not 0 <= options.masking < 1:
        raise SystemExit(f"--masking must be at least 0 and below 1, not {options.masking}")
    settings = Training(
        epochs=options.epochs,
        max_length=options.max_length,
        texts=options.texts,
        seed=options.seed,
        masking=options.masking,
        masked_by=options.masked_by,
    )
    files, labels = (options.train, options.test), options.labels.split(",")
    record = train(options.base, files, labels, options.out, settings, options.device, options.column)
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
