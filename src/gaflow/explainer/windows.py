"""Texts longer than a model takes, read in overlapping windows.

The tokens of a text are cut into chunks of the same length, to one token. A window is a run of `reads` neighbouring
chunks between the special tokens. At both ends windows run out of the text, so that **every token of it is read
exactly `reads` times**. Of a pair the longer text is cut, and every window holds all of the other one. With `|w|` for
the number of tokens of the cut text in window `w`, the prediction is made from

    logits = Σ_w a_w logits_w,    a_w = |w| / Σ_v |v|,

and the explained output is the same mean of the windows' outputs, `y = Σ_w a_w y_w`.

The convention this file owns: **the attribution of a sum is the sum of the attributions**,

    score(k) = Σ_w a_w score_w(k)    over the windows that hold token k,

and the same for the flow through every layer. All windows hold the special tokens. Scores that add up to `y - y0` in a
window, or to the flow, do so over the whole text too. A text that fits is not cut: its result is the plain one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gaflow.arguments import optional_whole_number, whole_number
from gaflow.attribution.attribution import Attribution
from gaflow.errors import Argument, ArgumentError, TextError
from gaflow.explainer.runner import Runner
from gaflow.flow.result import Certificate
from gaflow.inputs.encoding import Encoding
from gaflow.methods.base import Diagnostics
from gaflow.tasks.targets import ExplainedOutput


@dataclass(frozen=True)
class Window:
    """A part of a text as the model reads it; its offsets are those of the whole text."""

    encoding: Encoding
    positions: tuple[int, ...]  # of its tokens among those of the whole text
    weight: float  # a_w
    of_pair: bool = False  # a text of a pair that the model reads one by one (`pairs.py`)

    @classmethod
    def full(cls, encoding: Encoding) -> Window:
        """The only window of a text that fits."""
        return cls(encoding, tuple(range(len(encoding))), 1.0)

    @property
    def is_full(self) -> bool:
        """Whether this is all of a text."""
        return self.weight == 1.0

    @property
    def keeps_flow(self) -> bool:
        """Whether the flow of this window is of use to the whole text: flows of windows that overlap are not."""
        return self.is_full or self.of_pair


@dataclass(frozen=True)
class Windows:
    """How long texts are cut into windows.

    `size` is the most tokens of a window, special tokens included (None: the most that the model takes). `reads` is
    the number of windows that read each token; with 1, windows do not overlap.

        >>> explainer(review, windows=gaflow.Windows(size=128, reads=3))
    """

    size: int | None = None
    reads: int = 2

    def __post_init__(self) -> None:
        optional_whole_number("size", self.size)
        whole_number("reads", self.reads)

    def __call__(self, text: Encoding, limit: int | None, name: str = "text") -> tuple[Window, ...]:
        """The windows of a text, for a model that takes `limit` tokens; error messages call the text `name`."""
        if self.size is not None and limit is not None and self.size > limit:
            raise ArgumentError(
                f"windows of {self.size} tokens are too long: the model takes {limit}; use a smaller ", Argument("size")
            )
        size = self.size or limit
        if size is None or len(text) <= size:
            return (Window.full(text),)
        if "position_ids" in text.inputs:
            raise TextError(
                f"{name} comes with positions of its own and cannot be cut into windows; use ", Argument("truncation")
            )
        cut_segment = 0 if text.segments.count(0) > text.segments.count(1) else 1
        cut = [k for k, segment in enumerate(text.segments) if segment == cut_segment]
        others = len(text) - len(cut)
        stride = (size - others) // self.reads
        if stride < 1:
            fixed = "special tokens and the shorter text" if text.text_pair else "special tokens"
            raise TextError(
                f"{name}: {fixed} take {others} of the {size} tokens of a window, which leaves no room for "
                f"{self.reads} windows to read each token; use a larger ",
                Argument("size"),
                ", or shorten the text",
            )
        chunks = math.ceil(len(cut) / stride)
        edges = [k * len(cut) // chunks for k in range(chunks + 1)]
        windows = []
        for k in range(1 - self.reads, chunks):
            start = edges[max(k, 0)]
            end = edges[min(k + self.reads, chunks)]
            left_out = {*cut[:start], *cut[end:]}
            positions = [position for position in range(len(text)) if position not in left_out]
            weight = (end - start) / (self.reads * len(cut))
            windows.append(Window(text.select(positions), tuple(positions), weight))
        return tuple(windows)


WindowsArgument = bool | Windows | None  # True: the usual settings; False or None: texts must fit


def find_windows(windows: WindowsArgument, truncation: bool) -> Windows | None:
    """The settings that an argument `windows` means; None: texts must fit."""
    if not windows:
        return None
    if truncation:
        raise ArgumentError(
            Argument("truncation"), " and ", Argument("windows"),
            " are both set: one cuts off the end of a long text, the other reads all of it; choose one",
        )  # fmt: skip
    return Windows() if windows is True else windows


def mean_logits(runner: Runner, windows: Sequence[Window], batch_size: int) -> Tensor:
    """Σ_w a_w logits_w (c,) in float64, from one forward pass over the windows."""
    encodings = [window.encoding for window in windows]
    sums = []
    for group in runner.batches(encodings, batch_size):
        logits = runner.logits([encodings[k] for k in group])
        weights = torch.tensor([windows[k].weight for k in group], dtype=torch.float64)
        sums.append(torch.tensordot(weights, logits.cpu().double(), dims=1))
    return torch.stack(sums).sum(0)


def merge(
    text: Encoding, windows: Sequence[Window], attributions: Sequence[Attribution], output: ExplainedOutput
) -> Attribution:
    """The attribution of a whole text by one method, from those of its windows."""
    merged = add_up(text, windows, attributions, output, "windows")
    longest = max(len(window.positions) for window in windows)
    counts: Diagnostics = {"windows": len(windows), "window_tokens": longest}
    return replace(
        merged,
        output_kind=f"mean {attributions[0].output_name} of {len(windows)} windows",
        diagnostics={**counts, **merged.diagnostics},
    )


def add_up(
    text: Encoding, parts: Sequence[Window], attributions: Sequence[Attribution], output: ExplainedOutput, noun: str
) -> Attribution:
    """The weighted sum of the attributions of parts of a text, without flows; warnings call the parts by a `noun`."""
    first = attributions[0]
    scores = np.zeros(len(text))
    layers = None
    if first.layers is not None:
        layers = np.zeros((len(first.layers), len(text)))
    weights = []
    outputs = []
    certificates = []
    for window, attribution in zip(parts, attributions, strict=True):
        positions = list(window.positions)
        scores[positions] += window.weight * attribution.scores
        if layers is not None and attribution.layers is not None:
            layers[:, positions] += window.weight * attribution.layers
        weights.append(window.weight)
        outputs.append(attribution.output)
        if attribution.certificate is not None:
            certificates.append(attribution.certificate)
    return replace(
        first,
        tokens=text.tokens,
        offsets=text.offsets,
        segments=text.segments,
        scores=scores,
        layers=layers,
        target=output.target,
        label=output.label,
        probability=output.probability,
        prediction=output.prediction,
        output=_weighted_sum(weights, outputs),
        truncated=False,
        flow=None,
        flow_against=None,
        certificate=Certificate.worst(certificates, weights) if certificates else None,
        diagnostics=_merge_diagnostics(attributions, weights, noun),
    )


def _merge_diagnostics(attributions: Sequence[Attribution], weights: Sequence[float], noun: str) -> Diagnostics:
    """Numbers add up as scores do. Different strings are joined, and a warning says how many parts it concerns."""
    values_by_name: dict[str, list[float | str]] = {}
    for attribution in attributions:
        for name, value in attribution.diagnostics.items():
            values_by_name.setdefault(name, []).append(value)
    merged: Diagnostics = {}
    for name, values in values_by_name.items():
        numbers = [value for value in values if not isinstance(value, str)]
        if len(numbers) == len(attributions):
            merged[name] = _weighted_sum(weights, numbers)
            continue
        joined = "; ".join(dict.fromkeys(str(value) for value in values))
        if name == "warning":
            joined += f" (in {len(values)} of {len(attributions)} {noun})"
        merged[name] = joined
    return merged


def _weighted_sum(weights: Sequence[float], values: Sequence[float]) -> float:
    return math.fsum(weight * value for weight, value in zip(weights, values, strict=True))
