"""Extractive question answering: every token of the context may start or end the answer.

    where               an answer: a piece of the context, or its characters, see `places.py`
    "start", "end"      of the model's own answer; ("start", where), or "start=where", of another one
    "A minus B"         one answer rather than another, also the tuple `(A, B)`
    None                the model's own answer

`y` is the logit of the start plus the logit of the end, or one of them.

The conventions this file owns: logits are (b, t, 2), start and end; an answer lies in the context, ends no sooner than
it starts, and the model's own one has at most `longest` tokens. Probabilities are over the tokens of the context, that
of an answer being the product of start and end. Of several places the one of largest `y` is meant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gaflow.errors import TargetError, UnsupportedModelError
from gaflow.inputs.encoding import Encoding
from gaflow.inputs.segmentation import Span
from gaflow.tasks.targets import ExplainedOutput, LogitTerm, as_integer, check_finite, two_sides
from gaflow.tasks.text_location import TextLocation, TokenSpan, find, parse_location, piece

__all__ = ["QuestionAnsweringHead"]

_CONTEXT = 1  # segment
_PARTS = {"span": ((0, 1), "start + end logit"), "start": ((0,), "start logit"), "end": ((1,), "end logit")}


@dataclass(frozen=True)
class AnswerTarget:
    """A target: which part of which answer (None: the model's own), rather than which other one."""

    part: str = "span"
    answer: TextLocation | None = None
    other: TextLocation | None = None


@dataclass(frozen=True)
class QuestionAnsweringHead:
    """The output of a model that finds answers: where they start and end."""

    longest: int = 15  # tokens of an answer, unless it is given
    labels: tuple[str, ...] = ("start", "end")

    def parse(self, target: Any) -> AnswerTarget | None:
        """An answer, a part of one, or a contrast of two."""
        if isinstance(target, ExplainedOutput):
            target = target.target
        if target is None:
            return None
        if isinstance(target, str):
            match = re.fullmatch(r"(span|start|end)(?:=(.*))?", target, re.DOTALL)
            if match is None:
                return self._contrast(target)
            return AnswerTarget(match[1]) if match[2] is None else self._contrast(match[2], match[1])
        if isinstance(target, tuple) and len(target) == 2 and not all(as_integer(k) is not None for k in target):
            one, other = target
            if isinstance(one, str) and one in _PARTS:
                return AnswerTarget(one) if other is None else self._contrast(other, one)
            return AnswerTarget("span", parse_location(one), parse_location(other))
        return AnswerTarget("span", parse_location(target))

    def _contrast(self, given: Any, part: str = "span") -> AnswerTarget:
        """Characters can be contrasted without knowing the context; of pieces it may be a part itself, see `fit`."""
        for one, other in two_sides(given) if isinstance(given, str) else ():
            sides = parse_location(one), parse_location(other)
            if all(side.span is not None for side in sides):
                return AnswerTarget(part, *sides)
        return AnswerTarget(part, parse_location(given))

    def resolve(
        self, target: AnswerTarget | None, encoding: Encoding, name: str
    ) -> tuple[str, list[TokenSpan], list[TokenSpan]] | None:
        """The places that are meant; none of them yet for the model's own answer."""
        if target is None:
            return None
        if target.answer is None:
            return target.part, [], []
        sides = [target.answer, target.other]
        whole = target.answer.piece
        if target.other is None and whole is not None and not _contains(encoding, whole):
            for one, other in two_sides(whole):
                if _contains(encoding, one) and _contains(encoding, other):
                    sides = [parse_location(one), parse_location(other)]
        places = [[] if side is None else find(side, encoding, _CONTEXT, f"the context of {name}") for side in sides]
        if places[0] == places[1]:
            raise TargetError(f"{name}: the target contrasts {whole!r} with itself; give two answers")
        return target.part, places[0], places[1]

    def outputs(self, logits: Tensor, encodings: Sequence[Encoding], fitted: Sequence[Any]) -> list[ExplainedOutput]:
        """One aim for each text, from logits (b, t, 2)."""
        found = []
        for z, encoding, asked in zip(logits, encodings, fitted, strict=True):
            known = self._check(z, encoding)
            part, answers, others = asked or ("span", [], [])
            own = self._spans(known, encoding, 1)[0]
            answer = _highest(known, answers, part) or own
            found.append(self._aim(known, encoding, part, own, answer, _highest(known, others, part)))
        return found

    def top_outputs(self, logits: Tensor, encoding: Encoding, count: int) -> list[ExplainedOutput]:
        """The answers that the model thinks most probable."""
        known = self._check(logits, encoding)
        spans = self._spans(known, encoding, count)
        return [self._aim(known, encoding, "span", spans[0], span, None) for span in spans]

    def _check(self, logits: Tensor, encoding: Encoding) -> Tensor:
        """One text's logits (t, 2) on the host, without padding."""
        if logits.dim() != 2 or logits.shape[1] != 2:
            raise UnsupportedModelError(
                f"the model's output for a text has shape {tuple(logits.shape)}, not one start and one end logit for "
                "each token"
            )
        known = logits.detach()[: len(encoding)].cpu().double()
        check_finite(known)
        return known

    def _spans(self, logits: Tensor, encoding: Encoding, count: int) -> list[Span]:
        """The spans (first token, last token) of the context with the largest sums of logits."""
        inside = torch.tensor(_context(encoding))
        start, end = logits[inside].unbind(1)
        n = len(inside)
        sums = start[:, None] + end[None, :]
        apart = torch.arange(n)[None, :] - torch.arange(n)[:, None]
        sums = sums.masked_fill((apart < 0) | (apart >= self.longest), -torch.inf)
        values, places = sums.flatten().topk(min(count, n * n))
        return [
            (int(inside[k // n]), int(inside[k % n]))
            for value, k in zip(values.tolist(), places.tolist(), strict=True)
            if value > -torch.inf
        ]

    def _aim(
        self, z: Tensor, encoding: Encoding, part: str, own: Span, answer: Span, other: Span | None
    ) -> ExplainedOutput:
        columns, measure = _PARTS[part]
        terms: list[LogitTerm] = [(1.0, (answer[c], c)) for c in columns]
        where, label = _characters(encoding, answer), _text(encoding, answer)
        if other is not None:
            terms += [(-1.0, (other[c], c)) for c in columns]
            where, label = f"{where} minus {_characters(encoding, other)}", f"{label} minus {_text(encoding, other)}"
            measure = f"difference of {measure}s"
        inside = _context(encoding)
        chances = z[inside].softmax(0)
        chance = 1.0
        for c in columns:
            chance *= chances[inside.index(answer[c]), c].item()
        before = "" if part == "span" else f"{part}: "
        return ExplainedOutput(
            target=f"{part}={where}",
            label=before + label,
            probability=None if other is not None else chance,
            prediction=before + _text(encoding, own),
            terms=tuple(terms),
            output_kind=measure,
            read_positions=tuple(sorted({k for _, (k, _) in terms})),
        )


def _highest(logits: Tensor, places: Sequence[TokenSpan], part: str) -> Span | None:
    """The place of largest y, as its first and last token."""
    spans = [(place.tokens[0], place.tokens[-1]) for place in places]
    return max(spans, key=lambda span: sum(logits[span[c], c].item() for c in _PARTS[part][0]), default=None)


def _context(encoding: Encoding) -> list[int]:
    """Tokens of the context that stand for characters."""
    found = [k for k, s in enumerate(encoding.segments) if s == _CONTEXT]
    return [k for k in found if encoding.offsets[k][0] < encoding.offsets[k][1]] or found


def _text(encoding: Encoding, span: Span) -> str:
    return piece(encoding, _CONTEXT, (encoding.offsets[span[0]][0], encoding.offsets[span[1]][1]))


def _characters(encoding: Encoding, span: Span) -> str:
    return f"{encoding.offsets[span[0]][0]}:{encoding.offsets[span[1]][1]}"


def _contains(encoding: Encoding, text: str) -> bool:
    return text.strip().casefold() in (encoding.text_pair or "").casefold()
