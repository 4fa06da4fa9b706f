"""The control: scores that know nothing of the model, which every other method should beat."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import ClassVar

import numpy as np
import torch

from gaflow.inputs.batch import Batch
from gaflow.methods.base import MethodInfo, Scores, full_name
from gaflow.models.tracing import Trace

__all__ = ["Random"]


@dataclass(frozen=True)
class Random:
    """Random scores, uniform in [0, 1): the same ones for the same text, whatever the batch and the class."""

    seed: int = 0  # other seeds give other scores

    info: ClassVar[MethodInfo] = MethodInfo("control", False, False, "none", "none")

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise ValueError(f"seed must be a whole number >= 0, not {self.seed!r}")

    @property
    def name(self) -> str:
        """Name and settings that are not the defaults."""
        return full_name("random", self)

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a traced batch."""
        return self.of(trace.require_model().batch)

    def of(self, batch: Batch) -> Scores:
        """Scores of a batch that no model has seen: none is needed."""
        mask = batch.mask.cpu().numpy()
        values = np.zeros(mask.shape)
        for item, real in enumerate(mask):
            generator = np.random.default_rng([self.seed, _digest(batch, item, real)])
            values[item, real] = generator.random(int(real.sum()))
        return Scores(torch.as_tensor(values))


def _digest(batch: Batch, item: int, real: np.ndarray) -> int:
    """A number that only the inputs of one text decide, not the texts beside it."""
    found = blake2b(digest_size=16)
    for name in sorted(batch.inputs):
        given = batch.inputs[name][item].cpu()
        tokens = given[torch.as_tensor(real)] if given.shape[:1] == real.shape else given
        found.update(f"{name} {tuple(tokens.shape)} {tokens.tolist()}".encode())
    return int.from_bytes(found.digest(), "little")
