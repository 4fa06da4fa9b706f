"""The one loop over texts: for lists, comparisons, windows, data sets and evaluation.

    items -> prepare -> PreparedText -> windows -> batches -> attributions -> merged windows -> TextResults

Batches are made of texts of similar length, longest first, and depend on nothing but the texts and methods: the same
texts give the same numbers. A batch that is too large for the memory is halved.

The convention this file owns: with `on_error="collect"` **a failure costs the text and the method that failed, nothing
else.** A batch that fails is halved until the text is found, then its methods run one by one, and all other results
stay. A failure of every text (a model without attention, a missing library) is raised.

Whoever asks to stop gets the results of the batch that is at work, unless it takes longer than `PATIENCE`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from gaflow.attribution.attribution import Attribution
from gaflow.errors import GaflowError, MissingExtraError, SolveError, UnsupportedModelError
from gaflow.explainer.batch import Timings, explain_batch
from gaflow.explainer.pairs import Similarity, compare_pair, merge_pair, split_pair
from gaflow.explainer.runner import Runner
from gaflow.explainer.windows import Window, WindowsArgument, find_windows, mean_logits, merge
from gaflow.inputs.encoding import Encoding, encode
from gaflow.methods import Method
from gaflow.models.memory import halving, is_out_of_memory
from gaflow.progress import Report, interruptible, silent, within
from gaflow.tasks import Input
from gaflow.tasks.targets import ExplainedOutput, Target

Item = TypeVar("Item")
Result = TypeVar("Result")
OnError = Literal["raise", "collect"]
Stop = Callable[[], bool]  # whether the work should end

PATIENCE = 5.0  # seconds that a batch goes on for after somebody has asked to stop

_NUMERICAL_ERRORS = ("LinAlgError", "_LinAlgError", "FloatingPointError")  # of torch and NumPy


@dataclass(frozen=True)
class PreparedText:
    """One text, picture or sound as the model reads it, checked."""

    name: str  # in error messages
    encoding: Encoding
    target: object  # resolved by the head for this text
    windows: tuple[Window, ...]  # one if the model reads the text at once; the two texts of a pair read one by one

    @property
    def in_parts(self) -> bool:
        """Whether the model reads the text in windows, or the texts of a pair one by one."""
        return len(self.windows) > 1

    @property
    def is_pair(self) -> bool:
        """Whether the model reads the texts of a pair one by one."""
        return bool(self.encoding.parts)

    @property
    def runs_alone(self) -> bool:
        """Whether the text shares no batch in a data set, which may hold many such texts.

        The attributions of its windows, or of both texts of a pair, are kept until all of them are there.
        """
        return self.in_parts


@dataclass(frozen=True)
class TextResults:
    """The attributions of one text; a string in place of an attribution says why there is none."""

    index: int  # of the text
    by_method: Mapping[str, Attribution | str]  # method name -> attribution
    logits: tuple[float, ...] | None  # (c,) of classes; None for other outputs, or if no method succeeded

    def attribution(self, method: Method) -> Attribution:
        """The attribution by a method that succeeded."""
        attribution = self.by_method[method.name]
        assert isinstance(attribution, Attribution)
        return attribution


def prepare_one(
    runner: Runner, text: Input, target: Target, *, truncation: bool, windows: WindowsArgument
) -> PreparedText:
    """Check and encode a single text, and find its target."""
    (prepared,) = prepare(runner, [text], [runner.head.parse(target)], ["text"], truncation, windows)
    return prepared


def prepare_each(
    runner: Runner, texts: Sequence[Input], target: Target, *, truncation: bool = False, windows: WindowsArgument = None
) -> list[PreparedText | str]:
    """The same for texts that share a target; a string in place of a text says why it cannot be read."""
    parsed = runner.head.parse(target)

    def prepare_some(items: Sequence[Input]) -> list[PreparedText]:
        count = len(items)
        return prepare(runner, items, [parsed] * count, ["the text"] * count, truncation, windows)

    return attempt(texts, prepare_some)


def prepare(
    runner: Runner,
    items: Sequence[Input],
    targets: Sequence[object],
    names: Sequence[str],
    truncation: bool,
    windows: WindowsArgument,
) -> list[PreparedText]:
    """Check and encode texts whose targets are parsed; error messages call the texts by `names`."""
    settings = find_windows(windows, truncation)
    if settings is None:
        encodings = runner.encode(items, names=names, truncation=truncation)
    else:
        runner.class_head("reading in windows")
        encodings = encode(runner.tokenizer, items, names)
    prepared = []
    for encoding, target, name in zip(encodings, targets, names, strict=True):
        resolved = runner.head.resolve(target, encoding, name)
        if encoding.parts:
            parts = split_pair(encoding)
        elif settings is None:
            parts = (Window.full(encoding),)
        else:
            parts = settings(encoding, runner.limit, name)
        prepared.append(PreparedText(name, encoding, resolved, parts))
    return prepared


def explain_many(
    runner: Runner,
    texts: Sequence[PreparedText | str],
    methods: Sequence[Method],
    *,
    batch_size: int = 16,
    keep_flow: bool = False,
    on_error: OnError = "raise",
    report: Report = silent,
    timings: Timings | None = None,
    done: Container[int] = (),
    stop: Stop | None = None,
    one_batch: bool = False,
) -> Iterator[TextResults]:
    """Explain each text by all methods from one trace, and yield the results in the order in which they get done.

    A string in place of a text, which says why it cannot be read, becomes the result of all its methods. `report` is
    called with the number of results done: one for each text and method. `timings` collects seconds and peak memory.
    `done` are the indices of texts that have results: batches of such texts alone do not run, and no other batch
    changes. Once `stop` returns True, no more results come. `one_batch` says that the texts are a batch of
    `plan_batches`, which runs as it is.
    """
    job = _Job(
        runner=runner,
        methods=methods,
        batch_size=batch_size,
        keep_flow=keep_flow,
        on_error=on_error,
        timings=timings,
        done=done,
        stopping=None if stop is None else _Stopping(stop),
        one_batch=one_batch,
    )
    together: dict[int, PreparedText] = {}  # texts whose windows share batches
    alone: list[dict[int, PreparedText]] = []
    for index, text in enumerate(texts):
        if isinstance(text, str):
            if index not in done:
                yield job.failure(index, text)
        elif on_error == "collect" and text.runs_alone:
            alone.append({index: text})
        else:
            together[index] = text
    results_done = 0
    try:
        for group in [*alone, together]:
            yield from job.explain(group, within(report, results_done, 1))
            results_done += len(group) * len(methods)
    except _Stopped:
        return


def plan_batches(
    runner: Runner, texts: Sequence[PreparedText | str], methods: Sequence[Method], batch_size: int
) -> list[list[int]]:
    """The indices of texts that `explain_many` runs together when it collects errors, in its order.

    First come all texts that cannot be read, then each text in windows, then the batches. `explain_many` with
    `one_batch=True` gives each of them the same results in any process.
    """
    unreadable = []
    alone = []
    together = []
    encodings = []
    for index, text in enumerate(texts):
        if isinstance(text, str):
            unreadable.append(index)
        elif text.runs_alone:
            alone.append([index])
        else:
            together.append(index)
            encodings.append(text.windows[0].encoding)
    batches = [unreadable] if unreadable else []
    batches += alone
    for group in runner.batches(encodings, batch_size, methods):
        batches.append([together[k] for k in group])
    return batches


class _Stopped(Exception):
    """The caller has asked to stop."""


class _Stopping:
    """Ends the work when the caller asks for it: between batches at once, within a batch after `PATIENCE`."""

    def __init__(self, stop: Stop):
        self._stop = stop
        self._asked_at: float | None = None

    def between_batches(self) -> None:
        """Called before each batch."""
        if self._stop():
            raise _Stopped

    def within_batch(self) -> None:
        """Called often; what the batch has computed is lost."""
        if not self._stop():
            return
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at = now
        if now - self._asked_at >= PATIENCE:
            raise _Stopped


@dataclass(frozen=True)
class _Part:
    """A text that fits, or a window of one that does not, on its way through a batch."""

    index: int  # of the text
    name: str  # of the text
    window: Window
    target: object
    share: float  # of its text, for progress


@dataclass(frozen=True)
class _Prediction:
    """The prediction for a text in parts."""

    output: ExplainedOutput
    targets: Sequence[object]  # of each part
    logits: tuple[float, ...] | None = None  # (c,) the mean over the windows
    similarity: Similarity | None = None  # of a pair


@dataclass(frozen=True)
class _Job:
    """The arguments of `explain_many`, and its steps."""

    runner: Runner
    methods: Sequence[Method]
    batch_size: int
    keep_flow: bool
    on_error: OnError
    timings: Timings | None
    done: Container[int]
    stopping: _Stopping | None
    one_batch: bool

    def explain(self, texts: Mapping[int, PreparedText], report: Report) -> Iterator[TextResults]:
        """Explain texts whose windows share batches; `texts` are given by their index."""
        parts: list[_Part] = []
        predictions: dict[int, _Prediction] = {}  # for texts in parts
        for index, text in texts.items():
            targets: Sequence[object] = [text.target]
            if text.in_parts:
                if index in self.done:
                    continue
                prediction = self._predict(text)
                if isinstance(prediction, str):
                    yield self.failure(index, prediction)
                    continue
                predictions[index] = prediction
                targets = prediction.targets
            share = 1 / len(text.windows) if text.in_parts else 1  # bars count texts that fit in whole numbers
            for window, target in zip(text.windows, targets, strict=True):
                parts.append(_Part(index=index, name=text.name, window=window, target=target, share=share))
        done = 0
        window_results: dict[int, TextResults] = {}  # by the index of the part
        for group in self._batches(parts):
            batch = [parts[k] for k in group]
            share = sum(part.share for part in batch)
            if not all(part.index in self.done for part in batch):
                if self.stopping is not None:
                    self.stopping.between_batches()
                for k, results in zip(group, self._run(batch, within(report, done, share)), strict=True):
                    if not parts[k].window.is_full:
                        window_results[k] = results
                    elif results.index not in self.done:
                        yield results
            done += share * len(self.methods)
        for index, prediction in predictions.items():
            of_text = [window_results[k] for k, part in enumerate(parts) if part.index == index]
            yield self._merge(index, texts[index], prediction, of_text)

    def _batches(self, parts: Sequence[_Part]) -> Iterable[Sequence[int]]:
        """The indices of the parts of each batch; windows are always put into batches."""
        if self.one_batch and all(part.window.is_full for part in parts):
            return [range(len(parts))] if parts else []
        encodings = [part.window.encoding for part in parts]
        return self.runner.batches(encodings, self.batch_size, self.methods)

    def failure(self, index: int, reason: str) -> TextResults:
        """The result of a text that no method can explain."""
        by_method = {method.name: reason for method in self.methods}
        return TextResults(index, by_method, logits=None)

    def _predict(self, text: PreparedText) -> _Prediction | str:
        """The prediction for a text in parts, or why there is none."""
        try:
            if text.is_pair:
                similarity = compare_pair(self.runner, text.windows, str(text.target))
                return _Prediction(similarity.output, similarity.targets, similarity=similarity)
            logits = mean_logits(self.runner, text.windows, self.batch_size)
            output = self.runner.head.output(logits, text.encoding, text.target)
        except Exception as error:
            if self.on_error == "raise" or not _may_be_one_text(error):
                raise
            return _reason(error)
        targets = [output.target] * len(text.windows)
        return _Prediction(output, targets, tuple(logits.tolist()))

    def _run(self, batch: Sequence[_Part], report: Report) -> list[TextResults]:
        """The results of one batch, halved where it must be."""
        if self.on_error == "raise":
            return halving(batch, lambda parts: self._run_naming_texts(parts, report))
        results = []
        outcomes = attempt(batch, lambda parts: self._run_batch(parts, self.methods, report))
        for part, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, str):
                outcome = self._run_methods_apart(part, outcome)
            results.append(outcome)
        return results

    def _run_naming_texts(self, parts: Sequence[_Part], report: Report) -> list[TextResults]:
        """The same; a flow that does not converge is an error that names texts, not items of a batch."""
        try:
            return self._run_batch(parts, self.methods, report)
        except SolveError as error:
            names = {}
            for k in error.items:
                names[parts[k].index] = parts[k].name
            names = dict(sorted(names.items()))
            listed = ", ".join(names.values())
            raise SolveError([f"{listed}: ", *error.args], error.flow, list(names)) from error

    def _run_batch(self, parts: Sequence[_Part], methods: Sequence[Method], report: Report) -> list[TextResults]:
        encodings = [part.window.encoding for part in parts]
        targets = [part.target for part in parts]
        any_flow = any(part.window.keeps_flow for part in parts)

        def report_or_stop(methods_done: float) -> None:
            if self.stopping is not None and methods_done < len(methods):
                self.stopping.within_batch()
            report(methods_done)

        with self._interruptible():
            batch = explain_batch(
                self.runner,
                encodings,
                targets,
                methods,
                keep_flow=self.keep_flow and any_flow,
                report=report_or_stop,
                measure=self.timings is not None,
            )
        if self.timings is not None:
            self.timings.add(batch.timings)
        results = []
        for part, by_method, logits in zip(parts, batch.by_text, batch.logits, strict=True):
            if not part.window.keeps_flow:  # it is large
                for name, attribution in by_method.items():
                    by_method[name] = replace(attribution, flow=None, flow_against=None)
            results.append(TextResults(part.index, by_method, logits))
        return results

    def _interruptible(self) -> AbstractContextManager[None]:
        """Let solvers ask whether to stop."""
        return nullcontext() if self.stopping is None else interruptible(self.stopping.within_batch)

    def _run_methods_apart(self, part: _Part, reason: str) -> TextResults:
        """The methods that succeed on a text on which not all of them do."""
        if len(self.methods) == 1:
            return self.failure(part.index, reason)
        by_method = {}
        logits = None
        for method in self.methods:
            (outcome,) = attempt([part], lambda parts, method=method: self._run_batch(parts, [method], silent))
            if isinstance(outcome, str):
                by_method[method.name] = outcome
            else:
                by_method[method.name] = outcome.by_method[method.name]
                logits = outcome.logits
        return TextResults(part.index, by_method, logits)

    def _merge(
        self, index: int, text: PreparedText, prediction: _Prediction, windows: Sequence[TextResults]
    ) -> TextResults:
        """The results of a text, from those of its windows."""
        by_method: dict[str, Attribution | str] = {}
        logits = None
        for method in self.methods:
            attributions = []
            for results in windows:
                outcome = results.by_method[method.name]
                if isinstance(outcome, str):
                    by_method.setdefault(method.name, outcome)
                else:
                    attributions.append(outcome)
            if method.name in by_method:
                continue
            logits = prediction.logits
            if prediction.similarity is None:
                merged = merge(text.encoding, text.windows, attributions, prediction.output)
            else:
                merged = merge_pair(self.runner, text.encoding, text.windows, attributions, prediction.similarity)
            by_method[method.name] = merged
        return TextResults(index, by_method, logits)


def attempt(items: Sequence[Item], work: Callable[[Sequence[Item]], Sequence[Result]]) -> list[Result | str]:
    """`work(items)`, one result for each item; where it fails on one item alone, the reason as a string."""
    if not items:
        return []
    try:
        return list(work(items))
    except Exception as error:
        if not _may_be_one_text(error):
            raise
        reason = _reason(error)
    if len(items) == 1:
        return [reason]
    half = len(items) // 2  # outside the handler, whose traceback would hold on to the tensors of the failed attempt
    return [*attempt(items[:half], work), *attempt(items[half:], work)]


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _may_be_one_text(error: Exception) -> bool:
    """Whether a single text can cause the error: bad text, no convergence, too large for the memory."""
    if isinstance(error, UnsupportedModelError | MissingExtraError):
        return False
    if isinstance(error, GaflowError | ValueError) or is_out_of_memory(error):
        return True
    return type(error).__name__ in _NUMERICAL_ERRORS
