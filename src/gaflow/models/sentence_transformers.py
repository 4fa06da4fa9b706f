"""Models of the library sentence-transformers, from their folders and from its objects; the library is not needed.

A folder has a list of modules in modules.json. The first one is the encoder, the second the pooling. Linear layers and
a normalisation may follow:

    modules.json                       [{"path": "", "type": "...Transformer"}, {"path": "1_Pooling", ...}, ...]
    sentence_bert_config.json          the most tokens of a text
    config_sentence_transformers.json  the measure of similarity, prompts
    1_Pooling/config.json              the pooling
    2_Dense/config.json, weights       a linear layer and its activation

The convention this file owns: **the embedding is the model's own**, or the model is refused. What a caller has to do to
a text (lower case, a prompt) is a warning. A cross-encoder is a classifier of Transformers with nothing after it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import nn

from gaflow.arguments import is_whole_number
from gaflow.errors import GaflowWarning, UnsupportedModelError
from gaflow.inputs.transformers_types import PretrainedModel
from gaflow.models.sentence_encoder import POOLINGS, Dense, SentenceEncoder
from gaflow.tasks.similarity import MEASURES

Config = Mapping[str, Any]  # JSON
FindFile = Callable[[str, str], Path | None]  # file name, folder below the model's -> where it is; None: nowhere

_LIBRARY = "sentence_transformers"
_ENCODER_SETTINGS = ("sentence_bert_config.json", "sentence_roberta_config.json", "sentence_distilbert_config.json")
_OLD_POOLINGS = {  # name of a flag in older folders -> pooling
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_ACTIVATIONS: dict[str, type[nn.Module] | None] = {  # the only ones that a file may name
    "Identity": None,
    "Tanh": nn.Tanh,
    "ReLU": nn.ReLU,
    "GELU": nn.GELU,
    "SiLU": nn.SiLU,
    "Sigmoid": nn.Sigmoid,
}


@dataclass(frozen=True)
class Pipeline:
    """What a model does with the hidden states of its encoder."""

    pooling: tuple[str, ...]
    dense: tuple[Dense, ...] = ()
    normalize: bool = False
    measure: str = "cosine"
    max_length: int | None = None
    encoder_folder: str = ""  # below the model's

    def build(self, encoder: PretrainedModel) -> SentenceEncoder:
        """The model around its encoder."""
        for layer in self.dense:
            layer.to(encoder.device, encoder.dtype)
        return SentenceEncoder(
            encoder,
            self.pooling,
            dense=self.dense,
            normalize=self.normalize,
            measure=self.measure,
            max_length=self.max_length,
        )


def is_bi_encoder(model: object) -> bool:
    """Whether a model is a `SentenceTransformer`."""
    return _is_of_library(model, "SentenceTransformer")


def is_cross_encoder(model: object) -> bool:
    """Whether a model is a `CrossEncoder`."""
    return _is_of_library(model, "CrossEncoder")


def _is_of_library(model: object, name: str) -> bool:
    for kind in type(model).__mro__:
        if kind.__name__ == name and kind.__module__.partition(".")[0] == _LIBRARY:
            return True
    return False


def from_object(model: Any) -> SentenceEncoder:
    """A `SentenceTransformer` as a sentence encoder that shares its modules."""
    first, *others = model.children()
    encoder = getattr(first, "auto_model", None)
    if encoder is None:
        raise _refused(f"it begins with {type(first).__name__}, not with a Transformer")
    if getattr(model, "truncate_dim", None) is not None:
        raise _refused("its embeddings are cut to truncate_dim; set model.truncate_dim = None")
    modules = []
    for module in others:
        kind = type(module).__name__
        dense = None
        config = module.get_config_dict() if kind in ("Pooling", "Dense") else {}
        if kind == "Dense":
            dense = _dense(config, module.linear, module.activation_function)
        modules.append(_Module(kind, config, dense))
    settings = {
        "similarity_fn_name": getattr(model, "_similarity_fn_name", None),
        "prompts": getattr(model, "prompts", None),
        "default_prompt_name": getattr(model, "default_prompt_name", None),
    }
    encoder_settings = {
        "max_seq_length": getattr(first, "max_seq_length", None),
        "do_lower_case": getattr(first, "do_lower_case", False),
    }
    return _pipeline(modules, settings, encoder_settings).build(encoder)


def classifier_of(model: Any) -> PretrainedModel:
    """The classifier of Transformers that a `CrossEncoder` is."""
    classifier = getattr(model, "transformers_model", None) or model.model
    if isinstance(model, nn.Sequential):  # in newer versions, whose encoder may not be all
        _check_classifier([type(module).__name__ for module in model.children()])
    prompts = {name: getattr(model, name, None) for name in ("prompts", "default_prompt_name")}
    _warn_about_texts(prompts, {})
    return classifier


def read_pipeline(find_file: FindFile) -> Pipeline | None:
    """What the files of a model say beside its encoder; None if they say nothing, or if it is a cross-encoder."""
    entries = _read_json(find_file, "modules.json")
    if entries is None:
        return None
    settings = _read_json(find_file, "config_sentence_transformers.json") or {}
    if settings.get("model_type") == "CrossEncoder":
        _check_classifier([str(entry["type"]).rpartition(".")[2] for entry in entries])
        _warn_about_texts(settings, {})
        return None
    paths = []
    kinds = []
    for entry in entries:
        path = PurePosixPath(entry["path"])
        if path.is_absolute() or ".." in path.parts or "\\" in entry["path"]:
            raise _refused(f"modules.json names {entry['path']!r}, which is outside of its folder")
        library, _, kind = str(entry["type"]).rpartition(".")
        if library.partition(".")[0] != _LIBRARY:
            raise _refused(f"its module {entry['type']!r} is code of its own, which may compute anything")
        paths.append("" if path == PurePosixPath() else str(path))
        kinds.append(kind)
    if not kinds or kinds[0] != "Transformer":
        raise _refused(f"it begins with {kinds[:1]}, not with a Transformer")
    modules = []
    for path, kind in zip(paths[1:], kinds[1:], strict=True):
        config: Config = {}
        dense = None
        if kind in ("Pooling", "Dense"):
            config = _read_json(find_file, "config.json", path) or {}
        if kind == "Dense":
            dense = _read_dense(find_file, path, config)
        modules.append(_Module(kind, config, dense))
    encoder_settings = None
    for file in _ENCODER_SETTINGS:
        encoder_settings = encoder_settings or _read_json(find_file, file, paths[0])
    return _pipeline(modules, settings, encoder_settings or {}, paths[0])


def _check_classifier(kinds: Sequence[str]) -> None:
    """Refuse a cross-encoder that does more than to classify pairs."""
    if list(kinds) != ["Transformer"]:
        raise UnsupportedModelError(
            f"this cross-encoder of sentence-transformers has {', '.join(kinds)}, but gaflow follows those that are "
            "one text classifier. If it compares the logits of two words, as rerankers made of language models do, "
            "pass its language model and the whole prompt, with a target such as 'yes minus no'"
        )


@dataclass(frozen=True)
class _Module:
    """A module after the encoder."""

    kind: str  # the name of its class
    config: Config
    dense: Dense | None = None


def _pipeline(modules: Sequence[_Module], settings: Config, encoder_settings: Config, folder: str = "") -> Pipeline:
    """The pipeline that modules and settings make, or an error that says why there is none."""
    kinds = [module.kind for module in modules]
    dense = tuple(module.dense for module in modules if module.dense is not None)
    normalize = kinds[-1:] == ["Normalize"]
    if kinds != ["Pooling", *["Dense"] * len(dense), *["Normalize"] * normalize]:
        listed = ", ".join(kinds) or "nothing"
        raise _refused(
            f"after its encoder it has {listed}, but gaflow follows Pooling, Dense and Normalize, in this order"
        )
    measure = settings.get("similarity_fn_name") or "cosine"
    measure = str(getattr(measure, "value", measure))
    if measure not in MEASURES:
        raise _refused(f"it compares embeddings by {measure!r}, but gaflow by {' or '.join(MEASURES)}")
    max_length = encoder_settings.get("max_seq_length")
    if max_length is not None and not (is_whole_number(max_length) and max_length > 0):
        raise _refused(f"its max_seq_length is {max_length!r}, and not a number of tokens")
    _warn_about_texts(settings, encoder_settings)
    return Pipeline(
        pooling=_poolings(modules[0].config),
        dense=dense,
        normalize=normalize,
        measure=measure,
        max_length=max_length,
        encoder_folder=folder,
    )


def _poolings(config: Config) -> tuple[str, ...]:
    names = config.get("pooling_mode")
    if isinstance(names, str):
        names = [names]
    if names is None:
        names = [name for flag, name in _OLD_POOLINGS.items() if config.get(flag)]
    for name in names:
        if name not in POOLINGS:
            raise _refused(f"its pooling is {name!r}, but gaflow knows {', '.join(POOLINGS)}")
    if not names:
        raise _refused("its pooling has no mode")
    if len(set(names)) < len(names):
        raise _refused("its pooling has a mode twice")
    return tuple(names)


def _warn_about_texts(settings: Config, encoder_settings: Config) -> None:
    prompt = (settings.get("prompts") or {}).get(settings.get("default_prompt_name"))
    if prompt:
        message = f"the model was made for texts that begin with the prompt {prompt!r}, which gaflow does not add"
        warnings.warn(f"{message}; write it at the beginning of your texts", GaflowWarning, stacklevel=2)
    if encoder_settings.get("do_lower_case"):
        message = "the model was made for texts in lower case; pass them so"
        warnings.warn(message, GaflowWarning, stacklevel=2)


def _dense(config: Config, linear: nn.Linear, activation: nn.Module | None) -> Dense:
    if config.get("use_residual"):
        raise _refused("a Dense layer adds its input to its output")
    for side in ("module_input_name", "module_output_name"):
        if config.get(side, "sentence_embedding") != "sentence_embedding":
            raise _refused("a Dense layer reads or writes something else than the embedding of a text")
    return Dense(linear, None if isinstance(activation, nn.Identity) else activation)


def _read_dense(find_file: FindFile, path: str, config: Config) -> Dense:
    file = find_file("model.safetensors", path)
    if file is not None:
        from safetensors.torch import load_file

        weights = load_file(file)
    else:
        file = find_file("pytorch_model.bin", path)
        if file is None:
            raise _refused(f"there are no weights of the Dense layer in {path!r}")
        weights = torch.load(file, map_location="cpu", weights_only=True)
    sizes = (config["out_features"], config["in_features"])
    actual = tuple(weights["linear.weight"].shape)
    if actual != sizes:  # before a layer of this size is made, which may be of any size
        raise _refused(f"a Dense layer has weights of the shape {actual}, but its config says {sizes}")
    linear = nn.Linear(*reversed(sizes), bias=config.get("bias", True))
    linear.load_state_dict({key.removeprefix("linear."): weight for key, weight in weights.items()})
    activation_name = str(config.get("activation_function", "Tanh")).rpartition(".")[2]
    if activation_name not in _ACTIVATIONS:
        raise _refused(f"a Dense layer has the activation {activation_name!r}; gaflow knows {', '.join(_ACTIVATIONS)}")
    activation = _ACTIVATIONS[activation_name]
    return _dense(config, linear, None if activation is None else activation())


def _read_json(find_file: FindFile, file: str, subfolder: str = "") -> Any:
    """The content of a file of a model; None if the model has no such file."""
    path = find_file(file, subfolder)
    return None if path is None else json.loads(path.read_text("utf-8"))


def _refused(reason: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"this model of sentence-transformers cannot be explained: {reason}. If you know what its embedding is, pass "
        "gaflow.SentenceEncoder(encoder, pooling) and the tokenizer"
    )
