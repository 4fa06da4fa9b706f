"""From the scores of a batch to one Attribution per text: padding cut off, everything on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from gaflow.attribution import Attribution
from gaflow.errors import GaflowError
from gaflow.methods import Method, Scores
from gaflow.network import Flow
from gaflow.targets import Head, Resolved
from gaflow.text import Encoding
from gaflow.tracing import Trace

__all__ = ["attributions"]


def attributions(
    encodings: Sequence[Encoding],
    traced: Trace,
    targets: Sequence[Resolved],
    head: Head,
    method: Method,
    scores: Scores,
    keep_flow: bool,
) -> list[Attribution]:
    """One attribution per encoding, from the scores that `method` gave for the traced batch."""
    values = _values(method, scores, traced)
    logits, output = traced.logits.cpu().double(), traced.output.tolist()
    flow = None if scores.flow is None else _to_host(scores.flow)
    through = None if flow is None else flow.through().numpy()
    found = []
    for k, encoding in enumerate(encodings):
        n = len(encoding)  # padding is on the right
        found.append(
            Attribution(
                text=encoding.text,
                pair=encoding.pair,
                tokens=encoding.tokens,
                scores=values[k, :n].numpy(),
                offsets=encoding.offsets,
                segments=encoding.segments,
                method=method.name,
                target=targets[k],
                label=head.name(targets[k]),
                probability=head.probability(logits[k], targets[k]),
                output=output[k],
                prediction=head.labels[int(logits[k].argmax())],
                truncated=encoding.truncated,
                layers=None if through is None else through[k, :, :n],
                flow=_crop(flow, k, n) if flow is not None and keep_flow else None,
                certificate=None if flow is None else flow.certificate[k],
                facts=_facts(scores, traced, k),
            )
        )
    return found


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
    if len(scores.facts) not in (0, len(given)):
        raise ValueError(f"method {method.name!r} gave facts of {len(scores.facts)} texts for a batch of {len(given)}")
    values = given.detach().cpu().double()  # in this order: some devices have no float64
    if not bool(torch.isfinite(values).all()):
        raise GaflowError(f"method {method.name!r} gave scores that are not finite; please report the model and text")
    return values


def _facts(scores: Scores, traced: Trace, item: int) -> dict[str, float | str]:
    """What the method knows of a text, and a warning where it found nothing at all."""
    known = dict(scores.facts[item]) if scores.facts else {}
    if not bool(scores.values[item].any()):
        read = bool(traced.rows()[item].any())
        reason = "the method found nothing that changes" if read else "no attention of the last layer changes"
        known.setdefault("warning", f"all scores are 0: {reason} the explained output")
    return known


def _to_host(flow: Flow) -> Flow:
    def move(record: Any) -> Any:
        values = {f.name: getattr(record, f.name) for f in fields(record)}
        return replace(record, **{name: v.detach().cpu() for name, v in values.items() if isinstance(v, Tensor)})

    return replace(move(flow), certificate=move(flow.certificate))


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
