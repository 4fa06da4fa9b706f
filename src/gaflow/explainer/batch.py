"""From one batch to an Attribution for each text and method: one trace serves all methods.

The convention this file owns: attributions are on the host and without padding, and hold no memory of the batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from gaflow.attribution.attribution import Attribution
from gaflow.attribution.words import ALL_ZERO
from gaflow.errors import ArgumentError, ArgumentTypeError, GaflowError
from gaflow.explainer.provenance import Origin
from gaflow.explainer.runner import Runner
from gaflow.flow.result import BatchCertificate, Certificate, Flow, Potentials
from gaflow.flow.threads import one_core
from gaflow.inputs.batch import Batch
from gaflow.inputs.encoding import Encoding
from gaflow.methods import Method, Scores
from gaflow.methods.balanced import common_kind, forward_with
from gaflow.methods.base import Diagnostics
from gaflow.models.forward import RANDOM_OUTPUT, is_random
from gaflow.models.memory import check_budget, device_of, fitting, geometry_of
from gaflow.models.restore import borrow
from gaflow.models.streamed_attention import HeadMean
from gaflow.models.tracing import Trace, backward
from gaflow.progress import Report, return_freed_memory, silent
from gaflow.tasks.media_inputs import name_tokens
from gaflow.tasks.targets import ExplainedOutput

ONE_CORE_PRODUCTS = 1 << 24  # in the largest matrix product of a pass: fewer take under a millisecond on one core

Record = TypeVar("Record", Flow, BatchCertificate, Potentials)


@dataclass
class Timings:
    """Seconds spent in the trace and in each method, and the peak memory of each method on a GPU."""

    trace: float = 0.0  # forward and backward pass included
    forward: float = 0.0
    backward: float = 0.0
    methods: dict[str, float] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)  # bytes, tensors of the trace included; empty on a CPU

    def add(self, batch: Timings) -> None:
        """Include the seconds and the peak of another batch."""
        self.trace += batch.trace
        self.forward += batch.forward
        self.backward += batch.backward
        for name, seconds in batch.methods.items():
            self.methods[name] = self.methods.get(name, 0.0) + seconds
        for name, size in batch.peak.items():
            self.peak[name] = max(self.peak.get(name, 0), size)


@dataclass(frozen=True)
class BatchResult:
    """All that one batch gives."""

    by_text: list[dict[str, Attribution]]  # (b,) for each text: method name -> attribution
    logits: list[tuple[float, ...] | None]  # (b,) for each text: the logits (c,) of its classes; None: other outputs
    timings: Timings


def explain_batch(
    runner: Runner,
    encodings: Sequence[Encoding],
    targets: Sequence[object],
    methods: Sequence[Method],
    *,
    keep_flow: bool = False,
    report: Report = silent,
    measure: bool = False,
) -> BatchResult:
    """Explain one batch by all methods, from a single trace; methods with other gradients share one more.

    `targets` are resolved by the runner's head. `report` is called with the number of methods done, parts included.
    `measure` waits for a GPU after the trace, and resets its peak memory: timings and peaks are then exact.
    """
    started = time.perf_counter()
    timings = Timings()
    lengths = [len(encoding) for encoding in encodings]
    by_text: list[dict[str, Attribution]] = [{} for _ in encodings]
    head_means = runner.needed_means(methods)
    streamed = runner.streams(encodings, methods)
    if head_means is not None and not streamed:
        check_budget(runner.model, lengths, methods)
        head_means = None
    fitting_memory = fitting(runner.model, lengths, methods, streamed=streamed)
    with fitting_memory, _cores(runner.model, lengths, methods), torch.inference_mode(False), torch.no_grad():
        batch = runner.collate(encodings)
        device = device_of(runner.model)
        on_gpu = measure and device.type == "cuda"

        def report_part(part: float) -> None:
            if part < 1:  # a finished method is reported below
                report(len(timings.methods) + part)

        residual = any("residual" in getattr(method, "needs", ()) for method in methods)
        kind = common_kind(methods)
        traced, outputs = _trace(runner, batch, targets, kind, residual, head_means, report_part, timings)
        random_output = RANDOM_OUTPUT if is_random(runner.model, batch.inputs, traced.logits) else None
        traced = replace(traced, keeps_flow=keep_flow)
        if not batch.mask.shape[1]:
            batch, traced = _name_media_tokens(runner, batch, traced)
        snapshot = runner.snapshots.take()
        if on_gpu:
            before_waiting = time.perf_counter()
            torch.cuda.synchronize(device)
            timings.backward += time.perf_counter() - before_waiting
            torch.cuda.reset_peak_memory_stats(device)
        return_freed_memory(sum(state.nbytes for state in traced.hidden))
        timings.trace = time.perf_counter() - started
        for method in methods:
            started = time.perf_counter()
            attributions = _attributions(
                batch, traced, outputs, method, keep_flow, random_output, Origin(snapshot, method)
            )
            for results, attribution in zip(by_text, attributions, strict=True):
                results[method.name] = attribution
            timings.methods[method.name] = time.perf_counter() - started
            if on_gpu:
                timings.peak[method.name] = torch.cuda.max_memory_allocated(device)
                torch.cuda.reset_peak_memory_stats(device)
            report(len(timings.methods))
    logits: list[tuple[float, ...] | None] = [None] * len(encodings)
    if traced.logits.dim() == 2:
        logits = list(map(tuple, traced.logits.cpu().double().tolist()))
    return BatchResult(by_text, logits, timings)


def _cores(model: nn.Module, lengths: Sequence[int], methods: Sequence[Method]) -> AbstractContextManager[None]:
    """One core for short texts of a small model, all for the others and for methods that run many texts at a time."""
    geometry = geometry_of(model)
    if geometry is None or any(map(_runs_many_texts, methods)):
        return nullcontext()
    weights = geometry.hidden_size * geometry.intermediate_size
    return one_core() if sum(lengths) * weights < ONE_CORE_PRODUCTS else nullcontext()


def _runs_many_texts(method: Method) -> bool:
    """Whether the method changes a text in many ways."""
    info = getattr(method, "info", None)
    return info is not None and info.family == "perturbation"


def _trace(
    runner: Runner,
    batch: Batch,
    targets: Sequence[object],
    kind: str,
    residual: bool,
    head_means: Sequence[HeadMean] | None,
    report: Report,
    timings: Timings,
) -> tuple[Trace, list[ExplainedOutput]]:
    """The trace of a batch and its explained outputs. The forward pass ends here: long texts need the memory."""
    started = time.perf_counter()
    with borrow(runner.model):
        forward_pass = forward_with(kind, runner.model, batch, residual=residual, head_means=head_means)
        outputs = runner.head.outputs(forward_pass.logits, batch.encodings, targets)  # waits for a GPU
        differentiating = time.perf_counter()
        traced = backward(forward_pass, [output.terms for output in outputs], report)
    timings.forward = differentiating - started
    timings.backward = time.perf_counter() - differentiating
    return replace(traced, gradient_kind=kind), outputs


def _name_media_tokens(runner: Runner, batch: Batch, traced: Trace) -> tuple[Batch, Trace]:
    """The batch and its trace with tokens for pictures or sounds: only the trace shows how many the model made."""
    count = traced.mask.shape[1]
    encodings = tuple(name_tokens(encoding, count, runner.model) for encoding in batch.encodings)
    batch = replace(batch, mask=traced.mask, encodings=encodings)
    traced_model = replace(traced.require_model(), batch=batch)
    return batch, replace(traced, model=traced_model)


def _attributions(
    batch: Batch,
    traced: Trace,
    outputs: Sequence[ExplainedOutput],
    method: Method,
    keep_flow: bool,
    warning: str | None,
    origin: Origin,
) -> list[Attribution]:
    """One attribution by `method` for each text of the traced batch; `warning` and `origin` concern all of them."""
    scores = method(traced)
    values = _checked_values(method, scores, traced)
    explained = traced.output.tolist()
    flow = None
    flow_against = None
    if keep_flow:
        flow = _to_host(scores.flow)
        flow_against = _to_host(scores.flow_against)
    certificates = _certificates(scores)
    layers = scores.layers()
    if layers is not None:
        layers = layers.detach().cpu().numpy()
    attributions = []
    for k, (encoding, output) in enumerate(zip(batch.encodings, outputs, strict=True)):
        n = len(encoding)  # padding is on the right
        attribution = Attribution(
            text=encoding.text,
            text_pair=encoding.text_pair,
            tokens=encoding.tokens,
            scores=values[k, :n].numpy(),
            offsets=encoding.offsets,
            segments=encoding.segments,
            method=method.name,
            target=output.target,
            label=output.label,
            probability=output.probability,
            output=explained[k],
            prediction=output.prediction,
            output_kind=output.output_kind,
            read_positions=output.read_positions,
            media=encoding.media,
            truncated=encoding.truncated,
            layers=None if layers is None else layers[k, :, :n],
            flow=_crop(flow, k, n),
            flow_against=_crop(flow_against, k, n),
            certificate=certificates[k],
            diagnostics=_diagnostics(scores, values, traced, k, [warning, *_unknown_tokens(encoding, batch)]),
            layer=scores.layer,
            origin=origin,
        )
        attributions.append(attribution)
    return attributions


def _certificates(scores: Scores) -> list[Certificate | None]:
    """The certificate of each text; of a signed method, the worse of its two flows."""
    sides = [side.certificate.to_list() for side in scores.sides()]
    if not sides:
        return [None] * len(scores.values)
    if len(sides) == 1:
        return list(sides[0])
    return [certificate.combine(against) for certificate, against in zip(*sides, strict=True)]


def _checked_values(method: Method, scores: object, traced: Trace) -> Tensor:
    """The scores (b, t) in float64 on the host, checked: anybody may write a method."""
    if not isinstance(scores, Scores):
        raise ArgumentTypeError(f"method {method.name!r} returned {type(scores).__name__}; a method returns Scores")
    values: object = scores.values
    shape = tuple(traced.mask.shape)
    if not isinstance(values, Tensor) or values.is_complex() or tuple(values.shape) != shape:
        kind = type(values).__name__
        if isinstance(values, Tensor):
            kind = f"{values.dtype} {tuple(values.shape)}"
        raise ArgumentError(
            f"method {method.name!r} gave scores that are {kind}; a real tensor (b, t) = {shape} is needed"
        )
    if len(scores.diagnostics) not in (0, len(values)):
        raise ArgumentError(
            f"method {method.name!r} gave diagnostics of {len(scores.diagnostics)} texts for a batch of {len(values)}"
        )
    values = values.detach().cpu().double()  # in this order: some devices have no float64
    if not bool(torch.isfinite(values).all()):
        raise GaflowError(f"method {method.name!r} gave scores that are not finite; please report the model and text")
    return values


def _diagnostics(
    scores: Scores, values: Tensor, traced: Trace, item: int, other_warnings: Sequence[str | None]
) -> Diagnostics:
    """The method's diagnostics of one text, with a warning if all its scores are 0, and other warnings.

    `values` (b, t) are the scores on the host: a look at each text's on a GPU would wait for it every time.
    """
    diagnostics = dict(scores.diagnostics[item]) if scores.diagnostics else {}
    if not bool(values[item].any()):
        reads_attention = bool(traced.rows()[item].any())
        if reads_attention:
            reason = "the method found nothing that changes"
        else:
            reason = "no attention of the last layer changes"
        diagnostics.setdefault("warning", f"{ALL_ZERO}: {reason} the explained output")
    parts = [diagnostics.get("warning"), *other_warnings]
    joined = "; ".join(str(part) for part in parts if part is not None)
    return diagnostics | {"warning": joined} if joined else diagnostics


def _unknown_tokens(encoding: Encoding, batch: Batch) -> Iterator[str]:
    """Warnings for each text of which the tokenizer knows less than half, so the model cannot tell it from others."""
    unknown = batch.neutral.get("unk")
    ids = encoding.inputs.get("input_ids", ())
    names = [""] if encoding.text_pair is None else ["first text: ", "second text: "]
    for segment, name in enumerate(names):
        tokens = [token for token, part in zip(ids, encoding.segments, strict=False) if part == segment]
        count = tokens.count(unknown)
        if 2 * count > len(tokens):
            share = f"{count} of {len(tokens)} tokens"
            yield f"{name}{share} are unknown to the tokenizer: the model cannot tell this text from others"


def _to_host(flow: Flow | None) -> Flow | None:
    if flow is None:
        return None
    certificate = _tensors_to_host(flow.certificate)
    potentials = None if flow.potentials is None else _tensors_to_host(flow.potentials)
    return replace(_tensors_to_host(flow), certificate=certificate, potentials=potentials)


def _tensors_to_host(record: Record) -> Record:
    tensors = {}
    for name, value in vars(record).items():
        if isinstance(value, Tensor):
            tensors[name] = value.detach().cpu()
    return replace(record, **tensors)


def _crop(flow: Flow | None, item: int, n: int) -> Flow | None:
    """The flow of one text over its `n` tokens, copied, so that the batch can be freed."""
    if flow is None:
        return None
    one = flow[item]
    potentials = one.potentials
    if potentials is not None:
        potentials = replace(potentials, nodes=potentials.nodes[:, :, :n].clone())
    return replace(
        one,
        edges=one.edges[:, :, :n, :n].clone(),
        source=one.source[:, :n].clone(),
        target=one.target[:, :n].clone(),
        capacity=None if one.capacity is None else one.capacity[:, :, :n, :n].clone(),
        potentials=potentials,
    )
