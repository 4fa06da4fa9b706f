"""Train a classifier of another architecture to imitate a fine-tuned BERT.

    python -m benchmarks.train_student --teacher DIR --family modernbert --train FILE --test FILE --out DIR

Nothing pretrained is needed but the teacher: the student has the teacher's tokenizer and begins with its word
embeddings; all else is drawn at random. Families: `modernbert` (pre-norm, gated, rotary, local and global attention),
`deberta` (disentangled relative attention), `distilbert` (post-norm, learned positions) and `llama` (a causal decoder:
RMSNorm, SwiGLU, rotary, grouped queries). With z the logits and y the gold label of a text that was left as it is, the
loss is

    T² KL(softmax(z_teacher / T) ‖ softmax(z / T)) + γ CE(z, y)

Texts are cropped and words exchanged at random, and the teacher judges what came out. `--more` adds texts without
labels, cut into sentences with `--sentences`. The test file is only used to report the accuracy.

DIR gets the model, the tokenizer and `training.json` with settings, accuracies and the agreement with the teacher.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.train_classifier import Texts, collate, groups, read, weight_hash
from gaflow.files import write_atomically

NO_LABEL = -100  # as in torch's cross entropy


@dataclass(frozen=True)
class Distillation:
    """How a student is trained."""

    steps: int = 4000
    batch_size: int = 128
    rate: float = 3e-4
    warm_up: float = 0.1
    decay: float = 0.01
    temperature: float = 2.0
    gold_weight: float = 0.3  # γ
    crop: float = 0.3  # share of texts that are cropped
    exchange: float = 0.05  # share of tokens that are exchanged, in the other half of the texts
    max_length: int = 192
    seed: int = 0


def student(family: str, teacher: Any) -> Any:
    """A classifier of `family` with the teacher's vocabulary, width, classes and word embeddings."""
    import transformers

    of_teacher = teacher.config
    width = of_teacher.hidden_size
    shared = {
        "vocab_size": of_teacher.vocab_size,
        "max_position_embeddings": 512,
        "pad_token_id": of_teacher.pad_token_id,
        "id2label": of_teacher.id2label,
        "label2id": of_teacher.label2id,
    }
    sizes = {"hidden_size": width, "num_hidden_layers": 6, "num_attention_heads": 6}
    if family == "modernbert":
        config = transformers.ModernBertConfig(
            **shared,
            **sizes,
            intermediate_size=576,
            cls_token_id=101,
            sep_token_id=102,
            bos_token_id=101,
            eos_token_id=102,
        )
        model = transformers.ModernBertForSequenceClassification(config)
    elif family == "deberta":
        relative: dict[str, Any] = {
            "relative_attention": True,
            "position_buckets": 64,
            "position_biased_input": False,
            "pos_att_type": ["p2c", "c2p"],
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "type_vocab_size": 0,
            "pooler_hidden_size": width,
        }
        config = transformers.DebertaV2Config(**shared, **sizes, **relative, intermediate_size=1536)
        model = transformers.DebertaV2ForSequenceClassification(config)
    elif family == "distilbert":
        config = transformers.DistilBertConfig(**shared, dim=width, hidden_dim=1536, n_layers=6, n_heads=12)
        model = transformers.DistilBertForSequenceClassification(config)
    elif family == "llama":
        config = transformers.LlamaConfig(
            **shared, **sizes, intermediate_size=1024, num_key_value_heads=2, bos_token_id=101, eos_token_id=102
        )
        model = transformers.LlamaForSequenceClassification(config)
    else:
        raise SystemExit(f"no family {family!r}; there are {', '.join(FAMILIES)}")
    with torch.no_grad():
        embeddings: Any = model.get_input_embeddings()
        embeddings.weight.copy_(teacher.get_input_embeddings().weight)
    return model


FAMILIES = ("modernbert", "deberta", "distilbert", "llama")


def sentences_of(text: str) -> list[str]:
    """The sentences of a text, without the tags of line breaks."""
    plain = text.replace("<br />", " ")
    for mark in ".!?":
        plain = plain.replace(f"{mark} ", f"{mark}\n")
    return [sentence.strip().lower() for sentence in plain.split("\n") if len(sentence.split()) >= 3]


def change(ids: list[int], rng: np.random.Generator, pool: np.ndarray, settings: Distillation) -> list[int] | None:
    """Token ids of a crop of a text, or with other words in it; None if the text stays as it is."""
    draw = rng.random()
    inner = len(ids) - 2  # between [CLS] and [SEP]
    if draw < settings.crop and inner > 3:
        length = int(rng.integers(2, inner))
        start = int(rng.integers(1, 2 + inner - length))
        return [ids[0], *ids[start : start + length], ids[-1]]
    if draw < (1 + settings.crop) / 2:
        exchanged = rng.random(len(ids)) < settings.exchange
        exchanged[[0, -1]] = False
        if exchanged.any():
            changed = np.array(ids)
            changed[exchanged] = rng.choice(pool, exchanged.sum())
            return changed.tolist()
    return None


def batches(data: Texts, pad: int, settings: Distillation, device: torch.device) -> Iterator[dict[str, Tensor]]:
    """Batches of texts, changed anew in every pass."""
    rng = np.random.default_rng(settings.seed)
    pool = np.concatenate([np.array(ids[1:-1]) for ids in data.ids])
    while True:
        ids = []
        classes = []
        for text_ids, label in zip(data.ids, data.classes, strict=True):
            changed = change(text_ids, rng, pool, settings)
            ids.append(text_ids if changed is None else changed)
            classes.append(label if changed is None else NO_LABEL)
        drawn = Texts(ids, classes)
        for group in groups(drawn, settings.batch_size, rng):
            yield collate(drawn, group, pad, device)


def distil(model: Any, teacher: Any, data: Texts, pad: int, settings: Distillation, device: torch.device) -> int:
    """Train `model` in place; how many steps were left out because their gradient was not finite."""
    skipped = 0
    model.set_attn_implementation("eager")  # fused attention gives NaN for padding outside of a local window
    optimizer = torch.optim.AdamW(model.parameters(), settings.rate, weight_decay=settings.decay)
    warm = max(1, int(settings.warm_up * settings.steps))
    rates = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda k: min((k + 1) / warm, (settings.steps - k) / max(1, settings.steps - warm))
    )
    model.train()
    stream = batches(data, pad, settings, device)
    for _ in range(settings.steps):
        inputs = next(stream)
        labels = inputs.pop("labels")
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            with torch.no_grad():
                goal = teacher(**inputs).logits.float()
            logits = model(**inputs).logits.float()
        soft = F.kl_div(
            (logits / settings.temperature).log_softmax(-1),
            (goal / settings.temperature).log_softmax(-1),
            reduction="batchmean",
            log_target=True,
        )
        gold = F.cross_entropy(logits, labels, ignore_index=NO_LABEL, reduction="sum") / len(labels)
        loss = settings.temperature**2 * soft + settings.gold_weight * gold
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if norm.isfinite():
            optimizer.step()
        else:
            skipped += 1
        rates.step()
    model.eval()
    return skipped


@torch.no_grad()
def judged(model: Any, teacher: Any, data: Texts, pad: int, device: torch.device) -> dict[str, float]:
    """Accuracy of both, and how often they agree."""
    right = 0
    of_teacher = 0
    agree = 0
    for group in groups(data, 128, None):
        inputs = collate(data, group, pad, device)
        labels = inputs.pop("labels")
        predicted = model(**inputs).logits.argmax(-1)
        goal = teacher(**inputs).logits.argmax(-1)
        right += int((predicted == labels).sum())
        of_teacher += int((goal == labels).sum())
        agree += int((predicted == goal).sum())
    count = len(data.ids)
    return {"accuracy": right / count, "teacher": of_teacher / count, "agreement": agree / count}


def train(
    family: str,
    teacher_folder: Path,
    files: tuple[str, str],
    more: list[str],
    out: Path,
    settings: Distillation,
    device_name: str,
) -> dict[str, Any]:
    """Train a student; what is written to training.json."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    started = time.perf_counter()
    device = torch.device(device_name)
    torch.manual_seed(settings.seed)
    tokenizer = AutoTokenizer.from_pretrained(teacher_folder)
    teacher = AutoModelForSequenceClassification.from_pretrained(teacher_folder, dtype=torch.float32).to(device).eval()
    model = student(family, teacher).to(device)
    texts, classes = read(files[0])
    labels = classes + [NO_LABEL] * len(more)
    encoded = tokenizer(texts + more, truncation=True, max_length=settings.max_length)["input_ids"]
    data = Texts(encoded, labels)
    pad = int(tokenizer.pad_token_id)
    skipped = distil(model, teacher, data, pad, settings, device)
    test_texts, test_classes = read(files[1])
    test = Texts(tokenizer(test_texts, truncation=True, max_length=512)["input_ids"], test_classes)
    record = {
        "family": family,
        "teacher": teacher_folder.name,
        "train": Path(files[0]).name,
        "test": Path(files[1]).name,
        "texts": {"train": len(texts), "without labels": len(more), "test": len(test_texts)},
        "parameters": model.num_parameters(),
        "settings": asdict(settings),
        "skipped steps": skipped,
        "judged": judged(model, teacher, test, pad, device),
    }
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    tokenizer.model_max_length = 512
    tokenizer.save_pretrained(out)
    record |= {"weights": weight_hash(model), "seconds": time.perf_counter() - started}
    write_atomically(out / "training.json", (json.dumps(record, indent=2) + "\n").encode())  # last: all else is there
    return record


def main() -> None:
    """Train from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", type=Path, required=True, help="folder of a BERT classifier")
    parser.add_argument("--family", required=True, choices=FAMILIES)
    parser.add_argument("--train", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--more", help="file of texts whose labels are not read")
    parser.add_argument("--sentences", action="store_true", help="take the sentences of these texts")
    parser.add_argument("--most", type=int, default=100_000, help="of the texts without labels")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=Distillation.steps)
    parser.add_argument("--seed", type=int, default=Distillation.seed)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    more: list[str] = []
    if options.more:
        unlabelled = read(options.more)[0]
        if options.sentences:
            for text in unlabelled:
                more += sentences_of(text)
        else:
            more = unlabelled
        order = np.random.default_rng(options.seed).permutation(len(more))[: options.most]
        more = [more[index] for index in order]
    settings = Distillation(steps=options.steps, seed=options.seed)
    record = train(
        options.family, options.teacher, (options.train, options.test), more, options.out, settings, options.device
    )
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
