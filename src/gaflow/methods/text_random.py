"""Random numbers of one text: whoever draws numbers for a text seeds them here.

The convention this file owns: the numbers come from a seed and the text's input alone, so a batch gives the same as
each text alone. Libraries that draw from torch's global state find it replaced by one of the text (`TextGenerator`),
for one text at a time; it is put back while the model runs, and afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b

import numpy as np
import torch

from gaflow.inputs.batch import Batch
from gaflow.inputs.encoding import Encoding
from gaflow.models.randomness import RANDOM


class TextGenerator:
    """A context in which torch draws the numbers of one text. It can be suspended, and continues where it was."""

    def __init__(self, seed: int, ids: Sequence[int]):
        number = _digest(f"{seed} {list(ids)}", size=8) >> 1  # torch takes 63 bits
        self._state = torch.Generator().manual_seed(number).get_state()
        self._global_state = self._state

    def __enter__(self) -> None:
        RANDOM.acquire()
        self._global_state = torch.get_rng_state()
        torch.set_rng_state(self._state)

    def __exit__(self, *_: object) -> None:
        self._state = torch.get_rng_state()
        torch.set_rng_state(self._global_state)
        RANDOM.release()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Put the global state back for a while."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()


def token_ids(encoding: Encoding) -> list[int]:
    """The token ids of a text; none for a picture or a sound."""
    return [int(token) for token in encoding.inputs.get("input_ids", ())]


def token_generator(seed: int, draw: int, ids: Sequence[int]) -> np.random.Generator:
    """NumPy's generator for one of several draws for the text of these token ids."""
    return np.random.default_rng([seed, draw, *ids])


def input_generator(seed: int, batch: Batch, item: int) -> np.random.Generator:
    """NumPy's generator for all model inputs of one text of a batch, without its padding."""
    real = batch.mask[item].cpu()
    parts = []
    for name in sorted(batch.inputs):
        values = batch.inputs[name][item].cpu()
        if values.shape[:1] == real.shape:
            values = values[real]
        parts.append(f"{name} {tuple(values.shape)} {values.tolist()}")
    return np.random.default_rng([seed, _digest("".join(parts), size=16)])


def _digest(text: str, size: int) -> int:
    """A number of `size` bytes that the whole text decides."""
    digest = blake2b(text.encode(), digest_size=size).digest()
    return int.from_bytes(digest, "little")
