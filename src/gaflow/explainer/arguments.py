"""The types of the arguments of an `Explainer`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

import torch
from torch import Tensor

from gaflow.explainer.windows import Windows
from gaflow.methods import Method
from gaflow.models.loading import DeviceMap
from gaflow.progress import Progress

AnyMethod = str | Method | Callable[[Tensor, Tensor], Tensor]


class Options(TypedDict, total=False):
    """The options of a call of an `Explainer`."""

    batch_size: int
    truncation: bool
    windows: bool | Windows
    progress: Progress
    keep_flow: bool


class ExplainOptions(Options, total=False):
    """The options of `explain`."""

    tokenizer: Any
    task: str | None
    device: torch.device | str | None
    dtype: torch.dtype | str | None
    revision: str | None
    device_map: DeviceMap | None
    quantization_config: object
    trust_remote_code: bool
