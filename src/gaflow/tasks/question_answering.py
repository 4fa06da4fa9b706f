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
from gaflow.tasks.targets import (
    ExplainedOutput,
    Head,
    as_integer,
    contrast_terms,
    logits_on_host,
    target_error,
    two_sides,
)
from gaflow.tasks.text_location import TextLocation, TokenSpan, find_tokens, parse_location, tokens_with_characters

_CONTEXT = 1  # segment
_COLUMNS = {"span": (0, 1), "start": (0,), "end": (1,)}  # of the logits
_OUTPUT_KINDS = {"span": "start + end logit", "start": "start logit", "end": "end logit"}


@dataclass(frozen=True)
class AnswerTarget:
    """A target without its question."""

    part: str = "span"  # of the answer: "span", "start" or "end"
    answers: Sequence[TextLocation] = ()  # one, or two for a contrast; none: the model's own


@dataclass(frozen=True)
class ResolvedAnswer:
    """A target for one question and context."""

    part: str
    answers: Sequence[list[TokenSpan]] = ()  # of each the locations, of which the one of largest `y` is meant


@dataclass(frozen=True)
class QuestionAnsweringHead(Head[AnswerTarget, ResolvedAnswer]):
    """The output of a model that finds answers: where they start and end."""

    longest: int = 15  # tokens of the model's own answer
    labels: tuple[str, ...] = ("start", "end")

    def parse(self, target: object) -> AnswerTarget:
        """An answer, a part of one, or a contrast of two."""
        if isinstance(target, ExplainedOutput):
            target = target.target
        part = "span"
        if isinstance(target, str):
            match = re.fullmatch(r"(span|start|end)(?:=(.*))?", target, re.DOTALL)
            if match is not None:
                part, target = match.groups()
        elif isinstance(target, tuple) and len(target) == 2:
            first, second = target
            if isinstance(first, str) and first in _COLUMNS:
                part = first
                target = second
        if target is None:
            return AnswerTarget(part)
        return AnswerTarget(part, _parse_answers(target))

    def resolve(self, target: AnswerTarget, encoding: Encoding, name: str) -> ResolvedAnswer:
        """The tokens of the answers."""
        answers = target.answers
        match answers:
            case [str(piece)] if not _contains(encoding, piece):
                for first, second in two_sides(piece):
                    if _contains(encoding, first) and _contains(encoding, second):
                        answers = [parse_location(first), parse_location(second)]
        spans = [find_tokens(answer, encoding, _CONTEXT, name) for answer in answers]
        if len(spans) == 2 and spans[0] == spans[1]:
            raise target_error(f" contrasts {answers[0]!r} with itself; give two answers")
        return ResolvedAnswer(target.part, spans)

    def output(self, logits: Tensor, encoding: Encoding, target: ResolvedAnswer) -> ExplainedOutput:
        """From logits (t, 2)."""
        on_host = _checked(logits, encoding)
        predicted = self._best_answers(on_host, encoding, 1)[0]

        def y(answer: TokenSpan) -> float:
            return sum(on_host[position].item() for position in _positions(answer, target.part))

        sides = [max(spans, key=y) for spans in target.answers]
        return _output(on_host, encoding, target.part, sides or [predicted], predicted)

    def top_outputs(self, logits: Tensor, encoding: Encoding, count: int) -> list[ExplainedOutput]:
        """The most probable answers."""
        on_host = _checked(logits, encoding)
        answers = self._best_answers(on_host, encoding, count)
        return [_output(on_host, encoding, "span", [answer], answers[0]) for answer in answers]

    def _best_answers(self, logits: Tensor, encoding: Encoding, count: int) -> list[TokenSpan]:
        """The answers in the context with the largest sums of logits."""
        context = tokens_with_characters(encoding, [_CONTEXT])
        start, end = logits[context].unbind(1)
        n = len(context)
        sums = start[:, None] + end[None, :]
        possible = torch.ones(n, n, dtype=torch.bool).triu().tril(self.longest - 1)
        sums = sums.masked_fill(~possible, -torch.inf).flatten()
        count = min(count, int(possible.sum()))
        answers = []
        for index in sums.topk(count).indices.tolist():
            first = context[index // n]
            last = context[index % n]
            characters = (encoding.offsets[first][0], encoding.offsets[last][1])
            answers.append(TokenSpan(tuple(range(first, last + 1)), characters))
        return answers


def _parse_answers(target: object) -> list[TextLocation]:
    """The location of an answer, or the two of a contrast.

    Characters can be contrasted without knowing the context. A piece with the word "minus" may be an answer itself,
    which `resolve` finds out.
    """
    if isinstance(target, str):
        for sides in two_sides(target):
            locations = [parse_location(side) for side in sides]
            if all(isinstance(location, tuple) for location in locations):
                return locations
    elif isinstance(target, tuple) and len(target) == 2:
        is_span = all(as_integer(side) is not None for side in target)
        if not is_span:
            return [parse_location(side) for side in target]
    return [parse_location(target)]


def _checked(logits: Tensor, encoding: Encoding) -> Tensor:
    """One text's logits (t, 2) on the host, without padding."""
    if logits.dim() != 2 or logits.shape[1] != 2:
        raise UnsupportedModelError(
            f"the model's output for a text has shape {tuple(logits.shape)}, not one start and one end logit for each "
            "token"
        )
    return logits_on_host(logits[: len(encoding)])


def _output(
    logits: Tensor, encoding: Encoding, part: str, sides: Sequence[TokenSpan], predicted: TokenSpan
) -> ExplainedOutput:
    """The output for a part of an answer, or for the difference of two answers (`sides`)."""
    terms = contrast_terms(_positions(side, part) for side in sides)
    read_positions = {term.position[0] for term in terms}
    characters = " minus ".join(f"{side.span[0]}:{side.span[1]}" for side in sides)
    label = " minus ".join(_text(encoding, side) for side in sides)
    prefix = "" if part == "span" else f"{part}: "
    output_kind = _OUTPUT_KINDS[part]
    probability = None
    if len(sides) == 1:  # the product of start and end, among the tokens of the context
        context = tokens_with_characters(encoding, [_CONTEXT])
        probabilities = logits[context].softmax(0)
        probability = 1.0
        for term in terms:
            token, column = term.position
            probability *= probabilities[context.index(token), column].item()
    else:
        output_kind = f"difference of {output_kind}s"
    return ExplainedOutput(
        target=f"{part}={characters}",
        label=prefix + label,
        probability=probability,
        prediction=prefix + _text(encoding, predicted),
        terms=terms,
        output_kind=output_kind,
        read_positions=tuple(sorted(read_positions)),
    )


def _positions(answer: TokenSpan, part: str) -> list[tuple[int, int]]:
    """Token and column of the logits that a part of an answer is read from."""
    positions = [(answer.tokens[0], 0), (answer.tokens[-1], 1)]
    return [positions[column] for column in _COLUMNS[part]]


def _text(encoding: Encoding, answer: TokenSpan) -> str:
    start, end = answer.span
    return encoding.source(_CONTEXT)[start:end]


def _contains(encoding: Encoding, piece: str) -> bool:
    return piece.strip().casefold() in encoding.source(_CONTEXT).casefold()
