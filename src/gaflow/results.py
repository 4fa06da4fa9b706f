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
    values = scores.values.detach().cpu().double()  # in this order: some devices have no float64
    if not bool(torch.isfinite(values).all()):
        raise GaflowError(f"method {method.name!r} gave scores that are not finite; please report the model and text")
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
                facts=scores.facts[k] if scores.facts else {},
            )
        )
    return found


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
