"""`gaflow.explain`: a model, a text and its explanation in one call."""

from __future__ import annotations

from typing import Any, Unpack, overload

import torch

from gaflow.arguments import checked
from gaflow.attribution.attribution import Attribution
from gaflow.explainer.arguments import AnyMethod, ExplainOptions, Options
from gaflow.explainer.explainer import Explainer
from gaflow.models.loading import DeviceMap
from gaflow.tasks import Input
from gaflow.tasks.targets import Target


@overload
def explain(
    text: list[Any],
    model: Any = None,
    method: AnyMethod | None = None,
    target: Target | list[Target] = None,
    **options: Unpack[ExplainOptions],
) -> list[Attribution]: ...


@overload
def explain(
    text: Input,
    model: Any = None,
    method: AnyMethod | None = None,
    target: Target = None,
    **options: Unpack[ExplainOptions],
) -> Attribution: ...


@checked
def explain(
    text: Any,
    model: Any = None,
    method: AnyMethod | None = None,
    target: Any = None,
    *,
    tokenizer: Any = None,
    task: str | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | str | None = None,
    revision: str | None = None,
    device_map: DeviceMap | None = None,
    quantization_config: object = None,
    trust_remote_code: bool = False,
    **options: Unpack[Options],
) -> Attribution | list[Attribution]:
    """Explain a text, or each text of a list, in one call.

    `options` are those of an `Explainer`'s call. Each `explain` loads the model: to use it again, make an `Explainer`.

        >>> gaflow.explain("a very smart dog").words()
        >>> gaflow.explain(["a good film", "a bad one"], "org/name", "agf", target="positive")
    """
    explainer = Explainer(
        model,
        tokenizer,
        task=task,
        device=device,
        dtype=dtype,
        revision=revision,
        device_map=device_map,
        quantization_config=quantization_config,
        trust_remote_code=trust_remote_code,
    )
    return explainer(text, method, target, **options)
