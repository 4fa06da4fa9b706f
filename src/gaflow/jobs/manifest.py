"""What a job is, in JSON: all that decides its numbers, so that two jobs can be told apart.

The convention this file owns: the manifest holds no time, no host and no path of the machine but the model's name,
and is the same for every run of the same job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any

import torch

from gaflow.errors import DataError, JobError
from gaflow.explainer.explainer import Explainer
from gaflow.files import write_atomically
from gaflow.methods import Method

__all__ = ["MANIFEST", "Manifest", "Shard", "describe_method", "describe_model", "differences", "versions"]

MANIFEST = "manifest.json"
_PACKAGES = ("gaflow", "torch", "transformers", "tokenizers", "numpy", "pyarrow", "captum", "ortools")
_EMBEDDED = Path(__file__).parents[1] / "assets"
_NAMES = ("name", "revision")  # of a model or a data set: told, but no difference, for the hashes decide


@dataclass(frozen=True)
class Shard:
    """A finished file."""

    file: str
    sha256: str
    texts: int
    rows: int
    errors: int  # rows without scores
    first: int  # row numbers of the first and the last text
    last: int


@dataclass(frozen=True)
class Manifest:
    """A job, and how far it is."""

    job: dict[str, Any]
    shards: dict[int, Shard]
    finished: bool = False

    def write(self, folder: Path) -> None:
        """Replace the manifest of a folder, as a whole."""
        totals = {name: sum(getattr(s, name) for s in self.shards.values()) for name in ("texts", "rows", "errors")}
        shards = [{f.name: getattr(self.shards[k], f.name) for f in fields(Shard)} for k in sorted(self.shards)]
        value = {"format": 1, "job": self.job, "finished": self.finished, **totals, "shards": shards}
        write_atomically(folder / MANIFEST, (json.dumps(value, indent=1) + "\n").encode())

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest of a folder."""
        path = folder / MANIFEST
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            if value["format"] != 1:
                raise DataError(f"{path} has format {value['format']!r}, but this version reads 1; update gaflow")
            shards = {int(s["file"][5:-8]): Shard(**s) for s in value["shards"]}
            if any(Path(s.file).name != s.file for s in shards.values()):
                raise ValueError("a shard lies outside the folder")
            return cls(value["job"], shards, bool(value["finished"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{path} is damaged ({error}); restore it, or start again in a new folder") from error


def differences(there: Mapping[str, Any], here: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Where two jobs differ, each as "setting: value there, here value"."""
    found = []
    for name in dict.fromkeys([*there, *here]):
        a: Any = there.get(name)
        b: Any = here.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += differences(a, b, f"{prefix}{name}.")
        elif _listed(a) and _listed(b) and len(a) == len(b):
            for k, (one, other) in enumerate(zip(a, b, strict=True)):
                found += differences(one, other, f"{prefix}{name}[{k}].")
        elif a != b and not (prefix in ("model.", "data.") and name in _NAMES):
            found.append(f"{prefix}{name} is {_short(a)} there, {_short(b)} here")
    return found


def refuse_other(there: Mapping[str, Any], here: Mapping[str, Any], folder: Path) -> None:
    """Stop where a folder belongs to another job."""
    found = differences(there, json.loads(json.dumps(here)))
    if found:
        more = f" and {len(found) - 3} more differences" if len(found) > 3 else ""
        raise JobError(
            f"{str(folder)!r} holds another job: {'; '.join(found[:3])}{more}. "
            "Run it with the settings it was begun with, or give a new folder"
        )


def _listed(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, Mapping) for v in value)


def _short(value: Any) -> str:
    if _listed(value):
        value = [v.get("name") for v in value]
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def describe_model(explainer: Explainer) -> dict[str, Any]:
    """Model and tokenizer, with hashes of all that decides what they give."""
    config = explainer.model.config
    weight = next(explainer.model.parameters(), torch.empty(0))
    name = str(getattr(config, "name_or_path", "") or type(explainer.model).__name__)
    if Path(name).is_absolute():  # folders differ from machine to machine
        name = "embedded" if Path(name) == _EMBEDDED else Path(name).name
    return {
        "name": name,
        "revision": getattr(config, "_commit_hash", None),
        "class": type(explainer.model).__name__,
        "labels": list(explainer.head.labels),
        "weights": _hash_weights(explainer.model),
        "dtype": str(weight.dtype).removeprefix("torch."),
        "device": weight.device.type,
        "tokenizer": {"class": type(explainer.tokenizer).__name__, "sha256": _hash_tokenizer(explainer.tokenizer)},
        "limit": explainer.limit,
    }


def _hash_weights(model: torch.nn.Module) -> str:
    digest = sha256()
    for name, value in sorted(model.state_dict().items()):
        plain = value.detach().cpu().contiguous().flatten()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(memoryview(plain.view(torch.uint8).numpy()) if plain.numel() else b"")
    return digest.hexdigest()


def _hash_tokenizer(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        state = json.loads(backend.to_str())
        state.pop("truncation", None)  # left over from the last call, and no property of the tokenizer
        state.pop("padding", None)
    else:
        state = sorted(tokenizer.get_vocab().items())
    special = {k: str(v) for k, v in tokenizer.special_tokens_map.items()}
    return sha256(json.dumps([state, special], sort_keys=True).encode()).hexdigest()


def describe_method(method: Method) -> dict[str, Any]:
    """A method's name and all its settings; functions by their name, which is all that can be said of them."""
    settings: Any = {f.name: getattr(method, f.name) for f in fields(method)} if is_dataclass(method) else {}
    return {"name": method.name, "settings": {name: _setting(value) for name, value in settings.items()}}


def _setting(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        return {str(k): _setting(v) for k, v in value.items()}
    if isinstance(value, Sequence):
        return [_setting(v) for v in value]
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__name__)}"
    return repr(value)


def versions() -> dict[str, str]:
    """Of Python and of the libraries whose numbers or files these are, as far as they are installed."""
    found = {"python": python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
