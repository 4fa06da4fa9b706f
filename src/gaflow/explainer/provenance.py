"""A record of what produced a number: hashes of model and tokenizer, settings of methods, versions of libraries.

The conventions this file owns: a description holds no time, no host and no path of the machine but the model's name.
Two runs with equal descriptions give the same numbers. If only their environments differ, the numbers are equal up to
rounding. **An attribution knows the model as it was when it explained**: weights are hashed when somebody asks, once
for each model, or when the explainer goes and leaves attributions behind. If the model has changed by then, the hash is
None and a note says why.
"""

from __future__ import annotations

import atexit
import inspect
import json
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import is_dataclass
from functools import cache, cached_property, partial
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import machine, python_version
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as torch_module

from gaflow.explainer.described_values import (
    RECORDED_PACKAGES,
    describe_value,
    field_values,
    hash_own_code,
    is_data,
    tensor_bytes,
)
from gaflow.inputs.transformers_types import ModelConfig, PretrainedModel, Tokenizer
from gaflow.methods import Method
from gaflow.models.memory import device_of, hooks_of_accelerate
from gaflow.models.restore import modules_of, uncompiled

if TYPE_CHECKING:
    from gaflow.explainer.explainer import Explainer

Description = dict[str, Any]  # JSON

_EMBEDDED = Path(__file__).parents[1] / "assets"
_NOT_DECISIVE = {  # keys of a config that change no number, or that are recorded elsewhere
    "architectures", "dtype", "id2label", "label2id", "output_attentions", "output_hidden_states", "return_dict",
    "transformers_version", "use_cache",
}  # fmt: skip
_NOT_SETTINGS = (  # of modules: where it lies, and marks
    "name_or_path", "training", "_is_torch_compile", "hf_device_map", "warnings_issued",
)  # fmt: skip
_TOKENIZER_SETTINGS = (  # attributes that the vocabulary and the rules of the backend do not show
    "add_prefix_space", "do_lower_case", "model_input_names", "padding_side", "split_special_tokens", "truncation_side",
)  # fmt: skip
_HASHED = ("modules", "code", "weights", "tokenizer")  # entries that cost time, in a description and in a provenance
_PROVENANCE = ("revision", "class", "dtype", "device", "attention", "autocast", *_HASHED)
_CHANGED = "the model has changed since this explanation, so its weights could not be hashed"
_GONE = "the program ended before the weights were hashed"

_Stamp = tuple[tuple[int, int], ...]  # (address, version) of each weight


def describe_model(explainer: Explainer) -> Description:
    """Model and tokenizer, with hashes of everything that decides their output.

    This reads all weights: call it once and pass the description on.
    """
    model = explainer.model
    loaded = _describe_loaded(model)
    if explainer.runner.attention == "eager":  # other last digits than streamed attention has
        loaded["attention"] = "eager, for all heads"
    return {
        **loaded,
        "config": _describe_config(model.config),
        "labels": list(explainer.head.labels),
        **_hash_model(model),
        **_hash_input_reader(type(uncompiled(model)), explainer.tokenizer),
        "limit": explainer.runner.limit,
    }


def _describe_loaded(model: PretrainedModel) -> Description:
    """What can be told of a model without reading its weights."""
    model = uncompiled(model)
    weight = next(model.parameters(), torch.empty(0))
    device = device_of(model).type
    return {
        "name": _model_name(model),
        "revision": getattr(model.config, "_commit_hash", None),
        "class": type(model).__name__,
        "attention": getattr(model.config, "_attn_implementation", None),
        "autocast": describe_autocast(device),
        "dtype": str(weight.dtype).removeprefix("torch."),
        "device": device,
    }


def _hash_model(model: PretrainedModel) -> Description:
    model = uncompiled(model)
    return {"modules": _hash_modules(model), "weights": _hash_weights(model)}


def _hash_input_reader(model_class: type[PretrainedModel], tokenizer: Tokenizer) -> Description:
    return {
        "code": _hash_foreign_code(model_class, type(tokenizer)),
        "tokenizer": {
            "class": type(tokenizer).__name__,
            "sha256": _hash_tokenizer(tokenizer),
            "settings": {name: getattr(tokenizer, name, None) for name in _TOKENIZER_SETTINGS},
        },
    }


class Snapshots:
    """The states in which one explainer explained its model. When it goes, it hashes those that attributions refer to.

    So an attribution can always name its model, and does not keep it in memory. All attributions of one state share
    its snapshot.
    """

    def __init__(self, model: PretrainedModel, tokenizer: Tokenizer):
        self._model = model
        self._reader = _InputReader(model, tokenizer)
        self._latest: Callable[[], Snapshot | None] = _no_snapshot
        self._taken = _TAKEN
        self._taken[id(self)] = weakref.WeakSet()

    def take(self) -> Snapshot:
        """The model as it is now."""
        snapshot = Snapshot(self._model, self._reader)
        latest = self._latest()
        if latest is not None and latest.is_of_same_state(snapshot):
            return latest
        self._latest = weakref.ref(snapshot)
        self._taken[id(self)].add(snapshot)
        return snapshot

    def __del__(self) -> None:
        for snapshot in list(self._taken.pop(id(self), ())):
            snapshot.hash_weights(self._model)

    def __reduce__(self) -> tuple[type, tuple[PretrainedModel, Tokenizer]]:
        """The copy of an explainer has explained nothing yet."""
        return Snapshots, (self._model, self._reader.tokenizer)


def _no_snapshot() -> None:
    """What an explainer that has explained nothing yet refers to."""


class _InputReader:
    """The tokenizer of an explainer. It is hashed once: an explainer expects that it stays as it is."""

    def __init__(self, model: PretrainedModel, tokenizer: Tokenizer):
        self.model_class = type(uncompiled(model))
        self.tokenizer = tokenizer

    @cached_property
    def hashes(self) -> Description:
        return _hash_input_reader(self.model_class, self.tokenizer)


class Snapshot:
    """A model at the moment of an explanation. It does not keep the model in memory."""

    def __init__(self, model: PretrainedModel, reader: _InputReader):
        self._loaded = _describe_loaded(model)
        self._model = weakref.ref(model)
        self._reader = reader
        self._stamp = _stamp(model)
        self._of_model: Description | None = None

    def is_of_same_state(self, other: Snapshot) -> bool:
        """Whether nothing has changed between two snapshots of one explainer."""
        return self._stamp == other._stamp and self._loaded == other._loaded

    def describe(self) -> Description:
        """The part of `describe_model` that provenance holds; without hashes if the model is no longer the same."""
        of_model = self._of_model
        if of_model is None:
            model = self._model()
            of_model = {"note": _GONE} if model is None else self.hash_weights(model)
        if "note" in of_model:
            return self._loaded | of_model
        return self._loaded | of_model | self._reader.hashes

    def hash_weights(self, model: PretrainedModel) -> Description:
        """The hashes of the model, worked out once, or a note why there are none."""
        with _HASHING:
            if self._of_model is None:
                self._of_model = self._hash(model)
            return self._of_model

    def _hash(self, model: PretrainedModel) -> Description:
        stamp, of_model = _HASHES.get(model, ((), {}))
        if stamp != self._stamp:
            if _stamp(model) != self._stamp:
                return {"note": _CHANGED}
            try:
                of_model = _hash_model(model)
            except (RuntimeError, NotImplementedError, TypeError) as error:  # offloaded weights are not in memory
                reason = str(error).split("\n")[0]
                return {"note": f"the weights could not be read: {reason}"}
            _HASHES[model] = (self._stamp, of_model)
        return of_model


# Snapshots that attributions in memory refer to. Garbage collection clears the weak references that an explainer holds.
_TAKEN: dict[int, weakref.WeakSet[Snapshot]] = {}
atexit.register(_TAKEN.clear)  # then nobody will ask any more
_HASHING = threading.RLock()  # garbage collection may end an explainer while its thread hashes
_HASHES: weakref.WeakKeyDictionary[PretrainedModel, tuple[_Stamp, Description]] = weakref.WeakKeyDictionary()


def _stamp(model: torch.nn.Module) -> _Stamp:
    """The address and the version of every weight, which no change of the weights leaves as they are.

    Torch counts changes in place, those of optimizers and `load_state_dict` included. It does not count what is
    written through `weight.data`.
    """
    weights: list[torch.Tensor | None] = []
    for module in modules_of(model):
        weights.extend(module._parameters.values())
        for name, buffer in module._buffers.items():
            if name not in module._non_persistent_buffers_set:  # caches of the forward pass are no weights
                weights.append(buffer)
    tensors = [weight for weight in weights if weight is not None]
    try:
        return tuple((tensor.data_ptr(), tensor._version) for tensor in tensors)
    except RuntimeError:  # one of them has no address or no version
        return tuple((_address(tensor), _version(tensor)) for tensor in tensors)


def _address(tensor: torch.Tensor) -> int:
    try:
        return tensor.data_ptr()
    except RuntimeError:  # a wrapper around other tensors, such as quantised weights
        return id(tensor)


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


class Origin:
    """The provenance of one method's scores: a function without arguments that `Attribution.provenance` calls."""

    def __init__(self, snapshot: Snapshot, method: Method):
        self._snapshot = snapshot
        self._method = describe_method(method)

    def __call__(self) -> Description:
        return provenance_of(self._snapshot.describe(), self._method, _installed())

    def __reduce__(self) -> tuple[type, tuple[Description]]:
        """A copy in another process has no model, so it gets the provenance itself."""
        return dict, (self(),)


def provenance_of(
    model: Mapping[str, Any], method: Mapping[str, Any], installed: Mapping[str, Any] | None
) -> Description:
    """The provenance of an attribution, from the descriptions of a model and a method, and versions of libraries."""
    provenance: Description = {"model": model.get("name")}
    for entry in _PROVENANCE:
        provenance[entry] = model.get(entry)
    tokenizer = provenance["tokenizer"]
    if isinstance(tokenizer, Mapping):
        provenance["tokenizer"] = tokenizer.get("sha256")
    provenance["method"] = method.get("name")
    provenance["settings"] = dict(method.get("settings", {}))
    provenance["versions"] = dict(installed or {})
    if "note" in model:
        provenance["note"] = model["note"]
    return provenance


def _model_name(model: PretrainedModel) -> str:
    name = str(getattr(model.config, "name_or_path", "") or type(model).__name__)
    path = Path(name)
    if path == _EMBEDDED:
        return "embedded"
    if path.is_absolute():  # folders differ from machine to machine
        return path.name
    return name


def _describe_config(config: ModelConfig) -> Description:
    """The part of a config that changes numbers: weights alone do not say how many heads they make."""
    values = config.to_dict() if hasattr(config, "to_dict") else vars(config)
    decisive = {}
    for name, value in sorted(values.items()):
        if name not in _NOT_DECISIVE and not name.startswith("_"):
            decisive[name] = describe_value(value)
    return decisive


def _hash_foreign_code(*classes: type) -> str | None:
    """A hash of the code that came with the weights or the tokenizer; None if all of it is of Transformers."""
    digest = None
    for kind in classes:
        module = sys.modules[kind.__module__]
        if not module.__name__.startswith("transformers_modules.") or module.__file__ is None:
            continue
        digest = digest or sha256()
        for path in sorted(Path(module.__file__).parent.glob("*.py")):  # a file may import others beside it
            digest.update(path.name.encode() + path.read_bytes())
    return None if digest is None else digest.hexdigest()


def _hash_modules(model: torch.nn.Module) -> str:
    """A hash of what a model in memory holds beside its weights: layers, their code, settings, constants and hooks."""
    digest = sha256()
    own_code: dict[type, str | None] = {}
    for name, module in model.named_modules():
        kind = type(module)
        digest.update(f"{name} {kind.__module__}.{kind.__qualname__} {module.extra_repr()}\n".encode())
        if kind not in own_code:
            own_code[kind] = hash_own_code(kind)
        if own_code[kind] is not None:
            digest.update(f"code {own_code[kind]}\n".encode())
        for attribute, value in sorted(vars(module).items()):
            if attribute == "forward" or _is_constant(attribute, value):
                digest.update(f"{attribute} {describe_value(value)}\n".encode())
        for kind_of_hook, hooks in _hooks(module):
            for hook in hooks:
                digest.update(f"{kind_of_hook} {describe_value(hook)}\n".encode())
        for buffer in sorted(module._non_persistent_buffers_set):
            digest.update(tensor_bytes(module._buffers[buffer]))
    for kind_of_hook, hooks in _hooks_of_all_modules():
        for hook in hooks:
            digest.update(f"all {kind_of_hook} {describe_value(hook)}\n".encode())
    return digest.hexdigest()


def _hooks(module: torch.nn.Module) -> list[tuple[str, Collection[Any]]]:
    """The hooks that a pass runs, by the word under which a hash has them."""
    return [
        ("hook", module._forward_pre_hooks.values()),
        ("hook", module._forward_hooks.values()),
        ("backward", module._backward_pre_hooks.values()),
        ("backward", module._backward_hooks.values()),
    ]


def _hooks_of_all_modules() -> list[tuple[str, Collection[Any]]]:
    """Hooks that torch runs for every module of the process."""
    return [
        ("hook", torch_module._global_forward_pre_hooks.values()),
        ("hook", torch_module._global_forward_hooks.values()),
        ("backward", torch_module._global_backward_pre_hooks.values()),
        ("backward", torch_module._global_backward_hooks.values()),
    ]


def _is_constant(attribute: str, value: object) -> bool:
    """Whether an attribute of a module is a setting or a constant that can change numbers."""
    if attribute in _NOT_SETTINGS or "cache" in attribute:  # caches grow with the texts
        return False
    if isinstance(value, str | int | float):
        return True
    return not attribute.startswith("_") and is_data(value)


def describe_autocast(device: str) -> str | None:
    """The dtype that torch computes in by itself, if it is told to, or in which it multiplies matrices."""
    if torch.is_autocast_enabled(device):
        return str(torch.get_autocast_dtype(device)).removeprefix("torch.")
    library = torch.backends.cuda if device == "cuda" else torch.backends.mkldnn
    precision = getattr(getattr(library, "matmul", None), "fp32_precision", "none")
    return None if precision in ("none", "ieee") else f"products in {precision}"


def _hash_weights(model: torch.nn.Module) -> str:
    digest = sha256()
    offloaded = _offloaded_weights(model)
    for name, value in sorted(model.state_dict().items()):
        if value.is_meta and name in offloaded:
            value = offloaded[name]()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(tensor_bytes(value))
    return digest.hexdigest()


def _offloaded_weights(model: torch.nn.Module) -> dict[str, Callable[[], torch.Tensor]]:
    """Functions that fetch the weights which accelerate keeps in main memory or on disk."""
    offloaded: dict[str, Callable[[], torch.Tensor]] = {}
    for prefix, module in model.named_modules():
        for hook in hooks_of_accelerate(module):
            weights = getattr(hook, "weights_map", None)
            if weights is None:
                continue
            for name in dict(module.named_parameters(recurse=getattr(hook, "place_submodules", False))):
                path = f"{prefix}.{name}" if prefix else name
                offloaded[path] = partial(weights.__getitem__, name)
    return offloaded


def _hash_tokenizer(tokenizer: Tokenizer) -> str:
    """A hash of a tokenizer, or of the settings of an image processor or a feature extractor."""
    if not hasattr(tokenizer, "get_vocab"):
        return sha256(tokenizer.to_json_string().encode()).hexdigest()
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        state = sorted(tokenizer.get_vocab().items())
    else:
        state = json.loads(backend.to_str())
        state.pop("truncation", None)  # left over from the last call, not a property of the tokenizer
        state.pop("padding", None)
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
    parts = [state, special]
    own_functions = {name: describe_value(value) for name, value in vars(tokenizer).items() if inspect.isroutine(value)}
    own_code = [hash_own_code(type(tokenizer)), own_functions]
    if any(own_code):
        parts.append(own_code)
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def describe_method(method: Method) -> Description:
    """A method's name and all its settings, and a hash of its code if it is not of gaflow."""
    settings = getattr(method, "options", {})  # of flow methods, by their flat names
    if not settings and is_dataclass(method):
        settings = field_values(method)
    description = {"name": method.name, "settings": describe_value(settings)}
    code = hash_own_code(type(method))
    return description if code is None else description | {"code": code}


def describe_environment(device: str, threads: int | None = None) -> Description:
    """What decides the last digits of numbers: versions, threads (None: those of torch here), and the processor."""
    processor = f"{machine()} {torch.backends.cpu.get_cpu_capability()}"
    if device == "cuda" and torch.cuda.is_available():
        processor = torch.cuda.get_device_name()
    return {"versions": versions(), "threads": threads or torch.get_num_threads(), "processor": processor}


def versions() -> dict[str, str]:
    """Of Python, and of the installed libraries that decide numbers or files."""
    installed = {"python": python_version()}
    for package in RECORDED_PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed


_installed = cache(versions)  # for every attribution: reading them takes milliseconds
