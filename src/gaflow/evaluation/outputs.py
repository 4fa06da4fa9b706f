"""What is measured of a model's output for a text: the probability of the explained class, tag or answer.

    text classification     the probability of a class; all ordinary tokens may be masked
    token classification    the mean probability of the tags at the explained location, whose tokens are never masked
    question answering      the probability of the answer's start times that of its end, over the tokens of the context;
                            neither the question nor the answer itself is ever masked

The convention this file owns: a measured output is one of several classes that exclude each other. Where it is found in
the text there are two of them, the explained output and all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaflow.errors import Argument, ArgumentError, TargetError, UnsupportedModelError
from gaflow.evaluation.tokens import check_counts
from gaflow.explainer.explainer import Explainer
from gaflow.inputs.columns import is_frame
from gaflow.inputs.encoding import Encoding
from gaflow.tasks.targets import ExplainedOutput, parse_all
from gaflow.tasks.text_location import tokens_with_characters

LOCATED_TASKS = ("token-classification", "question-answering")
LOCATED_LABELS = ("another output", "the explained output")
Readout = Callable[[Tensor, np.ndarray], Tensor]  # logits (r, ...) of texts (r,) -> log-probabilities (r, classes)
_CONTEXT = 1  # segment
_LEAST = 1e-300  # of the probability of all other outputs, so that its logarithm is finite


def read_classes(logits: Tensor, _texts: np.ndarray) -> Tensor:
    """Log-probabilities (r, classes) of whole texts."""
    return logits.log_softmax(-1)


@dataclass(frozen=True)
class LocatedOutputs:
    """Outputs that are read from certain tokens of each text."""

    encodings: list[Encoding]
    explained: list[ExplainedOutput]  # per text
    resolved: list[object]  # per text, the target as methods take it
    never_masked: list[tuple[int, ...]]  # per text, tokens that are never masked
    readout: Readout


def located_outputs(
    explainer: Explainer, texts: Sequence[Any], target: Any, scores: Any, truncation: bool, batch_size: int
) -> LocatedOutputs:
    """What a tagger or a question answering model says of each text, or what `target` asks of it.

    Attributions among `scores` say what they explain; all methods must explain the same.
    """
    runner = explainer.runner
    items = _as_list(texts)
    names = [f"texts[{index}]" for index in range(len(items))]
    encodings = runner.encode(items, names=names, truncation=truncation)
    targets = parse_all(runner.head, _target_of_scores(scores, target, len(items)), len(items))
    resolved = []
    for encoding, parsed, name in zip(encodings, targets, names, strict=True):
        resolved.append(runner.head.resolve(parsed, encoding, name))
    explained: list[Any] = [None] * len(encodings)
    for batch in runner.batches(encodings, batch_size):
        batch_encodings = [encodings[index] for index in batch]
        logits = runner.logits(batch_encodings)
        outputs = runner.head.outputs(logits, batch_encodings, [resolved[index] for index in batch])
        for index, output in zip(batch, outputs, strict=True):
            explained[index] = output
    for name, output in zip(names, explained, strict=True):
        if any(term.weight < 0 for term in output.terms):
            raise TargetError(
                Argument("target"), f" of {name} is a contrast, which has no probability of its own; pass one output"
            )
    in_answer = runner.task == "question-answering"
    never_masked = []
    for encoding, output in zip(encodings, explained, strict=True):
        never_masked.append(_kept_tokens(encoding, output, in_answer))
    # the same outputs by their places, whatever the model says once tokens are masked
    fixed = []
    for encoding, output, name in zip(encodings, explained, names, strict=True):
        fixed.append(runner.head.resolve(runner.head.parse(output), encoding, name))
    readout = _answer_readout(encodings, explained) if in_answer else _tag_readout(explained)
    return LocatedOutputs(
        encodings=encodings, explained=explained, resolved=fixed, never_masked=never_masked, readout=readout
    )


def check_task(explainer: Explainer) -> None:
    """Refuse models that can be measured in no way."""
    task = explainer.runner.task
    if task not in ("text-classification", *LOCATED_TASKS):
        raise UnsupportedModelError(
            f"evaluate measures the probability of a class, a tag or an answer, but {type(explainer.model).__name__} "
            f"is for {task}; use a model for text-classification, {' or '.join(LOCATED_TASKS)}"
        )


def _as_list(texts: Any) -> list[Any]:
    if isinstance(texts, str) or is_frame(texts) or not isinstance(texts, Sequence):
        raise ArgumentError(Argument("texts"), " must be a list of texts, or of (question, context) tuples")
    if not texts:
        raise ArgumentError(Argument("texts"), " is empty; pass at least one text")
    return list(texts)


def _target_of_scores(scores: Any, target: Any, count: int) -> Any:
    """The target, or else what the Attributions among the scores explain."""
    if target is not None:
        return target
    check_counts(scores, count)
    targets: list[Any] = [None] * count
    for name, items in (scores or {}).items():
        for index, item in enumerate(items):
            explained = getattr(item, "target", None)
            if targets[index] is None:
                targets[index] = explained
            elif explained not in (None, targets[index]):
                raise ArgumentError(
                    Argument("scores"),
                    f"[{name!r}][{index}] explains {explained!r}, but {targets[index]!r} is to be measured; "
                    "all methods must explain the same output of a text",
                )
    return targets


def _kept_tokens(encoding: Encoding, output: ExplainedOutput, in_answer: bool) -> tuple[int, ...]:
    """Tokens that are never masked."""
    first = min(output.read_positions)
    last = max(output.read_positions)
    if not in_answer:
        return tuple(output.read_positions)
    never_masked = list(range(first, last + 1))  # the whole answer
    never_masked += [position for position, segment in enumerate(encoding.segments) if segment not in (-1, _CONTEXT)]
    return tuple(sorted(set(never_masked)))


@dataclass(frozen=True)
class _Terms:
    """The places in the logits that outputs are read from, as many for each text."""

    tokens: np.ndarray  # (b, m)
    columns: np.ndarray  # (b, m) tags, or start and end
    used: np.ndarray  # (b, m) bool

    @classmethod
    def of(cls, explained: Sequence[ExplainedOutput]) -> _Terms:
        """The terms of every text's output."""
        most = max(len(output.terms) for output in explained)
        places = np.zeros((len(explained), most, 2), dtype=np.int64)
        used = np.zeros((len(explained), most), dtype=bool)
        for row, output in enumerate(explained):
            positions = [term.position for term in output.terms]
            places[row, : len(positions)] = positions
            used[row, : len(positions)] = True
        return cls(tokens=places[..., 0], columns=places[..., 1], used=used)

    def read(self, values: Tensor, texts: np.ndarray, unused: float) -> Tensor:
        """The values (r, m) at the places of `texts` (r,), from all values (r, t, c)."""
        rows = torch.arange(len(values))[:, None]
        tokens = torch.from_numpy(self.tokens[texts])
        columns = torch.from_numpy(self.columns[texts])
        used = torch.from_numpy(self.used[texts])
        return values[rows, tokens, columns].masked_fill(~used, unused)


def _tag_readout(explained: Sequence[ExplainedOutput]) -> Readout:
    """The mean probability of the tags at a location."""
    terms = _Terms.of(explained)
    counts = torch.from_numpy(terms.used.sum(1))

    def read(logits: Tensor, texts: np.ndarray) -> Tensor:
        by_tag = terms.read(logits.log_softmax(-1), texts, -torch.inf)
        return _with_the_rest(by_tag.logsumexp(-1) - counts[torch.from_numpy(texts)].log())

    return read


def _answer_readout(encodings: Sequence[Encoding], explained: Sequence[ExplainedOutput]) -> Readout:
    """The probability that an answer starts and ends where it does, over the tokens of the context."""
    terms = _Terms.of(explained)
    longest = max(map(len, encodings))
    context = np.zeros((len(encodings), longest), dtype=bool)
    for row, encoding in enumerate(encodings):
        context[row, tokens_with_characters(encoding, [_CONTEXT])] = True

    def read(logits: Tensor, texts: np.ndarray) -> Tensor:
        outside = ~torch.from_numpy(context[texts, : logits.shape[1]])
        by_token = logits.masked_fill(outside[:, :, None], -torch.inf).log_softmax(1)
        return _with_the_rest(terms.read(by_token, texts, 0.0).sum(-1))

    return read


def _with_the_rest(log_probability: Tensor) -> Tensor:
    """Log-probabilities (r, 2) of all other outputs and of this one (r,)."""
    log_probability = log_probability.clamp(max=0.0)
    rest = -torch.expm1(log_probability)
    return torch.stack([rest.clamp(min=_LEAST).log(), log_probability], -1)
