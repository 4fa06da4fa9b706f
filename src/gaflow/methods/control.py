"""The control: scores that know nothing of the model, which every other method should beat."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gaflow.arguments import whole_number
from gaflow.inputs.batch import Batch
from gaflow.methods.base import MethodInfo, NamedSettings, Scores
from gaflow.methods.text_random import input_generator
from gaflow.models.tracing import Trace


@dataclass(frozen=True)
class Random(NamedSettings):
    """Random scores, uniform in [0, 1): the same ones for the same text, whatever the batch and the class."""

    seed: int = 0  # other seeds give other scores

    base_name = "random"
    head_means = ()
    info = MethodInfo(family="control", signed=False, class_specific=False, passes="none", reference="none")

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("seed", self.seed, least=0)

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a traced batch."""
        return self.of(trace.require_model().batch)

    def of(self, batch: Batch) -> Scores:
        """Scores of a batch; no trace is needed."""
        mask = batch.mask.cpu()
        values = torch.zeros(mask.shape, dtype=torch.float64)
        for item, real in enumerate(mask):
            generator = input_generator(self.seed, batch, item)
            values[item, real] = torch.from_numpy(generator.random(int(real.sum())))
        return Scores(values)
