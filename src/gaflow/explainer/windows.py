"""Texts longer than a model takes, read in overlapping windows.

The tokens of a text are cut into chunks of the same length, to one token; a window is a run of `reads` neighbouring
chunks between the special tokens. At both ends windows run out of the text, so that **every token of it is read
exactly `reads` times**. Of a pair the longer text is cut, and every window holds the other one whole. With `|w|` for
how many tokens of the cut text window `w` holds,

    logits = Σ_w a_w logits_w,    a_w = |w| / Σ_v |v|,

say what the model predicts, and the explained output is the same mean of the windows' outputs, `y = Σ_w a_w y_w`.

The convention this file owns: **the attribution of a sum is the sum of the attributions**,

    score(k) = Σ_w a_w score_w(k)    over the windows that hold token k,

and so for the flow through every layer. Special tokens are held by all windows. Scores that add up to `y - y0` in a
window, or to the flow, thus do so over the whole text. A text that fits is not cut: its result is the plain one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gaflow.attribution.attribution import Attribution
from gaflow.errors import SolveError, TextError
from gaflow.flow.result import Certificate
from gaflow.inputs.encoding import Encoding, check_text, encode
from gaflow.methods import Method
from gaflow.models.memory import halving
from gaflow.models.tracing import Trace, TracedModel
from gaflow.progress import Report, silent, within
from gaflow.tasks.targets import ClassificationHead, ExplainedOutput, Resolved

if TYPE_CHECKING:
    from gaflow.explainer.explainer import Explainer

__all__ = ["Window", "Windows", "explain_in_windows", "find_windows", "mean_logits", "merge"]

Watching = Callable[[Sequence[Method]], tuple[Report, Callable[[Trace], object]]]


@dataclass(frozen=True)
class Window:
    """A part of a text as the model reads it; its offsets are those of the whole text."""

    encoding: Encoding
    kept: tuple[int, ...]  # which tokens of the whole text these are
    weight: float  # a_w


@dataclass(frozen=True)
class Windows:
    """How texts are cut into windows."""

    size: int | None = None  # most tokens of a window, special ones included; None: what the model takes
    reads: int = 2  # how many windows read each token; 1: windows do not overlap

    def __post_init__(self) -> None:
        for name, value in (("size", self.size), ("reads", self.reads)):
            if (value is not None or name == "reads") and (type(value) is not int or value < 1):
                raise ValueError(f"{name} must be a whole number >= 1, not {value!r}")

    def __call__(self, whole: Encoding, limit: int | None, name: str = "text") -> tuple[Window, ...]:
        """The windows of a text, of which the model takes `limit` tokens; one that is all of it, if it fits."""
        if self.size is not None and limit is not None and self.size > limit:
            raise ValueError(f"windows of {self.size} tokens are too long: the model takes {limit}; use a smaller size")
        size = self.size or limit
        if size is None or len(whole) <= size:
            return (Window(whole, tuple(range(len(whole))), 1.0),)
        long = max((0, 1), key=lambda segment: (whole.segments.count(segment), segment))
        cut = [k for k, segment in enumerate(whole.segments) if segment == long]
        room = size - (len(whole) - len(cut))
        stride = room // self.reads
        if stride < 1:
            rest = f"the other text and special tokens have {len(whole) - len(cut)}"
            raise TextError(
                f"{name}: in a window of {size} tokens {rest if whole.text_pair else 'special tokens leave too little room'}"
                f", so that no {self.reads} windows can read each token; use a larger size, or shorten the text"
            )
        if "position_ids" in whole.inputs:
            raise TextError(f"{name} comes with positions of its own and cannot be cut into windows; use truncation")
        chunks = math.ceil(len(cut) / stride)
        edges = [k * len(cut) // chunks for k in range(chunks + 1)]
        runs = [cut[edges[max(k, 0)] : edges[min(k + self.reads, chunks)]] for k in range(1 - self.reads, chunks)]
        return tuple(_window(whole, set(cut) - set(run), len(run) / (self.reads * len(cut))) for run in runs)


def _window(whole: Encoding, left_out: set[int], weight: float) -> Window:
    kept = tuple(k for k in range(len(whole)) if k not in left_out)
    encoding = replace(
        whole,
        inputs={name: [values[k] for k in kept] for name, values in whole.inputs.items()},
        tokens=tuple(whole.tokens[k] for k in kept),
        offsets=tuple(whole.offsets[k] for k in kept),
        segments=tuple(whole.segments[k] for k in kept),
    )
    return Window(encoding, kept, weight)


def find_windows(windows: Any, truncation: bool) -> Windows | None:
    """The settings meant by an argument `windows`; None: texts must fit."""
    if windows is False or windows is None:
        return None
    if not (windows is True or isinstance(windows, Windows)):
        raise TypeError(f"windows must be True, False or a gaflow.Windows, not {type(windows).__name__}")
    if truncation:
        raise ValueError("truncation and windows are both asked for; the one cuts a long text, the other reads it all")
    return Windows() if windows is True else windows


def explain_in_windows(
    explainer: Explainer,
    texts: Sequence[Any],
    targets: Sequence[Resolved | None],
    methods: Sequence[Method],
    windows: Windows,
    *,
    names: Sequence[str],
    batch_size: int,
    keep_flow: bool,
    report: Report,
    watching: Watching = lambda methods: (silent, lambda traced: None),
) -> list[list[Attribution]]:
    """For every text a list of attributions, one per method (none: the default); `report` is told which part is done.

    `watching` is asked, for every batch, what to tell of methods done and to show the trace.
    """
    wholes = encode(explainer.tokenizer, [check_text(t, n) for t, n in zip(texts, names, strict=True)], names=names)
    divided = [windows(whole, explainer.limit, name) for whole, name in zip(wholes, names, strict=True)]
    methods = methods or [explainer.default]
    aims = [_aim(explainer, *each, batch_size) for each in zip(wholes, divided, targets, strict=True)]
    pieces = [(k, window) for k, found in enumerate(divided) for window in found]
    asked = [targets[k] if aim is None else aim.target for k, _ in pieces for aim in [aims[k]]]
    done: dict[int, list[Attribution]] = {}
    for group in explainer.batches([window.encoding for _, window in pieces], batch_size, methods):
        share = len(group) / len(pieces)
        tell = within(report, len(done) / len(pieces), share / len(methods))
        work = partial(_group, explainer, pieces, asked, methods, names, keep_flow, tell, watching)
        done.update(zip(group, halving(group, work), strict=True))
    result = []
    for k, found in groupby(range(len(pieces)), key=lambda piece: pieces[piece][0]):
        by_method, aim = list(zip(*(done[piece] for piece in found), strict=True)), aims[k]
        result.append([each[0] if aim is None else merge(wholes[k], divided[k], each, aim) for each in by_method])
    return result


def _group(
    explainer: Explainer,
    pieces: Sequence[tuple[int, Window]],
    targets: Sequence[Resolved | None],
    methods: Sequence[Method],
    names: Sequence[str],
    keep_flow: bool,
    report: Report,
    watching: Watching,
    group: Sequence[int],
) -> list[list[Attribution]]:
    """The attributions of some windows, by every method; a solver's failure names texts, not batch items."""
    encodings = [pieces[k][1].encoding for k in group]
    whole = [pieces[k][1].weight == 1.0 for k in group]
    lap, look = watching(methods)

    def tell(done: float) -> None:
        lap(done)
        report(done)

    try:
        found = explainer.run(encodings, [targets[k] for k in group], methods, keep_flow and any(whole), tell, look)
    except SolveError as error:
        items = sorted({pieces[group[k]][0] for k in error.items})
        raise SolveError(f"{', '.join(names[k] for k in items)}: {error}", error.flow, items) from error
    # the flow of a window is of no use to the whole text, and large
    return [
        [att if fits else replace(att, flow=None, flow_against=None) for att in each]
        for each, fits in zip(zip(*found, strict=True), whole, strict=True)
    ]


def mean_logits(explainer: Explainer, windows: Sequence[Window], batch_size: int) -> Tensor:
    """Σ_w a_w logits_w (c,) in float64, from one pass over the windows."""
    encodings = [window.encoding for window in windows]
    parts: list[Tensor] = []
    for group in explainer.batches(encodings, batch_size):
        batch = explainer.collate([encodings[k] for k in group])
        with torch.inference_mode(False), torch.no_grad():
            logits = TracedModel(explainer.model, batch, lambda z, _: z).logits(range(len(group)), eager=False)
        weights = torch.tensor([windows[k].weight for k in group], dtype=torch.float64)
        parts.append(torch.tensordot(weights, logits.detach().cpu().double(), dims=1))
    return torch.stack(parts).sum(0)


def _aim(
    explainer: Explainer, whole: Encoding, windows: Sequence[Window], target: Resolved | None, batch_size: int
) -> ExplainedOutput | None:
    """What is explained of a text, as all of its windows see it; None for a text that fits, which says so itself."""
    if len(windows) == 1:
        return None
    head: ClassificationHead = explainer.head
    return head.outputs(mean_logits(explainer, windows, batch_size)[None], [whole], [target])[0]


def merge(
    whole: Encoding, windows: Sequence[Window], found: Sequence[Attribution], aim: ExplainedOutput
) -> Attribution:
    """The attribution of the whole text, from those of its windows by one method."""
    first, weights = found[0], [window.weight for window in windows]
    scores = np.zeros(len(whole))
    layers = None if first.layers is None else np.zeros((len(first.layers), len(whole)))
    for window, att in zip(windows, found, strict=True):
        scores[list(window.kept)] += window.weight * att.scores
        if layers is not None and att.layers is not None:
            layers[:, list(window.kept)] += window.weight * att.layers
    certificates = [att.certificate for att in found if att.certificate is not None]
    size = max(len(window.kept) for window in windows)
    return replace(
        first,
        tokens=whole.tokens,
        offsets=whole.offsets,
        segments=whole.segments,
        scores=scores,
        layers=layers,
        target=aim.target,
        label=aim.label,
        probability=aim.probability,
        prediction=aim.prediction,
        output=math.fsum(w * att.output for w, att in zip(weights, found, strict=True)),
        output_kind=f"mean {first.output_name} of {len(windows)} windows",
        truncated=False,
        flow=None,
        flow_against=None,
        certificate=Certificate.worst(certificates, weights) if certificates else None,
        diagnostics={"windows": len(windows), "window_tokens": size, **_facts(found, weights)},
    )


def _facts(found: Sequence[Attribution], weights: Sequence[float]) -> dict[str, float | str]:
    """Numbers add up as the scores do; of words each is told once, and of warnings where they come from."""
    merged: dict[str, float | str] = {}
    for name in dict.fromkeys(name for att in found for name in att.diagnostics):
        values = [att.diagnostics[name] for att in found if name in att.diagnostics]
        numbers = [float(value) for value in values if not isinstance(value, str)]
        if len(numbers) == len(found):
            merged[name] = math.fsum(w * value for w, value in zip(weights, numbers, strict=True))
            continue
        told = dict.fromkeys(str(value) for value in values)
        where = f" (in {len(values)} of {len(found)} windows)" if name == "warning" else ""
        merged[name] = "; ".join(told) + where
    return merged
