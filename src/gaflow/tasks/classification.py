"""Classes of texts, pictures and sounds: one output for the whole input.

    "positive"                  a label; also its index
    "positive minus negative"   a contrast, the difference of two logits; also the tuple ("positive", "negative")
    "positive minus rest"       a class less the mean of all others; also ("positive", "rest") or ("positive", -1)
    None                        the predicted class

The convention this file owns: probabilities are those of the model's own head (softmax; sigmoid for multi-label
problems and single logits; none for regression, as the config's `problem_type` says). The probability of a contrast A
minus B under softmax is that of A among the two, `1 / (1 + exp(-y))`; other heads give a contrast none. That of a class
minus the rest is that of the class.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gaflow.errors import UnsupportedModelError
from gaflow.inputs.encoding import Encoding
from gaflow.inputs.transformers_types import ModelConfig
from gaflow.tasks.targets import (
    ExplainedOutput,
    Head,
    as_integer,
    class_output,
    class_probability,
    contrast_sides,
    contrast_terms,
    logits_on_host,
    target_error,
    two_sides,
    whole_target,
)

REST = -1  # as the second class of a contrast: the mean of all others
_REST_NAME = "rest"

ClassTarget = int | tuple[int, int]  # a class, or A minus B, which may be REST
_MAX_DIGITS = 10  # of the number of a class; Python takes none of more than 4300
_LISTED_LABELS = 20  # in errors and tables


@dataclass(frozen=True)
class ClassificationHead(Head[ClassTarget | None, ClassTarget | None]):
    """The output of a classifier: its labels, and how logits become probabilities."""

    labels: tuple[str, ...]  # (c,)
    link: str  # "softmax", "sigmoid" or "none"

    @classmethod
    def of(cls, config: ModelConfig) -> ClassificationHead:
        """The head that a model's config describes."""
        names = getattr(config, "id2label", None) or {}
        count = getattr(config, "num_labels", None) or len(names)
        labels = []
        for k in range(count):
            name = names.get(k, names.get(str(k), f"LABEL_{k}"))
            labels.append(str(name))
        problem = getattr(config, "problem_type", None)
        if problem == "regression":
            link = "none"
        elif problem == "multi_label_classification" or count == 1:
            link = "sigmoid"
        else:
            link = "softmax"
        return cls(tuple(labels), link)

    def parse(self, target: object) -> ClassTarget | None:
        """The class index or pair of indices that `target` means; None stays None."""
        if isinstance(target, ExplainedOutput):
            target = target.target
        if target is None:
            return None
        sides = contrast_sides(target)
        if isinstance(target, str) and self._find(target) is None:
            for pair in two_sides(target):
                indices = (self._find(pair[0]), self._find_subtracted(pair[1]))
                if indices != (None, None):  # if one side is no label, the error is about that side
                    sides = pair
                if None not in indices:
                    break
        a = self._index(sides[0], target)
        if len(sides) == 1:
            return a
        b = self._subtracted_index(sides[1], target)
        if a == b:
            raise target_error(f" {target!r} contrasts {self.labels[a]!r} with itself; give two classes")
        if b == REST and len(self.labels) == 2:
            return a, 1 - a
        if b == REST and len(self.labels) == 1:
            raise target_error(f" {target!r}: there is no other class than {self.labels[a]!r}")
        return a, b

    def resolve(self, target: ClassTarget | None, encoding: Encoding, name: str) -> ClassTarget | None:
        """Classes mean the same for every input."""
        return target

    def output(self, logits: Tensor, encoding: Encoding, target: ClassTarget | None) -> ExplainedOutput:
        """From logits (c,)."""
        shape = tuple(logits.shape)
        labels = len(self.labels)
        if shape != (labels,):
            raise UnsupportedModelError(
                f"the model's output for an input has shape {shape}, but its config names {labels} labels; set "
                "config.id2label to match the head"
            )
        on_host = logits_on_host(logits)
        if target is None:
            target = int(on_host.argmax())
        return self._output(on_host, target)

    def top_outputs(self, logits: Tensor, encoding: Encoding, count: int) -> list[ExplainedOutput]:
        """The classes by their logits (c,)."""
        on_host = logits_on_host(logits)
        order = on_host.argsort(descending=True, stable=True)
        return [self._output(on_host, k) for k in order[:count].tolist()]

    def _output(self, logits: Tensor, target: ClassTarget) -> ExplainedOutput:
        classes = target if isinstance(target, tuple) else (target,)
        if classes[-1] == REST:
            return self._less_rest(logits, classes[0])
        probability = None
        if self.link == "softmax":
            probability = class_probability(logits, classes)
        elif self.link == "sigmoid" and len(classes) == 1:
            probability = torch.sigmoid(logits[classes[0]]).item()
        return class_output(logits, classes, self.labels.__getitem__, probability)

    def _less_rest(self, logits: Tensor, index: int) -> ExplainedOutput:
        """The output for a class less the mean of all others; its probability is that of the class."""
        others = [k for k in range(len(self.labels)) if k != index]
        terms = [*contrast_terms([[(index,)]]), *contrast_terms([[], [(k,) for k in others]], len(others))]
        output = self._output(logits, index)
        return replace(
            output,
            target=(index, REST),
            label=f"{self.labels[index]} minus {_REST_NAME}",
            terms=tuple(terms),
            output_kind="logit less the mean of the others",
        )

    def _subtracted_index(self, side: object, target: object) -> int:
        """The index of the class that is subtracted, or REST."""
        if isinstance(side, str) and self._find_subtracted(side) == REST:
            return REST
        return REST if as_integer(side) == REST else self._index(side, target)

    def _find_subtracted(self, label: str) -> int | None:
        """As `_find`; "rest", if it is no label, is REST."""
        index = self._find(label)
        return REST if index is None and label.strip().casefold() == _REST_NAME else index

    def _index(self, side: object, target: object) -> int:
        """The index of one class, which is all of `target` or a side of it."""
        if isinstance(side, str):
            index = self._find(side)
            if index is None:
                context = "" if side == target else f" in {target!r}"
                hint = self._similar(side)
                raise target_error(f": no label {side!r}{context}; the model's labels are {self._listed()}{hint}")
            return index
        index = whole_target(side, "a class index, a label, a pair (A, B) or None")
        if not 0 <= index < len(self.labels):
            raise target_error(f" {index} is out of range: the classes are {self._listed()}")
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
            raise target_error(f": label {label!r} fits {[self.labels[k] for k in close]}; spell it exactly")
        if folded.isdecimal() and folded.isascii() and len(folded) < _MAX_DIGITS and int(folded) < len(self.labels):
            return int(folded)
        return None

    def _similar(self, label: str) -> str:
        """A hint at labels that are spelled alike; empty if there are none."""
        names = {name.casefold(): name for name in self.labels}
        similar = difflib.get_close_matches(label.strip().casefold(), names, n=2)
        if not similar:
            return ""
        return f"; did you mean {' or '.join(repr(names[name]) for name in similar)}?"

    def _listed(self) -> str:
        return list_labels([f"{k} {name!r}" for k, name in enumerate(self.labels)])


def list_labels(labels: Sequence[str]) -> str:
    """The first labels, and how many more there are."""
    listed = ", ".join(labels[:_LISTED_LABELS])
    more = len(labels) - _LISTED_LABELS
    return f"{listed} and {more} more" if more > 0 else listed
