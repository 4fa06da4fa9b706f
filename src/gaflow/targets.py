"""Which number of the model is explained.

A target is None (the predicted class), a class index, a label name, or a contrast "A minus B" (also the tuple
`(A, B)`) that explains the difference of two logits. `y` is always made of logits, never of probabilities.

The convention this file owns: probabilities are those of the model's own head (softmax; sigmoid for
multi-label problems and single logits; none for regression, as the config's `problem_type` says). The
probability of a contrast A minus B under softmax is that of A among the two, `1 / (1 + exp(-y))`; other heads
give a contrast none.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gaflow.errors import GaflowError, TargetError, UnsupportedModelError

__all__ = ["Head", "Resolved", "Target", "explained"]

Target = int | str | tuple[int | str, int | str] | None
Resolved = int | tuple[int, int]
_SHOWN = 20  # labels listed in an error


@dataclass(frozen=True)
class Head:
    """The output of a classifier: its labels, and how logits become probabilities."""

    labels: tuple[str, ...]  # (c,)
    link: str  # "softmax", "sigmoid" or "none"

    @classmethod
    def of(cls, config: Any) -> Head:
        """The head that a model's config describes."""
        names = getattr(config, "id2label", None) or {}
        count = getattr(config, "num_labels", None) or len(names)
        labels = tuple(str(names.get(k, names.get(str(k), f"LABEL_{k}"))) for k in range(count))
        problem = getattr(config, "problem_type", None)
        if problem == "regression":
            return cls(labels, "none")
        return cls(labels, "sigmoid" if problem == "multi_label_classification" or count == 1 else "softmax")

    def parse(self, target: Target) -> Resolved | None:
        """The class index or pair of indices that `target` means; None stays None."""
        if target is None:
            return None
        if isinstance(target, tuple):
            if len(target) != 2:
                raise TargetError(f"target {target!r}: a contrast is a pair (A, B), meaning A minus B")
            return self._contrast(self._index(target[0]), self._index(target[1]), target)
        if isinstance(target, str):
            found = self._find(target)
            if found is not None:
                return found
            for match in re.finditer(r"\s+minus\s+", target, re.IGNORECASE):
                a, b = self._find(target[: match.start()]), self._find(target[match.end() :])
                if a is not None and b is not None:
                    return self._contrast(a, b, target)
        return self._index(target)

    def parse_all(self, target: Target | Sequence[Target], count: int) -> list[Resolved | None]:
        """One parsed target per text: a list gives each its own, anything else serves them all."""
        if isinstance(target, list):
            if len(target) != count:
                raise TargetError(f"target is a list of {len(target)} but there are {count} texts; give one for each")
            return [self.parse(t) for t in target]
        return [self.parse(target)] * count  # type: ignore[arg-type]

    def resolve(self, logits: Tensor, targets: Sequence[Resolved | None]) -> list[Resolved]:
        """Targets with None replaced by the predicted class, once the logits prove to be this head's."""
        if logits.dim() != 2 or tuple(logits.shape) != (len(targets), len(self.labels)):
            raise UnsupportedModelError(
                f"the model's output for {len(targets)} texts has shape {tuple(logits.shape)}, but its "
                f"config names {len(self.labels)} labels; set config.id2label to match the head"
            )
        if not bool(torch.isfinite(logits).all()):
            raise GaflowError(
                "the model's output is not finite; check its weights, or load it with dtype=torch.float32"
            )
        predicted: list[int] = logits.argmax(-1).tolist()
        return [p if t is None else t for p, t in zip(predicted, targets, strict=True)]

    def probability(self, logits: Tensor, target: Resolved) -> float | None:
        """Probability of the explained class from one text's logits (c,)."""
        z = logits.detach().double()
        if isinstance(target, tuple):
            return torch.sigmoid(z[target[0]] - z[target[1]]).item() if self.link == "softmax" else None
        if self.link == "softmax":
            return z.softmax(-1)[target].item()
        return torch.sigmoid(z[target]).item() if self.link == "sigmoid" else None

    def name(self, target: Resolved) -> str:
        """The target's label for display: "positive" or "positive minus negative"."""
        if isinstance(target, tuple):
            return f"{self.labels[target[0]]} minus {self.labels[target[1]]}"
        return self.labels[target]

    def _index(self, target: Any) -> int:
        if isinstance(target, str):
            found = self._find(target)
            if found is None:
                raise TargetError(f"no label {self._unknown(target)}; the model's labels are {self._listed()}")
            return found
        try:
            if isinstance(target, bool):
                raise TypeError
            index = operator.index(target)
        except TypeError:
            raise TypeError(
                f"target must be a class index, a label, a pair (A, B) or None, not {type(target).__name__}"
            ) from None
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


def explained(logits: Tensor, targets: Sequence[Resolved]) -> Tensor:
    """The scalar `y` of every text, (b,): a logit or a difference of two, still part of the graph."""
    plus = torch.tensor([t[0] if isinstance(t, tuple) else t for t in targets], device=logits.device)
    y = logits.gather(1, plus[:, None])[:, 0]
    if not any(isinstance(t, tuple) for t in targets):
        return y
    minus = torch.tensor([t[1] if isinstance(t, tuple) else 0 for t in targets], device=logits.device)
    pair = torch.tensor([isinstance(t, tuple) for t in targets], device=logits.device)
    return y - torch.where(pair, logits.gather(1, minus[:, None])[:, 0], 0)
