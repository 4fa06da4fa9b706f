"""The front door: model + tokenizer + text -> Attribution.

    text -> Encoding -> Batch -> Trace -> method -> Scores -> Attribution

A list is sorted by length so that little padding is needed, and given back in its own order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, overload

import torch
from torch import Tensor

from gaflow.attribution import Attribution
from gaflow.errors import SolveError
from gaflow.loading import load_model
from gaflow.methods import METHODS, Method, find_method
from gaflow.progress import Progress, Report, reporting, silent, within
from gaflow.results import attributions
from gaflow.targets import Head, Resolved, Target, explained
from gaflow.text import (
    Encoding,
    Padding,
    Text,
    batches,
    check_text,
    collate,
    encode,
    length_limit,
    neutral_tokens,
)
from gaflow.tracing import Readout, Trace, trace

__all__ = ["Explainer", "explain"]

Texts = list[str] | list[tuple[str, str]] | list[Text]
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
        return f"Explainer({type(self.model).__name__}, {self.task}, labels {', '.join(self.head.labels[:5])})"

    @property
    def head(self) -> Head:
        """The model's labels and how its logits become probabilities."""
        return Head.of(self.model.config)

    @property
    def limit(self) -> int | None:
        """The most tokens a text may have, special tokens included."""
        return length_limit(self.model, self.tokenizer)

    @property
    def _padding(self) -> Padding:
        return Padding.of(self.model, self.tokenizer)

    @overload
    def __call__(
        self,
        text: Text,
        method: AnyMethod = None,
        target: Target = None,
        *,
        batch_size: int = 16,
        truncation: bool = False,
        progress: Progress = False,
        keep_flow: bool = True,
    ) -> Attribution: ...

    @overload
    def __call__(
        self,
        text: Texts,
        method: AnyMethod = None,
        target: Target | list[Target] = None,
        *,
        batch_size: int = 16,
        truncation: bool = False,
        progress: Progress = False,
        keep_flow: bool = True,
    ) -> list[Attribution]: ...

    def __call__(
        self,
        text: Any,
        method: AnyMethod = None,
        target: Any = None,
        *,
        batch_size: int = 16,
        truncation: bool = False,
        progress: Progress = False,
        keep_flow: bool = True,
    ) -> Attribution | list[Attribution]:
        """Explain a text, a (text, pair) tuple, or a list of those.

        `method` is a name of METHODS, a settings object, or a callable (attention, gradient) -> (b, l, t, t).
        `target` is None (the predicted class), a class index, a label, a contrast ("A minus B" or a pair),
        or for a list of texts a list with one of these for each. `truncation` cuts texts to what the model
        takes. `progress` shows a bar (True) or is called with (texts done, texts in all), where a method that asks
        the model many times counts parts of a text. `keep_flow=False` drops the edge flows, which are l * t * t
        numbers a text, and keeps scores, layers and certificate.
        """
        chosen = find_method(method)
        if not isinstance(text, list):
            encoding = self._encode([text], truncation, ["text"])
            parsed = [self.head.parse(target)]
            with reporting(progress, 1, "text") as report:
                return self._run(encoding, parsed, [chosen], keep_flow, report)[0][0]
        _check_batch_size(batch_size)
        targets = self.head.parse_all(target, len(text))
        encodings = self._encode(text, truncation)
        done: dict[int, Attribution] = {}
        with reporting(progress, len(text), "text") as report:
            for group in batches(encodings, batch_size, self._padding):
                tell = within(report, len(done), len(group))
                results = self._group(encodings, targets, group, chosen, keep_flow, tell)
                done.update(zip(group, results, strict=True))
        return [done[k] for k in range(len(text))]

    def stream(
        self,
        texts: Iterable[Text],
        method: AnyMethod = None,
        target: Target = None,
        *,
        batch_size: int = 16,
        truncation: bool = False,
        keep_flow: bool = True,
    ) -> Iterator[Attribution]:
        """Explain texts in order, without waiting for all of them: what has come out is never lost."""
        if isinstance(texts, str):
            raise TypeError("texts must be a list or another iterable of texts, not one string")
        _check_batch_size(batch_size)
        return self._stream(
            iter(texts), find_method(method), self.head.parse(target), batch_size, truncation, keep_flow
        )

    def _stream(
        self,
        texts: Iterator[Text],
        method: Method,
        target: Resolved | None,
        batch_size: int,
        truncation: bool,
        keep_flow: bool,
    ) -> Iterator[Attribution]:
        start = 0
        while window := list(islice(texts, batch_size * _WINDOW)):
            names = [f"texts[{start + k}]" for k in range(len(window))]
            encodings = self._encode(window, truncation, names)
            waiting: dict[int, Attribution] = {}
            given = 0
            # the first text of the window decides what runs next, so that results come out early
            for group in sorted(batches(encodings, batch_size, self._padding), key=min):
                results = self._group(encodings, [target] * len(window), group, method, keep_flow)
                waiting.update(zip(group, results, strict=True))
                while given in waiting:
                    yield waiting.pop(given)
                    given += 1
            start += len(window)

    def compare(
        self,
        text: Text,
        methods: Sequence[AnyMethod] | None = None,
        target: Target = None,
        *,
        truncation: bool = False,
        progress: Progress = False,
        keep_flow: bool = True,
    ) -> dict[str, Attribution]:
        """Explain one text by several methods (None: all) from a single trace of the model.

        `progress` shows a bar (True) or is called with (methods done, methods in all), parts of one included.
        """
        if isinstance(methods, str) or not (methods is None or isinstance(methods, Iterable)):
            raise TypeError(f"methods must be a list of methods, not {methods!r}")
        chosen = [find_method(m) for m in (METHODS if methods is None else methods)]
        if not chosen:
            raise ValueError("methods is empty; name at least one, or leave it out to compare all")
        names = [m.name for m in chosen]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ValueError(f"methods named {', '.join(twice)} are given twice; results are told apart by name")
        encoding = self._encode([text], truncation, ["text"])
        parsed = [self.head.parse(target)]
        with reporting(progress, len(chosen), "method") as report:
            results = self._run(encoding, parsed, chosen, keep_flow, report)
        return {name: each[0] for name, each in zip(names, results, strict=True)}

    def _encode(self, texts: Sequence[Any], truncation: bool, names: list[str] | None = None) -> list[Encoding]:
        names = names or [f"texts[{k}]" for k in range(len(texts))]
        checked = [check_text(text, name) for text, name in zip(texts, names, strict=True)]
        return encode(self.tokenizer, checked, limit=self.limit, truncation=truncation, names=names)

    def _group(
        self,
        encodings: Sequence[Encoding],
        targets: Sequence[Resolved | None],
        group: Sequence[int],
        method: Method,
        keep_flow: bool,
        report: Report = silent,
    ) -> list[Attribution]:
        """Attributions of the texts in `group`; a solver's failure names texts, not batch items."""
        try:
            chosen = [encodings[k] for k in group]
            return self._run(chosen, [targets[k] for k in group], [method], keep_flow, report)[0]
        except SolveError as error:
            items = [group[k] for k in error.items]
            raise SolveError(f"texts {items}: {error}", error.flow, items) from error

    def _run(
        self,
        encodings: Sequence[Encoding],
        targets: Sequence[Resolved | None],
        methods: Sequence[Method],
        keep_flow: bool,
        report: Report,
        watch: Callable[[Trace], object] = lambda traced: None,
    ) -> list[list[Attribution]]:
        """One trace, every method: a list of attributions per method.

        `report` is told how many are done, `watch` is shown the trace.
        """
        head = self.head
        found: list[list[Attribution]] = []
        resolved: list[Resolved] = []

        def choose(logits: Tensor) -> Readout:
            resolved.extend(head.resolve(logits, targets))
            return lambda found, items: explained(found, [resolved[k] for k in items])

        def part(done: float) -> None:
            if done < 1:  # the whole is told below
                report(len(found) + done)

        with torch.inference_mode(False), torch.no_grad():
            padding = self._padding
            batch = collate(encodings, padding, _device(self.model), neutral_tokens(self.tokenizer, padding))
            traced = trace(self.model, batch, choose, part)
            watch(traced)
            for method in methods:
                found.append(attributions(encodings, traced, resolved, head, method, method(traced), keep_flow))
                report(len(found))
        return found


@overload
def explain(
    text: Text,
    model: Any = None,
    method: AnyMethod = None,
    target: Target = None,
    *,
    tokenizer: Any = None,
    task: str | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | str | None = None,
    batch_size: int = 16,
    truncation: bool = False,
    progress: Progress = False,
) -> Attribution: ...


@overload
def explain(
    text: Texts,
    model: Any = None,
    method: AnyMethod = None,
    target: Target | list[Target] = None,
    *,
    tokenizer: Any = None,
    task: str | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | str | None = None,
    batch_size: int = 16,
    truncation: bool = False,
    progress: Progress = False,
) -> list[Attribution]: ...


def explain(
    text: Any,
    model: Any = None,
    method: AnyMethod = None,
    target: Any = None,
    *,
    tokenizer: Any = None,
    task: str | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | str | None = None,
    batch_size: int = 16,
    truncation: bool = False,
    progress: Progress = False,
) -> Attribution | list[Attribution]:
    """Explain a text (giving an Attribution) or a list of texts (giving a list) in one call.

    The model is loaded anew by every call; make an Explainer to use it more than once.
    """
    explainer = Explainer(model, tokenizer, task=task, device=device, dtype=dtype)
    return explainer(text, method, target, batch_size=batch_size, truncation=truncation, progress=progress)


def _device(model: Any) -> torch.device:
    """Where the model wants its input: a model may be spread over several devices, and reads on the first."""
    weight = next(model.parameters(), None)
    return torch.device("cpu") if weight is None else weight.device


def _check_batch_size(batch_size: Any) -> None:
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"batch_size must be a whole number >= 1, not {batch_size!r}")
