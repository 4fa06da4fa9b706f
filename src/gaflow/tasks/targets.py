"""Which number of the model's output is explained.

Whatever the task, the explained scalar is a weighted sum of one input's logits,

    y = Σ_k weight_k logits[position_k],

never of probabilities. An `ExplainedOutput` holds these terms and what to call them. Each task has a `Head`, which
turns the user's target into such an output in three steps: `parse` (no input needed), `resolve` (for one input), and
`output` (with its logits).
"""

from __future__ import annotations

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from gaflow.errors import Argument, ArgumentTypeError, GaflowError, TargetError, UnsupportedModelError
from gaflow.inputs.encoding import Encoding

Position = tuple[int, ...]  # in the logits of one input
ResolvedTarget = int | tuple[int, int] | str  # a class or token, A minus B, or a position in the input and its output


class LogitTerm(NamedTuple):
    """One term of the explained scalar."""

    weight: float
    position: Position


def contrast_terms(sides: Iterable[Iterable[Position]], divisor: int = 1) -> tuple[LogitTerm, ...]:
    """The sum of the logits at the positions of one side, or the difference of two such sums, by `divisor`."""
    terms = []
    for sign, positions in zip((1.0, -1.0), sides, strict=False):
        for position in positions:
            terms.append(LogitTerm(sign / divisor, position))
    return tuple(terms)


@dataclass(frozen=True)
class ExplainedOutput:
    """The output that is explained of one input. Pass it as `target` to explain it again."""

    target: ResolvedTarget
    label: str  # for display
    probability: float | None
    prediction: str  # the model's own output, in the words of `label`
    terms: tuple[LogitTerm, ...]  # of y
    output_kind: str = ""  # what y is, in words, if it is no logit or difference of two
    read_positions: tuple[int, ...] = ()  # output tokens that y is read from; none where the head reads the whole input


TargetPart = int | str | tuple[int, int]
Target = int | str | ExplainedOutput | tuple[TargetPart, TargetPart | tuple[int | str, int | str] | None] | None

Parsed = TypeVar("Parsed")  # a target without its input
Resolved = TypeVar("Resolved")  # a target for one input


class Head(ABC, Generic[Parsed, Resolved]):
    """How a task's logits are read."""

    labels: tuple[str, ...]  # names of the classes; empty where they are a vocabulary

    @abstractmethod
    def parse(self, target: object) -> Parsed:
        """The meaning of `target` as far as no input is needed; raises TargetError if it can mean nothing."""

    @abstractmethod
    def resolve(self, target: Parsed, encoding: Encoding, name: str) -> Resolved:
        """The meaning of a parsed target for one input, which errors call `name`."""

    @abstractmethod
    def output(self, logits: Tensor, encoding: Encoding, target: Resolved) -> ExplainedOutput:
        """The output of one input of a batch, from its logits and its resolved target."""

    @abstractmethod
    def top_outputs(self, logits: Tensor, encoding: Encoding, count: int) -> list[ExplainedOutput]:
        """The outputs of one input that can be explained, the most probable first, from its logits without padding."""

    def outputs(
        self, logits: Tensor, encodings: Sequence[Encoding], targets: Sequence[Resolved]
    ) -> list[ExplainedOutput]:
        """The output of each input of a batch."""
        shape = tuple(logits.shape)
        if shape[:1] != (len(targets),):
            raise UnsupportedModelError(f"the model's output for {len(targets)} inputs has shape {shape}")
        if len(shape) == 2:
            logits = logits.cpu()  # at once, since they are few
        return list(map(self.output, logits, encodings, targets))


AnyHead = Head[Any, Any]


def class_probability(logits: Tensor, classes: Sequence[int]) -> float:
    """The probability of a class under softmax, from logits (c,); of a contrast, that of one class among the two."""
    first, *others = classes
    if not others:
        return logits.softmax(-1)[first].item()
    return torch.sigmoid(logits[first] - logits[others[0]]).item()


def class_output(
    logits: Tensor,
    classes: tuple[int, ...],
    name_of: Callable[[int], str],
    probability: float | None,
    position: Position = (),
) -> ExplainedOutput:
    """The output for a class, or for the contrast of two, from logits (c,), those of the input at `position`."""
    target = classes[0] if len(classes) == 1 else (classes[0], classes[1])
    return ExplainedOutput(
        target=target,
        label=" minus ".join(map(name_of, classes)),
        probability=probability,
        prediction=name_of(int(logits.argmax())),
        terms=contrast_terms([(*position, k)] for k in classes),
        read_positions=position,
    )


def parse_all(head: Head[Parsed, Any], target: object, count: int) -> list[Parsed]:
    """One parsed target per input: a list gives each its own, anything else serves them all."""
    if not isinstance(target, list):
        return [head.parse(target)] * count
    if len(target) != count:
        raise target_error(f" is a list of {len(target)} but there are {count} texts; give one for each")
    return [head.parse(item) for item in target]


def as_integer(value: object) -> int | None:
    """A whole number of Python, NumPy or torch as an int; None for anything else, True and False included."""
    if isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool"):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def whole_target(target: object, kinds: str) -> int:
    """A whole number as target; `kinds` says what else a target may be, for the error about anything else."""
    number = as_integer(target)
    if number is None:
        raise ArgumentTypeError(Argument("target"), f" must be {kinds}, not {type(target).__name__}")
    return number


def contrast_sides(target: object) -> tuple[object, ...]:
    """The two sides of a pair, or the target itself as the only one."""
    if not isinstance(target, tuple):
        return (target,)
    if len(target) != 2:
        raise target_error(f" {target!r}: a contrast is a pair (A, B), meaning A minus B")
    return target


def two_sides(target: str) -> Iterator[tuple[str, str]]:
    """The ways to read "A minus B" as a contrast of two strings."""
    for match in re.finditer(r"\s+minus\s+", target, re.IGNORECASE):
        yield target[: match.start()], target[match.end() :]


def target_error(*message: str | Argument) -> TargetError:
    """An error about the argument `target`."""
    return TargetError(Argument("target"), *message)


def logits_on_host(logits: Tensor) -> Tensor:
    """Logits in float64 on the host, without a graph; refuses an output that cannot be explained."""
    on_host = logits.detach().cpu().double()  # in this order: some devices have no float64
    if not bool(torch.isfinite(on_host).all()):
        raise GaflowError(
            "the model's output is not finite; check its weights, or load it with ", Argument("dtype", torch.float32)
        )
    return on_host


def explained_scalar(logits: Tensor, terms: Sequence[Sequence[LogitTerm]]) -> Tensor:
    """The scalar `y` of every input, (b,), from logits (b, ...) and the terms of each; still part of the graph."""
    count = max(len(item_terms) for item_terms in terms)
    rows: dict[int, int] = {}  # id of an item's terms -> row below: methods that run many variants repeat a few terms
    positions = []  # in the logits of one input, `count` for each row
    weights = []
    for item_terms in terms:
        if id(item_terms) in rows:
            continue
        rows[id(item_terms)] = len(rows)
        filling = [LogitTerm(0.0, item_terms[0].position)] * (count - len(item_terms))
        for weight, position in [*item_terms, *filling]:
            positions.append(position)
            weights.append(weight)
    flat = np.ravel_multi_index(tuple(np.array(positions).T), logits.shape[1:])
    row_of = torch.tensor([rows[id(item_terms)] for item_terms in terms])
    index = torch.from_numpy(flat).view(-1, count)[row_of].to(logits.device)
    weight_of = torch.tensor(weights, dtype=torch.float64).view(-1, count)[row_of].to(logits.device, logits.dtype)
    return (logits.flatten(1).gather(1, index) * weight_of).sum(1)
