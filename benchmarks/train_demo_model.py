"""Train the sentiment classifier that ships inside gaflow: a small BERT distilled from a larger one.

    python benchmarks/train_demo_model.py --corpus corpus.parquet --teacher DIR --out DIR --log FILE

`demo_corpus.py` writes the corpus. The teacher is cut down (vocabulary, width, heads, inner width) and what
is left is trained to imitate it. With z the logits, h_l the hidden states after layer l, W_l a linear map
trained along and dropped in the end, and y a gold label where there is one (SST-2 phrases, passages of
reviews), the loss is

    T² KL(softmax(z_teacher / T) ‖ softmax(z / T)) + λ mean_l |W_l h_l - h_l,teacher|² / σ_l² + γ CE(z, y),

λ falling linearly to 0. Nothing is chosen by SST-2 test, which this script never reads.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import torch
import transformers
from demo_batches import POSITIONS, Batch, Corpus, Cutter, PieceTable, load_corpus
from demo_student import SPECIAL, Settings, layer_map, principal_basis, prune_vocabulary, shrink, student_tokenizer
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertForSequenceClassification

LONG = 60  # words: passages from this length on are given the verdict of their review


@dataclass(frozen=True)
class Pair:
    """Both models and what connects them."""

    teacher: BertForSequenceClassification
    student: BertForSequenceClassification
    tables: tuple[PieceTable, PieceTable]  # the teacher's and the student's
    layers: list[int]  # of the teacher, one for each hidden state of the student
    maps: nn.ModuleList  # W_l: student width -> teacher width
    variances: list[float]  # σ_l²


def draw_spans(corpus: Corpus, s: Settings, rng: np.random.Generator) -> np.ndarray:
    """The examples of one pass, (k, 3): start, stop, gold label or -1."""
    sentences, reviews = corpus.sentences["review"], corpus.texts["review"]
    passage = sentences[rng.integers(len(sentences), size=s.crops)]
    length = passage[:, 1] - passage[:, 0]
    part = rng.integers(2, length + 1)
    start = passage[:, 0] + rng.integers(0, length - part + 1)
    crops = np.stack([start, start + part, passage[:, 2]], 1)
    passage = reviews[rng.integers(len(reviews), size=s.passages)]
    length = passage[:, 1] - passage[:, 0]
    part = np.minimum(length, np.exp(rng.uniform(np.log(30), np.log(420), len(passage))).astype(int))
    start = passage[:, 0] + rng.integers(0, length - part + 1)
    # a short cut of a review need not share the review's verdict
    passages = np.stack([start, start + part, np.where(part >= LONG, passage[:, 2], -1)], 1)
    phrases = np.tile(corpus.texts["phrase"], (s.phrase_repeats, 1))
    return np.concatenate([phrases, sentences, corpus.texts["made"], crops, passages])


def forever(corpus: Corpus, tables: tuple[PieceTable, PieceTable], s: Settings) -> Iterator[Batch]:
    """Pass after pass over freshly drawn spans of a freshly noised stream."""
    device = tables[0].ids.device
    rng, device_rng = np.random.default_rng(s.seed), torch.Generator(device).manual_seed(s.seed)
    stream = torch.from_numpy(corpus.stream).to(device)
    while True:
        noisy = torch.rand(len(stream), device=device, generator=device_rng) < s.noise
        other = stream[torch.randint(len(stream), (len(stream),), device=device, generator=device_rng)]
        cutter = Cutter(torch.where(noisy, other, stream), *tables)
        spans = draw_spans(corpus, s, rng)
        replaced = F.pad(noisy.cumsum(0), (1, 0)).cpu().numpy()
        # a phrase's gold label need not survive another word, the verdict of a long passage does
        short = spans[:, 1] - spans[:, 0] < LONG
        spans[short & (replaced[spans[:, 1]] > replaced[spans[:, 0]]), 2] = -1
        yield from cutter.batches(spans, s.batch_tokens, rng)


def forward(model: BertForSequenceClassification, ids: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Logits (b, 2) and the hidden states (b, t, d) of all layers."""
    out = model(input_ids=ids, attention_mask=(ids != 0).long(), output_hidden_states=True)
    return out.logits.float(), out.hidden_states


def hidden_loss(ours: list[Tensor], theirs: list[Tensor], meets: Tensor, pair: Pair) -> Tensor:
    """Squared distance to the teacher's states at the first piece of every word, per unit of variance."""
    weight = (meets >= 0).float() / (meets >= 0).sum()
    at = meets.clamp_min(0)[..., None].expand(-1, -1, theirs[0].shape[-1])
    losses = []
    for student_states, target, to_teacher, variance in zip(ours, theirs, pair.maps, pair.variances, strict=True):
        error = (to_teacher(student_states).float() - target.gather(1, at).float()).square().mean(-1)
        losses.append((error * weight).sum() / variance)
    return torch.stack(losses).mean()


def soft_loss(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T² KL(teacher ‖ student), mean over the batch."""
    goal, ours = ((z / temperature).log_softmax(-1) for z in (teacher, logits))
    return F.kl_div(ours, goal, reduction="batchmean", log_target=True) * temperature**2


def train(pair: Pair, corpus: Corpus, s: Settings, device: torch.device, report_steps: int) -> list[dict[str, float]]:
    """Train the student in place; the measurements on the way."""
    parameters = [*pair.student.parameters(), *pair.maps.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=s.rate, weight_decay=s.weight_decay, fused=device.type == "cuda")
    warm = max(1, int(s.warmup * s.steps))
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda i: min((i + 1) / warm, (s.steps - i) / max(1, s.steps - warm))
    )
    log, begun, texts = [], time.perf_counter(), 0
    stream = forever(corpus, pair.tables, s)
    pair.student.train()
    for step in range(s.steps):
        batch = next(stream)
        texts += len(batch.label)
        with torch.autocast(device.type, torch.bfloat16):
            with torch.no_grad():
                goal, theirs = forward(pair.teacher, batch.teacher)
            logits, ours = forward(pair.student, batch.student)
            hidden = hidden_loss(list(ours), [theirs[i] for i in pair.layers], batch.meets, pair)
        soft = soft_loss(logits, goal, s.temperature)
        gold = F.cross_entropy(logits, batch.label, ignore_index=-1, reduction="sum") / len(batch.label)
        loss = soft + s.hidden_weight * (1 - step / s.steps) * hidden + s.gold_weight * gold
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        rate.step()
        if (step + 1) % report_steps == 0 or step + 1 == s.steps:
            point = {"step": step + 1, "texts": texts, "seconds": time.perf_counter() - begun}
            point |= {"soft": soft.item(), "hidden": hidden.item(), "gold": gold.item()}
            point |= measure(pair, corpus, device)
            log.append({key: round(value, 5) for key, value in point.items()})
            print(json.dumps(log[-1]), flush=True)
    return log


@torch.no_grad()
def measure(pair: Pair, corpus: Corpus, device: torch.device) -> dict[str, float]:
    """Accuracy on SST-2 dev, and agreement with the teacher there and on held-out sentences of reviews."""
    pair.student.eval()
    cutter = Cutter(torch.from_numpy(corpus.stream).to(device), *pair.tables)
    rng = np.random.default_rng(0)
    measured: dict[str, float] = {}
    for name, spans in {"dev": corpus.texts["dev"], "held_out": corpus.sentences["held-out"]}.items():
        ours, theirs, labels = [], [], []
        for batch in cutter.batches(spans, 8192, rng):
            ours.append(forward(pair.student, batch.student)[0])
            theirs.append(forward(pair.teacher, batch.teacher)[0])
            labels.append(batch.label)
        student_states, goal, label = (torch.cat(rows) for rows in (ours, theirs, labels))
        measured[f"{name}_kl"] = soft_loss(student_states, goal, 1.0).item()
        measured[f"{name}_agreement"] = (student_states.argmax(-1) == goal.argmax(-1)).double().mean().item()
        if name == "dev":
            measured["dev_accuracy"] = (student_states.argmax(-1) == label).double().mean().item()
            measured["dev_loss"] = F.cross_entropy(student_states, label).item()
    pair.student.train()
    return measured


@torch.no_grad()
def set_up(corpus: Corpus, teacher_path: Path, s: Settings, device: torch.device) -> tuple[Pair, Tokenizer]:
    """The teacher, the student cut out of it, and the student's tokenizer."""
    teacher = BertForSequenceClassification.from_pretrained(teacher_path, dtype=torch.float32).eval()
    nn.Module.to(teacher, device)
    of_teacher = Tokenizer.from_file(str(teacher_path / "tokenizer.json"))
    vocabulary = prune_vocabulary(corpus, of_teacher, s.vocabulary)
    tokenizer = student_tokenizer(of_teacher, vocabulary)
    tables = PieceTable.of(corpus.words, of_teacher, device), PieceTable.of(corpus.words, tokenizer, device)
    cutter = Cutter(torch.from_numpy(corpus.stream).to(device), *tables)
    sample = next(cutter.batches(corpus.sentences["held-out"][:1000], 32_768, np.random.default_rng(0)))
    hidden = [h[sample.teacher != 0] for h in forward(teacher, sample.teacher)[1]]
    basis = principal_basis(torch.cat(hidden), s.width)
    index = of_teacher.get_vocab()
    student = shrink(teacher, [index[piece] for piece in vocabulary], basis, s)
    layers = layer_map(s.layers, teacher.config.num_hidden_layers)
    maps = [nn.Linear(s.width, teacher.config.hidden_size, device=device) for _ in layers]
    for linear in maps:
        linear.weight.copy_(basis)
    variances = [hidden[i].var().item() for i in layers]
    return Pair(teacher, student, tables, layers, nn.ModuleList(maps), variances), tokenizer


def save(student: BertForSequenceClassification, tokenizer: Tokenizer, out: Path) -> None:
    """Standard Hugging Face layout, weights in float16."""
    student.half().save_pretrained(out)
    tokenizer.save(str(out / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",  # BertTokenizer would build a normalizer of its own
        "model_max_length": POSITIONS,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
    config |= {f"{name[1:-1].lower()}_token": name for name in SPECIAL}
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def report(pair: Pair, s: Settings, device: torch.device, log: list[dict[str, float]]) -> dict[str, object]:
    """What was trained, how and where."""
    return {
        "settings": asdict(s),
        "parameters": pair.student.num_parameters(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "log": log,
    }


def main() -> None:
    """Read the arguments, train, save the model and the log."""
    parser = argparse.ArgumentParser(description="Train the demo model.")
    parser.add_argument("--corpus", type=Path, required=True, help="written by demo_corpus.py")
    parser.add_argument("--teacher", type=Path, required=True, help="folder of the teacher, Hugging Face layout")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--log", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--every", type=int, default=1000, help="steps between measurements")
    for field in fields(Settings):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    options = parser.parse_args()
    settings = Settings(**{field.name: getattr(options, field.name) for field in fields(Settings)})
    torch.manual_seed(settings.seed)
    device = torch.device(options.device)
    corpus = load_corpus(options.corpus)
    pair, tokenizer = set_up(corpus, options.teacher, settings, device)
    log = train(pair, corpus, settings, device, options.every)
    options.out.mkdir(parents=True, exist_ok=True)
    save(pair.student, tokenizer, options.out)
    options.log.write_text(json.dumps(report(pair, settings, device, log), indent=1) + "\n")


if __name__ == "__main__":
    main()
