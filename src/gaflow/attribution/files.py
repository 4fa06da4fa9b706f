"""Attributions in one file, without pickle: a stranger's file can be read safely.

It is a safetensors file, with arrays as tensors and everything else as JSON in its metadata. Under a name that ends in
.json it is JSON throughout, larger and slower but the same to the last digit.

The conventions this file owns: `FORMAT` counts up when an older reader would misread a newer file. A field keeps the
key that it is stored under, even if it has a new name in Python (`STORED_NAMES`). A file is complete or not there at
all, and its contents fit together or loading it fails with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gaflow.arguments import checked, location
from gaflow.attribution.layer_names import layer_in_name
from gaflow.errors import Argument, ArgumentError
from gaflow.files import write_atomically
from gaflow.flow.barrier.solve import BARRIERS, default_terminal
from gaflow.flow.result import BatchCertificate, Certificate, Flow, NodeLayer, check_layer_exists
from gaflow.inputs.media import Sound, media_from_array
from gaflow.inputs.segmentation import Span
from gaflow.schemas.check import SCHEMAS, as_tuples, check, check_arrays, check_format, parse_json, reading

if TYPE_CHECKING:
    from gaflow.attribution.attribution import Attribution

StoredValues = dict[str, Any]  # as JSON has them
_Tensors = dict[str, Tensor]  # by name
_Content = tuple[_Tensors, StoredValues]  # of a file

FORMAT = SCHEMAS["formats"]["attribution"]
STORED_NAMES = {  # field -> key in files and in `to_dict`, where they differ
    "text_pair": "pair",
    "diagnostics": "facts",
    "output_kind": "measure",
    "read_positions": "places",
    "origin": "provenance",
}
_ARRAYS = ("scores", "layers", "token_matches")  # fields that are stored as one tensor each
_NOT_IN_JSON = ("flow", "flow_against", "certificate", "media", "origin", "token_matches")  # as their fields are
_AGAINST = "against."  # prefix of the tensors of `flow_against`
_KEY = "gaflow"
_STORED_DTYPES = (torch.float64, torch.float32, torch.int64, torch.uint8, torch.bool)
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in _STORED_DTYPES}
_ADVICE = {  # for endings that promise something else
    ".pkl": "gaflow writes no pickle, because reading one can run any code",
    ".pickle": "gaflow writes no pickle, because reading one can run any code",
    ".html": "use att.to_html",
    ".svg": "use att.plot().savefig",
    ".pdf": "use att.plot().savefig",
    ".png": "use att.plot().savefig",
    ".csv": "use att.to_pandas().to_csv",
    ".parquet": "use att.to_pandas().to_parquet",
    ".xlsx": "use att.to_pandas().to_excel",
}


@checked
def write(att: Attribution, path: str | Path) -> None:
    """Write everything to one file, for `gaflow.load`: JSON if its name ends in .json, otherwise safetensors.

    An existing file is replaced only when all is written.
    """
    path = location("path", path)
    advice = _ADVICE.get(path.suffix.lower())
    if advice is not None:
        message = f" {path.name} would not hold what its name says: {advice}, or end the name in .safetensors or .json"
        raise ArgumentError(Argument("path"), message)
    tensors, values = to_tensors_and_json(att)
    values = {"format": FORMAT, **values, "provenance": att.provenance}
    if path.suffix.lower() == ".json":
        arrays = {}
        for name, tensor in tensors.items():
            dtype = str(tensor.dtype).removeprefix("torch.")
            arrays[name] = {"dtype": dtype, "shape": list(tensor.shape), "values": tensor.flatten().tolist()}
        write_atomically(path, json.dumps({_KEY: values, "tensors": arrays}).encode())
    else:
        from safetensors.torch import save

        write_atomically(path, save(tensors, {_KEY: json.dumps(values)}))


def read(path: str | Path) -> StoredValues:
    """The fields of the Attribution in a file that `write` made; DataError if it holds anything else."""
    path = location("path", path)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    with reading(path, "a file that gaflow saved"):
        read_content = _read_json if path.suffix.lower() == ".json" else _read_safetensors
        tensors, values = read_content(path)
        return from_tensors_and_json(tensors, values)


def _check_header(path: Path, values: Any) -> None:
    """Refuse what has no format, and formats that are newer: nothing else of them may be as it is here."""
    check(values, {"type": "object", "required": ["format"]}, _KEY)
    check_format(path, values["format"], "attribution")


def _read_safetensors(path: Path) -> _Content:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            values = parse_json(metadata.get(_KEY, "null"))
            _check_header(path, values)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"not a readable safetensors file: {error}") from error
    return tensors, values


def _read_json(path: Path) -> _Content:
    content = parse_json(path.read_bytes())
    check(content, {"type": "object", "required": [_KEY]})
    _check_header(path, content[_KEY])
    check(content, SCHEMAS["attribution file"])  # the JSON of `att.to_dict()` has no tensors
    tensors = {}
    for name, array in content["tensors"].items():
        try:
            tensor = torch.tensor(array["values"], dtype=_DTYPES[array["dtype"]])
            tensors[name] = tensor.reshape(array["shape"])
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise ValueError(f"tensors.{name} is no array of its dtype and shape: {error}") from error
    return tensors, content[_KEY]


def to_tensors_and_json(att: Attribution) -> _Content:
    """The arrays of an attribution as tensors that share no memory, and its other fields as JSON values."""
    tensors = {}
    for name in _ARRAYS:
        array = getattr(att, name)
        if array is not None:
            tensors[name] = torch.tensor(array)
    if att.flow is not None:
        tensors |= _flow_tensors(att.flow, "")
    if att.flow_against is not None:
        tensors |= _flow_tensors(att.flow_against, _AGAINST)
    values = stored_fields(att)
    for name in _ARRAYS:
        values.pop(name, None)
    if att.media is not None:
        tensors["media"] = att.media.tensor
        values["media"] = att.media.metadata()
    independent = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    return independent, values


def stored_fields(att: Attribution) -> StoredValues:
    """The fields by the key that they are stored under, without flows, picture, sound and provenance."""
    values = {}
    for field in fields(att):
        if field.name not in _NOT_IN_JSON:
            key = STORED_NAMES.get(field.name, field.name)
            values[key] = getattr(att, field.name)
    values["certificate"] = None if att.certificate is None else att.certificate.to_dict()
    return values


def from_tensors_and_json(tensors: _Tensors, values: StoredValues) -> StoredValues:
    """The fields of an Attribution; ValueError if they are not as the schema says, or do not fit together.

    Keys that this version does not know are ignored, and fields that older versions did not have get their default.
    """
    schema = SCHEMAS["attribution"]
    check(values, schema)
    names = {key: name for name, key in STORED_NAMES.items()}
    record = {}
    for key, value in values.items():
        if key in schema["properties"]:
            record[names.get(key, key)] = as_tuples(value)
    count = len(record["tokens"])
    arrays = _check_tensors(tensors, count)
    length = len(record["text"])
    if record.get("media") is not None:
        media = media_from_array(arrays, record["media"], record["segments"].count(0))
        record["media"] = media
        if isinstance(media, Sound):
            length = len(media.samples)
    last_position = max(record.get("read_positions", ()), default=0)
    if last_position >= count:
        raise ValueError(f"places has {last_position}, but there are {count} tokens")
    if record["certificate"] is not None:
        numbers = {field.name: record["certificate"][field.name] for field in fields(Certificate)}
        certificate = Certificate(**numbers)
        certificate.check_possible()
        record["certificate"] = certificate
    layers = arrays.get("layers")
    return record | {
        "output": float(record["output"]),
        "scores": arrays["scores"],
        "layers": layers,
        "layer": _layer(values, layers),
        "token_matches": arrays.get("token_matches"),
        "offsets": check_offsets(record["offsets"], record["segments"], length, len(record["text_pair"] or "")),
        "flow": _flow(tensors, "", values),
        "flow_against": _flow(tensors, _AGAINST, values),
    }


def _check_tensors(tensors: _Tensors, count: int) -> dict[str, np.ndarray]:
    """All tensors as arrays; ValueError if those of an attribution of `count` tokens are not as they should be."""
    arrays = {}
    for name, tensor in tensors.items():
        if tensor.dtype not in _STORED_DTYPES:
            raise ValueError(f"tensors.{name} has values of type {tensor.dtype}, which gaflow does not store")
        arrays[name] = tensor.numpy()
    sizes = check_arrays(arrays, "attribution", {"t": count})
    for prefix in ("", _AGAINST):
        if f"{prefix}flow.edges" in tensors:
            sizes = check_arrays(arrays, "flow", sizes, prefix)
    if "l" in sizes and sizes.get("n", sizes["l"] + 1) != sizes["l"] + 1:
        raise ValueError(f"layers has {sizes['n']} rows, but the flow has {sizes['l']} layers of edges")
    return arrays


def check_offsets(stored: Iterable[Span], segments: Sequence[int], length: int, pair_length: int) -> tuple[Span, ...]:
    """Offsets that lie in the text (or sound) or in the pair, as the segment of each token says."""
    lengths = {0: length, 1: pair_length, -1: max(length, pair_length)}  # a mask stands in one of the two
    offsets = []
    for (start, end), segment in zip(stored, segments, strict=True):
        if not start <= end <= lengths[segment]:
            raise ValueError(f"offset {(start, end)} lies outside the text")
        offsets.append((start, end))
    return tuple(offsets)


def _layer(values: StoredValues, layers: np.ndarray | None) -> NodeLayer | None:
    """The scored layer. Files from before it was stored have it in the name of the method."""
    layer = values.get("layer", layer_in_name(values["method"]))
    if layer is None or layers is None:
        return None
    if layer != "all":
        check_layer_exists(layer, len(layers))
    return layer


def _flow_tensors(flow: Flow, prefix: str) -> _Tensors:
    """The tensors of a flow and of its certificate."""
    tensors = {}
    for name in SCHEMAS["arrays"]["flow"]:
        tensor = attrgetter(name.removeprefix("flow."))(flow)
        if tensor is not None:
            tensors[prefix + name] = tensor
    return tensors


def _flow(tensors: _Tensors, prefix: str, values: StoredValues) -> Flow | None:
    """The flow that `_flow_tensors` took apart; None if there is none.

    Its barrier and terminals are settings of the method, and not known of files that have none.
    """
    if f"{prefix}flow.edges" not in tensors:
        return None
    parts: dict[str, dict[str, Any]] = {"flow": {}, "certificate": {}}
    for name in SCHEMAS["arrays"]["flow"]:
        record, _, field = name.partition(".")
        parts[record][field] = tensors.get(prefix + name)  # None: older files have no capacity
    settings = values.get("provenance", {}).get("settings", {})
    barrier = settings.get("barrier")
    terminal = settings.get("terminal")
    if barrier not in BARRIERS:
        barrier = None
    if terminal is None and barrier is not None:
        terminal = default_terminal(barrier)
    flow = Flow(
        **parts["flow"],
        certificate=BatchCertificate(**parts["certificate"]),
        barrier=barrier,
        terminal=terminal,
    )
    flow.check_possible()
    return flow
