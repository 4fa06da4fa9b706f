"""An attribution taken apart for a file, and what a file says put together again, checked.

The convention this file owns: what is read fits together (tokens, offsets and places lie where they can) or is a
ValueError that says what does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gaflow.attribution.files import flow_of, flow_tensors
from gaflow.flow.result import Certificate
from gaflow.inputs.media import Sound, media_from_tensor
from gaflow.tasks.targets import ResolvedTarget

if TYPE_CHECKING:
    from gaflow.attribution.attribution import Attribution

__all__ = ["STORED_NAMES", "from_tensors_and_json", "to_tensors_and_json"]

_APART = ("scores", "layers", "flow", "flow_against", "certificate", "media")  # fields that are no JSON
# fields that files and `to_dict` know under an older name
STORED_NAMES = {
    "text_pair": "pair",
    "diagnostics": "facts",
    "output_kind": "measure",
    "read_positions": "places",
}
_AGAINST = "against."  # before the names of that flow's tensors


def to_tensors_and_json(att: Attribution) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors, and a description in plain values."""
    tensors = {"scores": torch.from_numpy(att.scores.copy())}
    if att.layers is not None:
        tensors["layers"] = torch.from_numpy(att.layers.copy())
    if att.flow is not None:
        tensors |= flow_tensors(att.flow)
    if att.flow_against is not None:
        tensors |= flow_tensors(att.flow_against, _AGAINST)
    about = {STORED_NAMES.get(f.name, f.name): getattr(att, f.name) for f in fields(att) if f.name not in _APART}
    about["certificate"] = None if att.certificate is None else att.certificate.to_dict()
    if att.media is not None:
        tensors["media"], about["media"] = att.media.tensor, att.media.metadata()
    return tensors, about


def from_tensors_and_json(about: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """What an Attribution is made of."""
    texts = {name: about[name] for name in ("text", "method", "label", "prediction")}
    pair, tokens = about["pair"], about["tokens"]
    for value in (*texts.values(), *tokens, "" if pair is None else pair):
        _expect(isinstance(value, str), f"{value!r} should be text")
    media = media_from_tensor(tensors["media"], about["media"]) if about.get("media") is not None else None
    segments = tuple(int(s) for s in about["segments"])
    offsets = tuple((int(a), int(b)) for a, b in about["offsets"])
    ends = {0: len(media.samples) if isinstance(media, Sound) else len(texts["text"]), 1: len(pair or "")}
    ends[-1] = max(ends.values())  # a mask stands in one of them
    for (a, b), s in zip(offsets, segments, strict=True):
        _expect(s in ends and 0 <= a <= b <= ends[s], f"offset {(a, b)} lies outside the text")
    layers, certificate = tensors.get("layers"), about["certificate"]
    return {
        **texts,
        "text_pair": pair,
        "tokens": tuple(tokens),
        "scores": tensors["scores"].numpy(),
        "offsets": offsets,
        "segments": segments,
        "target": _target(about["target"]),
        "probability": None if about["probability"] is None else float(about["probability"]),
        "output": float(about["output"]),
        "truncated": bool(about["truncated"]),
        "layers": None if layers is None else layers.numpy(),
        "flow": flow_of(tensors, len(tokens)),
        "flow_against": flow_of(tensors, len(tokens), _AGAINST),
        "certificate": None if certificate is None else Certificate(**certificate),
        "diagnostics": about.get("facts", {}),
        "output_kind": str(about.get("measure", "")),
        "read_positions": _places(about.get("places", ()), len(tokens)),
        "media": media,
    }


def _target(stored: Any) -> ResolvedTarget:
    if isinstance(stored, list):
        return int(stored[0]), int(stored[1])
    return stored if isinstance(stored, str) else int(stored)


def _places(stored: Iterable[Any], t: int) -> tuple[int, ...]:
    places = tuple(int(k) for k in stored)
    _expect(all(0 <= k < t for k in places), f"places {places} are no tokens")
    return places


def _expect(true: bool, otherwise: str) -> None:
    if not true:
        raise ValueError(otherwise)
