"""Arrays and their description in one file, without pickle: a stranger's file can be read safely.

It is a safetensors file, with tensors as such and everything else as JSON in the metadata; under a name that ends in
.json it is JSON throughout, larger and slower but the same to the last digit. The convention this file owns: `FORMAT`
counts up when an older reader would misread a newer file, and a file is whole or not there at all.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gaflow.errors import GaflowError
from gaflow.files import write_atomically
from gaflow.flow.result import BatchCertificate, Flow

__all__ = ["FORMAT", "check_name", "flow_of", "flow_tensors", "read", "write"]

FORMAT = 1
_KEY = "gaflow"
_LATER = "capacity"  # a field of flows that older files do not have
_KINDS = (torch.float64, torch.float32, torch.int64, torch.uint8, torch.bool)
_DTYPES = {str(kind).removeprefix("torch."): kind for kind in _KINDS}
_OTHERS = {  # what these names promise, and what writes it
    **dict.fromkeys((".pkl", ".pickle"), "pickle, which runs what it reads,"),
    ".html": "att.to_html",
    **dict.fromkeys((".svg", ".pdf", ".png"), "att.plot().savefig"),
    **dict.fromkeys((".csv", ".parquet", ".xlsx"), "att.to_pandas()"),
}


def write(path: str | Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write to `path` by way of a temporary file next to it: JSON if it ends in .json, otherwise safetensors."""
    path, about = Path(path), {"format": FORMAT, **about}
    check_name(path)
    own = {name: v.detach().cpu().contiguous().clone() for name, v in tensors.items()}  # none may share memory
    if path.suffix.lower() == ".json":
        arrays = {
            name: {"dtype": _name(v), "shape": [*v.shape], "values": v.flatten().tolist()} for name, v in own.items()
        }
        return write_atomically(path, json.dumps({_KEY: about, "tensors": arrays}).encode())
    from safetensors.torch import save

    return write_atomically(path, save(own, {_KEY: json.dumps(about)}))


def check_name(path: Path) -> None:
    """Refuse a name that promises another kind of file."""
    other = _OTHERS.get(path.suffix.lower())
    if other is not None:
        wrong = f"{path.name} would not hold what its name says: {other} makes such files"
        raise ValueError(f"{wrong}; give a name that ends in .safetensors or .json")


def _name(tensor: Tensor) -> str:
    return next(name for name, kind in _DTYPES.items() if kind == tensor.dtype)


def read(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and description that `write` put into a file of the format that this version reads."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    tensors, about = _read_json(path) if path.suffix.lower() == ".json" else _read_safetensors(path)
    version = about.pop("format", None) if isinstance(about, dict) else None
    if version != FORMAT:
        raise GaflowError(f"{path} has format {version!r}, but this version of gaflow reads {FORMAT}; update gaflow")
    return tensors, about


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise GaflowError(f"{path} is not a readable safetensors file: {error}") from error
    if text is None:
        raise GaflowError(f"{path} is a safetensors file, but not one that gaflow wrote")
    try:
        return tensors, json.loads(text)
    except ValueError as error:
        raise GaflowError(f"{path} is damaged: its description is no JSON: {error}") from error


def _read_json(path: Path) -> tuple[dict[str, Tensor], Any]:
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:  # which a UnicodeDecodeError is, too
        raise GaflowError(f"{path} is no readable JSON: {error}") from error
    if not isinstance(found, dict) or _KEY not in found:
        raise GaflowError(f"{path} is JSON, but not a file that gaflow saved (att.to_dict() is not enough to load)")
    try:
        arrays = {
            name: torch.tensor(each["values"], dtype=_DTYPES[each["dtype"]]).reshape(each["shape"])
            for name, each in found["tensors"].items()
        }
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise GaflowError(f"{path} is damaged: {error!r}") from error
    return arrays, found[_KEY]


def flow_tensors(flow: Flow, prefix: str = "") -> dict[str, Tensor]:
    """A flow and its certificate as tensors to `write`."""
    parts = {f"{prefix}flow.{f.name}": getattr(flow, f.name) for f in fields(Flow) if f.name != "certificate"}
    parts |= {f"{prefix}certificate.{f.name}": getattr(flow.certificate, f.name) for f in fields(BatchCertificate)}
    return {name: value for name, value in parts.items() if value is not None}


def flow_of(tensors: dict[str, Tensor], t: int, prefix: str = "") -> Flow | None:
    """The flow over `t` tokens that `flow_tensors` took apart; None if there is none, ValueError if it does not fit."""
    if f"{prefix}flow.edges" not in tensors:
        return None
    certificate = BatchCertificate(
        **{f.name: tensors[f"{prefix}certificate.{f.name}"] for f in fields(BatchCertificate)}
    )
    own = [f.name for f in fields(Flow) if f.name not in ("certificate", _LATER)]
    parts = {name: tensors[f"{prefix}flow.{name}"] for name in own}
    flow = Flow(**parts, certificate=certificate, capacity=tensors.get(f"{prefix}flow.{_LATER}"))
    if flow.edges.dim() != 4 or tuple(flow.edges.shape[2:]) != (t, t):
        raise ValueError("the flow does not fit the tokens")
    if flow.capacity is not None and flow.capacity.shape != flow.edges.shape:
        raise ValueError("the capacities do not fit the flow")
    return flow
