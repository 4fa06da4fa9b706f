"""From a batch to one Attribution per text and method: one trace for all methods, padding cut off, all on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from gaflow.attribution.attribution import Attribution
from gaflow.errors import GaflowError
from gaflow.flow.result import Certificate, Flow
from gaflow.inputs.encoding import Batch
from gaflow.methods import Method, Scores
from gaflow.models.tracing import Readout, Trace, trace
from gaflow.progress import Report
from gaflow.tasks.media_inputs import name_tokens
from gaflow.tasks.targets import ExplainedOutput, Head, explained_scalar

__all__ = ["attributions", "explain_batch"]


def explain_batch(
    model: Any,
    batch: Batch,
    head: Head,
    targets: Sequence[Any],
    methods: Sequence[Method],
    keep_flow: bool,
    report: Report,
    watch: Callable[[Trace], object] = lambda traced: None,
) -> list[list[Attribution]]:
    """One trace, every method: a list of attributions per method.

    `targets` are fitted to their texts by `head`. `report` is told how many are done, `watch` is shown the trace.
    """
    found: list[list[Attribution]] = []
    aims: list[ExplainedOutput] = []

    def choose(logits: Tensor) -> Readout:
        aims[:] = head.outputs(logits, batch.encodings, targets)
        return lambda asked, items: explained_scalar(asked, [aims[k].terms for k in items])

    def part(done: float) -> None:
        if done < 1:  # the whole is told below
            report(len(found) + done)

    with torch.inference_mode(False), torch.no_grad():
        residual = any("residual" in getattr(method, "needs", ()) for method in methods)
        traced = trace(model, batch, choose, part, residual=residual)
        if not batch.mask.shape[1]:
            batch, traced = _named(model, batch, traced)
        watch(traced)
        for method in methods:
            found.append(attributions(batch, traced, aims, method, method(traced), keep_flow))
            report(len(found))
    return found


def _named(model: Any, batch: Batch, traced: Trace) -> tuple[Batch, Trace]:
    """The batch and its trace, once it shows how many tokens the model made of pictures or sounds."""
    encodings = tuple(name_tokens(encoding, traced.mask.shape[1], model) for encoding in batch.encodings)
    batch = replace(batch, mask=traced.mask, encodings=encodings)
    return batch, replace(traced, model=replace(traced.require_model(), batch=batch))


def attributions(
    batch: Batch, traced: Trace, aims: Sequence[ExplainedOutput], method: Method, scores: Scores, keep_flow: bool
) -> list[Attribution]:
    """One attribution per text, from the scores that `method` gave for the traced batch."""
    values, output = _values(method, scores, traced), traced.output.tolist()
    flow, against = (None if one is None else _to_host(one, keep_flow) for one in (scores.flow, scores.flow_against))
    layers = scores.layers()
    through = None if layers is None else layers.detach().cpu().numpy()
    found = []
    for k, (encoding, aim) in enumerate(zip(batch.encodings, aims, strict=True)):
        n = len(encoding)  # padding is on the right
        found.append(
            Attribution(
                text=encoding.text,
                text_pair=encoding.text_pair,
                tokens=encoding.tokens,
                scores=values[k, :n].numpy(),
                offsets=encoding.offsets,
                segments=encoding.segments,
                method=method.name,
                target=aim.target,
                label=aim.label,
                probability=aim.probability,
                output=output[k],
                prediction=aim.prediction,
                output_kind=aim.output_kind,
                read_positions=aim.read_positions,
                media=encoding.media,
                truncated=encoding.truncated,
                layers=None if through is None else through[k, :, :n],
                flow=_crop(flow, k, n) if flow is not None and keep_flow else None,
                flow_against=_crop(against, k, n) if against is not None and keep_flow else None,
                certificate=_certificate(flow, against, k),
                diagnostics=_facts(scores, traced, k),
            )
        )
    return found


def _certificate(flow: Flow | None, against: Flow | None, item: int) -> Certificate | None:
    """That of the flow, or of both."""
    if flow is None:
        return None
    found = flow.certificate[item]
    return found if against is None else found.combine(against.certificate[item])


def _values(method: Method, scores: Any, traced: Trace) -> Tensor:
    """The scores (b, t) in float64, checked: anybody may write a method."""
    if not isinstance(scores, Scores):
        raise TypeError(f"method {method.name!r} returned {type(scores).__name__}; a method returns Scores")
    given: Any = scores.values
    wanted = tuple(traced.mask.shape)
    if not isinstance(given, Tensor) or given.is_complex() or tuple(given.shape) != wanted:
        found = f"{given.dtype} {tuple(given.shape)}" if isinstance(given, Tensor) else type(given).__name__
        raise ValueError(
            f"method {method.name!r} gave scores that are {found}; a real tensor (b, t) = {wanted} is needed"
        )
    if len(scores.diagnostics) not in (0, len(given)):
        raise ValueError(
            f"method {method.name!r} gave facts of {len(scores.diagnostics)} texts for a batch of {len(given)}"
        )
    values = given.detach().cpu().double()  # in this order: some devices have no float64
    if not bool(torch.isfinite(values).all()):
        raise GaflowError(f"method {method.name!r} gave scores that are not finite; please report the model and text")
    return values


def _facts(scores: Scores, traced: Trace, item: int) -> dict[str, float | str]:
    """What the method knows of a text, and a warning where it found nothing at all."""
    known = dict(scores.diagnostics[item]) if scores.diagnostics else {}
    if not bool(scores.values[item].any()):
        read = bool(traced.rows()[item].any())
        reason = "the method found nothing that changes" if read else "no attention of the last layer changes"
        known.setdefault("warning", f"all scores are 0: {reason} the explained output")
    return known


def _to_host(flow: Flow, whole: bool) -> Flow:
    """The flow, or of one that nobody keeps the certificate alone, in the memory of the CPU."""

    def move(record: Any) -> Any:
        values = {f.name: getattr(record, f.name) for f in fields(record)}
        return replace(record, **{name: v.detach().cpu() for name, v in values.items() if isinstance(v, Tensor)})

    return replace(move(flow) if whole else flow, certificate=move(flow.certificate))


def _crop(flow: Flow, item: int, n: int) -> Flow:
    """The flow of one text over its own tokens, in memory of its own so that the batch can be let go."""
    one = flow[item]
    return replace(
        one,
        edges=one.edges[:, :, :n, :n].clone(),
        source=one.source[:, :n].clone(),
        target=one.target[:, :n].clone(),
        capacity=None if one.capacity is None else one.capacity[:, :, :n, :n].clone(),
    )
