"""Models and tokenizers, from wherever the user has them; the only importer of transformers, and only on use.

The convention this file owns: what is loaded here is gaflow's (moved to `device`, in `dtype`), what the user
brings is the user's and is neither moved nor converted.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gaflow.errors import GaflowError, UnsupportedModelError
from gaflow.tasks import TASKS, task_of

__all__ = ["Loaded", "load_model", "outline"]

_ASSETS = Path(__file__).parents[1] / "assets"


@dataclass(frozen=True)
class Loaded:
    """A model ready to be traced, and what turns text into its input."""

    model: Any  # PreTrainedModel or anything that behaves like one
    tokenizer: Any  # or image processor, or feature extractor
    task: str


def load_model(
    model: Any,
    tokenizer: Any,
    task: str | None,
    device: torch.device | str | None,
    dtype: torch.dtype | str | None,
) -> Loaded:
    """Model, tokenizer and task from None (the embedded model), a name, a path, a model or a pipeline."""
    _check_known(task)
    if model is None:
        model = _embedded()
    if isinstance(model, str | Path):
        return _from_name(_place(model), tokenizer, task, device, _dtype(dtype) or torch.float32)
    if not isinstance(model, nn.Module) and hasattr(model, "model") and hasattr(model, "tokenizer"):
        readers = (getattr(model, name, None) for name in ("tokenizer", "image_processor", "feature_extractor"))
        tokenizer = tokenizer if tokenizer is not None else next((r for r in readers if r is not None), None)
        model = model.model  # of a transformers pipeline
    if not isinstance(model, nn.Module) or not hasattr(model, "config"):
        raise TypeError(
            f"model must be None, a hub id, a path, a transformers model or a pipeline, not {type(model).__name__}"
        )
    chosen = _choose_task(task, task_of(type(model).__name__, _main_input(type(model))), type(model).__name__)
    if tokenizer is None:
        what = {"AutoTokenizer": "tokenizer", "AutoImageProcessor": "image processor"}
        reader = what.get(TASKS[chosen].processor, "feature extractor")
        raise ValueError(f"a model object needs its {reader}: Explainer(model, {reader.replace(' ', '_')})")
    if isinstance(tokenizer, str | Path):
        tokenizer = _load_reader(_place(tokenizer), chosen)
    _check_placement(model, device, _dtype(dtype))
    return Loaded(model, tokenizer, chosen)


def _place(name: str | Path) -> str:
    """A folder's path, or the name of a model on the hub; what can only be a path must exist."""
    path = Path(name).expanduser()
    if path.is_dir() and str(name).strip():
        return str(path)
    if isinstance(name, Path) or str(name).startswith((".", "/", "~")) or str(name).count("/") > 1 or not str(name):
        raise GaflowError(f"no model folder at {str(name)!r}; give an existing folder or a hub id such as 'org/name'")
    return str(name)


def _embedded() -> Path:
    if not (_ASSETS / "config.json").is_file():
        raise GaflowError(
            "this build of gaflow has no embedded demo model: pass model=, a hub id or a local path, "
            "or a transformers model with its tokenizer"
        )
    return _ASSETS


def _from_name(
    name: str, tokenizer: Any, task: str | None, device: torch.device | str | None, dtype: torch.dtype
) -> Loaded:
    place = _usable(device)
    with _quiet(), _named(name):
        config, built_for, task = _configuration(name, task)
        model, report = _class(task).from_pretrained(name, config=config, dtype=dtype, output_loading_info=True)
        if tokenizer is None or isinstance(tokenizer, str | Path):
            tokenizer = _load_reader(_place(tokenizer or name), task)
    missing = sorted(report["missing_keys"])
    if missing:
        raise UnsupportedModelError(
            f"{name!r} has no weights for {', '.join(missing[:4])}{' and others' * (len(missing) > 4)}: it "
            f"was made as {built_for}, so its head would be random. Use one fine-tuned for {task}"
        )
    return Loaded(model.to(place).eval(), tokenizer, task)


def _usable(device: torch.device | str | None) -> torch.device:
    """The device to load to; None takes the GPU if there is one."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.empty(0, device=device).device
        if place.type == "meta":
            raise RuntimeError("meta tensors hold no data")
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise ValueError(f"device {str(device)!r} cannot be used here ({reason}); try 'cpu'") from None
    return place


def outline(model: str | Path | None, task: str | None = None) -> Loaded:
    """A model by name or path (None: the embedded one) without its weights: on the meta device, at no cost."""
    _check_known(task)
    name = _place(_embedded() if model is None else model)
    with _quiet(), _named(name):
        config, _, task = _configuration(name, task)
        with torch.device("meta"):
            empty = _class(task).from_config(config, dtype=torch.float32)
    return Loaded(empty.eval(), _load_reader(name, task), task)


def _configuration(name: str, task: str | None) -> tuple[Any, str | None, str]:
    """The model's config, the architecture it was made as, and the task."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(name)
    built_for = next(iter(getattr(config, "architectures", None) or ()), None)
    if task is None and built_for is not None:
        import transformers

        task = task_of(built_for, _main_input(getattr(transformers, built_for, None)))
    return config, built_for, task or "text-classification"


def _main_input(kind: Any) -> str:
    return str(getattr(kind, "main_input_name", "input_ids"))


def _class(task: str) -> Any:
    import transformers

    return getattr(transformers, TASKS[task].loader)


def _load_reader(name: str, task: str) -> Any:
    """What turns the task's input into the model's."""
    import transformers

    with _named(name):
        return getattr(transformers, TASKS[task].processor).from_pretrained(name)


def _check_known(task: str | None) -> None:
    if task is not None and task not in TASKS:
        raise ValueError(f"unknown task {task!r}; the tasks are {', '.join(TASKS)}")


def _choose_task(asked: str | None, seen: str | None, name: str) -> str:
    """The task that was asked for, or that a model's class shows."""
    if asked is not None and seen not in (None, asked):
        raise UnsupportedModelError(f"{name} is for {seen}, not for {asked}; leave task out, or use a model for it")
    found = asked or seen
    if found is None:
        raise UnsupportedModelError(
            f"cannot tell the task of {name}; if its output is class logits, pass task='text-classification' (the "
            f"tasks are {', '.join(TASKS)})"
        )
    return found


def _check_placement(model: nn.Module, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
    weight = next(model.parameters(), None)
    if weight is None:
        return
    if device is not None:
        asked = torch.device(device)
        if asked.type != weight.device.type or (asked.index is not None and asked.index != weight.device.index):
            raise ValueError(
                f"the model is on {weight.device} and device={str(device)!r} was asked for; your model is "
                f"not moved behind your back: call model.to({str(device)!r}) first, or leave device out"
            )
    if dtype is not None and dtype != weight.dtype:
        raise ValueError(
            f"the model is in {weight.dtype} and dtype={dtype} was asked for; your model is not converted "
            "behind your back: call model.to(dtype) first, or leave dtype out"
        )


def _dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    if dtype is None or isinstance(dtype, torch.dtype):
        found = dtype
    else:
        found = getattr(torch, str(dtype).removeprefix("torch."), None)
    if dtype is not None and not (isinstance(found, torch.dtype) and found.is_floating_point):
        raise ValueError(f"dtype must be a floating-point torch.dtype or its name, not {dtype!r}")
    return found


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Say in one line which name could not be loaded."""
    try:
        yield
    except GaflowError:
        raise
    except Exception as error:  # a folder's files are anybody's, and so are the errors they cause in transformers
        first = str(error).strip().split("\n")[0]
        raise GaflowError(
            f"cannot load {name!r}: {first} (give a hub id or a folder with config, weights and tokenizer)"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars while loading: a library does not draw on its user's terminal."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the environment may have settled the matter already
        logging.disable_progress_bar()
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if shown:
                logging.enable_progress_bar()
