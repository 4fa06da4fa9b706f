"""Attributions in one file, without pickle: a stranger's file can be read safely.

It is a safetensors file, with arrays as tensors and everything else as JSON in its metadata. Under a name that ends in
.json it is JSON throughout, larger and slower but the same to the last digit.

The conventions this file owns: `FORMAT` counts up when an older reader would misread a newer file. A field keeps the
key that it is stored under, even if it has a new name in Python (`STORED_NAMES`). A file is complete or not there at
all, and its contents fit together or loading it fails with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gaflow.attribution.layer_names import layer_in_name
from gaflow.errors import Argument, ArgumentError, GaflowError
from gaflow.files import write_atomically
from gaflow.flow.result import BatchCertificate, Certificate, Flow, NodeLayer, check_layer
from gaflow.inputs.media import Sound, media_from_tensor
from gaflow.inputs.segmentation import Span
from gaflow.tasks.targets import ResolvedTarget

if TYPE_CHECKING:
    from gaflow.attribution.attribution import Attribution

__all__ = ["FORMAT", "STORED_NAMES", "from_tensors_and_json", "read", "stored_fields", "to_tensors_and_json", "write"]

StoredValues = dict[str, Any]  # as JSON has them

FORMAT = 1
STORED_NAMES = {  # field -> key in files and in `to_dict`, where they differ
    "text_pair": "pair",
    "diagnostics": "facts",
    "output_kind": "measure",
    "read_positions": "places",
}
_NOT_JSON = ("flow", "flow_against", "certificate", "media")
_AGAINST = "against."  # prefix of the tensors of `flow_against`
_KEY = "gaflow"
_STORED_DTYPES = (torch.float64, torch.float32, torch.int64, torch.uint8, torch.bool)
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in _STORED_DTYPES}
_WRITERS = {  # of files with other endings
    ".pkl": "pickle, which runs what it reads,",
    ".pickle": "pickle, which runs what it reads,",
    ".html": "att.to_html",
    ".svg": "att.plot().savefig",
    ".pdf": "att.plot().savefig",
    ".png": "att.plot().savefig",
    ".csv": "att.to_pandas()",
    ".parquet": "att.to_pandas()",
    ".xlsx": "att.to_pandas()",
}


def write(path: str | Path, att: Attribution) -> None:
    """Write an attribution by way of a temporary file: JSON if the name ends in .json, otherwise safetensors."""
    path = Path(path)
    writer = _WRITERS.get(path.suffix.lower())
    if writer is not None:
        raise ArgumentError(
            Argument("path"), f" {path.name} would not hold what its name says: {writer} makes such files; "
            "give a name that ends in .safetensors or .json",
        )  # fmt: skip
    tensors, values = to_tensors_and_json(att)
    values = {"format": FORMAT, **values}
    if path.suffix.lower() == ".json":
        arrays = {}
        for name, tensor in tensors.items():
            dtype = str(tensor.dtype).removeprefix("torch.")
            arrays[name] = {"dtype": dtype, "shape": list(tensor.shape), "values": tensor.flatten().tolist()}
        write_atomically(path, json.dumps({_KEY: values, "tensors": arrays}).encode())
    else:
        from safetensors.torch import save

        write_atomically(path, save(tensors, {_KEY: json.dumps(values)}))


def read(path: str | Path) -> tuple[dict[str, Tensor], StoredValues]:
    """The tensors and the JSON values in a file that `write` made."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        read_content = _read_json if path.suffix.lower() == ".json" else _read_safetensors
        tensors, values = read_content(path)
        version = values.get("format")
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError, OSError) as error:
        raise GaflowError(f"{path} is damaged, or not a file that gaflow saved: {error!r}") from error
    if version != FORMAT:
        raise GaflowError(f"{path} has format {version!r}, but this version of gaflow reads {FORMAT}; update gaflow")
    return tensors, values


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], StoredValues]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"not a readable safetensors file: {error}") from error
    return tensors, json.loads(metadata[_KEY])


def _read_json(path: Path) -> tuple[dict[str, Tensor], StoredValues]:
    content = json.loads(path.read_bytes())
    tensors = {}
    for name, array in content["tensors"].items():  # which the JSON of `att.to_dict()` does not have
        tensor = torch.tensor(array["values"], dtype=_DTYPES[array["dtype"]])
        tensors[name] = tensor.reshape(array["shape"])
    return tensors, content[_KEY]


def to_tensors_and_json(att: Attribution) -> tuple[dict[str, Tensor], StoredValues]:
    """The arrays of an attribution as tensors that share no memory, and its other fields as JSON values."""
    tensors = {"scores": torch.tensor(att.scores)}
    if att.layers is not None:
        tensors["layers"] = torch.tensor(att.layers)
    if att.flow is not None:
        tensors |= _flow_tensors(att.flow, "")
    if att.flow_against is not None:
        tensors |= _flow_tensors(att.flow_against, _AGAINST)
    values = stored_fields(att)
    del values["scores"], values["layers"]
    if att.media is not None:
        tensors["media"] = att.media.tensor
        values["media"] = att.media.metadata()
    independent = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    return independent, values


def stored_fields(att: Attribution) -> StoredValues:
    """The fields by the key that they are stored under, without flows, picture and sound."""
    values = {}
    for field in fields(att):
        if field.name not in _NOT_JSON:
            key = STORED_NAMES.get(field.name, field.name)
            values[key] = getattr(att, field.name)
    values["certificate"] = None if att.certificate is None else att.certificate.to_dict()
    return values


def from_tensors_and_json(tensors: dict[str, Tensor], values: StoredValues) -> StoredValues:
    """The fields of an Attribution; ValueError, TypeError or KeyError if they do not fit together.

    Keys that this version does not know are ignored, and fields that older versions did not have get their default.
    """
    texts = {name: _text(values[name]) for name in ("text", "method", "label", "prediction")}
    text_pair = values["pair"]
    if text_pair is not None:
        _text(text_pair)
    probability = values["probability"]
    if probability is not None:
        probability = float(probability)
    tokens = tuple(_text(token) for token in values["tokens"])
    segments = tuple(int(segment) for segment in values["segments"])
    arrays = {name: tensors[name].numpy() for name in ("scores", "layers") if name in tensors}
    length = len(texts["text"])
    media = None
    if values.get("media") is not None:
        media = media_from_tensor(tensors["media"], values["media"])
        if isinstance(media, Sound):
            length = len(media.samples)
    certificate = values["certificate"]
    if certificate is not None:
        certificate = Certificate(**certificate)
    return {
        **texts,
        **arrays,
        "text_pair": text_pair,
        "tokens": tokens,
        "offsets": _offsets(values["offsets"], segments, length, len(text_pair or "")),
        "segments": segments,
        "target": _target(values["target"]),
        "probability": probability,
        "output": float(values["output"]),
        "truncated": bool(values["truncated"]),
        "layer": _layer(values, "layers" in arrays),
        "flow": _flow(tensors, "", len(tokens)),
        "flow_against": _flow(tensors, _AGAINST, len(tokens)),
        "certificate": certificate,
        "diagnostics": values.get("facts", {}),
        "output_kind": str(values.get("measure", "")),
        "read_positions": _positions(values.get("places", ()), len(tokens)),
        "media": media,
    }


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} should be text")
    return value


def _offsets(stored: Iterable[Span], segments: tuple[int, ...], length: int, pair_length: int) -> tuple[Span, ...]:
    """Offsets that lie in the text (or sound) or in the pair, as the segment of each token says."""
    lengths = {0: length, 1: pair_length, -1: max(length, pair_length)}  # a mask stands in one of the two
    offsets = []
    for (start, end), segment in zip(stored, segments, strict=True):
        if segment not in lengths or not 0 <= start <= end <= lengths[segment]:
            raise ValueError(f"offset {(start, end)} lies outside the text")
        offsets.append((int(start), int(end)))
    return tuple(offsets)


def _target(stored: list[int] | int | str) -> ResolvedTarget:
    if isinstance(stored, list):
        return int(stored[0]), int(stored[1])
    if isinstance(stored, str):
        return stored
    return int(stored)


def _positions(stored: Iterable[int], count: int) -> tuple[int, ...]:
    positions = tuple(int(position) for position in stored)
    for position in positions:
        if not 0 <= position < count:
            raise ValueError(f"the output is read at position {position}, but there are {count} tokens")
    return positions


def _layer(values: StoredValues, has_layers: bool) -> NodeLayer | None:
    """The scored layer. Files from before it was stored have it in the name of the method."""
    layer = values.get("layer", layer_in_name(values["method"]))
    if layer is None or not has_layers:
        return None
    return check_layer(layer)


def _flow_tensors(flow: Flow, prefix: str) -> dict[str, Tensor]:
    """The tensors of a flow and of its certificate."""
    tensors = {}
    for field in fields(Flow):
        value = getattr(flow, field.name)
        if isinstance(value, Tensor):
            tensors[f"{prefix}flow.{field.name}"] = value
    for field in fields(BatchCertificate):
        tensors[f"{prefix}certificate.{field.name}"] = getattr(flow.certificate, field.name)
    return tensors


def _flow(tensors: dict[str, Tensor], prefix: str, count: int) -> Flow | None:
    """The flow over `count` tokens that `_flow_tensors` took apart; None if there is none."""
    if f"{prefix}flow.edges" not in tensors:
        return None
    certificate = {}
    for field in fields(BatchCertificate):
        certificate[field.name] = tensors[f"{prefix}certificate.{field.name}"]
    parts = {}
    for field in fields(Flow):
        if field.name not in ("certificate", "capacity"):
            parts[field.name] = tensors[f"{prefix}flow.{field.name}"]
    capacity = tensors.get(f"{prefix}flow.capacity")  # older files do not have it
    flow = Flow(**parts, certificate=BatchCertificate(**certificate), capacity=capacity)
    if flow.edges.shape[2:] != (count, count):
        raise ValueError("the flow does not fit the tokens")
    if capacity is not None and capacity.shape != flow.edges.shape:
        raise ValueError("the capacities do not fit the flow")
    return flow
