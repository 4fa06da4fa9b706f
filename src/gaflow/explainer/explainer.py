"""The front door: model + tokenizer + text -> Attribution, whatever the model's task.

    text -> Encoding -> Batch -> Trace -> method -> Scores -> Attribution

What is a text and what a target is the task's business (`gaflow.tasks`). A list is sorted by length so that little
padding is needed, and given back in its own order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import Any, overload

import torch
from torch import Tensor

from gaflow.attribution.attribution import Attribution
from gaflow.errors import SolveError, UnsupportedModelError
from gaflow.explainer.batch import explain_batch
from gaflow.explainer.default_method import default_method
from gaflow.explainer.windows import Windows, explain_in_windows, find_windows, mean_logits
from gaflow.inputs.encoding import (
    Batch,
    Encoding,
    Padding,
    batches,
    check_text,
    collate,
    encode,
    length_limit,
    neutral_tokens,
)
from gaflow.methods import METHODS, Method, find_method
from gaflow.models.loading import load_model
from gaflow.models.memory import batch_limit, device_of, fitting, halving
from gaflow.models.tracing import Trace, TracedModel
from gaflow.progress import Progress, Report, reporting, silent, within
from gaflow.tasks import TASKS, Input
from gaflow.tasks.targets import ClassificationHead, ExplainedOutput, Head, Target, parse_all

__all__ = ["AnyMethod", "Explainer", "classes_of"]

AnyMethod = str | Method | Callable[[Tensor, Tensor], Tensor] | None
_WINDOW = 8  # batches that `stream` reads ahead to sort by length


class Explainer:
    """Explains the predictions of one model.

    `model` is a hub id, a local path, a transformers model (with its tokenizer) or a pipeline; None is
    the embedded demo model. Models loaded by name go to `device` (None: the GPU if there is one) in `dtype`
    (None: float32); a model object stays where and as it is, and is left exactly as found every time.
    """

    def __init__(
        self,
        model: Any = None,
        tokenizer: Any = None,
        *,
        task: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str | None = None,
    ):
        loaded = load_model(model, tokenizer, task, device, dtype)
        self.model = loaded.model
        self.tokenizer = loaded.tokenizer
        self.task = loaded.task

    def __repr__(self) -> str:
        labels = self.head.labels[:5]
        return f"Explainer({type(self.model).__name__}, {self.task}{', labels ' * bool(labels)}{', '.join(labels)})"

    @property
    def head(self) -> Any:
        """The model's labels and how its logits are read; of classifiers, a `gaflow.tasks.targets.Head`."""
        return TASKS[self.task].head(self.model, self.tokenizer)

    @cached_property
    def default(self) -> Method:
        """The method that explains if none is named; a few words to the model find it."""
        return default_method(self.task, self.head, self)

    @property
    def limit(self) -> int | None:
        """The most tokens a text may have, special tokens included."""
        return length_limit(self.model, self.tokenizer)

    @property
    def padding(self) -> Padding:
        """How texts of different lengths may share a batch."""
        return Padding.of(self.model, self.tokenizer)

    @overload
    def __call__(
        self,
        text: list[Any],
        method: AnyMethod = None,
        target: Target | list[Target] = None,
        *,
        batch_size: int = 16,
        truncation: bool = False,
        windows: bool | Windows = False,
        progress: Progress = False,
        keep_flow: bool = True,
    ) -> list[Attribution]: ...

    @overload
    def __call__(
        self,
        text: Input,
        method: AnyMethod = None,
        target: Target = None,
        *,
        batch_size: int = 16,
        truncation: bool = False,
        windows: bool | Windows = False,
        progress: Progress = False,
        keep_flow: bool = True,
    ) -> Attribution: ...

    def __call__(
        self,
        text: Any,
        method: AnyMethod = None,
        target: Any = None,
        *,
        batch_size: int = 16,
        truncation: bool = False,
        windows: bool | Windows = False,
        progress: Progress = False,
        keep_flow: bool = True,
    ) -> Attribution | list[Attribution]:
        """Explain a text, a (text, pair) tuple (for question answering (question, context)), or a list of those.

        `method` is a name of METHODS, a settings object, a callable (attention, gradient) -> (b, l, t, t), or None for
        the `default`. `target` is None (the prediction), a class index, a label, a contrast ("A minus B" or a pair), or
        for a list of texts a list with one of these for each. Taggers take (where, tag), question answering an answer,
        language models a word; `predictions` lists what there is. `truncation` cuts texts to what the model takes;
        `windows` (True, or a `gaflow.Windows`) reads longer ones in overlapping parts and puts the scores together.
        `progress` shows a bar (True) or is called with (texts done, texts in all), where a method that asks the model
        many times counts parts of a text. `keep_flow=False` drops the edge flows, which are l * t * t numbers a text,
        and keeps scores, layers and certificate.
        """
        named = [] if method is None else [find_method(method)]  # the default waits until all that is given is checked
        if divide := find_windows(windows, truncation):
            texts, names = (text, _names(len(text))) if isinstance(text, list) else ([text], ["text"])
            with reporting(progress, len(texts), "text") as report:
                tell = within(report, 0, len(texts))
                found = self._in_windows(texts, target, named, divide, names, batch_size, keep_flow, tell)
            return [each[0] for each in found] if isinstance(text, list) else found[0][0]
        if not isinstance(text, list):
            encoding, fitted = self.ask(text, target, truncation)
            with reporting(progress, 1, "text") as report:
                return self.run([encoding], [fitted], named or [self.default], keep_flow, report)[0][0]
        _check_batch_size(batch_size)
        head: Head = self.head
        parsed = parse_all(head, target, len(text))
        names = _names(len(text))
        encodings = self.encode(text, truncation, names)
        targets = [head.resolve(*each) for each in zip(parsed, encodings, names, strict=True)]
        done: dict[int, Attribution] = {}
        with reporting(progress, len(text), "text") as report:
            (chosen,) = named or [self.default]
            for group in self.batches(encodings, batch_size, [chosen]):
                tell = within(report, len(done), len(group))
                work = partial(self._group, encodings, targets, method=chosen, keep_flow=keep_flow, report=tell)
                done.update(zip(group, halving(group, work), strict=True))
        return [done[k] for k in range(len(text))]

    def stream(
        self,
        texts: Iterable[Any],
        method: AnyMethod = None,
        target: Target = None,
        *,
        batch_size: int = 16,
        truncation: bool = False,
        windows: bool | Windows = False,
        keep_flow: bool = True,
    ) -> Iterator[Attribution]:
        """Explain texts in order, without waiting for all of them: what has come out is never lost."""
        if isinstance(texts, str):
            raise TypeError("texts must be a list or another iterable of texts, not one string")
        _check_batch_size(batch_size)
        named = [] if method is None else [find_method(method)]
        parsed, divide = self.head.parse(target), find_windows(windows, truncation)
        return self._stream(iter(texts), named, parsed, batch_size, truncation, divide, keep_flow)

    def _stream(
        self,
        texts: Iterator[Any],
        named: list[Method],
        target: Any,
        batch_size: int,
        truncation: bool,
        divide: Windows | None,
        keep_flow: bool,
    ) -> Iterator[Attribution]:
        start, head = 0, self.head
        while window := list(islice(texts, batch_size * _WINDOW)):
            names = [f"texts[{start + k}]" for k in range(len(window))]
            start += len(window)
            if divide:
                found = self._in_windows(window, target, named, divide, names, batch_size, keep_flow, silent)
                yield from (each[0] for each in found)
                continue
            encodings = self.encode(window, truncation, names)
            targets = [head.resolve(target, encoding, name) for encoding, name in zip(encodings, names, strict=True)]
            (method,) = named or [self.default]
            waiting: dict[int, Attribution] = {}
            given = 0
            # the first text of the window decides what runs next, so that results come out early
            for group in sorted(self.batches(encodings, batch_size, [method]), key=min):
                work = partial(self._group, encodings, targets, method=method, keep_flow=keep_flow)
                waiting.update(zip(group, halving(group, work), strict=True))
                while given in waiting:
                    yield waiting.pop(given)
                    given += 1

    def compare(
        self,
        text: Any,
        methods: Sequence[AnyMethod] | None = None,
        target: Target = None,
        *,
        truncation: bool = False,
        windows: bool | Windows = False,
        progress: Progress = False,
        keep_flow: bool = True,
    ) -> dict[str, Attribution]:
        """Explain one text by several methods (None: all) from a single trace of the model.

        `progress` shows a bar (True) or is called with (methods done, methods in all), parts of one included.
        """
        if isinstance(methods, str) or not (methods is None or isinstance(methods, Iterable)):
            raise TypeError(f"methods must be a list of methods, not {methods!r}")
        chosen = [self.default if m is None else find_method(m) for m in (METHODS if methods is None else methods)]
        if not chosen:
            raise ValueError("methods is empty; name at least one, or leave it out to compare all")
        names = [m.name for m in chosen]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ValueError(f"methods named {', '.join(twice)} are given twice; results are told apart by name")
        if divide := find_windows(windows, truncation):
            with reporting(progress, len(chosen), "method") as report:
                tell = within(report, 0, len(chosen))
                found = self._in_windows([text], target, chosen, divide, ["text"], 16, keep_flow, tell)
            return dict(zip(names, found[0], strict=True))
        encoding, fitted = self.ask(text, target, truncation)
        with reporting(progress, len(chosen), "method") as report:
            results = self.run([encoding], [fitted], chosen, keep_flow, report)
        return {name: each[0] for name, each in zip(names, results, strict=True)}

    def predictions(
        self, text: Any, count: int = 5, *, truncation: bool = False, windows: bool | Windows = False
    ) -> list[ExplainedOutput]:
        """What there is to explain of a text, the most probable first: classes, entities, answers or words.

        Each has a `label` and a `probability`, and can be given as `target`.
        """
        if divide := find_windows(windows, truncation):
            head, (whole,) = classes_of(self, "reading in windows"), encode(self.tokenizer, [check_text(text)])
            return head.top_outputs(mean_logits(self, divide(whole, self.limit), 16), whole, count)
        encoding = self.encode([text], truncation, ["text"])[0]
        with torch.no_grad():
            logits = TracedModel(self.model, self.collate([encoding]), lambda z, _: z).logits([0], eager=False)
        return self.head.top_outputs(logits[0], encoding, count)

    def ask(self, text: Any, target: Any = None, truncation: bool = False) -> tuple[Encoding, Any]:
        """One text as the model reads it, and what a target means for it: what `run` takes."""
        head: Head = self.head
        parsed, encoding = head.parse(target), self.encode([text], truncation, ["text"])[0]
        return encoding, head.resolve(parsed, encoding, "text")

    def encode(self, texts: Sequence[Any], truncation: bool = False, names: list[str] | None = None) -> list[Encoding]:
        """Texts as the model reads them; errors call them by `names`."""
        names = names or _names(len(texts))
        return TASKS[self.task].read(self.model, self.tokenizer, texts, truncation, names)

    def collate(self, encodings: Sequence[Encoding]) -> Batch:
        """One batch of encodings, where the model is."""
        padding = self.padding
        return collate(encodings, padding, device_of(self.model), neutral_tokens(self.tokenizer, padding))

    def batches(self, encodings: Sequence[Encoding], size: int, methods: Sequence[Method] = ()) -> Iterator[list[int]]:
        """Indices of encodings to run together: at most `size`, and what the device's budget holds for `methods`."""
        return batches(encodings, size, self.padding, partial(batch_limit, self.model, methods=methods))

    def _in_windows(
        self,
        texts: Sequence[Any],
        target: Any,
        methods: Sequence[Method],
        windows: Windows,
        names: Sequence[str],
        batch_size: int,
        keep_flow: bool,
        report: Report,
    ) -> list[list[Attribution]]:
        _check_batch_size(batch_size)
        targets = parse_all(classes_of(self, "reading in windows"), target, len(texts))
        return explain_in_windows(
            self, texts, targets, methods, windows,
            names=names, batch_size=batch_size, keep_flow=keep_flow, report=report,
        )  # fmt: skip

    def _group(
        self,
        encodings: Sequence[Encoding],
        targets: Sequence[Any],
        group: Sequence[int],
        method: Method,
        keep_flow: bool,
        report: Report = silent,
    ) -> list[Attribution]:
        """Attributions of the texts in `group`; a solver's failure names texts, not batch items."""
        try:
            chosen = [encodings[k] for k in group]
            return self.run(chosen, [targets[k] for k in group], [method], keep_flow, report)[0]
        except SolveError as error:
            items = [group[k] for k in error.items]
            raise SolveError(f"texts {items}: {error}", error.flow, items) from error

    def run(
        self,
        encodings: Sequence[Encoding],
        targets: Sequence[Any],
        methods: Sequence[Method],
        keep_flow: bool = False,
        report: Report = silent,
        watch: Callable[[Trace], object] = lambda traced: None,
    ) -> list[list[Attribution]]:
        """One batch, one trace, every method: a list of attributions per method.

        `targets` are what the head's `fit` gave for each. `report` is told how many are done, `watch` shown the trace.
        """
        with fitting(self.model, [len(e) for e in encodings], methods), torch.inference_mode(False), torch.no_grad():
            batch = self.collate(encodings)
            return explain_batch(self.model, batch, self.head, targets, methods, keep_flow, report, watch)


def classes_of(explainer: Explainer, what: str) -> ClassificationHead:
    """The head of a text classifier, for `what` can do nothing with another one."""
    if explainer.task != "text-classification":
        raise UnsupportedModelError(
            f"{what} is about the classes of whole texts, but {type(explainer.model).__name__} is for "
            f"{explainer.task}; use a text classifier, or explain texts one by one"
        )
    return explainer.head


def _names(count: int) -> list[str]:
    return [f"texts[{k}]" for k in range(count)]


def _check_batch_size(batch_size: Any) -> None:
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"batch_size must be a whole number >= 1, not {batch_size!r}")
