"""Models and tokenizers from a name, a folder, a model object or a pipeline.

Only this module and `attention_interface.py` import transformers, and only when it is used. The convention this file
owns: a model that is loaded here belongs to gaflow (moved to `device`, in `dtype`); a model object belongs to the user,
and is neither moved nor converted. Code that comes with a model runs only if the caller says so, and nobody is asked
meanwhile; weights are tensors, never other pickled objects.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gaflow.arguments import boolean, check_characters, one_of
from gaflow.errors import Argument, ArgumentError, ArgumentTypeError, GaflowError, UnsupportedModelError
from gaflow.extras import need
from gaflow.inputs.transformers_types import ModelConfig, PretrainedModel, Tokenizer
from gaflow.models.custom_model import CustomModel
from gaflow.models.hub_connection import one_attempt_to_connect
from gaflow.models.memory import device_of, hooks_of_accelerate
from gaflow.models.restore import uncompiled
from gaflow.models.sentence_encoder import SentenceEncoder
from gaflow.models.sentence_transformers import (
    Pipeline,
    classifier_of,
    from_object,
    is_bi_encoder,
    is_cross_encoder,
    read_pipeline,
)
from gaflow.tasks import TASKS, task_of

_SIZES = ("num_attention_heads", "num_hidden_layers", "hidden_size")  # that torch would take a negative number for
_MOST_LAYERS = 4096  # making them takes time and memory, even without weights
_ATTENTION = (None, "eager", "sdpa")  # implementations that need nothing but torch
DeviceMap = str | int | torch.device | Mapping[str, str | int | torch.device]
_ASSETS = Path(__file__).parents[1] / "assets"


@dataclass(frozen=True)
class Loaded:
    """A model ready to be traced, and its tokenizer."""

    model: PretrainedModel  # PreTrainedModel or anything that behaves like one
    tokenizer: Tokenizer  # or image processor, or feature extractor
    task: str


@dataclass(frozen=True)
class LoadOptions:
    """How a model that is loaded by name is loaded. None leaves the choice to gaflow."""

    device: torch.device | str | None = None  # None: the GPU if there is one
    dtype: torch.dtype | str | None = None  # None: float32; "auto": as the weights are stored
    revision: str | None = None  # a branch, a tag or a commit of the hub; None: the newest
    device_map: DeviceMap | None = None  # spreads the model over devices, main memory and disk
    quantization_config: object = None  # of transformers, or a dict of its settings
    trust_remote_code: bool = False

    @property
    def remote(self) -> dict[str, object]:
        """What every download of a file needs."""
        return {"revision": self.revision, "trust_remote_code": self.trust_remote_code}


def load_model(
    model: PretrainedModel, tokenizer: Tokenizer, task: str | None, options: LoadOptions | None = None
) -> Loaded:
    """Model, tokenizer and task from None (the embedded model), a name, a path, a model or a pipeline."""
    options = options or LoadOptions()
    _check_task(task)
    boolean("trust_remote_code", options.trust_remote_code)
    if model is None or isinstance(model, str | Path):
        return _from_name(_folder_or_name(model), tokenizer, task, options)
    _check_not_loaded(options)
    if is_bi_encoder(model):
        tokenizer = tokenizer or model.tokenizer
        model = from_object(model)
    elif is_cross_encoder(model):
        tokenizer = tokenizer or model.tokenizer
        model = classifier_of(model)
    if not isinstance(model, nn.Module) and hasattr(model, "model") and hasattr(model, "tokenizer"):  # a pipeline
        for name in ("tokenizer", "image_processor", "feature_extractor"):
            if tokenizer is None:
                tokenizer = getattr(model, name, None)
        model = model.model
    if isinstance(model, nn.Module) and not hasattr(model, "config"):
        kind = type(model).__name__
        advice = "; if it has a transformers model inside, pass gaflow.CustomModel(module, labels=[...])"
        raise ArgumentTypeError(Argument("model"), f" is a {kind}, a torch module without a config{advice}")
    if not isinstance(model, nn.Module):
        kinds = "None, a hub id, a path, a transformers model or a pipeline"
        raise ArgumentTypeError(Argument("model"), f" must be {kinds}, not {type(model).__name__}")
    task = _task_of(model, task)
    if tokenizer is None:
        kinds = {"AutoTokenizer": "tokenizer", "AutoImageProcessor": "image processor"}
        kind = kinds.get(TASKS[task].processor, "feature extractor")
        raise ArgumentError(f"a model object needs its {kind}: Explainer(model, {kind.replace(' ', '_')})")
    if isinstance(tokenizer, str | Path):
        tokenizer = _load_tokenizer(_folder_or_name(tokenizer, "tokenizer"), task, options, "tokenizer")
    _check_tokenizer(tokenizer, task)
    _check_device_and_dtype(model, options.device, _as_dtype(options.dtype))
    return Loaded(_with_pooling(model, task), tokenizer, task)


def _check_task(task: str | None) -> None:
    if task is not None and task not in TASKS:  # listing the tasks would import plug-ins
        one_of("task", task, [None, *TASKS])


def _check_not_loaded(options: LoadOptions) -> None:
    """Refuse settings of the loading for a model object."""
    for name in ("revision", "device_map", "quantization_config"):
        if getattr(options, name) is not None:
            problem = " is for models that gaflow loads by name; load your model with it, or leave it out"
            raise ArgumentError(Argument(name), problem)


def outline(
    model: str | Path | None, task: str | None = None, trust_remote_code: bool = False, revision: str | None = None
) -> Loaded:
    """A model by name or path (None: the embedded one) without its weights: on the meta device, at no cost."""
    _check_task(task)
    name = _folder_or_name(model)
    options = LoadOptions(revision=revision, trust_remote_code=boolean("trust_remote_code", trust_remote_code))
    _check_revision(name, revision)
    with _without_progress_bars(), _naming(name), _one_attempt(name, options):
        pipeline = _find_pipeline(name, task, options)
        config, task = _load_config(name, task, options, pipeline)
        with torch.device("meta"):
            trust = options.trust_remote_code
            empty = _model_class(task).from_config(config, dtype=torch.float32, trust_remote_code=trust)
            if task == "similarity":
                empty = _with_pooling(empty, task) if pipeline is None else pipeline.build(empty)
        tokenizer = _load_tokenizer(name, task, options, pipeline=pipeline)
    return Loaded(empty.eval(), tokenizer, task)


def _from_name(name: str, tokenizer: Tokenizer, task: str | None, options: LoadOptions) -> Loaded:
    _check_revision(name, options.revision)
    device = _usable(options.device)
    dtype = "auto" if options.dtype == "auto" else _as_dtype(options.dtype) or torch.float32
    with _without_progress_bars(), _naming(name), _one_attempt(name, options):
        commit = _commit_of(name, options.revision)
        if commit is not None:
            options = replace(options, revision=commit)  # all files are of one commit
        pipeline = _find_pipeline(name, task, options)
        config, task = _load_config(name, task, options, pipeline)
        placement = _placement(config, options, device)
        model, report = _model_class(task).from_pretrained(
            name,
            config=config,
            subfolder=_subfolder(pipeline),
            dtype=dtype,
            output_loading_info=True,
            weights_only=True,
            **options.remote,
            **placement,
        )
        if tokenizer is None:
            tokenizer = _load_tokenizer(name, task, options, pipeline=pipeline)
        elif isinstance(tokenizer, str | Path):
            newest = replace(options, revision=None)  # the revision is that of the model
            tokenizer = _load_tokenizer(_folder_or_name(tokenizer, "tokenizer"), task, newest, "tokenizer")
    _check_tokenizer(tokenizer, task)
    missing = sorted(report["missing_keys"])
    if task == "similarity":
        missing = [key for key in missing if not key.startswith("pooler.")]  # which no pooling of embeddings reads
    if missing:
        raise UnsupportedModelError(
            f"{name!r} has no weights for {missing[0]} ({len(missing)} missing in all): it was made as "
            f"{_architecture(config)}, so its head would be random. Use one fine-tuned for {task}"
        )
    if task == "similarity":
        model = _with_pooling(model, task) if pipeline is None else pipeline.build(model)
    if not placement:
        model = model.to(device)
    model.config._commit_hash = commit  # where older versions of transformers note it themselves
    return Loaded(model.eval(), tokenizer, task)


def _check_revision(name: str, revision: str | None) -> None:
    if revision is not None and Path(name).is_dir():
        raise ArgumentError(Argument("revision", revision), f" is for models on the hub, and {name!r} is a folder")


def _placement(config: ModelConfig, options: LoadOptions, device: torch.device) -> dict[str, object]:
    """The settings that make transformers place and quantise the weights; empty if gaflow moves the model itself."""
    if options.device is not None and options.device_map is not None:
        raise ArgumentError(Argument("device"), " and ", Argument("device_map"), " exclude each other; pass one")
    quantization_config = options.quantization_config
    is_quantised = quantization_config is not None or getattr(config, "quantization_config", None) is not None
    device_map = options.device_map
    if device_map is None and is_quantised:
        device_map = {"": str(device)}  # quantised weights are not moved afterwards
    if device_map is None:
        return {}
    need("accelerate", None, "quantised models and device_map need accelerate")
    placement: dict[str, object] = {"device_map": device_map}
    if quantization_config is not None:
        if not isinstance(quantization_config, Mapping) and not hasattr(quantization_config, "quant_method"):
            problem = f" must be a quantisation config of transformers or a dict, not {quantization_config!r}"
            raise ArgumentTypeError(Argument("quantization_config"), problem)
        placement["quantization_config"] = quantization_config
    return placement


def _find_pipeline(name: str, task: str | None, options: LoadOptions) -> Pipeline | None:
    """The modules of a model of sentence-transformers; None if it is none."""
    if task not in (None, "similarity"):
        return None
    return read_pipeline(partial(_find_file, name, revision=options.revision))


def _with_pooling(model: PretrainedModel, task: str) -> PretrainedModel:
    """The model; as a sentence encoder with the default pooling if its task is similarity and it names none."""
    if task != "similarity" or isinstance(model, SentenceEncoder):
        return model
    return SentenceEncoder(model)


def _find_file(name: str, file: str, subfolder: str, revision: str | None = None) -> Path | None:
    """A file of a folder or of a model on the hub; None if there is none."""
    folder = Path(name)
    if folder.is_dir():
        path = folder / subfolder / file
        return path if path.is_file() else None
    from transformers.utils.hub import cached_file

    cached = cached_file(
        name,
        file,
        subfolder=subfolder,
        revision=revision,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if cached is None else Path(cached)


def _one_attempt(name: str, options: LoadOptions, argument: str = "model") -> AbstractContextManager[None]:
    """Do not wait for a hub that cannot be reached."""
    return one_attempt_to_connect(name, partial(_find_file, name, subfolder="", revision=options.revision), argument)


def _commit_of(name: str, revision: str | None) -> str | None:
    """The commit of the hub that a revision means; None for a folder."""
    if Path(name).is_dir():
        return None
    from transformers.utils.hub import extract_commit_hash

    for file in ("config.json", "modules.json"):
        path = _find_file(name, file, "", revision)
        if path is not None:
            return extract_commit_hash(str(path), None)
    return None


def _subfolder(pipeline: Pipeline | None) -> str:
    return "" if pipeline is None else pipeline.encoder_folder


def _folder_or_name(model: str | Path | None, argument: str = "model") -> str:
    """The path of a folder, or the name of a model on the hub; None is the folder of the embedded model."""
    if model is None:
        if not (_ASSETS / "config.json").is_file():
            message = "this build of gaflow has no embedded demo model: pass "
            raise GaflowError(message, Argument("model"), ": a hub id, a path, or a transformers model")
        return str(_ASSETS)
    name = str(model)
    folder = Path(model).expanduser()
    check_characters(argument, model)
    if folder.is_dir() and name.strip():
        return str(folder)
    can_be_on_the_hub = (
        isinstance(model, str) and name and not name.startswith((".", "/", "~")) and name.count("/") <= 1
    )
    if not can_be_on_the_hub:
        problem = f": there is no folder {name!r}; give an existing folder or a hub id such as 'org/name'"
        raise ArgumentError(Argument(argument), problem)
    return name


def _usable(device: torch.device | str | None) -> torch.device:
    """The device to load to; None takes the GPU if there is one."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        usable = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
    else:
        if usable.type != "meta":
            return usable
        reason = "meta tensors hold no data"
    raise ArgumentError(Argument("device"), f" {str(device)!r} cannot be used here ({reason}); try 'cpu'")


def _as_device(device: torch.device | str) -> torch.device:
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise ArgumentError(Argument("device"), f" {device!r} is no device of torch; try 'cpu'") from error


def _as_dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    if dtype is None:
        return None
    torch_dtype = getattr(torch, str(dtype).removeprefix("torch."), None)
    if not isinstance(torch_dtype, torch.dtype) or not torch_dtype.is_floating_point:
        raise ArgumentError(Argument("dtype"), f" must be a floating-point torch.dtype or its name, not {dtype!r}")
    return torch_dtype


def _load_config(name: str, task: str | None, options: LoadOptions, pipeline: Pipeline | None) -> tuple[Any, str]:
    """The model's config and its task."""
    import transformers

    subfolder = _subfolder(pipeline)
    config = transformers.AutoConfig.from_pretrained(name, subfolder=subfolder, **options.remote)
    _drop_kernels(config)
    for size in _SIZES:
        value = getattr(config, size, None)
        if isinstance(value, int) and value < 0:
            raise UnsupportedModelError(
                f"the config of {name!r} has {size} = {value}, which no model has; correct the file"
            )
    for size, count in _layer_counts(config):
        if count > _MOST_LAYERS:
            raise UnsupportedModelError(
                f"the config of {name!r} has {size} = {count}, which no model has; correct the file"
            )
    architecture = _architecture(config)
    if task is None and architecture is not None:
        task = task_of(architecture, _main_input(getattr(transformers, architecture, None)))
    if task is None and pipeline is not None:
        task = "similarity"
    return config, task or "text-classification"


def _drop_kernels(config: ModelConfig) -> None:
    """Forget a kernel that a config names, in its parts too: it would be code from the hub.

    Nothing is lost, because gaflow reads attention weights, which kernels do not return.
    """
    if getattr(config, "_attn_implementation", None) not in _ATTENTION:
        config._attn_implementation = None
    for part in getattr(config, "sub_configs", ()):
        inner = getattr(config, part, None)
        if inner is not None:
            _drop_kernels(inner)


def _layer_counts(config: ModelConfig) -> Iterator[tuple[str, int]]:
    """How many layers a model has, by the names in its config and in those of its parts."""
    for name, value in vars(config).items():
        if isinstance(value, int) and name.endswith(("layers", "n_layer")):
            yield name, value
        elif hasattr(value, "model_type"):
            yield from _layer_counts(value)


def _architecture(config: ModelConfig) -> str | None:
    """The class that the model was saved as."""
    architectures = getattr(config, "architectures", None)
    return architectures[0] if architectures else None


def _main_input(model_class: Any) -> str:
    return str(getattr(model_class, "main_input_name", "input_ids"))


def _model_class(task: str) -> Any:
    import transformers

    return getattr(transformers, TASKS[task].loader)


def _load_tokenizer(
    name: str, task: str, options: LoadOptions, argument: str = "model", pipeline: Pipeline | None = None
) -> Any:
    """The tokenizer, image processor or feature extractor of a task."""
    import transformers

    if TASKS[task].processor == "AutoImageProcessor":
        need("PIL.Image", "image", "pictures need Pillow")
    processor = getattr(transformers, TASKS[task].processor)
    attempt = nullcontext()  # the caller has made one for the model
    if argument != "model":
        attempt = _one_attempt(name, options, argument)
    with _naming(name, argument), attempt:
        return processor.from_pretrained(name, subfolder=_subfolder(pipeline), **options.remote)


def _check_tokenizer(tokenizer: object, task: str) -> None:
    is_for_text = TASKS[task].processor == "AutoTokenizer"
    if not callable(tokenizer) or (is_for_text and not hasattr(tokenizer, "convert_ids_to_tokens")):
        kind = "a tokenizer" if is_for_text else "an image processor or feature extractor"
        raise ArgumentTypeError(Argument("tokenizer"), f" must be {kind} of transformers, not {tokenizer!r}")


def _task_of(model: nn.Module, task: str | None) -> str:
    """The task of a model object, by its class; `task` decides where the class does not show it."""
    model = uncompiled(model)
    name = type(model).__name__
    class_task = model.task if isinstance(model, CustomModel) else task_of(name, _main_input(type(model)))
    if task is None:
        task = class_task
    if class_task not in (None, task):
        raise UnsupportedModelError(
            f"{name} is for {class_task}, not for {task}; leave out ", Argument("task"), ", or use a model for it"
        )
    if task is None:
        raise UnsupportedModelError(
            f"cannot tell the task of {name}; if its output is class logits, pass ",
            Argument("task", "text-classification"),
            f" (the tasks are {', '.join(TASKS)}). For a module of your own there is gaflow.CustomModel",
        )
    return task


def _has_unloaded_weights(model: nn.Module) -> bool:
    """Whether some weights have no values; those that accelerate keeps elsewhere have."""
    if not any(weight.is_meta for weight in model.parameters()):
        return False
    return not any(hooks_of_accelerate(module) for module in model.modules())


def _check_device_and_dtype(model: nn.Module, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
    weight = next(model.parameters(), None)
    if weight is None:
        return
    model_device = device_of(model)
    if model_device.type == "meta" or _has_unloaded_weights(model):
        raise ArgumentError(
            Argument("model"), " has weights on the meta device, where they have no values; load its weights"
        )
    if device is not None:
        expected = _as_device(device)
        same_index = expected.index is None or expected.index == model_device.index
        if expected.type != model_device.type or not same_index:
            raise ArgumentError(
                f"the model is on {model_device}, not on ",
                Argument("device", str(device)),
                f"; your model is not moved for you: call model.to({str(device)!r}) first, or leave the argument out",
            )
    if dtype is not None and dtype != weight.dtype:
        raise ArgumentError(
            f"the model is in {weight.dtype}, not in ",
            Argument("dtype", dtype),
            "; your model is not converted for you: call model.to(dtype) first, or leave the argument out",
        )


@contextmanager
def _naming(name: str, argument: str = "model") -> Iterator[None]:
    """Say in one line which name could not be loaded, and which argument it was given for."""
    try:
        yield
    except GaflowError:
        raise
    except Exception as error:  # a folder's files are anybody's, and so are the errors they cause in transformers
        if "trust_remote_code" in str(error):
            problem = f"{name!r} comes with code of its own, which is not run; read it, and if you trust it, pass "
            raise GaflowError(problem, Argument("trust_remote_code", True)) from error
        if "weights_only" in str(error):  # torch's advice is to switch it off
            problem = f" {name!r} has weights in a pickled file that holds more than tensors, and could run code"
            advice = "; ask its authors for safetensors"
            raise GaflowError(Argument(argument), problem, advice) from error
        reason = str(error).strip().split("\n")[0]
        advice = "give a hub id or a folder with config, weights and tokenizer"
        raise GaflowError("cannot load ", Argument(argument), f" {name!r}: {reason} ({advice})") from error


@contextmanager
def _without_progress_bars() -> Iterator[None]:
    """No progress bars while loading: a library does not draw on its user's terminal."""
    from transformers.utils import logging

    were_enabled = logging.is_progress_bar_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the environment may have settled the matter already
        logging.disable_progress_bar()
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if were_enabled:
                logging.enable_progress_bar()
