"""A record of what produced a number: hashes of model and tokenizer, settings of methods, versions of libraries.

The convention this file owns: a description holds no time, no host and no path of the machine but the model's name.
Two runs with equal descriptions give the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any

import torch

from gaflow.errors import JobError
from gaflow.explainer.explainer import Explainer
from gaflow.inputs.transformers_types import PretrainedModel, Tokenizer
from gaflow.methods import FlowMethod, Method

__all__ = ["describe_method", "describe_model", "differences", "refuse_other", "versions"]

Description = dict[str, Any]  # JSON

_PACKAGES = ("gaflow", "torch", "transformers", "tokenizers", "numpy", "pyarrow", "captum", "ortools")
_EMBEDDED = Path(__file__).parent / "assets"
_NAMES = ("name", "revision")  # of a model or a data set; they may differ, because the hashes decide
_LISTED_DIFFERENCES = 3  # in an error message
_LONGEST_VALUE = 60  # characters, in an error message


def describe_model(explainer: Explainer) -> Description:
    """Model and tokenizer, with hashes of everything that decides their output.

    This reads all weights: call it once and pass the description on.
    """
    model = explainer.model
    tokenizer = explainer.tokenizer
    weight = next(model.parameters(), torch.empty(0))
    return {
        "name": _model_name(model),
        "revision": getattr(model.config, "_commit_hash", None),
        "class": type(model).__name__,
        "labels": list(explainer.head.labels),
        "weights": _hash_weights(model),
        "dtype": str(weight.dtype).removeprefix("torch."),
        "device": weight.device.type,
        "tokenizer": {"class": type(tokenizer).__name__, "sha256": _hash_tokenizer(tokenizer)},
        "limit": explainer.runner.limit,
    }


def _model_name(model: PretrainedModel) -> str:
    name = str(getattr(model.config, "name_or_path", "") or type(model).__name__)
    path = Path(name)
    if path == _EMBEDDED:
        return "embedded"
    if path.is_absolute():  # folders differ from machine to machine
        return path.name
    return name


def _hash_weights(model: torch.nn.Module) -> str:
    digest = sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        if value.numel():
            flat = value.detach().cpu().contiguous().flatten()
            digest.update(memoryview(flat.view(torch.uint8).numpy()))
    return digest.hexdigest()


def _hash_tokenizer(tokenizer: Tokenizer) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        state = sorted(tokenizer.get_vocab().items())
    else:
        state = json.loads(backend.to_str())
        state.pop("truncation", None)  # left over from the last call, not a property of the tokenizer
        state.pop("padding", None)
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
    return sha256(json.dumps([state, special], sort_keys=True).encode()).hexdigest()


def describe_method(method: Method) -> Description:
    """A method's name and all its settings; functions are described by their name alone."""
    settings = {}
    if isinstance(method, FlowMethod):
        for name, value in method.options.items():
            settings[name] = _describe_setting(value)
    elif is_dataclass(method):
        for field in fields(method):
            settings[field.name] = _describe_setting(getattr(method, field.name))
    return {"name": method.name, "settings": settings}


def _describe_setting(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        return {str(name): _describe_setting(inner) for name, inner in value.items()}
    if isinstance(value, Sequence):
        return [_describe_setting(inner) for inner in value]
    if callable(value):
        module = getattr(value, "__module__", "")
        name = getattr(value, "__qualname__", type(value).__name__)
        return f"{module}.{name}"
    return repr(value)


def versions() -> dict[str, str]:
    """Of Python, and of the installed libraries that decide numbers or files."""
    installed = {"python": python_version()}
    for package in _PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed


def refuse_other(stored: Mapping[str, Any], current: Mapping[str, Any], folder: Path) -> None:
    """Raise an error if the description stored in a folder differs from that of the current run."""
    differing = differences(stored, json.loads(json.dumps(current)))
    if not differing:
        return
    message = "; ".join(differing[:_LISTED_DIFFERENCES])
    more = len(differing) - _LISTED_DIFFERENCES
    if more > 0:
        message += f" and {more} more differences"
    raise JobError(
        f"{str(folder)!r} holds another job: {message}. "
        "Run it with the settings it was begun with, or give a new folder"
    )


def differences(stored: Mapping[str, Any], current: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Where two descriptions differ, each as "setting is VALUE there, VALUE here"."""
    differing = []
    for name in dict.fromkeys([*stored, *current]):
        before: Any = stored.get(name)
        now: Any = current.get(name)
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            differing += differences(before, now, f"{prefix}{name}.")
        elif _is_list_of_records(before) and _is_list_of_records(now) and len(before) == len(now):
            for k, (record_before, record_now) in enumerate(zip(before, now, strict=True)):
                differing += differences(record_before, record_now, f"{prefix}{name}[{k}].")
        elif before != now and not (prefix in ("model.", "data.") and name in _NAMES):
            differing.append(f"{prefix}{name} is {_shortened(before)} there, {_shortened(now)} here")
    return differing


def _is_list_of_records(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)


def _shortened(value: Any) -> str:
    if _is_list_of_records(value):
        value = [record.get("name") for record in value]
    text = json.dumps(value)
    if len(text) <= _LONGEST_VALUE:
        return text
    return f"{text[: _LONGEST_VALUE - 3]}..."
