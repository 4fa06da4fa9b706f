"""One call for who explains one text, or one list of texts."""

from __future__ import annotations

from typing import Any, overload

import torch

from gaflow.attribution.attribution import Attribution
from gaflow.explainer.explainer import AnyMethod, Explainer
from gaflow.explainer.windows import Windows
from gaflow.progress import Progress
from gaflow.tasks import Input
from gaflow.tasks.targets import Target

__all__ = ["explain"]


@overload
def explain(
    text: list[Any],
    model: Any = None,
    method: AnyMethod = None,
    target: Target | list[Target] = None,
    *,
    tokenizer: Any = None,
    task: str | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | str | None = None,
    batch_size: int = 16,
    truncation: bool = False,
    windows: bool | Windows = False,
    progress: Progress = False,
) -> list[Attribution]: ...


@overload
def explain(
    text: Input,
    model: Any = None,
    method: AnyMethod = None,
    target: Target = None,
    *,
    tokenizer: Any = None,
    task: str | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | str | None = None,
    batch_size: int = 16,
    truncation: bool = False,
    windows: bool | Windows = False,
    progress: Progress = False,
) -> Attribution: ...


def explain(
    text: Any,
    model: Any = None,
    method: AnyMethod = None,
    target: Any = None,
    *,
    tokenizer: Any = None,
    task: str | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | str | None = None,
    batch_size: int = 16,
    truncation: bool = False,
    windows: bool | Windows = False,
    progress: Progress = False,
) -> Attribution | list[Attribution]:
    """Explain a text (giving an Attribution) or a list of texts (giving a list) in one call.

    The model is loaded anew by every call; make an Explainer to use it more than once.
    """
    explainer = Explainer(model, tokenizer, task=task, device=device, dtype=dtype)
    return explainer(
        text, method, target, batch_size=batch_size, truncation=truncation, windows=windows, progress=progress
    )
