"""An explainer on its way to another process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from gaflow.explainer.explainer import Explainer
from gaflow.explainer.runner import Attention


@dataclass(frozen=True)
class SentExplainer:
    """What an explainer consists of."""

    model: Any  # a transformers model
    tokenizer: Any
    task: str
    attention: Attention

    @classmethod
    def of(cls, explainer: Explainer) -> SentExplainer:
        """What is sent of an explainer."""
        return cls(explainer.model, explainer.tokenizer, explainer.task, explainer.runner.attention)

    def unpack(self, device: str | None = None) -> Explainer:
        """The same explainer in the process that received this; None is the device that the model is on."""
        model = self.model
        if hasattr(model, "_can_record_outputs"):
            with torch.device("meta"):
                type(model)(model.config)  # transformers learns what a class can record when one is made, not unpickled
        if device is not None:
            model = model.to(device)
        return Explainer(model, self.tokenizer, task=self.task, attention=self.attention)
