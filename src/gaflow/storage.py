"""Arrays and their description in one safetensors file, without pickle: a stranger's file can be read safely.

Tensors are stored as such, everything else as JSON in the file's metadata. The convention this file owns:
`FORMAT` counts up when an older reader would misread a newer file, and a file is whole or not there at all.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import Tensor

from gaflow.errors import GaflowError
from gaflow.network import Certificate, Flow

__all__ = ["FORMAT", "flow_of", "flow_tensors", "read", "write", "write_whole"]

FORMAT = 1
_KEY = "gaflow"
_LATER = "capacity"  # a field of flows that older files do not have


def write(path: str | Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write to `path` by way of a temporary file next to it."""
    from safetensors.torch import save

    own = {name: v.detach().cpu().contiguous().clone() for name, v in tensors.items()}  # none may share memory
    write_whole(Path(path), save(own, {_KEY: json.dumps({"format": FORMAT, **about})}))


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is either whole or not there, whatever happens on the way."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no folder {path.parent} to write {path.name} into; create it first")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)  # mkstemp makes files that only their owner can read
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and description that `write` put into a file of the format that this version reads."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise GaflowError(f"{path} is not a readable safetensors file: {error}") from error
    if text is None:
        raise GaflowError(f"{path} is a safetensors file, but not one that gaflow wrote")
    try:
        about = json.loads(text)
    except ValueError as error:
        raise GaflowError(f"{path} is damaged: its description is no JSON: {error}") from error
    version = about.pop("format", None) if isinstance(about, dict) else None
    if version != FORMAT:
        raise GaflowError(f"{path} has format {version!r}, but this version of gaflow reads {FORMAT}; update gaflow")
    return tensors, about


def flow_tensors(flow: Flow) -> dict[str, Tensor]:
    """A flow and its certificate as tensors to `write`."""
    parts = {f"flow.{f.name}": getattr(flow, f.name) for f in fields(Flow) if f.name != "certificate"}
    parts |= {f"certificate.{f.name}": getattr(flow.certificate, f.name) for f in fields(Certificate)}
    return {name: value for name, value in parts.items() if value is not None}


def flow_of(tensors: dict[str, Tensor], t: int) -> Flow | None:
    """The flow over `t` tokens that `flow_tensors` took apart; None if there is none, ValueError if it does not fit."""
    if "flow.edges" not in tensors:
        return None
    certificate = Certificate(**{f.name: tensors[f"certificate.{f.name}"] for f in fields(Certificate)})
    own = [f.name for f in fields(Flow) if f.name not in ("certificate", _LATER)]
    parts = {name: tensors[f"flow.{name}"] for name in own}
    flow = Flow(**parts, certificate=certificate, capacity=tensors.get(f"flow.{_LATER}"))
    if flow.edges.dim() != 4 or tuple(flow.edges.shape[2:]) != (t, t):
        raise ValueError("the flow does not fit the tokens")
    if flow.capacity is not None and flow.capacity.shape != flow.edges.shape:
        raise ValueError("the capacities do not fit the flow")
    return flow
