"""Random numbers of one text: whoever draws numbers for a text seeds them here.

The convention this file owns: the numbers come from a seed and the text's input alone, so a batch gives the same as
each text alone. Nothing is drawn from a global random state, so threads draw the same numbers as a single one.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import torch

from gaflow.inputs.batch import Batch
from gaflow.inputs.encoding import Encoding


def torch_generator(seed: int, ids: Sequence[int]) -> torch.Generator:
    """Torch's generator for the text of these token ids."""
    number = _digest(f"{seed} {list(ids)}", size=8) >> 1  # torch takes 63 bits
    return torch.Generator().manual_seed(number)


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
