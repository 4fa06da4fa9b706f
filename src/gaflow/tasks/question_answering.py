"""Extractive question answering: each token of the context may start or end the answer.

    location            an answer: a piece of the context, or its characters, see `text_location.py`
    "start", "end"      of the model's own answer; ("start", location), or "start=location", of another one
    "A minus B"         one answer rather than another, also the tuple `(A, B)`
    None                the model's own answer

`y` is the logit of the start plus the logit of the end, or one of them.

The conventions this file owns: logits are (b, t, 2), start and end; an answer lies in the context, ends no sooner than
it starts, and the model's own one has at most `longest` tokens. Probabilities are over the tokens of the context, that
of an answer being the product of start and end. Of several locations the one of largest `y` is meant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gaflow.errors import UnsupportedModelError
from gaflow.inputs.encoding import Encoding
from gaflow.tasks.targets import ExplainedOutput, LogitTerm, as_integer, logits_on_host, target_error, two_sides
from gaflow.tasks.text_location import TextLocation, find_tokens, parse_location, tokens_with_characters

__all__ = ["AnswerTarget", "QuestionAnsweringHead", "ResolvedAnswer"]

Answer = tuple[int, int]  # its first and its last token
_CONTEXT = 1  # segment
_COLUMNS = {"span": (0, 1), "start": (0,), "end": (1,)}  # of the logits
_OUTPUT_KINDS = {"span": "start + end logit", "start": "start logit", "end": "end logit"}


@dataclass(frozen=True)
class AnswerTarget:
    """A target without its question."""

    part: str = "span"  # of the answer: "span", "start" or "end"
    answer: TextLocation | None = None  # None: the model's own
    other: TextLocation | None = None  # the answer that a contrast subtracts


@dataclass(frozen=True)
class ResolvedAnswer:
    """A target for one question and context; of several answers the one of largest `y` is meant."""

    part: str
    answers: list[Answer]  # empty: the model's own
    others: list[Answer]  # that a contrast subtracts; empty: no contrast


@dataclass(frozen=True)
class QuestionAnsweringHead:
    """The output of a model that finds answers: where they start and end."""

    longest: int = 15  # tokens of the model's own answer
    labels: tuple[str, ...] = ("start", "end")

    def parse(self, target: object) -> AnswerTarget:
        """An answer, a part of one, or a contrast of two."""
        if isinstance(target, ExplainedOutput):
            target = target.target
        if target is None:
            return AnswerTarget()
        if isinstance(target, str):
            match = re.fullmatch(r"(span|start|end)(?:=(.*))?", target, re.DOTALL)
            return _parse_part("span", target) if match is None else _parse_part(match[1], match[2])
        if isinstance(target, tuple) and len(target) == 2:
            first, second = target
            if isinstance(first, str) and first in _COLUMNS:
                return _parse_part(first, second)
            is_span = as_integer(first) is not None and as_integer(second) is not None
            if not is_span:
                return AnswerTarget("span", parse_location(first), parse_location(second))
        return AnswerTarget("span", parse_location(target))

    def resolve(self, target: AnswerTarget, encoding: Encoding, name: str) -> ResolvedAnswer:
        """The tokens of the answers."""
        if target.answer is None:
            return ResolvedAnswer(target.part, [], [])
        answer = target.answer
        other = target.other
        if other is None and answer.piece is not None and not _contains(encoding, answer.piece):
            for first, second in two_sides(answer.piece):
                if _contains(encoding, first) and _contains(encoding, second):
                    answer = parse_location(first)
                    other = parse_location(second)
        answers = _find_answers(answer, encoding, name)
        others = [] if other is None else _find_answers(other, encoding, name)
        if answers == others:
            raise target_error(f" contrasts {answer} with itself; give two answers")
        return ResolvedAnswer(target.part, answers, others)

    def outputs(
        self, logits: Tensor, encodings: Sequence[Encoding], targets: Sequence[ResolvedAnswer]
    ) -> list[ExplainedOutput]:
        """One output for each text, from logits (b, t, 2)."""
        outputs = []
        for text_logits, encoding, target in zip(logits, encodings, targets, strict=True):
            on_host = _checked(text_logits, encoding)
            predicted = self._best_answers(on_host, encoding, 1)[0]
            answer = _highest(on_host, target.answers, target.part) or predicted
            other = _highest(on_host, target.others, target.part)
            output = _output(on_host, encoding, answer, predicted, part=target.part, other=other)
            outputs.append(output)
        return outputs

    def top_outputs(self, logits: Tensor, encoding: Encoding, count: int) -> list[ExplainedOutput]:
        """The most probable answers."""
        on_host = _checked(logits, encoding)
        answers = self._best_answers(on_host, encoding, count)
        return [_output(on_host, encoding, answer, answers[0]) for answer in answers]

    def _best_answers(self, logits: Tensor, encoding: Encoding, count: int) -> list[Answer]:
        """The answers in the context with the largest sums of logits."""
        context = tokens_with_characters(encoding, [_CONTEXT])
        start, end = logits[context].unbind(1)
        n = len(context)
        sums = start[:, None] + end[None, :]
        distance = torch.arange(n)[None, :] - torch.arange(n)[:, None]
        sums = sums.masked_fill((distance < 0) | (distance >= self.longest), -torch.inf)
        values, indices = sums.flatten().topk(min(count, n * n))
        answers = []
        for value, index in zip(values.tolist(), indices.tolist(), strict=True):
            if value > -torch.inf:
                answers.append((context[index // n], context[index % n]))
        return answers


def _parse_part(part: str, answer: object) -> AnswerTarget:
    """A part of an answer (None: the model's own), or of a contrast of two.

    Characters can be contrasted without knowing the context. A piece with the word "minus" may be an answer itself,
    which `resolve` finds out.
    """
    if answer is None:
        return AnswerTarget(part)
    if isinstance(answer, str):
        for first, second in two_sides(answer):
            first_location = parse_location(first)
            second_location = parse_location(second)
            if first_location.span is not None and second_location.span is not None:
                return AnswerTarget(part, first_location, second_location)
    return AnswerTarget(part, parse_location(answer))


def _find_answers(location: TextLocation, encoding: Encoding, name: str) -> list[Answer]:
    spans = find_tokens(location, encoding, _CONTEXT, name)
    return [(span.tokens[0], span.tokens[-1]) for span in spans]


def _checked(logits: Tensor, encoding: Encoding) -> Tensor:
    """One text's logits (t, 2) on the host, without padding."""
    if logits.dim() != 2 or logits.shape[1] != 2:
        raise UnsupportedModelError(
            f"the model's output for a text has shape {tuple(logits.shape)}, not one start and one end logit for each "
            "token"
        )
    return logits_on_host(logits[: len(encoding)])


def _output(
    logits: Tensor,
    encoding: Encoding,
    answer: Answer,
    predicted: Answer,
    *,
    part: str = "span",
    other: Answer | None = None,
) -> ExplainedOutput:
    terms = _terms(1.0, answer, part)
    characters = "{}:{}".format(*_characters(encoding, answer))
    label = _text(encoding, answer)
    output_kind = _OUTPUT_KINDS[part]
    probability = _probability(logits, encoding, answer, part)
    if other is not None:
        terms += _terms(-1.0, other, part)
        characters += " minus {}:{}".format(*_characters(encoding, other))
        label += f" minus {_text(encoding, other)}"
        output_kind = f"difference of {output_kind}s"
        probability = None
    prefix = "" if part == "span" else f"{part}: "
    positions = {term.position[0] for term in terms}
    return ExplainedOutput(
        target=f"{part}={characters}",
        label=prefix + label,
        probability=probability,
        prediction=prefix + _text(encoding, predicted),
        terms=tuple(terms),
        output_kind=output_kind,
        read_positions=tuple(sorted(positions)),
    )


def _terms(weight: float, answer: Answer, part: str) -> list[LogitTerm]:
    return [LogitTerm(weight, (answer[column], column)) for column in _COLUMNS[part]]


def _probability(logits: Tensor, encoding: Encoding, answer: Answer, part: str) -> float:
    """The product of the probabilities of start and end, among the tokens of the context."""
    context = tokens_with_characters(encoding, [_CONTEXT])
    probabilities = logits[context].softmax(0)
    probability = 1.0
    for column in _COLUMNS[part]:
        probability *= probabilities[context.index(answer[column]), column].item()
    return probability


def _highest(logits: Tensor, answers: Sequence[Answer], part: str) -> Answer | None:
    """The answer of largest `y`."""

    def y(answer: Answer) -> float:
        return sum(logits[answer[column], column].item() for column in _COLUMNS[part])

    return max(answers, key=y, default=None)


def _characters(encoding: Encoding, answer: Answer) -> tuple[int, int]:
    first, last = answer
    return encoding.offsets[first][0], encoding.offsets[last][1]


def _text(encoding: Encoding, answer: Answer) -> str:
    start, end = _characters(encoding, answer)
    return encoding.source(_CONTEXT)[start:end]


def _contains(encoding: Encoding, piece: str) -> bool:
    return piece.strip().casefold() in encoding.source(_CONTEXT).casefold()
