"""Which number of the model is explained, and the heads that give one output for the whole input.

Whatever the task, the explained scalar is a weighted sum of one input's logits,

    y = Σ_k weight_k logits[place_k],

never of probabilities; an `ExplainedOutput` says which, and what to call it. Here are classes (of texts, pictures, sounds): a
target is None (the predicted class), a class index, a label name, or a contrast "A minus B" (also the tuple `(A, B)`)
that explains the difference of two logits. The heads of `gaflow.tasks` read one position among many.

The convention this file owns: probabilities are those of the model's own head (softmax; sigmoid for
multi-label problems and single logits; none for regression, as the config's `problem_type` says). The
probability of a contrast A minus B under softmax is that of A among the two, `1 / (1 + exp(-y))`; other heads
give a contrast none.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from gaflow.errors import GaflowError, TargetError, UnsupportedModelError

if TYPE_CHECKING:
    from gaflow.inputs.encoding import Encoding

__all__ = [
    "ClassificationHead",
    "ExplainedOutput",
    "Head",
    "Resolved",
    "Target",
    "Term",
    "as_integer",
    "check_finite",
    "explained_scalar",
    "parse_all",
    "two_sides",
]

Resolved = int | tuple[int, int] | str  # a class, A minus B, or a place in the input and what is asked there
Term = tuple[float, tuple[int, ...]]  # weight, and where in one input's logits
_SHOWN = 20  # labels listed in an error


@dataclass(frozen=True)
class ExplainedOutput:
    """What is explained of one input; as a target it can be asked for again."""

    target: Resolved
    label: str  # for display
    probability: float | None
    prediction: str  # what the model says in place of `label`
    terms: tuple[Term, ...]  # of y
    output_kind: str = ""  # what y is, in words, if it is no logit or difference of two
    read_positions: tuple[int, ...] = ()  # output tokens that y is read from; none where the head reads the whole input


Where = int | str | tuple[int, int]
Target = int | str | ExplainedOutput | tuple[Where, Where | tuple[int | str, int | str] | None] | None


class Head(Protocol):
    """How a task's logits are read."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes, or nothing where they are a vocabulary."""
        ...

    def parse(self, target: Any) -> Any:
        """What `target` means as far as no input is needed; refuses what can mean nothing."""
        ...

    def resolve(self, target: Any, encoding: Encoding, name: str) -> Any:
        """What a parsed target means for one input, which errors call `name`; None: the prediction."""
        ...

    def outputs(self, logits: Tensor, encodings: Sequence[Encoding], fitted: Sequence[Any]) -> list[ExplainedOutput]:
        """One aim for each input of a batch, from its logits and its fitted target."""
        ...

    def top_outputs(self, logits: Tensor, encoding: Encoding, count: int) -> list[ExplainedOutput]:
        """What there is to explain of one input, the most probable first, from its logits without padding."""
        ...


@dataclass(frozen=True)
class ClassificationHead:
    """The output of a classifier: its labels, and how logits become probabilities."""

    labels: tuple[str, ...]  # (c,)
    link: str  # "softmax", "sigmoid" or "none"

    @classmethod
    def of(cls, config: Any) -> ClassificationHead:
        """The head that a model's config describes."""
        names = getattr(config, "id2label", None) or {}
        count = getattr(config, "num_labels", None) or len(names)
        labels = tuple(str(names.get(k, names.get(str(k), f"LABEL_{k}"))) for k in range(count))
        problem = getattr(config, "problem_type", None)
        if problem == "regression":
            return cls(labels, "none")
        return cls(labels, "sigmoid" if problem == "multi_label_classification" or count == 1 else "softmax")

    def parse(self, target: Any) -> Resolved | None:
        """The class index or pair of indices that `target` means; None stays None."""
        if target is None:
            return None
        if isinstance(target, ExplainedOutput):
            target = target.target
        if isinstance(target, tuple):
            if len(target) != 2:
                raise TargetError(f"target {target!r}: a contrast is a pair (A, B), meaning A minus B")
            return self._contrast(self._index(target[0]), self._index(target[1]), target)
        if isinstance(target, str):
            found = self._find(target)
            if found is not None:
                return found
            for one, other in two_sides(target):
                a, b = self._find(one), self._find(other)
                if a is not None and b is not None:
                    return self._contrast(a, b, target)
        return self._index(target)

    def fill_in_predictions(self, logits: Tensor, targets: Sequence[Resolved | None]) -> list[Resolved]:
        """Targets with None replaced by the predicted class, once the logits prove to be this head's."""
        if logits.dim() != 2 or tuple(logits.shape) != (len(targets), len(self.labels)):
            raise UnsupportedModelError(
                f"the model's output for {len(targets)} texts has shape {tuple(logits.shape)}, but its "
                f"config names {len(self.labels)} labels; set config.id2label to match the head"
            )
        check_finite(logits)
        predicted: list[int] = logits.argmax(-1).tolist()
        return [p if t is None else t for p, t in zip(predicted, targets, strict=True)]

    def resolve(self, target: Resolved | None, encoding: Encoding, name: str) -> Resolved | None:
        """Classes mean the same for every input."""
        return target

    def outputs(
        self, logits: Tensor, encodings: Sequence[Encoding], fitted: Sequence[Resolved | None]
    ) -> list[ExplainedOutput]:
        """One aim for each input, from logits (b, c)."""
        known = logits.detach().double().cpu()
        return [self._aim(z, t) for z, t in zip(known, self.fill_in_predictions(logits, fitted), strict=True)]

    def top_outputs(self, logits: Tensor, encoding: Encoding, count: int) -> list[ExplainedOutput]:
        """The classes by their logits (c,)."""
        z = logits.detach().double().cpu()
        return [self._aim(z, k) for k in z.argsort(descending=True, stable=True)[:count].tolist()]

    def _aim(self, logits: Tensor, target: Resolved) -> ExplainedOutput:
        assert not isinstance(target, str)
        terms = ((1.0, (target,)),) if isinstance(target, int) else ((1.0, (target[0],)), (-1.0, (target[1],)))
        chance, predicted = self.probability(logits, target), self.labels[int(logits.argmax())]
        return ExplainedOutput(target, self.name(target), chance, predicted, terms)

    def probability(self, logits: Tensor, target: Resolved) -> float | None:
        """Probability of the explained class from one text's logits (c,)."""
        assert not isinstance(target, str)
        z = logits.detach().double()
        if isinstance(target, tuple):
            return torch.sigmoid(z[target[0]] - z[target[1]]).item() if self.link == "softmax" else None
        if self.link == "softmax":
            return z.softmax(-1)[target].item()
        return torch.sigmoid(z[target]).item() if self.link == "sigmoid" else None

    def name(self, target: Resolved) -> str:
        """The target's label for display: "positive" or "positive minus negative"."""
        assert not isinstance(target, str)
        if isinstance(target, tuple):
            return f"{self.labels[target[0]]} minus {self.labels[target[1]]}"
        return self.labels[target]

    def _index(self, target: Any) -> int:
        if isinstance(target, str):
            found = self._find(target)
            if found is None:
                raise TargetError(f"no label {self._unknown(target)}; the model's labels are {self._listed()}")
            return found
        index = as_integer(target)
        if index is None:
            raise TypeError(
                f"target must be a class index, a label, a pair (A, B) or None, not {type(target).__name__}"
            )
        if not 0 <= index < len(self.labels):
            raise TargetError(f"target {index} is out of range: the classes are {self._listed()}")
        return index

    def _find(self, label: str) -> int | None:
        """Exactly, then ignoring case and outer spaces if that leaves no doubt, then as a number."""
        if label in self.labels:
            return self.labels.index(label)
        folded = label.strip().casefold()
        close = [k for k, name in enumerate(self.labels) if name.strip().casefold() == folded]
        if len(close) == 1:
            return close[0]
        if close:
            raise TargetError(f"label {label!r} fits {[self.labels[k] for k in close]}; spell it exactly")
        if folded.isdecimal() and folded.isascii() and int(folded) < len(self.labels):
            return int(folded)
        return None

    def _unknown(self, target: str) -> str:
        """What of `target` is no label: one side of a contrast if the other one is, else all of it."""
        sides = re.split(r"\s+minus\s+", target, flags=re.IGNORECASE)
        wrong = [side for side in sides if self._find(side) is None]
        return f"{wrong[0]!r} in {target!r}" if len(sides) == 2 and len(wrong) == 1 else repr(target)

    def _contrast(self, a: int, b: int, given: Any) -> tuple[int, int]:
        if a == b:
            raise TargetError(f"target {given!r} contrasts {self.labels[a]!r} with itself; give two classes")
        return a, b

    def _listed(self) -> str:
        shown = ", ".join(f"{k} {name!r}" for k, name in enumerate(self.labels[:_SHOWN]))
        return shown + (f" and {len(self.labels) - _SHOWN} more" if len(self.labels) > _SHOWN else "")


def parse_all(head: Head, target: Any, count: int) -> list[Any]:
    """One parsed target per input: a list gives each its own, anything else serves them all."""
    if isinstance(target, list):
        if len(target) != count:
            raise TargetError(f"target is a list of {len(target)} but there are {count} texts; give one for each")
        return [head.parse(t) for t in target]
    return [head.parse(target)] * count


def as_integer(given: Any) -> int | None:
    """A whole number as a plain one, NumPy's and torch's too; None if it is none, as True and False are not."""
    if isinstance(given, bool) or str(getattr(given, "dtype", "")).endswith("bool"):
        return None
    try:
        return operator.index(given)
    except TypeError:
        return None


def two_sides(target: str) -> Iterator[tuple[str, str]]:
    """The ways to read "A minus B" as a contrast of two strings."""
    for match in re.finditer(r"\s+minus\s+", target, re.IGNORECASE):
        yield target[: match.start()], target[match.end() :]


def check_finite(logits: Tensor) -> None:
    """Refuse an output that cannot be explained."""
    if not bool(torch.isfinite(logits).all()):
        raise GaflowError("the model's output is not finite; check its weights, or load it with dtype=torch.float32")


def explained_scalar(logits: Tensor, terms: Sequence[Sequence[Term]]) -> Tensor:
    """The scalar `y` of every input, (b,), from logits (b, ...) and the terms of each; still part of the graph."""
    b, most = len(logits), max(len(each) for each in terms)
    strides = [math.prod(logits.shape[k + 2 :]) for k in range(logits.dim() - 1)]
    where, weight = torch.zeros(b, most, dtype=torch.long), torch.zeros(b, most, dtype=torch.float64)
    for item, each in enumerate(terms):
        places = [sum(k * stride for k, stride in zip(place, strides, strict=True)) for _, place in each]
        where[item] = torch.tensor(places + places[:1] * (most - len(each)))  # what fills up has weight 0
        weight[item, : len(each)] = torch.tensor([w for w, _ in each], dtype=torch.float64)
    read = logits.reshape(b, -1).gather(1, where.to(logits.device))
    return (read * weight.to(logits.device, logits.dtype)).sum(1)
