"""Models and tokenizers from a name, a folder, a model object or a pipeline.

This is the only module that imports transformers, and only when it is used. The convention this file owns: a model that
is loaded here belongs to gaflow (moved to `device`, in `dtype`); a model object belongs to the user, and is neither
moved nor converted. Code that comes with a model runs only if the caller says so, and nobody is asked meanwhile;
weights are tensors, never other pickled objects.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gaflow.arguments import boolean, check_characters, one_of
from gaflow.errors import Argument, ArgumentError, ArgumentTypeError, GaflowError, UnsupportedModelError
from gaflow.inputs.transformers_types import ModelConfig, PretrainedModel, Tokenizer
from gaflow.models.custom_model import CustomModel
from gaflow.models.sentence_encoder import SentenceEncoder
from gaflow.models.sentence_transformers import Pipeline, from_object, is_bi_encoder, is_cross_encoder, read_pipeline
from gaflow.tasks import TASKS, task_of

_SIZES = ("num_attention_heads", "num_hidden_layers", "hidden_size")  # that torch would take a negative number for
_ASSETS = Path(__file__).parents[1] / "assets"


@dataclass(frozen=True)
class Loaded:
    """A model ready to be traced, and its tokenizer."""

    model: PretrainedModel  # PreTrainedModel or anything that behaves like one
    tokenizer: Tokenizer  # or image processor, or feature extractor
    task: str


def load_model(
    model: PretrainedModel,
    tokenizer: Tokenizer,
    task: str | None,
    device: torch.device | str | None,
    dtype: torch.dtype | str | None,
    trust_remote_code: bool = False,
) -> Loaded:
    """Model, tokenizer and task from None (the embedded model), a name, a path, a model or a pipeline."""
    _check_task(task)
    trust = boolean("trust_remote_code", trust_remote_code)
    if model is None or isinstance(model, str | Path):
        name = _folder_or_name(model)
        return _from_name(name, tokenizer, task, _usable(device), _as_dtype(dtype) or torch.float32, trust)
    if is_bi_encoder(model):
        tokenizer = tokenizer or model.tokenizer
        model = from_object(model)
    elif is_cross_encoder(model):
        tokenizer = tokenizer or model.tokenizer
        model = getattr(model, "transformers_model", None) or model.model
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
        tokenizer = _load_tokenizer(_folder_or_name(tokenizer, "tokenizer"), task, trust, "tokenizer")
    _check_tokenizer(tokenizer, task)
    _check_device_and_dtype(model, device, _as_dtype(dtype))
    return Loaded(_with_pooling(model, task), tokenizer, task)


def _check_task(task: str | None) -> None:
    if task is not None and task not in TASKS:  # listing the tasks would import plug-ins
        one_of("task", task, [None, *TASKS])


def outline(model: str | Path | None, task: str | None = None, trust_remote_code: bool = False) -> Loaded:
    """A model by name or path (None: the embedded one) without its weights: on the meta device, at no cost."""
    _check_task(task)
    name = _folder_or_name(model)
    trust = boolean("trust_remote_code", trust_remote_code)
    with _without_progress_bars(), _naming(name):
        pipeline = read_pipeline(partial(_find_file, name)) if task in (None, "similarity") else None
        config, task = _load_config(name, task, trust, pipeline)
        with torch.device("meta"):
            empty = _model_class(task).from_config(config, dtype=torch.float32, trust_remote_code=trust)
            if task == "similarity":
                empty = _with_pooling(empty, task) if pipeline is None else pipeline.build(empty)
    return Loaded(empty.eval(), _load_tokenizer(name, task, trust, pipeline=pipeline), task)


def _from_name(
    name: str, tokenizer: Tokenizer, task: str | None, device: torch.device, dtype: torch.dtype, trust: bool
) -> Loaded:
    with _without_progress_bars(), _naming(name):
        pipeline = read_pipeline(partial(_find_file, name)) if task in (None, "similarity") else None
        config, task = _load_config(name, task, trust, pipeline)
        model, report = _model_class(task).from_pretrained(
            name,
            config=config,
            subfolder=_subfolder(pipeline),
            dtype=dtype,
            output_loading_info=True,
            trust_remote_code=trust,
            weights_only=True,
        )
        if tokenizer is None:
            tokenizer = _load_tokenizer(name, task, trust, pipeline=pipeline)
        elif isinstance(tokenizer, str | Path):
            tokenizer = _load_tokenizer(_folder_or_name(tokenizer, "tokenizer"), task, trust, "tokenizer")
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
    return Loaded(model.to(device).eval(), tokenizer, task)


def _with_pooling(model: PretrainedModel, task: str) -> PretrainedModel:
    """The model; as a sentence encoder with the default pooling if its task is similarity and it names none."""
    if task != "similarity" or isinstance(model, SentenceEncoder):
        return model
    return SentenceEncoder(model)


def _find_file(name: str, file: str, subfolder: str) -> Path | None:
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
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if cached is None else Path(cached)


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


def _load_config(name: str, task: str | None, trust: bool, pipeline: Pipeline | None) -> tuple[Any, str]:
    """The model's config and its task."""
    import transformers

    subfolder = _subfolder(pipeline)
    config = transformers.AutoConfig.from_pretrained(name, subfolder=subfolder, trust_remote_code=trust)
    for size in _SIZES:
        value = getattr(config, size, None)
        if isinstance(value, int) and value < 0:
            raise UnsupportedModelError(f"the config of {name!r} has {size} = {value}, and no model has; mend its file")
    architecture = _architecture(config)
    if task is None and architecture is not None:
        task = task_of(architecture, _main_input(getattr(transformers, architecture, None)))
    if task is None and pipeline is not None:
        task = "similarity"
    return config, task or "text-classification"


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
    name: str, task: str, trust: bool, argument: str = "model", pipeline: Pipeline | None = None
) -> Any:
    """The tokenizer, image processor or feature extractor of a task."""
    import transformers

    processor = getattr(transformers, TASKS[task].processor)
    with _naming(name, argument):
        return processor.from_pretrained(name, subfolder=_subfolder(pipeline), trust_remote_code=trust)


def _check_tokenizer(tokenizer: object, task: str) -> None:
    is_for_text = TASKS[task].processor == "AutoTokenizer"
    if not callable(tokenizer) or (is_for_text and not hasattr(tokenizer, "convert_ids_to_tokens")):
        kind = "a tokenizer" if is_for_text else "an image processor or feature extractor"
        raise ArgumentTypeError(Argument("tokenizer"), f" must be {kind} of transformers, not {tokenizer!r}")


def _task_of(model: nn.Module, task: str | None) -> str:
    """The task of a model object, by its class; `task` decides where the class does not show it."""
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


def register_attention(name: str, function: Callable[..., Any]) -> None:
    """Let models compute their attention by `function`, with eager masks, when their config names it."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, eager_mask)


def _check_device_and_dtype(model: nn.Module, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
    weight = next(model.parameters(), None)
    if weight is None:
        return
    if weight.device.type == "meta":
        raise ArgumentError(Argument("model"), " is on the meta device, where weights have no values; load its weights")
    if device is not None:
        expected = _as_device(device)
        same_index = expected.index is None or expected.index == weight.device.index
        if expected.type != weight.device.type or not same_index:
            raise ArgumentError(
                f"the model is on {weight.device}, not on ",
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
