"""Token classification: every token gets a tag, and a target is a place and a tag.

    (where, tag)        the tag of the tokens at a place, see `places.py`; also written "where=tag"
    where               the tags that the model gives there
    tag                 the place where the model is surest of it
    None                the entity that the model is surest of; if it sees none, the nearest to one

A tag is a label ("B-PER"), its index, a type ("PER": B-PER, then I-PER), or a contrast ("B-PER minus O"). `y` is the
mean of the logits of the tokens' tags, and the probability the mean of theirs, as Transformers' pipelines score.

The conventions this file owns: an entity is a run of tokens whose tags have the same type and of which none but the
first begins an entity (B-, S-, U-); without such prefixes, and without an O, every token is one. Of several places the
one of largest probability is meant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gaflow.errors import TargetError
from gaflow.inputs.encoding import Encoding
from gaflow.tasks.classification import ClassificationHead
from gaflow.tasks.targets import ExplainedOutput, LogitTerm, check_finite
from gaflow.tasks.text_location import TextLocation, TokenSpan, characters, find, parse_location, piece

__all__ = ["TokenClassificationHead"]

Tag = int | tuple[int, int] | str  # a label's index, a contrast of two, or a type
_PREFIX = re.compile(r"([BIESLU])-(.+)")
_BEGINS = ("B", "S", "U")


@dataclass(frozen=True)
class TagTarget:
    """A target: where (None: wherever the model is surest), and which tag (None: what the model gives)."""

    where: TextLocation | None
    tag: Tag | None


@dataclass(frozen=True)
class TokenClassificationHead:
    """The output of a tagger: one class for every token."""

    labels: tuple[str, ...]  # (c,)

    @classmethod
    def of(cls, config: Any) -> TokenClassificationHead:
        """The head that a model's config describes."""
        return cls(ClassificationHead.of(config).labels)

    def parse(self, target: Any) -> TagTarget | None:
        """A place, a tag, or both."""
        if isinstance(target, ExplainedOutput):
            target = target.target
        if target is None:
            return None
        if isinstance(target, str):
            for match in reversed(list(re.finditer("=", target))):
                where, tag = target[: match.start()], target[match.end() :]
                if where.strip():
                    return TagTarget(parse_location(where), self._tag(tag, target))
            try:
                return TagTarget(None, self._tag(target, target))
            except TargetError:
                return TagTarget(parse_location(target), None)
        if isinstance(target, tuple) and len(target) == 2:
            where, tag = target
            return TagTarget(parse_location(where), None if tag is None else self._tag(tag, target))
        return TagTarget(parse_location(target), None)

    def resolve(
        self, target: TagTarget | None, encoding: Encoding, name: str
    ) -> tuple[list[TokenSpan], Tag | None] | None:
        """The places that are meant; none of them yet, if only the tag was given."""
        if target is None:
            return None
        places = [] if target.where is None else find(target.where, encoding, 0, name)
        return places, target.tag

    def outputs(self, logits: Tensor, encodings: Sequence[Encoding], fitted: Sequence[Any]) -> list[ExplainedOutput]:
        """One aim for each text, from logits (b, t, c)."""
        found = []
        for z, encoding, asked in zip(logits, encodings, fitted, strict=True):
            known = self._check(z, encoding)
            if asked is None:
                found.append(self.top_outputs(known, encoding, 1)[0])
                continue
            places, tag = asked
            places = places or self._surest(known, encoding, tag)
            aims = [self._aim(known, encoding, place, tag) for place in places]
            found.append(max(aims, key=lambda aim: aim.probability or 0.0))
        return found

    def top_outputs(self, logits: Tensor, encoding: Encoding, count: int) -> list[ExplainedOutput]:
        """The entities, those that the model is surest of first; where there is none, what comes nearest to one."""
        known = self._check(logits, encoding)
        found = [self._aim(known, encoding, place, None) for place in self._entities(known, encoding)]
        if not found:
            place, tag = self._nearest(known, encoding)
            found = [self._aim(known, encoding, place, tag)]
        return sorted(found, key=lambda aim: -(aim.probability or 0.0))[:count]

    def _check(self, logits: Tensor, encoding: Encoding) -> Tensor:
        """One text's logits (t, c) on the host, without padding."""
        known = logits.detach()[: len(encoding)].cpu().double()
        check_finite(known)
        return known

    def _aim(self, logits: Tensor, encoding: Encoding, place: TokenSpan, tag: Tag | None) -> ExplainedOutput:
        tokens = place.tokens
        given = [int(logits[k].argmax()) for k in tokens]
        tags = given if tag is None else self._spread(tag[0] if isinstance(tag, tuple) else tag, len(tokens))
        others = self._spread(tag[1], len(tokens)) if isinstance(tag, tuple) else []
        weight = 1 / len(tokens)
        terms: list[LogitTerm] = [(weight, (k, c)) for k, c in zip(tokens, tags, strict=True)]
        terms += [(-weight, (k, c)) for k, c in zip(tokens, others, strict=False)]
        text = piece(encoding, encoding.segments[tokens[0]], place.span) or encoding.tokens[tokens[0]]
        label = f"{self._named(tags) if tag is None else self._spelled(tag)}: {text}"
        where = f"#{tokens[0]}" if len(tokens) == 1 else f"{place.span[0]}:{place.span[1]}"
        return ExplainedOutput(
            target=where if tag is None else f"{where}={self._spelled(tag)}",
            label=label,
            probability=self._probability(logits, tokens, tags, others),
            prediction=label if tags == given and not others else f"{self._named(given)}: {text}",
            terms=tuple(terms),
            output_kind=_measure(len(tokens), bool(others)),
            read_positions=tokens,
        )

    def _probability(self, logits: Tensor, tokens: Sequence[int], tags: list[int], others: list[int]) -> float | None:
        if not others:
            chances = logits.softmax(-1)
            return sum(chances[k, c].item() for k, c in zip(tokens, tags, strict=True)) / len(tokens)
        if len(tokens) > 1:
            return None
        return torch.sigmoid(logits[tokens[0], tags[0]] - logits[tokens[0], others[0]]).item()

    def _entities(self, logits: Tensor, encoding: Encoding) -> list[TokenSpan]:
        schemed = any(_PREFIX.fullmatch(label) for label in self.labels) or self._outside is not None
        runs: list[list[int]] = []
        last: tuple[str, int] | None = None  # type and segment of the token before
        for k in _ordinary(encoding):
            prefix, kind = _split(self.labels[int(logits[k].argmax())])
            here = None if kind == "O" else (kind, encoding.segments[k])
            if here is not None and here == last and prefix not in _BEGINS and schemed:
                runs[-1].append(k)
            elif here is not None:
                runs.append([k])
            last = here
        return [TokenSpan(tuple(run), characters(encoding, run)) for run in runs]

    def _nearest(self, logits: Tensor, encoding: Encoding) -> tuple[TokenSpan, int]:
        """The token and tag that come nearest to an entity."""
        chances = logits.softmax(-1)
        if self._outside is not None and len(self.labels) > 1:
            chances[:, self._outside] = -1
        ordinary = _ordinary(encoding)
        row = int(chances[ordinary].amax(1).argmax())
        k = ordinary[row]
        return TokenSpan((k,), encoding.offsets[k]), int(chances[k].argmax())

    def _surest(self, logits: Tensor, encoding: Encoding, tag: Tag) -> list[TokenSpan]:
        """The entities of a type, else the token where a tag is most probable."""
        if isinstance(tag, str):
            same = [p for p in self._entities(logits, encoding) if self._kind(logits, p) == tag]
            if same:
                return same
        first = self._spread(tag[0] if isinstance(tag, tuple) else tag, 1)[0]
        ordinary = _ordinary(encoding)
        k = ordinary[int(logits[ordinary].softmax(-1)[:, first].argmax())]
        return [TokenSpan((k,), encoding.offsets[k])]

    def _kind(self, logits: Tensor, place: TokenSpan) -> str:
        return _split(self.labels[int(logits[place.tokens[0]].argmax())])[1]

    def _tag(self, given: Any, whole: Any) -> Tag:
        """A tag, from a label, an index, a type or a contrast."""
        kinds = {_split(label)[1] for label in self.labels} - set(self.labels)
        if isinstance(given, str) and given.strip() in kinds:
            return given.strip()
        try:
            found = ClassificationHead(self.labels, "softmax").parse(given)
        except TargetError as error:
            more = f", and the types {', '.join(sorted(kinds))}" if kinds else ""
            raise TargetError(f"target {whole!r}: {error}{more}") from None
        assert found is not None
        assert not isinstance(found, str)
        return found

    def _spread(self, tag: int | str, count: int) -> list[int]:
        """The tags of `count` tokens: only the first begins an entity."""
        prefix, kind = (None, tag) if isinstance(tag, str) else _split(self.labels[tag])
        inner = self.labels.index(f"I-{kind}") if f"I-{kind}" in self.labels else None
        if isinstance(tag, str):
            known = [self.labels.index(f"{p}-{kind}") for p in "BSUIEL" if f"{p}-{kind}" in self.labels]
            first = known[0]
        else:
            first = tag
        rest = inner if inner is not None and (isinstance(tag, str) or prefix in _BEGINS) else first
        return [first, *[rest] * (count - 1)]

    def _named(self, tags: Sequence[int]) -> str:
        return ", ".join(dict.fromkeys(_split(self.labels[c])[1] for c in tags))

    def _spelled(self, tag: Tag) -> str:
        if isinstance(tag, tuple):
            return f"{self.labels[tag[0]]} minus {self.labels[tag[1]]}"
        return tag if isinstance(tag, str) else self.labels[tag]

    @property
    def _outside(self) -> int | None:
        return self.labels.index("O") if "O" in self.labels else None


def _split(label: str) -> tuple[str | None, str]:
    """The prefix and the type of a tag."""
    match = _PREFIX.fullmatch(label)
    return (match[1], match[2]) if match else (None, label)


def _ordinary(encoding: Encoding) -> list[int]:
    """Tokens that stand for characters."""
    found = [k for k, (a, b) in enumerate(encoding.offsets) if encoding.segments[k] >= 0 and a < b]
    return found or [k for k, s in enumerate(encoding.segments) if s >= 0]


def _measure(tokens: int, contrast: bool) -> str:
    one = "difference of logits" if contrast else "logit"
    return one if tokens == 1 else f"mean {one} of {tokens} tokens"
