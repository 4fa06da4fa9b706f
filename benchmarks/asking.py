"""Methods asked about texts, every answer kept: what is in the folder is not computed again, by whichever process.

Also how two answers are compared, text by text: Spearman's rank correlation, with mean ranks of equal scores, of scores
and of their absolute values; the cosine; and the largest change of a score, relative to the largest score.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.report import standard_error
from benchmarks.train_classifier import weight_hash
from gaflow import METHODS, Attribution, Explainer
from gaflow.explainer.batch import explain_batch
from gaflow.explainer.many import attempt
from gaflow.files import write_atomically
from gaflow.inputs.encoding import Encoding
from gaflow.methods import Method

CONTROL = "random"
Scored = np.ndarray | None  # (t,) scores of a text; None: the method failed


@dataclass(frozen=True)
class Subject:
    """A model, texts that it reads, and the folder of what methods say about them."""

    explainer: Explainer
    texts: list[str]
    attributions: list[Attribution]  # (n,) tokens and prediction of each text, with the scores of the control
    folder: Path
    batch_size: int

    @classmethod
    def of(cls, explainer: Explainer, texts: Sequence[str], cache: str, batch_size: int) -> Subject:
        """Texts that the tokenizer makes something of, each with what the model predicts."""
        encodings = attempt(texts, lambda part: read(explainer, part))
        good = [text for text, encoding in zip(texts, encodings, strict=True) if isinstance(encoding, Encoding)]
        attributions = explain(explainer, good, METHODS[CONTROL], batch_size)
        failed = [outcome for outcome in attributions if isinstance(outcome, str)]
        if failed or not attributions:
            raise SystemExit(f"the model cannot be explained on these texts: {(failed or ['there are none'])[0]}")
        folder = Path(cache) / weight_hash(explainer.model)[:12]
        folder.mkdir(parents=True, exist_ok=True)
        return cls(
            explainer, good, [outcome for outcome in attributions if not isinstance(outcome, str)], folder, batch_size
        )

    @property
    def predicted(self) -> list[int]:
        """Class (n,) of each text."""
        return [int(outcome.target) for outcome in self.attributions if not isinstance(outcome.target, tuple)]

    def first(self, count: int) -> Subject:
        """The same of the first texts."""
        return replace(self, texts=self.texts[:count], attributions=self.attributions[:count])

    def scores(
        self,
        method: Method,
        question: str = "",
        *,
        targets: Sequence[int] | None = None,
        texts: Sequence[str] | None = None,
        groups: Sequence[Sequence[int]] | None = None,
    ) -> list[Scored]:
        """Scores of each text; `asked` says what is special, and must if the model is not what it was."""
        texts = self.texts if texts is None else texts
        path = self._file(method, question, targets, texts, groups)
        if not path.exists():
            started = time.perf_counter()
            outcomes = explain(self.explainer, texts, method, self.batch_size, targets, groups)
            stored = [outcome if isinstance(outcome, str) else outcome.scores.tolist() for outcome in outcomes]
            write_atomically(path, json.dumps({"method": method.name, "asked": question, "scores": stored}).encode())
            print(
                f"{method.name}, {len(texts)} texts{question and ' '}{question}: {time.perf_counter() - started:.1f} s",
                flush=True,
            )
        stored = json.loads(path.read_text())["scores"]
        return [None if isinstance(outcome, str) else np.array(outcome) for outcome in stored]

    def has_scores(self, method: Method) -> bool:
        """Whether the scores of the texts are kept."""
        return self._file(method, "", None, self.texts, None).exists()

    def _file(
        self,
        method: Method,
        question: str,
        targets: Sequence[int] | None,
        texts: Sequence[str],
        groups: Sequence[Sequence[int]] | None,
    ) -> Path:
        decided = json.dumps([repr(method), question, list(texts), targets, groups]).encode()
        return self.folder / f"{hashlib.sha256(decided).hexdigest()[:20]}.json"

    def compare(self, measure: Callable[..., float], one: Sequence[Scored], other: Sequence[Scored]) -> np.ndarray:
        """A measure (n,) of two scores of the ordinary tokens of each text; NaN where one of them is missing."""
        ordinary = [~outcome.special_mask for outcome in self.attributions]
        return np.array(
            [
                np.nan if a is None or b is None else measure(a[mask], b[mask])
                for a, b, mask in zip(one, other, ordinary, strict=True)
            ]
        )


def read(explainer: Explainer, texts: Sequence[str]) -> list[Encoding]:
    """The texts as the model reads them, truncated to what it takes."""
    names = [f"texts[{k}]" for k in range(len(texts))]
    return explainer.runner.encode(texts, names=names, truncation=True)


def explain(
    explainer: Explainer,
    texts: Sequence[str],
    method: Method,
    batch_size: int,
    targets: Sequence[int] | None = None,
    groups: Sequence[Sequence[int]] | None = None,
) -> list[Attribution | str]:
    """An attribution of each text, or why there is none; batches depend on the texts alone, unless given."""
    encodings = read(explainer, texts)
    class_per_text = [None] * len(texts) if targets is None else targets

    def run(group: Sequence[int]) -> list[Attribution]:
        batch = explain_batch(
            explainer.runner, [encodings[k] for k in group], [class_per_text[k] for k in group], [method]
        )
        return [by_method[method.name] for by_method in batch.by_text]

    outcomes: dict[int, Attribution | str] = {}
    for group in groups or explainer.runner.batches(encodings, batch_size, [method]):
        outcomes.update(zip(group, attempt(group, run), strict=True))
    return [outcomes[k] for k in range(len(texts))]


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks (n,) from 1, equal values sharing the mean of theirs."""
    _, rank_group, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[rank_group]


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Cosine of the angle between two vectors (n,), exactly 1 if they are the same; NaN if one of them is 0."""
    largest = abs(a).max(initial=0.0), abs(b).max(initial=0.0)
    if not all(largest):
        return np.nan
    a, b = a / largest[0], b / largest[1]  # scores may be too small to be squared
    return float(a @ b) / (float(a @ a) * float(b @ b)) ** 0.5


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Rank correlation; NaN where nothing is ranked."""
    return cosine(ranks(a) - (len(a) + 1) / 2, ranks(b) - (len(b) + 1) / 2)


def sizes(a: np.ndarray, b: np.ndarray) -> float:
    """Rank correlation of absolute values: that all signs turn around is no news."""
    return spearman(abs(a), abs(b))


def change(a: np.ndarray, b: np.ndarray) -> float:
    """Largest change of a score, relative to the largest score."""
    largest = abs(a).max()
    return float(abs(a - b).max() / largest) if largest else float(abs(b).max() > 0)


def mean_with_error(values: np.ndarray, spec: str = "+.3f") -> str:
    """Mean and standard error of what is known."""
    numbers = values[~np.isnan(values)]
    if not len(numbers):
        return "none"
    error = f" ± {standard_error(numbers):.3f}" if len(numbers) > 1 else ""
    return f"{numbers.mean():{spec}}{error}"


def markdown(header: Sequence[object], rows: Sequence[Sequence[object]]) -> list[str]:
    """A table."""
    return ["| " + " | ".join(map(str, row)) + " |" for row in (header, ["---"] * len(header), *rows)]
