"""Several texts by several methods, one trace for each text, where what fails is told and the rest goes on.

The convention this file owns: **a failure costs the text and the method that failed, nothing else.** A batch that fails
is halved until the text is found, then the methods of that text are, so that every other result is kept. Batches are
made of texts of similar length and depend on nothing but the texts, so that the same texts give the same numbers.
What every text would fail at (a model without attention, a library that is missing) is raised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from gaflow.attribution.attribution import Attribution
from gaflow.errors import GaflowError, MissingExtraError, UnsupportedModelError
from gaflow.explainer.explainer import Explainer
from gaflow.explainer.windows import Windows, explain_in_windows, mean_logits
from gaflow.inputs.encoding import Encoding, Text, check_text, encode
from gaflow.methods import Method
from gaflow.models.memory import is_out_of_memory
from gaflow.models.tracing import Trace
from gaflow.progress import Report, silent
from gaflow.tasks.targets import Target

__all__ = ["Stopwatch", "TextResults", "attempt", "explain_each"]

Given = TypeVar("Given")
Made = TypeVar("Made")

_NUMERICAL = ("LinAlgError", "_LinAlgError", "FloatingPointError")  # of torch and NumPy


@dataclass(frozen=True)
class TextResults:
    """What several methods say about one text; a string in place of an attribution says why there is none."""

    by_method: Mapping[str, Attribution | str]  # method name -> attribution
    logits: tuple[float, ...] | None  # (c,) of the model; None if no method succeeded


@dataclass
class Stopwatch:
    """Seconds spent in the trace and in every method, and the most memory that each had on a GPU.

    Methods end with scores on the host, so that whatever a device has to do for them is done by then.
    """

    trace: float = 0.0
    methods: dict[str, float] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)  # bytes, tensors of the trace included; empty on a CPU

    def watching(self, methods: Sequence[Method]) -> tuple[Report, Callable[[Trace], None]]:
        """What to call with the number of methods done, and with the trace once it is there."""
        names = [method.name for method in methods]
        last, done, device = time.perf_counter(), 0, torch.device("cpu")

        def lap() -> float:
            nonlocal last
            before, last = last, time.perf_counter()
            return last - before

        def begun(traced: Trace) -> None:
            nonlocal device
            device = traced.logits.device
            self.trace += lap()
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)

        def report(count: float) -> None:
            nonlocal done
            if count < done + 1:  # a part of a method
                return
            name = names[done]
            done += 1
            self.methods[name] = self.methods.get(name, 0.0) + lap()
            if device.type == "cuda":
                self.peak[name] = max(self.peak.get(name, 0), torch.cuda.max_memory_allocated(device))
                torch.cuda.reset_peak_memory_stats(device)

        return report, begun


def explain_each(
    explainer: Explainer,
    texts: Sequence[Text],
    methods: Sequence[Method],
    target: Target = None,
    *,
    batch_size: int = 16,
    truncation: bool = False,
    windows: Windows | None = None,
    keep_flow: bool = False,
    watch: Stopwatch | None = None,
) -> Iterator[list[tuple[int, TextResults]]]:
    """Batch by batch, (index into `texts`, result) of every text once, in the order in which they get done."""
    watch = watch or Stopwatch()
    parsed = explainer.head.parse(target)
    if windows is not None:
        wholes = attempt(texts, lambda part: encode(explainer.tokenizer, [check_text(text) for text in part]))
        size = windows.size or explainer.limit
        long = [k for k, e in enumerate(wholes) if not isinstance(e, str) and size is not None and len(e) > size]
        for k in long:
            yield [(k, _long(explainer, texts[k], methods, parsed, windows, batch_size, watch))]
        rest = [k for k in range(len(texts)) if k not in set(long)]
        short = [texts[k] for k in rest]
        for done in explain_each(
            explainer, short, methods, target, batch_size=batch_size, keep_flow=keep_flow, watch=watch
        ):
            yield [(rest[k], several) for k, several in done]
        return
    names = ["the text"] * len(texts)
    encodings = attempt(texts, lambda part: explainer.encode(part, truncation, names[: len(part)]))
    bad = [(k, e) for k, e in enumerate(encodings) if isinstance(e, str)]
    if bad:
        yield [(k, TextResults({m.name: why for m in methods}, None)) for k, why in bad]
    order = [k for k, e in enumerate(encodings) if not isinstance(e, str)]
    good = [e for e in encodings if not isinstance(e, str)]
    for group in explainer.batches(good, batch_size, methods):
        results = _explain_group(explainer, [good[k] for k in group], methods, parsed, keep_flow, watch)
        yield [(order[k], result) for k, result in zip(group, results, strict=True)]


def _long(
    explainer: Explainer,
    text: Text,
    methods: Sequence[Method],
    target: Any,
    windows: Windows,
    batch_size: int,
    watch: Stopwatch,
) -> TextResults:
    """What methods say about a text that is read in windows."""

    def run(chosen: Sequence[Method]) -> list[Attribution]:
        return explain_in_windows(
            explainer, [text], [target], chosen, windows,
            names=["the text"], batch_size=batch_size, keep_flow=False, report=silent, watching=watch.watching,
        )[0]  # fmt: skip

    found = attempt(methods, run)
    logits = None
    if any(isinstance(each, Attribution) for each in found):
        (whole,) = encode(explainer.tokenizer, [check_text(text)])
        logits = tuple(mean_logits(explainer, windows(whole, explainer.limit), batch_size).tolist())
    return TextResults({m.name: each for m, each in zip(methods, found, strict=True)}, logits)


def _explain_group(
    explainer: Explainer,
    group: Sequence[Encoding],
    methods: Sequence[Method],
    target: Any,
    keep_flow: bool,
    watch: Stopwatch,
) -> list[TextResults]:
    def run(part: Sequence[Encoding], chosen: Sequence[Method]) -> list[TextResults]:
        logits: list[list[float]] = []
        report, begun = watch.watching(chosen)

        def look(traced: Trace) -> None:
            logits.extend(traced.logits.detach().cpu().double().tolist())
            begun(traced)

        targets = [explainer.head.resolve(target, encoding, "the text") for encoding in part]
        found = explainer.run(part, targets, chosen, keep_flow, report, look)
        by_text = zip(*found, strict=True)
        return [
            TextResults({m.name: att for m, att in zip(chosen, each, strict=True)}, tuple(row))
            for each, row in zip(by_text, logits, strict=True)
        ]

    done = attempt(group, lambda part: run(part, methods))
    return [
        _one_by_one(methods, encoding, result, run) if isinstance(result, str) else result
        for encoding, result in zip(group, done, strict=True)
    ]


def _one_by_one(
    methods: Sequence[Method],
    encoding: Encoding,
    failure: str,
    run: Callable[[Sequence[Encoding], Sequence[Method]], list[TextResults]],
) -> TextResults:
    """The methods that succeed on a text on which not all of them do."""
    if len(methods) == 1:
        return TextResults({methods[0].name: failure}, None)
    logits: list[tuple[float, ...] | None] = []

    def ask(chosen: Sequence[Method]) -> list[Attribution | str]:
        (several,) = run([encoding], chosen)
        logits.append(several.logits)
        return [several.by_method[m.name] for m in chosen]

    found = attempt(methods, ask)
    return TextResults({m.name: each for m, each in zip(methods, found, strict=True)}, logits[0] if logits else None)


def attempt(items: Sequence[Given], work: Callable[[Sequence[Given]], Sequence[Made]]) -> list[Made | str]:
    """`work(items)`, one result for each item; where it fails on one alone, why."""
    if not items:
        return []
    try:
        return list(work(items))
    except Exception as error:
        if not _forgiven(error):
            raise
        why = f"{type(error).__name__}: {error}"
    if len(items) == 1:
        return [why]
    half = len(items) // 2  # outside the handler, whose traceback would hold on to the tensors of the failed attempt
    return [*attempt(items[:half], work), *attempt(items[half:], work)]


def _forgiven(error: Exception) -> bool:
    """Whether the failure can be one text's own: bad text, no convergence, too large for the memory."""
    if isinstance(error, UnsupportedModelError | MissingExtraError):
        return False
    if isinstance(error, GaflowError | ValueError) or is_out_of_memory(error):
        return True
    return type(error).__name__ in _NUMERICAL
