"""Fine-tune an encoder to tag entities, or to find answers in a text.

    python -m benchmarks.train_located --task token-classification --base DIR --train FILE --test FILE --out DIR
    python -m benchmarks.train_located --task question-answering --base DIR --train FILE --out DIR

Entities: FILE is Parquet with `tokens` (words) and `tags` (B-, I- and O), one list each per text. Every piece of a word
is tagged; the pieces after the first of a word that begins an entity are inside it. Tested by the F1 of entities: the
same words, the same type.

Answers: FILE is Parquet with `question`, `context` and `answers` (a list of `text` and `answer_start`). Without
`--test`, a fifth of the contexts is held out with all questions on them. Tested by the share of answers that are
exactly one of the given ones, and by the overlap of words (F1), both after SQuAD's normalisation.

DIR gets the model in float16 (load it with `dtype=torch.float32`), the tokenizer, `heldout.parquet` with the texts to
test on, and `training.json` with the settings, the accuracies and a hash of the weights. Settings of training are those
of `train_classifier.py`. The same seed on the same machine gives the same weights.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import string
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import torch
from torch import Tensor

from benchmarks.train_classifier import Training, fine_tune, groups, repeatable, weight_hash
from gaflow import Explainer
from gaflow.files import write_atomically

TASKS = ("token-classification", "question-answering")
NO_LABEL = -100  # as in torch's cross entropy
OUTSIDE = "O"
HELD_OUT = 5  # one context in so many
Row = dict[str, Any]  # of a file
EntitySpan = tuple[int, int, str]  # first and last word, type


@dataclass(frozen=True)
class LocatedTexts:
    """Texts as token ids, with what is to be found in them."""

    ids: list[list[int]]  # (n,) of (t,)
    segments: list[list[int]]  # (n,) of (t,), 1 for the second text of a pair
    labels: list[list[int]]  # (n,) of tags (t,), or of the first and the last token of the answer


def tag_names(rows: Sequence[Row]) -> list[str]:
    """O, then B- and I- of every type."""
    types = {tag[2:] for row in rows for tag in row["tags"] if tag != OUTSIDE}
    names = [OUTSIDE]
    for kind in sorted(types):
        names += [f"B-{kind}", f"I-{kind}"]
    return names


def encode_tags(tokenizer: Any, rows: Sequence[Row], names: Sequence[str], length: int) -> LocatedTexts:
    """Token ids and tags of sentences."""
    texts = LocatedTexts([], [], [])
    for row in rows:
        encoded = tokenizer(row["tokens"], is_split_into_words=True, truncation=True, max_length=length)
        words = encoded.word_ids()
        labels = []
        for position, word in enumerate(words):
            if word is None:
                labels.append(NO_LABEL)
                continue
            tag = row["tags"][word]
            is_later_piece = words[position - 1] == word
            labels.append(names.index(tag.replace("B-", "I-") if is_later_piece else tag))
        texts.ids.append(encoded["input_ids"])
        texts.segments.append([0] * len(labels))
        texts.labels.append(labels)
    return texts


def encode_answers(tokenizer: Any, rows: Sequence[Row], length: int) -> LocatedTexts:
    """Token ids of questions and contexts, and the tokens of their answers; without answers that are cut off."""
    texts = LocatedTexts([], [], [])
    for row in rows:
        encoded = tokenizer(row["question"], row["context"], truncation="only_second", max_length=length)
        answer = row["answers"][0]
        end = answer["answer_start"] + len(answer["text"])
        first = encoded.char_to_token(answer["answer_start"], sequence_index=1)
        last = encoded.char_to_token(end - 1, sequence_index=1)
        if first is None or last is None:
            continue
        texts.ids.append(encoded["input_ids"])
        texts.segments.append(encoded["token_type_ids"])
        texts.labels.append([first, last])
    return texts


def collate_tags(data: LocatedTexts, group: Sequence[int], pad: int, device: torch.device) -> dict[str, Tensor]:
    """A tagger's inputs for some texts."""
    inputs = _padded(data, group, pad)
    labels = torch.full_like(inputs["input_ids"], NO_LABEL)
    for row, k in enumerate(group):
        labels[row, : len(data.labels[k])] = torch.tensor(data.labels[k])
    inputs["labels"] = labels
    return {name: value.to(device) for name, value in inputs.items()}


def collate_answers(data: LocatedTexts, group: Sequence[int], pad: int, device: torch.device) -> dict[str, Tensor]:
    """The inputs of a model that finds answers, for some texts."""
    inputs = _padded(data, group, pad)
    ends = torch.tensor([data.labels[k] for k in group])
    inputs["start_positions"] = ends[:, 0]
    inputs["end_positions"] = ends[:, 1]
    return {name: value.to(device) for name, value in inputs.items()}


def _padded(data: LocatedTexts, group: Sequence[int], pad: int) -> dict[str, Tensor]:
    longest = max(len(data.ids[k]) for k in group)
    ids = torch.full((len(group), longest), pad)
    mask = torch.zeros_like(ids)
    segments = torch.zeros_like(ids)
    for row, k in enumerate(group):
        length = len(data.ids[k])
        ids[row, :length] = torch.tensor(data.ids[k])
        mask[row, :length] = 1
        segments[row, :length] = torch.tensor(data.segments[k])
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}


def entity_spans(tags: Sequence[str]) -> set[EntitySpan]:
    """Entities of a sentence: runs of tags of one type, of which none but the first begins an entity."""
    spans: list[EntitySpan] = []
    for word, tag in enumerate(tags):
        prefix, _, kind = tag.partition("-")
        if tag == OUTSIDE:
            continue
        is_continued = prefix == "I" and bool(spans) and spans[-1][1] == word - 1 and spans[-1][2] == kind
        if is_continued:
            spans[-1] = (spans[-1][0], word, kind)
        else:
            spans.append((word, word, kind))
    return set(spans)


@torch.no_grad()
def score_tagger(
    model: Any, tokenizer: Any, rows: Sequence[Row], pad: int, length: int, device: torch.device
) -> dict[str, float]:
    """Precision, recall and F1 of entities, by the tag of each word's first piece."""
    names = [model.config.id2label[k] for k in range(model.config.num_labels)]
    data = encode_tags(tokenizer, rows, names, length)
    counts: collections.Counter[str] = collections.Counter()
    for group in groups(data, 64, None):  # type: ignore[arg-type]
        inputs = collate_tags(data, group, pad, device)
        predicted = model(**inputs).logits.argmax(-1).tolist()
        for row, k in enumerate(group):
            words = tokenizer(
                rows[k]["tokens"], is_split_into_words=True, truncation=True, max_length=length
            ).word_ids()
            tags = [OUTSIDE] * len(rows[k]["tokens"])
            for position, word in enumerate(words):
                if word is not None and words[position - 1] != word:
                    tags[word] = names[predicted[row][position]]
            found = entity_spans(tags)
            gold = entity_spans(rows[k]["tags"])
            counts += collections.Counter(right=len(found & gold), found=len(found), gold=len(gold))
    precision = counts["right"] / max(1, counts["found"])
    recall = counts["right"] / max(1, counts["gold"])
    f1 = 2 * counts["right"] / max(1, counts["found"] + counts["gold"])
    return {"precision": precision, "recall": recall, "f1": f1}


def normalised_answer(text: str) -> str:
    """SQuAD's: small letters, no punctuation, no articles, single spaces."""
    bare = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def answer_f1(answer: str, gold: str) -> float:
    """Overlap of words."""
    words = normalised_answer(answer).split()
    gold_words = normalised_answer(gold).split()
    common = sum((collections.Counter(words) & collections.Counter(gold_words)).values())
    if not common:
        return 0.0
    return 2 * common / (len(words) + len(gold_words))


def score_answers(explainer: Explainer, rows: Sequence[Row]) -> dict[str, float]:
    """Shares of exact answers and mean overlaps, of the answers that gaflow explains."""
    pairs = [(row["question"], row["context"]) for row in rows]
    exact = []
    overlap = []
    for row, attribution in zip(rows, explainer(pairs, "random", truncation=True), strict=True):
        answers = [answer["text"] for answer in row["answers"]]
        predicted = str(attribution.prediction)
        exact.append(normalised_answer(predicted) in map(normalised_answer, answers))
        overlap.append(max(answer_f1(predicted, answer) for answer in answers))
    return {"exact": float(np.mean(exact)), "f1": float(np.mean(overlap))}


def hold_out(rows: Sequence[Row], seed: int) -> tuple[list[Row], list[Row]]:
    """Rows to train on, and those of the contexts that are held out."""
    contexts = sorted({row["context"] for row in rows})
    order = np.random.default_rng(seed).permutation(len(contexts))
    held_out = {contexts[k] for k in order[: len(contexts) // HELD_OUT]}
    return [row for row in rows if row["context"] not in held_out], [row for row in rows if row["context"] in held_out]


def train(task: str, base: str, files: tuple[str, str | None], out: Path, settings: Training, device: str) -> dict:
    """Fine-tune `base` on the first of `files`, test it on the second; what is written to training.json."""
    from transformers import AutoModelForQuestionAnswering, AutoModelForTokenClassification, AutoTokenizer

    started = time.perf_counter()
    target_device = torch.device(device)
    tokenizer = AutoTokenizer.from_pretrained(base)
    pad = int(tokenizer.pad_token_id)
    rows = pyarrow.parquet.read_table(files[0]).to_pylist()
    if files[1] is None:
        training_rows, test_rows = hold_out(rows, settings.seed)
    else:
        training_rows = rows
        test_rows = pyarrow.parquet.read_table(files[1]).to_pylist()
    training_rows = training_rows[: settings.texts]
    options: dict[str, Any] = {"attn_implementation": "eager", "dtype": torch.float32}
    with repeatable(settings.seed):
        if task == "token-classification":
            names = tag_names(rows)
            options |= {"id2label": dict(enumerate(names)), "label2id": {name: k for k, name in enumerate(names)}}
            model = AutoModelForTokenClassification.from_pretrained(base, num_labels=len(names), **options)
            data = encode_tags(tokenizer, training_rows, names, settings.max_length)
            make_inputs = collate_tags
        else:
            model = AutoModelForQuestionAnswering.from_pretrained(base, **options)
            data = encode_answers(tokenizer, training_rows, settings.max_length)
            make_inputs = collate_answers
        model = model.to(target_device)
        losses = fine_tune(model, data, pad, settings, target_device, make_inputs=make_inputs)
    model.half().float()  # what is stored is what is tested
    tokenizer.model_max_length = settings.max_length
    if task == "token-classification":
        tested = score_tagger(model, tokenizer, test_rows, pad, settings.max_length, target_device)
    else:
        tested = score_answers(Explainer(model, tokenizer, task=task), test_rows)
    record = {
        "task": task,
        "base": Path(base).name,
        "train": Path(files[0]).name,
        "test": "contexts held out" if files[1] is None else Path(files[1]).name,
        "settings": asdict(settings),
        "texts": {"train": len(data.ids), "test": len(test_rows)},
        "loss": losses,
        "test_scores": tested,
    }
    out.mkdir(parents=True, exist_ok=True)
    model.half().save_pretrained(out)
    tokenizer.save_pretrained(out)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(test_rows), out / "heldout.parquet", compression="zstd")
    record |= {"weights": weight_hash(model), "seconds": time.perf_counter() - started}
    write_atomically(out / "training.json", (json.dumps(record, indent=2) + "\n").encode())  # last: all else is there
    return record


def main() -> None:
    """Train from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--base", required=True, help="folder or hub id of the encoder")
    parser.add_argument("--train", required=True)
    parser.add_argument("--test", help="left out: a fifth of the contexts, for answers")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--max-length", type=int, default=384)
    parser.add_argument("--texts", type=int, help="texts to train on; all if left out")
    parser.add_argument("--seed", type=int, default=Training.seed)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    if options.task == "token-classification" and options.test is None:
        raise SystemExit("--test names the texts that the tagger is tested on")
    settings = Training(
        epochs=options.epochs,
        batch_size=options.batch_size,
        rate=options.rate,
        max_length=options.max_length,
        texts=options.texts,
        seed=options.seed,
    )
    files = (options.train, options.test)
    print(json.dumps(train(options.task, options.base, files, options.out, settings, options.device), indent=2))


if __name__ == "__main__":
    main()
