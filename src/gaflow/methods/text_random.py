"""Random numbers of one text, for libraries that draw from torch's global state.

The convention this file owns: the numbers come from a seed and the text's token ids alone, so that a batch gives what
each text alone gives, and the global state is left as found: it is swapped for one of the text's own, by one text at a
time, and swapped back while the model runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b

import torch

from gaflow.models.restore import RANDOM

__all__ = ["TextGenerator"]


class TextGenerator:
    """A context in which torch draws the numbers of one text; it can be paused, and goes on where it was."""

    def __init__(self, seed: int, ids: Sequence[int]):
        digest = blake2b(f"{seed} {list(ids)}".encode(), digest_size=8).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)  # 63 bits are taken
        self._own = self._found = generator.get_state()

    def __enter__(self) -> None:
        RANDOM.acquire()
        self._found = torch.get_rng_state()
        torch.set_rng_state(self._own)

    def __exit__(self, *_: object) -> None:
        self._own = torch.get_rng_state()
        torch.set_rng_state(self._found)
        RANDOM.release()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Give the global state back for a while."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()
