"""Token classification: each token gets a tag, and a target is a location and a tag.

    (location, tag)     the tag of the tokens at a location, see `text_location.py`; also written "location=tag"
    location            the tags that the model predicts there
    tag                 the location where the model is surest of it
    None                the entity that the model is surest of; if it predicts none, the token closest to being one

A tag is a label ("B-PER"), its index, a type ("PER": B-PER, then I-PER), or a contrast ("B-PER minus O"). `y` is the
mean of the logits of the tokens' tags, and the probability the mean of theirs, as Transformers' pipelines score.

The conventions this file owns: an entity is a run of tokens whose tags have the same type and of which none but the
first begins an entity (B-, S-, U-). Without such prefixes and without an O, each token is an entity. Of several
locations, the one of largest probability is meant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch import Tensor

from gaflow.errors import TargetError, UnsupportedModelError
from gaflow.inputs.encoding import Encoding
from gaflow.inputs.transformers_types import ModelConfig
from gaflow.tasks.classification import ClassificationHead
from gaflow.tasks.targets import ExplainedOutput, Head, class_probability, contrast_terms, logits_on_host, target_error
from gaflow.tasks.text_location import TextLocation, TokenSpan, find_tokens, parse_location, tokens_with_characters

Tag = int | tuple[int, int] | str  # a label's index, a contrast of two, or a type
_PREFIX = re.compile(r"([BIESLU])-(.+)")
_BEGINS = ("B", "S", "U")
_OUTSIDE = "O"


@dataclass(frozen=True)
class TagTarget:
    """A target without its text."""

    location: TextLocation | None = None  # None: where the model is surest
    tag: Tag | None = None  # None: the predicted tags


# A target for one text: locations, of which the most probable is meant (none: where the model is surest), and the tag
# (None: the predicted tags).
ResolvedTag = tuple[list[TokenSpan], Tag | None]


@dataclass(frozen=True)
class TokenClassificationHead(Head[TagTarget, ResolvedTag]):
    """The output of a tagger: one class for each token."""

    labels: tuple[str, ...]  # (c,)

    @classmethod
    def of(cls, config: ModelConfig) -> TokenClassificationHead:
        """The head that a model's config describes."""
        return cls(ClassificationHead.of(config).labels)

    def parse(self, target: object) -> TagTarget:
        """A location, a tag, or both."""
        if isinstance(target, ExplainedOutput):
            target = target.target
        if target is None:
            return TagTarget()
        location = target
        tag = None
        if isinstance(target, str):
            location, _, tag = target.rpartition("=")
            if not location.strip():
                try:
                    return TagTarget(tag=self._parse_tag(target, target))
                except TargetError:
                    return TagTarget(parse_location(target))
        elif isinstance(target, tuple) and len(target) == 2:
            location, tag = target
        if tag is not None:
            tag = self._parse_tag(tag, target)
        return TagTarget(parse_location(location), tag)

    def _parse_tag(self, tag: object, target: object) -> Tag:
        """A tag from a label, an index, a type or a contrast; `target` is all that the user gave."""
        types = {_type(label) for label in self.labels} - set(self.labels)
        if isinstance(tag, str) and tag.strip() in types:
            return tag.strip()
        try:
            parsed = ClassificationHead(self.labels, "softmax").parse(tag)
        except TargetError as error:
            and_types = f", and the types {', '.join(sorted(types))}" if types else ""
            raise target_error(f" {target!r}: {error}{and_types}") from None
        assert parsed is not None
        return parsed

    def resolve(self, target: TagTarget, encoding: Encoding, name: str) -> ResolvedTag:
        """The tokens at the location."""
        spans = [] if target.location is None else find_tokens(target.location, encoding, 0, name)
        return spans, target.tag

    def output(self, logits: Tensor, encoding: Encoding, target: ResolvedTag) -> ExplainedOutput:
        """From logits (t, c)."""
        return self._candidates(logits, encoding, target)[0]

    def top_outputs(self, logits: Tensor, encoding: Encoding, count: int) -> list[ExplainedOutput]:
        """The entities, those that the model is surest of first; if there is none, the token closest to being one."""
        return self._candidates(logits, encoding, ([], None))[:count]

    def _candidates(self, logits: Tensor, encoding: Encoding, target: ResolvedTag) -> list[ExplainedOutput]:
        """The outputs that a target may mean, the most probable first; at least one."""
        if logits.dim() != 2 or len(logits) < len(encoding) or logits.shape[1] != len(self.labels):
            raise UnsupportedModelError(
                f"the model's output for a text of {len(encoding)} tokens has shape {tuple(logits.shape)}, not one "
                f"logit per token and tag ({len(self.labels)}); set config.id2label to match the head"
            )
        logits = logits_on_host(logits[: len(encoding)])
        spans, tag = target
        if not spans and (tag is None or isinstance(tag, str)):
            spans = self._entities(logits, encoding, tag)
        if not spans:
            if tag is None:
                tags = [k for k, label in enumerate(self.labels) if label != _OUTSIDE] or [0]
            else:
                tags = self._tags_of_tokens(_sides(tag)[0], 1)
            tokens = tokens_with_characters(encoding)
            probabilities = logits.softmax(-1)[tokens][:, tags]
            row, column = divmod(int(probabilities.argmax()), len(tags))
            if tag is None:
                tag = tags[column]
            spans = [TokenSpan.of(encoding, [tokens[row]])]
        outputs = [self._output(logits, encoding, span, tag) for span in spans]
        return sorted(outputs, key=lambda output: -(output.probability or 0.0))

    def _output(self, logits: Tensor, encoding: Encoding, span: TokenSpan, tag: Tag | None) -> ExplainedOutput:
        tokens = span.tokens
        predicted = [int(logits[k].argmax()) for k in tokens]
        types = dict.fromkeys(_type(self.labels[k]) for k in predicted)  # each once
        predicted_name = ", ".join(types)
        start, end = span.span
        first = tokens[0]
        target = f"#{first}" if len(tokens) == 1 else f"{start}:{end}"
        if tag is None:
            sides = [predicted]  # the tags of the tokens, and those that a contrast subtracts
            name = predicted_name
        else:
            sides = [self._tags_of_tokens(side, len(tokens)) for side in _sides(tag)]
            names = [side if isinstance(side, str) else self.labels[side] for side in _sides(tag)]
            name = " minus ".join(names)
            target = f"{target}={name}"
            if sides == [predicted]:
                predicted_name = name
        source = encoding.source(encoding.segments[first])
        text = source[start:end] or encoding.tokens[first]
        positions = [list(zip(tokens, tags, strict=True)) for tags in sides]
        probability = None
        if len(sides) == 1 or len(tokens) == 1:  # the mean of the tags; of a contrast, one tag among the two
            total = 0.0
            for token, *tags in zip(tokens, *sides, strict=True):
                total += class_probability(logits[token], tags)
            probability = total / len(tokens)
        output_kind = "difference of logits" if len(sides) == 2 else "logit"
        if len(tokens) > 1:
            output_kind = f"mean {output_kind} of {len(tokens)} tokens"
        return ExplainedOutput(
            target=target,
            label=f"{name}: {text}",
            probability=probability,
            prediction=f"{predicted_name}: {text}",
            terms=contrast_terms(positions, len(tokens)),
            output_kind=output_kind,
            read_positions=tokens,
        )

    def _entities(self, logits: Tensor, encoding: Encoding, only: str | None) -> list[TokenSpan]:
        """The runs of tokens that the model tags as entities, of one type if `only` names it."""
        has_prefixes = any(_PREFIX.fullmatch(label) for label in self.labels)
        can_merge = has_prefixes or _OUTSIDE in self.labels
        runs = []
        previous = None  # type and segment of the entity that the token before is in
        for k in tokens_with_characters(encoding):
            predicted = int(logits[k].argmax())
            prefix, kind = _split(self.labels[predicted])
            if kind == _OUTSIDE or only not in (None, kind):
                previous = None
                continue
            current = (kind, encoding.segments[k])
            if can_merge and current == previous and prefix not in _BEGINS:
                runs[-1].append(k)
            else:
                runs.append([k])
            previous = current
        return [TokenSpan.of(encoding, run) for run in runs]

    def _tags_of_tokens(self, tag: int | str, count: int) -> list[int]:
        """The tags of `count` tokens of one entity: only the first begins it."""
        if isinstance(tag, str):
            kind = tag
            begins = True
            labels = [f"{prefix}-{kind}" for prefix in "BSUIEL"]
            first = next(self.labels.index(label) for label in labels if label in self.labels)
        else:
            prefix, kind = _split(self.labels[tag])
            begins = prefix in _BEGINS
            first = tag
        inside = f"I-{kind}"
        following = self.labels.index(inside) if begins and inside in self.labels else first
        return [first] + [following] * (count - 1)


def _sides(tag: Tag) -> tuple[int | str, ...]:
    """A tag, or the two of a contrast."""
    return tag if isinstance(tag, tuple) else (tag,)


def _type(label: str) -> str:
    return _split(label)[1]


def _split(label: str) -> tuple[str | None, str]:
    """The prefix and the type of a tag."""
    match = _PREFIX.fullmatch(label)
    return (match[1], match[2]) if match else (None, label)
