"""The student of the demo model's distillation: its shape, its tokenizer and the weights it starts from.

The convention of this file: the student is the teacher cut down. Pieces of words are left out by frequency,
heads and inner neurons by the size of their weights, and hidden states of width d are seen through an
orthonormal basis (d, width) of their strongest directions.
"""

from __future__ import annotations

import string
from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from demo_batches import POSITIONS, Corpus
from tokenizers import Tokenizer, decoders, models, normalizers, processors
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TYPOGRAPHY = {"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": "-", "…": "..."}  # what word processors write


@dataclass(frozen=True)
class Settings:
    """The student's shape and how it is trained."""

    vocabulary: int = 9000
    width: int = 256
    heads: int = 8
    layers: int = 5
    inner: int = 768
    steps: int = 7400
    batch_tokens: int = 65_536
    rate: float = 1e-3
    warmup: float = 0.02
    weight_decay: float = 0.01
    temperature: float = 2.0
    hidden_weight: float = 1.0  # λ at the first step
    gold_weight: float = 0.3  # γ
    noise: float = 0.05  # share of words replaced by others of the corpus, drawn anew in every pass
    phrase_repeats: int = 2  # per pass: SST-2 phrases are few beside the sentences of the reviews
    crops: int = 150_000  # per pass: random parts of sentences
    passages: int = 60_000  # per pass: random parts of reviews, of 30 to 420 words
    seed: int = 0


def prune_vocabulary(corpus: Corpus, teacher: Tokenizer, size: int) -> list[str]:
    """The teacher's most frequent pieces, SST-2 counted tenfold; ASCII characters always."""
    weight = np.bincount(corpus.stream, minlength=len(corpus.words))
    first, last = corpus.texts["phrase"][0, 0], corpus.texts["phrase"][-1, 1]
    weight += 9 * np.bincount(corpus.stream[first:last], minlength=len(corpus.words))
    count: Counter[str] = Counter()
    for word, times in zip(corpus.words, weight.tolist(), strict=True):
        for piece in teacher.model.tokenize(word):
            count[piece.value] += times
    letters = string.ascii_lowercase + string.digits
    always = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *string.punctuation]
    ranked = sorted(count, key=lambda piece: (-count[piece], piece))
    return list(dict.fromkeys([*always, *ranked]))[:size]


def student_tokenizer(teacher: Tokenizer, vocabulary: list[str]) -> Tokenizer:
    """The teacher's tokenizer over fewer pieces, which neither truncates nor pads by itself."""
    index = {piece: i for i, piece in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(index, unk_token="[UNK]", max_input_chars_per_word=100))
    plain = [normalizers.Replace(mark, ascii_mark) for mark, ascii_mark in TYPOGRAPHY.items()]
    tokenizer.normalizer = normalizers.Sequence([*plain, teacher.normalizer])
    tokenizer.pre_tokenizer = teacher.pre_tokenizer
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, index[name]) for name in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def layer_map(layers: int, of: int) -> list[int]:
    """Teacher layers (0 = embeddings) that the student's hidden states imitate, evenly spread."""
    return [round(i * of / layers) for i in range(layers + 1)]


def principal_basis(hidden: Tensor, width: int) -> Tensor:
    """(d, width): the directions that carry most of the teacher's hidden states (k, d)."""
    return torch.linalg.eigh((hidden.T @ hidden).double()).eigenvectors[:, -width:].float()


def student_config(s: Settings, vocabulary: int) -> BertConfig:
    """The student's shape; no dropout, since texts are drawn anew and noised in every pass."""
    return BertConfig(
        vocab_size=vocabulary,
        hidden_size=s.width,
        num_hidden_layers=s.layers,
        num_attention_heads=s.heads,
        intermediate_size=s.inner,
        max_position_embeddings=POSITIONS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        id2label={0: "negative", 1: "positive"},
        label2id={"negative": 0, "positive": 1},
    )


@torch.no_grad()
def shrink(
    teacher: BertForSequenceClassification, token_ids: list[int], basis: Tensor, s: Settings
) -> BertForSequenceClassification:
    """A student made of the teacher's weights: seen through `basis`, strongest heads and neurons kept.

    LayerNorm does not commute with a change of basis: this is a good starting point, no approximation.
    """
    student = BertForSequenceClassification(student_config(s, len(token_ids)))
    nn.Module.to(student, basis.device)
    new, old = student.state_dict(), teacher.state_dict()
    size = teacher.config.hidden_size // teacher.config.num_attention_heads

    def norm(to: str, source: str) -> None:
        new[f"{to}.weight"].fill_(old[f"{source}.weight"].square().mean().sqrt())
        new[f"{to}.bias"].copy_(old[f"{source}.bias"] @ basis)

    def linear(to: str, source: str, rows: Tensor | None, columns: Tensor | None) -> None:
        # None marks the side of the hidden states
        weight, bias = old[f"{source}.weight"], old[f"{source}.bias"]
        weight, bias = (basis.T @ weight, bias @ basis) if rows is None else (weight[rows], bias[rows])
        new[f"{to}.weight"].copy_(weight @ basis if columns is None else weight[:, columns])
        new[f"{to}.bias"].copy_(bias)

    def strength(layer: str, up: str, down: str) -> Tensor:
        return old[f"{layer}.{up}.weight"].square().sum(1) * old[f"{layer}.{down}.weight"].square().sum(0)

    for part in ("word", "position", "token_type"):
        name = f"bert.embeddings.{part}_embeddings.weight"
        new[name].copy_((old[name][token_ids] if part == "word" else old[name]) @ basis)
    norm("bert.embeddings.LayerNorm", "bert.embeddings.LayerNorm")
    for i, j in enumerate(layer_map(s.layers, teacher.config.num_hidden_layers)[1:]):
        to, source = f"bert.encoder.layer.{i}", f"bert.encoder.layer.{j - 1}"
        heads = strength(source, "attention.self.value", "attention.output.dense").view(-1, size).sum(1)
        kept_heads = heads.topk(s.heads).indices.sort().values
        rows = (kept_heads[:, None] * size + torch.arange(size, device=basis.device)).flatten()
        neurons = strength(source, "intermediate.dense", "output.dense").topk(s.inner).indices.sort().values
        for part in ("query", "key", "value"):
            linear(f"{to}.attention.self.{part}", f"{source}.attention.self.{part}", rows, None)
        linear(f"{to}.attention.output.dense", f"{source}.attention.output.dense", None, rows)
        linear(f"{to}.intermediate.dense", f"{source}.intermediate.dense", neurons, None)
        linear(f"{to}.output.dense", f"{source}.output.dense", None, neurons)
        norm(f"{to}.attention.output.LayerNorm", f"{source}.attention.output.LayerNorm")
        norm(f"{to}.output.LayerNorm", f"{source}.output.LayerNorm")
    linear("bert.pooler.dense", "bert.pooler.dense", None, None)
    linear("classifier", "classifier", torch.arange(2, device=basis.device), None)
    return student
