"""Batches for distillation: one text, cut into pieces by two tokenizers that agree on what a word is.

The convention of this file: all texts lie end to end in one stream of words, and an example is a span
(start, stop) of that stream, so that phrases, sentences, crops of sentences and passages of reviews are the
same thing. Both tokenizers cut inside words only, hence their streams of pieces meet at the first piece of
every word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from demo_corpus import sentence_spans
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

POSITIONS = 512


@dataclass(frozen=True)
class Corpus:
    """The stream of words and where its texts begin and end."""

    stream: np.ndarray  # (n,) indices into `words`
    words: list[str]
    texts: dict[str, np.ndarray]  # kind -> (k, 3): start, stop, gold label or -1
    sentences: dict[str, np.ndarray]  # "review", "held-out" -> (k, 3) with label -1


def load_corpus(path: Path) -> Corpus:
    """Read the words and mark texts and sentences as spans of one stream."""
    index: dict[str, int] = {}
    stream: list[int] = []
    texts: dict[str, list[tuple[int, int, int]]] = {}
    sentences: dict[str, list[tuple[int, int, int]]] = {"review": [], "held-out": []}
    for joined, label, kind in pd.read_parquet(path)[["words", "label", "kind"]].itertuples(index=False):
        words, start = joined.split(" "), len(stream)
        stream += [index.setdefault(word, len(index)) for word in words]
        texts.setdefault(kind, []).append((start, len(stream), label))
        if kind in sentences:
            sentences[kind] += [(start + a, start + b, -1) for a, b in sentence_spans(words)]
    return Corpus(
        np.array(stream),
        list(index),
        {kind: np.array(spans) for kind, spans in texts.items()},
        {kind: np.array(spans) for kind, spans in sentences.items()},
    )


@dataclass(frozen=True)
class PieceTable:
    """The pieces of every word of the corpus, end to end."""

    ids: Tensor  # (p,)
    start: Tensor  # (words + 1,)
    cls: int
    sep: int

    @classmethod
    def of(cls, words: list[str], tokenizer: Tokenizer, device: torch.device) -> PieceTable:
        """Cut every distinct word once."""
        cut = [[piece.id for piece in tokenizer.model.tokenize(word)] for word in words]
        start = np.cumsum([0, *map(len, cut)])
        ids = np.fromiter((i for pieces in cut for i in pieces), dtype=np.int64)
        vocabulary = tokenizer.get_vocab()
        on_device = torch.from_numpy(ids).to(device), torch.from_numpy(start).to(device)
        return cls(*on_device, cls=vocabulary["[CLS]"], sep=vocabulary["[SEP]"])

    def __call__(self, stream: Tensor) -> tuple[Tensor, Tensor]:
        """Pieces (m,) of a stream of words (n,), and the first piece of every word (n + 1,)."""
        length = self.start[stream + 1] - self.start[stream]
        start = F.pad(length.cumsum(0), (1, 0))
        inside = torch.arange(int(start[-1]), device=stream.device) - start[:-1].repeat_interleave(length)
        return self.ids[self.start[stream].repeat_interleave(length) + inside], start


@dataclass(frozen=True)
class Batch:
    """Examples as both models take them, [PAD] being 0 in both vocabularies."""

    teacher: Tensor  # (b, t') ids
    student: Tensor  # (b, t) ids
    meets: Tensor  # (b, t) position in the teacher's row that begins the same word, or -1
    label: Tensor  # (b,) gold label or -1


class Cutter:
    """Turns spans of a stream into batches; the stream is cut once, by both tokenizers."""

    def __init__(self, stream: Tensor, teacher: PieceTable, student: PieceTable) -> None:
        self.tables = teacher, student
        self.teacher, self.teacher_start = teacher(stream)  # (m,), (n + 1,)
        self.student, self.student_start = student(stream)  # (s,), (n + 1,)
        self.meets = torch.full_like(self.student, -1)  # (s,) teacher piece that begins the same word
        self.meets[self.student_start[:-1]] = self.teacher_start[:-1]

    def batch(self, spans: Tensor, length: int) -> Batch:
        """Pad spans (b, 3) to `length` pieces, [CLS] and [SEP] counted."""
        t0, t1 = self.teacher_start[spans[:, 0]], self.teacher_start[spans[:, 1]]
        s0, s1 = self.student_start[spans[:, 0]], self.student_start[spans[:, 1]]
        meets = _rows(self.meets, s0, s1, length - 2)
        meets = F.pad(torch.where(meets < 0, -1, meets - t0[:, None] + 1), (1, 1), value=-1)
        meets[:, 0] = 0  # [CLS] meets [CLS]
        return Batch(
            _with_specials(_rows(self.teacher, t0, t1, length - 2), self.tables[0]),
            _with_specials(_rows(self.student, s0, s1, length - 2), self.tables[1]),
            meets,
            spans[:, 2],
        )

    def batches(self, spans: np.ndarray, batch_tokens: int, rng: np.random.Generator) -> Iterator[Batch]:
        """Batches of texts (k, 3) of like length and about `batch_tokens` pieces each, in random order."""
        on_device = torch.from_numpy(spans).to(self.student.device)
        starts = self.teacher_start, self.student_start
        lengths = torch.stack([f[on_device[:, 1]] - f[on_device[:, 0]] for f in starts]).amax(0).cpu().numpy()
        padded = -(-(lengths + 2) // 8) * 8  # multiples of 8: few shapes, and the fast attention kernels take them
        order = rng.permutation(np.flatnonzero(padded <= POSITIONS))
        order = order[np.argsort(padded[order].astype(np.int16), kind="stable")]
        cuts = [0]
        while cuts[-1] < len(order):
            # sorted, so that the last text of a batch gives its padded length
            ahead = padded[order[cuts[-1] : cuts[-1] + batch_tokens // 8]]
            fits = ahead * np.arange(1, len(ahead) + 1) <= batch_tokens
            cuts.append(cuts[-1] + max(1, int(fits.sum())))
        ordered = on_device[torch.from_numpy(order).to(on_device.device)]
        for i in rng.permutation(len(cuts) - 1):
            yield self.batch(ordered[cuts[i] : cuts[i + 1]], int(padded[order[cuts[i + 1] - 1]]))


def _rows(pieces: Tensor, start: Tensor, stop: Tensor, length: int) -> Tensor:
    """Consecutive pieces as rows (b, length), -1 from `stop` on."""
    at = start[:, None] + torch.arange(length, device=start.device)
    inside = at < stop[:, None]
    return torch.where(inside, pieces[torch.where(inside, at, 0)], -1)


def _with_specials(rows: Tensor, table: PieceTable) -> Tensor:
    """[CLS] pieces [SEP] [PAD] ... from rows filled up with -1."""
    out = F.pad(rows, (1, 1), value=-1)
    out[:, 0] = table.cls
    end = (rows >= 0).sum(1, keepdim=True) + 1
    return out.scatter(1, end, table.sep).clamp_min(0)
